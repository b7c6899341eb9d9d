"""Asks files.js or files.py for its files: half of the requests over a connection each, half over kept ones.

    fetch_files.py ADDRESS PORT DIRECTORY COUNT

Says how many answers were right.
"""
import http.client, os, sys
from concurrent.futures import ThreadPoolExecutor

address, port, directory, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
names = sorted(name for name in os.listdir(directory) if name.isdigit())
wanted = {name: open(os.path.join(directory, name), "rb").read() for name in names}


def ask(connection, number, keeps):
    name = names[number % len(names)]
    connection.request("GET", "/" + name, headers={} if keeps else {"Connection": "close"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200 or body != wanted[name]:
        print(f"request {number}: status {answer.status}, {len(body)} bytes: {body[:80]!r}", file=sys.stderr)
        return 0
    return 1


def kept(numbers):
    connection = http.client.HTTPConnection(address, port, timeout=20)
    return sum(ask(connection, number, True) for number in numbers)


def alone(number):
    return ask(http.client.HTTPConnection(address, port, timeout=20), number, False)


half = count // 2
with ThreadPoolExecutor(8) as threads:
    right = sum(threads.map(alone, range(half)))
    right += sum(threads.map(kept, [range(half + thread, count, 4) for thread in range(4)]))
print(f"{right} right")
