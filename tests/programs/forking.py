# A server that lets a child serve each connection and closes its own number at once.
# Usage: forking.py ADDRESS PORT
import os
import signal
import socket
import sys

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    connection, _ = listener.accept()
    if os.fork() == 0:
        listener.close()
        connection.sendall(connection.recv(100).upper())
        os._exit(0)
    connection.close()
