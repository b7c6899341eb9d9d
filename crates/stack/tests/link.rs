//! ARP, IPv4, ICMP and UDP between two stacks.

mod net;

use net::{DELAY, Faults, Net, SECOND, Wired, expect_drop, receive};
use outboard_stack::Stack;
use outboard_stack::api::*;
use outboard_stack::drops::DropReason;
use wire::checksum::Sum;
use wire::ethernet::{EtherType, EthernetHeader};
use wire::icmp::{Echo, IcmpMessage};
use wire::ipv4::{Ipv4Header, Protocol};
use wire::{MacAddr, arp, ethernet, icmp, ipv4};

fn v4(address: std::net::IpAddr) -> std::net::Ipv4Addr {
    match address {
        std::net::IpAddr::V4(v4) => v4,
        std::net::IpAddr::V6(_) => unreachable!("the net is IPv4"),
    }
}

fn frame(net: &Net, to: usize, ip: Ipv4Header, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (&net.hosts[1 - to], &net.hosts[to]);
    let mut header = [0; 20];
    ip.emit(payload.len(), &mut header).unwrap();
    net::frame(from.mac, to.mac, EtherType::IPV4, &header, payload)
}

fn header(net: &Net, to: usize, protocol: Protocol) -> Ipv4Header {
    Ipv4Header {
        protocol,
        src: v4(net.hosts[1 - to].ip),
        dst: v4(net.hosts[to].ip),
        ..Ipv4Header::default()
    }
}

fn udp_to(net: &Net, to: usize, port: u16, payload: &[u8]) -> Vec<u8> {
    let ip = header(net, to, Protocol::UDP);
    frame(net, to, ip, &net::udp(ip.src.into(), ip.dst.into(), port, payload))
}

fn broadcast(packet: &arp::ArpPacket) -> [u8; 42] {
    let ethernet = EthernetHeader {
        dst: MacAddr::BROADCAST,
        src: packet.sender_mac,
        vlan: None,
        ethertype: EtherType::ARP,
    };
    let mut frame = [0; 42];
    ethernet.emit(&mut frame).unwrap();
    packet.emit(&mut frame[14..]).unwrap();
    frame
}

