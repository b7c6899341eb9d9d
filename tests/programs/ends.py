"""Comes to a sudden end (SIGKILL) in the middle of something.

    ends.py attach|connect|accept|transfer|close ADDRESS PORT

`accept` listens at PORT, the others connect to an echo there.
"""
import os, signal, socket, sys

where, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])


def end():
    os.kill(os.getpid(), signal.SIGKILL)


if where == "accept":
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=128)
    print("listens", flush=True)
    # Some wait in the queue, this one is accepted and has bytes unread.
    listener.accept()
    end()

connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
connection.setblocking(where != "connect")
try:
    connection.connect((address, port))
except BlockingIOError:
    end()
if where == "attach":
    # A child that has the library attaches anew, and ends at once.
    if os.fork() == 0:
        late = socket.socket(connection.family)
        late.setblocking(False)
        try:
            late.connect((address, port))
        except BlockingIOError:
            pass
        end()
    os.wait()
    end()
if where == "transfer":
    connection.setblocking(False)
    for _ in range(1000):
        try:
            connection.send(bytes(65536))
        except BlockingIOError:
            break
    end()
connection.sendall(bytes(100000))
connection.close()
end()
