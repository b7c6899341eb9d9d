//! The XDP program: redirects claimed traffic to the engine's sockets, and passes everything else
//! to the kernel untouched.
//!
//! ```text
//! EtherType that is owned                          -> engine
//! TCP or UDP over IPv4 or IPv6, by local address and port:
//!   TCP to the engine's block of ports             -> engine (the kernel reserved it for us)
//!   UDP to an owned port                           -> engine, unless longer than the link allows
//!   TCP to an owned port                           -> engine, unless the kernel holds a connection
//!                                                     there, or it is a SYN where only the kernel
//!                                                     listens
//! what is ours by the above, from a remote
//!   address that the lists leave out             -> kernel
//! ICMP errors                                      -> where the packet that they quote came from
//! fragments                                        -> where their first fragment went
//! what is ours by the above, while the worker
//!   has stopped taking frames (`watch.rs`)         -> kernel, if it is new; else nobody
//! all else: ARP, neighbour discovery, IPv6's extension headers but for
//! the fragment header, VLAN tags, ...              -> kernel
//! ```
//!
//! UDP frames longer than the link's MTU are several datagrams that a virtual link has not
//! segmented. Only the kernel knows the segment size, so its socket takes them.

use std::io;

use super::fragments::{self, Fragments};
use super::owned::{KEY_BYTES, LISTENS, TCP, UDP, WHOLLY};
use super::remotes::{self, Remotes};
use super::watch;
use crate::bpf::asm::Register::*;
use crate::bpf::asm::{Assembler, Helper, If, Instruction, Label, Register, Width};
use crate::bpf::{Hook, Map, Program};

/// Verdicts (`enum xdp_action`).
pub(super) const PASS: u32 = 2;
const DROP: u32 = 1;

/// Verdicts for claimed traffic on a queue without a socket (briefly when queues are added, or the
/// engine ends) and while the worker has stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unbound {
    /// For new connections, datagrams and fragments.
    pub(super) new: u32,
    /// For segments of established connections.
    pub(super) standing: u32,
}

/// The kernel's socket takes new flows. The kernel would reset connections that it does not know;
/// dropped segments of them are retransmitted.
pub(super) const UNBOUND: Unbound = Unbound { new: PASS, standing: DROP };

const ETHERNET: i32 = 14;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// IPv6's fragment header (RFC 8200, section 4.5).
const FRAGMENT_HEADER: i32 = 44;
const FRAGMENT_HEADER_BYTES: i32 = 8;
/// TCP_LISTEN of the kernel's states.
const STATE_LISTEN: i32 = 10;
const SYN: i32 = 0x02;
const SYN_OR_ACK: i32 = 0x12;

// `struct xdp_md` (linux/bpf.h).
const MD_DATA: i16 = 0;
const MD_DATA_END: i16 = 4;
const MD_QUEUE: i16 = 16;
/// `state` of `struct bpf_sock`.
const SOCK_STATE: i16 = 72;

// The IPv4 header (RFC 791).
const IP_IDENTIFICATION: i16 = 4;
const IP_FRAGMENT: i16 = 6;
const IP_PROTOCOL: i16 = 9;
const IP_SRC: i16 = 12;
const IP_DST: i16 = 16;
const IP_BYTES: i32 = 20;
const TCP_FLAGS: i16 = 13;

// The IPv6 header (RFC 8200).
const IP6_NEXT: i16 = 6;
const IP6_SRC: i16 = 8;
const IP6_DST: i16 = 24;
const IP6_BYTES: i32 = 40;

// The program's stack, below FP.
const KEY: i16 = -24;
const KEY_PORT: i16 = KEY + 16;
const KEY_PROTOCOL: i16 = KEY + 18;
/// The tuple for bpf_skc_lookup_tcp: remote and local address, remote and local port.
const TUPLE: i16 = -40;
const TUPLE_BYTES: i32 = 12;
/// The same for IPv6.
const TUPLE6: i16 = -128;
const TUPLE6_BYTES: i32 = 36;
/// Key of a fragmented packet.
const FRAGMENT: i16 = -56;
/// Key of a fragmented IPv6 packet.
const FRAGMENT6: i16 = -168;
/// Key of the counts of fragmented packets, and of the watch.
const COUNTS: i16 = -176;
/// The value stored for a fragmented packet for the engine.
const ONE: i16 = -64;
/// Not 0: a kernel listener leaves the segment to the engine.
const LEAVES: i16 = -184;
/// Key of a remote address.
const REMOTE: i16 = -88;
/// Offset of an address's prefix length in it.
const ADDRESS_BITS: i32 = 128;

