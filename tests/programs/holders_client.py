"""Kills the processes of holders.py while they echo, and checks that nobody else notices.

    holders_client.py ADDRESS PORT PIDFILE KILLS

Each thread has one connection at a time and checks every byte that comes back. It kills one of the connection's two
holders, at some moment: where it was not the one that echoes, the connection goes on; otherwise it stands until the
other one is killed, too. A connection that ends before, or gives other bytes, is a failure. So is one that does
not end within a minute. Now and then the process that accepts is killed; whoever starts it again is not the client.
"""
import os
import random
import signal
import socket
import sys
import threading
import time

address, port, pidfile, wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
PATIENCE = 60
lock = threading.Lock()
kills, ends, failures = 0, 0, []
master_kills = 0


def kill(pid):
    global kills
    with lock:
        kills += 1
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def enough():
    return kills >= wanted or failures


def connect():
    begin = time.monotonic()
    while True:
        try:
            return socket.create_connection((address, port), timeout=PATIENCE)
        except (ConnectionRefusedError, ConnectionResetError):
            # Nobody accepts until the server has been started again.
            if time.monotonic() - begin > PATIENCE:
                raise
            time.sleep(0.01)


def first_line(connection):
    line = b""
    while not line.endswith(b"\n"):
        part = connection.recv(1)
        if not part:
            raise ConnectionResetError("an end before the first line")
        line += part
    return [int(word) for word in line.split()]


def exchange(connection, chance):
    """Bytes go out and come back as they were."""
    data = chance.randbytes(chance.choice([1, 100, 5_000, 200_000]))
    sender = threading.Thread(target=send, args=[connection, data])
    sender.start()
    got = bytearray()
    while len(got) < len(data):
        part = connection.recv(65536)
        if not part:
            raise ValueError(f"an end after {len(got)} of {len(data)} bytes")
        got += part
    sender.join()
    if got != data:
        raise ValueError(f"other bytes than were sent, {len(data)} of them")


def send(connection, data):
    try:
        connection.sendall(data)
    except OSError:
        pass


def until_end(connection, data):
    """The connection ends; what comes before is the beginning of what was sent."""
    got = bytearray()
    try:
        while part := connection.recv(65536):
            got += part
    except ConnectionError:
        pass
    if not data.startswith(bytes(got)):
        raise ValueError(f"other bytes than were sent, {len(got)} of {len(data)}")


def one(chance):
    global ends
    before = master_kills
    with connect() as connection:
        try:
            server, holder = first_line(connection)
        except ConnectionError:
            if master_kills == before:
                raise
            return
        for _ in range(chance.randrange(4)):
            exchange(connection, chance)
        if holder and chance.random() < 0.5:
            kill(holder)
            for _ in range(2):
                exchange(connection, chance)
            holder = 0
        data = chance.randbytes(400_000)
        sender = threading.Thread(target=send, args=[connection, data])
        sender.start()
        got = connection.recv(chance.randrange(1, 65536)) if chance.random() < 0.7 else b""
        for pid in [server, holder]:
            if pid:
                kill(pid)
        if not data.startswith(got):
            raise ValueError("other bytes than were sent")
        until_end(connection, data[len(got):])
        sender.join(PATIENCE)
        ends += 1


def load(number):
    chance = random.Random(number)
    while not enough():
        try:
            one(chance)
        except Exception as error:
            failures.append(f"thread {number}, after {kills} kills: {error!r}")


def masters():
    """Kills the process that accepts each time that a hundred others were."""
    global master_kills
    while not enough():
        if kills >= (master_kills + 1) * 100:
            with open(pidfile) as file:
                pid = int(file.read())
            # Noted first: a connection that ends with it is not to be a failure.
            master_kills += 1
            kill(pid)
            while open(pidfile).read() == str(pid) and not enough():
                time.sleep(0.01)
        time.sleep(0.01)


threads = [threading.Thread(target=load, args=[number]) for number in range(12)]
threads.append(threading.Thread(target=masters))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"{kills} kills, {master_kills} of them of the process that accepts; {ends} connections to their end")
sys.exit("; ".join(failures[:5]) if failures else 0)
