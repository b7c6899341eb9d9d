"""Blocks in every way on sockets connected to a silent server; prints how each call ended.

    blocked.py silent ADDRESS PORT
    blocked.py client ADDRESS PORT FIFO

Above PORT the server has a listener whose queue is full, at which a connect blocks. Each line of the
client: what blocked, the error's name or the events, and CLOCK_MONOTONIC. FIFO is
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
    # In one piece, as other threads print, too.
    print(f"{name} {result} {time.monotonic()}\n", end="", flush=True)


def fill(connection):
    block = bytes(1 << 16)
    while True:
        connection.sendall(block)


def fill_queue(address, port):
    """Connections of which the server's queue takes two."""
    poll, all = select.poll(), []
    for _ in range(16):
        one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        one.setblocking(False)
        try:
            one.connect((address, port))
        except BlockingIOError:
            pass
        poll.register(one, select.POLLOUT)
        all.append(one)
    while sum(bool(events & select.POLLOUT) for _, events in poll.poll()) < 2:
        time.sleep(0.01)
    return all


def polled(poll, connection):
    poll.register(connection, select.EPOLLIN)
    (_, events), = poll.poll()
    wanted = select.EPOLLERR | select.EPOLLHUP
    return "EPOLLERR|EPOLLHUP" if events & wanted == wanted else f"events:{events:#x}"


def main():
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == "silent":
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener, kept = socket.create_server((address, port), family=family), []
        full = socket.create_server((address, port + 1), family=family, backlog=1)
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
    queued = fill_queue(address, port + 1)
    connect = lambda: socket.create_connection((address, port + 1))
    threads.append(threading.Thread(target=watch, args=("connect", connect)))
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
