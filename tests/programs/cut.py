"""Cuts a process off from its engine by no doing of either: shuts down every Unix socket that it holds.

    cut.py PID
"""
import ctypes, os, socket, sys

libc = ctypes.CDLL(None, use_errno=True)
PIDFD_GETFD = 438
process = os.pidfd_open(int(sys.argv[1]))
cut = 0
for name in os.listdir(f"/proc/{sys.argv[1]}/fd"):
    copy = libc.syscall(PIDFD_GETFD, process, int(name), 0)
    if copy < 0:
        continue
    try:
        one = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        continue
    with one:
        if one.family == socket.AF_UNIX:
            one.shutdown(socket.SHUT_RDWR)
            cut += 1
assert cut, "there is no Unix socket"
