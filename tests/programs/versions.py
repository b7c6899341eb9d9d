"""An engine of another contract: refuses every program that says hello, as any engine would.

    versions.py SOCKET CONTRACT REASON

The encoding of the refusal is the part of the contract that never changes. With CONTRACT `garbage` what it
answers is no message at all.
"""
import os, socket, sys

path, contract, reason = sys.argv[1], sys.argv[2], sys.argv[3].encode()


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7f | 0x80])
        number >>= 7
    return out + bytes([number])


listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(path)
listener.listen()
print("ready", flush=True)
while True:
    client, _ = listener.accept()
    hello = client.recv(65536)
    if contract == "garbage":
        client.send(b"\xff" * 40)
    else:
        client.send(varint(0) + varint(int(contract)) + varint(len(reason)) + reason)
    client.close()
