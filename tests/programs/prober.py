"""Connects to two servers every 5 ms and tells how long each could not be reached.

    prober.py STOP ADDRESS PORT CONTROL_PORT

A probe connects, sends a line (PING) and waits for the first byte of an answer. Probes do not wait
for each other. When the file STOP exists, one line for each server: its port, probes, those that
were answered, and the longest time in milliseconds in which no answer came, until STOP.
"""
import os, select, socket, struct, sys, time

EVERY = 0.005
PATIENCE = 10.0

stop, address, ports = sys.argv[1], sys.argv[2], [int(port) for port in sys.argv[3:5]]
epoll = select.epoll()
probes, done = {}, {port: [] for port in ports}
begun = {port: 0 for port in ports}


def begin(port, now):
    probe = socket.socket()
    probe.setblocking(False)
    # Closed with a reset: nothing of a probe stays behind to run out of ports.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    begun[port] += 1
    try:
        probe.connect((address, port))
    except BlockingIOError:
        pass
    except OSError:
        return
    epoll.register(probe, select.EPOLLOUT)
    probes[probe.fileno()] = (probe, port, now, [False])


def end(fd):
    probes.pop(fd)[0].close()


def go_on(fd):
    probe, port, _, asked = probes[fd]
    try:
        if not asked[0]:
            probe.sendall(b"PING\r\n")
            asked[0] = True
            epoll.modify(probe, select.EPOLLIN)
        elif probe.recv(1):
            done[port].append(time.monotonic())
            end(fd)
        else:
            end(fd)
    except BlockingIOError:
        pass
    except OSError:
        end(fd)


first = last = None
due = time.monotonic()
while True:
    now = time.monotonic()
    stopping = os.path.exists(stop)
    if stopping:
        last = last or now
        if not probes:
            break
    if now >= due and not stopping:
        # Both in the same moment, so that what holds the prober up holds both.
        for port in ports:
            begin(port, now)
        first = first or now
        due = max(due + EVERY, now)
    for fd, _ in epoll.poll(max(0.0, min(EVERY, due - now)) if not stopping else EVERY):
        if fd in probes:
            go_on(fd)
    for fd in [fd for fd, (_, _, began, _) in probes.items() if now - began > PATIENCE]:
        end(fd)

for port in ports:
    times = [first, *(when for when in done[port] if when < last), last]
    gap = max((b - a for a, b in zip(times, times[1:])), default=0.0)
    print(port, begun[port], len(done[port]), round(gap * 1000), flush=True)
