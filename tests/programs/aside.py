# A server that serves its connections itself, while it forks and starts programs with each: these have
# the connection, and do not use it. It closes the first without having used it.
# Usage: aside.py ADDRESS PORT
import os
import socket
import sys

listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
is_first = True
while True:
    connection, _ = listener.accept()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    connection.set_inheritable(True)
    os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)
    with connection:
        if not is_first:
            connection.sendall(connection.recv(100).upper())
    is_first = False
