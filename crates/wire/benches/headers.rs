//! Nanoseconds to parse and to emit the headers of a TCP segment. Run with
//! `cargo bench -p outboard-wire`; the best of several rounds is shown.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

use outboard_wire::checksum::Sum;
use outboard_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use outboard_wire::ipv4::{Ipv4Header, Protocol};
use outboard_wire::tcp::{SackBlock, SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};
use outboard_wire::{ethernet, ipv4, tcp};

fn best_ns(mut work: impl FnMut()) -> f64 {
    const REPEATS: u32 = 1 << 16;
    let mut best = f64::MAX;
    for _ in 0..15 {
        let start = Instant::now();
        for _ in 0..REPEATS {
            work();
        }
        best = best.min(start.elapsed().as_nanos() as f64);
    }
    best / f64::from(REPEATS)
}

fn emit(options: &TcpOptions, payload_len: usize, out: &mut [u8]) -> Option<usize> {
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let tcp_len = tcp::HEADER_LEN + options.emitted_len();
    let (link, rest) = out.split_at_mut_checked(ethernet::HEADER_LEN)?;
    let (network, transport) = rest.split_at_mut_checked(ipv4::HEADER_LEN)?;
    let ethernet = EthernetHeader {
        dst: MacAddr([2, 0, 0, 0, 0, 2]),
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        vlan: None,
        ethertype: EtherType::IPV4,
    };
    ethernet.emit(link).ok()?;
    let ip = Ipv4Header { protocol: Protocol::TCP, src, dst, ..Ipv4Header::default() };
    ip.emit(tcp_len + payload_len, network).ok()?;
    let pseudo = Sum::pseudo_v4(src, dst, Protocol::TCP, (tcp_len + payload_len) as u32);
    let header = TcpHeader {
        src_port: 40000,
        dst_port: 80,
        seq: SeqNumber(1000),
        ack: SeqNumber(501),
        flags: TcpFlags::ACK,
        window: 512,
        checksum: pseudo.folded(),
        urgent: 0,
    };
    header.emit(options, transport).ok()?;
    Some(ethernet::HEADER_LEN + ipv4::HEADER_LEN + tcp_len)
}

fn parse(frame: &[u8]) -> Option<(u32, usize)> {
    let (_, rest) = ethernet::parse(frame).ok()?;
    let packet = ipv4::parse(rest).ok()?;
    let segment = tcp::parse(packet.payload).ok()?;
    Some((segment.header.seq.0, segment.payload.len() + segment.options.sack.len()))
}

fn main() {
    let plain =
        TcpOptions { timestamps: Some(Timestamps { value: 1, echo: 2 }), ..TcpOptions::NONE };
    let block = SackBlock { left: SeqNumber(1), right: SeqNumber(2) };
    let sacked = TcpOptions { sack: [block; 3].into_iter().collect(), ..plain };
    println!("{:>12} {:>10} {:>10}", "options", "emit ns", "parse ns");
    for (name, options) in [("timestamps", plain), ("3 blocks", sacked)] {
        let mut frame = vec![0; 1514];
        let len = emit(&options, 0, &mut frame).expect("room");
        let emitting = best_ns(|| {
            black_box(emit(black_box(&options), 0, black_box(&mut frame)));
        });
        let parsing = best_ns(|| {
            black_box(parse(black_box(&frame[..len])));
        });
        println!("{name:>12} {emitting:>10.1} {parsing:>10.1}");
    }
}
