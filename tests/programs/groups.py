"""Listens to multicast groups or sends to them, in one's own words, which are the same on every stack.

    groups.py hear OWN4 INTERFACE SENDER4 SENDER6     prints `ready`, then who heard what
    groups.py send OWN4 INTERFACE                      sends to the groups, `end` at last
    groups.py alone OWN4 INTERFACE                     sends to itself, and asks for what is refused
    groups.py anew OWN4 INTERFACE                      joins where the routes lead, leaves, and joins for itself as sender
"""

import errno
import selectors
import socket
import struct
import sys

PORT = 7000
GROUP4, GROUP6 = "239.1.1.1", "ff15::7"
OTHER4 = "239.1.1.2"
MULTICAST_ALL = 49
JOIN_GROUP, BLOCK_SOURCE, LEAVE_GROUP, JOIN_SOURCE_GROUP = 42, 43, 45, 46
PKTINFO = 8

mode, own, interface = sys.argv[1:4]
index = socket.if_nametoindex(interface)


def address4(text):
    return socket.inet_aton(text)


def name(address):
    """struct sockaddr_storage."""
    if ":" in address:
        head = struct.pack("=HHI16sI", socket.AF_INET6, 0, 0, socket.inet_pton(socket.AF_INET6, address), 0)
    else:
        head = struct.pack("=HH4s", socket.AF_INET, 0, address4(address))
    return head.ljust(128, b"\0")


def opened(family, bound=""):
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind((bound, PORT))
    return sock


def join4(sock, group=GROUP4):
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, address4(group) + address4(own))


def join6(sock):
    group = socket.inet_pton(socket.AF_INET6, GROUP6)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + struct.pack("=I", index))


def request(group, *sources):
    """struct group_req or group_source_req."""
    return struct.pack("=II", index, 0) + name(group) + b"".join(map(name, sources))


def outcome(call, *arguments):
    try:
        call(*arguments)
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]


def hear(sender4, sender6):
    ears = {}

    def ear(title, family, bound=""):
        ears[title] = opened(family, bound)
        return ears[title]

    join4(ear("first", socket.AF_INET))
    second = ear("second", socket.AF_INET)
    second.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                      address4(GROUP4) + address4("0.0.0.0") + struct.pack("=i", index))
    second.setsockopt(socket.IPPROTO_IP, PKTINFO, 1)
    ear("all", socket.AF_INET)
    ear("not joined", socket.AF_INET).setsockopt(socket.IPPROTO_IP, MULTICAST_ALL, 0)
    ear("bound to it", socket.AF_INET, GROUP4)
    ear("from the sender", socket.AF_INET).setsockopt(
        socket.IPPROTO_IP, 39, address4(GROUP4) + address4(own) + address4(sender4))
    ear("from another", socket.AF_INET).setsockopt(
        socket.IPPROTO_IP, 39, address4(GROUP4) + address4(own) + address4("10.99.0.9"))
    blocked = ear("blocked", socket.AF_INET)
    blocked.setsockopt(socket.IPPROTO_IP, JOIN_GROUP, request(GROUP4))
    blocked.setsockopt(socket.IPPROTO_IP, BLOCK_SOURCE, request(GROUP4, sender4))
    left = ear("left", socket.AF_INET)
    left.setsockopt(socket.IPPROTO_IP, MULTICAST_ALL, 0)
    join4(left)
    left.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, address4(GROUP4) + address4(own))
    join4(ear("other", socket.AF_INET), OTHER4)
    join6(ear("first of six", socket.AF_INET6))
    ear("second of six", socket.AF_INET6).setsockopt(socket.IPPROTO_IPV6, JOIN_GROUP, request(GROUP6))
    ear("from the sender of six", socket.AF_INET6).setsockopt(
        socket.IPPROTO_IPV6, JOIN_SOURCE_GROUP, request(GROUP6, sender6))
    ear("from another of six", socket.AF_INET6).setsockopt(
        socket.IPPROTO_IPV6, JOIN_SOURCE_GROUP, request(GROUP6, "fd99::9"))
    print("ready", flush=True)
    heard = {title: [] for title in ears}
    ready = selectors.DefaultSelector()
    for title, sock in ears.items():
        ready.register(sock, selectors.EVENT_READ, title)
    wanted = {"first", "first of six"}
    while wanted:
        for key, _ in ready.select():
            data, messages, _, sender = key.fileobj.recvmsg(9000, 256)
            text = data.decode().rstrip(".")
            if text.startswith("end"):
                wanted.discard(key.data)
                continue
            for level, kind, value in messages:
                if (level, kind) == (socket.IPPROTO_IP, PKTINFO):
                    at, _, to = struct.unpack("=i4s4s", value[:12])
                    text += f" at {'its interface' if at == index else at} to {socket.inet_ntoa(to)}"
            heard[key.data].append(text)
    for title, texts in heard.items():
        print(f"{title}: {', '.join(texts) or 'nothing'}")


