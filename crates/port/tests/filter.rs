//! Filters of captures against tcpdump's own, on the same frames.

use std::process::Command;

use outboard_port::pcap::Filter;

/// An Ethernet frame.
fn ethernet(source: u8, destination: u8, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

fn ip4(ends: [[u8; 4]; 2], protocol: u8, fragment: u16, options: usize, inner: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45 + options as u8, 0, 0, 0, 0x12, 0x34];
    packet[3] = (20 + 4 * options + inner.len()) as u8;
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(ends.concat());
    packet.resize(20 + 4 * options, 1);
    packet.extend(inner);
    ethernet(1, 2, 0x0800, &packet)
}

fn ip6(last: [u8; 2], next: u8, inner: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, inner.len() as u8, next, 64];
    for end in last {
        packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
    }
    packet.extend(inner);
    ethernet(2, 1, 0x86dd, &packet)
}

fn arp(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1];
    packet.extend(sender);
    packet.extend([0; 6]);
    packet.extend(target);
    ethernet(1, 0xff, 0x0806, &packet)
}

fn ports(from: u16, to: u16) -> Vec<u8> {
    let mut header = [from.to_be_bytes(), to.to_be_bytes()].concat();
    header.resize(20, 0);
    header
}

fn frames() -> Vec<Vec<u8>> {
    let (a, b, c) = ([10, 0, 0, 1], [10, 0, 0, 2], [192, 0, 2, 7]);
    let mut frames = Vec::new();
    for protocol in [6, 17, 132, 1, 58, 47] {
        for (from, to) in [(1234, 80), (80, 1234), (8000, 8080), (53, 53)] {
            frames.push(ip4([a, b], protocol, 0, 0, &ports(from, to)));
            frames.push(ip4([b, c], protocol, 0, 3, &ports(from, to)));
            // The first of several fragments, and a later one.
            frames.push(ip4([c, a], protocol, 0x2000, 0, &ports(from, to)));
            frames.push(ip4([a, c], protocol, 0x2005, 0, &ports(from, to)));
            frames.push(ip6([1, 2], protocol, &ports(from, to)));
            let mut fragment = vec![protocol, 0, 0, 1, 0, 0, 0, 9];
            fragment.extend(ports(from, to));
            frames.push(ip6([2, 9], 44, &fragment));
        }
    }
    frames.push(arp(a, b));
    frames.push(arp(b, c));
    frames.push(ethernet(3, 4, 0x88b5, &[0; 46]));
    // Tagged: nothing is looked for behind the tag.
    frames.push(ethernet(3, 4, 0x8100, &[0, 5, 8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6]));
    frames
}

/// A capture file of these frames, the shortest that tcpdump reads.
fn capture_file(frames: &[Vec<u8>]) -> Vec<u8> {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let mut file = words(&[0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65535, 1]);
    for (at, frame) in (0u32..).zip(frames) {
        // The time tells which it is.
        file.extend(words(&[at, 0, frame.len() as u32, frame.len() as u32]));
        file.extend(frame);
    }
    file
}

/// Which frames tcpdump keeps.
fn kept_by_tcpdump(file: &std::path::Path, expression: &str) -> Vec<usize> {
    let output = Command::new("tcpdump")
        .args(["-r", &file.display().to_string(), "-w", "-", expression])
        .output()
        .expect("tcpdump runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{expression}: {said}");
    let word = |at: usize| -> Option<usize> {
        Some(u32::from_le_bytes(output.stdout.get(at..at + 4)?.try_into().ok()?) as usize)
    };
    let mut kept = Vec::new();
    let mut at = 24;
    while let (Some(number), Some(len)) = (word(at), word(at + 8)) {
        kept.push(number);
        at += 16 + len;
    }
    kept
}

