"""Urgent data as Python's programs see it. Arguments: serve|ask, address, port; who asks prints what it
sees, which must be the same on kernel sockets and under the library.

Both ends do the same by turns: send a byte out of band, and see one, first beside the stream, then in it,
then an ordinary one with O_ASYNC."""
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time

role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ':' in address else socket.AF_INET
SIOCATMARK = 0x8905
urged = []
signal.signal(signal.SIGURG, lambda number, frame: urged.append(number))
came = []
signal.signal(signal.SIGIO, lambda number, frame: came.append(number))


def own(s):
    fcntl.fcntl(s, fcntl.F_SETOWN, os.getpid())


def until(condition):
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        # A signal's handler runs between two steps.
        select.select([], [], [], 0.01)
    return bool(condition())


def at_mark(s):
    return struct.unpack('i', fcntl.ioctl(s, SIOCATMARK, struct.pack('i', 0)))[0]


def sends(s, text, flags):
    """Sends, and awaits the word that all has been seen. Who waits for it in recv hears no signal."""
    if not flags:
        s.recv(1)
    s.send(text, flags)
    if flags:
        s.send(b'd')
    s.recv(1)


def sees(s):
    """A byte out of band, beside the stream."""
    print('signalled', until(lambda: urged))
    _, _, exceptional = select.select([], [], [s], 20)
    print('exceptional', exceptional == [s])
    read = b''
    while len(read) < 3:
        read += s.recv(100)
    print('read', read, 'at mark', at_mark(s))
    print('out of band', s.recv(1, socket.MSG_OOB))
    _, _, exceptional = select.select([], [], [s], 0)
    print('exceptional', exceptional)
    print('behind', s.recv(100), 'at mark', at_mark(s))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    urged.clear()
    s.send(b'k')


def sees_inline(s):
    """The same within the stream."""
    print('signalled', until(lambda: urged))
    print('before', s.recv(100), 'at mark', at_mark(s))
    behind = b''
    while len(behind) < 2:
        behind += s.recv(100)
    print('behind', behind, 'at mark', at_mark(s))
    try:
        print(s.recv(1, socket.MSG_OOB))
    except OSError as error:
        print('out of band', error.strerror)
    print('owner', fcntl.fcntl(s, fcntl.F_GETOWN) == os.getpid())
    fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_ASYNC)
    print('flag', bool(fcntl.fcntl(s, fcntl.F_GETFL) & os.O_ASYNC))
    s.send(b'k')


def is_told(s):
    """Anything, with O_ASYNC."""
    came.clear()
    s.send(b'g')
    print('told', until(lambda: came), s.recv(1))
    fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) & ~os.O_ASYNC)
    s.send(b'k')


if role == 'serve':
    listener = socket.create_server((address, port), family=family)
    print('ready', flush=True)
    while True:
        s, _ = listener.accept()
        own(s)
        with s:
            sends(s, b'abc!', socket.MSG_OOB)
            sees(s)
            sends(s, b'xyz?', socket.MSG_OOB)
            sees_inline(s)
            sends(s, b'.', 0)
            is_told(s)
            s.recv(1)
        sys.stdout.flush()
else:
    s = socket.socket(family)
    own(s)
    s.connect((address, port))
    sees(s)
    sends(s, b'abc!', socket.MSG_OOB)
    sees_inline(s)
    sends(s, b'xyz?', socket.MSG_OOB)
    is_told(s)
    sends(s, b'.', 0)
    s.close()
