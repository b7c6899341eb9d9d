//! The program on packets, one at a time, by the kernel's own test run.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use rustix::thread::UnshareFlags;

use super::super::claims::Claims;
use super::super::fragments::Counts;
use super::super::owned::Owned;
use super::super::queues::Sockets;
use super::super::watch::{Watch, Watched};
use super::*;
use crate::interface::Claim;
use crate::spec::Remote;

/// Stands for "to the engine" where no socket is bound: XDP_TX for what is new, and for the rest what
/// the port has.
const TO_ENGINE: u32 = 3;
const OF_A_CONNECTION: u32 = UNBOUND.standing;
const TO_KERNEL: u32 = PASS;
const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const PEER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const HERE6: Ipv6Addr = Ipv6Addr::LOCALHOST;
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
const BLOCK: (u16, u16) = (40_000, 40_099);

/// The program with its claims, in a namespace whose kernel has the loopback interface alone.
struct Bench {
    program: Program,
    claims: Claims,
    remotes: Option<Remotes>,
    counts: Counts,
    watched: Watched,
    _sockets: Sockets,
}

impl Bench {
    fn verdict(&self, frame: &[u8]) -> u32 {
        match self.verdict_without_socket(frame) {
            OF_A_CONNECTION => TO_ENGINE,
            verdict => verdict,
        }
    }

    /// The same, telling what is new from what is part of a connection.
    fn verdict_without_socket(&self, frame: &[u8]) -> u32 {
        self.program.run(frame).unwrap()
    }

    fn claim(&mut self, claim: Claim) {
        self.claims.claim(&claim).unwrap();
    }
}

/// Runs a test with a bench, or skips it.
fn bench(test: &str, work: impl FnOnce(Bench) + Send) {
    bench_with(&[], test, work);
}

/// The same with rules for remote addresses.
fn bench_with(rules: &[Remote], test: &str, work: impl FnOnce(Bench) + Send) {
    if !skips::is_root(test) {
        return;
    }
    let run = || {
        // SAFETY: leaving the network namespace affects this thread alone and no memory.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.unwrap().success());
        let sockets = Sockets::create().unwrap();
        let fragments = Fragments::create().unwrap();
        let watch = Watch::create().unwrap();
        let owned = Owned::create().unwrap();
        let remotes = Remotes::create(rules).unwrap();
        let unbound = Unbound { new: TO_ENGINE, ..UNBOUND };
        let maps = Maps {
            owned: &owned.0,
            sockets: &sockets.0,
            watch: &watch.map,
            fragments: &fragments,
            remotes: remotes.as_ref(),
        };
        let program = load(&maps, BLOCK, unbound, true).unwrap_or_else(|why| panic!("{why}"));
        let mut claims = Claims::new(owned, 1518);
        claims.follow(&[HERE.into(), HERE6.into()], 1518).unwrap();
        let counts = Counts::from_fd(fragments.counts.into_fd());
        let watched = Watch::watched(watch.map.into_fd()).unwrap();
        work(Bench { program, claims, remotes, counts, watched, _sockets: sockets });
    };
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(HERE), port)
}

fn anywhere(port: u16) -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], port))
}

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A packet with `options` words of IP options, its fragment field and payload.
fn packet(
    [src, dst]: [Ipv4Addr; 2],
    protocol: u8,
    fragment: u16,
    options: usize,
    payload: &[u8],
) -> Vec<u8> {
    let mut ip = vec![0x45 + options as u8, 0, 0, 0, 0x12, 0x34];
    ip.extend(fragment.to_be_bytes());
    ip.extend([64, protocol, 0, 0]);
    ip.extend(src.octets());
    ip.extend(dst.octets());
    ip.resize(20 + 4 * options, 1);
    ip.extend(payload);
    let total = ip.len() as u16;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip
}

fn ipv4(protocol: u8, fragment: u16, options: usize, payload: &[u8]) -> Vec<u8> {
    ethernet(0x0800, &packet([PEER, HERE], protocol, fragment, options, payload))
}

fn tcp_header(from: u16, to: u16, flags: u8) -> Vec<u8> {
    let mut header = [from.to_be_bytes(), to.to_be_bytes()].concat();
    header.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    header
}

fn tcp(from: u16, to: u16, flags: u8) -> Vec<u8> {
    ipv4(TCP, 0, 0, &tcp_header(from, to, flags))
}

