"""Prints how many BPF programs, maps and links the kernel has, by bpf(2)."""
import ctypes, struct

libc = ctypes.CDLL(None, use_errno=True)
# BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID and BPF_LINK_GET_NEXT_ID of linux/bpf.h.
for command in (11, 12, 31):
    count, last = 0, 0
    while True:
        attributes = ctypes.create_string_buffer(struct.pack("III", last, 0, 0))
        if libc.syscall(321, command, attributes, 12) != 0:
            break
        last = struct.unpack("III", attributes.raw[:12])[1]
        count += 1
    print(count, end=" ")
print()
