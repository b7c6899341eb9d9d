# A listener that is passed to a process which multiprocessing spawns, over exec; the one that made it
# closes its own at once.
# Usage: spawned.py ADDRESS PORT
import multiprocessing
import socket
import sys


def serve(listener):
    print("serves", flush=True)
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(connection.recv(100).upper())


if __name__ == "__main__":
    listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
    child = multiprocessing.get_context("spawn").Process(target=serve, args=(listener,))
    child.start()
    listener.close()
    child.join()