fn udp(to: u16, payload: usize) -> Vec<u8> {
    let mut datagram = [1234u16.to_be_bytes(), to.to_be_bytes()].concat();
    datagram.resize(8 + payload, 0);
    ipv4(UDP, 0, 0, &datagram)
}

const ACK: u8 = 0x10;
const SYN: u8 = 0x02;

#[test]
fn without_claims_everything_is_the_kernels() {
    bench("without claims", |bench| {
        for frame in [
            tcp(1234, 80, SYN),
            tcp(1234, 80, ACK),
            udp(53, 100),
            ethernet(0x0806, &[0; 46]),
            ethernet(0x86dd, &[0x60; 60]),
            ethernet(0x88b5, &[0; 46]),
            ethernet(0x8100, &[0; 46]),
            ipv4(1, 0, 0, &[8, 0, 0, 0, 0, 0, 0, 0]),
            ipv4(47, 0, 0, &[0; 40]),
        ] {
            assert_eq!(bench.verdict(&frame), TO_KERNEL, "{frame:02x?}");
        }
    });
}

#[test]
fn a_listener_takes_its_address_and_port_and_nothing_beside() {
    bench("a listener", |mut bench| {
        bench.claim(Claim::Tcp { local: anywhere(80), listens: true });
        assert_eq!(bench.verdict(&tcp(1234, 80, SYN)), TO_ENGINE);
        assert_eq!(bench.verdict(&tcp(1234, 80, ACK)), TO_ENGINE);
        assert_eq!(bench.verdict(&ipv4(TCP, 0, 3, &tcp_header(1, 80, SYN))), TO_ENGINE);
        assert_eq!(bench.verdict(&tcp(1234, 81, SYN)), TO_KERNEL);
        assert_eq!(bench.verdict(&udp(80, 10)), TO_KERNEL);
        let other = packet([PEER, PEER], TCP, 0, 0, &tcp_header(1, 80, SYN));
        assert_eq!(bench.verdict(&ethernet(0x0800, &other)), TO_KERNEL, "an address not ours");
        let tagged = [&[0, 7, 8, 0], &packet([PEER, HERE], TCP, 0, 0, &tcp_header(1, 80, SYN))[..]];
        assert_eq!(bench.verdict(&ethernet(0x8100, &tagged.concat())), TO_KERNEL, "a VLAN's");
        bench.claims.release(&Claim::Tcp { local: anywhere(80), listens: true });
        assert_eq!(bench.verdict(&tcp(1234, 80, SYN)), TO_KERNEL);
    });
}

#[test]
fn connections_that_the_kernel_holds_stay_with_it() {
    bench("the kernel's connections", |mut bench| {
        let listener = TcpListener::bind((HERE, 80)).unwrap();
        let client = TcpStream::connect((HERE, 80)).unwrap();
        let accepted = listener.accept().unwrap();
        bench.claim(Claim::Tcp { local: anywhere(80), listens: true });
        let port = client.local_addr().unwrap().port();
        let from_client = packet([HERE, HERE], TCP, 0, 0, &tcp_header(port, 80, ACK));
        let from_client = ethernet(0x0800, &from_client);
        assert_eq!(bench.verdict(&from_client), TO_KERNEL);
        assert_eq!(bench.verdict(&tcp(port, 80, SYN)), TO_ENGINE, "another peer");
        drop((client, accepted, listener));
    });
}

#[test]
fn where_only_the_kernel_listens_new_connections_are_its() {
    bench("a flow", |mut bench| {
        bench.claim(Claim::Tcp { local: at(5000), listens: false });
        // A simultaneous open: the kernel reset the connection.
        assert_eq!(bench.verdict(&tcp(80, 5000, SYN)), TO_ENGINE);
        let _listener = TcpListener::bind((HERE, 5000)).unwrap();
        assert_eq!(bench.verdict(&tcp(80, 5000, SYN)), TO_KERNEL);
        assert_eq!(bench.verdict(&tcp(80, 5000, SYN | ACK)), TO_ENGINE);
        assert_eq!(bench.verdict(&tcp(80, 5000, ACK)), TO_ENGINE);
        bench.claim(Claim::Tcp { local: anywhere(5000), listens: true });
        assert_eq!(bench.verdict(&tcp(80, 5000, SYN)), TO_ENGINE);
    });
}