const _: () = assert!(remotes::KEY_BYTES == 20 && (REMOTE + 20) <= ONE);
const _: () = assert!(fragments::V4_KEY_BYTES == 12 && FRAGMENT + 12 <= TUPLE);
const _: () = assert!(fragments::V6_KEY_BYTES == 36 && FRAGMENT6 + 36 <= TUPLE6);
const _: () = assert!(TUPLE6 + 36 <= REMOTE && COUNTS + 4 <= FRAGMENT6 && LEAVES + 8 <= COUNTS);
const _: () = assert!(KEY_BYTES == 20 && KEY as i32 + KEY_BYTES as i32 <= 0);

/// The program's maps.
pub(super) struct Maps<'a> {
    /// The engine's claims.
    pub(super) owned: &'a Map,
    /// The engine's socket on each receive queue.
    pub(super) sockets: &'a Map,
    /// Whether the worker takes frames.
    pub(super) watch: &'a Map,
    /// Fragmented packets for the engine.
    pub(super) fragments: &'a Fragments,
    /// Remote addresses to be served, if not all are.
    pub(super) remotes: Option<&'a Remotes>,
}

/// The IP version.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// Loads the program. `block`: first and last port reserved in the kernel for the engine's active
/// opens. `unbound`: the verdicts for claimed traffic on a queue without a socket.
/// `several_buffers`: whether the sockets take frames of several buffers.
pub(super) fn load(
    maps: &Maps<'_>,
    block: (u16, u16),
    unbound: Unbound,
    several_buffers: bool,
) -> io::Result<Program> {
    Program::load(Hook::Xdp { several_buffers }, &write(maps, block, unbound))
}

/// Registers: R6 the context; R7 the IP header and later TCP's flags; R8 the end of the frame,
/// later the protocol, and at last the verdict for a queue without a socket; R9 whether this is the
/// first of several fragments.
fn write(maps: &Maps<'_>, block: (u16, u16), unbound: Unbound) -> Vec<Instruction> {
    let fragments = maps.fragments;
    let mut asm = Assembler::default();
    let [pass, ipv4, ipv6, ours] = [(); 4].map(|()| asm.label());

    asm.copy(R6, R1);
    asm.set(R9, 0);
    asm.load(Width::Word, R7, R6, MD_DATA);
    asm.load(Width::Word, R8, R6, MD_DATA_END);
    need(&mut asm, R7, ETHERNET, pass);
    asm.load(Width::Half, R3, R7, 12);
    asm.swap_from_network(R3);
    asm.add(R7, ETHERNET);
    asm.jump(If::Equal, R3, 0x0800, ipv4);
    asm.jump(If::Equal, R3, 0x0806, pass);
    asm.jump(If::Equal, R3, 0x86dd, ipv6);

    // Another EtherType: a key without address.
    clear_key(&mut asm);
    asm.swap_from_network(R3);
    asm.store(Width::Half, Fp, KEY_PORT, R3);
    lookup(&mut asm, maps.owned, KEY, pass);
    asm.set(R8, unbound.new as i32);
    asm.place(ours);
    watch::leave_if_stopped(&mut asm, maps.watch, COUNTS);
    give(&mut asm, maps.sockets);

    asm.place(ipv4);
    let [decide, later_fragment] = [(); 2].map(|()| asm.label());
    ip_header(&mut asm, Family::V4, R7, pass);
    remember_fragment(&mut asm);
    asm.load(Width::Half, R0, R7, IP_FRAGMENT);
    asm.swap_from_network(R0);
    asm.copy(R1, R0);
    asm.and(R1, 0x1fff);
    asm.jump(If::NotEqual, R1, 0, later_fragment);
    asm.copy(R9, R0);
    asm.and(R9, 0x2000);
    clear_key(&mut asm);
    asm.store_value(Width::Half, Fp, KEY + 10, -1);
    transport(&mut asm, Family::V4, decide, pass);
    asm.place(later_fragment);
    lookup(&mut asm, &fragments.v4, FRAGMENT, pass);
    asm.set(R8, unbound.new as i32);
    asm.go(ours);
    asm.place(decide);
    let ends = Ends { unbound, ours, pass };
    verdict(&mut asm, Family::V4, maps, block, ends);

    asm.place(ipv6);
    let [decide, later_fragment] = [(); 2].map(|()| asm.label());
    ip_header(&mut asm, Family::V6, R7, pass);
    fragment_header(&mut asm, later_fragment, pass);
    clear_key(&mut asm);
    transport(&mut asm, Family::V6, decide, pass);
    asm.place(later_fragment);
    lookup(&mut asm, &fragments.v6, FRAGMENT6, pass);
    asm.set(R8, unbound.new as i32);
    asm.go(ours);
    asm.place(decide);
    verdict(&mut asm, Family::V6, maps, block, ends);

    asm.place(pass);
    asm.set(R0, PASS as i32);
    asm.exit();
    asm.finish()
}

