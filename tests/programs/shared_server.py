# Serves each connection with two processes at once: the parent writes and reads all the time, and in the middle of
# it a child begins to write, too. The parent's bytes are below 128, the child's from 128 on, both counted upwards.
# Usage: shared_server.py ADDRESS PORT COUNT
import os
import selectors
import socket
import sys
import threading

PARENTS = bytes(range(128)) * 8
CHILDS = bytes(range(128, 256)) * 8
PIECES = 3000


def write(connection, pieces, progress=None):
    for number in range(PIECES):
        connection.sendall(pieces)
        if progress and number == PIECES // 4:
            os.write(progress, b"x")


def read_all(connection):
    # By a set that is asked before every read, as an event loop does.
    with selectors.EpollSelector() as waiting:
        waiting.register(connection, selectors.EVENT_READ)
        count = 0
        while True:
            assert waiting.select(60), "60 s without news after %d bytes" % count
            part = connection.recv(65536)
            if not part:
                return count
            expected = (PARENTS * (len(part) // len(PARENTS) + 2))[count % 128 :][: len(part)]
            assert part == expected, "other bytes than the client's at %d" % count
            count += len(part)


family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.create_server((sys.argv[1], int(sys.argv[2])), family=family) as listener:
    for turn in range(int(sys.argv[3])):
        connection, _ = listener.accept()
        hear, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(hear, 1)
            write(connection, CHILDS)
            os._exit(0)
        counted = []
        reader = threading.Thread(target=lambda: counted.append(read_all(connection)))
        reader.start()
        write(connection, PARENTS, tell)
        assert os.waitpid(child, 0)[1] == 0, "the child failed"
        connection.shutdown(socket.SHUT_WR)
        reader.join()
        assert counted == [PIECES * len(PARENTS)], counted
        connection.close()
        os.close(hear)
        os.close(tell)
print("all shared", flush=True)
