"""Compares two captures of the same traffic: captures.py MIRROR PCAPNG. Checksums of layer 4 are left out of
the comparison, since a mirror leaves them to be completed. Prints how many frames each has, how many the first
lacks and has beyond the second, and how many the capture of the second has dropped."""
import collections
import struct
import sys


def pcap(data):
    """Frames of a file of tcpdump's."""
    order = {0xA1B2C3D4: "<", 0xA1B23C4D: "<"}.get(struct.unpack("<I", data[:4])[0], ">")
    at = 24
    while at + 16 <= len(data):
        length = struct.unpack(order + "I", data[at + 8 : at + 12])[0]
        yield data[at + 16 : at + 16 + length]
        at += 16 + length


def pcapng(data, drops):
    """Frames of a file of `outboard pcap`; the dropped ones are added to `drops`."""
    at = 0
    while at + 12 <= len(data):
        kind, length = struct.unpack("=II", data[at : at + 8])
        body = data[at + 8 : at + length - 4]
        if kind == 6:
            captured = struct.unpack("=I", body[12:16])[0]
            yield body[20 : 20 + captured]
        elif kind == 5:
            option = 12
            while option + 4 <= len(body):
                code, size = struct.unpack("=HH", body[option : option + 4])
                if code == 5:
                    drops.append(struct.unpack("=Q", body[option + 4 : option + 12])[0])
                if code == 0:
                    break
                option += 4 + (size + 3) // 4 * 4
        at += length


def comparable(frame):
    """A TCP or ICMP packet over IPv4, without padding and the checksum of TCP; None of others."""
    if frame[12:14] != b"\x08\x00" or frame[23] not in (1, 6):
        return None
    header = (frame[14] & 15) * 4
    # Of a large frame of no length the whole frame counts.
    length = struct.unpack(">H", frame[16:18])[0] or len(frame) - 14
    packet = bytearray(frame[: 14 + length])
    if frame[23] == 6:
        place = 14 + header + 16
        packet[place : place + 2] = b"\0\0"
    return bytes(packet)


def frames(of):
    return collections.Counter(filter(None, map(comparable, of)))


mirror_file, engine_file = (open(name, "rb").read() for name in sys.argv[1:3])
drops = []
shown, captured = frames(pcap(mirror_file)), frames(pcapng(engine_file, drops))
if not drops:
    sys.exit("the capture has no end yet")
print(sum(shown.values()), sum(captured.values()), end=" ")
print(sum((captured - shown).values()), sum((shown - captured).values()), sum(drops))
