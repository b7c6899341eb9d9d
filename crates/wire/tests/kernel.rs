//! Options and headers as Linux sends and reads them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use outboard_wire::checksum::Sum;
use outboard_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use outboard_wire::icmp::{IcmpMessage, unreachable};
use outboard_wire::ipv4::{Ipv4Header, Protocol};
use outboard_wire::tcp::{
    SackBlock, SackBlocks, SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps, UserTimeout,
};
use outboard_wire::text::Line;
use outboard_wire::{Malformed, arp, ipv4, tcp};

const SYN_OPTIONS: TcpOptions = TcpOptions {
    mss: Some(1460),
    window_scale: Some(7),
    sack_permitted: true,
    timestamps: Some(Timestamps { value: 0x01020304, echo: 0 }),
    fast_open: None,
    signature: None,
    sack: SackBlocks::NONE,
    user_timeout: None,
};

fn emitted(options: &TcpOptions) -> Vec<u8> {
    let mut out = vec![0; 40];
    let len = options.emit(&mut out).expect("room");
    out.truncate(len);
    out
}

#[test]
fn a_syn_has_its_options_in_linux_order() {
    let bytes = [2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];
    assert_eq!(emitted(&SYN_OPTIONS), bytes);
    assert_eq!(TcpOptions::parse(&bytes, true), SYN_OPTIONS);
    let without = TcpOptions { timestamps: None, ..SYN_OPTIONS };
    assert_eq!(emitted(&without), [2, 4, 5, 0xb4, 1, 1, 4, 2, 1, 3, 3, 7]);
}

