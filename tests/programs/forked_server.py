# Serves each connection in a child: says who is there, sends much, and counts what it gets.
# Usage: forked_server.py ADDRESS PORT
import hashlib
import os
import socketserver
import sys

MUCH = bytes(range(256)) * 4096


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        address, port = self.request.getpeername()[:2]
        own = self.request.getsockname()[1]
        question = self.request.recv(1)
        self.request.sendall(b"%s %s %d %d\n" % (question, address.encode(), port, own))
        self.request.sendall(MUCH)
        got = hashlib.sha256()
        while part := self.request.recv(65536):
            got.update(part)
        self.request.sendall(got.hexdigest().encode())


class Server(socketserver.ForkingTCPServer):
    allow_reuse_address = True
    address_family = socketserver.socket.AF_INET6 if ":" in sys.argv[1] else socketserver.socket.AF_INET


Server((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