def send():
    four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    four.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, address4(own))
    four.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 3)
    six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    for sock, group in ((four, GROUP4), (six, GROUP6)):
        for text in ("one", "in pieces" + "." * 4000, "two"):
            sock.sendto(text.encode(), (group, PORT))
    four.sendto(b"other", (OTHER4, PORT))
    for sock, group in ((four, GROUP4), (six, GROUP6)):
        sock.sendto(b"end", (group, PORT))


def alone():
    sock = opened(socket.AF_INET)
    join4(sock)
    membership = address4(GROUP4) + address4(own)
    option = sock.setsockopt
    ip, ip6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
    print("joined twice:", outcome(option, ip, socket.IP_ADD_MEMBERSHIP, membership))
    other = address4(OTHER4) + address4(own)
    print("left unjoined:", outcome(option, ip, socket.IP_DROP_MEMBERSHIP, other))
    print("no group:", outcome(option, ip, socket.IP_ADD_MEMBERSHIP, address4("10.1.1.1") + address4(own)))
    print("blocked:", outcome(option, ip, 38, membership + address4("10.99.0.9")))
    print("blocked twice:", outcome(option, ip, 38, membership + address4("10.99.0.9")))
    print("unblocked another:", outcome(option, ip, 37, membership + address4("10.99.0.8")))
    print("one source of all:", outcome(option, ip, 39, membership + address4("10.99.0.8")))
    many = [outcome(option, ip, socket.IP_ADD_MEMBERSHIP, address4(f"239.2.0.{n}") + address4(own)) for n in range(20)]
    print("many:", many.count("done"), many[-1])
    print("loop of two:", outcome(option, ip6, socket.IPV6_MULTICAST_LOOP, 2))
    option(ip, socket.IP_MULTICAST_IF, address4(own))
    print("interface:", sock.getsockopt(ip, socket.IP_MULTICAST_IF, 4) == address4(own))
    print("ttl at first:", sock.getsockopt(ip, socket.IP_MULTICAST_TTL))
    sock.settimeout(5)
    sock.sendto(b"to itself", (GROUP4, PORT))
    print("heard:", sock.recv(100).decode())
    option(ip, socket.IP_MULTICAST_LOOP, 0)
    sock.sendto(b"not to itself", (GROUP4, PORT))
    option(ip, socket.IP_MULTICAST_LOOP, 1)
    option(ip, socket.IP_MULTICAST_TTL, 0)
    sock.sendto(b"no further", (GROUP4, PORT))
    print("heard:", sock.recv(100).decode())
    big = b"x" * 3000
    sock.sendto(big, (GROUP4, PORT))
    print("heard:", len(sock.recv(9000)))
    six = opened(socket.AF_INET6)
    join6(six)
    option = six.setsockopt
    print("joined twice:", outcome(join6, six))
    option(ip6, socket.IPV6_MULTICAST_IF, index)
    six.settimeout(5)
    six.sendto(b"to itself", (GROUP6, PORT))
    print("heard:", six.recv(100).decode())
    option(ip6, LEAVE_GROUP, request(GROUP6))
    print("left twice:", outcome(option, ip6, LEAVE_GROUP, request(GROUP6)))


def anew():
    listener, sender = opened(socket.AF_INET), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.settimeout(5)
    ip, anywhere = socket.IPPROTO_IP, address4(GROUP4) + address4("0.0.0.0")
    listener.setsockopt(ip, socket.IP_ADD_MEMBERSHIP, anywhere)
    sender.sendto(b"one", (GROUP4, PORT))
    data, (source, _) = listener.recvfrom(100)
    print("heard:", data.decode(), "from its own" if source == own else source)
    listener.setsockopt(ip, socket.IP_DROP_MEMBERSHIP, anywhere)
    listener.setsockopt(ip, 39, anywhere + address4(source))
    for text in (b"two", b"three"):
        sender.sendto(text, (GROUP4, PORT))
        print("heard:", listener.recv(100).decode())
    listener.setsockopt(ip, 40, anywhere + address4(source))
    print("left twice:", outcome(listener.setsockopt, ip, 40, anywhere + address4(source)))


if mode == "hear":
    hear(*sys.argv[4:6])
elif mode == "send":
    send()
elif mode == "anew":
    anew()
else:
    alone()
