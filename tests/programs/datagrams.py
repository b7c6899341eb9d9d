"""Datagrams that are answered, and the answers compared.

    datagrams.py server ADDRESS PORT
    datagrams.py client ADDRESS PORT SECONDS [STOP]

The client ends earlier when the file STOP exists. As with DNS, each question is answered in one datagram that repeats the question's number and text
and sets a flag; the sizes go up to several fragments. A question without an answer within a second
is asked again, as datagrams may be lost where a queue is full: ten times, then it is an error.
"""
import os, random, socket, struct, sys, time

HEADER = struct.Struct("!HH")
ANSWER = 0x8000


def answer_to(sock, number):
    """The next answer that is not one more to an earlier question."""
    try:
        while True:
            answer = sock.recv(65535)
            earlier = (number - HEADER.unpack_from(answer)[0]) & 0xFFFF
            if not 0 < earlier < 0x8000:
                return answer
    except TimeoutError:
        return None


def main():
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    if role == "server":
        sock.bind((address, port))
        print("ready", flush=True)
        while True:
            question, source = sock.recvfrom(65535)
            number, flags = HEADER.unpack_from(question)
            sock.sendto(HEADER.pack(number, flags | ANSWER) + question[HEADER.size :], source)
    sock.connect((address, port))
    sock.settimeout(1)
    draw, asked, again, moved = random.Random(port), 0, 0, 0
    end = time.monotonic() + float(sys.argv[4])
    stop = sys.argv[5] if len(sys.argv) > 5 else None
    while time.monotonic() < end and not (stop and os.path.exists(stop)):
        text = draw.randbytes(draw.choice((30, 60, 500, 1400, 4000)))
        number = asked & 0xFFFF
        for attempt in range(10):
            sock.send(HEADER.pack(number, 0x0100) + text)
            answer = answer_to(sock, number)
            if answer is not None:
                break
            again += 1
        if answer != HEADER.pack(number, 0x0100 | ANSWER) + text:
            sys.exit(f"the answer to question {asked} is not the one that was expected: {answer}")
        asked += 1
        moved += 2 * len(text)
        time.sleep(0.001)
    print(f"{asked} questions, {again} asked again, {moved / 1e6:.1f} MB, all answers equal")


main()
