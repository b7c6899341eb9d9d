//! Every parser of `wire` on the same bytes, as a frame and as each header by itself. Nothing may
//! panic, and what was parsed must come out of `emit` so that it parses to the same again.

use std::net::Ipv6Addr;

use wire::checksum::Sum;
use wire::ipv4::Protocol;
use wire::{
    arp, checksum, ethernet, groups, icmp, icmpv6, igmp, ipv4, ipv6, mld, ndp, tcp, text, udp, vnet,
};

/// One input.
pub fn run(data: &[u8]) {
    frame(data);
    if let Ok((_, frame_bytes)) = vnet::parse(data) {
        vnet_header(data);
        frame(frame_bytes);
    }
    arp_packet(data);
    ipv4_packet(data);
    ipv6_packet(data);
    icmp_message(data);
    icmpv6_message(data);
    udp_datagram(data);
    tcp_segment(data);
    completion(data);
}

fn frame(data: &[u8]) {
    // The line is made of every parser, quoted packets included.
    let line = text::Line::of(data).to_string();
    assert!(!line.contains('\n') && !line.is_empty());
    let Ok((header, payload)) = ethernet::parse(data) else { return };
    let mut out = [0; 18];
    let len = header.emit(&mut out).expect("18 bytes hold a header with its tag");
    assert_eq!(data.get(..len), out.get(..len));
    arp_packet(payload);
    ipv4_packet(payload);
    ipv6_packet(payload);
}

fn vnet_header(data: &[u8]) {
    let mut out = [0; vnet::LEN_MERGEABLE];
    if let Ok((header, _)) = vnet::parse(data) {
        header.emit(&mut out).expect("room");
        assert_eq!(data.get(..vnet::LEN), out.get(..vnet::LEN));
    }
    if let Ok((header, _)) = vnet::parse_mergeable(data) {
        header.emit_mergeable(&mut out).expect("room");
        assert_eq!(data.get(..vnet::LEN_MERGEABLE), Some(&out[..]));
    }
}

fn arp_packet(data: &[u8]) {
    let Ok(packet) = arp::parse(data) else { return };
    let mut out = [0; arp::LEN];
    packet.emit(&mut out).expect("room");
    assert_eq!(data.get(..arp::LEN), Some(&out[..]));
}

fn ipv4_packet(data: &[u8]) {
    if let Ok(quoted) = ipv4::parse_quoted(data) {
        let _ = tcp::parse_quoted(quoted.payload);
    }
    let Ok(packet) = ipv4::parse(data) else { return };
    assert_eq!(ipv4::parse_quoted(data), Ok(packet), "a whole packet is a quoted one, too");
    let mut out = [0; 60];
    let (header, options, payload) = (packet.header, packet.options, packet.payload);
    let len = header.emit_with_options(options, payload.len(), &mut out).expect("room");
    let mut again = out.get(..len).unwrap_or_default().to_vec();
    again.extend_from_slice(payload);
    assert_eq!(ipv4::parse(&again), Ok(packet));
    match header.protocol {
        ipv4::Protocol::TCP => tcp_segment(payload),
        ipv4::Protocol::UDP => udp_datagram(payload),
        ipv4::Protocol::ICMP => icmp_message(payload),
        _ => {}
    }
}

fn icmpv6_message(data: &[u8]) {
    let (src, dst) = (Ipv6Addr::LOCALHOST, ipv6::ALL_NODES);
    let mut out = vec![0; data.len() + 512];
    if let Ok(message) = icmpv6::parse_unverified(data) {
        let len = message.emit(src, dst, &mut out).expect("room");
        assert_eq!(icmpv6::parse(src, dst, &out[..len]), Ok(message));
    }
    let Some((&kind, body)) = data.split_first() else { return };
    let _ = mld::parse_query(body).map(|query| query.sources().count());
    let _ = mld::parse_old_report(body);
    let _ = igmp::parse(data);
    for record in mld::parse_report(body).into_iter().flatten() {
        let sources: Vec<_> = record.sources().collect();
        let mut again = vec![0; groups::record_len(record.group, sources.len())];
        let len = groups::emit_record(&mut again, record.kind, record.group, &sources);
        assert_eq!(len, Ok(again.len()));
        // A report of one record reads as that record.
        let one = [&[0, 0, 0, 1][..], &again].concat();
        let mut records = groups::records(&one, true).expect("there is a head");
        assert_eq!(records.next(), Some(record));
    }
    if let Ok(message) = ndp::parse(kind, body) {
        let len = message.emit(src, dst, &mut out).expect("room");
        assert_eq!(ndp::parse(kind, &out[4..len]), Ok(message));
    }
    if let Ok(chain) = ipv6::walk(Protocol(kind), body, 0) {
        assert_eq!(usize::from(chain.headers_len) + chain.payload.len(), body.len());
    }
}

fn ipv6_packet(data: &[u8]) {
    let Ok((header, payload)) = ipv6::parse(data) else { return };
    let mut out = [0; ipv6::HEADER_LEN];
    header.emit(payload.len(), &mut out).expect("room");
    assert_eq!(data.get(..out.len()), Some(&out[..]));
}

fn icmp_message(data: &[u8]) {
    // The fuzzer does not guess checksums: the bytes are tried with a right one as well.
    let mut mended = data.to_vec();
    if let Some(field) = mended.get_mut(2..4) {
        field.fill(0);
        let checksum = Sum::of(&mended).finish().to_be_bytes();
        if let Some(field) = mended.get_mut(2..4) {
            field.copy_from_slice(&checksum);
        }
    }
    for bytes in [data, &mended] {
        let Ok(message) = icmp::parse(bytes) else { continue };
        let mut out = vec![0; bytes.len()];
        let len = message.emit(&mut out).expect("a message is never longer than it came");
        out.truncate(len);
        assert_eq!(icmp::parse(&out), Ok(message));
    }
}

fn udp_datagram(data: &[u8]) {
    let Ok((header, payload)) = udp::parse(data) else { return };
    assert_eq!(usize::from(header.len), udp::HEADER_LEN + payload.len());
    let mut out = [0; udp::HEADER_LEN];
    header.emit(&mut out).expect("room");
    assert_eq!(data.get(..out.len()), Some(&out[..]));
}

fn tcp_segment(data: &[u8]) {
    let Ok(segment) = tcp::parse(data) else { return };
    let mut out = [0; tcp::HEADER_LEN + tcp::OPTIONS_LEN_MAX];
    let len = segment.header.emit(&segment.options, &mut out).expect("room");
    let again = tcp::parse(out.get(..len).unwrap_or_default()).expect("emitted by us");
    assert_eq!(again.header, segment.header);
    // Blocks that came without padding may not all fit with it, nor a timeout beside them.
    let sack = again.options.sack;
    let told = segment.options.user_timeout.filter(|_| segment.options.tells_user_timeout());
    assert_eq!(tcp::TcpOptions { sack, user_timeout: told, ..segment.options }, again.options);
    assert!(segment.options.sack.starts_with(&sack));
}

fn completion(data: &[u8]) {
    let Some((&[start, offset], frame)) = data.split_first_chunk() else { return };
    let mut frame = frame.to_vec();
    let (start, offset) = (usize::from(start), usize::from(offset));
    let before = frame.get(start..).map(Sum::of);
    if checksum::complete(&mut frame, start, offset).is_ok() {
        assert!(before.is_some() && start + offset + 2 <= frame.len());
    }
}
