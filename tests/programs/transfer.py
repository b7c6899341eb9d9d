"""Streams whose content is compared by checksum, both ways.

    transfer.py server ADDRESS PORT
    transfer.py client ADDRESS PORT SECONDS BYTES MEGABYTES

The client sends MEGABYTES and receives as many, again and again, until SECONDS have passed and
BYTES have been moved. Each side tells the other its digest of what it received.
"""
import hashlib, random, socket, struct, sys, threading, time

BLOCK = 1 << 20


def blocks(seed, count):
    base = bytearray(random.Random(seed).randbytes(BLOCK))
    for number in range(count):
        base[:8] = struct.pack("<Q", number)
        yield base


def send(connection, seed, count):
    digest = hashlib.sha256()
    for block in blocks(seed, count):
        digest.update(block)
        connection.sendall(block)
    return digest.digest()


def receive(connection, length):
    digest = hashlib.sha256()
    buffer = bytearray(1 << 18)
    view = memoryview(buffer)
    while length:
        got = connection.recv_into(view, min(length, len(buffer)))
        if got == 0:
            raise EOFError(f"the stream ended {length} bytes early")
        digest.update(view[:got])
        length -= got
    return digest.digest()


def exactly(connection, length):
    data = b""
    while len(data) < length:
        piece = connection.recv(length - len(data))
        if not piece:
            raise EOFError("the stream ended early")
        data += piece
    return data


def serve(connection):
    with connection:
        while True:
            head = connection.recv(1)
            if not head:
                return
            count, seed = struct.unpack("<QQ", head + exactly(connection, 15))
            connection.sendall(receive(connection, count * BLOCK))
            digest = send(connection, seed, count)
            if exactly(connection, 32) != digest:
                print("the client received something else", flush=True)


def main():
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == "server":
        listener = socket.create_server((address, port), backlog=64)
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
    seconds, least, count = float(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6])
    moved, transfers, end = 0, 0, time.monotonic() + seconds
    while time.monotonic() < end or moved < least:
        with socket.create_connection((address, port), timeout=120) as connection:
            seed = transfers + 1
            connection.sendall(struct.pack("<QQ", count, seed))
            if send(connection, seed, count) != exactly(connection, 32):
                sys.exit("the server received something else")
            digest = receive(connection, count * BLOCK)
            expected = hashlib.sha256()
            for block in blocks(seed, count):
                expected.update(block)
            if digest != expected.digest():
                sys.exit("received something else than was sent")
            connection.sendall(digest)
        transfers += 1
        moved += 2 * count * BLOCK
    print(f"{transfers} transfers, {moved / 1e9:.2f} GB, all digests equal")


main()
