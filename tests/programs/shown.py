"""Connects and prints what the SYN and ACK shows: shown.py INTERFACE ADDRESS PORT"""
import socket, struct, sys

interface, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
frames.bind((interface, 3))
frames.settimeout(20)
connection = socket.create_connection((address, port), timeout=20)
own = connection.getsockname()[1]
while True:
    frame = frames.recv(65536)
    packet = frame[14:]
    if frame[12:14] == b"\x08\x00" and packet[9] == 6:
        hops, cut, segment = packet[8], not packet[6] & 0x40, packet[4 * (packet[0] & 15) :]
    elif frame[12:14] == b"\x86\xdd" and packet[6] == 6:
        hops, cut, segment = packet[7], False, packet[40:]
    else:
        continue
    ports = struct.unpack("!HH", segment[:4])
    if ports != (port, own) or segment[13] & 0x12 != 0x12:
        continue
    options, mss = segment[20 : 4 * (segment[12] >> 4)], 0
    while options and options[0]:
        if options[0] == 2:
            mss = struct.unpack("!H", options[2:4])[0]
        options = options[1 if options[0] == 1 else options[1] :]
    window = struct.unpack("!H", segment[14:16])[0]
    print(f"hops {hops} mss {mss}{' cut' if cut else ''} window {window}")
    break