/// Where the packets go that have been looked up.
#[derive(Clone, Copy)]
struct Ends {
    /// Those of queues without a socket.
    unbound: Unbound,
    /// The engine's.
    ours: Label,
    /// The kernel's.
    pass: Label,
}

/// Says whose the packet is whose key and tuple have been written, and remembers that where more
/// fragments of it follow.
fn verdict(asm: &mut Assembler, family: Family, maps: &Maps<'_>, block: (u16, u16), ends: Ends) {
    let Ends { unbound, ours, pass } = ends;
    let [redirect, forget] = [(); 2].map(|()| asm.label());
    let Fragments { v4, v6, counts } = maps.fragments;
    let (tuple, tuple_bytes, fragments, fragment, counted) = match family {
        Family::V4 => (TUPLE, TUPLE_BYTES, v4, FRAGMENT, fragments::V4_COUNTS),
        Family::V6 => (TUPLE6, TUPLE6_BYTES, v6, FRAGMENT6, fragments::V6_COUNTS),
    };
    // TCP to the block of ports is looked up by its address only.
    let not_block = asm.label();
    asm.store(Width::Byte, Fp, KEY_PROTOCOL, R8);
    asm.jump(If::NotEqual, R8, i32::from(TCP), not_block);
    asm.load(Width::Half, R1, Fp, KEY_PORT);
    asm.swap_from_network(R1);
    asm.jump(If::Less, R1, i32::from(block.0), not_block);
    asm.jump(If::Greater, R1, i32::from(block.1), not_block);
    asm.store_value(Width::Half, Fp, KEY_PORT, 0);
    asm.place(not_block);
    lookup(asm, maps.owned, KEY, forget);
    if let Some(remotes) = maps.remotes {
        leave_out(asm, family, remotes, forget);
        lookup(asm, maps.owned, KEY, forget);
    }

    let tcp = asm.label();
    asm.load(Width::Word, R1, R0, 0);
    asm.jump(If::Equal, R8, i32::from(TCP), tcp);
    asm.load(Width::Word, R8, R0, 4);
    asm.copy(R1, R6);
    asm.call(Helper::XdpBuffLen);
    asm.jump_register(If::Greater, R0, R8, forget);
    asm.set(R8, unbound.new as i32);
    asm.go(redirect);

    asm.place(tcp);
    let asks_kernel = asm.label();
    asm.set(R8, unbound.standing as i32);
    asm.copy(R2, R1);
    asm.and(R2, WHOLLY as i32);
    asm.jump(If::NotEqual, R2, 0, redirect);
    asm.and(R7, SYN_OR_ACK);
    asm.store_value(Width::Double, Fp, LEAVES, 1);
    asm.jump(If::NotEqual, R7, SYN, asks_kernel);
    asm.and(R1, LISTENS as i32);
    asm.store(Width::Double, Fp, LEAVES, R1);
    asm.jump(If::Equal, R1, 0, asks_kernel);
    asm.set(R8, unbound.new as i32);
    asm.place(asks_kernel);
    asm.copy(R1, R6);
    stack_address(asm, R2, tuple);
    asm.set(R3, tuple_bytes);
    asm.set(R4, -1); // this network namespace
    asm.set(R5, 0);
    asm.call(Helper::SkcLookupTcp);
    asm.jump(If::Equal, R0, 0, redirect);
    asm.load(Width::Word, R7, R0, SOCK_STATE);
    asm.copy(R1, R0);
    asm.call(Helper::SkRelease);
    asm.jump(If::NotEqual, R7, STATE_LISTEN, forget);
    asm.load(Width::Double, R1, Fp, LEAVES);
    asm.jump(If::Equal, R1, 0, forget);

    asm.place(redirect);
    asm.jump(If::Equal, R9, 0, ours);
    asm.store_value(Width::Double, Fp, ONE, 1);
    asm.load_map(R1, fragments);
    stack_address(asm, R2, fragment);
    stack_address(asm, R3, ONE);
    asm.set(R4, 0);
    asm.call(Helper::MapUpdate);
    count_fragmented(asm, counts, counted, ours);
    asm.go(ours);

    // A first fragment is the kernel's, so the later ones are, too.
    asm.place(forget);
    asm.jump(If::Equal, R9, 0, pass);
    asm.load_map(R1, fragments);
    stack_address(asm, R2, fragment);
    asm.call(Helper::MapDelete);
    asm.go(pass);
}