#[test]
fn the_block_of_ports_is_the_engines_on_the_interfaces_addresses() {
    bench("the block", |mut bench| {
        for (port, verdict) in [
            (BLOCK.0 - 1, TO_KERNEL),
            (BLOCK.0, TO_ENGINE),
            (BLOCK.1, TO_ENGINE),
            (BLOCK.1 + 1, TO_KERNEL),
        ] {
            assert_eq!(bench.verdict(&tcp(80, port, ACK)), verdict, "{port}");
        }
        assert_eq!(bench.verdict(&udp(BLOCK.0, 10)), TO_KERNEL);
        bench.claims.follow(&[PEER.into()], 1518).unwrap();
        assert_eq!(bench.verdict(&tcp(80, BLOCK.0, ACK)), TO_KERNEL, "the address is gone");
    });
}

#[test]
fn claims_follow_the_interfaces_addresses() {
    bench("addresses", |mut bench| {
        bench.claims.follow(&[PEER.into()], 1518).unwrap();
        bench.claim(Claim::Tcp { local: anywhere(80), listens: true });
        bench.claim(Claim::Tcp { local: at(81), listens: true });
        assert_eq!(bench.verdict(&tcp(1, 80, SYN)), TO_KERNEL);
        assert_eq!(bench.verdict(&tcp(1, 81, SYN)), TO_KERNEL);
        bench.claims.follow(&[PEER.into(), HERE.into()], 1518).unwrap();
        assert_eq!(bench.verdict(&tcp(1, 80, SYN)), TO_ENGINE);
        assert_eq!(bench.verdict(&tcp(1, 81, SYN)), TO_ENGINE);
    });
}

#[test]
fn datagrams_longer_than_the_link_allows_are_left_to_the_kernel() {
    bench("datagrams", |mut bench| {
        bench.claim(Claim::Udp(anywhere(53)));
        assert_eq!(bench.verdict(&udp(53, 0)), TO_ENGINE);
        assert_eq!(bench.verdict(&udp(53, 1472)), TO_ENGINE);
        assert_eq!(bench.verdict(&udp(53, 3000)), TO_KERNEL);
        assert_eq!(bench.verdict(&udp(54, 0)), TO_KERNEL);
    });
}

#[test]
fn fragments_go_where_their_first_one_went() {
    bench("fragments", |mut bench| {
        bench.claim(Claim::Udp(anywhere(53)));
        let first = |port: u16| {
            let mut datagram = [1234u16.to_be_bytes(), port.to_be_bytes()].concat();
            datagram.resize(1480, 0);
            ipv4(UDP, 0x2000, 0, &datagram)
        };
        let middle = ipv4(UDP, 0x2000 | 185, 0, &[0; 1480]);
        let last = ipv4(UDP, 370, 0, &[0; 100]);
        assert_eq!(bench.verdict(&last), TO_KERNEL, "its first fragment has not come");
        assert_eq!(bench.verdict(&first(53)), TO_ENGINE);
        assert_eq!(bench.verdict(&middle), TO_ENGINE);
        assert_eq!(bench.verdict(&last), TO_ENGINE);
        assert_eq!(bench.verdict(&first(54)), TO_KERNEL, "the identification is used again");
        assert_eq!(bench.verdict(&last), TO_KERNEL);
        bench.counts.look(1);
        let counts = &bench.counts;
        assert_eq!((counts.kept(), counts.evicted(), counts.refused()), (1, 0, 0));
    });
}

#[test]
fn on_a_queue_without_a_socket_the_kernel_gets_what_is_new_and_resets_nothing() {
    bench("a queue without a socket", |mut bench| {
        bench.claim(Claim::Tcp { local: anywhere(80), listens: true });
        bench.claim(Claim::Udp(anywhere(53)));
        bench.claim(Claim::EtherType(0x88b5));
        for new in [tcp(1, 80, SYN), udp(53, 100), ethernet(0x88b5, &[0; 46])] {
            assert_eq!(bench.verdict_without_socket(&new), TO_ENGINE);
        }
        for standing in [tcp(1, 80, ACK), tcp(1, 80, SYN | ACK), tcp(1, BLOCK.0, SYN | ACK)] {
            assert_eq!(bench.verdict_without_socket(&standing), OF_A_CONNECTION);
        }
    });
}