const EXPRESSIONS: &[&str] = &[
    "",
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "host 10.0.0.1",
    "src host 10.0.0.1",
    "dst 192.0.2.7",
    "src or dst host 10.0.0.2",
    "src and dst host 10.0.0.2",
    "dst or src 10.0.0.2",
    "ip host 10.0.0.1",
    "arp host 10.0.0.1",
    "arp src host 10.0.0.2",
    "host fd00::2",
    "ip6 src host fd00::1",
    "net 10.0.0.0/8",
    "net 10",
    "src net 192.0.2",
    "net 10.0.0.0/31",
    "net 0.0.0.0/0",
    "dst net fd00::/120",
    "port 80",
    "tcp port 80",
    "udp dst port 53",
    "src port 8000 or 80",
    "src or dst port 53",
    "src and dst port 53",
    "portrange 8000-9000",
    "tcp src portrange 79-81",
    "ether host 02:00:00:00:00:01",
    "ether src 02:00:00:00:00:02",
    "ether dst host 2:0:0:0:0:4",
    "not tcp",
    "! (tcp or udp)",
    "tcp or udp and host 10.0.0.1",
    "host 10.0.0.1 and tcp or udp",
    "not host 10.0.0.1 and not arp",
    "not (tcp port 80 or (udp and not port 53)) && ip",
    "(host 10.0.0.1 or 192.0.2.7) and (port 80 or 53)",
    "tcp||udp&&!(port 80)",
    "host 10.0.0.1 or port 80 or net 192.0.2.0/24 and not icmp",
    "tcp port 80 or 8000 and host 10.0.0.1",
    "not not tcp",
];

#[test]
fn filters_keep_what_tcpdumps_own_keep() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        skips::skip("filters_keep_what_tcpdumps_own_keep", "tcpdump", "it is not installed");
        return;
    }
    let frames = frames();
    let path = std::env::temp_dir().join(format!("outboard-filter-{}.pcap", std::process::id()));
    std::fs::write(&path, capture_file(&frames)).expect("a file");
    for expression in EXPRESSIONS {
        let filter =
            Filter::compile(expression).unwrap_or_else(|why| panic!("{expression}: {why}"));
        let ours: Vec<usize> =
            (0..).zip(&frames).filter(|(_, frame)| filter.keeps(frame)).map(|(at, _)| at).collect();
        assert_eq!(ours, kept_by_tcpdump(&path, expression), "{expression}");
    }
    std::fs::remove_file(&path).expect("removed");
}

#[test]
fn whatever_is_written_is_understood_or_refused_with_a_sentence() {
    let words = [
        "host",
        "net",
        "port",
        "portrange",
        "src",
        "dst",
        "ether",
        "ip",
        "ip6",
        "arp",
        "tcp",
        "udp",
        "icmp",
        "icmp6",
        "and",
        "or",
        "not",
        "&&",
        "||",
        "!",
        "(",
        ")",
        "80",
        "10.0.0.1",
        "10",
        "fd00::1",
        "1-2",
        "02:00:00:00:00:01",
        "10.0.0.0/8",
        "&",
        "|",
        "\u{e9}",
        "/",
        "-",
        "::",
    ];
    let mut state = 1u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let frames = frames();
    let mut understood = 0;
    for _ in 0..20_000 {
        let len = 1 + draw(8);
        let glue = if draw(4) == 0 { "" } else { " " };
        let text = (0..len).map(|_| words[draw(words.len())]).collect::<Vec<_>>().join(glue);
        match Filter::compile(&text) {
            Ok(filter) => {
                understood += 1;
                filter.keeps(&frames[draw(frames.len())]);
            }
            Err(why) => assert!(why.to_string().contains("filter"), "{text}: {why}"),
        }
    }
    assert!(understood > 500, "{understood} of them");
}

#[test]
fn a_frame_cut_short_anywhere_is_decided_in_bounds() {
    for expression in EXPRESSIONS {
        let filter = Filter::compile(expression).expect("compiles");
        for frame in frames() {
            for len in 0..frame.len() {
                filter.keeps(&frame[..len]);
            }
        }
    }
}
