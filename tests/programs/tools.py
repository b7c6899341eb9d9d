"""Answers each line over TCP and each datagram at port 8001 of the addresses given, for nc."""

import selectors
import socket
import sys

ready = selectors.DefaultSelector()
for address in sys.argv[1:]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        sock = socket.socket(family, kind)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, 8001))
        if kind == socket.SOCK_STREAM:
            sock.listen()
        ready.register(sock, selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in ready.select():
        sock = key.fileobj
        if sock.type == socket.SOCK_DGRAM:
            asked, sender = sock.recvfrom(2048)
            sock.sendto(b"udp: " + asked, sender)
            continue
        connection, _ = sock.accept()
        asked = connection.recv(2048)
        if asked:
            connection.sendall(b"tcp: " + asked)
        connection.close()