#[test]
fn an_icmp_error_finds_the_flow_that_it_is_about() {
    bench("ICMP errors", |mut bench| {
        bench.claim(Claim::Tcp { local: anywhere(80), listens: true });
        bench.claim(Claim::Udp(anywhere(53)));
        let error = |kind: u8, protocol: u8, from: u16| {
            let quoted = [from.to_be_bytes(), 1234u16.to_be_bytes(), [0; 2], [0; 2]].concat();
            let mut message = vec![kind, 4, 0, 0, 0, 0, 0, 0];
            message.extend(packet([HERE, PEER], protocol, 0, 2, &quoted));
            ipv4(ICMP, 0, 0, &message)
        };
        for kind in [3, 11, 12] {
            assert_eq!(bench.verdict(&error(kind, TCP, 80)), TO_ENGINE);
            assert_eq!(bench.verdict(&error(kind, TCP, BLOCK.0)), TO_ENGINE);
            assert_eq!(bench.verdict(&error(kind, UDP, 53)), TO_ENGINE);
            assert_eq!(bench.verdict(&error(kind, TCP, 81)), TO_KERNEL);
        }
        assert_eq!(bench.verdict(&error(8, TCP, 80)), TO_KERNEL, "an echo request");
        assert_eq!(bench.verdict(&error(3, 47, 80)), TO_KERNEL);
    });
}

#[test]
fn an_owned_ethertype_is_the_engines() {
    bench("EtherTypes", |mut bench| {
        bench.claim(Claim::EtherType(0x88b5));
        assert_eq!(bench.verdict(&ethernet(0x88b5, &[0; 46])), TO_ENGINE);
        assert_eq!(bench.verdict(&ethernet(0x88b6, &[0; 46])), TO_KERNEL);
    });
}

#[test]
fn what_comes_from_a_remote_that_the_lists_leave_out_is_the_kernels_and_counted() {
    let rule =
        |network: [u8; 4], prefix, served| Remote { network: network.into(), prefix, served };
    let rules = [rule([0; 4], 0, false), rule([127, 0, 0, 0], 8, true)];
    let closer = [rules[1], rule(PEER.octets(), 32, false)];
    bench_with(&rules, "a list of allowed remotes", |mut bench| {
        bench.claim(Claim::Tcp { local: anywhere(80), listens: true });
        assert_eq!(bench.verdict(&tcp(1234, 80, SYN)), TO_ENGINE);
        let far = Ipv4Addr::new(192, 0, 2, 1);
        let from_far = ethernet(0x0800, &packet([far, HERE], TCP, 0, 0, &tcp_header(1, 80, SYN)));
        assert_eq!(bench.verdict(&from_far), TO_KERNEL);
        assert_eq!(bench.verdict(&tcp(1234, 81, SYN)), TO_KERNEL);
        assert_eq!(bench.remotes.map(|mut remotes| remotes.left()), Some(1));
    });
    bench_with(&closer, "a denied remote", |mut bench| {
        bench.claim(Claim::Udp(anywhere(53)));
        assert_eq!(bench.verdict(&udp(53, 10)), TO_KERNEL);
        assert_eq!(bench.remotes.map(|mut remotes| remotes.left()), Some(1));
    });
}

#[test]
fn rules_for_ipv6_do_not_concern_ipv4() {
    let rule =
        |network: &str, prefix| Remote { network: network.parse().unwrap(), prefix, served: false };
    for (network, prefix) in [("::", 0), ("::", 64), ("::ffff:0:0", 96), ("::ffff:7f00:0", 104)] {
        bench_with(&[rule(network, prefix)], "a denied IPv6 network", |mut bench| {
            bench.claim(Claim::Tcp { local: anywhere(80), listens: true });
            let verdict = bench.verdict(&tcp(1234, 80, SYN));
            assert_eq!(verdict, TO_ENGINE, "{network}/{prefix}");
        });
    }
    let denied = [rule("::", 0), rule("0.0.0.0", 0)];
    bench_with(&denied, "all that is denied", |mut bench| {
        bench.claim(Claim::Tcp { local: anywhere(80), listens: true });
        assert_eq!(bench.verdict(&tcp(1234, 80, SYN)), TO_KERNEL);
    });
}

