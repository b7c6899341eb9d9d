"""Asks a service once, and prints its answer: ask.py tcp|udp ADDRESS PORT"""
import socket, sys

kind = socket.SOCK_STREAM if sys.argv[1] == "tcp" else socket.SOCK_DGRAM
sock = socket.socket(socket.AF_INET, kind)
sock.settimeout(5)
sock.connect((sys.argv[2], int(sys.argv[3])))
if kind == socket.SOCK_DGRAM:
    sock.send(b"who is it?")
print(sock.recv(100).decode())
