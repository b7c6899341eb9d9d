# What inetd starts for a service with "wait": it has the listener, serves who comes, and ends when
# nobody has come for a moment. Each start is noted in a file.
# Usage: waited.py FILE
import socket
import sys

with open(sys.argv[1], "a") as starts:
    starts.write("start\n")
listener = socket.socket(fileno=0)
listener.settimeout(0.5)
while True:
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        break
    with connection:
        connection.setblocking(True)
        connection.sendall(connection.recv(100).upper())
