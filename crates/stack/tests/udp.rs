//! How datagrams are sent: cut by whom, marked how, with or without a checksum.

mod net;

use net::{DELAY, Net};
use outboard_stack::api::*;
use wire::ipv4::{self, Ipv4Header};
use wire::{ethernet, udp};

/// A socket that knows where its peer is, and the frames of what it then sends.
fn sent(send: UdpSend, payload: &[u8]) -> Result<Vec<Vec<u8>>, RequestError> {
    let mut net = Net::new(1);
    let local = net.hosts[0].at(1000);
    let id = net.hosts[0].stack.udp_bind(local, Owner(7)).unwrap();
    let to = net.hosts[1].at(2000);
    net.datagram(0, id, Some(to), b"where").unwrap();
    net.run_for(4 * DELAY);
    let now = net.now;
    let send = UdpSend { remote: Some(to), payload_len: payload.len() as u32, ..send };
    net.hosts[0].datagram_as(now, id, &send, payload)
}

fn parsed(frame: &[u8]) -> (Ipv4Header, udp::UdpHeader, Vec<u8>) {
    let (_, packet) = ethernet::parse(frame).unwrap();
    let packet = ipv4::parse(packet).unwrap();
    let (header, payload) = udp::parse(packet.payload).unwrap();
    (packet.header, header, payload.to_vec())
}

const WHOLE: UdpCut = UdpCut { not_routers: true, not_us: true, by_link: false };

#[test]
fn several_datagrams_in_one_are_cut_here_where_the_port_does_not() {
    let payload: Vec<u8> = (0..2500).map(|n| n as u8).collect();
    let frames = sent(UdpSend { gso_bytes: Some(1000), ..UdpSend::default() }, &payload).unwrap();
    let pieces: Vec<Vec<u8>> = frames.iter().map(|frame| parsed(frame).2).collect();
    let wanted: Vec<Vec<u8>> = payload.chunks(1000).map(<[u8]>::to_vec).collect();
    assert_eq!(pieces, wanted);
}

#[test]
fn what_fits_one_piece_is_one_datagram() {
    let send = UdpSend { gso_bytes: Some(1473), ..UdpSend::default() };
    assert_eq!(sent(send, &[7; 1000]).unwrap().len(), 1);
    assert_eq!(sent(send, &[7; 1473]).unwrap().len(), 2, "it is cut as any other is");
}

#[test]
fn pieces_longer_than_the_link_takes_are_refused() {
    let send = UdpSend { gso_bytes: Some(1473), ..UdpSend::default() };
    assert_eq!(sent(send, &[7; 3000]), Err(RequestError::TooLong));
}

#[test]
fn who_may_cut_a_datagram_is_said_in_its_header() {
    for (cut, is_fixed) in [(UdpCut::default(), false), (WHOLE, true)] {
        let frames = sent(UdpSend { cut, ..UdpSend::default() }, &[7; 1472]).unwrap();
        assert_eq!(parsed(&frames[0]).0.dont_fragment, is_fixed);
    }
    let cut = UdpCut { not_routers: true, ..UdpCut::default() };
    let frames = sent(UdpSend { cut, ..UdpSend::default() }, &[7; 1473]).unwrap();
    assert_eq!(frames.len(), 2, "too long is cut here");
    let send = UdpSend { cut: WHOLE, ..UdpSend::default() };
    assert_eq!(sent(send, &[7; 1473]), Err(RequestError::TooLong));
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.6
//= type=test
//# The IP layer MUST provide a means for the transport layer to set the TOS field of every datagram
//# that is sent; the default is all zero bits.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.7
//= type=test
//# The IP layer MUST provide a means for the transport layer to set the TTL field of every datagram
//# that is sent.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.7
//= type=test
//# When a fixed TTL value is used, it MUST be configurable.
//= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.4
//= type=test
//# An application-layer program MUST be able to set the TTL and TOS values as well as IP options
//# for sending a UDP datagram, and these values must be passed transparently to the IP layer.
#[test]
fn a_datagram_may_go_without_a_checksum() {
    let send = UdpSend { no_checksum: true, tos: Some(0x28), ttl: Some(9), ..UdpSend::default() };
    let frames = sent(send, b"unsummed").unwrap();
    let (ip, header, payload) = parsed(&frames[0]);
    assert_eq!((header.checksum, ip.tos, ip.ttl), (0, 0x28, 9));
    assert_eq!(payload, b"unsummed");
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.3.5
//= type=test
//# When a UDP datagram is received, its specific-destination address MUST be passed up to the
//# application layer.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.4
//= type=test
//# Since this may be a broadcast or multicast address, the SpecDest parameter (not shown in
//# RFC-791) MUST be passed.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.6
//= type=test
//# When a host sends a datagram to a link-layer broadcast address, the IP destination address MUST
//# be a legal IP broadcast or IP multicast address.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.6
//= type=test
//# A host MUST recognize any of these forms in the destination address of an incoming datagram.
#[test]
fn a_broadcast_goes_to_everybody_on_the_link_and_is_received() {
    let mut net = Net::new(1);
    let any: std::net::SocketAddr = "0.0.0.0:2000".parse().unwrap();
    net.hosts[1].stack.udp_bind(any, Owner(7)).unwrap();
    let local = net.hosts[0].at(1000);
    let id = net.hosts[0].stack.udp_bind(local, Owner(7)).unwrap();
    let std::net::IpAddr::V4(own) = net.hosts[0].ip else { unreachable!("the net is IPv4") };
    let [a, b, c, _] = own.octets();
    let everybody = (std::net::Ipv4Addr::new(a, b, c, 255), 2000).into();
    let now = net.now;
    // Nobody is asked for first.
    let frames = net.hosts[0].datagram(now, id, Some(everybody), b"all").unwrap();
    assert_eq!(frames[0][..6], [0xff; 6]);
    net.datagram(0, id, Some(everybody), b"all").unwrap();
    net.run_for(4 * DELAY);
    let (_, meta, bytes) = net.hosts[1].store.datagrams.last().unwrap();
    assert_eq!((meta.local, &bytes[..]), (everybody, &b"all"[..]));
}
