"""Fetches one page again and again, from eight threads, until a file appears: half of them over a connection for
each request, half over kept ones. Every answer is compared.

    pages.py ADDRESS PORT PATH FILE UNTIL

A kept connection may be closed between two requests, as HTTP has it: the request is made again on a fresh one.
"""
import http.client
import os
import sys
import threading

address, port, path, file, until = sys.argv[1], int(sys.argv[2]), *sys.argv[3:6]
wanted = open(file, "rb").read()
KEPT = 20
rights, wrongs = [], []


def ask(connection, keeps, is_first):
    """False: the connection was closed before the request."""
    try:
        connection.request("GET", path, headers={} if keeps else {"Connection": "close"})
        answer = connection.getresponse()
    except ConnectionError:
        if is_first:
            raise
        return False
    body = answer.read()
    if answer.status != 200 or body != wanted:
        raise ValueError(f"status {answer.status}, {len(body)} bytes: {body[:80]!r}")
    return True


def load(keeps):
    right = 0
    try:
        is_enough = False
        while not is_enough:
            connection = http.client.HTTPConnection(address, port, timeout=60)
            for turn in range(KEPT if keeps else 1):
                if not ask(connection, keeps, turn == 0):
                    break
                right += 1
            connection.close()
            is_enough = os.path.exists(until) or wrongs
    except Exception as error:
        kind = "kept" if keeps else "own"
        wrongs.append(f"{kind} connection, after {right} answers: {error!r}")
    rights.append(right)


threads = [threading.Thread(target=load, args=[number % 2 == 0]) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"{sum(rights)} right")
sys.exit("; ".join(wrongs) if wrongs or not all(rights) else 0)