#[test]
fn whatever_is_cut_short_is_the_kernels() {
    bench("truncated frames", |mut bench| {
        bench.claim(Claim::Tcp { local: anywhere(80), listens: true });
        bench.claim(Claim::Udp(anywhere(80)));
        let whole = tcp(1, 80, SYN);
        // The kernel runs programs on a whole Ethernet header at least.
        for len in 14..whole.len() {
            assert_eq!(bench.verdict(&whole[..len]), TO_KERNEL, "{len}");
        }
        assert_eq!(bench.verdict(&whole), TO_ENGINE);
        for first in [0x44, 0x35, 0x4f, 0x65] {
            let mut odd = whole.clone();
            odd[14] = first;
            assert_eq!(bench.verdict(&odd), TO_KERNEL, "{first:x}");
        }
    });
}

/// An IPv6 frame to this host, or between two others.
fn ipv6([src, dst]: [Ipv6Addr; 2], next: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend((payload.len() as u16).to_be_bytes());
    ip.extend([next, 64]);
    ip.extend(src.octets());
    ip.extend(dst.octets());
    ip.extend(payload);
    ethernet(0x86dd, &ip)
}

fn tcp6(from: u16, to: u16, flags: u8) -> Vec<u8> {
    ipv6([PEER6, HERE6], TCP, &tcp_header(from, to, flags))
}

fn udp6(to: u16, payload: usize) -> Vec<u8> {
    let mut datagram = [1234u16.to_be_bytes(), to.to_be_bytes()].concat();
    datagram.resize(8 + payload, 0);
    ipv6([PEER6, HERE6], UDP, &datagram)
}

fn anywhere6(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))
}

#[test]
fn ipv6_is_taken_by_address_and_port_and_nothing_beside() {
    bench("IPv6", |mut bench| {
        bench.claim(Claim::Tcp { local: anywhere(81), listens: true });
        assert_eq!(bench.verdict(&tcp6(1234, 80, SYN)), TO_KERNEL);
        bench.claim(Claim::Tcp { local: anywhere6(80), listens: true });
        bench.claim(Claim::Udp(anywhere6(53)));
        assert_eq!(bench.verdict(&tcp6(1234, 80, SYN)), TO_ENGINE);
        assert_eq!(bench.verdict(&tcp6(1234, 80, ACK)), TO_ENGINE);
        assert_eq!(bench.verdict(&tcp6(1234, 81, SYN)), TO_KERNEL, "claimed of IPv4 alone");
        assert_eq!(bench.verdict(&tcp(1234, 80, SYN)), TO_KERNEL, "claimed of IPv6 alone");
        assert_eq!(bench.verdict(&udp6(53, 100)), TO_ENGINE);
        assert_eq!(bench.verdict(&udp6(53, 3000)), TO_KERNEL, "several that were not cut");
        assert_eq!(bench.verdict(&udp6(54, 100)), TO_KERNEL);
        let other = ipv6([PEER6, PEER6], TCP, &tcp_header(1, 80, SYN));
        assert_eq!(bench.verdict(&other), TO_KERNEL, "an address not ours");
        for (port, verdict) in [(BLOCK.0 - 1, TO_KERNEL), (BLOCK.0, TO_ENGINE)] {
            assert_eq!(bench.verdict(&tcp6(80, port, ACK)), verdict, "{port}");
        }
        for next in [0, 43, 59, 60] {
            let extended = ipv6([PEER6, HERE6], next, &[TCP; 60]);
            assert_eq!(bench.verdict(&extended), TO_KERNEL, "{next}");
        }
        let whole = tcp6(1, 80, SYN);
        for len in 14..whole.len() {
            assert_eq!(bench.verdict(&whole[..len]), TO_KERNEL, "{len}");
        }
    });
}

#[test]
fn ipv6_connections_that_the_kernel_holds_stay_with_it() {
    bench("the kernel's IPv6 connections", |mut bench| {
        let Ok(listener) = TcpListener::bind((HERE6, 80)) else {
            return skips::skip("the kernel's IPv6 connections", "ipv6", "the kernel has none");
        };
        let client = TcpStream::connect((HERE6, 80)).unwrap();
        let accepted = listener.accept().unwrap();
        bench.claim(Claim::Tcp { local: anywhere6(80), listens: true });
        let port = client.local_addr().unwrap().port();
        let from_client = ipv6([HERE6, HERE6], TCP, &tcp_header(port, 80, ACK));
        assert_eq!(bench.verdict(&from_client), TO_KERNEL);
        assert_eq!(bench.verdict(&tcp6(port, 80, SYN)), TO_ENGINE, "another peer");
        drop((client, accepted, listener));
    });
}

