//! What comes in: Ethernet, ARP, IPv4, ICMP, and the way to TCP and UDP. IPv6 joins behind its
//! headers.

use std::net::{IpAddr, SocketAddr};

use wire::arp::{self, Operation};
use wire::checksum::{self, Sum};
use wire::ethernet::{self, EtherType};
use wire::icmp::{self, IcmpMessage, unreachable};
use wire::igmp;
use wire::ipv4::{self, Ipv4Header, Ipv4Packet, Protocol};
use wire::tcp::CHECKSUM_OFFSET as TCP_CHECKSUM;
use wire::udp::{self, CHECKSUM_OFFSET as UDP_CHECKSUM};
use wire::{MacAddr, Malformed};

use super::errors::{IcmpReport, Quoted};
use super::{ArpOut, Egress, IpOut, Outgoing, Stack};
use crate::api::*;
use crate::drops::DropReason;
use crate::ip_options::{self, Options, Refusal};
use crate::neighbor::Binding;
use crate::reassembly::{FragmentInfo, FragmentStatus, Whole};
use crate::route::is_unicast;
use crate::tcp::SegmentRx;

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

/// When and how a packet was received: what the layers below IP know of it.
#[derive(Clone, Copy)]
pub(super) struct RxContext {
    pub now: Instant,
    pub interface: InterfaceIndex,
    /// On whose link: what we send to a group or to everybody comes back through the loopback
    /// interface.
    pub link: InterfaceIndex,
    /// Who sent the frame.
    pub link_source: MacAddr,
    /// It came to everybody on the link, or to a group.
    pub is_broadcast: bool,
    pub checksum: RxChecksum,
    pub gso_bytes: Option<u16>,
    /// It came in pieces, or with a header that says so.
    pub is_fragmented: bool,
    /// A header asks routers to look at it, since it is about groups (RFC 2711).
    pub is_about_groups: bool,
    /// Where layer 4 begins in the frame, as the vnet header counts.
    pub l4_start: usize,
}

impl RxContext {
    /// Of a packet whose last fragment this is about: what the port says is about that one alone.
    pub fn reassembled(self) -> Self {
        Self { checksum: RxChecksum::Unknown, gso_bytes: None, is_fragmented: true, ..self }
    }
}

/// What the IP header of a packet says, whatever its family.
#[derive(Clone, Copy)]
pub(super) struct Ip<'a> {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub protocol: Protocol,
    pub tos: u8,
    pub ttl: u8,
    /// Options of IPv4.
    pub options: &'a [u8],
}

/// An IPv4 packet and its own bytes, for an error that quotes it.
#[derive(Clone, Copy)]
pub(super) struct Quotable<'a> {
    pub packet: &'a Ipv4Packet<'a>,
    pub bytes: &'a [u8],
}

/// Where layer 4 has its checksum, and what a wrong one is counted as.
struct ChecksumField {
    offset: usize,
    wrong: DropReason,
}

impl ChecksumField {
    const TCP: Self = Self { offset: TCP_CHECKSUM, wrong: DropReason::TcpChecksum };
    const UDP: Self = Self { offset: UDP_CHECKSUM, wrong: DropReason::UdpChecksum };
}