/// Jumps to `otherwise` unless the frame has `bytes` bytes from `from` on. Uses R2.
fn need(asm: &mut Assembler, from: Register, bytes: i32, otherwise: Label) {
    asm.copy(R2, from);
    asm.add(R2, bytes);
    asm.jump_register(If::Greater, R2, R8, otherwise);
}

/// Checks the IP header at `at`; sets R5 to its end and R4 to the protocol. Uses R2, R3.
fn ip_header(asm: &mut Assembler, family: Family, at: Register, otherwise: Label) {
    match family {
        Family::V4 => {
            need(asm, at, IP_BYTES, otherwise);
            asm.load(Width::Byte, R3, at, 0);
            asm.jump(If::Less, R3, 0x45, otherwise);
            asm.jump(If::Greater, R3, 0x4f, otherwise);
            asm.and(R3, 0x0f);
            asm.shift_left(R3, 2);
            asm.copy(R5, at);
            asm.add_register(R5, R3);
            asm.load(Width::Byte, R4, at, IP_PROTOCOL);
        }
        Family::V6 => {
            need(asm, at, IP6_BYTES, otherwise);
            asm.load(Width::Byte, R3, at, 0);
            asm.jump(If::Less, R3, 0x60, otherwise);
            asm.jump(If::Greater, R3, 0x6f, otherwise);
            asm.copy(R5, at);
            asm.add(R5, IP6_BYTES);
            asm.load(Width::Byte, R4, at, IP6_NEXT);
        }
    }
}

/// Skips a fragment header at R5: R4 becomes the protocol, R9 whether more fragments follow, and
/// the packet's key is written; later fragments jump to `later`. Uses R0, R1, R2.
fn fragment_header(asm: &mut Assembler, later: Label, otherwise: Label) {
    let whole = asm.label();
    // The verifier wants all of it written on every path.
    for at in [0, 8, 16, 24] {
        asm.store_value(Width::Double, Fp, FRAGMENT6 + at, 0);
    }
    asm.store_value(Width::Word, Fp, FRAGMENT6 + 32, 0);
    asm.jump(If::NotEqual, R4, FRAGMENT_HEADER, whole);
    need(asm, R5, FRAGMENT_HEADER_BYTES, otherwise);
    copy_address(asm, R7, IP6_SRC, FRAGMENT6);
    copy_address(asm, R7, IP6_DST, FRAGMENT6 + 16);
    asm.load(Width::Word, R0, R5, 4);
    asm.store(Width::Word, Fp, FRAGMENT6 + 32, R0);
    asm.load(Width::Half, R0, R5, 2);
    asm.swap_from_network(R0);
    asm.copy(R1, R0);
    asm.and(R1, 0xfff8);
    asm.jump(If::NotEqual, R1, 0, later);
    asm.copy(R9, R0);
    asm.and(R9, 1);
    asm.load(Width::Byte, R4, R5, 0);
    asm.add(R5, FRAGMENT_HEADER_BYTES);
    asm.place(whole);
}

