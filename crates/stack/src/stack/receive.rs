//! What comes in: Ethernet, ARP, IPv4, ICMP, and the way to TCP and UDP. IPv6 joins behind its
//! headers.

use std::net::{IpAddr, SocketAddr};

use wire::arp::{self, Operation};
use wire::checksum::{self, Sum};
use wire::ethernet::{self, EtherType};
use wire::icmp::{self, IcmpMessage, unreachable};
use wire::ipv4::{self, Ipv4Header, Protocol};
use wire::tcp::CHECKSUM_OFFSET as TCP_CHECKSUM;
use wire::udp::{self, CHECKSUM_OFFSET as UDP_CHECKSUM};
use wire::{MacAddr, Malformed};

use super::errors::{Quoted, Told};
use super::{ArpOut, IpOut, Outgoing, Stack};
use crate::api::*;
use crate::drops::DropReason;
use crate::reassembly::{Piece, Progress, Whole};
use crate::route::is_unicast;
use crate::tcp::{IcmpError, SegmentRx};

/// How long the fragments of a datagram may take, as Linux has it (RFC 1122, section 3.3.2,
/// wants 60 to 120 s, which gives an attacker more of our buffers).
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.2
//# There MUST be a reassembly timeout.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.2
//# The reassembly timeout value SHOULD be a fixed value, not set from the remaining TTL.
const REASSEMBLY_NS: u64 = 30_000_000_000;
/// Bytes of the offending packet's payload that an ICMP error quotes: with it the error is at
/// most 576 bytes (RFC 1812, section 4.3.2.3).
const QUOTED_MAX: usize = 576 - 20 - 8 - 20;

/// What is known of a packet from the layers below.
#[derive(Clone, Copy)]
pub(super) struct Below {
    pub interface: InterfaceIndex,
    /// Who sent the frame.
    pub link_source: MacAddr,
    /// It came to everybody on the link, or to a group.
    pub is_broadcast: bool,
    pub checksum: RxChecksum,
    pub gso_bytes: Option<u16>,
    /// Where layer 4 begins in the frame, as the vnet header counts.
    pub l4_start: usize,
}

impl Below {
    /// Of a packet whose last fragment this is about: what the port says is about that one alone.
    pub fn reassembled(self) -> Self {
        Self { checksum: RxChecksum::Unknown, gso_bytes: None, ..self }
    }
}

/// What the IP header of a packet says, whatever its family.
#[derive(Clone, Copy)]
pub(super) struct Ip {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub protocol: Protocol,
    pub tos: u8,
    pub ttl: u8,
}

impl Stack {
    /// Takes a received frame. Whatever is wrong with it ends in a counter. Payload goes to
    /// `sink` before the call returns.
    pub fn on_frame<S: Sink>(
        &mut self,
        now: Instant,
        interface: InterfaceIndex,
        frame: &[u8],
        meta: RxFrameMeta,
        sink: &mut S,
    ) {
        self.counters.rx_frames = self.counters.rx_frames.wrapping_add(1);
        if let Err(reason) = self.on_ethernet(now, interface, frame, meta, sink) {
            //= https://www.rfc-editor.org/rfc/rfc1122#section-3.1
            //# However, for diagnosis of problems a host SHOULD provide the capability of logging
            //# the error (see Section 1.2.3), including the contents of the silently-discarded
            //# datagram, and SHOULD record the event in a statistics counter.
            self.counters.drop(reason);
        }
    }

