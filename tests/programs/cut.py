"""A server whose connection to the engine is cut by no doing of the engine's: raw system calls shut
down every Unix socket that the library holds, when the file CUT exists.

    cut.py ADDRESS PORT CUT
"""
import ctypes, os, select, socket, sys

libc = ctypes.CDLL(None)
address, port, cut = sys.argv[1], int(sys.argv[2]), sys.argv[3]
listener = socket.create_server((address, port), backlog=128)
listener.setblocking(False)
poll = select.poll()
poll.register(listener, select.POLLIN)
connections = {}
done = False
while True:
    for fd, _ in poll.poll(20):
        if fd == listener.fileno():
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                continue
            connections[connection.fileno()] = connection
            poll.register(connection, select.POLLIN)
            continue
        connection = connections[fd]
        try:
            block = connection.recv(65536)
            connection.sendall(block)
        except OSError as error:
            print("lost", error.errno, flush=True)
            block = b""
        if not block:
            poll.unregister(fd)
            connections.pop(fd).close()
    if not done and os.path.exists(cut):
        done = True
        for fd in os.listdir("/proc/self/fd"):
            try:
                name = os.readlink(f"/proc/self/fd/{fd}")
            except OSError:
                continue
            if name.startswith("socket:") and int(fd) not in connections:
                # Of the kernel's sockets, only Unix ones: SO_DOMAIN by a call that the library
                # does not see.
                domain, size = ctypes.c_int(0), ctypes.c_int(4)
                libc.syscall(55, int(fd), 1, 39, ctypes.byref(domain), ctypes.byref(size))
                if domain.value == socket.AF_UNIX:
                    libc.syscall(48, int(fd), 2)
        print("cut", flush=True)
