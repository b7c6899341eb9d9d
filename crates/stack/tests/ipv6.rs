//! IPv6, ICMPv6 and neighbour discovery between two stacks.

mod net;

use std::net::Ipv6Addr;

use net::v6::*;
use net::{DELAY, Faults, Host, INTERFACE, MS, Net, SECOND, Wired, expect_drop, small};
use outboard_stack::Stack;
use outboard_stack::api::*;
use outboard_stack::drops::DropReason;
use outboard_stack::route::AddressState;
use wire::icmp::Echo;
use wire::icmpv6::Icmpv6Message;
use wire::ipv4::Protocol;
use wire::ipv6::{ALL_NODES, Fragment, Ipv6Header, solicited_node};
use wire::ndp::NdpMessage;
use wire::{MacAddr, mld};

/// An IPv4 address as one of IPv6.
const MAPPED: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x0a00, 9);

//= https://www.rfc-editor.org/rfc/rfc4861#section-4.3
//= type=test
//# Otherwise, on link layers that have addresses this option MUST be included in multicast
//# solicitations and SHOULD be included in unicast solicitations.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
//= type=test
//# If the solicitation is being sent to a solicited-node multicast address, the sender MUST include
//# its link-layer address (if it has one) as a Source Link-Layer Address option.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
//= type=test
//# the sender MUST, for each neighbor, retain a small queue of packets waiting for address
//# resolution to complete.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
//= type=test
//# The queue MUST hold at least one packet, and MAY contain more.
//= https://www.rfc-editor.org/rfc/rfc4861#section-4.4
//= type=test
//# It SHOULD be set in other solicited advertisements and in unsolicited advertisements.
//= https://www.rfc-editor.org/rfc/rfc4861#section-4.4
//= type=test
//# This option MUST be included on link layers that have addresses when responding to multicast
//# solicitations.
//= https://www.rfc-editor.org/rfc/rfc4861#section-4.4
//= type=test
//# The option MUST be included for multicast solicitations in order to avoid infinite Neighbor
//# Solicitation "recursion" when the peer node does not have a cache entry to return a Neighbor
//# Advertisements message.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.4
//= type=test
//# If the solicitation's IP Destination Address is a multicast address, the Target Link-Layer
//# option MUST be included in the advertisement.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.4
//= type=test
//# Otherwise, the Override flag SHOULD be set to one.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.4
//= type=test
//# Otherwise, the node MUST set the Solicited flag to one and unicast the advertisement to the
//# Source Address of the solicitation.
#[test]
fn a_datagram_waits_for_neighbour_discovery_and_arrives() {
    let mut net = Net::v6(1, 1500, false);
    let a = bind(&mut net, 0, 1000);
    bind(&mut net, 1, 2000);
    let to = net.hosts[1].at(2000);
    net.datagram(0, a, Some(to), b"hello").unwrap();
    net.run_for(2 * DELAY);
    assert_eq!(
        net.transcript,
        [
            "[fd00::1]>[ff02::1:ff00:2] icmp6 who-has [fd00::2] from 02:00:00:00:00:01",
            "[fd00::2]>[fd00::1] icmp6 [fd00::2] is-at 02:00:00:00:00:02 solicited override",
            "[fd00::1]:1000>[fd00::2]:2000 udp 5",
        ]
    );
    let (_, meta, bytes) = &net.hosts[1].store.datagrams[0];
    assert_eq!((bytes.as_slice(), meta.remote), (b"hello".as_slice(), net.hosts[0].at(1000)));
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-4.3
//= type=test
//# MUST NOT be included when the source IP address is the unspecified address.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.1
//= type=test
//# When a multicast-capable interface becomes enabled, the node MUST join the all-nodes multicast
//# address
//= https://www.rfc-editor.org/rfc/rfc3810#section-5.2.13
//= type=test
//# Once a valid link-local address is available, a node SHOULD generate new MLDv2 Report messages
//# for all multicast addresses joined on the interface.
//= https://www.rfc-editor.org/rfc/rfc3810#section-5.2.13
//= type=test
//# An MLDv2 Report MUST be sent with a valid IPv6 link-local source address, or the unspecified
//# address (::), if the sending interface has not acquired a valid link-local address yet.
#[test]
fn an_address_is_probed_for_and_told_of_before_it_is_used() {
    let mut net = Net::new(1);
    net.hosts[0] = Host::with_ipv6(1, 1500, false, small(), Ipv6Mode::Static);
    let own = net.hosts[0].ip;
    assert!(!net.hosts[0].stack.routes().is_own(own));
    assert!(net.hosts[0].stack.udp_bind(net.hosts[0].at(9), Owner(1)).is_ok(), "bound before");
    net.run_for(3 * SECOND);
    assert!(net.hosts[0].stack.routes().is_own(own) && net.hosts[0].stack.is_settled());
    let joins = "[::]>[ff02::16] icmp6 mld report joins [ff02::1:ff00:1]";
    let probes = "[::]>[ff02::1:ff00:1] icmp6 who-has [fd00::1]";
    let at = |line| net.transcript.iter().position(|sent| sent == line).expect(line);
    assert!(at(joins) < at(probes));
    // Told anew by name.
    let named = "[fe80::ff:fe00:1]>[ff02::16] icmp6 mld report joins";
    let named = net.transcript.iter().filter(|line| line.starts_with(named)).collect::<Vec<_>>();
    assert!(named.iter().any(|line| line.contains("[ff02::1:ff00:1]")), "{named:?}");
    let unheard = net.hosts[1].stack.counters().dropped(DropReason::Ipv6NotServed);
    assert!(unheard >= 4, "two groups and two probes at least: {unheard}");
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-4.4
//= type=test
//# It MUST NOT be set in multicast advertisements or in unsolicited unicast advertisements.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.4
//= type=test
//# If the source of the solicitation is the unspecified address, the node MUST set the Solicited
//# flag to zero and multicast the advertisement to the all-nodes address.
//= https://www.rfc-editor.org/rfc/rfc4862#section-5.4.3
//= type=test
//# In all cases, a node MUST NOT respond to a Neighbor Solicitation for a tentative address.
//= https://www.rfc-editor.org/rfc/rfc4862#section-5.4.5
//= type=test
//# A tentative address that is determined to be a duplicate as described above MUST NOT be assigned
//# to an interface
#[test]
fn one_of_two_hosts_with_an_address_gives_it_up() {
    let mut net = Net::v6(1, 1500, false);
    net.hosts[0] = Host::with_ipv6(2, 1500, false, small(), Ipv6Mode::Static);
    net.run_for(3 * SECOND);
    let (taken, routes) = (net.hosts[1].ip, net.hosts[0].stack.routes());
    assert!(!routes.is_own(taken) && net.hosts[1].stack.routes().is_own(taken));
    let duplicate = |own: &&outboard_stack::route::Own| own.state == AddressState::Duplicate;
    assert_eq!(routes.addresses(INTERFACE).iter().filter(duplicate).count(), 2);
    let counters = net.hosts[0].stack.counters();
    assert_eq!(counters.addresses_duplicate, 2);
    assert_eq!(counters.dropped(DropReason::NdpConflict), 2);
    assert_eq!(
        net.hosts[0]
            .stack
            .udp_bind("[fd00::2]:9".parse::<std::net::SocketAddr>().unwrap(), Owner(1)),
        Err(RequestError::AddressNotAvailable)
    );
}

#[test]
fn a_neighbour_that_does_not_answer_is_unreachable() {
    let mut net = Net::v6(1, 1500, false);
    let a = bind(&mut net, 0, 1000);
    let to = "[fd00::77]:9".parse().unwrap();
    let started = net.now;
    assert_eq!(net.datagram(0, a, Some(to), b"x"), Err(RequestError::HostUnreachable));
    assert!(net.now.0 - started.0 >= 3 * SECOND);
    assert_eq!(net.hosts[0].stack.counters().ndp_failures, 1);
    let asked = net.transcript.iter().filter(|line| line.contains("who-has [fd00::77]")).count();
    assert_eq!(asked, 3);
}

//= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
//= type=test
//# The lengths of the fragments must be chosen such that the resulting fragment packets fit within
//# the MTU of the path to the packet's destination(s).
//= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
//= type=test
//# Fragments must not be created that overlap with any other fragments created from the original
//# packet.
//= https://www.rfc-editor.org/rfc/rfc8200#section-5
//= type=test
//# A node must be able to accept a fragmented packet that, after reassembly, is as large as 1500
//# octets.
//= https://www.rfc-editor.org/rfc/rfc5722#section-4
//= type=test
//# IPv6 nodes transmitting datagrams that need to be fragmented MUST NOT create overlapping
//# fragments.
#[test]
fn large_datagrams_travel_in_fragments() {
    for len in [1452usize, 1453, 3000, 9001, 65527] {
        let mut net = Net::v6(1, 1500, false);
        let a = bind(&mut net, 0, 1000);
        bind(&mut net, 1, 2000);
        let to = net.hosts[1].at(2000);
        let payload: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        net.datagram(0, a, Some(to), &payload).unwrap();
        net.run_for(2 * DELAY);
        assert_eq!(net.hosts[1].store.datagrams.len(), 1, "{len}");
        assert_eq!(net.hosts[1].store.datagrams[0].2, payload);
        assert_eq!(net.hosts[1].stack.counters().reassembled, u64::from(len > 1452));
    }
    let mut net = Net::v6(1, 1500, false);
    let a = bind(&mut net, 0, 1000);
    let to = net.hosts[1].at(2000);
    assert_eq!(net.datagram(0, a, Some(to), &[0; 65528]), Err(RequestError::TooLong));
}

//= https://www.rfc-editor.org/rfc/rfc4443#section-2.4
//= type=test
//# (f) Finally, in order to limit the bandwidth and forwarding costs incurred by originating ICMPv6
//# error messages, an IPv6 node MUST limit the rate of ICMPv6 error messages it originates.
#[test]
fn errors_of_every_kind_are_rationed_together() {
    let mut net = Net::v6(1, 1500, false);
    let ip = header(&net, 0, Protocol::UDP);
    let closed = frame(&net, 0, ip, &udp(&ip, 9, b"x"));
    let unknown = frame(&net, 0, header(&net, 0, Protocol(200)), &[0; 8]);
    let told = |net: &Net| {
        let counters = net.hosts[0].stack.counters();
        counters.unreachables + counters.problems
    };
    for _ in 0..200 {
        receive(&mut net, 0, &closed);
        receive(&mut net, 0, &unknown);
    }
    assert_eq!(told(&net), 6, "to one address");
    // Echo requests are answered all the same.
    let ping = Icmpv6Message::EchoRequest(Echo { identifier: 7, sequence: 2, data: b"ping" });
    let ping = icmp(&net, 0, header(&net, 0, Protocol::ICMPV6), &ping);
    receive(&mut net, 0, &ping);
    assert_eq!(net.hosts[0].stack.counters().echo_replies, 1);
    net.run_for(SECOND / 10);
    receive(&mut net, 0, &unknown);
    assert_eq!(told(&net), 7);
}

fn fragment(net: &Net, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let (next_header, identification) = (Protocol::UDP, 5);
    let piece = Fragment { next_header, offset, more, identification };
    let mut bytes = vec![0; 8];
    piece.emit(&mut bytes).unwrap();
    bytes.extend(payload);
    frame(net, 0, header(net, 0, Protocol::FRAGMENT), &bytes)
}

//= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
//= type=test
//# of the reception of the first-arriving fragment of that packet, reassembly of that packet must
//# be abandoned and all the fragments that have been received for that packet must be discarded.
//= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
//= type=test
//# If the first fragment (i.e., the one with a Fragment Offset of zero) has been received, an ICMP
//# Time Exceeded -- Fragment Reassembly Time Exceeded message should be sent to the source of that
//# fragment.
#[test]
fn a_datagram_that_lost_a_fragment_is_given_up_and_its_sender_told() {
    let mut net = Net::v6(1, 1500, false);
    let first = fragment(&net, 0, true, &[0; 800]);
    receive(&mut net, 0, &first);
    net.run_for(59 * SECOND);
    assert_eq!(net.hosts[0].stack.counters().dropped(DropReason::FragmentTimeout), 0);
    net.run_for(2 * SECOND);
    assert_eq!(net.hosts[0].stack.counters().dropped(DropReason::FragmentTimeout), 1);
    let told =
        |line: &String| line.starts_with("[fd00::1]>[fd00::2] icmp6 time-exceeded reassembly");
    assert!(net.transcript.iter().any(told), "{:?}", net.transcript);
}

/// With its first fragment alone, even where the second one has come, too.
#[test]
fn what_is_quoted_of_a_datagram_that_lost_a_fragment_is_its_first_one_as_it_came() {
    let mut net = Net::v6(1, 1500, false);
    let a = bind(&mut net, 0, 1000);
    let to = net.hosts[1].at(2000);
    net.datagram(0, a, Some(to), b"where").unwrap();
    net.run_for(4 * DELAY);
    let ip = Ipv6Header {
        flow_label: 0x1_2345,
        traffic_class: 0x28,
        hop_limit: 61,
        ..header(&net, 0, Protocol(60))
    };
    let fragment = |offset| {
        let (next_header, identification) = (Protocol::UDP, 5);
        let mut piece = [0; 8];
        Fragment { next_header, offset, more: true, identification }.emit(&mut piece).unwrap();
        [&[44, 0, 1, 4, 0, 0, 0, 0], &piece, &[7; 64][..]].concat()
    };
    let first = frame(&net, 0, ip, &fragment(0));
    receive(&mut net, 0, &first);
    let second = frame(&net, 0, ip, &fragment(64));
    receive(&mut net, 0, &second);
    let late = Instant(net.now.0 + 61 * SECOND);
    let host = &mut net.hosts[0];
    while host.stack.on_timers(late) {}
    let is_error = |frame: &Wired| frame.bytes[14 + 40] == 3;
    let errors: Vec<_> = host.frames(late).into_iter().filter(is_error).collect();
    let [error] = &errors[..] else { panic!("{} errors", errors.len()) };
    // Behind Ethernet, IPv6 and ICMPv6.
    assert_eq!(error.bytes[14 + 40 + 8..], first[14..]);
}

//= https://www.rfc-editor.org/rfc/rfc4443#section-2.4
//= type=test
//# (e) An ICMPv6 error message MUST NOT be originated as a result of receiving the following:
#[test]
fn of_an_error_that_lost_a_fragment_nobody_is_told() {
    // Port unreachable, a redirect, and an echo request, of which it is told.
    for (kind, problems) in [(1, 0), (137, 0), (128, 1)] {
        let mut net = Net::v6(1, 1500, false);
        let piece =
            Fragment { next_header: Protocol::ICMPV6, offset: 0, more: true, identification: 5 };
        let mut bytes = vec![0; 8];
        piece.emit(&mut bytes).unwrap();
        bytes.extend([kind; 64]);
        let first = frame(&net, 0, header(&net, 0, Protocol::FRAGMENT), &bytes);
        receive(&mut net, 0, &first);
        net.run_for(61 * SECOND);
        let counters = net.hosts[0].stack.counters();
        assert_eq!(counters.dropped(DropReason::FragmentTimeout), 1);
        assert_eq!(counters.problems, problems, "type {kind}");
    }
}

#[test]
fn a_sender_on_a_link_of_its_own_is_told_there_of_fragments_that_are_missing() {
    let mut net = Net::v6(1, 1500, false);
    let second = InterfaceConfig {
        mac: MacAddr([2, 0, 0, 0, 1, 1]),
        mtu: 1500,
        addresses: Vec::new(),
        gateway: None,
        routes: Vec::new(),
        shared: None,
        ipv6: Ipv6Mode::Static,
        tso: false,
        tso6: false,
        uso: false,
    };
    let second = net.hosts[0].stack.add_interface(second).expect("room");
    let mut header = [0; outboard_stack::HEADER_MAX];
    // What goes out there is of no interest until its address is ours.
    let mut pass = |net: &mut Net, nanoseconds: u64| {
        net.run_for(nanoseconds);
        let now = net.now;
        let stack = &mut net.hosts[0].stack;
        std::iter::from_fn(|| stack.poll_transmit(now, second, &mut header).map(|_| ())).count()
    };
    for _ in 0..6 {
        pass(&mut net, SECOND / 2);
    }
    let own: Ipv6Addr = "fe80::ff:fe00:101".parse().unwrap();
    assert!(net.hosts[0].stack.routes().is_own(own.into()));
    let ip = Ipv6Header {
        src: "fe80::9".parse().unwrap(),
        dst: own,
        ..self::header(&net, 0, Protocol::FRAGMENT)
    };
    let piece = Fragment { next_header: Protocol::UDP, offset: 0, more: true, identification: 5 };
    let mut bytes = vec![0; 8];
    piece.emit(&mut bytes).unwrap();
    bytes.extend([0; 64]);
    let mut first = frame(&net, 0, ip, &bytes);
    first[..6].copy_from_slice(&[2, 0, 0, 0, 1, 1]);
    let now = net.now;
    let host = &mut net.hosts[0];
    host.stack.on_frame(
        now,
        &RxFrame { interface: second, bytes: &first, meta: RxFrameMeta::default() },
        &mut host.store,
    );
    while pass(&mut net, SECOND) > 0 {}
    net.transcript.clear();
    let asked: usize = (0..64).map(|_| pass(&mut net, SECOND)).sum();
    assert_eq!(asked, 3, "the sender is asked for there");
    assert!(!net.transcript.iter().any(|line| line.contains("fe80::9")), "{:?}", net.transcript);
}

//= https://www.rfc-editor.org/rfc/rfc4443#section-2.4
//= type=test
//# (c) Every ICMPv6 error message (type < 128) MUST include as much of the IPv6 offending (invoking)
//# packet (the packet that caused the error) as possible without making the error message packet
//# exceed the minimum IPv6 MTU [IPv6].
#[test]
fn an_error_quotes_the_packet_as_it_came() {
    let mut net = Net::v6(1, 1500, false);
    let a = bind(&mut net, 0, 1000);
    let to = net.hosts[1].at(2000);
    net.datagram(0, a, Some(to), b"where").unwrap();
    net.run_for(4 * DELAY);
    for len in [16, 1400] {
        let ip = Ipv6Header {
            flow_label: 0x1_2345,
            traffic_class: 0x28,
            hop_limit: 61,
            ..header(&net, 0, Protocol(60))
        };
        let udp = udp(&Ipv6Header { next_header: Protocol::UDP, ..ip }, 9, &vec![7; len]);
        let packet = [&[17, 0, 1, 4, 0, 0, 0, 0], &udp[..]].concat();
        let packet = frame(&net, 0, ip, &packet);
        receive(&mut net, 0, &packet);
        let now = net.now;
        let frames = net.hosts[0].frames(now);
        let [error] = &frames[..] else { panic!("{} frames", frames.len()) };
        // Behind Ethernet, IPv6 and ICMPv6.
        let quoted = &error.bytes[14 + 40 + 8..];
        assert_eq!(quoted, &packet[14..][..quoted.len()]);
        assert_eq!(quoted.len(), (packet.len() - 14).min(1280 - 48));
    }
}

//= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
//= type=test
//# field, is not a multiple of 8 octets and the M flag of that fragment is 1, then that fragment
//# must be discarded and an ICMP Parameter Problem, Code 0, message should be sent to the source of
//# the fragment, pointing to the Payload Length field of the fragment
//= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
//= type=test
//# of the packet reassembled from that fragment would exceed 65,535 octets, then that fragment must
//# be discarded and an ICMP Parameter Problem, Code 0, message should be sent to the source of the
//# fragment, pointing to the Fragment Offset field of the fragment
//= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
//= type=test
//# o If the first fragment does not include all headers through an Upper-Layer header, then that
//# fragment should be discarded and an ICMP Parameter Problem, Code 3, message should be sent to
//# the source of the fragment, with the Pointer field set to zero.
//= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
//= type=test
//# o If any of the fragments being reassembled overlap with any other fragments being reassembled
//# for the same packet, reassembly of that packet must be abandoned and all the fragments that have
//# been received for that packet must be discarded, and no ICMP
#[test]
fn overlapping_fragments_and_those_cut_wrong_are_refused() {
    let mut net = Net::v6(1, 1500, false);
    let first = fragment(&net, 0, true, &[0; 800]);
    receive(&mut net, 0, &first);
    let overlap = fragment(&net, 792, false, &[1; 16]);
    expect_drop(&mut net, &overlap, DropReason::FragmentOverlap);
    let rest = fragment(&net, 800, false, &[1; 16]);
    expect_drop(&mut net, &rest, DropReason::FragmentOverlap);
    let odd = fragment(&net, 0, true, &[0; 801]);
    let told = answers(&mut net, &odd);
    assert!(told.iter().any(|line| line.contains("parameter-problem 0 at 4")), "{told:?}");
    let short = fragment(&net, 0, true, &[]);
    let told = answers(&mut net, &short);
    assert!(told.iter().any(|line| line.contains("parameter-problem 3 at 0")), "{told:?}");
    let long = fragment(&net, 65528, false, &[0; 100]);
    let told = answers(&mut net, &long);
    assert!(told.iter().any(|line| line.contains("parameter-problem 0 at 42")), "{told:?}");
}

//= https://www.rfc-editor.org/rfc/rfc4443#section-2.2
//= type=test
//# the Source Address of the ICMPv6 packet MUST be a unicast address belonging to the node.
//= https://www.rfc-editor.org/rfc/rfc4443#section-2.2
//= type=test
//# The address SHOULD be chosen according to the rules that would be used to select the source
//# address for any other packet originated by the node, given the destination address of the
//# packet.
//= https://www.rfc-editor.org/rfc/rfc4443#section-4.1
//= type=test
//# Every node MUST implement an ICMPv6 Echo responder function that receives Echo Requests and
//# originates corresponding Echo Replies.
//= https://www.rfc-editor.org/rfc/rfc4443#section-4.2
//= type=test
//# Every node MUST implement an ICMPv6 Echo responder function that receives Echo Requests and
//# originates corresponding Echo Replies.
//= https://www.rfc-editor.org/rfc/rfc4443#section-4.2
//= type=test
//# The source address of an Echo Reply sent in response to a unicast Echo Request message MUST be
//# the same as the destination address of that Echo Request message.
//= https://www.rfc-editor.org/rfc/rfc4443#section-4.2
//= type=test
//# An Echo Reply SHOULD be sent in response to an Echo Request message sent to an IPv6 multicast or
//# anycast address.
//= https://www.rfc-editor.org/rfc/rfc4443#section-4.2
//= type=test
//# In this case, the source address of the reply MUST be a unicast address belonging to the
//# interface on which the Echo Request message was received.
//= https://www.rfc-editor.org/rfc/rfc4443#section-4.2
//= type=test
//# The data received in the ICMPv6 Echo Request message MUST be returned entirely and unmodified in
//# the ICMPv6 Echo Reply message.
#[test]
fn pings_are_answered_also_large_ones_and_those_to_a_group() {
    let mut net = Net::v6(1, 1500, false);
    let ip = header(&net, 0, Protocol::ICMPV6);
    let ping = Icmpv6Message::EchoRequest(Echo { identifier: 7, sequence: 1, data: &[5; 1900] });
    let frame = icmp(&net, 0, ip, &ping);
    receive(&mut net, 0, &frame);
    let group = Ipv6Header { dst: ALL_NODES, ..ip };
    let small = Icmpv6Message::EchoRequest(Echo { identifier: 7, sequence: 2, data: b"ping" });
    let frame = icmp(&net, 0, group, &small);
    receive(&mut net, 0, &frame);
    net.run_for(10 * DELAY);
    let replies = &net.transcript;
    assert!(replies.iter().any(|line| line.ends_with("echo reply 7 2 (4)")), "{replies:?}");
    assert!(replies.iter().any(|line| line.contains("0:1448+ proto 58")), "{replies:?}");
    assert_eq!(net.hosts[0].stack.counters().echo_replies, 2);
}

//= https://www.rfc-editor.org/rfc/rfc8201#section-4
//= type=test
//# After receiving a Packet Too Big message, a node must attempt to avoid eliciting more such
//# messages in the near future.
//= https://www.rfc-editor.org/rfc/rfc8201#section-4
//= type=test
//# The node must reduce the size of the packets it is sending along the path.
#[test]
fn echo_replies_too_big_for_a_router_come_in_fragments_from_then_on() {
    let mut net = Net::v6(1, 1500, false);
    net.router_mtu = Some(1300);
    let ping = |net: &Net, sequence| {
        let echo = Echo { identifier: 7, sequence, data: &[5; 1400] };
        icmp(net, 0, header(net, 0, Protocol::ICMPV6), &Icmpv6Message::EchoRequest(echo))
    };
    let first = ping(&net, 1);
    let told = answers(&mut net, &first);
    assert!(told.iter().any(|line| line.starts_with("too big ")), "{told:?}");
    let second = ping(&net, 2);
    let told = answers(&mut net, &second);
    let [head, rest] = &told[..] else { panic!("{told:?}") };
    assert!(
        head.ends_with(" 0:1248+ proto 58") && rest.ends_with(" 1248:160 proto 58"),
        "{told:?}"
    );
}

//= https://www.rfc-editor.org/rfc/rfc4443#section-2.2
//= type=test
//# If the message is a response to a message sent to one of the node's unicast addresses, the
//# Source Address of the reply MUST be that same address.
//= https://www.rfc-editor.org/rfc/rfc4443#section-2.2
//= type=test
//# If the node has more than one unicast address, it MUST choose the Source Address of the message
//# as follows:
//= https://www.rfc-editor.org/rfc/rfc4443#section-3.1
//= type=test
//# A destination node SHOULD originate a Destination Unreachable message with Code 4 in response to
//# a packet for which the transport protocol (e.g., UDP) has no listener, if that transport
//# protocol has no alternative means to inform the sender.
//= https://www.rfc-editor.org/rfc/rfc4443#section-3.1
//= type=test
//# A node receiving the ICMPv6 Destination Unreachable message MUST notify the upper-layer process
//# if the relevant process can be identified (see Section 2.4, (d)).
#[test]
fn a_datagram_to_a_closed_port_is_refused_and_the_sender_hears_of_it() {
    let mut net = Net::v6(1, 1500, false);
    let a = bind(&mut net, 0, 1000);
    let to = net.hosts[1].at(2000);
    net.hosts[0].stack.udp_connect(a, Some(to)).unwrap();
    net.datagram(0, a, None, b"anybody?").unwrap();
    net.run_for(10 * DELAY);
    let last = net.transcript.last().expect("an answer");
    assert_eq!(
        last,
        "[fd00::2]>[fd00::1] icmp6 unreachable port [[fd00::1]:1000>[fd00::2]:2000 udp]"
    );
    let levels = net.hosts[0].stack.udp_take_levels(a).unwrap();
    assert_eq!(levels.error, Some(UdpError::Refused));
}

//= https://www.rfc-editor.org/rfc/rfc4443#section-2.4
//= type=test
//# (e) An ICMPv6 error message MUST NOT be originated as a result of receiving the following:
//= https://www.rfc-editor.org/rfc/rfc4443#section-3.4
//= type=test
//# it MUST discard the packet and SHOULD originate an ICMPv6 Parameter Problem message to the
//# packet's source
//= https://www.rfc-editor.org/rfc/rfc8200#section-4
//= type=test
//# If, as a result of processing a header, the destination node is required to proceed to the next
//# header but the Next Header value in the current header is unrecognized by the node, it should
//# discard the packet and send an ICMP Parameter Problem message
#[test]
fn headers_that_are_not_understood_are_told_of() {
    let mut net = Net::v6(1, 1500, false);
    for (protocol, payload, expected) in [
        (Protocol(200), vec![0; 8], "parameter-problem 1 at 6"),
        (Protocol(60), vec![6, 0, 0xbe, 0, 0, 0, 0, 0], "parameter-problem 2 at 42"),
        (Protocol(43), vec![6, 0, 0, 1, 0, 0, 0, 0], "parameter-problem 0 at 42"),
    ] {
        let packet = frame(&net, 0, header(&net, 0, protocol), &payload);
        let told = answers(&mut net, &packet);
        net.run_for(10 * MS);
        assert!(told.iter().chain(&net.transcript).any(|l| l.contains(expected)), "{told:?}");
    }
    assert_eq!(net.hosts[0].stack.counters().problems, 3);
    let silent = frame(&net, 0, header(&net, 0, Protocol(60)), &[6, 0, 0x7e, 0, 0, 0, 0, 0]);
    expect_drop(&mut net, &silent, DropReason::IpOptions);
    let group = Ipv6Header { dst: ALL_NODES, ..header(&net, 0, Protocol(200)) };
    let packet = frame(&net, 0, group, &[0; 8]);
    assert!(answers(&mut net, &packet).is_empty(), "nobody answers what went to a group");
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-7.1.1
//= type=test
//# A node MUST silently discard any received Neighbor Solicitation messages that do not satisfy all
//# of the following validity checks:
//= https://www.rfc-editor.org/rfc/rfc4862#section-5.4.1
//= type=test
//# A node MUST silently discard any Neighbor Solicitation or Advertisement message that does not
//# pass the validity checks specified in [RFC4861].
//= https://www.rfc-editor.org/rfc/rfc8200#section-8.1
//= type=test
//# IPv6 receivers must discard UDP packets containing a zero checksum and should log the error.
//= https://www.rfc-editor.org/rfc/rfc8201#section-4
//= type=test
//# If a node receives a Packet Too Big message reporting a next-hop MTU that is less than the IPv6
//# minimum link MTU, it must discard it.
//= https://www.rfc-editor.org/rfc/rfc3810#section-5.1.2
//= type=test
//# When a packet is received, the checksum MUST be verified before processing it.
//= https://www.rfc-editor.org/rfc/rfc3810#section-5.1.14
//= type=test
//# If a node (router or host) receives a Query message with the IPv6 Source Address set to the
//# unspecified address (::), or any other address that is not a valid IPv6 link-local address, it
//# MUST silently discard the message and SHOULD log a warning.
#[test]
fn bad_packets_are_counted_by_reason() {
    let mut net = Net::v6(1, 1500, false);
    let good = header(&net, 0, Protocol::UDP);
    let payload = udp(&good, 9, b"x");
    let with = |net: &Net, change: fn(&mut Ipv6Header)| {
        let mut ip = good;
        change(&mut ip);
        frame(net, 0, ip, &payload)
    };
    type Change = fn(&mut Ipv6Header);
    let cases: [(Change, DropReason); 7] = [
        (|ip| ip.src = MAPPED, DropReason::IpSource),
        (|ip| ip.src = ALL_NODES, DropReason::IpSource),
        (|ip| ip.src = Ipv6Addr::LOCALHOST, DropReason::IpSource),
        (|ip| ip.src = ip.dst, DropReason::IpSource),
        (|ip| ip.src = Ipv6Addr::UNSPECIFIED, DropReason::IpSource),
        (|ip| ip.dst = ip.src, DropReason::IpDestination),
        (|ip| ip.dst = solicited_node(ip.src), DropReason::IpDestination),
    ];
    for (change, reason) in cases {
        let packet = with(&net, change);
        expect_drop(&mut net, &packet, reason);
    }
    let mut none = payload.clone();
    none[6..8].fill(0);
    let packet = frame(&net, 0, good, &none);
    expect_drop(&mut net, &packet, DropReason::UdpChecksum);
    let mut cut = frame(&net, 0, good, &payload);
    cut.pop();
    expect_drop(&mut net, &cut, DropReason::IpMalformed);
    let mut icmp_ip = good;
    icmp_ip.next_header = Protocol::ICMPV6;
    let packet = frame(&net, 0, icmp_ip, &[128, 0, 1, 2, 0, 0, 0, 0]);
    expect_drop(&mut net, &packet, DropReason::IcmpChecksum);
    let small = Icmpv6Message::PacketTooBig { mtu: 1279, quoted: &[0; 48] };
    let packet = icmp(&net, 0, icmp_ip, &small);
    expect_drop(&mut net, &packet, DropReason::IcmpInvalid);
    // Of what we send nothing goes to such an address.
    let mut quoted = [0; 48];
    Ipv6Header { src: good.dst, dst: MAPPED, ..good }.emit(8, &mut quoted).unwrap();
    let lie = Icmpv6Message::Unreachable { code: 4, quoted: &quoted };
    let packet = icmp(&net, 0, icmp_ip, &lie);
    expect_drop(&mut net, &packet, DropReason::IcmpInvalid);
    let query = Icmpv6Message::Other { kind: mld::QUERY, code: 0, body: &[0; 20] };
    let packet = icmp(&net, 0, Ipv6Header { dst: ALL_NODES, ..icmp_ip }, &query);
    expect_drop(&mut net, &packet, DropReason::NdpInvalid);
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-7.1.2
//= type=test
//# A node MUST silently discard any received Neighbor Advertisement messages that do not satisfy
//# all of the following validity checks:
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
//= type=test
//# If no entry exists, the advertisement SHOULD be silently discarded.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2
//= type=test
//# These messages MUST NOT create or update neighbor cache entries, except with respect to the
//# IsRouter flag as specified in Sections 6.3.4 and 7.2.5.
#[test]
fn an_advertisement_that_nobody_asked_for_is_not_learnt() {
    let mut net = Net::v6(1, 1500, false);
    let mut ip = header(&net, 0, Protocol::ICMPV6);
    (ip.hop_limit, ip.dst) = (255, ALL_NODES);
    let claim = |target, solicited| NdpMessage::NeighborAdvertisement {
        router: false,
        solicited,
        overrides: true,
        target,
        link_address: Some(ROUTER_MAC),
    };
    let unknown = ndp(&net, 0, ip, &claim("fd00::9".parse().unwrap(), false));
    expect_drop(&mut net, &unknown, DropReason::NdpNotForUs);
    let both = ndp(&net, 0, ip, &claim("fd00::9".parse().unwrap(), true));
    expect_drop(&mut net, &both, DropReason::NdpInvalid);
    let ours = ndp(&net, 0, ip, &claim("fd00::1".parse().unwrap(), false));
    expect_drop(&mut net, &ours, DropReason::NdpConflict);
    assert!(net.hosts[0].stack.routes().is_own(net.hosts[0].ip), "it is defended");
}

#[test]
fn queries_are_answered_with_the_groups() {
    let mut net = Net::v6(1, 1500, false);
    net.run_for(5 * SECOND);
    net.transcript.clear();
    let mut ip = header(&net, 0, Protocol::ICMPV6);
    (ip.hop_limit, ip.dst, ip.src) = (1, ALL_NODES, ROUTER);
    let query = Icmpv6Message::Other { kind: mld::QUERY, code: 0, body: &[0; 24] };
    let mut bytes = vec![0; 64];
    let len = query.emit(ip.src, ip.dst, &mut bytes).unwrap();
    ip.next_header = Protocol(0);
    let packet = frame(&net, 0, ip, &[&mld::ROUTER_ALERT, &bytes[..len]].concat());
    receive(&mut net, 0, &packet);
    net.run_for(SECOND);
    // Both of its addresses are asked for in the same group.
    let answer = "[fe80::ff:fe00:1]>[ff02::16] icmp6 mld report in [ff02::1:ff00:1]";
    assert_eq!(net.transcript, [answer]);
}

fn connect(net: &mut Net, listen: &str) -> (SocketId, SocketId) {
    let options = TcpOptions::default();
    let listener = net.hosts[1].stack.tcp_listen(
        listen.parse::<std::net::SocketAddr>().unwrap(),
        4,
        options,
        Owner(1),
    );
    let listener = listener.unwrap();
    let (now, to) = (net.now, net.hosts[1].at(80));
    let client = net.hosts[0]
        .stack
        .tcp_connect(now, TcpConnect { remote: to, local: None, options, owner: Owner(2) })
        .unwrap();
    let mut server = None;
    assert!(net.run_until(20 * SECOND, |net| {
        server = server.or_else(|| net.hosts[1].stack.tcp_accept(listener).unwrap());
        server.is_some()
    }));
    let server = server.unwrap();
    assert_eq!((server.local, server.remote.ip()), (to, net.hosts[0].ip));
    net.hosts[1].stack.tcp_assign(server.id, Owner(3)).unwrap();
    (client, server.id)
}

fn transfer(net: &mut Net, len: usize) {
    let (client, server) = connect(net, "[::]:80");
    let data: Vec<u8> = (0..len).map(|i| (i % 249) as u8).collect();
    let now = net.now;
    net.hosts[0].write(now, client, &data);
    assert!(net.run_until(600 * SECOND, |net| {
        let now = net.now;
        net.hosts[1].read_all(now, server).len() == len
    }));
    assert_eq!(net.hosts[1].store.streams[&server], data);
}

//= https://www.rfc-editor.org/rfc/rfc8200#section-8.3
//= type=test
//# When computing the maximum payload size available for upper-layer data, an upper-layer protocol
//# must take into account the larger size of the IPv6 header relative to the IPv4 header.
//= https://www.rfc-editor.org/rfc/rfc8200#section-8.3
//= type=test
//# When using TCP over IPv6, the MSS must be computed as the maximum packet size minus 60 octets,
//# because the minimum-length IPv6 header (i.e., an IPv6 header with no extension headers) is 20
//# octets longer than a minimum-length IPv4 header.
#[test]
fn a_connection_carries_its_bytes_with_and_without_segmentation_by_the_port() {
    for tso in [false, true] {
        let mut net = Net::v6(3, 1500, tso);
        transfer(&mut net, 300_000);
        let syn = net.transcript.iter().find(|line| line.contains(" S ")).expect("a SYN");
        assert!(syn.contains("mss 1440"), "{syn}");
    }
}

#[test]
fn a_connection_survives_a_bad_network() {
    let mut net = Net::v6(9, 1500, false);
    net.faults = Faults { loss: 30, reorder: 30, duplicate: 20, corrupt: 10 };
    transfer(&mut net, 200_000);
}

//= https://www.rfc-editor.org/rfc/rfc4443#section-3.2
//= type=test
//# An incoming Packet Too Big message MUST be passed to the upper-layer process if the relevant
//# process can be identified (see Section 2.4, (d)).
//= https://www.rfc-editor.org/rfc/rfc8200#section-5
//= type=test
//# It is strongly recommended that IPv6 nodes implement Path MTU Discovery [RFC8201], in order to
//# discover and take advantage of path MTUs greater than 1280 octets.
//= https://www.rfc-editor.org/rfc/rfc8201#section-4
//= type=test
//# When a node receives a Packet Too Big message, it must reduce its estimate of the PMTU for the
//# relevant path, based on the value of the MTU field in the message.
//= https://www.rfc-editor.org/rfc/rfc8201#section-4
//= type=test
//# After receiving a Packet Too Big message, a node must attempt to avoid eliciting more such
//# messages in the near future.
//= https://www.rfc-editor.org/rfc/rfc8201#section-4
//= type=test
//# The node must reduce the size of the packets it is sending along the path.
//= https://www.rfc-editor.org/rfc/rfc8201#section-4
//= type=test
//# Because each of these messages (and the dropped packets they respond to) consume network
//# resources, nodes using Path MTU Discovery must detect decreases in PMTU as fast as possible.
#[test]
fn a_router_that_takes_less_makes_segments_smaller() {
    let mut net = Net::v6(4, 1500, false);
    net.router_mtu = Some(1300);
    transfer(&mut net, 100_000);
    assert!(net.transcript.iter().any(|line| line.starts_with("too big ")));
}

#[test]
fn sockets_of_both_families_and_of_one_share_a_port() {
    let mut net = Net::v6(1, 1500, false);
    let any6: std::net::SocketAddr = "[::]:53".parse().unwrap();
    let stack = &mut net.hosts[0].stack;
    let only = Local { address: any6, v6_only: true };
    let six = stack.udp_bind(only, Owner(6)).unwrap();
    let four =
        stack.udp_bind("0.0.0.0:53".parse::<std::net::SocketAddr>().unwrap(), Owner(4)).unwrap();
    let ip = header(&net, 0, Protocol::UDP);
    let datagram = frame(&net, 0, ip, &udp(&ip, 53, b"six"));
    receive(&mut net, 0, &datagram);
    assert_eq!(net.hosts[0].store.datagrams[0].0, six);
    let stack = &mut net.hosts[0].stack;
    stack.udp_close(Instant(0), six).unwrap();
    stack.udp_close(Instant(0), four).unwrap();
    let both = stack.udp_bind(any6, Owner(8)).unwrap();
    receive(&mut net, 0, &datagram);
    assert_eq!(net.hosts[0].store.datagrams[1].0, both);
    assert!(Local::from(any6).is_dual() && !only.is_dual());
}

#[test]
fn a_stack_is_exported_in_the_middle_of_everything() {
    let mut net = Net::v6(5, 1500, false);
    net.hosts[0] = Host::with_ipv6(1, 1500, false, small(), Ipv6Mode::Automatic);
    net.run_for(500 * MS);
    let exported = net.hosts[0].stack.export();
    net.hosts[0].stack = Stack::import(&exported).unwrap();
    net.run_for(3 * SECOND);
    let (client, server) = connect(&mut net, "[fd00::2]:80");
    let now = net.now;
    net.hosts[0].write(now, client, b"before");
    for host in &mut net.hosts {
        host.stack = Stack::import(&host.stack.export()).unwrap();
    }
    net.run_for(SECOND);
    let now = net.now;
    assert_eq!(net.hosts[1].read_all(now, server), b"before");
}
