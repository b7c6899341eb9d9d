//! What goes out: headers from layer 4 down.

use std::net::{IpAddr, SocketAddr};

use wire::MacAddr;
use wire::arp::{ArpPacket, Operation};
use wire::checksum::Sum;
use wire::ethernet::{self, EtherType, EthernetHeader};
use wire::ipv4::{self, Ipv4Header, Protocol};
use wire::ipv6::{self, FRAGMENT_LEN, Fragment, Ipv6Header};
use wire::tcp::CHECKSUM_OFFSET as TCP_CHECKSUM;
use wire::udp::{self, CHECKSUM_OFFSET as UDP_CHECKSUM, UdpHeader};

use super::receive::looped;
use super::{ArpOut, Egress, HEADER_MAX, IpOut, Outgoing, PacketOut, Stack};
use crate::api::*;
use crate::ip_options::Options;
use crate::neighbor::{Requester, Resolution};
use crate::route::{LOOPBACK_MTU, Route};
use crate::tcp::{PathMtu, SegmentTx};

/// Most payload that a UDP datagram has: over IPv4 the whole packet is 64 KiB long at most, over
/// IPv6 what follows its header.
const UDP_PAYLOAD_MAX: [u32; 2] = [65535 - 20 - 8, 65535 - 8];

/// Segments that go nowhere in one look for a frame: when an address of many connections goes, each
/// has a window full of them.
const NOWHERE_PER_CALL: usize = 32;

/// A datagram as far as it is settled before its next hop is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct UdpPlan {
    pub local_port: u16,
    pub remote_port: u16,
    pub src: IpAddr,
    pub dst: IpAddr,
    pub route: Route,
    /// The route's interface, also of the copy that comes back to us.
    pub link: InterfaceIndex,
    /// To a group or to everybody.
    pub to_all: bool,
    pub is_group: bool,
    pub comes_back: bool,
    pub mtu: u16,
    /// Bytes of payload that fit the MTU.
    pub room: u32,
    /// Bytes of payload that are not sent yet.
    pub left: u32,
    /// Bytes of each, where it is several datagrams.
    pub piece: Option<u32>,
    /// Bytes of the first.
    pub longest: u32,
    pub tos: u8,
    pub ttl: Option<u8>,
    pub may_cut: bool,
}

/// The next hop of a frame.
#[derive(Clone, Copy)]
struct Hop {
    interface: InterfaceIndex,
    to: MacAddr,
}

/// A UDP header and the bytes from it on that a frame carries: fewer than it says in a first fragment.
struct Datagram {
    header: UdpHeader,
    len: u32,
}

/// What follows the fixed part of an IP header.
#[derive(Clone, Copy)]
struct AfterHeader<'a> {
    /// Options of IPv4.
    options: &'a [u8],
    payload_len: usize,
}

impl AfterHeader<'_> {
    fn payload(len: u32) -> Self {
        Self { options: &[], payload_len: len as usize }
    }
}

/// The path that a packet of ours takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct TxPath {
    pub route: Route,
    pub mtu: u16,
    /// Whose datagram it is, which has its identification.
    pub socket: Option<SocketId>,
    /// Its next hop is being asked for.
    pub waits: bool,
}

/// Bytes of the IP header of a packet to this address; our packets have no options.
fn ip_header_len(to: IpAddr) -> usize {
    if to.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN }
}

