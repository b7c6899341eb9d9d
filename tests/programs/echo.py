"""Echoes what comes to a TCP port, waiting for connections in a way of its own.

    echo.py blocking|poll|epoll ADDRESS PORT

`blocking` accepts in one thread and serves each connection in another.
"""
import select, socket, sys, threading


def serve(connection):
    try:
        while block := connection.recv(65536):
            connection.sendall(block)
    except OSError:
        pass
    connection.close()


def waiting(listener, add, wait):
    """Serves from one thread; `wait` gives the descriptors that are ready of those added."""
    connections = {}
    add(listener.fileno())
    while True:
        for fd in wait(connections):
            if fd == listener.fileno():
                connection, _ = listener.accept()
                connections[connection.fileno()] = connection
                add(connection.fileno())
                continue
            connection = connections[fd]
            try:
                block = connection.recv(65536)
                connection.sendall(block)
            except OSError:
                block = b""
            if not block:
                del connections[fd]
                connection.close()


def main():
    how, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=128)
    if how == "blocking":
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection,), daemon=True).start()
    if how == "epoll":
        epoll = select.epoll()
        add = lambda fd: epoll.register(fd, select.EPOLLIN)
        waiting(listener, add, lambda _: [fd for fd, _ in epoll.poll()])

    def polled(connections):
        poll = select.poll()
        for fd in [listener.fileno(), *connections]:
            poll.register(fd, select.POLLIN)
        return [fd for fd, _ in poll.poll()]

    waiting(listener, lambda _: None, polled)


main()