    fn on_ethernet<S: Sink>(
        &mut self,
        now: Instant,
        interface: InterfaceIndex,
        frame: &[u8],
        meta: RxFrameMeta,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let (header, packet) = ethernet::parse(frame).map_err(|_| DropReason::FrameMalformed)?;
        if interface != InterfaceIndex::LOOPBACK {
            let own = self.routes.interface(interface).ok_or(DropReason::UnknownInterface)?.mac;
            // Of IPv6's groups it is said below which are listened to.
            let is_group = header.ethertype == EtherType::IPV6 && header.dst.is_multicast();
            if header.dst != own && !header.dst.is_broadcast() && !is_group {
                return Err(DropReason::NotForUs);
            }
            if !header.src.is_unicast() {
                return Err(DropReason::FrameMalformed);
            }
        }
        // Identifier 0 only carries a priority (IEEE 802.1Q, section 9.6).
        if header.vlan.is_some_and(|tag| tag.id() != 0) {
            return Err(DropReason::VlanNotServed);
        }
        let below = Below {
            interface,
            link_source: header.src,
            //= https://www.rfc-editor.org/rfc/rfc1122#section-2.4
            //# The packet receive interface between the IP layer and the link layer MUST include a
            //# flag to indicate whether the incoming packet was addressed to a link-layer broadcast
            //# address.
            is_broadcast: header.dst.is_multicast(),
            checksum: meta.checksum,
            gso_bytes: meta.gso_bytes,
            l4_start: header.header_len(),
        };
        match header.ethertype {
            EtherType::IPV4 => self.on_ipv4(now, below, packet, sink),
            EtherType::ARP => self.on_arp(now, interface, packet),
            EtherType::IPV6 => self.on_ipv6(now, below, packet, sink),
            _ => Err(DropReason::EtherTypeNotServed),
        }
    }

    /// RFC 826, "Packet Reception", with entries made only for those who ask for us.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-2.3.3
    //# Address translation from Internet addresses to link-layer addresses on Ethernet and IEEE 802
    //# networks MUST be managed by the Address Resolution Protocol (ARP).
    fn on_arp(
        &mut self,
        now: Instant,
        interface: InterfaceIndex,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let packet = arp::parse(bytes).map_err(|_| DropReason::ArpMalformed)?;
        let is_request = packet.operation == Operation::REQUEST;
        if !packet.sender_mac.is_unicast() || !(is_request || packet.operation == Operation::REPLY)
        {
            return Err(DropReason::ArpMalformed);
        }
        let config = self.routes.interface(interface).ok_or(DropReason::ArpNotForUs)?;
        let is_own = |ip| config.addresses.iter().any(|c| c.address == IpAddr::V4(ip));
        if packet.sender_mac == config.mac {
            return Err(DropReason::ArpNotForUs);
        }
        if is_own(packet.sender_ip) {
            return Err(DropReason::ArpConflict);
        }
        let asks_us = is_request && is_own(packet.target_ip);
        // A sender of 0.0.0.0 probes for a free address (RFC 5227): answered, not learnt.
        let is_probe = packet.sender_ip.is_unspecified();
        let is_host = is_unicast(IpAddr::V4(packet.sender_ip))
            && !self.routes.is_broadcast(IpAddr::V4(packet.sender_ip));
        if !is_probe && !is_host {
            return Err(DropReason::ArpMalformed);
        }
        let learnt = (!is_probe)
            .then(|| {
                let (from, mac) = (packet.sender_ip, packet.sender_mac);
                self.neighbors.learn(now, interface, from.into(), mac, asks_us)
            })
            .flatten();
        self.note_neighbor(learnt);
        if asks_us {
            let reply = ArpOut {
                is_reply: true,
                to: packet.sender_mac,
                sender: packet.target_ip,
                target_mac: packet.sender_mac,
                target: packet.sender_ip,
            };
            self.push_out(interface, Outgoing::Arp(reply));
            return Ok(());
        }
        if learnt.is_none() { Err(DropReason::ArpNotForUs) } else { Ok(()) }
    }

