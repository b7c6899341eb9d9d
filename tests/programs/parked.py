"""Blocks in calls that no engine's end ends, and serves whoever comes: listeners and datagram
sockets.

    parked.py ADDRESS PORT

One thread each: accept, epoll_wait and poll for a listener (at PORT and the two above it), recvfrom,
epoll_wait and poll for a datagram socket (the same ports). Whatever comes is echoed; each call that
ended is told with its number.
"""
import select, socket, sys, threading

address, port = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in address else socket.AF_INET


def epolled(fd):
    epoll = select.epoll()
    epoll.register(fd, select.EPOLLIN)
    return epoll.poll


def polled(fd):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return poll.poll


def park(name, sock, waits, serve):
    wait, number = waits(sock.fileno()), 0
    sock.setblocking(waits is blocking)
    while True:
        wait()
        try:
            serve(sock)
        except BlockingIOError:
            continue
        number += 1
        print(name, number, flush=True)


def blocking(_):
    return lambda: None


def connection(listener):
    one, _ = listener.accept()
    one.setblocking(True)
    threading.Thread(target=echo, args=(one,), daemon=True).start()


def echo(one):
    try:
        while block := one.recv(65536):
            one.sendall(block)
    except OSError:
        pass
    one.close()


def datagram(sock):
    block, source = sock.recvfrom(65535)
    sock.sendto(block, source)


threads = []
for above, (how, waits) in enumerate((("call", blocking), ("epoll", epolled), ("poll", polled))):
    listener = socket.create_server((address, port + above), family=family, backlog=16)
    datagrams = socket.socket(family, socket.SOCK_DGRAM)
    datagrams.bind((address, port + above))
    threads.append(threading.Thread(target=park, args=(f"accept-{how}", listener, waits, connection)))
    threads.append(threading.Thread(target=park, args=(f"receive-{how}", datagrams, waits, datagram)))
for thread in threads:
    thread.start()
print("ready", flush=True)