fn bind(net: &mut Net, host: usize, port: u16) -> SocketId {
    let local = net.hosts[host].at(port);
    net.hosts[host].stack.udp_bind(local, Owner(7)).unwrap()
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-2.3.3
//= type=test
//# o MUST be able to send and receive packets using RFC-894 encapsulation;
//= https://www.rfc-editor.org/rfc/rfc1122#section-2.3.3
//= type=test
//# Address translation from Internet addresses to link-layer addresses on Ethernet and IEEE 802
//# networks MUST be managed by the Address Resolution Protocol (ARP).
//= https://www.rfc-editor.org/rfc/rfc1122#section-2.4
//= type=test
//# The link layer MUST NOT report a Destination Unreachable error to IP solely because there is no
//# ARP cache entry for a destination.
#[test]
fn a_datagram_waits_for_arp_and_arrives() {
    let mut net = Net::new(1);
    let a = bind(&mut net, 0, 1000);
    bind(&mut net, 1, 2000);
    let to = net.hosts[1].at(2000);
    net.datagram(0, a, Some(to), b"hello").unwrap();
    net.run_for(2 * DELAY);
    let (_, meta, bytes) = &net.hosts[1].store.datagrams[0];
    assert_eq!(
        (bytes.as_slice(), meta.remote, meta.ttl),
        (b"hello".as_slice(), net.hosts[0].at(1000), 64)
    );
}

#[test]
fn addresses_are_announced_at_start() {
    let mut net = Net::new(1);
    net.settle();
    assert_eq!(net.hosts[0].stack.counters().arp_requests, 1);
    net.run_for(2 * DELAY);
    // Nobody asked, so nothing is learnt (RFC 826 with RFC 5227 announcements).
    assert_eq!(net.hosts[1].stack.counters().dropped(DropReason::ArpNotForUs), 1);
}

#[test]
fn a_neighbour_that_does_not_answer_is_unreachable() {
    let mut net = Net::new(1);
    let a = bind(&mut net, 0, 1000);
    let to = "10.0.0.77:9".parse().unwrap();
    let started = net.now;
    assert_eq!(net.datagram(0, a, Some(to), b"x"), Err(RequestError::HostUnreachable));
    assert!(net.now.0 - started.0 >= 3 * SECOND);
    let counters = net.hosts[0].stack.counters();
    assert_eq!(
        (counters.arp_requests, counters.arp_failures),
        (4, 1),
        "three and one announcement"
    );
}

#[test]
fn destinations_off_the_link_go_through_the_gateway() {
    let mut net = Net::new(1);
    let a = bind(&mut net, 0, 1000);
    assert_eq!(
        net.hosts[0].datagram(net.now, a, Some("192.0.2.1:9".parse().unwrap()), b"x"),
        Err(RequestError::WaitNeighbor)
    );
    net.settle();
    let asked = net.transcript.iter().any(|line| line.contains("10.0.0.254"));
    assert!(asked, "{:?}", net.transcript);
}

#[test]
fn a_flood_of_arp_questions_is_bounded_and_counted() {
    let mut net = Net::new(1);
    for i in 0..5000u32 {
        let packet = arp::ArpPacket {
            operation: arp::Operation::REQUEST,
            sender_mac: MacAddr([2, 1, 1, 1, (i >> 8) as u8, i as u8]),
            sender_ip: std::net::Ipv4Addr::from(0x0a00_0003 + i % 200),
            target_mac: MacAddr::ZERO,
            target_ip: v4(net.hosts[0].ip),
        };
        receive(&mut net, 0, &broadcast(&packet), RxFrameMeta::default());
    }
    let counters = net.hosts[0].stack.counters();
    assert!(counters.neighbor_evictions > 100);
    assert!(counters.dropped(DropReason::ReplyLimit) > 4000);
}

#[test]
fn somebody_else_with_our_address_is_noticed() {
    let mut net = Net::new(1);
    let own = v4(net.hosts[0].ip);
    let packet = arp::ArpPacket {
        operation: arp::Operation::REQUEST,
        sender_mac: MacAddr([2, 9, 9, 9, 9, 9]),
        sender_ip: own,
        target_mac: MacAddr::ZERO,
        target_ip: own,
    };
    expect_drop(&mut net, &broadcast(&packet), DropReason::ArpConflict);
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.2
//= type=test
//# The IP layer MUST implement reassembly of IP datagrams.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.2
//= type=test
//# EMTU_R MUST be greater than or equal to 576, SHOULD be either configurable or indefinite, and
//# SHOULD be greater than or equal to the MTU of the connected network(s).
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.3
//= type=test
//# A host MUST implement a mechanism to allow the transport layer to learn MMS_S, the maximum
//# transport-layer message size that may be sent for a given {source, destination, TOS} triplet
//# (see GET_MAXSIZES call in Section 3.4).
#[test]
fn large_datagrams_travel_in_fragments() {
    for len in [1472usize, 1473, 3000, 9001, 65507] {
        let mut net = Net::new(1);
        let a = bind(&mut net, 0, 1000);
        bind(&mut net, 1, 2000);
        let to = net.hosts[1].at(2000);
        let payload: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        net.datagram(0, a, Some(to), &payload).unwrap();
        net.run_for(2 * DELAY);
        assert_eq!(net.hosts[1].store.datagrams.len(), 1, "{len}");
        assert_eq!(net.hosts[1].store.datagrams[0].2, payload);
        assert_eq!(net.hosts[1].stack.counters().reassembled, u64::from(len > 1472));
    }
    let mut net = Net::new(1);
    let a = bind(&mut net, 0, 1000);
    let to = net.hosts[1].at(2000);
    assert_eq!(net.datagram(0, a, Some(to), &[0; 65508]), Err(RequestError::TooLong));
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.2
//= type=test
//# There MUST be a reassembly timeout.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.2
//= type=test
//# The reassembly timeout value SHOULD be a fixed value, not set from the remaining TTL.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.2
//= type=test
//# If this timeout expires, the partially-reassembled datagram MUST be discarded and an ICMP Time
//# Exceeded message sent to the source host (if fragment zero has been received).
#[test]
fn a_datagram_that_lost_a_fragment_is_given_up_in_time_and_its_sender_told() {
    let mut net = Net::new(1);
    let ip =
        Ipv4Header { more_fragments: true, dont_fragment: false, ..header(&net, 0, Protocol::UDP) };
    let piece = frame(&net, 0, ip, &[7; 800]);
    receive(&mut net, 0, &piece, RxFrameMeta::default());
    net.run_for(29 * SECOND);
    assert_eq!(net.hosts[0].stack.counters().dropped(DropReason::FragmentTimeout), 0);
    let was = net.hosts[0].stack.counters().problems;
    net.run_for(2 * SECOND);
    assert_eq!(net.hosts[0].stack.counters().dropped(DropReason::FragmentTimeout), 1);
    assert_eq!(net.hosts[0].stack.counters().problems, was + 1);
    let told = |line: &&String| line.starts_with("10.0.0.1>10.0.0.2 icmp time-exceeded");
    assert_eq!(net.transcript.iter().filter(told).count(), 1, "{:?}", net.transcript);
}

#[test]
fn the_sender_of_a_datagram_in_pieces_is_told_only_where_its_first_one_came_for_us_alone() {
    let mut net = Net::new(1);
    let fragment = |net: &Net, offset, id| Ipv4Header {
        more_fragments: true,
        dont_fragment: false,
        fragment_offset: offset,
        identification: id,
        ..header(net, 0, Protocol::UDP)
    };
    let later = frame(&net, 0, fragment(&net, 800, 1), &[7; 800]);
    let everybody = Ipv4Header { dst: [10, 0, 0, 255].into(), ..fragment(&net, 0, 2) };
    let everybody = frame(&net, 0, everybody, &[7; 800]);
    for piece in [later, everybody] {
        receive(&mut net, 0, &piece, RxFrameMeta::default());
    }
    net.run_for(31 * SECOND);
    assert_eq!(net.hosts[0].stack.counters().dropped(DropReason::FragmentTimeout), 2);
    assert_eq!(net.hosts[0].stack.counters().problems, 0);
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.6
//= type=test
//# Every host MUST implement an ICMP Echo server function that receives Echo Requests and sends
//# corresponding Echo Replies.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.6
//= type=test
//# The IP source address in an ICMP Echo Reply MUST be the same as the specific-destination address
//# (defined in Section 3.2.1.3) of the corresponding ICMP Echo Request message.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.6
//= type=test
//# Data received in an ICMP Echo Request MUST be entirely included in the resulting Echo Reply.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.6
//= type=test
//# However, if sending the Echo Reply requires intentional fragmentation that is not implemented,
//# the datagram MUST be truncated to maximum transmission size (see Section 3.3.3) and sent.
#[test]
fn echo_requests_of_every_size_are_answered() {
    for len in [0usize, 56, 1472, 1473, 8000, 65000] {
        let mut net = Net::new(1);
        let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut message = vec![0; 8 + len];
        let echo = Echo { identifier: 3, sequence: 4, data: &data };
        let request = IcmpMessage::EchoRequest(echo);
        request.emit(&mut message).unwrap();
        // In fragments of 1,480 bytes, as another host would send it.
        for start in (0..message.len()).step_by(1480) {
            let end = message.len().min(start + 1480);
            let ip = Ipv4Header {
                fragment_offset: start as u16,
                more_fragments: end < message.len(),
                dont_fragment: false,
                identification: 5,
                ..header(&net, 0, Protocol::ICMP)
            };
            let piece = frame(&net, 0, ip, &message[start..end]);
            receive(&mut net, 0, &piece, RxFrameMeta::default());
        }
        // Host 1 answers the question for its address; host 0's fragments then go out.
        let mut answer = Vec::new();
        for _ in 0..4 {
            for Wired { bytes, .. } in net.hosts[0].frames(net.now) {
                let (ethernet, rest) = ethernet::parse(&bytes).unwrap();
                if ethernet.ethertype == EtherType::ARP {
                    receive(&mut net, 1, &bytes, RxFrameMeta::default());
                    continue;
                }
                let packet = ipv4::parse(rest).unwrap();
                assert_eq!(usize::from(packet.header.fragment_offset), answer.len());
                answer.extend(packet.payload);
            }
            for Wired { bytes, .. } in net.hosts[1].frames(net.now) {
                receive(&mut net, 0, &bytes, RxFrameMeta::default());
            }
        }
        assert_eq!(icmp::parse(&answer), Ok(IcmpMessage::EchoReply(echo)), "{len}");
        assert_eq!(net.hosts[0].stack.counters().echo_replies, 1);
    }
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2
//= type=test
//# this header and data MUST be unchanged from the received datagram.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.1
//= type=test
//# A host SHOULD generate Destination Unreachable messages with code:
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.8
//= type=test
//# Wherever practical, hosts MUST return ICMP error datagrams on detection of an error, except in
//# those cases where returning an ICMP error message is specifically prohibited.
//= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.3.1
//= type=test
//# If a datagram arrives addressed to a UDP port for which there is no pending LISTEN call, UDP
//# SHOULD send an ICMP Port Unreachable message.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.4
//= type=test
//# The transport layer MUST be able to send certain ICMP messages: Port Unreachable or any of the
//# query-type messages.
#[test]
fn a_closed_port_is_refused_and_a_connected_socket_hears_of_it() {
    let mut net = Net::new(1);
    let a = bind(&mut net, 0, 1000);
    let to = net.hosts[1].at(2000);
    net.hosts[0].stack.udp_connect(a, Some(to)).unwrap();
    net.datagram(0, a, Some(to), b"anybody?").unwrap();
    net.run_for(4 * DELAY);
    assert_eq!(net.hosts[1].stack.counters().unreachables, 1);
    let event = net.hosts[0].events.pop().unwrap();
    assert_eq!((event.id, event.kind), (a, SocketKind::Udp));
    let levels = net.hosts[0].stack.udp_take_levels(a).unwrap();
    assert_eq!(levels.error, Some(UdpError::Refused));
    assert_eq!(net.hosts[0].stack.udp_take_levels(a).unwrap().error, None);
}

#[test]
fn port_unreachables_are_rationed() {
    let mut net = Net::new(1);
    for _ in 0..200 {
        let datagram = udp_to(&net, 0, 9, b"x");
        receive(&mut net, 0, &datagram, RxFrameMeta::default());
    }
    assert_eq!(net.hosts[0].stack.counters().unreachables, 6);
    net.run_for(SECOND);
    let datagram = udp_to(&net, 0, 9, b"x");
    receive(&mut net, 0, &datagram, RxFrameMeta::default());
    assert_eq!(net.hosts[0].stack.counters().unreachables, 7);
}

#[test]
fn the_most_exact_socket_gets_the_datagram() {
    let mut net = Net::new(1);
    let all = net.hosts[0]
        .stack
        .udp_bind("[::]:53".parse::<std::net::SocketAddr>().unwrap(), Owner(1))
        .unwrap();
    let got = |net: &mut Net| {
        let datagram = udp_to(net, 0, 53, b"q");
        receive(net, 0, &datagram, RxFrameMeta::default());
        net.hosts[0].store.datagrams.last().unwrap().0
    };
    assert_eq!(got(&mut net), all);
    let exact = bind(&mut net, 0, 53);
    assert_eq!(got(&mut net), exact);
    let peer = net.hosts[1].at(99);
    net.hosts[0].stack.udp_connect(exact, Some(peer)).unwrap();
    assert_eq!(got(&mut net), exact);
    // A connected socket has left its port to the next one.
    let second = bind(&mut net, 0, 53);
    assert_eq!(got(&mut net), exact);
    net.hosts[0].stack.udp_close(Instant(0), exact).unwrap();
    assert_eq!(got(&mut net), second);
    assert_eq!(net.hosts[0].stack.udp_close(Instant(0), exact), Err(RequestError::Stale));
}

#[test]
fn ports_are_given_once() {
    let mut net = Net::new(1);
    bind(&mut net, 0, 53);
    let again = net.hosts[0].at(53);
    assert_eq!(net.hosts[0].stack.udp_bind(again, Owner(1)), Err(RequestError::AddressInUse));
    let foreign = net.hosts[1].at(53);
    assert_eq!(
        net.hosts[0].stack.udp_bind(foreign, Owner(1)),
        Err(RequestError::AddressNotAvailable)
    );
    let mut ports = std::collections::HashSet::new();
    for _ in 0..15 {
        let id = bind(&mut net, 0, 0);
        let port = net.hosts[0].stack.udp_info(id).unwrap().local.port();
        assert!(port >= 49152 && ports.insert(port));
    }
    let full = net.hosts[0].at(0);
    assert_eq!(net.hosts[0].stack.udp_bind(full, Owner(1)), Err(RequestError::LimitReached));
    assert_eq!(net.hosts[0].stack.counters().requests_limited, 1);
}

#[test]
fn datagrams_to_ourselves_come_back() {
    let mut net = Net::new(1);
    let a = bind(&mut net, 0, 1000);
    bind(&mut net, 0, 2000);
    let to = net.hosts[0].at(2000);
    net.datagram(0, a, Some(to), b"self").unwrap();
    assert_eq!(net.hosts[0].store.datagrams[0].2, b"self");
}

#[test]
fn a_partial_checksum_is_believed_only_when_exact() {
    let mut net = Net::new(1);
    bind(&mut net, 0, 53);
    let mut datagram = udp_to(&net, 0, 53, b"q");
    let ip = header(&net, 0, Protocol::UDP);
    let pseudo = Sum::pseudo_v4(ip.src, ip.dst, Protocol::UDP, 9).folded();
    datagram[40..42].copy_from_slice(&pseudo.to_be_bytes());
    let partial = |start, offset| RxFrameMeta {
        checksum: RxChecksum::Partial { start, offset },
        gso_bytes: None,
    };
    receive(&mut net, 0, &datagram, partial(34, 6));
    assert_eq!(net.hosts[0].store.datagrams.len(), 1);
    receive(&mut net, 0, &datagram, partial(34, 4));
    receive(&mut net, 0, &datagram, partial(30, 6));
    datagram[41] ^= 1;
    receive(&mut net, 0, &datagram, partial(34, 6));
    assert_eq!(net.hosts[0].store.datagrams.len(), 1);
    assert_eq!(net.hosts[0].stack.counters().dropped(DropReason::PartialChecksum), 3);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
//= type=test
//# An incoming SYN with an invalid source address MUST be ignored either by TCP or by the IP layer
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.1
//= type=test
//# However, for diagnosis of problems a host SHOULD provide the capability of logging the error
//# (see Section 1.2.3), including the contents of the silently-discarded datagram, and SHOULD
//# record the event in a statistics counter.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.2
//= type=test
//# A host MUST verify the IP header checksum on every received datagram and silently discard every
//# datagram that has a bad checksum.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.3
//= type=test
//# A host MUST silently discard an incoming datagram that is not destined for the host.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.3
//= type=test
//# A host MUST silently discard an incoming datagram containing an IP source address that is
//# invalid by the rules of this section.
#[test]
fn everything_wrong_with_a_frame_has_its_own_counter() {
    let mut net = Net::new(1);
    bind(&mut net, 0, 53);
    let good = udp_to(&net, 0, 53, b"q");
    let changed = |at: usize, to: u8| {
        let mut frame = good.clone();
        frame[at] = to;
        frame
    };
    expect_drop(&mut net, &good[..9], DropReason::FrameMalformed);
    expect_drop(&mut net, &changed(5, 77), DropReason::NotForUs);
    expect_drop(&mut net, &changed(6, 1), DropReason::FrameMalformed);
    expect_drop(&mut net, &changed(12, 0x99), DropReason::EtherTypeNotServed);
    expect_drop(&mut net, &changed(24, 1), DropReason::IpChecksum);
    expect_drop(&mut net, &good[..30], DropReason::IpMalformed);
    expect_drop(&mut net, &changed(42, b'x'), DropReason::UdpChecksum);
    let mut v6 = good.clone();
    v6[12..14].copy_from_slice(&[0x86, 0xdd]);
    expect_drop(&mut net, &v6, DropReason::Ipv6NotServed);
    let mut tagged = good.clone();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    expect_drop(&mut net, &tagged, DropReason::VlanNotServed);
    for (src, reason) in [
        ([127, 0, 0, 1], DropReason::IpSource),
        ([224, 0, 0, 1], DropReason::IpSource),
        ([10, 0, 0, 255], DropReason::IpSource),
        ([10, 0, 0, 1], DropReason::IpSource),
    ] {
        let ip = Ipv4Header { src: src.into(), ..header(&net, 0, Protocol::UDP) };
        let spoofed = frame(&net, 0, ip, &[0; 8]);
        expect_drop(&mut net, &spoofed, reason);
    }
    let ip = Ipv4Header { dst: [10, 0, 0, 9].into(), ..header(&net, 0, Protocol::UDP) };
    let foreign = frame(&net, 0, ip, &[0; 8]);
    expect_drop(&mut net, &foreign, DropReason::IpDestination);
    let ip = Ipv4Header { dst: [10, 0, 0, 255].into(), ..header(&net, 0, Protocol::TCP) };
    let syn_to_all = frame(&net, 0, ip, &[0; 20]);
    expect_drop(&mut net, &syn_to_all, DropReason::IpDestination);
    let other = frame(&net, 0, header(&net, 0, Protocol(99)), &[0; 8]);
    expect_drop(&mut net, &other, DropReason::ProtocolNotServed);
    receive(&mut net, 0, &good, RxFrameMeta::default());
    assert_eq!(net.hosts[0].store.datagrams.len(), 1);
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2
//= type=test
//# Every ICMP error message includes the Internet header and at least the first 8 data octets of the
//# datagram that triggered the error; more than 8 octets MAY be sent; this header and data MUST be
//# unchanged from the received datagram.
#[test]
fn an_error_quotes_the_packet_as_it_came() {
    let mut net = Net::new(1);
    let a = bind(&mut net, 0, 1000);
    let to = net.hosts[1].at(2000);
    net.datagram(0, a, Some(to), b"where").unwrap();
    net.run_for(4 * DELAY);
    for (protocol, code) in [(Protocol::UDP, 3), (Protocol(253), 2)] {
        for len in [16, 1000] {
            let ip = Ipv4Header {
                identification: 0x1234,
                dont_fragment: false,
                tos: 0x28,
                ttl: 61,
                ..header(&net, 0, protocol)
            };
            let udp = net::udp(ip.src.into(), ip.dst.into(), 9, &vec![7; len]);
            // Three options that say nothing, and the end.
            let mut head = [0; 24];
            ip.emit_with_options(&[1, 1, 1, 0], udp.len(), &mut head).unwrap();
            let (from, host) = (net.hosts[1].mac, net.hosts[0].mac);
            let packet = net::frame(from, host, EtherType::IPV4, &head, &udp);
            receive(&mut net, 0, &packet, RxFrameMeta::default());
            let now = net.now;
            let frames = net.hosts[0].frames(now);
            let [error] = &frames[..] else { panic!("{} frames", frames.len()) };
            // Behind Ethernet and IPv4.
            let (message, quoted) = error.bytes[14 + 20..].split_at(8);
            assert_eq!(message[..2], [3, code]);
            assert_eq!(quoted, &packet[14..][..quoted.len()]);
            assert_eq!(quoted.len(), (packet.len() - 14).min(576 - 28));
            net.run_for(2 * SECOND);
        }
    }
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2
//= type=test
//# An ICMP error message MUST NOT be sent as the result of receiving:
#[test]
fn of_an_error_that_lost_a_fragment_nobody_is_told() {
    // Port unreachable, a type that nobody knows, and an echo request, of which it is told.
    for (kind, problems) in [(3, 0), (44, 0), (8, 1)] {
        let mut net = Net::new(1);
        let ip = Ipv4Header {
            dont_fragment: false,
            more_fragments: true,
            ..header(&net, 0, Protocol::ICMP)
        };
        let first = frame(&net, 0, ip, &[kind; 64]);
        receive(&mut net, 0, &first, RxFrameMeta::default());
        net.run_for(31 * SECOND);
        let counters = net.hosts[0].stack.counters();
        assert_eq!(counters.dropped(DropReason::FragmentTimeout), 1);
        assert_eq!(counters.problems, problems, "type {kind}");
    }
}

#[test]
fn a_priority_tag_is_no_vlan() {
    let mut net = Net::new(1);
    bind(&mut net, 0, 53);
    let mut tagged = udp_to(&net, 0, 53, b"q");
    tagged.splice(12..12, [0x81, 0, 0xe0, 0]);
    receive(&mut net, 0, &tagged, RxFrameMeta::default());
    assert_eq!(net.hosts[0].store.datagrams.len(), 1);
}

#[test]
fn a_full_receiver_is_counted() {
    let mut net = Net::new(1);
    bind(&mut net, 0, 53);
    net.hosts[0].store.refuse = true;
    let datagram = udp_to(&net, 0, 53, b"q");
    expect_drop(&mut net, &datagram, DropReason::UdpNoRoom);
}

#[test]
fn an_icmp_error_about_what_we_never_sent_is_not_believed() {
    let mut net = Net::new(1);
    let quoted_ip = header(&net, 0, Protocol::UDP); // From host 1 to us: not ours.
    let mut quoted = [0; 28];
    quoted_ip.emit(8, &mut quoted).unwrap();
    let mut message = [0; 36];
    let error = IcmpMessage::Unreachable { code: 3, next_hop_mtu: 0, quoted: &quoted };
    error.emit(&mut message).unwrap();
    let lie = frame(&net, 0, header(&net, 0, Protocol::ICMP), &message);
    expect_drop(&mut net, &lie, DropReason::IcmpInvalid);
    message[20] ^= 1;
    let damaged = frame(&net, 0, header(&net, 0, Protocol::ICMP), &message);
    expect_drop(&mut net, &damaged, DropReason::IcmpChecksum);
}

#[test]
fn an_exported_stack_goes_on_as_the_same() {
    let mut net = Net::new(1);
    let a = bind(&mut net, 0, 1000);
    bind(&mut net, 1, 2000);
    let to = net.hosts[1].at(2000);
    net.datagram(0, a, Some(to), b"before").unwrap();
    // In the middle of a reassembly.
    let payload = vec![3; 4000];
    let frames = net.hosts[0].datagram(net.now, a, Some(to), &payload).unwrap();
    receive(&mut net, 1, &frames[0], RxFrameMeta::default());
    for host in &mut net.hosts {
        let bytes = host.stack.export();
        assert_eq!(bytes, Stack::import(&bytes).unwrap().export());
        host.stack = Stack::import(&bytes).unwrap();
    }
    for frame in &frames[1..] {
        receive(&mut net, 1, frame, RxFrameMeta::default());
    }
    net.datagram(0, a, Some(to), b"after").unwrap();
    net.run_for(2 * DELAY);
    let got: Vec<_> = net.hosts[1].store.datagrams.iter().map(|d| d.2.len()).collect();
    assert_eq!(got, [4000, 6, 5]);
}

#[test]
fn a_damaged_export_is_refused() {
    let net = Net::new(1);
    let good = net.hosts[0].stack.export();
    for at in [0, 5, 9, 20, good.len() - 1] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        assert!(Stack::import(&bytes).is_err(), "{at}");
    }
    for len in [0, 3, 7, 15, 16, good.len() - 1] {
        assert!(Stack::import(&good[..len]).is_err(), "{len}");
    }
}

#[test]
fn the_same_seed_gives_the_same_frames() {
    let run = || {
        let mut net = Net::new(7);
        net.faults = Faults { loss: 100, reorder: 200, duplicate: 100, corrupt: 50 };
        let a = bind(&mut net, 0, 0);
        bind(&mut net, 1, 2000);
        let to = net.hosts[1].at(2000);
        for i in 0..50 {
            let _ = net.datagram(0, a, Some(to), &vec![i; usize::from(i) * 100]);
        }
        net.run_for(SECOND);
        net.transcript
    };
    assert_eq!(run(), run());
}

#[test]
fn a_connection_waits_for_its_turn_when_strangers_fill_the_neighbour_table() {
    let mut net = Net::new(1);
    let limits = outboard_stack::Limits { neighbors: 2, ..net::small() };
    net.hosts[0] = net::Host::new(1, 1500, false, limits);
    let at = |host: &net::Host| host.at(80);
    let (own, remote) = (at(&net.hosts[0]), at(&net.hosts[1]));
    net.hosts[0].stack.tcp_listen(own, 16, TcpOptions::default(), Owner(1)).unwrap();
    net.hosts[1].stack.tcp_listen(remote, 16, TcpOptions::default(), Owner(1)).unwrap();
    net.run_for(DELAY);
    let mut from = 0u32;
    let mut flood = |net: &mut Net| {
        for _ in 0..4 {
            from += 1;
            let src = std::net::Ipv4Addr::from(0x0a00_0064 + from % 100);
            let ip = Ipv4Header { src, ..header(net, 0, Protocol::TCP) };
            let mut segment = [0; 20];
            let syn = wire::tcp::TcpHeader {
                src_port: 1000,
                dst_port: 80,
                flags: wire::tcp::TcpFlags::SYN,
                window: 1000,
                ..Default::default()
            };
            syn.emit(&wire::tcp::TcpOptions::NONE, &mut segment).unwrap();
            let meta = RxFrameMeta { checksum: RxChecksum::Valid, gso_bytes: None };
            receive(net, 0, &frame(net, 0, ip, &segment), meta);
        }
        net.settle();
    };
    flood(&mut net);
    let (now, options) = (net.now, TcpOptions::default());
    let id = net.hosts[0]
        .stack
        .tcp_connect(now, TcpConnect { remote, local: None, options, owner: Owner(2) })
        .unwrap();
    let mut seconds = 0;
    let is_open = |net: &Net| {
        net.hosts[0].stack.tcp_levels(id).map(|levels| levels.state) == Ok(TcpState::Established)
    };
    while !is_open(&net) && seconds < 60 {
        flood(&mut net);
        net.run_for(SECOND);
        seconds += 1;
    }
    assert!(is_open(&net), "after {seconds} s: {:?}", net.hosts[0].stack.tcp_levels(id));
    // Never more questions than there are entries to ask for, once a second, and the turns.
    let asked = net.hosts[0].stack.counters().arp_requests;
    assert!(asked <= 3 * 2 * (seconds + 1), "{asked} questions in {seconds} s");
}

/// Answers to made-up addresses of the link pushed out what programs had sent before them.
#[test]
fn a_datagram_waits_for_its_next_hop_beside_answers_to_strangers() {
    let mut net = Net::new(1);
    let own = bind(&mut net, 0, 1000);
    bind(&mut net, 1, 2000);
    let (now, to) = (net.now, net.hosts[1].at(2000));
    net.hosts[0].keep(now, own, to, b"asked before");
    let mut message = [0; 8];
    let request = IcmpMessage::EchoRequest(Echo { identifier: 3, sequence: 4, data: &[] });
    request.emit(&mut message).unwrap();
    for stranger in 0..200u8 {
        let src = std::net::Ipv4Addr::from([10, 0, 0, 50 + stranger]);
        let ip = Ipv4Header { src, ..header(&net, 0, Protocol::ICMP) };
        let asks = frame(&net, 0, ip, &message);
        receive(&mut net, 0, &asks, RxFrameMeta::default());
    }
    net.run_for(4 * DELAY);
    let heard: Vec<&[u8]> = net.hosts[1].store.datagrams.iter().map(|of| &*of.2).collect();
    assert_eq!(heard, [b"asked before"]);
    let dropped = net.hosts[0].stack.counters().dropped(DropReason::NeighborQueueFull);
    assert!(dropped > 0, "they were too few");
}

/// It went to every socket that could have heard it: clusters give several hosts one link address.
#[test]
fn what_goes_to_one_address_in_a_frame_to_many_has_one_receiver() {
    for to in [MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 1])] {
        let mut net = Net::new(1);
        let own = bind(&mut net, 0, 2000);
        let any = "0.0.0.0:2000".parse::<std::net::SocketAddr>().unwrap();
        net.hosts[0].stack.udp_bind(any, Owner(8)).unwrap();
        let mut frame = udp_to(&net, 0, 2000, b"to one");
        frame[..6].copy_from_slice(&to.0);
        receive(&mut net, 0, &frame, RxFrameMeta::default());
        let heard: Vec<SocketId> = net.hosts[0].store.datagrams.iter().map(|of| of.0).collect();
        assert_eq!(heard, [own]);
        // And nobody is told that a port is closed.
        let mut frame = udp_to(&net, 0, 2001, b"to none");
        frame[..6].copy_from_slice(&to.0);
        expect_drop(&mut net, &frame, DropReason::UdpNoSocket);
        assert_eq!(net.hosts[0].stack.counters().unreachables, 0);
    }
}

/// The look at the next interface made it forget that the one before was not looked through.
#[test]
fn a_look_for_frames_that_was_cut_short_is_repeated_at_once() {
    let mut net = Net::new(1);
    let now = net.now;
    let stack = &mut net.hosts[0].stack;
    for port in 0..40 {
        let to = std::net::SocketAddr::new("10.0.0.77".parse().unwrap(), 1000 + port);
        stack
            .tcp_connect(
                now,
                TcpConnect {
                    remote: to,
                    local: None,
                    options: TcpOptions::default(),
                    owner: Owner(9),
                },
            )
            .unwrap();
    }
    net.settle();
    let stack = &mut net.hosts[0].stack;
    let mut now = now;
    while stack.counters().arp_failures == 0 {
        now = Instant(now.0 + SECOND / 1000);
        stack.on_timers(now);
        let mut header = [0; outboard_stack::HEADER_MAX];
        while stack.counters().arp_failures == 0
            && stack.poll_transmit(now, net::INTERFACE, &mut header).is_some()
        {}
    }
    let mut header = [0; outboard_stack::HEADER_MAX];
    assert_eq!(stack.poll_transmit(now, net::INTERFACE, &mut header), None);
    assert_eq!(stack.poll_transmit(now, InterfaceIndex::LOOPBACK, &mut header), None);
    assert_eq!(stack.next_deadline(), Some(now), "eight are left");
    assert_eq!(stack.poll_transmit(now, net::INTERFACE, &mut header), None);
    assert!(stack.next_deadline() > Some(now));
}
