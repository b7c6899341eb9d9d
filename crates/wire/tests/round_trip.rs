//! What is emitted is parsed as it was, for every header; and no bytes whatever make a parser
//! panic.

use std::net::{Ipv4Addr, Ipv6Addr};

use outboard_wire::checksum::{self, Sum};
use outboard_wire::ethernet::{EtherType, EthernetHeader, MacAddr, VlanTag};
use outboard_wire::icmp::{Echo, IcmpMessage};
use outboard_wire::icmpv6::Icmpv6Message;
use outboard_wire::ipv4::{Ipv4Header, Protocol};
use outboard_wire::ipv6::{Fragment, Ipv6Header};
use outboard_wire::ndp::{NdpMessage, PrefixInformation, RouterAdvertisement};
use outboard_wire::tcp::{
    FastOpenCookie, SackBlock, SackBlocks, SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps,
    UserTimeout,
};
use outboard_wire::udp::UdpHeader;
use outboard_wire::vnet::{self, VnetHeader};
use outboard_wire::{
    Malformed, arp, ethernet, icmp, icmpv6, igmp, ipv4, ipv6, mld, ndp, tcp, text, udp,
};
use proptest::prelude::*;

fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

fn ipv4_header() -> impl Strategy<Value = Ipv4Header> {
    let fields = (any::<u8>(), any::<u16>(), any::<bool>(), any::<bool>(), 0u16..8192);
    (fields, any::<u8>(), any::<u8>(), any::<u32>(), any::<u32>()).prop_map(
        |(
            (tos, identification, dont_fragment, more_fragments, offset),
            ttl,
            protocol,
            src,
            dst,
        )| {
            Ipv4Header {
                tos,
                identification,
                dont_fragment,
                more_fragments,
                fragment_offset: offset * 8,
                ttl,
                protocol: Protocol(protocol),
                src: Ipv4Addr::from(src),
                dst: Ipv4Addr::from(dst),
            }
        },
    )
}

fn tcp_header() -> impl Strategy<Value = TcpHeader> {
    let ports = (any::<u16>(), any::<u16>(), any::<u32>(), any::<u32>());
    (ports, any::<u8>(), any::<u16>(), any::<u16>(), any::<u16>()).prop_map(
        |((src_port, dst_port, seq, ack), flags, window, checksum, urgent)| TcpHeader {
            src_port,
            dst_port,
            seq: SeqNumber(seq),
            ack: SeqNumber(ack),
            flags: TcpFlags(flags),
            window,
            checksum,
            urgent,
        },
    )
}

fn timestamps() -> impl Strategy<Value = Option<Timestamps>> {
    prop::option::of(
        (any::<u32>(), any::<u32>()).prop_map(|(value, echo)| Timestamps { value, echo }),
    )
}

fn sack(count: std::ops::Range<usize>) -> impl Strategy<Value = SackBlocks> {
    let block = (any::<u32>(), any::<u32>())
        .prop_map(|(left, right)| SackBlock { left: SeqNumber(left), right: SeqNumber(right) });
    prop::collection::vec(block, count).prop_map(|blocks| blocks.into_iter().collect())
}

/// Options that belong on a SYN.
fn syn_options() -> impl Strategy<Value = TcpOptions> {
    let agreed = (prop::option::of(0u8..=14), any::<bool>(), timestamps());
    (prop::option::of(1u16..), agreed, prop::option::of(cookie()), user_timeout()).prop_map(
        |(mss, (window_scale, sack_permitted, timestamps), fast_open, user_timeout)| {
            let options = TcpOptions {
                mss,
                window_scale,
                sack_permitted,
                timestamps,
                fast_open,
                signature: None,
                sack: SackBlocks::NONE,
                user_timeout,
            };
            told(options)
        },
    )
}

/// The options without a timeout that finds no room.
fn told(options: TcpOptions) -> TcpOptions {
    let user_timeout = options.user_timeout.filter(|_| options.tells_user_timeout());
    TcpOptions { user_timeout, ..options }
}

fn user_timeout() -> impl Strategy<Value = Option<UserTimeout>> {
    any::<u32>().prop_map(|seconds| UserTimeout::from_seconds((seconds >> (seconds % 32)).into()))
}

