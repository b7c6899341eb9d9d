"""Opens sockets of every kind, and ends in every way that a report can follow.

    explained.py OWN PEER PORT exit|_exit|signal|exec

Listens at OWN's PORT and takes one connection there, connects to PEER's PORT, and has a child do the same.
"""
import os, signal, socket, sys

own, peer, port, way = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]

if way == "again":
    # What the first program has become.
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))
    sys.exit(0)

held = [socket.socket(socket.AF_UNIX)]
loopback = socket.create_server(("127.0.0.1", 0))
held += [socket.create_connection(loopback.getsockname()) for _ in range(3)]
marked = socket.socket()
marked.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 7)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind((own, port))
listener = socket.create_server((own, port))
print("listens", flush=True)
accepted, _ = listener.accept()
accepted.sendall(b"taken")
accepted.close()
opened = socket.create_connection((peer, port))
opened.sendall(b"opened")

child = os.fork()
if child == 0:
    socket.create_connection((peer, port)).sendall(b"opened")
    os._exit(0)
os.waitpid(child, 0)

if way == "exit":
    sys.exit(0)
elif way == "_exit":
    os._exit(0)
elif way == "signal":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    os.kill(os.getpid(), signal.SIGTERM)
elif way == "exec":
    for one in (loopback, opened):
        os.set_inheritable(one.fileno(), True)
    os.execv(sys.executable, [sys.executable, __file__, own, peer, str(port), "again"])