impl Stack {
    /// The next frame for an interface: writes its headers and says what follows them. `None`
    /// when there is nothing more, or when many segments have gone nowhere: then there is a
    /// [deadline](Self::next_deadline) at once. Call it for every interface after each burst of input, and
    /// for [`InterfaceIndex::LOOPBACK`], whose frames are to be given back to
    /// [`on_frame`](Self::on_frame) with [`RxChecksum::Valid`] (each call of that may cause more;
    /// bound the number per turn).
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        interface: InterfaceIndex,
        header: &mut [u8; HEADER_MAX],
    ) -> Option<Transmit> {
        let frame = self.next_frame(now, interface, header);
        if frame.is_some() {
            self.counters.tx_frames = self.counters.tx_frames.wrapping_add(1);
        }
        frame
    }

    fn next_frame(
        &mut self,
        now: Instant,
        interface: InterfaceIndex,
        header: &mut [u8; HEADER_MAX],
    ) -> Option<Transmit> {
        self.wake_waiting();
        self.cut_short.retain(|(of, _)| *of != interface);
        let mut nowhere = 0;
        while let Some(frame) = self.outbox(interface)?.pop_front() {
            let written = match frame {
                Outgoing::Arp(arp) => self.emit_arp(interface, &arp, header),
                Outgoing::Ndp(out) => self.emit_ndp(interface, &out, header),
                Outgoing::Packet(packet) => self.emit_packet(now, &packet, header),
            };
            if written.is_some() {
                return written;
            }
        }
        loop {
            if nowhere == NOWHERE_PER_CALL {
                self.cut_short.push((interface, now));
                return None;
            }
            let ready = self.tcp.next_ready(interface)?;
            // As the kernel does, nothing is sent from an address that is not ours any more.
            let is_ours = self.routes.is_own(ready.local);
            let back = self.routes.lookup_back(interface, ready.remote);
            let Some(route) = back.filter(|_| is_ours) else {
                self.tcp.unreachable(now, ready.handle, TcpError::NetUnreachable);
                nowhere += 1;
                continue;
            };
            let requester = if ready.is_strangers { Requester::Remote } else { Requester::Local };
            match self.link_address(now, route.interface, route.next_hop, requester) {
                Resolution::Known(mac) => {
                    let path = self.path_mtus.towards(now, ready.remote, route.mtu);
                    let Route { metrics, mtu: link, .. } = route;
                    let is_cut = self.path_mtus.is_cut(now, ready.remote);
                    let mtu = Some(PathMtu { link, path, is_cut, metrics });
                    let l4_start = ethernet::HEADER_LEN + ip_header_len(ready.remote);
                    let Some(room) = header.get_mut(l4_start..) else { continue };
                    let Some(segment) = self.tcp.emit(now, ready.handle, mtu, room) else {
                        continue;
                    };
                    let ttl = segment.ttl.or(metrics.hops());
                    let segment = SegmentTx { ttl, ..segment };
                    if let Some(frame) = self.finish_segment(interface, mac, &segment, header) {
                        return Some(frame);
                    }
                }
                Resolution::Wait | Resolution::Ask(..) => self.tcp.park(ready.handle, true),
                Resolution::Full => self.tcp.park(ready.handle, false),
                Resolution::Failed => {
                    self.tcp.unreachable(now, ready.handle, TcpError::HostUnreachable);
                    nowhere += 1;
                }
            }
        }
    }

    /// Where to send for `next_hop`, which is asked for if need be.
    pub(super) fn link_address(
        &mut self,
        now: Instant,
        interface: InterfaceIndex,
        next_hop: IpAddr,
        requester: Requester,
    ) -> Resolution {
        if interface == InterfaceIndex::LOOPBACK {
            return Resolution::Known(MacAddr::ZERO);
        }
        match next_hop {
            IpAddr::V4(group) if group.is_multicast() => {
                return Resolution::Known(MacAddr::of_multicast_v4(group));
            }
            IpAddr::V6(group) if group.is_multicast() => {
                return Resolution::Known(MacAddr::of_multicast_v6(group));
            }
            _ => {}
        }
        let resolution = self.neighbors.resolve(now, interface, next_hop, requester);
        if let Resolution::Ask(slot, again) = resolution {
            self.counters.neighbor_evictions = self.neighbors.evictions();
            self.wheel.set(slot.saturating_add(self.reassembly_count), again);
            // Without a token the timer asks.
            if self.neighbor_requests.take(now) {
                self.ask(interface, next_hop, None);
            }
        }
        resolution
    }

    fn emit_arp(
        &mut self,
        interface: InterfaceIndex,
        arp: &ArpOut,
        header: &mut [u8; HEADER_MAX],
    ) -> Option<Transmit> {
        let mac = self.routes.interface(interface)?.mac;
        let ethernet =
            EthernetHeader { dst: arp.to, src: mac, vlan: None, ethertype: EtherType::ARP };
        let start = ethernet.emit(header).ok()?;
        let packet = ArpPacket {
            operation: if arp.is_reply { Operation::REPLY } else { Operation::REQUEST },
            sender_mac: mac,
            sender_ip: arp.sender,
            target_mac: arp.target_mac,
            target_ip: arp.target,
        };
        let len = packet.emit(header.get_mut(start..)?).ok()?;
        let counter = if arp.is_reply {
            &mut self.counters.arp_replies
        } else {
            &mut self.counters.arp_requests
        };
        *counter = counter.wrapping_add(1);
        Some(Transmit {
            header_bytes: (start + len) as u16,
            payload: Payload::None,
            checksum: None,
            gso_bytes: None,
            unsigned: false,
        })
    }

    fn emit_packet(
        &mut self,
        now: Instant,
        packet: &PacketOut,
        header: &mut [u8; HEADER_MAX],
    ) -> Option<Transmit> {
        let requester = if packet.socket.is_some() { Requester::Local } else { Requester::Remote };
        let mac = match self.link_address(now, packet.interface, packet.next_hop, requester) {
            Resolution::Known(mac) => mac,
            Resolution::Wait | Resolution::Full | Resolution::Ask(..) => {
                self.park(*packet);
                return None;
            }
            Resolution::Failed => {
                self.give_up_packet(*packet);
                return None;
            }
        };
        self.waiting.leave(packet);
        let (ip, len) = (&packet.ip, packet.len as usize);
        let options = packet.options.bytes();
        let hop = Hop { interface: packet.interface, to: mac };
        let after = AfterHeader { options, payload_len: len };
        let header_bytes = self.emit_ip(hop, ip, after, header);
        if header_bytes.is_none() {
            self.arena.give(packet.start, packet.len);
        }
        Some(Transmit {
            header_bytes: header_bytes?,
            payload: Payload::Own { start: packet.start, len: packet.len },
            checksum: None,
            gso_bytes: None,
            unsigned: false,
        })
    }

    /// Ethernet and IP headers, with options of IPv4; gives where layer 4 begins.
    fn emit_ip(
        &self,
        hop: Hop,
        ip: &IpOut,
        after: AfterHeader<'_>,
        header: &mut [u8; HEADER_MAX],
    ) -> Option<u16> {
        let Hop { interface, to } = hop;
        let AfterHeader { options, payload_len } = after;
        let mac = match interface {
            InterfaceIndex::LOOPBACK => MacAddr::ZERO,
            _ => self.routes.interface(interface)?.mac,
        };
        let ethertype = if ip.src.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let ethernet = EthernetHeader { dst: to, src: mac, vlan: None, ethertype };
        let start = ethernet.emit(header).ok()?;
        let room = header.get_mut(start..)?;
        let ttl = ip.ttl.unwrap_or_else(|| self.routes.hop_limit(interface, ip.dst));
        let len = match (ip.src, ip.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let (fragment_offset, more_fragments) = ip.fragment.unwrap_or_default();
                let ip = Ipv4Header {
                    tos: ip.tos,
                    identification: ip.identification as u16,
                    dont_fragment: !ip.may_cut,
                    more_fragments,
                    fragment_offset,
                    ttl,
                    protocol: ip.protocol,
                    src,
                    dst,
                };
                ip.emit_with_options(options, payload_len, room).ok()?
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let extra = if ip.fragment.is_some() { FRAGMENT_LEN } else { 0 };
                let next_header = match ip.fragment {
                    Some(_) => Protocol::FRAGMENT,
                    None => ip.protocol,
                };
                let (traffic_class, hop_limit) = (ip.tos, ttl);
                let fixed =
                    Ipv6Header { traffic_class, flow_label: 0, next_header, hop_limit, src, dst };
                let len = fixed.emit(payload_len + extra, room).ok()?;
                if let Some((offset, more)) = ip.fragment {
                    let (next_header, identification) = (ip.protocol, ip.identification);
                    let fragment = Fragment { next_header, offset, more, identification };
                    fragment.emit(room.get_mut(len..)?).ok()?;
                }
                len + extra
            }
            _ => return None,
        };
        Some((start + len) as u16)
    }

    /// Puts the lower headers before a segment's, and the pseudo-header sum into it.
    fn finish_segment(
        &mut self,
        interface: InterfaceIndex,
        to: MacAddr,
        segment: &SegmentTx,
        header: &mut [u8; HEADER_MAX],
    ) -> Option<Transmit> {
        let payload_len = match segment.payload {
            Payload::None => 0,
            Payload::Stream { len, .. } | Payload::Own { len, .. } => len,
        };
        let tcp_len = u32::from(segment.header_bytes).checked_add(payload_len)?;
        let (src, dst, protocol) = (segment.local, segment.remote, Protocol::TCP);
        let (tos, ttl, may_cut) = (segment.tos, segment.ttl, !segment.dont_fragment);
        let packets = packets_of(payload_len, segment.gso_bytes);
        let identification = if may_cut { self.identifications(src, dst, packets) } else { 0 };
        let fragment = None;
        let ip = IpOut { src, dst, protocol, tos, ttl, identification, may_cut, fragment };
        let l4 = self.emit_ip(Hop { interface, to }, &ip, AfterHeader::payload(tcp_len), header)?;
        let sum = Sum::pseudo(src, dst, protocol, tcp_len)?.folded();
        put_sum(header, usize::from(l4) + TCP_CHECKSUM, sum)?;
        Some(Transmit {
            header_bytes: l4.checked_add(segment.header_bytes)?,
            payload: segment.payload,
            checksum: Some((l4, TCP_CHECKSUM as u16)),
            gso_bytes: segment.gso_bytes,
            unsigned: segment.unsigned,
        })
    }

    /// Writes the headers of a datagram, which the caller emits at once with its payload. When it
    /// does not fit the MTU this is the first fragment, [`UdpFrame::more`] leads to the others,
    /// and the sum of the whole payload is asked for.
    /// Several datagrams at once ([`UdpSend::gso_bytes`]) are one frame where the port cuts, else
    /// a call for each.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no UDP socket; [`RequestError::State`] without a
    /// remote; [`RequestError::NoRoute`] without a route of its family;
    /// [`RequestError::AddressNotAvailable`] if it cannot be sent from the wanted address;
    /// [`RequestError::TooLong`] if it is longer than a datagram can be, or than the MTU where it
    /// must not be cut; [`RequestError::WaitNeighbor`] and [`RequestError::HostUnreachable`] if its
    /// next hop is being asked for, or does not answer: [`udp_keep`](Self::udp_keep) takes it and
    /// tells its socket; [`RequestError::Behind`] if others that waited go first, with
    /// [`poll_transmit`](Self::poll_transmit).
    pub fn udp_transmit(
        &mut self,
        now: Instant,
        id: SocketId,
        send: &UdpSend,
        out: UdpOut<'_, impl FnOnce() -> u16>,
    ) -> Result<UdpFrame, RequestError> {
        let UdpOut { header, payload_sum } = out;
        let plan = self.plan_udp(now, id, send)?;
        let UdpPlan { src, dst, route, mtu, room, left, piece, longest, .. } = plan;
        let UdpPlan { to_all, is_group, comes_back, tos, ttl, may_cut, .. } = plan;
        let cuts = route.interface == InterfaceIndex::LOOPBACK
            || self.routes.interface(route.interface).is_some_and(|i| i.uso);
        //= https://www.rfc-editor.org/rfc/rfc8200#section-8.1
        //# whenever originating a UDP packet, an IPv6 node must compute a UDP checksum over the
        //# packet and the pseudo-header
        let whole = cuts && !send.no_checksum;
        // Here and now: everything that is left, or one piece of it.
        let len = if whole { left } else { longest };
        let next = (len < left).then_some(send.offset + len);
        let gso_bytes = send.gso_bytes.filter(|_| piece.is_some() && whole);
        let resolution = match to_all {
            true if send.comes_back => Resolution::Known(looped(plan.link)),
            true if !is_group => Resolution::Known(MacAddr::BROADCAST),
            _ => self.link_address(now, route.interface, route.next_hop, Requester::Local),
        };
        let mac = match resolution {
            Resolution::Known(_) if self.waiting.has(route.interface, route.next_hop) => {
                return Err(RequestError::Behind);
            }
            Resolution::Known(mac) => mac,
            Resolution::Wait | Resolution::Full | Resolution::Ask(..) => {
                return Err(RequestError::WaitNeighbor);
            }
            Resolution::Failed => return Err(RequestError::HostUnreachable),
        };
        self.counters.udp_sent = self.counters.udp_sent.wrapping_add(1);
        let udp_len = len + udp::HEADER_LEN as u32;
        let mut udp_header = UdpHeader {
            src_port: plan.local_port,
            dst_port: plan.remote_port,
            len: udp_len as u16,
            checksum: 0,
        };
        let hop = Hop { interface: route.interface, to: mac };
        let protocol = Protocol::UDP;
        let pseudo = Sum::pseudo(src, dst, protocol, udp_len).ok_or(RequestError::NoRoute)?;
        let fragment = None;
        let is_whole = gso_bytes.is_some() || len <= room;
        let identification = match may_cut || !is_whole {
            true => self.identifications(src, dst, packets_of(len, gso_bytes)),
            false => 0,
        };
        let ip = IpOut { src, dst, protocol, tos, ttl, identification, may_cut, fragment };
        if is_whole {
            udp_header.checksum = if send.no_checksum { 0 } else { pseudo.folded() };
            let l4 = self
                .emit_udp(hop, &ip, &Datagram { header: udp_header, len: udp_len }, header)
                .ok_or(RequestError::TooLong)?;
            return Ok(UdpFrame {
                interface: route.interface,
                header_bytes: l4 + udp::HEADER_LEN as u16,
                offset: send.offset,
                len,
                checksum: (!send.no_checksum).then_some((l4, UDP_CHECKSUM as u16)),
                gso_bytes,
                more: None,
                next,
                comes_back,
            });
        }
        let mut plain = [0; udp::HEADER_LEN];
        udp_header.emit(&mut plain).map_err(|_| RequestError::TooLong)?;
        if !send.no_checksum {
            let payload = Sum::of_known(payload_sum(), send.payload_len as usize);
            udp_header.checksum = pseudo.then(Sum::of(&plain)).then(payload).finish_udp();
        }
        let first = fragment_room(mtu, dst);
        let ip = IpOut { fragment: Some((0, true)), may_cut: true, ..ip };
        let l4 = self
            .emit_udp(hop, &ip, &Datagram { header: udp_header, len: first }, header)
            .ok_or(RequestError::TooLong)?;
        let len = first - udp::HEADER_LEN as u32;
        Ok(UdpFrame {
            interface: route.interface,
            header_bytes: l4 + udp::HEADER_LEN as u16,
            offset: 0,
            len,
            checksum: None,
            gso_bytes: None,
            more: Some(UdpFragments {
                interface: route.interface,
                destination_mac: mac,
                source: src,
                destination: dst,
                identification,
                mtu,
                tos,
                ttl,
                next: len,
                payload_len: send.payload_len,
            }),
            next: None,
            comes_back,
        })
    }

    /// What is settled of a datagram before its next hop is looked for.
    pub(super) fn plan_udp(
        &self,
        now: Instant,
        id: SocketId,
        send: &UdpSend,
    ) -> Result<UdpPlan, RequestError> {
        let socket = *self.udp.socket(id)?;
        let remote = send.remote.map(canonical).or(socket.remote).ok_or(RequestError::State)?;
        let is_group = remote.ip().is_multicast();
        let (route, to_all) = match self.routes.lookup(remote.ip()).filter(|_| !is_group) {
            Some(route) => (route, false),
            None => {
                let many = match is_group {
                    true => self.routes.lookup_group(send.interface, remote.ip()),
                    false => self.routes.lookup_broadcast(remote.ip()),
                };
                (many.ok_or(RequestError::NoRoute)?, true)
            }
        };
        let dst = remote.ip();
        // Connected over the other version of IP, a socket that is bound to no address has none of this one.
        let own = match socket.local.is_ipv4() == dst.is_ipv4() {
            true => socket.local,
            false => socket.bound,
        };
        let src = self.udp_source(&own, send.local, route.source)?;
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(RequestError::NoRoute);
        }
        let comes_back = to_all && (!is_group || self.hears_group(route.interface, dst, src));
        let (link, mut route) = (route.interface, route);
        if send.comes_back && to_all {
            (route.interface, route.mtu) = (InterfaceIndex::LOOPBACK, LOOPBACK_MTU);
        }
        if send.payload_len > UDP_PAYLOAD_MAX[usize::from(dst.is_ipv6())] {
            return Err(RequestError::TooLong);
        }
        let headers = (ip_header_len(dst) + udp::HEADER_LEN) as u32;
        let cut = send.cut;
        let mtu = match dst {
            // Routers cut what is too long for them over IPv4.
            IpAddr::V4(_) if !cut.not_routers => route.mtu,
            _ if cut.by_link => route.mtu,
            _ => self.path_mtus.towards(now, dst, route.mtu),
        };
        let room = u32::from(mtu).saturating_sub(headers);
        let left = send.payload_len.checked_sub(send.offset).ok_or(RequestError::TooLong)?;
        let piece = send.gso_bytes.map(u32::from).filter(|piece| *piece < left);
        let longest = piece.unwrap_or(left);
        if (cut.not_us || piece.is_some()) && longest > room || piece == Some(0) {
            return Err(RequestError::TooLong);
        }
        let heeds_routers = !cut.not_us && !cut.by_link;
        Ok(UdpPlan {
            local_port: socket.local.port(),
            remote_port: remote.port(),
            src,
            dst,
            route,
            link,
            to_all,
            is_group,
            comes_back,
            mtu,
            room,
            left,
            piece,
            longest,
            tos: send.tos.unwrap_or(0),
            ttl: send.ttl.or(is_group.then_some(1)).or(route.metrics.hops()),
            may_cut: !cut.not_routers || heeds_routers && self.path_mtus.is_cut(now, dst),
        })
    }

    /// Writes the headers of the next fragment. `None` when the interface is gone.
    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
    //# The lengths of the fragments must be chosen such that the resulting fragment packets fit
    //# within the MTU of the path to the packet's destination(s).
    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
    //# Fragments must not be created that overlap with any other fragments created from the
    //# original packet.
    //= https://www.rfc-editor.org/rfc/rfc5722#section-4
    //# IPv6 nodes transmitting datagrams that need to be fragmented MUST NOT create overlapping
    //# fragments.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.3
    //# A host MUST implement a mechanism to allow the transport layer to learn MMS_S, the maximum
    //# transport-layer message size that may be sent for a given {source, destination, TOS} triplet
    //# (see GET_MAXSIZES call in Section 3.4).
    pub fn udp_fragment(
        &mut self,
        rest: UdpFragments,
        header: &mut [u8; HEADER_MAX],
    ) -> Option<UdpFrame> {
        let left = rest.payload_len.checked_sub(rest.next)?;
        let len = left.min(fragment_room(rest.mtu, rest.destination));
        let offset = u16::try_from(rest.next + udp::HEADER_LEN as u32).ok()?;
        let ip = IpOut {
            src: rest.source,
            dst: rest.destination,
            protocol: Protocol::UDP,
            tos: rest.tos,
            ttl: rest.ttl,
            identification: rest.identification,
            may_cut: true,
            fragment: Some((offset, len < left)),
        };
        let hop = Hop { interface: rest.interface, to: rest.destination_mac };
        let header_bytes = self.emit_ip(hop, &ip, AfterHeader::payload(len), header)?;
        let next = rest.next + len;
        Some(UdpFrame {
            interface: rest.interface,
            header_bytes,
            offset: rest.next,
            len,
            checksum: None,
            gso_bytes: None,
            more: (len < left).then_some(UdpFragments { next, ..rest }),
            next: None,
            comes_back: false,
        })
    }

    /// The address a datagram comes from: the one asked for, the socket's, or the route's. A group
    /// that a socket is bound to is where it hears, and nobody's address (as Linux's inet_bind).
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.3
    //# When a host sends any datagram, the IP source address MUST be one of its own IP addresses
    //# (but not a broadcast or multicast address).
    //= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.3.6
    //# When a host sends a UDP datagram, the source address MUST be (one of) the IP address(es) of
    //# the host.
    fn udp_source(
        &self,
        bound: &SocketAddr,
        asked: Option<IpAddr>,
        route: IpAddr,
    ) -> Result<IpAddr, RequestError> {
        match asked.map(|ip| ip.to_canonical()).filter(|ip| !ip.is_unspecified()) {
            None if bound.ip().is_unspecified() || bound.ip().is_multicast() => Ok(route),
            None => Ok(bound.ip()),
            Some(ip) if self.routes.is_own(ip) => Ok(ip),
            Some(_) => Err(RequestError::AddressNotAvailable),
        }
    }

    /// Ethernet, IP and UDP headers; gives where UDP begins.
    fn emit_udp(
        &self,
        hop: Hop,
        ip: &IpOut,
        datagram: &Datagram,
        header: &mut [u8; HEADER_MAX],
    ) -> Option<u16> {
        let l4 = self.emit_ip(hop, ip, AfterHeader::payload(datagram.len), header)?;
        datagram.header.emit(header.get_mut(usize::from(l4)..)?).ok()?;
        Some(l4)
    }

    /// Queues a packet, in fragments if need be: routers cut nothing over IPv6, and are to be told
    /// nothing twice. `parts` are the bytes of its payload; it goes out through `interface` where the
    /// destination is valid there alone.
    pub(super) fn send_packet(
        &mut self,
        egress: Egress,
        ip: &IpOut,
        options: &Options,
        parts: [&[u8]; 2],
    ) -> Option<()> {
        let Egress { now, interface } = egress;
        let route = match ip.dst.is_multicast() {
            true => self.routes.way_to_group(interface, ip.dst)?,
            false => self.routes.lookup_back(interface, ip.dst)?,
        };
        let mtu = match ip.dst {
            IpAddr::V4(_) => route.mtu,
            IpAddr::V6(_) => self.path_mtus.towards(now, ip.dst, route.mtu),
        };
        let path = TxPath { route, mtu, socket: None, waits: false };
        self.queue_packet(&path, ip, options, parts)
    }

    /// The same over a known path.
    pub(super) fn queue_packet(
        &mut self,
        path: &TxPath,
        ip: &IpOut,
        options: &Options,
        parts: [&[u8]; 2],
    ) -> Option<()> {
        let TxPath { route, socket, waits, .. } = *path;
        let (interface, next_hop) = (route.interface, route.next_hop);
        let ttl = ip.ttl.or(route.metrics.hops());
        let total: usize = parts.iter().map(|p| p.len()).sum();
        let mtu = path.mtu.saturating_sub(options.len() as u16);
        let whole = usize::from(mtu).saturating_sub(ip_header_len(ip.dst));
        let is_cut = total > whole;
        let piece = if is_cut { fragment_room(mtu, ip.dst) as usize } else { whole };
        let identification = match socket {
            Some(_) => ip.identification,
            None => self.identifications(ip.src, ip.dst, 1),
        };
        let mut sent = 0;
        while sent < total {
            let len = piece.min(total - sent);
            let Some((start, bytes)) = self.arena.take(len) else {
                self.take_back(interface, if waits { 0 } else { sent.div_ceil(piece) });
                return None;
            };
            copy_range(&parts, sent, bytes);
            let offset = u16::try_from(sent).ok()?;
            let fragment = is_cut.then_some((offset, sent + len < total));
            let ip = IpOut { identification, fragment, ttl, ..*ip };
            let options = if offset == 0 { *options } else { options.of_later_fragments() };
            let (len_u32, is_counted) = (len as u32, false);
            let packet = PacketOut {
                interface,
                next_hop,
                ip,
                options,
                start,
                len: len_u32,
                socket,
                is_counted,
            };
            if waits {
                self.park(packet);
            } else if !self.push_out(interface, Outgoing::Packet(packet)) {
                self.arena.give(start, len_u32);
                self.take_back(interface, sent.div_ceil(piece));
                return None;
            }
            sent += len;
        }
        Some(())
    }

    /// Takes the last `count` packets of an interface's queue back.
    fn take_back(&mut self, interface: InterfaceIndex, count: usize) {
        for _ in 0..count {
            let last = self.outbox(interface).and_then(|outbox| outbox.pop_back());
            if let Some(Outgoing::Packet(packet)) = last {
                self.arena.give(packet.start, packet.len);
            }
        }
    }
}

/// Most payload of a fragment to this address, a multiple of 8.
fn fragment_room(mtu: u16, to: IpAddr) -> u32 {
    let extra = if to.is_ipv4() { 0 } else { FRAGMENT_LEN };
    u32::from(mtu).saturating_sub((ip_header_len(to) + extra) as u32) & !7
}

/// Copies bytes `from ..` of the concatenated parts, as many as `to` takes.
fn copy_range(parts: &[&[u8]], mut from: usize, mut to: &mut [u8]) {
    for part in parts {
        let Some(rest) = part.get(from..) else {
            from -= part.len();
            continue;
        };
        from = 0;
        let len = rest.len().min(to.len());
        let (head, tail) = to.split_at_mut(len);
        head.copy_from_slice(&rest[..len]);
        to = tail;
    }
}

fn put_sum(header: &mut [u8], at: usize, sum: u16) -> Option<()> {
    *header.get_mut(at..)?.first_chunk_mut::<2>()? = sum.to_be_bytes();
    Some(())
}

/// How many packets a frame is cut into.
fn packets_of(len: u32, gso_bytes: Option<u16>) -> u32 {
    gso_bytes.map_or(1, |each| len.div_ceil(u32::from(each.max(1))).max(1))
}