#[test]
fn ipv6_fragments_and_errors_find_their_flow() {
    bench("IPv6 fragments and errors", |mut bench| {
        bench.claim(Claim::Udp(anywhere6(53)));
        bench.claim(Claim::Tcp { local: anywhere6(80), listens: true });
        let piece = |offset: u16, more: u16, id: u8, rest: &[u8]| {
            let field = (offset | more).to_be_bytes();
            let header = [&[UDP, 0][..], &field, &[0, 0, 0, id]].concat();
            ipv6([PEER6, HERE6], 44, &[&header, rest].concat())
        };
        let first = |port: u16, id| {
            let mut datagram = [1234u16.to_be_bytes(), port.to_be_bytes()].concat();
            datagram.resize(1448, 0);
            piece(0, 1, id, &datagram)
        };
        let last = |id| piece(1448, 0, id, &[0; 100]);
        assert_eq!(bench.verdict(&last(7)), TO_KERNEL, "its first fragment has not come");
        assert_eq!(bench.verdict(&first(53, 7)), TO_ENGINE);
        assert_eq!(bench.verdict(&last(7)), TO_ENGINE);
        assert_eq!(bench.verdict(&last(8)), TO_KERNEL);
        assert_eq!(bench.verdict(&first(54, 7)), TO_KERNEL, "the identification is used again");
        assert_eq!(bench.verdict(&last(7)), TO_KERNEL);

        let error = |kind: u8, protocol: u8, from: u16| {
            let quoted = [from.to_be_bytes(), 1234u16.to_be_bytes(), [0; 2], [0; 2]].concat();
            let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
            message.extend(&ipv6([HERE6, PEER6], protocol, &quoted)[14..]);
            ipv6([PEER6, HERE6], ICMPV6, &message)
        };
        for kind in 1..=4 {
            assert_eq!(bench.verdict(&error(kind, TCP, 80)), TO_ENGINE);
            assert_eq!(bench.verdict(&error(kind, UDP, 53)), TO_ENGINE);
            assert_eq!(bench.verdict(&error(kind, TCP, 81)), TO_KERNEL);
        }
        for kind in [128, 129, 133, 134, 135, 136, 143] {
            assert_eq!(bench.verdict(&error(kind, TCP, 80)), TO_KERNEL, "{kind}");
        }
    });
}

/// A listener whose engine was stopped was gone, although the kernel's half of it was there.
#[test]
fn what_comes_is_kept_from_a_worker_that_has_stopped_until_it_goes_on() {
    bench("a worker that has stopped", |mut bench| {
        bench.claim(Claim::Tcp { local: anywhere(80), listens: true });
        let given = |bench: &Bench, count: u32| {
            let before = bench.watched.kept_back();
            (0..count).for_each(|_| assert_eq!(bench.verdict(&tcp(1, 80, SYN)), TO_ENGINE));
            u64::from(count) - (bench.watched.kept_back() - before)
        };
        const LONG_NS: i64 = 3_000_000_000;
        // Far enough ahead that a slow test does not become a long wait.
        const AHEAD_NS: i64 = -3_600_000_000_000;
        assert_eq!(given(&bench, 1), 1);
        bench.watched.age(AHEAD_NS);
        assert_eq!(given(&bench, 99), 99, "they have not waited long");
        bench.watched.looked();
        assert_eq!(given(&bench, 1), 1);
        bench.watched.age(LONG_NS);
        assert_eq!(given(&bench, 6), 6, "so few wait for a worker that sleeps");
        assert_eq!(given(&bench, 1), 0, "the eighth");
        bench.watched.age(AHEAD_NS);
        assert_eq!(given(&bench, 20), 0, "and what follows");
        assert_eq!(bench.verdict_without_socket(&tcp(1, 80, ACK)), OF_A_CONNECTION);
        assert_eq!(bench.watched.kept_back(), 22);
        bench.watched.age(LONG_NS - AHEAD_NS);
        assert_eq!(given(&bench, 1), 1, "one wakes a worker that only sleeps");
        bench.watched.age(AHEAD_NS);
        assert_eq!(given(&bench, 20), 0);
        bench.watched.looked();
        assert_eq!(given(&bench, 1), 1);
        bench.watched.age(AHEAD_NS);
        assert_eq!(given(&bench, 100), 100);
    });
}
