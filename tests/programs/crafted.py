"""Sends datagrams with checksums of every kind and prints what is answered:
crafted.py INTERFACE OWN_ADDRESS OWN_PORT ADDRESS PORT MAC

The wrong one goes first, so that an answer to it would be seen before the others'.
"""
import socket, struct, sys

interface, own, own_port, address, port, mac = sys.argv[1:7]


def total(data):
    data += bytes(len(data) % 2)
    sum = 0
    for (word,) in struct.iter_unpack("!H", data):
        sum += word
    while sum >> 16:
        sum = (sum & 0xFFFF) + (sum >> 16)
    return sum


answers = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
answers.bind((own, int(own_port)))
answers.settimeout(60)
frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
frames.bind((interface, 0))
ends = socket.inet_aton(own) + socket.inet_aton(address)
for kind in ("wrong", "partial", "whole"):
    data = struct.pack("!HH", 7, 0x0100) + kind.encode()
    length = 8 + len(data)
    pseudo = total(ends + struct.pack("!HH", 17, length))
    head = struct.pack("!HHH", int(own_port), int(port), length)
    whole = 0xFFFF ^ total(struct.pack("!H", pseudo) + head + b"\0\0" + data)
    checksum = {"wrong": whole ^ 0x0100, "partial": pseudo, "whole": whole or 0xFFFF}[kind]
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, 17, 0) + ends
    header = header[:10] + struct.pack("!H", 0xFFFF ^ total(header)) + header[12:]
    link = bytes.fromhex(mac.replace(":", "")) + frames.getsockname()[4] + b"\x08\0"
    frame = link + header + head + struct.pack("!H", checksum) + data
    frames.send(frame + bytes(max(0, 60 - len(frame))))
    if kind != "wrong":
        print(answers.recv(100)[4:].decode(), flush=True)