impl Stack {
    /// Takes a received frame. Whatever is wrong with it ends in a counter. Payload goes to
    /// `sink` before the call returns.
    pub fn on_frame<S: Sink>(&mut self, now: Instant, frame: &RxFrame<'_>, sink: &mut S) {
        self.counters.rx_frames = self.counters.rx_frames.wrapping_add(1);
        if let Err(reason) = self.on_ethernet(now, frame, sink) {
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
        frame: &RxFrame<'_>,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let RxFrame { interface, bytes, meta } = *frame;
        let (header, packet) = ethernet::parse(bytes).map_err(|_| DropReason::FrameMalformed)?;
        if interface != InterfaceIndex::LOOPBACK {
            let own = self.routes.interface(interface).ok_or(DropReason::UnknownInterface)?.mac;
            // It is said below which groups are listened to.
            let is_ip = matches!(header.ethertype, EtherType::IPV6 | EtherType::IPV4);
            let is_group = is_ip && header.dst.is_multicast();
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
        let link = match looped_link(header.dst) {
            Some(link) if interface == InterfaceIndex::LOOPBACK => link,
            _ => interface,
        };
        let context = RxContext {
            now,
            interface,
            link,
            link_source: header.src,
            //= https://www.rfc-editor.org/rfc/rfc1122#section-2.4
            //# The packet receive interface between the IP layer and the link layer MUST include a
            //# flag to indicate whether the incoming packet was addressed to a link-layer broadcast
            //# address.
            is_broadcast: header.dst.is_multicast(),
            checksum: meta.checksum,
            gso_bytes: meta.gso_bytes,
            is_fragmented: false,
            is_about_groups: false,
            l4_start: header.header_len(),
        };
        match header.ethertype {
            EtherType::IPV4 => self.on_ipv4(context, packet, sink),
            EtherType::ARP => self.on_arp(now, interface, packet),
            EtherType::IPV6 => self.on_ipv6(context, packet, sink),
            EtherType(ethertype) => {
                let packet =
                    LinkPacket { interface, ethertype, bytes: packet, routes: &self.routes };
                match header.dst.is_unicast() && sink.link_packet(&packet) {
                    true => Ok(()),
                    false => Err(DropReason::EtherTypeNotServed),
                }
            }
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
                let (address, mac) = (packet.sender_ip.into(), packet.sender_mac);
                self.neighbors.learn(now, Binding { interface, address, mac }, asks_us)
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
        context: RxContext,
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
        let from_ourselves = context.interface == InterfaceIndex::LOOPBACK;
        let from_nowhere = header.src.is_unspecified()
            && match header.protocol {
                // Switches ask so which groups are listened to (RFC 4541, section 2.1.1).
                Protocol::IGMP => true,
                // A host that has no address yet asks everybody for one (RFC 2131), or who of the
                // link's has a name (RFC 6762), as Linux lets it.
                Protocol::UDP => {
                    header.dst.is_broadcast() || header.dst.octets().starts_with(&[224, 0, 0])
                }
                _ => false,
            };
        // RFC 1122, section 3.2.1.3: no host has such a source; and nobody else has ours.
        //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.3
        //# A host MUST silently discard an incoming datagram containing an IP source address that
        //# is invalid by the rules of this section.
        if !(is_unicast(src) || from_nowhere)
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
        if to_all {
            let is_heard = match dst.is_multicast() {
                // Also what a host that we do not listen to says of a group is of interest.
                true if header.protocol == Protocol::IGMP => {
                    header.dst == igmp::ALL_HOSTS || self.groups.is_joined(context.link, dst)
                }
                true => self.hears_group(context.link, dst, src),
                false => self.routes.is_broadcast(dst),
            };
            if !is_heard {
                return Err(DropReason::IpDestination);
            }
        }
        if !packet.options.is_empty()
            && let Err(refusal) = ip_options::check(packet.options)
        {
            //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.5
            //# A host SHOULD generate Parameter Problem messages.
            if let (Refusal::Malformed(pointer), false) = (refusal, context.is_broadcast || to_all)
                && self.complain_v4(
                    context.now,
                    context.interface,
                    Quotable { packet: &packet, bytes },
                    |quoted| IcmpMessage::ParameterProblem { code: 0, pointer, quoted },
                )
            {
                self.counters.problems = self.counters.problems.wrapping_add(1);
            }
            return Err(DropReason::IpOptions);
        }
        let context = RxContext {
            is_broadcast: context.is_broadcast || to_all,
            l4_start: context.l4_start + ipv4::HEADER_LEN + packet.options.len(),
            ..context
        };
        //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.7
        //# A host MUST NOT discard a datagram just because it was received with TTL less than 2.
        let Ipv4Header { protocol, tos, ttl, .. } = header;
        let ip = Ip { src, dst, protocol, tos, ttl, options: packet.options };
        if !header.is_fragment() {
            let taken = self.on_payload(&context, &ip, packet.payload, sink);
            self.refuse_v4(&context, Quotable { packet: &packet, bytes }, taken);
            return taken;
        }
        let within = REASSEMBLY_NS;
        let piece = FragmentInfo::v4(&header, context.link);
        let Some(whole) = self.reassemble(context.now, &piece, packet.payload, within)? else {
            // RFC 1122, section 3.2.2: no errors about what was sent to everybody.
            let head = bytes.get(..ipv4::HEADER_LEN + packet.options.len()).unwrap_or_default();
            if !context.is_broadcast {
                self.reassembly.keep_header(&piece, [head, &[]]);
            }
            return Ok(());
        };
        let ip = Ip { tos: ip.tos & !3 | whole.ecn, options: &[], ..ip };
        let taken = self.on_payload(&context.reassembled(), &ip, &whole.bytes, sink);
        if taken.is_err() {
            // What is quoted of it is the packet that its fragments make.
            let header = Ipv4Header { more_fragments: false, fragment_offset: 0, ..header };
            let payload = whole.bytes.get(..QUOTED_MAX).unwrap_or(&whole.bytes);
            let mut bytes = [0; ipv4::HEADER_LEN + QUOTED_MAX];
            let (head, rest) = bytes.split_at_mut(ipv4::HEADER_LEN);
            if header.emit(whole.bytes.len(), head).is_ok()
                && let Some(rest) = rest.get_mut(..payload.len())
            {
                rest.copy_from_slice(payload);
                let packet = Ipv4Packet { header, options: &[], payload };
                self.refuse_v4(&context, Quotable { packet: &packet, bytes: &bytes }, taken);
            }
        }
        self.reassembly.give(whole);
        taken
    }

    /// Tells the sender of a packet that nobody here takes what it carries: no socket (RFC 1122,
    /// section 4.1.3.1), or no protocol.
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
    fn refuse_v4(
        &mut self,
        context: &RxContext,
        packet: Quotable<'_>,
        taken: Result<(), DropReason>,
    ) {
        let code = match taken {
            Err(DropReason::UdpNoSocket) => unreachable::PORT,
            Err(DropReason::ProtocolNotServed) => unreachable::PROTOCOL,
            _ => return,
        };
        if !context.is_broadcast
            && self.complain_v4(context.now, context.interface, packet, |quoted| {
                IcmpMessage::Unreachable { code, next_hop_mtu: 0, quoted }
            })
        {
            self.counters.unreachables = self.counters.unreachables.wrapping_add(1);
        }
    }

    /// A fragment, whose packet has `within` from its first one on; the packet when it is whole.
    pub(super) fn reassemble(
        &mut self,
        now: Instant,
        piece: &FragmentInfo,
        payload: &[u8],
        within: u64,
    ) -> Result<Option<Whole>, DropReason> {
        let progress = self.reassembly.on_fragment(piece, payload);
        self.counters.reassembly_evictions = self.reassembly.evictions();
        match progress? {
            FragmentStatus::Waiting => Ok(None),
            FragmentStatus::Started(slot) => {
                self.wheel.set(slot, Instant(now.0.saturating_add(within)));
                Ok(None)
            }
            FragmentStatus::Complete(slot) => {
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
        context: &RxContext,
        ip: &Ip<'_>,
        payload: &[u8],
        sink: &mut S,
    ) -> Result<(), DropReason> {
        match (ip.protocol, ip.src, ip.dst) {
            (Protocol::TCP, ..) => {
                // RFC 1122, section 4.2.3.10.
                //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
                //# A TCP implementation MUST silently discard an incoming SYN segment that is
                //# addressed to a broadcast or multicast address [(MUST-57)].
                if context.is_broadcast {
                    return Err(DropReason::IpDestination);
                }
                check_sum(context, ip, payload, &ChecksumField::TCP)?;
                let rx = SegmentRx {
                    now: context.now,
                    local: ip.dst,
                    remote: ip.src,
                    interface: context.interface,
                    tos: ip.tos,
                    ttl: ip.ttl,
                    gso_bytes: context.gso_bytes,
                };
                self.tcp.on_segment(&rx, payload, &self.routes, sink)
            }
            (Protocol::UDP, ..) => self.on_udp(context, ip, payload, sink),
            (Protocol::ICMP, IpAddr::V4(_), _) => self.on_icmp(context, ip, payload, sink),
            (Protocol::IGMP, IpAddr::V4(_), _) => self.on_igmp(context, ip, payload),
            (Protocol::ICMPV6, IpAddr::V6(_), _) => self.on_icmpv6(context, ip, payload, sink),
            _ => Err(DropReason::ProtocolNotServed),
        }
    }

    fn on_udp<S: Sink>(
        &mut self,
        context: &RxContext,
        ip: &Ip<'_>,
        bytes: &[u8],
        sink: &mut S,
    ) -> Result<(), DropReason> {
        // A coalesced frame may tell the length of a piece; the packet's length rules there.
        let parsed = match context.gso_bytes {
            Some(_) => udp::parse_header(bytes),
            None => udp::parse(bytes),
        };
        let (udp_header, payload) = parsed.map_err(|_| DropReason::UdpMalformed)?;
        let is_unsummed = udp_header.checksum == 0 && context.checksum == RxChecksum::Unknown;
        if !is_unsummed {
            let covered = udp::HEADER_LEN + payload.len();
            let covered = bytes.get(..covered).unwrap_or(bytes);
            //= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.3.4
            //# A host MUST implement the facility to generate and validate UDP checksums.
            //= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.3.4
            //# If a UDP datagram is received with a checksum that is non-zero and invalid, UDP MUST
            //# silently discard the datagram.
            check_sum(context, ip, covered, &ChecksumField::UDP)?;
        }
        let local = SocketAddr::new(ip.dst, udp_header.dst_port);
        let remote = SocketAddr::new(ip.src, udp_header.src_port);
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
            interface: context.link,
            tos: ip.tos,
            ttl: ip.ttl,
            gso_bytes: context.gso_bytes,
        };
        // A frame to many may carry what goes to one host alone: that has one receiver.
        if context.is_broadcast && !self.routes.is_own(ip.dst) {
            return self.deliver_to_all(&meta, payload, is_unsummed, sink);
        }
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
        let (id, owner) = found.ok_or(DropReason::UdpNoSocket)?;
        if !sink.datagram(id, owner, &meta, payload) {
            return Err(DropReason::UdpNoRoom);
        }
        self.counters.udp_received = self.counters.udp_received.wrapping_add(1);
        Ok(())
    }

    /// A datagram to a group or to everybody: each socket that hears it gets it.
    fn deliver_to_all<S: Sink>(
        &mut self,
        meta: &DatagramMeta,
        payload: &[u8],
        is_unsummed: bool,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let (group, from) = (meta.local.ip(), meta.remote.ip());
        let mut outcome = Err(DropReason::UdpNoSocket);
        let hearers = self.udp.hearers(meta.local, meta.remote);
        for &place in &hearers {
            let Some((id, socket)) = self.udp.at(place) else { continue };
            let options = socket.options;
            let only_joined = match group {
                IpAddr::V4(_) => options.only_joined,
                IpAddr::V6(_) => options.only_joined6,
            };
            let is_admitted = !group.is_multicast()
                || self.groups.admits(place, (meta.interface, group), from, !only_joined);
            if !is_admitted || (is_unsummed && group.is_ipv6() && !options.no_check6) {
                continue;
            }
            if sink.datagram(id, socket.owner, meta, payload) {
                self.counters.udp_received = self.counters.udp_received.wrapping_add(1);
            } else {
                self.counters.drop(DropReason::UdpNoRoom);
            }
            outcome = Ok(());
        }
        self.udp.give_hearers(hearers);
        outcome
    }

    /// Answers a packet, of the bytes given with it, with what `message` makes of its header.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2
    //# Every ICMP error message includes the Internet header and at least the first 8 data octets
    //# of the datagram that triggered the error; more than 8 octets MAY be sent; this header and
    //# data MUST be unchanged from the received datagram.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2
    //# An ICMP error message SHOULD be sent with normal (i.e., zero) TOS bits.
    pub(super) fn complain_v4(
        &mut self,
        now: Instant,
        interface: InterfaceIndex,
        quotable: Quotable<'_>,
        message: impl for<'a> FnOnce(&'a [u8]) -> IcmpMessage<'a>,
    ) -> bool {
        let Quotable { packet, bytes } = quotable;
        let Ipv4Header { src, dst, protocol, fragment_offset, .. } = packet.header;
        let whole = bytes.len().min(ipv4::HEADER_LEN + packet.options.len() + packet.payload.len());
        let (0, Some((quoted, rest))) = (
            fragment_offset,
            bytes.get(..whole).and_then(|bytes| bytes.split_first_chunk::<{ ipv4::HEADER_LEN }>()),
        ) else {
            return false;
        };
        //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2
        //# An ICMP error message MUST NOT be sent as the result of receiving:
        if protocol == Protocol::ICMP && is_error(packet.payload) {
            return false;
        }
        let rest = rest.get(..QUOTED_MAX).unwrap_or(rest);
        let message = message(quoted);
        let mut head = [0; icmp::HEADER_LEN + ipv4::HEADER_LEN];
        if !self.may_complain(now, src.into()) || message.emit(&mut head).is_err() {
            self.counters.drop(DropReason::ReplyLimit);
            return false;
        }
        // The sum so far leaves out the rest.
        head[2..4].fill(0);
        let sum = Sum::of(&head).then(Sum::of(rest)).finish();
        head[2..4].copy_from_slice(&sum.to_be_bytes());
        let reply = icmp_reply(dst.into(), src.into(), 0);
        let options = Options::default();
        let egress = Egress { now, interface };
        let sent = self.send_packet(egress, &reply, &options, [&head, rest]);
        if sent.is_none() {
            self.counters.drop(DropReason::ReplyLimit);
        }
        sent.is_some()
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
        context: &RxContext,
        ip: &Ip<'_>,
        bytes: &[u8],
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let message = icmp::parse(bytes).map_err(|error| match error {
            Malformed::Checksum => DropReason::IcmpChecksum,
            _ => DropReason::IcmpMalformed,
        })?;
        // RFC 1122, section 3.2.2.6: echo to a broadcast address may be ignored.
        if context.is_broadcast {
            return Err(DropReason::IcmpNotServed);
        }
        let (code, info, mtu, quoted) = match message {
            IcmpMessage::EchoRequest(_) => {
                return self.answer_echo(context, ip, bytes);
            }
            IcmpMessage::Unreachable { code, next_hop_mtu, quoted } => {
                let mtu = (code == unreachable::FRAGMENTATION_NEEDED).then_some(next_hop_mtu);
                (code, mtu.unwrap_or(0).into(), mtu, quoted)
            }
            IcmpMessage::TimeExceeded { code, quoted } => (code, 0, None, quoted),
            IcmpMessage::ParameterProblem { code, pointer, quoted } => {
                (code, u32::from(pointer), None, quoted)
            }
            IcmpMessage::EchoReply(_) | IcmpMessage::Other { .. } => {
                return Err(DropReason::IcmpNotServed);
            }
        };
        let kind = bytes.first().copied().unwrap_or_default();
        let report = IcmpReport { interface: context.interface, ip, kind, code, info, mtu };
        let packet = ipv4::parse_quoted(quoted).map_err(|_| DropReason::IcmpMalformed)?;
        if packet.header.fragment_offset != 0 {
            return Err(DropReason::IcmpInvalid);
        }
        let Ipv4Header { src, dst, protocol, .. } = packet.header;
        let payload = packet.payload;
        let quoted = Quoted { src: src.into(), dst: dst.into(), protocol, payload };
        self.on_icmp_error(context.now, &report, &quoted, sink)
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
        context: &RxContext,
        ip: &Ip<'_>,
        request: &[u8],
    ) -> Result<(), DropReason> {
        let (&[kind, code, c0, c1], rest) =
            request.split_first_chunk().ok_or(DropReason::IcmpMalformed)?;
        let (old, new) = (u16::from_be_bytes([kind, code]), 0);
        let sum = checksum::update(u16::from_be_bytes([c0, c1]), old, new);
        let [c0, c1] = sum.to_be_bytes();
        let options = match ip.dst {
            IpAddr::V4(own) if !ip.options.is_empty() => {
                ip_options::echoed(ip.options, own, millisecond(context.now))
            }
            _ => Options::default(),
        };
        let reply = icmp_reply(ip.dst, ip.src, ip.tos);
        let egress = Egress { now: context.now, interface: context.interface };
        let sent = self.send_packet(egress, &reply, &options, [&[0, 0, c0, c1], rest]);
        sent.ok_or(DropReason::ReplyLimit)?;
        self.counters.echo_replies = self.counters.echo_replies.wrapping_add(1);
        Ok(())
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//# The sender MUST generate it (MUST-2) and the receiver MUST check it (MUST-3).
/// Verifies layer 4's checksum, whose field is at this offset, as far as the port has not.
fn check_sum(
    context: &RxContext,
    ip: &Ip<'_>,
    bytes: &[u8],
    field: &ChecksumField,
) -> Result<(), DropReason> {
    let ChecksumField { offset: field, wrong } = *field;
    let pseudo = Sum::pseudo(ip.src, ip.dst, ip.protocol, bytes.len() as u32).ok_or(wrong)?;
    match context.checksum {
        RxChecksum::Valid => Ok(()),
        RxChecksum::Unknown if pseudo.then(Sum::of(bytes)).is_valid() => Ok(()),
        RxChecksum::Unknown => Err(wrong),
        RxChecksum::Partial { start, offset } => {
            let found = bytes.get(field..).and_then(|rest| rest.first_chunk::<2>());
            let found = found.map(|bytes| u16::from_be_bytes(*bytes));
            let is_exact = usize::from(start) == context.l4_start
                && usize::from(offset) == field
                && found.is_some_and(|sum| is_same_sum(sum, pseudo.folded()));
            if is_exact { Ok(()) } else { Err(DropReason::PartialChecksum) }
        }
    }
}

/// The IP header of an ICMP message that answers a packet to `src` from `dst`.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.4.2
//# (1) If the datagram is sent in response to a received datagram, the source address for the
//# response SHOULD be the specific-destination address of the request.
fn icmp_reply(src: IpAddr, dst: IpAddr, tos: u8) -> IpOut {
    let protocol = Protocol::ICMP;
    let (ttl, identification, may_cut, fragment) = (None, 0, true, None);
    IpOut { src, dst, protocol, tos, ttl, identification, may_cut, fragment }
}

/// Whether an ICMP message is an error, or of a type that nobody knows, as Linux has it.
fn is_error(message: &[u8]) -> bool {
    !matches!(message.first(), Some(0 | 8 | 13..=18))
}

/// Ones' complement has two zeros.
fn is_same_sum(a: u16, b: u16) -> bool {
    a == b || (matches!(a, 0 | 0xffff) && matches!(b, 0 | 0xffff))
}

/// The link address of what comes back to ourselves of what we sent to a group or to everybody
/// through an interface.
pub(super) fn looped(link: InterfaceIndex) -> MacAddr {
    MacAddr([3, 0, 0, 0, 0, link.0])
}

fn looped_link(mac: MacAddr) -> Option<InterfaceIndex> {
    match mac {
        MacAddr([3, 0, 0, 0, 0, link]) => Some(InterfaceIndex(link)),
        _ => None,
    }
}

/// A time for whoever asks for one: milliseconds of our clock, marked as not counted from midnight
/// (RFC 791, section 3.1), for the stack knows no time of day.
fn millisecond(now: Instant) -> u32 {
    (now.0 / 1_000_000) as u32 | 1 << 31
}
