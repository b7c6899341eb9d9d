//! Frames of IPv6 for tests.

use std::net::{IpAddr, Ipv6Addr};

use outboard_stack::api::*;
use wire::MacAddr;
use wire::ethernet::EtherType;
use wire::icmpv6::Icmpv6Message;
use wire::ipv4::Protocol;
use wire::ipv6::{ALL_NODES, Ipv6Header};
use wire::ndp::{NdpMessage, RouterAdvertisement};

use super::{Host, MS, Net, SECOND, small};

pub const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfe);
pub const ROUTER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xfe]);

pub fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V6(v6) => v6,
        IpAddr::V4(_) => unreachable!("the net is IPv6"),
    }
}

pub fn frame(net: &Net, to: usize, ip: Ipv6Header, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (&net.hosts[1 - to], &net.hosts[to]);
    let dst = if ip.dst.is_multicast() { MacAddr::of_multicast_v6(ip.dst) } else { to.mac };
    let mut header = [0; 40];
    ip.emit(payload.len(), &mut header).unwrap();
    super::frame(from.mac, dst, EtherType::IPV6, &header, payload)
}

pub fn header(net: &Net, to: usize, next_header: Protocol) -> Ipv6Header {
    Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        next_header,
        hop_limit: 64,
        src: v6(net.hosts[1 - to].ip),
        dst: v6(net.hosts[to].ip),
    }
}

pub fn udp(ip: &Ipv6Header, port: u16, payload: &[u8]) -> Vec<u8> {
    super::udp(ip.src.into(), ip.dst.into(), port, payload)
}

pub fn icmp(net: &Net, to: usize, ip: Ipv6Header, message: &Icmpv6Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 2000];
    let len = message.emit(ip.src, ip.dst, &mut bytes).unwrap();
    frame(net, to, ip, &bytes[..len])
}

pub fn ndp(net: &Net, to: usize, ip: Ipv6Header, message: &NdpMessage) -> Vec<u8> {
    let mut bytes = [0; 512];
    let len = message.emit(ip.src, ip.dst, &mut bytes).unwrap();
    frame(net, to, ip, &bytes[..len])
}

pub fn receive(net: &mut Net, host: usize, frame: &[u8]) {
    super::receive(net, host, frame, RxFrameMeta::default());
}

/// What host 0 says to a frame, as text.
pub fn answers(net: &mut Net, frame: &[u8]) -> Vec<String> {
    net.transcript.clear();
    receive(net, 0, frame);
    net.run_for(10 * MS);
    net.transcript.clone()
}

pub fn bind(net: &mut Net, host: usize, port: u16) -> SocketId {
    let local = net.hosts[host].at(port);
    net.hosts[host].stack.udp_bind(local, Owner(7)).unwrap()
}

/// A host that listens to routers, and has found its link-local address its own.
pub fn automatic() -> Net {
    let mut net = Net::v6(1, 1500, false);
    net.hosts[0] = Host::with_ipv6(1, 1500, false, small(), Ipv6Mode::Automatic);
    net.run_for(3 * SECOND);
    net
}

/// What a router says, as host 0 gets it.
pub fn advertised(net: &mut Net, from: Ipv6Addr, said: RouterAdvertisement) {
    let mut ip = header(net, 0, Protocol::ICMPV6);
    (ip.src, ip.dst, ip.hop_limit) = (from, ALL_NODES, 255);
    let frame = ndp(net, 0, ip, &NdpMessage::RouterAdvertisement(said));
    receive(net, 0, &frame);
}
