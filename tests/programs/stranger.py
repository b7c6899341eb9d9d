"""A child that has become another user tries to get connections that it does not hold.

stranger.py ADDRESS PORT (of an echoing peer). Prints what it could do; the parent's connections go on.
"""
import ctypes, os, socket, struct, sys

# Its number in the control protocol (crates/shm/src/control.rs).
PASS = 12
libc = ctypes.CDLL(None, use_errno=True)


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def connected():
    return socket.create_connection((sys.argv[1], int(sys.argv[2])))


def echoes(sock, text):
    sock.sendall(text)
    got = b""
    while len(got) < len(text):
        some = sock.recv(100)
        if not some:
            break
        got += some
    return got == text


def controls():
    """Copies of the library's own connections to the engine, past the library's watch over its numbers."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for name in os.listdir("/proc/self/fd"):
        try:
            # Low numbers are connections, which the library would pass.
            if int(name) < 100 or not os.readlink("/proc/self/fd/" + name).startswith("socket:"):
                continue
            one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", int(name)))])
            _, ancillary, _, _ = other.recvmsg(1, 100)
            copy = socket.socket(fileno=struct.unpack("i", ancillary[0][2][:4])[0])
            if copy.family == socket.AF_UNIX and copy.type == socket.SOCK_SEQPACKET:
                yield copy
        except OSError:
            pass


def tickets(control):
    """How many connections the engine gives for the asking, of all that a session may have."""
    count = 0
    for endpoint in list(range(300)) + [2**31, 2**32 - 1]:
        control.send(varint(PASS) + varint(7) + varint(endpoint) + b"\0")
        _, ancillary, _, _ = control.recvmsg(65536, 100)
        count += len(ancillary)
    return count


def opens(path):
    try:
        os.close(os.open(path, os.O_RDWR))
        return True
    except OSError:
        return False


kept, released, ready = connected(), connected(), os.pipe()
parent = os.getpid()
child = os.fork()
if child == 0:
    released.close()
    os.read(ready[0], 1)
    os.setgid(65534)
    os.setuid(65534)
    # It may look at itself.
    libc.prctl(4, 1)
    found = list(controls())
    print("controls", len(found) > 0)
    # One that it holds, and neither the one that it has closed nor the one that came later.
    print("tickets", sum(tickets(control) for control in found))
    print("memory", opens(f"/proc/{parent}/mem"))
    numbers = [f"/proc/{parent}/fd/{number}" for number in range(1100)]
    print("numbers", sum(opens(path) for path in numbers))
    own = open("/proc/self/maps").read()
    print("regions", own.count("outboard-region"), flush=True)
    os._exit(0)
later = connected()
os.write(ready[1], b"r")
os.waitpid(child, 0)
print("parent", echoes(kept, b"kept"), echoes(released, b"released"), echoes(later, b"later"))