#[test]
fn an_acknowledgement_with_blocks_is_aligned() {
    let block = SackBlock { left: SeqNumber(1), right: SeqNumber(2) };
    let options = TcpOptions {
        timestamps: Some(Timestamps { value: 3, echo: 4 }),
        sack: [block].into_iter().collect(),
        ..TcpOptions::NONE
    };
    let bytes = [1, 1, 8, 10, 0, 0, 0, 3, 0, 0, 0, 4, 1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    assert_eq!(emitted(&options), bytes);
    assert_eq!(TcpOptions::parse(&bytes, false), options);
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
//= type=test
//# A Window Scale option in a segment without a SYN bit MUST be ignored.
#[test]
fn options_of_a_syn_are_ignored_elsewhere() {
    let options = TcpOptions::parse(&emitted(&SYN_OPTIONS), false);
    assert_eq!(options, TcpOptions { timestamps: SYN_OPTIONS.timestamps, ..TcpOptions::NONE });
}

#[test]
fn unknown_kinds_and_fast_open_cookies_are_skipped() {
    let bytes = [34, 6, 1, 2, 3, 4, 254, 4, 0xf9, 0x89, 30, 3, 0, 2, 4, 5, 0xb4];
    assert_eq!(TcpOptions::parse(&bytes, true).mss, Some(1460));
}

//= https://www.rfc-editor.org/rfc/rfc7413#section-4.1.1
//= type=test
//# The number MUST be even.
//= https://www.rfc-editor.org/rfc/rfc7413#section-4.1.1
//= type=test
//# Options with invalid Length values or without the SYN flag set MUST be ignored.
#[test]
fn a_cookie_is_of_even_length_and_on_a_syn() {
    let with = |len: usize, syn| {
        let bytes = [&[34, 2 + len as u8][..], &[7; 20][..len], &[1, 1]].concat();
        TcpOptions::parse(&bytes, syn).fast_open.map(|cookie| cookie.len)
    };
    for len in [1, 2, 3, 5, 7, 9, 15, 17, 18] {
        assert_eq!(with(len, true), None, "{len}");
    }
    for len in [0, 4, 8, 16] {
        assert_eq!((with(len, true), with(len, false)), (Some(len as u8), None));
    }
}

#[test]
fn an_impossible_length_ends_the_options_and_keeps_what_came_before() {
    for broken in [&[8, 0][..], &[8, 1], &[8, 10, 1, 2], &[8], &[99, 255]] {
        let bytes = [&[2, 4, 5, 0xb4][..], broken].concat();
        let options = TcpOptions::parse(&bytes, true);
        assert_eq!(options, TcpOptions { mss: Some(1460), ..TcpOptions::NONE }, "{broken:?}");
    }
}

#[test]
fn a_known_kind_of_the_wrong_length_is_skipped() {
    let bytes = [2, 3, 5, 3, 4, 7, 7, 8, 4, 0, 0, 5, 9, 0, 0, 0, 0, 0, 0, 0, 3, 3, 2];
    let options = TcpOptions::parse(&bytes, true);
    assert_eq!(options, TcpOptions { window_scale: Some(2), ..TcpOptions::NONE });
}

#[test]
fn a_signature_is_noted_if_it_has_sixteen_bytes() {
    for (len, is_signed) in [(18, true), (17, false), (2, false)] {
        let mut bytes = vec![19, len];
        bytes.resize(usize::from(len), 7);
        for syn in [false, true] {
            assert_eq!(
                TcpOptions::parse(&bytes, syn).signature.is_some(),
                is_signed,
                "{len} bytes"
            );
        }
    }
}

#[test]
fn a_signature_is_that_of_another_implementation_and_needs_no_options_nor_sum() {
    let header = TcpHeader {
        src_port: 4000,
        dst_port: 179,
        seq: SeqNumber(1000),
        ack: SeqNumber(2000),
        flags: TcpFlags::PSH.with(TcpFlags::ACK),
        window: 512,
        checksum: 0xabcd,
        urgent: 0,
    };
    let options = TcpOptions { signature: Some([0; 16]), ..TcpOptions::NONE };
    let mut bytes = [0; 40];
    assert_eq!(header.emit(&options, &mut bytes), Ok(40));
    // Of Python's hashlib over the parts that RFC 2385 names.
    for (src, dst, sum) in [
        ("10.0.0.1", "10.0.0.2", 0xd163_4085_ed14_d913_f67e_6f3e_b1c6_67a5_u128),
        ("2001:db8::1", "2001:db8::2", 0x8d85_ffb5_287d_ef81_901d_0838_fc14_d6a8),
    ] {
        let ends: [IpAddr; 2] = [src, dst].map(|end| end.parse().expect("an address"));
        tcp::sign(ends[0], ends[1], &mut bytes, b"hello", b"secret");
        let told = tcp::parse(&bytes).expect("a segment").options.signature;
        assert_eq!(told, Some(sum.to_be_bytes()), "{src}");
        assert_eq!(bytes[tcp::SIGNATURE_AT], sum.to_be_bytes());
    }
}

#[test]
fn nothing_behind_the_end_of_options_is_read() {
    assert_eq!(TcpOptions::parse(&[1, 0, 2, 4, 5, 0xb4], true), TcpOptions::NONE);
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# Thus, the shift count MUST be limited to 14 (which allows windows of 2^30 = 1 GiB).
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# If a Window Scale option is received with a shift.cnt value larger than 14, the TCP SHOULD log
//# the error but MUST use 14 instead of the specified value.
#[test]
fn a_shift_above_14_counts_as_14_and_an_mss_of_0_as_none() {
    let options = TcpOptions::parse(&[3, 3, 200, 2, 4, 0, 0], true);
    assert_eq!(options, TcpOptions { window_scale: Some(14), ..TcpOptions::NONE });
}

#[test]
fn a_data_offset_outside_the_segment_is_malformed() {
    let mut bytes = [0; 24];
    for (words, expected) in
        [(4, Some(Malformed::Length)), (5, None), (6, None), (7, Some(Malformed::Length))]
    {
        bytes[12] = words << 4;
        assert_eq!(tcp::parse(&bytes).err(), expected, "{words}");
    }
}

#[test]
fn a_header_that_linux_sent_verifies() {
    // ip -4, DF, TTL 64, 10.0.0.1 > 10.0.0.2, as captured from a ping.
    let header = [
        0x45, 0x00, 0x00, 0x14, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x01, 0x0a, 0xa1, 10, 0, 0, 1, 10, 0,
        0, 2,
    ];
    let packet = ipv4::parse(&header).expect("whole");
    assert_eq!(packet.header.src, Ipv4Addr::new(10, 0, 0, 1));
    assert!(packet.header.dont_fragment && !packet.header.is_fragment());
    let mut again = [0; 20];
    packet.header.emit(0, &mut again).expect("room");
    assert_eq!(again, header);
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.1
//= type=test
//# A datagram whose version number is not 4 MUST be silently discarded.
#[test]
fn every_way_to_be_a_bad_ipv4_header_has_its_reason() {
    let header = Ipv4Header { protocol: Protocol::TCP, ..Ipv4Header::default() };
    let mut good = [0; 24];
    header.emit(4, &mut good).expect("room");
    let parse_with = |change: fn(&mut [u8; 24])| {
        let mut bytes = good;
        change(&mut bytes);
        // A right checksum, so that the other field is what is noticed.
        bytes[10..12].fill(0);
        let checksum = Sum::of(&bytes[..20]).finish().to_be_bytes();
        bytes[10..12].copy_from_slice(&checksum);
        ipv4::parse(&bytes).err()
    };
    assert_eq!(parse_with(|_| ()), None);
    assert_eq!(parse_with(|bytes| bytes[0] = 0x65), Some(Malformed::Version));
    assert_eq!(parse_with(|bytes| bytes[0] = 0x44), Some(Malformed::Length));
    assert_eq!(parse_with(|bytes| bytes[0] = 0x4f), Some(Malformed::Short));
    assert_eq!(parse_with(|bytes| bytes[3] = 19), Some(Malformed::Length));
    assert_eq!(parse_with(|bytes| bytes[3] = 25), Some(Malformed::Length));
    assert_eq!(ipv4::parse(&good[..19]), Err(Malformed::Short));
    assert_eq!(header.emit(65516, &mut [0; 20]), Err(outboard_wire::NoRoom));
}

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn frame(ethertype: EtherType, parts: &[&[u8]]) -> Vec<u8> {
    let header = EthernetHeader {
        dst: MacAddr([2, 0, 0, 0, 0, 2]),
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        vlan: None,
        ethertype,
    };
    let mut bytes = vec![0; 14];
    header.emit(&mut bytes).expect("room");
    bytes.extend(parts.concat());
    bytes
}

fn ip(header: Ipv4Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    header.emit(payload.len(), &mut bytes).expect("room");
    bytes.extend_from_slice(payload);
    bytes
}

fn line_of_ip(header: Ipv4Header, payload: &[u8]) -> String {
    Line::of(&frame(EtherType::IPV4, &[&ip(header, payload)])).to_string()
}

fn segment(header: TcpHeader, options: &TcpOptions, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    let len = header.emit(options, &mut bytes).expect("room");
    bytes.truncate(len);
    bytes.extend_from_slice(payload);
    bytes
}

const PACKET: Ipv4Header = Ipv4Header {
    tos: 0,
    identification: 77,
    dont_fragment: true,
    more_fragments: false,
    fragment_offset: 0,
    ttl: 64,
    protocol: Protocol::TCP,
    src: A,
    dst: B,
};

const SEGMENT: TcpHeader = TcpHeader {
    src_port: 40000,
    dst_port: 80,
    seq: SeqNumber(1000),
    ack: SeqNumber(501),
    flags: TcpFlags::ACK,
    window: 512,
    checksum: 0,
    urgent: 0,
};

#[test]
fn a_frame_reads_as_one_line() {
    let syn = TcpHeader { flags: TcpFlags::SYN, ..SEGMENT };
    assert_eq!(
        line_of_ip(PACKET, &segment(syn, &SYN_OPTIONS, b"")),
        "10.0.0.1:40000>10.0.0.2:80 S 1000 win 512 <mss 1460,sackOK,ts 16909060 0,wscale 7>"
    );
    let data = TcpHeader { flags: TcpFlags::ACK | TcpFlags::PSH, ..SEGMENT };
    assert_eq!(
        line_of_ip(PACKET, &segment(data, &TcpOptions::NONE, b"hello")),
        "10.0.0.1:40000>10.0.0.2:80 P. 1000:1005 ack 501 win 512"
    );
    let block = SackBlock { left: SeqNumber(1), right: SeqNumber(2) };
    let sack = TcpOptions { sack: [block, block].into_iter().collect(), ..TcpOptions::NONE };
    assert_eq!(
        line_of_ip(PACKET, &segment(SEGMENT, &sack, b"")),
        "10.0.0.1:40000>10.0.0.2:80 . 1000 ack 501 win 512 <sack 1:2 1:2>"
    );
    let timeout = TcpOptions { user_timeout: UserTimeout::from_seconds(90), ..TcpOptions::NONE };
    assert_eq!(
        line_of_ip(PACKET, &segment(SEGMENT, &timeout, b"")),
        "10.0.0.1:40000>10.0.0.2:80 . 1000 ack 501 win 512 <uto 90>"
    );
    let udp = Ipv4Header { protocol: Protocol::UDP, ..PACKET };
    assert_eq!(
        line_of_ip(udp, &[0x0f, 0xa0, 0, 53, 0, 9, 0, 0, 7]),
        "10.0.0.1:4000>10.0.0.2:53 udp 1"
    );
    let fragment = Ipv4Header { more_fragments: true, fragment_offset: 1480, ..udp };
    assert_eq!(line_of_ip(fragment, &[0; 16]), "10.0.0.1>10.0.0.2 frag 77 1480:16+ proto 17");
    assert_eq!(
        line_of_ip(PACKET, b"short"),
        "10.0.0.1>10.0.0.2 tcp: the bytes end before the header does"
    );
    let other = frame(EtherType(0x88cc), &[b"lldp"]);
    assert_eq!(
        Line::of(&other).to_string(),
        "02:00:00:00:00:01>02:00:00:00:00:02 ethertype 0x88cc (4)"
    );
}

#[test]
fn an_icmp_error_shows_what_it_quotes() {
    let quoted = ip(PACKET, &segment(SEGMENT, &TcpOptions::NONE, &[0; 1000]));
    let message = IcmpMessage::Unreachable {
        code: unreachable::FRAGMENTATION_NEEDED,
        next_hop_mtu: 1400,
        quoted: &quoted[..28],
    };
    let mut bytes = vec![0; 36];
    message.emit(&mut bytes).expect("room");
    let back = Ipv4Header { protocol: Protocol::ICMP, src: B, dst: A, ..PACKET };
    assert_eq!(
        line_of_ip(back, &bytes),
        "10.0.0.2>10.0.0.1 icmp unreachable frag-needed mtu 1400 [10.0.0.1:40000>10.0.0.2:80 seq 1000]"
    );
}

#[test]
fn names_stand_in_for_addresses() {
    let packet = arp::ArpPacket {
        operation: arp::Operation::REQUEST,
        sender_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        sender_ip: A,
        target_mac: MacAddr::ZERO,
        target_ip: B,
    };
    let mut bytes = [0; arp::LEN];
    packet.emit(&mut bytes).expect("room");
    let frame = frame(EtherType::ARP, &[&bytes]);
    assert_eq!(Line::of(&frame).to_string(), "arp who-has 10.0.0.2 tell 10.0.0.1");
    let names = [(IpAddr::V4(A), "a"), (IpAddr::V4(B), "b")];
    assert_eq!(Line::of(&frame).with_names(&names).to_string(), "arp who-has b tell a");
}

#[test]
fn ipv6_frames_read_as_one_line() {
    use outboard_wire::groups::{RecordKind, emit_head, emit_record};
    use outboard_wire::icmpv6::Icmpv6Message;
    use outboard_wire::ipv6::{Fragment, HEADER_LEN, Ipv6Header, solicited_node};
    use outboard_wire::mld;
    use outboard_wire::ndp::NdpMessage;

    let (a, b): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let packet = |next_header, dst, payload: &[u8]| {
        let (traffic_class, flow_label, hop_limit) = (0, 0, 64);
        let header = Ipv6Header { traffic_class, flow_label, next_header, hop_limit, src: a, dst };
        let mut bytes = vec![0; HEADER_LEN];
        header.emit(payload.len(), &mut bytes).expect("room");
        bytes.extend_from_slice(payload);
        bytes
    };
    let line = |next_header, dst, payload: &[u8]| {
        Line::of(&frame(EtherType::IPV6, &[&packet(next_header, dst, payload)])).to_string()
    };
    let plain = segment(SEGMENT, &TcpOptions::NONE, b"");
    assert_eq!(
        line(Protocol::TCP, b, &plain),
        "[fd00::1]:40000>[fd00::2]:80 . 1000 ack 501 win 512"
    );
    let mut bytes = [0; 128];
    let source = Some(MacAddr([2, 0, 0, 0, 0, 1]));
    let group = solicited_node(b);
    let asks = NdpMessage::NeighborSolicitation { target: b, source };
    let len = asks.emit(a, group, &mut bytes).expect("room");
    assert_eq!(
        line(Protocol::ICMPV6, group, &bytes[..len]),
        "[fd00::1]>[ff02::1:ff00:2] icmp6 who-has [fd00::2] from 02:00:00:00:00:01"
    );
    let mut len = emit_head(&mut bytes, mld::REPORT, 1).expect("room");
    len += emit_record(&mut bytes[len..], RecordKind::ToExclude, group.into(), &[]).expect("room");
    let alerted = [&mld::ROUTER_ALERT, &bytes[..len]].concat();
    assert_eq!(
        line(Protocol::HOP_BY_HOP, mld::ALL_MLDV2_ROUTERS, &alerted),
        "[fd00::1]>[ff02::16] icmp6 mld report joins [ff02::1:ff00:2]"
    );
    let quoted = packet(Protocol::TCP, b, &plain);
    let error = Icmpv6Message::PacketTooBig { mtu: 1400, quoted: &quoted };
    let len = error.emit(a, b, &mut bytes).expect("room");
    assert_eq!(
        line(Protocol::ICMPV6, b, &bytes[..len]),
        "[fd00::1]>[fd00::2] icmp6 too-big mtu 1400 [[fd00::1]:40000>[fd00::2]:80 seq 1000]"
    );
    let piece =
        Fragment { next_header: Protocol::UDP, offset: 1448, more: true, identification: 77 };
    piece.emit(&mut bytes).expect("room");
    assert_eq!(
        line(Protocol::FRAGMENT, b, &bytes[..16]),
        "[fd00::1]>[fd00::2] frag 77 1448:8+ proto 17"
    );
}
