"""Echoes each connection from one process, while another one holds it, too. Both are named in a first line.

    holders.py ADDRESS PORT PIDFILE

By turns the process that echoes is a child whose own child only holds; the child's child; a child that has used
the connection before it forked; and a child's child alone.
"""
import os
import signal
import socket
import sys


def echo(connection, holder):
    connection.sendall(b"%d %d\n" % (os.getpid(), holder))
    while data := connection.recv(65536):
        connection.sendall(data)
    os._exit(0)


def hold():
    while True:
        signal.pause()


def child(connection, turn):
    own = os.getpid()
    if turn == 2:
        # It is a socket of the kernel's from here on.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    other = os.fork()
    if turn in (0, 2):
        echo(connection, other) if other else hold()
    elif other:
        hold() if turn == 1 else os._exit(0)
    echo(connection, own if turn == 1 else 0)


signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=64)
with open(sys.argv[3] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[3] + ".new", sys.argv[3])
turn = 0
while True:
    connection, _ = listener.accept()
    turn += 1
    if not os.fork():
        listener.close()
        child(connection, turn % 4)
    connection.close()
