"""A server that answers and closes with a reset, and a client that wants the whole answer.

    early.py serve unread|linger ADDRESS PORT
    early.py ask COUNT ADDRESS PORT

`unread` leaves a part of each request unread; `linger` closes with SO_LINGER of 0 seconds. `ask` prints
how many of COUNT answers came whole, and how each connection ended that did not bring one.
"""
import collections, socket, struct, sys

what, how, address, port = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
# Less than the first congestion window, and in one write: the kernel has sent it all by the close.
ANSWER = bytes(range(250)) * 16

if what == "serve":
    listener = socket.create_server((address, port), backlog=128)
    while True:
        connection, _ = listener.accept()
        with connection:
            if how == "linger":
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connection.recv(100, socket.MSG_WAITALL)
            else:
                connection.recv(1)
            connection.sendall(ANSWER)

ends = collections.Counter()
for _ in range(int(how)):
    got = b""
    with socket.create_connection((address, port)) as connection:
        connection.sendall(bytes(100))
        try:
            while part := connection.recv(65536):
                got += part
            end = "end of stream"
        except ConnectionResetError:
            end = "reset"
    ends["whole, " + end if got == ANSWER else f"{len(got)} bytes, {end}"] += 1
print(dict(ends))