/// Copies an IPv6 address to the stack. Uses R0.
fn copy_address(asm: &mut Assembler, from: Register, offset: i16, to: i16) {
    for half in [0, 8] {
        asm.load(Width::Double, R0, from, offset + half);
        asm.store(Width::Double, Fp, to + half, R0);
    }
}

/// Writes the key of a fragmented packet. R7 is the IP header, R4 the protocol. Uses R0.
fn remember_fragment(asm: &mut Assembler) {
    asm.load(Width::Word, R0, R7, IP_SRC);
    asm.store(Width::Word, Fp, FRAGMENT, R0);
    asm.load(Width::Word, R0, R7, IP_DST);
    asm.store(Width::Word, Fp, FRAGMENT + 4, R0);
    asm.load(Width::Half, R0, R7, IP_IDENTIFICATION);
    asm.store(Width::Half, Fp, FRAGMENT + 8, R0);
    asm.store(Width::Half, Fp, FRAGMENT + 10, R4);
}

fn clear_key(asm: &mut Assembler) {
    asm.store_value(Width::Double, Fp, KEY, 0);
    asm.store_value(Width::Double, Fp, KEY + 8, 0);
    asm.store_value(Width::Word, Fp, KEY + 16, 0);
}

/// From the layer-4 header at R5 with the protocol in R4 to `decide`: sets the key's address and
/// port, the tuple, R7 to TCP's flags (0 for others) and R8 to the protocol.
fn transport(asm: &mut Assembler, family: Family, decide: Label, pass: Label) {
    let [tcp, udp, ports, icmp] = [(); 4].map(|()| asm.label());
    let messages = if family == Family::V4 { ICMP } else { ICMPV6 };
    asm.jump(If::Equal, R4, i32::from(TCP), tcp);
    asm.jump(If::Equal, R4, i32::from(UDP), udp);
    asm.jump(If::Equal, R4, i32::from(messages), icmp);
    asm.go(pass);

    asm.place(tcp);
    need(asm, R5, 20, pass);
    asm.load(Width::Byte, R1, R5, TCP_FLAGS);
    asm.go(ports);
    asm.place(udp);
    need(asm, R5, 8, pass);
    asm.set(R1, 0);
    asm.place(ports);
    name_flow(asm, family, R7, Sender::Remote);
    asm.copy(R7, R1);
    asm.copy(R8, R4);
    asm.go(decide);

    // An error quotes the start of a packet sent by us or by the kernel.
    asm.place(icmp);
    let [error, quotes_ports] = [(); 2].map(|()| asm.label());
    need(asm, R5, 8, pass);
    asm.load(Width::Byte, R1, R5, 0);
    let errors: &[i32] = if family == Family::V4 { &[3, 11, 12] } else { &[1, 2, 3, 4] };
    for kind in errors {
        asm.jump(If::Equal, R1, *kind, error);
    }
    asm.go(pass);
    asm.place(error);
    asm.copy(R7, R5);
    asm.add(R7, 8);
    ip_header(asm, family, R7, pass);
    if family == Family::V4 {
        asm.load(Width::Half, R1, R7, IP_FRAGMENT);
        asm.swap_from_network(R1);
        asm.and(R1, 0x1fff);
        asm.jump(If::NotEqual, R1, 0, pass);
    }
    asm.jump(If::Equal, R4, i32::from(TCP), quotes_ports);
    asm.jump(If::NotEqual, R4, i32::from(UDP), pass);
    asm.place(quotes_ports);
    need(asm, R5, 8, pass);
    name_flow(asm, family, R7, Sender::Us);
    asm.set(R7, 0);
    asm.copy(R8, R4);
    asm.go(decide);
}

/// The sender of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    Remote,
    Us,
}

