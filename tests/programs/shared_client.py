# Writes to and reads from a shared_server.py at once, and checks every byte of either of its processes.
# Usage: shared_client.py ADDRESS PORT COUNT
import socket
import sys
import threading

PIECE = bytes(range(128)) * 8
PIECES = 3000
LOWER = bytes(range(128))
UPPER = bytes(range(128, 256))


def write(connection):
    for _ in range(PIECES):
        connection.sendall(PIECE)
    connection.shutdown(socket.SHUT_WR)


for turn in range(int(sys.argv[3])):
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=120) as connection:
        writer = threading.Thread(target=write, args=(connection,))
        writer.start()
        parts = []
        while part := connection.recv(1 << 20):
            parts.append(part)
        writer.join()
        whole = b"".join(parts)
        for own, other, who in (LOWER, UPPER, "parent"), (UPPER, LOWER, "child"):
            got = whole.translate(None, delete=other)
            expected = own * 8 * PIECES
            if got != expected:
                first = next((at for at, pair in enumerate(zip(got, expected)) if pair[0] != pair[1]), len(got))
                sys.exit("connection %d: %d bytes of the %s's for %d, other ones from %d on"
                         % (turn, len(got), who, len(expected), first))
print("all carried")
