"""Holds connections to servers and uses them when told to, by files that appear.

    keeper.py DIRECTORY

DIRECTORY/N.open (with "NAME ADDRESS PORT") opens a connection called NAME; N.use (with "NAME
COUNT") sends COUNT bytes and reads an answer: as many bytes from an echo, a line if COUNT is 0
(redis); N.end closes. Each is answered by a line "N ok", or "N ERRNO" of what failed. N counts
from 0. What a step waits for longer than 60 s is TIMEOUT.
"""
import errno, os, socket, sys, time

directory = sys.argv[1]
held = {}


def take(connection, count):
    while count > 0:
        block = connection.recv(min(count, 65536))
        if not block:
            raise ConnectionError(errno.EPIPE, "ended")
        count -= len(block)


def use(connection, count):
    if count == 0:
        connection.sendall(b"PING\r\n")
        take(connection, 7)
        return
    sent = 0
    while sent < count:
        part = min(count - sent, 16384)
        connection.sendall(b"x" * part)
        take(connection, part)
        sent += part


def step(kind, words):
    if kind == "open":
        name, address, port = words
        connection = socket.create_connection((address, int(port)), 60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        held[name] = connection
    elif kind == "use":
        use(held[words[0]], int(words[1]))
    else:
        held.pop(words[0]).close()


number = 0
while True:
    for kind in ("open", "use", "end"):
        path = os.path.join(directory, f"{number}.{kind}")
        try:
            with open(path) as file:
                words = file.read().split()
        except FileNotFoundError:
            continue
        try:
            step(kind, words)
            said = "ok"
        except TimeoutError:
            said = "TIMEOUT"
        except OSError as error:
            said = errno.errorcode.get(error.errno, str(error))
        print(number, said, flush=True)
        number += 1
        break
    else:
        time.sleep(0.002)
