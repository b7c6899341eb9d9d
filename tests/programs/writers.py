"""Many writers that wait for room, and readers that make them wait.

    writers.py server ADDRESS PORT STOP
    writers.py client ADDRESS PORT SECONDS STOP

A connection begins with a line that says how the server is to write, how many bytes, and from where
in the pattern. `send` blocks in sendall, `edge` waits in epoll with EPOLLET, `level` and `poll` wait
each time, `file` gives a file to sendfile and waits in epoll. The client reads now nothing and now a
little, with a small buffer: the servers' send buffers are full nearly always. Whoever waits for bytes
that do not come for a minute names the connection.
"""
import os, random, select, socket, sys, tempfile, threading, time

MODULUS = 65521
PATTERN = bytes((at * 7 + at // 251) & 255 for at in range(MODULUS)) * 17
HOWS = ("send", "edge", "level", "poll", "file")
PATIENCE = 60


def part(at, count):
    return PATTERN[at % MODULUS :][:count]


def waits_by(how, fd):
    if how == "poll":
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        return poll.poll
    epoll = select.epoll()
    epoll.register(fd, select.EPOLLOUT | (select.EPOLLET if how == "edge" else 0))
    return epoll.poll


def write(connection, file):
    how, count, at = connection.makefile("r").readline().split()
    count, at = int(count), int(at)
    end = at + count
    if how == "send":
        connection.settimeout(None)
        while at < end:
            block = part(at, min(end - at, 1 << 19))
            connection.sendall(block)
            at += len(block)
    else:
        connection.setblocking(False)
        wait = waits_by(how, connection.fileno())
        while at < end:
            try:
                if how == "file":
                    most = min(end - at, 1 << 19)
                    at += os.sendfile(connection.fileno(), file, at % MODULUS, most)
                else:
                    at += connection.send(part(at, min(end - at, 1 << 18)))
            except BlockingIOError:
                wait()
    connection.close()


def server(address, port, stop):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=256)
    file = tempfile.TemporaryFile()
    file.write(PATTERN)
    file.flush()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=write, args=(connection, file.fileno()), daemon=True).start()


class Reader:
    def __init__(self, draw, number, address, port):
        self.how, self.count, self.at = HOWS[number % len(HOWS)], draw.randrange(1 << 17, 1 << 20), draw.randrange(MODULUS)
        self.name = f"connection {number} ({self.how}, {self.count} bytes)"
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, draw.choice((4096, 16384, 65536)))
        self.socket.connect((address, port))
        self.socket.sendall(f"{self.how} {self.count} {self.at}\n".encode())
        self.socket.setblocking(False)
        self.left, self.last = self.count, time.monotonic()

    def read(self, most):
        """Reads up to so many bytes; whether the connection has ended."""
        try:
            block = self.socket.recv(most)
        except BlockingIOError:
            if time.monotonic() - self.last > PATIENCE:
                sys.exit(f"{self.name} stands still, {self.left} bytes before its end")
            return False
        self.last = time.monotonic()
        if not block and self.left:
            sys.exit(f"{self.name} ended {self.left} bytes early")
        if block != part(self.at, len(block)):
            sys.exit(f"{self.name} brought other bytes, {self.left} before its end")
        self.at, self.left = self.at + len(block), self.left - len(block)
        return not block


def client(address, port, seconds, stop):
    draw, number, moved = random.Random(port), 0, 0
    end, readers = time.monotonic() + seconds, []
    while readers or time.monotonic() < end and not os.path.exists(stop):
        beginning = time.monotonic() < end and not os.path.exists(stop)
        while beginning and len(readers) < 60:
            readers.append(Reader(draw, number, address, port))
            number += 1
        rest = []
        for reader in readers:
            # A third is left waiting, who then reads a burst.
            ended = draw.randrange(3) and reader.read(draw.choice((100, 3000, 20000, 200000)))
            if not ended:
                rest.append(reader)
                continue
            moved += reader.count
            reader.socket.close()
        readers = rest
        time.sleep(draw.choice((0, 0, 0, 0.002)))
    print(f"{number} transfers, {moved / 1e6:.0f} MB, all bytes equal", flush=True)


if sys.argv[1] == "server":
    server(sys.argv[2], int(sys.argv[3]), None)
else:
    client(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
