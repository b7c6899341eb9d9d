"""Blocks in every way on sockets connected to a silent server; prints how each call ended.

    blocked.py silent ADDRESS PORT
    blocked.py client ADDRESS PORT FIFO

Each line of the client: what blocked, the error's name or the events, and CLOCK_MONOTONIC. FIFO is
read, too: its end tells how late this program and the machine are by themselves.
"""
import errno, select, socket, sys, threading, time


def outcome(call):
    try:
        return str(call())
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def watch(name, call):
    result = outcome(call)
    print(name, result, time.monotonic(), flush=True)


def fill(connection):
    block = bytes(1 << 16)
    while True:
        connection.sendall(block)


def polled(poll, connection):
    poll.register(connection, select.EPOLLIN)
    (_, events), = poll.poll()
    wanted = select.EPOLLERR | select.EPOLLHUP
    return "EPOLLERR|EPOLLHUP" if events & wanted == wanted else f"events:{events:#x}"


def main():
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == "silent":
        listener, kept = socket.create_server((address, port)), []
        while True:
            kept.append(listener.accept()[0])
    calls = {
        "recv": lambda c: c.recv(1),
        "send": fill,
        # The events of poll(2) have the same numbers.
        "epoll": lambda c: polled(select.epoll(), c),
        "poll": lambda c: polled(select.poll(), c),
        "select": lambda c: [len(ready) for ready in select.select([c], [], [])],
    }
    control = lambda: open(sys.argv[4], "rb").read()
    threads = [threading.Thread(target=watch, args=("control", control))]
    for name, call in calls.items():
        connection = socket.create_connection((address, port))
        threads.append(threading.Thread(target=watch, args=(name, lambda c=connection, f=call: f(c))))
    for thread in threads:
        thread.start()
    print("blocked", flush=True)
    for thread in threads:
        thread.join()
    print("alive", flush=True)


main()