    fn on_ipv4<S: Sink>(
        &mut self,
        now: Instant,
        below: Below,
        bytes: &[u8],
        sink: &mut S,
    ) -> Result<(), DropReason> {
        //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.1
        //# A datagram whose version number is not 4 MUST be silently discarded.
        //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.2
        //# A host MUST verify the IP header checksum on every received datagram and silently
        //# discard every datagram that has a bad checksum.
        let packet = ipv4::parse(bytes).map_err(|error| match error {
            Malformed::Checksum => DropReason::IpChecksum,
            _ => DropReason::IpMalformed,
        })?;
        let header = packet.header;
        let (src, dst) = (IpAddr::V4(header.src), IpAddr::V4(header.dst));
        let from_ourselves = below.interface == InterfaceIndex::LOOPBACK;
        // RFC 1122, section 3.2.1.3: no host has such a source; and nobody else has ours.
        //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.3
        //# A host MUST silently discard an incoming datagram containing an IP source address that
        //# is invalid by the rules of this section.
        if !is_unicast(src)
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
            //# An incoming SYN with an invalid source address MUST be ignored either by TCP or by
            //# the IP layer [(MUST-63)] (see Section 3.2.1.3).
            || self.routes.is_broadcast(src)
            || self.routes.is_own(src) != from_ourselves
        {
            return Err(DropReason::IpSource);
        }
        let to_all = !self.routes.is_own(dst);
        //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.3
        //# A host MUST silently discard an incoming datagram that is not destined for the host.
        if to_all && !self.routes.is_broadcast(dst) {
            return Err(DropReason::IpDestination);
        }
        if has_source_route(packet.options) {
            return Err(DropReason::IpOptions);
        }
        let below = Below {
            is_broadcast: below.is_broadcast || to_all,
            l4_start: below.l4_start + ipv4::HEADER_LEN + packet.options.len(),
            ..below
        };
        //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.7
        //# A host MUST NOT discard a datagram just because it was received with TTL less than 2.
        let Ipv4Header { protocol, tos, ttl, .. } = header;
        let ip = Ip { src, dst, protocol, tos, ttl };
        if !header.is_fragment() {
            return self.on_payload(now, below, &ip, packet.payload, sink);
        }
        let within = REASSEMBLY_NS;
        let piece = Piece::v4(&header);
        let Some(whole) = self.reassemble(now, &piece, packet.payload, within)? else {
            return Ok(());
        };
        let ip = Ip { tos: ip.tos & !3 | whole.ecn, ..ip };
        let result = self.on_payload(now, below.reassembled(), &ip, &whole.bytes, sink);
        self.reassembly.give(whole);
        result
    }