/// A Fast Open cookie, or the request for one.
fn cookie() -> impl Strategy<Value = FastOpenCookie> {
    let len = prop_oneof![Just(0u8), (2u8..=8).prop_map(|half| 2 * half)];
    (len, any::<[u8; 16]>(), any::<bool>()).prop_map(|(len, mut bytes, experimental)| {
        bytes[usize::from(len)..].fill(0);
        FastOpenCookie { bytes, len, experimental }
    })
}

/// Options of an established connection.
fn later_options() -> impl Strategy<Value = TcpOptions> {
    (timestamps(), sack(0..5), user_timeout()).prop_map(|(timestamps, sack, user_timeout)| {
        told(TcpOptions { timestamps, sack, user_timeout, ..TcpOptions::NONE })
    })
}

proptest! {
    #[test]
    fn ethernet_headers(
        dst in mac(), src in mac(), ethertype: u16,
        vlan in prop::option::of((any::<bool>(), any::<u16>())), rest: Vec<u8>,
    ) {
        let vlan = vlan.map(|(service, control)| VlanTag {
            kind: if service { EtherType::SERVICE_VLAN } else { EtherType::VLAN },
            control,
        });
        let header = EthernetHeader { dst, src, vlan, ethertype: EtherType(ethertype) };
        prop_assume!(vlan.is_some() || ethertype != 0x8100 && ethertype != 0x88a8);
        let mut frame = vec![0; header.header_len()];
        prop_assert_eq!(header.emit(&mut frame), Ok(header.header_len()));
        frame.extend_from_slice(&rest);
        prop_assert_eq!(ethernet::parse(&frame), Ok((header, &rest[..])));
    }

    #[test]
    fn ipv4_headers(
        header in ipv4_header(), options in prop::collection::vec(any::<[u8; 4]>(), 0..=10),
        payload: Vec<u8>, padding in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let options = options.concat();
        let mut bytes = vec![0; 20 + options.len()];
        let len = header.emit_with_options(&options, payload.len(), &mut bytes);
        prop_assert_eq!(len, Ok(bytes.len()));
        bytes.extend_from_slice(&payload);
        bytes.extend_from_slice(&padding);
        let packet = ipv4::parse(&bytes).expect("well formed");
        prop_assert_eq!(packet.header, header);
        prop_assert_eq!(packet.options, &options[..]);
        prop_assert_eq!(packet.payload, &payload[..]);
        prop_assert_eq!(ipv4::parse_quoted(&bytes), Ok(packet));
    }

    #[test]
    fn one_wrong_bit_in_an_ipv4_header_is_noticed(header in ipv4_header(), bit in 0usize..160) {
        let mut bytes = vec![0; 20];
        header.emit(0, &mut bytes).expect("room");
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(ipv4::parse(&bytes).is_err());
    }

    #[test]
    fn ipv6_headers(
        traffic_class: u8, flow_label in 0u32..1 << 20, next_header: u8, hop_limit: u8,
        src: u128, dst: u128, payload: Vec<u8>, padding: u8,
    ) {
        let header = Ipv6Header {
            traffic_class, flow_label, next_header: Protocol(next_header), hop_limit,
            src: Ipv6Addr::from(src), dst: Ipv6Addr::from(dst),
        };
        let mut bytes = vec![0; 40];
        prop_assert_eq!(header.emit(payload.len(), &mut bytes), Ok(40));
        bytes.extend_from_slice(&payload);
        bytes.push(padding);
        prop_assert_eq!(ipv6::parse(&bytes), Ok((header, &payload[..])));
    }

    #[test]
    fn udp_headers(src_port: u16, dst_port: u16, checksum: u16, payload: Vec<u8>, padding: u8) {
        let len = 8 + payload.len() as u16;
        let header = UdpHeader { src_port, dst_port, len, checksum };
        let mut bytes = vec![0; 8];
        prop_assert_eq!(header.emit(&mut bytes), Ok(8));
        bytes.extend_from_slice(&payload);
        bytes.push(padding);
        prop_assert_eq!(udp::parse(&bytes), Ok((header, &payload[..])));
        prop_assert_eq!(udp::parse(&bytes[..7 + payload.len()]).ok(), None);
    }

    #[test]
    fn icmp_messages(kind in 0u8..5, code: u8, first: u16, second: u16, data: Vec<u8>, wrong: u16) {
        let echo = Echo { identifier: first, sequence: second, data: &data };
        let message = match kind {
            0 => IcmpMessage::EchoRequest(echo),
            1 => IcmpMessage::EchoReply(echo),
            2 => IcmpMessage::Unreachable { code, next_hop_mtu: second, quoted: &data },
            3 => IcmpMessage::TimeExceeded { code, quoted: &data },
            _ => IcmpMessage::ParameterProblem { code, pointer: first as u8, quoted: &data },
        };
        let mut bytes = vec![0; 8 + data.len()];
        prop_assert_eq!(message.emit(&mut bytes), Ok(bytes.len()));
        prop_assert_eq!(icmp::parse(&bytes), Ok(message));
        let at = usize::from(wrong) % bytes.len();
        bytes[at] ^= 0x10;
        prop_assert_eq!(icmp::parse(&bytes), Err(Malformed::Checksum));
    }

    #[test]
    fn tcp_syns(header in tcp_header(), options in syn_options(), payload: Vec<u8>) {
        let header = TcpHeader { flags: header.flags | TcpFlags::SYN, ..header };
        let mut bytes = vec![0; 60];
        let len = header.emit(&options, &mut bytes).expect("room");
        prop_assert_eq!(len, 20 + options.emitted_len());
        prop_assert_eq!(len % 4, 0);
        bytes.truncate(len);
        bytes.extend_from_slice(&payload);
        let segment = tcp::parse(&bytes).expect("well formed");
        prop_assert_eq!(segment.header, header);
        prop_assert_eq!(segment.options, options);
        prop_assert_eq!(segment.payload, &payload[..]);
    }

    #[test]
    fn tcp_segments_keep_as_many_blocks_as_fit(
        header in tcp_header(), options in later_options(), payload: Vec<u8>,
    ) {
        let header = TcpHeader { flags: header.flags.without(TcpFlags::SYN), ..header };
        let mut bytes = vec![0; 60];
        let len = header.emit(&options, &mut bytes).expect("room");
        prop_assert_eq!(len, 20 + options.emitted_len());
        bytes.truncate(len);
        bytes.extend_from_slice(&payload);
        let segment = tcp::parse(&bytes).expect("well formed");
        let fitting = if options.timestamps.is_some() { 3 } else { 4 };
        let sack = options.sack.iter().copied().take(fitting).collect();
        prop_assert_eq!(segment.header, header);
        prop_assert_eq!(segment.options, TcpOptions { sack, ..options });
        prop_assert_eq!(segment.payload, &payload[..]);
    }

    #[test]
    fn vnet_headers(flags: u8, gso_type: u8, fields: [u16; 4], buffer_count: u16, rest: Vec<u8>) {
        let [header_len, gso_size, checksum_start, checksum_offset] = fields;
        let header = VnetHeader {
            flags, gso_type, header_len, gso_size, checksum_start, checksum_offset, buffer_count,
        };
        let mut bytes = vec![0; vnet::LEN_MERGEABLE];
        prop_assert_eq!(header.emit_mergeable(&mut bytes), Ok(12));
        bytes.extend_from_slice(&rest);
        prop_assert_eq!(vnet::parse_mergeable(&bytes), Ok((header, &rest[..])));
        prop_assert_eq!(vnet::parse(&bytes), Ok((VnetHeader { buffer_count: 0, ..header }, &bytes[10..])));
    }

    #[test]
    fn icmpv6_survives(src: u128, dst: u128, which in 0u8..7, number: u32, tail: Vec<u8>) {
        let (src, dst) = (Ipv6Addr::from(src), Ipv6Addr::from(dst));
        let (identifier, sequence, code) = ((number >> 16) as u16, number as u16, number as u8);
        let echo = Echo { identifier, sequence, data: &tail };
        let message = match which {
            0 => Icmpv6Message::Unreachable { code, quoted: &tail },
            1 => Icmpv6Message::PacketTooBig { mtu: number, quoted: &tail },
            2 => Icmpv6Message::TimeExceeded { code, quoted: &tail },
            3 => Icmpv6Message::ParameterProblem { code, pointer: number, quoted: &tail },
            4 => Icmpv6Message::EchoRequest(echo),
            5 => Icmpv6Message::EchoReply(echo),
            _ => Icmpv6Message::Other { kind: 200, code, body: &tail },
        };
        let mut bytes = vec![0; 8 + tail.len()];
        let len = message.emit(src, dst, &mut bytes).expect("room");
        prop_assert_eq!(icmpv6::parse(src, dst, &bytes[..len]), Ok(message));
        bytes[0] ^= 1;
        prop_assert_eq!(icmpv6::parse(src, dst, &bytes[..len]), Err(Malformed::Checksum));
    }

    #[test]
    fn neighbour_discovery_survives(
        target: u128, link in prop::option::of(mac()), flags: u8, which in 0u8..4,
        numbers in any::<(u8, u16, u32, u32)>(), mtu in prop::option::of(any::<u32>()),
        prefixes in prop::collection::vec(
            (any::<u8>(), any::<bool>(), any::<bool>(), any::<u32>(), any::<u32>(), any::<u128>()),
            0..=ndp::PREFIXES_MAX),
    ) {
        let (src, dst, target) = (Ipv6Addr::LOCALHOST, ipv6::ALL_NODES, Ipv6Addr::from(target));
        let prefixes = prefixes.into_iter().map(|(prefix_len, on_link, autonomous, valid_s, preferred_s, prefix)| {
            let prefix = Ipv6Addr::from(prefix);
            PrefixInformation { prefix_len, on_link, autonomous, valid_s, preferred_s, prefix }
        });
        let (hop_limit, lifetime_s, reachable_ms, retransmit_ms) = numbers;
        let message = match which {
            0 => NdpMessage::RouterSolicitation { source: link },
            1 => NdpMessage::NeighborSolicitation { target, source: link },
            2 => NdpMessage::NeighborAdvertisement {
                router: flags & 1 != 0, solicited: flags & 2 != 0, overrides: flags & 4 != 0,
                target, link_address: link,
            },
            _ => NdpMessage::RouterAdvertisement(RouterAdvertisement {
                hop_limit, flags, lifetime_s, reachable_ms, retransmit_ms, source: link, mtu,
                prefixes: prefixes.collect(),
            }),
        };
        let mut bytes = [0; 512];
        let len = message.emit(src, dst, &mut bytes).expect("room");
        let Ok(Icmpv6Message::Other { kind, body, .. }) = icmpv6::parse(src, dst, &bytes[..len])
        else {
            return Err(TestCaseError::fail("not read"));
        };
        prop_assert_eq!(ndp::parse(kind, body), Ok(message));
        for room in 0..len {
            prop_assert!(message.emit(src, dst, &mut bytes[..room]).is_err());
        }
    }

    #[test]
    fn fragment_headers_survive(
        next_header: u8, offset in 0u16..8192, more: bool, identification: u32,
    ) {
        let next_header = Protocol(next_header);
        let fragment = Fragment { next_header, offset: offset * 8, more, identification };
        let mut bytes = [0; 8];
        prop_assert_eq!(fragment.emit(&mut bytes), Ok(8));
        let chain = ipv6::walk(Protocol::FRAGMENT, &bytes, 0);
        if !fragment.is_whole() {
            prop_assert_eq!(chain.map(|chain| chain.fragment), Ok(Some(fragment)));
        }
    }

    #[test]
    fn sums_may_be_cut_anywhere(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        cuts in prop::collection::vec(0usize..400, 0..5),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort();
        let pieces = cuts.windows(2).map(|ends| Sum::of(&bytes[ends[0]..ends[1]]));
        prop_assert_eq!(pieces.fold(Sum::ZERO, Sum::then), Sum::of(&bytes));
    }

    #[test]
    fn an_updated_checksum_is_as_good_as_a_new_one(
        mut words in prop::collection::vec(any::<u16>(), 1..20), at: prop::sample::Index, new: u16,
    ) {
        let bytes = |words: &[u16]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        let before = Sum::of(&bytes(&words)).finish();
        let at = at.index(words.len());
        let old = std::mem::replace(&mut words[at], new);
        let after = Sum::of(&bytes(&words)).then(Sum::from_partial(checksum::update(before, old, new)));
        // All words zero is the one case where the two zeros of ones-complement show.
        prop_assert!(after.is_valid() || words.iter().all(|&word| word == 0));
    }

    #[test]
    fn a_partial_checksum_is_completed(
        src: u32, dst: u32, payload: Vec<u8>, lead in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
        let len = 8 + payload.len() as u16;
        let pseudo = Sum::pseudo_v4(src, dst, Protocol::UDP, u32::from(len));
        let header = UdpHeader { src_port: 1, dst_port: 2, len, checksum: pseudo.folded() };
        let mut frame = lead.clone();
        frame.extend_from_slice(&[0; 8]);
        header.emit(&mut frame[lead.len()..]).expect("room");
        frame.extend_from_slice(&payload);
        prop_assert_eq!(checksum::complete(&mut frame, lead.len(), udp::CHECKSUM_OFFSET), Ok(()));
        prop_assert!(pseudo.then(Sum::of(&frame[lead.len()..])).is_valid());
    }

    #[test]
    fn sequence_numbers_are_ordered_round_the_circle(a: u32, ahead in 1u32..1 << 31) {
        let (a, b) = (SeqNumber(a), SeqNumber(a) + ahead);
        prop_assert!(a.lt(b) && a.le(b) && b.gt(a) && b.ge(a) && !b.lt(a) && !a.ge(b));
        prop_assert_eq!(b.since(a), ahead);
        prop_assert_eq!(b.offset_from(a), ahead as i32);
        prop_assert_eq!(a.offset_from(b), -(ahead as i32));
        prop_assert_eq!((a.max(b), a.min(b), b - ahead), (b, a, a));
        prop_assert!(b.is_within(a, ahead + 1) && !b.is_within(a, ahead) && !a.is_within(b, ahead));
    }

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (ethernet::parse(&bytes), arp::parse(&bytes), ipv6::parse(&bytes), icmp::parse(&bytes));
        let _ = (ipv4::parse(&bytes), ipv4::parse_quoted(&bytes), udp::parse(&bytes));
        let (src, dst) = (Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST);
        let _ = (icmpv6::parse(src, dst, &bytes), icmpv6::parse_unverified(&bytes));
        let _ = (ipv6::parse_quoted(&bytes), mld::parse_query(&bytes));
        let _ = (mld::parse_report(&bytes).map(Iterator::count), igmp::parse(&bytes));
        for kind in 0..=255 {
            let _ = (ndp::parse(kind, &bytes), ipv6::walk(Protocol(kind), &bytes, 0));
        }
        let _ = (vnet::parse(&bytes), vnet::parse_mergeable(&bytes), tcp::parse_quoted(&bytes));
        let _ = tcp::parse(&bytes).map(|segment| segment.seq_len());
        let _ = text::Line::of(&bytes).to_string();
    }

    #[test]
    fn no_options_make_the_reader_panic_and_what_it_reads_can_be_emitted(
        bytes in prop::collection::vec(prop_oneof![0u8..12, any::<u8>()], 0..=40), syn: bool,
    ) {
        let options = TcpOptions::parse(&bytes, syn);
        let mut out = [0; 40];
        let len = options.emit(&mut out).expect("40 bytes are enough for all options");
        let again = TcpOptions::parse(&out[..len], syn);
        // Blocks and timeouts read without room for them, aligned, are the only loss.
        prop_assert_eq!(TcpOptions { sack: options.sack, ..again }, told(options));
    }

    #[test]
    fn emitting_into_too_little_room_is_refused(header in tcp_header(), options in syn_options(), room in 0usize..60) {
        let needed = 20 + options.emitted_len();
        let result = header.emit(&options, &mut vec![0; room]);
        prop_assert_eq!(result.is_ok(), room >= needed);
    }
}