/// Writes key and tuple from the IP header at `ip` and the ports at R5. Uses R0.
fn name_flow(asm: &mut Assembler, family: Family, ip: Register, sender: Sender) {
    let of_sender = |pair: [i16; 2]| match (sender, pair) {
        (Sender::Remote, [src, dst]) => [src, dst],
        (Sender::Us, [src, dst]) => [dst, src],
    };
    let ports_at = match family {
        Family::V4 => {
            let [remote, local] = of_sender([IP_SRC, IP_DST]);
            asm.load(Width::Word, R0, ip, remote);
            asm.store(Width::Word, Fp, TUPLE, R0);
            asm.load(Width::Word, R0, ip, local);
            asm.store(Width::Word, Fp, TUPLE + 4, R0);
            asm.store(Width::Word, Fp, KEY + 12, R0);
            TUPLE + 8
        }
        Family::V6 => {
            let [remote, local] = of_sender([IP6_SRC, IP6_DST]);
            copy_address(asm, ip, remote, TUPLE6);
            copy_address(asm, ip, local, TUPLE6 + 16);
            copy_address(asm, ip, local, KEY);
            TUPLE6 + 32
        }
    };
    let [remote, local] = of_sender([0, 2]);
    asm.load(Width::Half, R0, R5, remote);
    asm.store(Width::Half, Fp, ports_at, R0);
    asm.load(Width::Half, R0, R5, local);
    asm.store(Width::Half, Fp, ports_at + 2, R0);
    asm.store(Width::Half, Fp, KEY_PORT, R0);
}

fn stack_address(asm: &mut Assembler, to: Register, offset: i16) {
    asm.copy(to, Fp);
    asm.add(to, i32::from(offset));
}

/// Points R0 to the value of the key on the stack; without one, jumps to `missing`.
fn lookup(asm: &mut Assembler, map: &Map, key: i16, missing: Label) {
    asm.load_map(R1, map);
    stack_address(asm, R2, key);
    asm.call(Helper::MapLookup);
    asm.jump(If::Equal, R0, 0, missing);
}

/// Counts frames from a remote address that is not served, and jumps to `kernel` with them.
fn leave_out(asm: &mut Assembler, family: Family, remotes: &Remotes, kernel: Label) {
    let served = asm.label();
    asm.store_value(Width::Word, Fp, REMOTE, ADDRESS_BITS);
    match family {
        Family::V4 => {
            asm.store_value(Width::Word, Fp, REMOTE + 4, 0);
            asm.store_value(Width::Word, Fp, REMOTE + 8, 0);
            asm.store_value(Width::Half, Fp, REMOTE + 12, 0);
            asm.store_value(Width::Half, Fp, REMOTE + 14, -1);
            asm.load(Width::Word, R1, Fp, TUPLE);
            asm.store(Width::Word, Fp, REMOTE + 16, R1);
        }
        Family::V6 => {
            for at in [0, 4, 8, 12] {
                asm.load(Width::Word, R1, Fp, TUPLE6 + at);
                asm.store(Width::Word, Fp, REMOTE + 4 + at, R1);
            }
        }
    }
    lookup(asm, &remotes.map, REMOTE, served);
    asm.load(Width::Word, R1, R0, remotes::SERVED);
    asm.jump(If::NotEqual, R1, 0, served);
    count_one(asm, remotes::LEFT);
    asm.go(kernel);
    asm.place(served);
}

/// Counts a fragmented packet by the outcome in R0 of storing it. Uses R9.
fn count_fragmented(asm: &mut Assembler, counts: &Map, at: i16, counted: Label) {
    let refused = asm.label();
    asm.copy(R9, R0);
    asm.store_value(Width::Word, Fp, COUNTS, 0);
    lookup(asm, counts, COUNTS, counted);
    asm.jump(If::NotEqual, R9, 0, refused);
    count_one(asm, at + fragments::KEPT);
    asm.go(counted);
    asm.place(refused);
    count_one(asm, at + fragments::REFUSED);
}

/// Counts in the value at R0. Two queues that count at the same time may count one instead of two.
/// Uses R1.
fn count_one(asm: &mut Assembler, at: i16) {
    asm.load(Width::Double, R1, R0, at);
    asm.add(R1, 1);
    asm.store(Width::Double, R0, at, R1);
}

/// Returns the verdict that passes the frame to the socket of its receive queue, or R8 if there is
/// none.
fn give(asm: &mut Assembler, sockets: &Map) {
    asm.load(Width::Word, R2, R6, MD_QUEUE);
    asm.load_map(R1, sockets);
    asm.copy(R3, R8);
    asm.call(Helper::RedirectMap);
    asm.exit();
}

#[cfg(test)]
mod tests;