    /// A fragment, whose packet has `within` from its first one on; the packet when it is whole.
    pub(super) fn reassemble(
        &mut self,
        now: Instant,
        piece: &Piece,
        payload: &[u8],
        within: u64,
    ) -> Result<Option<Whole>, DropReason> {
        match self.reassembly.on_fragment(piece, payload)? {
            Progress::Waiting => Ok(None),
            Progress::Started(slot) => {
                self.wheel.set(slot, Instant(now.0.saturating_add(within)));
                Ok(None)
            }
            Progress::Complete(slot) => {
                self.wheel.cancel(slot);
                self.counters.reassembled = self.counters.reassembled.wrapping_add(1);
                Ok(Some(self.reassembly.take(slot)))
            }
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.1
    //# The Internet layer of host software MUST implement both IP and ICMP.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2
    //# In those cases where the Internet layer is required to pass an ICMP error message to the
    //# transport layer, the IP protocol number MUST be extracted from the original header and used
    //# to select the appropriate transport protocol entity to handle the error.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.4
    //# The IP layer MUST pass certain ICMP messages up to the appropriate transport-layer routine.
    pub(super) fn on_payload<S: Sink>(
        &mut self,
        now: Instant,
        below: Below,
        ip: &Ip,
        payload: &[u8],
        sink: &mut S,
    ) -> Result<(), DropReason> {
        match (ip.protocol, ip.src, ip.dst) {
            (Protocol::TCP, ..) => {
                // RFC 1122, section 4.2.3.10.
                //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
                //# A TCP implementation MUST silently discard an incoming SYN segment that is
                //# addressed to a broadcast or multicast address [(MUST-57)].
                if below.is_broadcast {
                    return Err(DropReason::IpDestination);
                }
                check_sum(&below, ip, payload, TCP_CHECKSUM, DropReason::TcpChecksum)?;
                let rx = SegmentRx {
                    local: ip.dst,
                    remote: ip.src,
                    interface: below.interface,
                    tos: ip.tos,
                    ttl: ip.ttl,
                    gso_bytes: below.gso_bytes,
                };
                self.tcp.on_segment(now, &rx, payload, &self.routes, sink)
            }
            (Protocol::UDP, ..) => self.on_udp(now, below, ip, payload, sink),
            (Protocol::ICMP, IpAddr::V4(_), _) => self.on_icmp(now, below, ip, payload, sink),
            (Protocol::ICMPV6, IpAddr::V6(src), IpAddr::V6(dst)) => {
                self.on_icmpv6(now, &below, ip, (src, dst), payload, sink)
            }
            _ => Err(DropReason::ProtocolNotServed),
        }
    }

    fn on_udp<S: Sink>(
        &mut self,
        now: Instant,
        below: Below,
        ip: &Ip,
        bytes: &[u8],
        sink: &mut S,
    ) -> Result<(), DropReason> {
        // A coalesced frame may tell the length of a piece; the packet's length rules there.
        let parsed = match below.gso_bytes {
            Some(_) => udp::parse_header(bytes),
            None => udp::parse(bytes),
        };
        let (udp_header, payload) = parsed.map_err(|_| DropReason::UdpMalformed)?;
        let is_unsummed = udp_header.checksum == 0 && below.checksum == RxChecksum::Unknown;
        if !is_unsummed {
            let covered = udp::HEADER_LEN + payload.len();
            let covered = bytes.get(..covered).unwrap_or(bytes);
            //= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.3.4
            //# A host MUST implement the facility to generate and validate UDP checksums.
            //= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.3.4
            //# If a UDP datagram is received with a checksum that is non-zero and invalid, UDP MUST
            //# silently discard the datagram.
            check_sum(&below, ip, covered, UDP_CHECKSUM, DropReason::UdpChecksum)?;
        }
        let local = SocketAddr::new(ip.dst, udp_header.dst_port);
        let remote = SocketAddr::new(ip.src, udp_header.src_port);
        let found = self.udp.find(local, remote);
        if is_unsummed && ip.src.is_ipv6() {
            //= https://www.rfc-editor.org/rfc/rfc8200#section-8.1
            //# IPv6 receivers must discard UDP packets containing a zero checksum
            //# and should log the error.
            let socket = found.and_then(|(id, _)| self.udp.socket(id).ok());
            if !socket.is_some_and(|socket| socket.options.no_check6) {
                return Err(DropReason::UdpChecksum);
            }
        }
        let Some((id, owner)) = found else {
            //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2
            //# An ICMP error message MUST NOT be sent as the result of receiving:
            if !below.is_broadcast {
                self.refuse_datagram(now, &below, ip, bytes);
            }
            return Err(DropReason::UdpNoSocket);
        };
        //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.6
        //# The IP layer SHOULD pass received TOS values up to the transport layer.
        //= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.3.5
        //# When a UDP datagram is received, its specific-destination address MUST be passed up to
        //# the application layer.
        //= https://www.rfc-editor.org/rfc/rfc1122#section-3.4
        //# Since this may be a broadcast or multicast address, the SpecDest parameter (not shown in
        //# RFC-791) MUST be passed.
        let meta = DatagramMeta {
            remote,
            local,
            interface: below.interface,
            tos: ip.tos,
            ttl: ip.ttl,
            gso_bytes: below.gso_bytes,
        };
        if !sink.datagram(id, owner, &meta, payload) {
            return Err(DropReason::UdpNoRoom);
        }
        self.counters.udp_received = self.counters.udp_received.wrapping_add(1);
        Ok(())
    }

    /// Answers a datagram to a closed port (RFC 1122, section 4.1.3.1), within the allowance.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2
    //# Every ICMP error message includes the Internet header and at least the first 8 data octets
    //# of the datagram that triggered the error; more than 8 octets MAY be sent; this header and
    //# data MUST be unchanged from the received datagram.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2
    //# An ICMP error message SHOULD be sent with normal (i.e., zero) TOS bits.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.1
    //# A host SHOULD generate Destination Unreachable messages with code:
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.8
    //# Wherever practical, hosts MUST return ICMP error datagrams on detection of an error, except
    //# in those cases where returning an ICMP error message is specifically prohibited.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.3.1
    //# If a datagram arrives addressed to a UDP port for which there is no pending LISTEN call, UDP
    //# SHOULD send an ICMP Port Unreachable message.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.4
    //# The transport layer MUST be able to send certain ICMP messages: Port Unreachable or any of
    //# the query-type messages.
    fn refuse_datagram(&mut self, now: Instant, below: &Below, ip: &Ip, payload: &[u8]) {
        let (src, dst) = match (ip.src, ip.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => (src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                return self.refuse_datagram_v6(now, below.interface, ip, (src, dst), payload);
            }
            _ => return,
        };
        let Ip { protocol, tos, ttl, .. } = *ip;
        let header = Ipv4Header { protocol, tos, ttl, src, dst, ..Ipv4Header::default() };
        let mut quoted = [0; ipv4::HEADER_LEN];
        if !self.unreachables.take(now) || header.emit(payload.len(), &mut quoted).is_err() {
            self.counters.drop(DropReason::ReplyLimit);
            return;
        }
        let payload = payload.get(..QUOTED_MAX).unwrap_or(payload);
        let mut head = [0; icmp::HEADER_LEN + ipv4::HEADER_LEN];
        let message =
            IcmpMessage::Unreachable { code: unreachable::PORT, next_hop_mtu: 0, quoted: &quoted };
        if message.emit(&mut head).is_err() {
            return;
        }
        // The sum so far leaves out the quoted payload.
        head[2..4].fill(0);
        let sum = Sum::of(&head).then(Sum::of(payload)).finish();
        head[2..4].copy_from_slice(&sum.to_be_bytes());
        match self.answer_icmp(below.interface, ip, 0, [&head, payload]) {
            Some(()) => self.counters.unreachables = self.counters.unreachables.wrapping_add(1),
            None => self.counters.drop(DropReason::ReplyLimit),
        }
    }

    /// Sends an ICMP message back to where `ip` came from.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.4.2
    //# (1) If the datagram is sent in response to a received datagram, the source address for the
    //# response SHOULD be the specific-destination address of the request.
    fn answer_icmp(
        &mut self,
        interface: InterfaceIndex,
        ip: &Ip,
        tos: u8,
        parts: [&[u8]; 2],
    ) -> Option<()> {
        let (src, dst) = (ip.dst, ip.src);
        let protocol = Protocol::ICMP;
        let (ttl, identification, may_cut, fragment) = (64, 0, true, None);
        let ip = IpOut { src, dst, protocol, tos, ttl, identification, may_cut, fragment };
        self.send_packet(interface, &ip, parts)
    }

    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2
    //# If an ICMP message of unknown type is received, it MUST be silently discarded.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.1
    //# A Destination Unreachable message that is received MUST be reported to the transport layer.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.4
    //# An incoming Time Exceeded message MUST be passed to the transport layer.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.5
    //# An incoming Parameter Problem message MUST be passed to the transport layer, and it MAY be
    //# reported to the user.
    fn on_icmp<S: Sink>(
        &mut self,
        now: Instant,
        below: Below,
        ip: &Ip,
        bytes: &[u8],
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let message = icmp::parse(bytes).map_err(|error| match error {
            Malformed::Checksum => DropReason::IcmpChecksum,
            _ => DropReason::IcmpMalformed,
        })?;
        // RFC 1122, section 3.2.2.6: echo to a broadcast address may be ignored.
        if below.is_broadcast {
            return Err(DropReason::IcmpNotServed);
        }
        let (code, info, for_tcp, quoted) = match message {
            IcmpMessage::EchoRequest(_) => return self.answer_echo(below.interface, ip, bytes),
            IcmpMessage::Unreachable { code, next_hop_mtu, quoted } => {
                let error = match code {
                    unreachable::PORT => IcmpError::PortUnreachable,
                    unreachable::PROTOCOL => IcmpError::ProtocolUnreachable,
                    unreachable::FRAGMENTATION_NEEDED => IcmpError::TooBig { mtu: next_hop_mtu },
                    // RFC 1122, section 3.2.2.1, and RFC 1812, section 5.2.7.1.
                    unreachable::NET | 5 | 6 | 9 | 11 => IcmpError::NetUnreachable,
                    _ => IcmpError::HostUnreachable,
                };
                let is_mtu = code == unreachable::FRAGMENTATION_NEEDED;
                let info = if is_mtu { u32::from(next_hop_mtu) } else { 0 };
                (code, info, Some(error), quoted)
            }
            IcmpMessage::TimeExceeded { code, quoted } => {
                (code, 0, Some(IcmpError::HostUnreachable), quoted)
            }
            IcmpMessage::ParameterProblem { code, pointer, quoted } => {
                (code, u32::from(pointer), None, quoted)
            }
            IcmpMessage::EchoReply(_) | IcmpMessage::Other { .. } => {
                return Err(DropReason::IcmpNotServed);
            }
        };
        let kind = bytes.first().copied().unwrap_or_default();
        let told = Told { interface: below.interface, ip, kind, code, info, for_tcp };
        let packet = ipv4::parse_quoted(quoted).map_err(|_| DropReason::IcmpMalformed)?;
        if packet.header.fragment_offset != 0 {
            return Err(DropReason::IcmpInvalid);
        }
        let Ipv4Header { src, dst, protocol, .. } = packet.header;
        let payload = packet.payload;
        let quoted = Quoted { src: src.into(), dst: dst.into(), protocol, payload };
        self.on_icmp_error(now, &told, &quoted, sink)
    }

    /// RFC 792; the reply is the request with another type.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.6
    //# Every host MUST implement an ICMP Echo server function that receives Echo Requests and sends
    //# corresponding Echo Replies.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.6
    //# The IP source address in an ICMP Echo Reply MUST be the same as the specific-destination
    //# address (defined in Section 3.2.1.3) of the corresponding ICMP Echo Request message.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.6
    //# Data received in an ICMP Echo Request MUST be entirely included in the resulting Echo Reply.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.6
    //# However, if sending the Echo Reply requires intentional fragmentation that is not
    //# implemented, the datagram MUST be truncated to maximum transmission size (see Section 3.3.3)
    //# and sent.
    fn answer_echo(
        &mut self,
        interface: InterfaceIndex,
        ip: &Ip,
        request: &[u8],
    ) -> Result<(), DropReason> {
        let (&[kind, code, c0, c1], rest) =
            request.split_first_chunk().ok_or(DropReason::IcmpMalformed)?;
        let (old, new) = (u16::from_be_bytes([kind, code]), 0);
        let sum = checksum::update(u16::from_be_bytes([c0, c1]), old, new);
        let [c0, c1] = sum.to_be_bytes();
        let sent = self.answer_icmp(interface, ip, ip.tos, [&[0, 0, c0, c1], rest]);
        sent.ok_or(DropReason::ReplyLimit)?;
        self.counters.echo_replies = self.counters.echo_replies.wrapping_add(1);
        Ok(())
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//# The sender MUST generate it (MUST-2) and the receiver MUST check it (MUST-3).
/// Verifies layer 4's checksum as far as the port has not.
fn check_sum(
    below: &Below,
    ip: &Ip,
    bytes: &[u8],
    field: usize,
    wrong: DropReason,
) -> Result<(), DropReason> {
    let pseudo = Sum::pseudo(ip.src, ip.dst, ip.protocol, bytes.len() as u32).ok_or(wrong)?;
    match below.checksum {
        RxChecksum::Valid => Ok(()),
        RxChecksum::Unknown if pseudo.then(Sum::of(bytes)).is_valid() => Ok(()),
        RxChecksum::Unknown => Err(wrong),
        RxChecksum::Partial { start, offset } => {
            let found = bytes.get(field..).and_then(|rest| rest.first_chunk::<2>());
            let found = found.map(|bytes| u16::from_be_bytes(*bytes));
            let is_exact = usize::from(start) == below.l4_start
                && usize::from(offset) == field
                && found.is_some_and(|sum| is_same_sum(sum, pseudo.folded()));
            if is_exact { Ok(()) } else { Err(DropReason::PartialChecksum) }
        }
    }
}

/// Ones' complement has two zeros.
fn is_same_sum(a: u16, b: u16) -> bool {
    a == b || (matches!(a, 0 | 0xffff) && matches!(b, 0 | 0xffff))
}

/// Whether the options hold a source route (RFC 791, section 3.1), which hosts should not follow
/// (RFC 7126, section 4.3).
fn has_source_route(mut options: &[u8]) -> bool {
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    loop {
        match options {
            [] | [0, ..] => return false,
            [1, rest @ ..] => options = rest,
            [LOOSE | STRICT, ..] => return true,
            [_, len, ..] => match options.get(usize::from(*len).max(2)..) {
                Some(rest) => options = rest,
                None => return false,
            },
            [_] => return false,
        }
    }
}
