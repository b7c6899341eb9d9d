"""A program that speaks with itself at the engine's own addresses: own.py ADDRESS...

Over TCP, over UDP in one frame and in several, with marks that arrive as they were sent, and with
ports that nobody has.
"""
import errno, socket, struct, sys, threading


def serve(listener):
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)


def over_tcp(family, address):
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        listener.listen()
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        with socket.create_connection(listener.getsockname()[:2], 10) as client:
            sent = bytes(range(256)) * 2000
            threading.Thread(target=client.sendall, args=(sent,), daemon=True).start()
            got = b""
            while len(got) < len(sent):
                got += client.recv(65536)
            assert got == sent
            assert client.getpeername()[0] == client.getsockname()[0] == address
    with socket.socket(family) as client:
        print(f"{address} tcp whole, closed", errno.errorcode[client.connect_ex((address, 9))])


def marks(family):
    number = struct.Struct("i").pack
    if family == socket.AF_INET:
        wanted = {socket.IP_TOS: 0x28, socket.IP_TTL: 77}
        asked = [socket.IP_RECVTOS, socket.IP_RECVTTL] if hasattr(socket, "IP_RECVTTL") else [13, 12]
        level = socket.IPPROTO_IP
    else:
        wanted = {socket.IPV6_TCLASS: 0x28, socket.IPV6_HOPLIMIT: 77}
        asked = [socket.IPV6_RECVTCLASS, socket.IPV6_RECVHOPLIMIT]
        level = socket.IPPROTO_IPV6
    return level, asked, [(level, kind, number(value)) for kind, value in wanted.items()]


def over_udp(family, address):
    level, asked, said = marks(family)
    with socket.socket(family, socket.SOCK_DGRAM) as one, socket.socket(family, socket.SOCK_DGRAM) as two:
        one.bind((address, 0))
        two.bind((address, 0))
        pktinfo = (socket.IPV6_RECVPKTINFO, 20) if family == socket.AF_INET6 else (8, 12)
        for option in [*asked, pktinfo[0]]:
            two.setsockopt(level, option, 1)
        two.settimeout(10)
        for length in (0, 1000, 20000, 65000):
            one.sendmsg([bytes(length)], said, 0, two.getsockname())
            data, messages, flags, source = two.recvmsg(65535, 512)
            assert data == bytes(length) and source[:2] == one.getsockname()[:2], (length, source)
            told = sorted(content[0] for _, _, content in messages if len(content) <= 4)
            assert told == [0x28, 77] and len(messages) == 3, messages
            own = socket.inet_pton(family, address)
            assert any(len(content) == pktinfo[1] and own in content for _, _, content in messages)
        one.sendmsg([bytes(5000)], [(17, 103, struct.pack("H", 1200))], 0, two.getsockname())
        print(f"{address} udp marked, in pieces", [len(two.recv(9000)) for _ in range(5)], end=" ")
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        client.connect((address, 9))
        client.send(b"anybody?")
        try:
            client.recv(10)
        except OSError as error:
            print("closed", errno.errorcode[error.errno])


for address in sys.argv[1:]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    over_tcp(family, address)
    over_udp(family, address)
