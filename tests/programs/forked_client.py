# Asks a forked_server.py, one connection after the other, and checks every byte.
# Usage: forked_client.py ADDRESS PORT COUNT
import hashlib
import socket
import sys

MUCH = bytes(range(256)) * 4096
OWN = b"from the client " * 30000

for turn in range(int(sys.argv[3])):
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as connection:
        connection.sendall(b"?")
        own = connection.getsockname()
        with connection.makefile("rb") as stream:
            line = stream.readline().split()
            expected = [b"?", own[0].encode(), b"%d" % own[1], sys.argv[2].encode()]
            assert line == expected, (line, expected)
            assert stream.read(len(MUCH)) == MUCH
            connection.sendall(OWN)
            connection.shutdown(socket.SHUT_WR)
            assert stream.read() == hashlib.sha256(OWN).hexdigest().encode()
print("all carried")
