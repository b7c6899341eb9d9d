"""Signed TCP (RFC 2385): `serve`s or `ask`s under a key. Arguments: serve|ask, address, port, key or
`-`, and how the key is set: `before` or `after` listen(2), or by `prefix`; or `forked`, before
listen(2), by a parent that leaves the listener to its child.

A server echoes what it is sent; who asks sends 300,000 bytes and says `whole` or how it failed."""
import os
import select
import socket
import struct
import sys

TCP_MD5SIG, TCP_MD5SIG_EXT, PREFIX = 14, 32, 1
role, address, port, key, how = sys.argv[1:6]
family = socket.AF_INET6 if ':' in address else socket.AF_INET
s = socket.socket(family)


def sign(network, prefix=None):
    packed = socket.inet_pton(family, network)
    if family == socket.AF_INET:
        place = struct.pack('=HH4s120x', family, 0, packed)
    else:
        place = struct.pack('=HHI16s104x', family, 0, 0, packed)
    flags, name = (PREFIX, TCP_MD5SIG_EXT) if prefix is not None else (0, TCP_MD5SIG)
    text = key.encode() if key != '-' else b''
    s.setsockopt(socket.IPPROTO_TCP, name,
                 place + struct.pack('=BBHi80s', flags, prefix or 0, len(text), 0, text))


def sign_all(peer):
    if key == '-':
        return
    if how == 'prefix':
        # The longer prefix wins.
        wider, narrower = (8, 24) if family == socket.AF_INET else (16, 64)
        mine = globals()['key']
        globals()['key'] = 'another'
        sign(peer, wider)
        globals()['key'] = mine
        sign(peer, narrower)
    else:
        sign(peer)


if role == 'serve':
    peer = sys.argv[6]
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, int(port)))
    if how != 'after':
        sign_all(peer)
    s.listen()
    if how == 'after':
        sign_all(peer)
    if how == 'forked':
        over, parents = os.pipe()
        if os.fork():
            s.close()
            os.close(parents)
            os.wait()
            sys.exit()
        os.close(parents)
        os.read(over, 1)
        # The child's listener is shown with its first use.
        select.select([s], [], [], 0)
    print('ready', flush=True)
    while True:
        c, _ = s.accept()
        with c:
            while True:
                try:
                    data = c.recv(65536)
                except OSError:
                    break
                if not data:
                    break
                c.sendall(data)
else:
    sign_all(address)
    s.settimeout(2.5)
    try:
        s.connect((address, int(port)))
        s.settimeout(30)
        sent = bytes(range(250)) * 1200
        s.sendall(sent[:1000])
        got = b''
        while len(got) < 1000:
            got += s.recv(65536)
        import threading
        writer = threading.Thread(target=s.sendall, args=(sent[1000:],))
        writer.start()
        while len(got) < len(sent):
            more = s.recv(65536)
            if not more:
                break
            got += more
        writer.join()
        print('whole' if got == sent else 'broken')
    except OSError as error:
        print(type(error).__name__)
