# Asks a server over fresh connections, one after the other. Prints how many answered, then errors.
# Usage: asking.py ADDRESS PORT COUNT
import collections
import socket
import sys

answered, errors = 0, collections.Counter()
for turn in range(int(sys.argv[3])):
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as connection:
            connection.sendall(b"question %d" % turn)
            answer = b""
            while part := connection.recv(100):
                answer += part
            if answer == b"QUESTION %d" % turn:
                answered += 1
            else:
                errors["answer %r" % answer] += 1
    except OSError as error:
        errors[repr(error)] += 1
print(answered, dict(errors))
