"""Sets and gets values of many sizes and compares them: memcache.py ADDRESS PORT SECONDS"""
import random, socket, sys, time


def main():
    address, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    chance, end, operations = random.Random(7), time.monotonic() + seconds, 0
    connections = []
    for _ in range(8):
        connection = socket.create_connection((address, port), timeout=60)
        connections.append((connection, connection.makefile("rb")))
    while time.monotonic() < end:
        connection, lines = chance.choice(connections)
        key, value = f"k{chance.randrange(500)}", chance.randbytes(chance.choice((1, 64, 1500, 100_000)))
        connection.sendall(f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n")
        stored = lines.readline()
        if stored != b"STORED\r\n":
            sys.exit(f"set was answered by {stored!r}")
        connection.sendall(f"get {key}\r\n".encode())
        head = lines.readline()
        if head != f"VALUE {key} 0 {len(value)}\r\n".encode():
            sys.exit(f"get was answered by {head!r}")
        if lines.read(len(value) + 2) != value + b"\r\n" or lines.readline() != b"END\r\n":
            sys.exit("a value came back changed")
        operations += 2
    print(f"{operations} operations, all values equal")


main()
