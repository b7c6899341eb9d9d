"""Which local addresses can be bound while connections use a port whose sockets are closed.

    rebinds.py ADDRESS PEER PORT ECHO HELD

ECHO is a port of PEER's where an echo server runs; HELD a file that appears when all that the kernel has to
know is known to it, after "look N" was printed. Says for each moment what bind(2) says.
"""
import errno, os, socket, sys, threading

own, peer, port, echo, held = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
looks = 0


def made(reuse, local=None):
    sock = socket.socket()
    if reuse:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if local:
        sock.bind(local)
    return sock


def bind(local, reuse):
    try:
        made(reuse, local).close()
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def look(moment, at):
    """What a new socket may have, once the kernel knows."""
    global looks
    looks += 1
    print(f"look {looks}", flush=True)
    while not os.path.exists(f"{held}{looks}"):
        threading.Event().wait(0.01)
    for name, address in (("there", own), ("anywhere", "0.0.0.0"), ("elsewhere", "127.0.0.1")):
        for reuse in (False, True):
            said = bind((address, at), reuse)
            print(f"= {moment}: {name}{' reusing' if reuse else ''}: {said}", flush=True)


def passive(reuse, at):
    listener = made(reuse, (own, at))
    listener.listen()
    print(f"ask {at}", flush=True)
    accepted, _ = listener.accept()
    listener.close()
    kind = "reusing" if reuse else "plain"
    look(f"accepted {kind}", at)
    accepted.shutdown(socket.SHUT_WR)
    while accepted.recv(1000):
        pass
    accepted.close()
    look(f"time-wait {kind}", at)


def active(reuse, at):
    client = made(reuse, (own, at))
    client.connect((peer, echo))
    client.sendall(b"hello")
    assert client.recv(100) == b"hello"
    client.close()
    look(f"opened {'reusing' if reuse else 'plain'}, closed", at)


for offset, reuse in enumerate((False, True)):
    passive(reuse, port + offset)
    active(reuse, port + 10 + offset)
print("end", flush=True)
