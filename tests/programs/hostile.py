"""A user who shows the engine a socket at a port, gives the port back to the kernel, and holds on to
what the engine has granted: hostile.py SOCKET HOW ADDRESS PORT

Speaks the control protocol itself, as no honest library would. Prints what the engine says and the
port, which in some ways the kernel chooses, then "ready", and stays.
"""
import ctypes, os, select, socket, struct, sys, tempfile, time

path, how, address, port = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
LISTEN, BIND_UDP, BIND_TCP = 1, 2, 3
GRANTED, DENIED = 3, 4
libc = ctypes.CDLL(None, use_errno=True)


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def unvarint(data):
    number, at = 0, 0
    while True:
        number |= (data[at] & 0x7F) << 7 * at
        at += 1
        if data[at - 1] < 0x80:
            return number, data[at:]


def attach():
    """A session; the engine says itself which contract it speaks."""
    contract = 0
    while True:
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.connect(path)
        control.send(varint(0) + varint(contract) + varint(0) + varint(1) + b"h")
        answer, ancillary, _, _ = control.recvmsg(65536, 65536)
        kind, rest = unvarint(answer)
        if kind == 1:
            return control, ancillary
        assert contract == 0, answer
        contract, _ = unvarint(rest)


def show(control, shown, question):
    message = varint(question) + varint(7)
    if question == LISTEN:
        message += varint(0) + varint(16)
    elif question == BIND_UDP:
        message += varint(0)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", shown))]
    control.sendmsg([message], rights)
    kind, rest = unvarint(control.recv(65536))
    if kind == GRANTED:
        return "granted"
    assert kind == DENIED, rest
    _, rest = unvarint(rest)
    errno, _ = unvarint(rest)
    return "denied " + os.strerror(errno // 2)


def unspecified(sock):
    """connect(2) to no address."""
    assert libc.connect(sock.fileno(), bytes(16), 16) == 0


def made(kind, *options):
    sock = socket.socket(socket.AF_INET, kind)
    for option in options:
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
    return sock


def listener(*options):
    sock = made(socket.SOCK_STREAM, *options)
    sock.bind((address, port))
    sock.listen()
    return sock


def granted(sock, question):
    """Shows it, and prints the answer and the port that it is about."""
    own = sock.getsockname()[1]
    print(show(control, sock.fileno(), question), own, flush=True)


def shut():
    sock = listener(socket.SO_REUSEADDR)
    granted(sock, LISTEN)
    sock.shutdown(socket.SHUT_RDWR)
    yield sock, LISTEN


def disconnected():
    sock = listener(socket.SO_REUSEADDR)
    granted(sock, LISTEN)
    unspecified(sock)
    yield sock, LISTEN


def moved():
    """Listens again at once, elsewhere: the same cookie, and no moment to see it do nothing."""
    sock = made(socket.SOCK_STREAM)
    sock.bind((address, 0))
    sock.listen()
    granted(sock, LISTEN)
    before = sock.getsockname()
    sock.shutdown(socket.SHUT_RDWR)
    with made(socket.SOCK_STREAM) as other:
        other.bind(before)
        sock.listen()
    assert sock.getsockname() != before
    yield sock, None


def passed():
    """The listener is closed here, and in flight in a socket of ours, so that it is not destroyed."""
    sock = listener(socket.SO_REUSEADDR)
    granted(sock, LISTEN)
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", sock.fileno()))]
    one.sendmsg([b"x"], rights)
    sock.shutdown(socket.SHUT_RD)
    sock.close()
    yield (one, other), None


def loosened():
    sock = made(socket.SOCK_DGRAM)
    sock.bind((address, 0))
    granted(sock, BIND_UDP)
    unspecified(sock)
    yield sock, BIND_UDP


def narrowed():
    """At all addresses, but for the kernel at loopback's alone while it has a peer there."""
    sock = made(socket.SOCK_DGRAM)
    sock.bind(("0.0.0.0", port))
    granted(sock, BIND_UDP)
    sock.connect(("127.0.0.1", 9))
    yield sock, None


def shared():
    """A port that whoever sets SO_REUSEADDR may have, too."""
    sock = made(socket.SOCK_DGRAM, socket.SO_REUSEADDR)
    sock.bind((address, port))
    granted(sock, BIND_UDP)
    yield sock, None


def forged():
    """What is no right: other kinds of descriptors, and sockets in other states."""
    unix, _unix = socket.socketpair()
    fresh, epoll = made(socket.SOCK_STREAM), select.epoll()
    fifo = os.path.join(tempfile.mkdtemp(), "fifo")
    os.mkfifo(fifo)
    bound = made(socket.SOCK_STREAM, socket.SO_REUSEADDR)
    bound.bind((address, port))
    datagrams = made(socket.SOCK_DGRAM)
    datagrams.bind((address, port))
    lite = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136)
    lite.bind((address, port))
    kinds = {
        "file": os.open("/etc/passwd", os.O_RDONLY),
        "path": os.open("/etc/passwd", os.O_PATH),
        "fifo": os.open(fifo, os.O_RDWR),
        "pipe": os.pipe()[0],
        "epoll": epoll.fileno(),
        "null": os.open("/dev/zero", os.O_RDONLY),
        "unix": unix.fileno(),
        "control": control.fileno(),
        "fresh": fresh.fileno(),
        "bound": bound.fileno(),
        "datagrams": datagrams.fileno(),
        "lite": lite.fileno(),
    }
    held = (unix, bound, datagrams, lite)
    for name, descriptor in kinds.items():
        for question in (LISTEN, BIND_UDP, BIND_TCP):
            if (name, question) in (("datagrams", BIND_UDP), ("bound", BIND_TCP)):
                continue
            said = show(control, descriptor, question)
            assert said.startswith("denied"), (name, question, said)
    print("denied all", flush=True)
    yield held, None


def foreign():
    """At the address and port of another network namespace."""
    for sock, question in ((listener(), LISTEN), (made(socket.SOCK_DGRAM), BIND_UDP)):
        if question == BIND_UDP:
            sock.bind((address, port))
        print(show(control, sock.fileno(), question), flush=True)
    yield None, None


control, region = attach()
for held, question in globals()[how]():
    if question is not None:
        # It tries for as long as it would have had the port.
        print("then", show(control, held.fileno(), question), flush=True)
    print("ready", flush=True)
    while True:
        time.sleep(3600)
