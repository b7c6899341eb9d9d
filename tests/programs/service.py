"""A service of root's at a port that somebody else had: service.py tcp|udp ADDRESS PORT [reuse]

Answers whoever asks with its user's number.
"""
import os, socket, sys

kind = socket.SOCK_STREAM if sys.argv[1] == "tcp" else socket.SOCK_DGRAM
sock = socket.socket(socket.AF_INET, kind)
if "reuse" in sys.argv[4:]:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
sock.bind((sys.argv[2], int(sys.argv[3])))
own = str(os.getuid()).encode()
if kind == socket.SOCK_STREAM:
    sock.listen()
print("serves", flush=True)
while True:
    if kind == socket.SOCK_STREAM:
        connection, _ = sock.accept()
        connection.sendall(own)
        connection.close()
    else:
        _, client = sock.recvfrom(100)
        sock.sendto(own, client)
