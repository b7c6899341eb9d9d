"""Connections that ask redis for a large value and take nothing of it: their windows shut.

    hoard.py ADDRESS PORT COUNT

Says `holds` once redis has answered all of them, and holds them until it is killed.
"""
import resource, signal, socket, sys

address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 64), hard))

with socket.create_connection((address, port)) as first:
    value = b"x" * 300_000
    first.sendall(b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$%d\r\n%s\r\n" % (len(value), value))
    assert first.recv(5) == b"+OK\r\n"

held = []
for _ in range(count):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    connection.connect((address, port))
    connection.sendall(b"GET large\r\n")
    held.append(connection)
for connection in held:
    connection.recv(1, socket.MSG_PEEK)
print("holds", flush=True)
signal.pause()
