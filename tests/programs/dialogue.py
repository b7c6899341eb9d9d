"""Connections whose two sides follow a plan drawn from a seed; prints what each side saw.

    dialogue.py server ADDRESS PORT COUNT
    dialogue.py client ADDRESS PORT COUNT

The client opens COUNT connections, of seeds 1 to COUNT. A plan says how much goes each way, in
writes of which sizes, who begins, who ends its direction first, which options both set, how each
reads, and whether the server resets the connection once all has been taken. A line tells of one side
of one connection: seed, side, bytes received, whether they were right, and how the stream ended.
"""
import errno, os, random, socket, struct, sys, threading, time

PARALLEL = 24
PATIENCE = 60


class Plan:
    def __init__(self, seed):
        draw = random.Random(seed)
        size = lambda: int(2 ** draw.uniform(0, 18)) - 1
        self.data = {side: random.Random(seed * 2 + at).randbytes(size()) for at, side in enumerate(("client", "server"))}
        # Who sends at once: both, or one while the other waits for the end of that.
        self.first = draw.choice(["both", "client", "server"])
        self.reset = draw.random() < 0.1
        self.sides = {side: self.side(draw) for side in ("client", "server")}

    def side(self, draw):
        return {
            "seed": draw.getrandbits(32),
            "nodelay": draw.random() < 0.5,
            "cork": draw.random() < 0.2,
            "sndbuf": draw.choice([None, None, 4608, 65536]),
            "rcvbuf": draw.choice([None, None, 2304, 16384]),
            "write": 2 ** draw.uniform(0, 16),
            "read": 2 ** draw.uniform(4, 16),
            "pauses": draw.random() < 0.3,
            "peeks": draw.random() < 0.3,
            "keepalive": draw.random() < 0.3,
        }


def prepare(connection, side, plan):
    mine = plan.sides[side]
    connection.settimeout(PATIENCE)
    level = socket.IPPROTO_TCP
    if mine["nodelay"]:
        connection.setsockopt(level, socket.TCP_NODELAY, 1)
    # Nobody sends a lost reset again: who has nothing more to send hears of it by asking.
    if mine["keepalive"] or plan.reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(level, socket.TCP_KEEPIDLE, 1)
        connection.setsockopt(level, socket.TCP_KEEPINTVL, 5)
    for name, value in ((socket.SO_SNDBUF, mine["sndbuf"]), (socket.SO_RCVBUF, mine["rcvbuf"])):
        if value:
            connection.setsockopt(socket.SOL_SOCKET, name, value)


def send(connection, data, mine):
    draw = random.Random(mine["seed"])
    if mine["cork"]:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    at, least = 0, max(len(data) / 400, 1)
    while at < len(data):
        length = int(max(draw.expovariate(1 / mine["write"]), least)) + 1
        connection.sendall(data[at : at + length])
        at += length
        if mine["pauses"] and draw.random() < 0.02:
            time.sleep(draw.random() / 100)
    if mine["cork"]:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)


def receive(connection, length, mine):
    """Takes what the plan says is to come, and no more."""
    draw, got = random.Random(mine["seed"] + 1), bytearray()
    while len(got) < length:
        size = min(int(draw.expovariate(1 / mine["read"])) + 16, length - len(got))
        seen = connection.recv(size, socket.MSG_PEEK) if mine["peeks"] and draw.random() < 0.2 else b""
        flags = socket.MSG_WAITALL if draw.random() < 0.1 else 0
        block = connection.recv(size, flags)
        if not block.startswith(seen[: len(block)]):
            raise ValueError("what was peeked at is not what came")
        if not block:
            break
        got += block
        if mine["pauses"] and draw.random() < 0.02:
            time.sleep(draw.random() / 100)
    return bytes(got)


def play(connection, side, seed, plan):
    other = "server" if side == "client" else "client"
    mine, sends, expected = plan.sides[side], plan.data[side], plan.data[other]
    got, end = b"", ""
    try:
        prepare(connection, side, plan)
        if plan.first == "both":
            sender = threading.Thread(target=send, args=(connection, sends, mine))
            sender.start()
            got = receive(connection, len(expected), mine)
            sender.join()
        elif plan.first == side:
            send(connection, sends, mine)
            got = receive(connection, len(expected), mine)
        else:
            got = receive(connection, len(expected), mine)
            send(connection, sends, mine)
        if plan.reset and side == "server":
            connection.recv(1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            end = "resets"
        else:
            if plan.reset:
                connection.sendall(b"!")
            else:
                connection.shutdown(socket.SHUT_WR)
            end = "more" if connection.recv(1) else "EOF"
    except TimeoutError:
        end = "TIMEOUT"
    except OSError as error:
        end = errno.errorcode.get(error.errno, str(error))
    except ValueError as error:
        end = str(error)
    finally:
        connection.close()
    content = "right" if got == expected else f"wrong: {len(expected)} expected"
    os.write(1, f"{seed:04} {side} {len(got)} {content} {end}\n".encode())


def serve(connection):
    connection.settimeout(PATIENCE)
    seed, = struct.unpack("<I", connection.recv(4, socket.MSG_WAITALL))
    play(connection, "server", seed, Plan(seed))


def ask(target, seed):
    plan = Plan(seed)
    try:
        connection = socket.create_connection(target, PATIENCE)
    except OSError as error:
        os.write(1, f"{seed:04} client cannot connect: {error}\n".encode())
        return
    connection.sendall(struct.pack("<I", seed))
    play(connection, "client", seed, plan)


def main():
    role, target, count = sys.argv[1], (sys.argv[2], int(sys.argv[3])), int(sys.argv[4])
    room, threads = threading.Semaphore(PARALLEL if role == "client" else count), []

    def within(call, *arguments):
        try:
            call(*arguments)
        finally:
            room.release()

    listener = None
    if role == "server":
        listener = socket.create_server(target, backlog=128)
        # A client that cannot connect is not waited for for ever.
        listener.settimeout(PATIENCE)
    for seed in range(1, count + 1):
        room.acquire()
        what = (serve, listener.accept()[0]) if listener else (ask, target, seed)
        threads.append(threading.Thread(target=within, args=what))
        threads[-1].start()
    for thread in threads:
        thread.join()


main()
