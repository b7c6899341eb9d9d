//! What comes in over IPv6 (RFC 8200), and ICMPv6 (RFC 4443).
//= https://www.rfc-editor.org/rfc/rfc4443#section-2.4
//# (e) An ICMPv6 error message MUST NOT be originated as a result of receiving the following:

use std::net::{IpAddr, Ipv6Addr};

use wire::Malformed;
use wire::checksum::Sum;
use wire::icmp::IcmpMessage;
use wire::icmpv6::{self, Icmpv6Message, problem, unreachable};
use wire::ipv4::{self, Protocol};
use wire::ipv6::{self, Chain, FRAGMENT_LEN, Fragment, Ipv6Header, Unreadable, walk};

use super::errors::{IcmpReport, Quoted};
use super::ndp::NdpRx;
use super::receive::{Ip, Quotable, RxContext};
use super::{Egress, IpOut, Stack};
use crate::api::*;
use crate::drops::DropReason;
use crate::ip_options::Options;
use crate::reassembly::FragmentInfo;
use crate::route::is_unicast;

/// How long the fragments of a packet may take (RFC 8200, section 4.5).
//= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
//# of the reception of the first-arriving fragment of that packet, reassembly of that packet must
//# be abandoned and all the fragments that have been received for that packet must be discarded.
const REASSEMBLY_NS: u64 = 60_000_000_000;
/// An error is no longer than the packet that every link takes (RFC 4443, section 2.4, c).
//= https://www.rfc-editor.org/rfc/rfc4443#section-2.4
//# (c) Every ICMPv6 error message (type < 128) MUST include as much of the IPv6 offending
//# (invoking) packet (the packet that caused the error) as possible without making the error
//# message packet exceed the minimum IPv6 MTU [IPv6].
const QUOTED_MAX: usize = ipv6::MTU_MIN as usize - ipv6::HEADER_LEN - icmpv6::HEADER_LEN;

/// Headers that a packet may have before an ICMPv6 message.
const ROUTING: Protocol = Protocol(43);
const DESTINATION: Protocol = Protocol(60);
/// Where the IPv6 header names the next one.
const NEXT_HEADER_AT: usize = 6;
/// The ICMPv6 type of redirects.
const REDIRECT: u8 = 137;

/// A packet as an error quotes it.
#[derive(Clone, Copy)]
struct Quote<'a> {
    header: &'a [u8; ipv6::HEADER_LEN],
    payload: &'a [u8],
}

impl Quote<'_> {
    /// Whether it carries an ICMPv6 error, or a redirect, about which nobody is told: looked for
    /// through headers that need not be understood, as Linux does (`is_ineligible`).
    fn carries_error(&self) -> bool {
        let (mut protocol, mut rest, mut is_fragment) =
            (Protocol(self.header[NEXT_HEADER_AT]), self.payload, false);
        loop {
            let (next, len) = match (protocol, rest) {
                (Protocol::HOP_BY_HOP | ROUTING | DESTINATION, &[next, len, ..]) => {
                    (next, (usize::from(len) + 1) * 8)
                }
                (Protocol::FRAGMENT, &[next, _, high, low, ..]) => {
                    is_fragment = high != 0 || low & !6 != 0;
                    if high != 0 || low & !7 != 0 {
                        return false;
                    }
                    (next, FRAGMENT_LEN)
                }
                (Protocol::ICMPV6, &[kind, ..]) => return kind < 128 || kind == REDIRECT,
                // What is cut off before it cannot be told from one.
                (Protocol::ICMPV6, []) => return !is_fragment,
                _ => return false,
            };
            (protocol, rest) = (Protocol(next), rest.get(len..).unwrap_or_default());
        }
    }
}

/// A packet whose extension headers have been walked.
#[derive(Clone, Copy)]
struct Walked<'a> {
    header: &'a Ipv6Header,
    chain: &'a Chain<'a>,
    quoted: Quote<'a>,
}

/// A packet that its sender is told of: where it was received, and from whom to whom it went.
#[derive(Clone, Copy)]
struct Offending<'a> {
    now: Instant,
    interface: InterfaceIndex,
    from: Ipv6Addr,
    to: Ipv6Addr,
    quoted: Quote<'a>,
}

impl<'a> Offending<'a> {
    fn new(context: &RxContext, header: &Ipv6Header, quoted: Quote<'a>) -> Self {
        let RxContext { now, interface, .. } = *context;
        Self { now, interface, from: header.src, to: header.dst, quoted }
    }
}

/// Where an ICMPv6 message goes.
#[derive(Clone, Copy)]
struct Towards {
    interface: InterfaceIndex,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    traffic_class: u8,
}

/// A pointer into a packet when `gone` bytes of headers before a fragment are no more in it.
fn pointer_without(gone: u16, pointer: u32) -> u32 {
    let is_behind = pointer >= (ipv6::HEADER_LEN as u32) + u32::from(gone);
    if is_behind { pointer - u32::from(gone) } else { pointer }
}

impl Stack {
    pub(super) fn on_ipv6<S: Sink>(
        &mut self,
        context: RxContext,
        bytes: &[u8],
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let from_ourselves = context.interface == InterfaceIndex::LOOPBACK;
        let speaks = |config: &InterfaceConfig| config.ipv6 != Ipv6Mode::Off;
        if !from_ourselves && !self.routes.interface(context.interface).is_some_and(speaks) {
            return Err(DropReason::Ipv6NotServed);
        }
        let (header, payload) = ipv6::parse(bytes).map_err(|_| DropReason::IpMalformed)?;
        let quoted = Quote { header: bytes.first_chunk().ok_or(DropReason::IpMalformed)?, payload };
        let (src, dst) = (IpAddr::V6(header.src), IpAddr::V6(header.dst));
        // No host has such a source, and nobody else has ours; from nobody come only messages of
        // neighbour discovery.
        let from_nobody = header.src.is_unspecified();
        if !(is_unicast(src) || from_nobody) || self.routes.is_own(src) != from_ourselves {
            return Err(DropReason::IpSource);
        }
        let to_group = header.dst.is_multicast();
        let is_ours = if to_group {
            self.hears_group(context.link, dst, src) || self.groups.is_joined(context.link, dst)
        } else {
            self.routes.is_own(dst)
        };
        if !is_ours {
            return Err(DropReason::IpDestination);
        }
        //= https://www.rfc-editor.org/rfc/rfc8200#section-3
        //# A node that is the destination of a packet should not discard a packet with Hop Limit
        //# equal to zero; it should process the packet normally.
        let chain = match walk(header.next_header, payload, 0) {
            Ok(chain) => chain,
            Err(why) => return Err(self.on_unreadable(&context, &header, quoted, why)),
        };
        if from_nobody && chain.protocol != Protocol::ICMPV6 {
            return Err(DropReason::IpSource);
        }
        let context = RxContext {
            is_broadcast: context.is_broadcast || to_group,
            is_fragmented: chain.atomic,
            is_about_groups: chain.alerts_of_groups,
            l4_start: context.l4_start + ipv6::HEADER_LEN + usize::from(chain.headers_len),
            ..context
        };
        let packet = Walked { header: &header, chain: &chain, quoted };
        match chain.fragment {
            None => self.on_whole(&context, packet, sink),
            Some(fragment) => self.on_fragment_v6(&context, packet, &fragment, sink),
        }
    }

    /// A packet whose headers have been walked.
    fn on_whole<S: Sink>(
        &mut self,
        context: &RxContext,
        packet: Walked<'_>,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let Walked { header, chain, quoted } = packet;
        let ip = Ip {
            src: header.src.into(),
            dst: header.dst.into(),
            protocol: chain.protocol,
            tos: header.traffic_class,
            ttl: header.hop_limit,
            options: &[],
        };
        let taken = self.on_payload(context, &ip, chain.payload, sink);
        //= https://www.rfc-editor.org/rfc/rfc8200#section-4
        //# If, as a result of processing a header, the destination node is required to proceed to
        //# the next header but the Next Header value in the current header is unrecognized by the
        //# node, it should discard the packet and send an ICMP Parameter Problem message
        if taken == Err(DropReason::ProtocolNotServed) {
            let code = problem::NEXT_HEADER;
            let pointer = u32::from(chain.named_at);
            let why = Unreadable::Problem { code, pointer, even_multicast: false };
            self.on_unreadable(context, header, quoted, why);
        }
        //= https://www.rfc-editor.org/rfc/rfc4443#section-3.1
        //# A destination node SHOULD originate a Destination Unreachable message with Code 4 in
        //# response to a packet for which the transport protocol (e.g., UDP) has no listener, if
        //# that transport protocol has no alternative means to inform the sender.
        if taken == Err(DropReason::UdpNoSocket) && !context.is_broadcast {
            let message = Icmpv6Message::Unreachable { code: unreachable::PORT, quoted: &[] };
            if self.send_error(Offending::new(context, header, quoted), &message) {
                self.counters.unreachables = self.counters.unreachables.wrapping_add(1);
            }
        }
        taken
    }

    fn on_fragment_v6<S: Sink>(
        &mut self,
        context: &RxContext,
        packet: Walked<'_>,
        fragment: &Fragment,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let Walked { header, chain, quoted } = packet;
        let tell = |stack: &mut Self, code, pointer: usize| {
            let pointer = pointer as u32;
            let why = Unreadable::Problem { code, pointer, even_multicast: false };
            stack.on_unreadable(context, header, quoted, why);
            Err(DropReason::FragmentMalformed)
        };
        let len = chain.payload.len();
        if fragment.more && !len.is_multiple_of(8) {
            //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
            //# If the length of a fragment, as derived from the fragment packet's
            //# Payload Length field, is not a multiple of 8 octets and the M flag
            //# of that fragment is 1, then that fragment must be discarded and an
            //# ICMP Parameter Problem, Code 0, message should be sent to the
            //# source of the fragment, pointing to the Payload Length field of
            //# the fragment packet.
            return tell(self, problem::FIELD, 4);
        }
        //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
        //# of the packet reassembled from that fragment would exceed 65,535 octets, then that
        //# fragment must be discarded and an ICMP Parameter Problem, Code 0, message should be sent
        //# to the source of the fragment, pointing to the Fragment Offset field of the fragment
        if usize::from(fragment.offset) + len > 65535 {
            let at = ipv6::HEADER_LEN + usize::from(chain.headers_len) - FRAGMENT_LEN + 2;
            return tell(self, problem::FIELD, at);
        }
        //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
        //# o If the first fragment does not include all headers through an Upper-Layer header, then
        //# that fragment should be discarded and an ICMP Parameter Problem, Code 3, message should
        //# be sent to the source of the fragment, with the Pointer field set to zero.
        if fragment.offset == 0 && !has_all_headers(fragment.next_header, chain.payload) {
            return tell(self, problem::FIRST_FRAGMENT, 0);
        }
        let piece = FragmentInfo::v6(header, fragment, context.link);
        let Some(whole) = self.reassemble(context.now, &piece, chain.payload, REASSEMBLY_NS)?
        else {
            // RFC 4443, section 2.4, e: no errors about what was sent to many.
            if !context.is_broadcast {
                let before = quoted.payload.get(..usize::from(chain.headers_len));
                self.reassembly.keep_header(&piece, [quoted.header, before.unwrap_or_default()]);
            }
            return Ok(());
        };
        let context = context.reassembled();
        let traffic_class = header.traffic_class & !3 | whole.ecn;
        // What is quoted of it is the packet that its fragments make, without what each had before
        // its fragment header.
        let header = &Ipv6Header { traffic_class, next_header: whole.protocol, ..*header };
        let mut head = [0; ipv6::HEADER_LEN];
        if header.emit(whole.bytes.len(), &mut head).is_err() {
            self.reassembly.give(whole);
            return Err(DropReason::FragmentMalformed);
        }
        let quoted = Quote { header: &head, payload: &whole.bytes };
        let before = chain.headers_len;
        let result = match walk(whole.protocol, &whole.bytes, usize::from(before)) {
            Ok(inner) if inner.fragment.is_none() => {
                let named_at = pointer_without(before, inner.named_at.into()) as u16;
                let inner = Chain { named_at, ..inner };
                self.on_whole(&context, Walked { header, chain: &inner, quoted }, sink)
            }
            Ok(_) => Err(DropReason::FragmentMalformed),
            Err(Unreadable::Problem { code, pointer, even_multicast }) => {
                let pointer = pointer_without(before, pointer);
                let why = Unreadable::Problem { code, pointer, even_multicast };
                Err(self.on_unreadable(&context, header, quoted, why))
            }
            Err(why) => Err(self.on_unreadable(&context, header, quoted, why)),
        };
        self.reassembly.give(whole);
        result
    }

    /// Headers that are not understood; the sender is told where that is asked for.
    //= https://www.rfc-editor.org/rfc/rfc4443#section-3.4
    //# it MUST discard the packet and SHOULD originate an ICMPv6 Parameter Problem message to the
    //# packet's source
    fn on_unreadable(
        &mut self,
        context: &RxContext,
        header: &Ipv6Header,
        quoted: Quote<'_>,
        why: Unreadable,
    ) -> DropReason {
        match why {
            Unreadable::Malformed(_) => DropReason::IpMalformed,
            Unreadable::Order | Unreadable::Silent => DropReason::IpOptions,
            Unreadable::Problem { code, pointer, even_multicast } => {
                if even_multicast || !(context.is_broadcast || header.dst.is_multicast()) {
                    let message = Icmpv6Message::ParameterProblem { code, pointer, quoted: &[] };
                    if self.send_error(Offending::new(context, header, quoted), &message) {
                        self.counters.problems = self.counters.problems.wrapping_add(1);
                    }
                }
                DropReason::IpOptions
            }
        }
    }

    /// Sends an ICMPv6 error about a packet to its sender, within the allowance; `message` has an
    /// empty quotation, for which the packet's is put.
    fn send_error(&mut self, about: Offending<'_>, message: &Icmpv6Message<'_>) -> bool {
        let Offending { now, interface, from: to, to: received_by, quoted } = about;
        //= https://www.rfc-editor.org/rfc/rfc4443#section-2.4
        //# (e) An ICMPv6 error message MUST NOT be originated as a result of receiving the
        //# following:
        if to.is_unspecified() || to.is_multicast() || quoted.carries_error() {
            return false;
        }
        //= https://www.rfc-editor.org/rfc/rfc4443#section-2.4
        //# (f) Finally, in order to limit the bandwidth and forwarding costs incurred by
        //# originating ICMPv6 error messages, an IPv6 node MUST limit the rate of ICMPv6 error
        //# messages it originates.
        if !self.may_complain(now, to.into()) {
            self.counters.drop(DropReason::ReplyLimit);
            return false;
        }
        let Some(src) = self.answers_as(interface, received_by, to) else { return false };
        let mut head = [0; icmpv6::HEADER_LEN + ipv6::HEADER_LEN];
        let Ok(len) = message.emit(src, to, &mut head) else { return false };
        let Some(room) = head.get_mut(len..len + ipv6::HEADER_LEN) else { return false };
        room.copy_from_slice(quoted.header);
        let Some(head) = head.get_mut(..len + ipv6::HEADER_LEN) else { return false };
        let rest = quoted.payload;
        let rest = rest.get(..QUOTED_MAX - ipv6::HEADER_LEN).unwrap_or(rest);
        let sent = self.send_icmpv6(
            now,
            Towards { interface, src, dst: to, traffic_class: 0 },
            head,
            rest,
        );
        if sent.is_none() {
            self.counters.drop(DropReason::ReplyLimit);
        }
        sent.is_some()
    }

    /// The address in whose name something sent to `about` is answered: itself, unless it is a
    /// group.
    //= https://www.rfc-editor.org/rfc/rfc4443#section-2.2
    //# If the node has more than one unicast address, it MUST choose the Source Address of the
    //# message as follows:
    //= https://www.rfc-editor.org/rfc/rfc4443#section-2.2
    //# If the message is a response to a message sent to one of the node's unicast addresses, the
    //# Source Address of the reply MUST be that same address.
    //= https://www.rfc-editor.org/rfc/rfc4443#section-2.2
    //# the Source Address of the ICMPv6 packet MUST be a unicast address belonging to the node.
    //= https://www.rfc-editor.org/rfc/rfc4443#section-2.2
    //# The address SHOULD be chosen according to the rules that would be used to select the source
    //# address for any other packet originated by the node, given the destination address of the
    //# packet.
    //= https://www.rfc-editor.org/rfc/rfc4443#section-4.2
    //# The source address of an Echo Reply sent in response to a unicast Echo Request message MUST
    //# be the same as the destination address of that Echo Request message.
    //= https://www.rfc-editor.org/rfc/rfc4443#section-4.2
    //# In this case, the source address of the reply MUST be a unicast address belonging to the
    //# interface on which the Echo Request message was received.
    fn answers_as(
        &self,
        interface: InterfaceIndex,
        about: Ipv6Addr,
        to: Ipv6Addr,
    ) -> Option<Ipv6Addr> {
        if !about.is_multicast() {
            return Some(about);
        }
        match self.routes.lookup_back(interface, to.into())?.source {
            IpAddr::V6(own) => Some(own),
            IpAddr::V4(_) => None,
        }
    }

    /// Queues a message whose checksum (in `head`) is still to be made.
    fn send_icmpv6(
        &mut self,
        now: Instant,
        towards: Towards,
        head: &mut [u8],
        tail: &[u8],
    ) -> Option<()> {
        let Towards { interface, src, dst, traffic_class } = towards;
        head.get_mut(2..4)?.fill(0);
        let pseudo = icmpv6::pseudo(src, dst, head.len() + tail.len());
        let sum = pseudo.then(Sum::of(head)).then(Sum::of(tail)).finish();
        head.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
        let ip = IpOut {
            src: src.into(),
            dst: dst.into(),
            protocol: Protocol::ICMPV6,
            tos: traffic_class,
            ttl: None,
            identification: 0,
            may_cut: false,
            fragment: None,
        };
        self.send_packet(Egress { now, interface }, &ip, &Options::default(), [head, tail])
    }

    /// The rest of a fragmented datagram has not come.
    pub(super) fn on_reassembly_timer(&mut self, now: Instant, slot: u32) {
        let mut packet = Vec::new();
        let mut link = InterfaceIndex::LOOPBACK;
        let is_there = self.reassembly.expire(slot, |expired| {
            packet = [expired.header, expired.first].concat();
            link = expired.link.unwrap_or(link);
        });
        if is_there {
            self.counters.drop(DropReason::FragmentTimeout);
        }
        if let Ok(quoted) = ipv4::parse_quoted(&packet) {
            //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.2
            //# If this timeout expires, the partially-reassembled datagram MUST be discarded and an
            //# ICMP Time Exceeded message sent to the source host (if fragment zero has been
            //# received).
            let quotable = Quotable { packet: &quoted, bytes: &packet };
            if self.complain_v4(now, link, quotable, |quoted| IcmpMessage::TimeExceeded {
                code: 1,
                quoted,
            }) {
                self.counters.problems = self.counters.problems.wrapping_add(1);
            }
        }
        //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
        //# If the first fragment (i.e., the one
        //# with a Fragment Offset of zero) has been received, an ICMP Time
        //# Exceeded -- Fragment Reassembly Time Exceeded message should be
        //# sent to the source of that fragment.
        if let (Ok((header, payload)), Some(head)) =
            (ipv6::parse_quoted(&packet), packet.first_chunk())
        {
            let message = Icmpv6Message::TimeExceeded { code: 1, quoted: &[] };
            let quoted = Quote { header: head, payload };
            let (from, to) = (header.src, header.dst);
            if self.send_error(Offending { now, interface: link, from, to, quoted }, &message) {
                self.counters.problems = self.counters.problems.wrapping_add(1);
            }
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc4443#section-2
    //# ICMPv6 is an integral part of IPv6, and the base protocol (all the messages and behavior
    //# required by this specification) MUST be fully implemented by every IPv6 node.
    //= https://www.rfc-editor.org/rfc/rfc4443#section-2.4
    //# Implementations MUST observe the following rules when processing ICMPv6 messages (from
    //# [RFC-1122]):
    pub(super) fn on_icmpv6<S: Sink>(
        &mut self,
        context: &RxContext,
        ip: &Ip<'_>,
        bytes: &[u8],
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip.src, ip.dst) else {
            return Err(DropReason::ProtocolNotServed);
        };
        //= https://www.rfc-editor.org/rfc/rfc3810#section-5.1.2
        //# When a packet is received, the checksum MUST be verified before processing it.
        //= https://www.rfc-editor.org/rfc/rfc3810#section-5.2.2
        //# When a packet is received, the checksum MUST be verified before processing it.
        //= https://www.rfc-editor.org/rfc/rfc3810#section-5.1.12
        //# additional octets of data present, beyond the fields described here, MLDv2
        //# implementations MUST include those octets in the computation to verify the received MLD
        //# Checksum, but MUST otherwise ignore those additional octets.
        //= https://www.rfc-editor.org/rfc/rfc3810#section-5.2.11
        //# additional octets of data present, beyond the last Multicast Address Record, MLDv2
        //# implementations MUST include those octets in the computation to verify the received MLD
        //# Checksum, but MUST otherwise ignore those additional octets.
        let message = icmpv6::parse(src, dst, bytes).map_err(|error| match error {
            Malformed::Checksum => DropReason::IcmpChecksum,
            _ => DropReason::IcmpMalformed,
        })?;
        let (code, info, mtu, quoted) = match message {
            Icmpv6Message::EchoRequest(_) => {
                if src.is_unspecified() {
                    return Err(DropReason::IpSource);
                }
                return self.answer_echo_v6(context, (src, dst), ip.tos, bytes);
            }
            Icmpv6Message::Unreachable { code, quoted } => (code, 0, None, quoted),
            Icmpv6Message::PacketTooBig { mtu, quoted } => {
                //= https://www.rfc-editor.org/rfc/rfc8201#section-4
                //# If a node receives a Packet Too Big message reporting a next-hop MTU that is
                //# less than the IPv6 minimum link MTU, it must discard it.
                //= https://www.rfc-editor.org/rfc/rfc8201#section-4
                //# A node must not reduce its estimate of the Path MTU below the IPv6 minimum link
                //# MTU on receipt of a Packet Too Big message.
                if mtu < u32::from(ipv6::MTU_MIN) {
                    return Err(DropReason::IcmpInvalid);
                }
                let narrow = u16::try_from(mtu).unwrap_or(u16::MAX);
                (0, mtu, Some(narrow), quoted)
            }
            Icmpv6Message::TimeExceeded { code, quoted } => (code, 0, None, quoted),
            Icmpv6Message::ParameterProblem { code, pointer, quoted } => {
                (code, pointer, None, quoted)
            }
            Icmpv6Message::EchoReply(_) => return Err(DropReason::IcmpNotServed),
            Icmpv6Message::Other { kind, code, body } => {
                // RFC 6980, section 5: what could be hidden in pieces is not believed.
                if context.interface == InterfaceIndex::LOOPBACK || context.is_fragmented {
                    return Err(DropReason::NdpInvalid);
                }
                let rx = NdpRx {
                    interface: context.interface,
                    link_source: context.link_source,
                    src,
                    dst,
                    hop_limit: ip.ttl,
                    is_about_groups: context.is_about_groups,
                    code,
                };
                return self.on_ndp(context.now, &rx, kind, body);
            }
        };
        let kind = bytes.first().copied().unwrap_or_default();
        let report = IcmpReport { interface: context.interface, ip, kind, code, info, mtu };
        let (header, payload) =
            ipv6::parse_quoted(quoted).map_err(|_| DropReason::IcmpMalformed)?;
        let chain = walk(header.next_header, payload, 0).map_err(|_| DropReason::IcmpMalformed)?;
        if chain.fragment.is_some_and(|piece| piece.offset != 0) {
            return Err(DropReason::IcmpInvalid);
        }
        let quoted = Quoted {
            src: header.src.into(),
            dst: header.dst.into(),
            protocol: chain.protocol,
            payload: chain.payload,
        };
        self.on_icmp_error(context.now, &report, &quoted, sink)
    }

    /// RFC 4443, section 4.2; a group is answered, too, as Linux does.
    //= https://www.rfc-editor.org/rfc/rfc4443#section-4.1
    //# Every node MUST implement an ICMPv6 Echo responder function that receives Echo Requests and
    //# originates corresponding Echo Replies.
    //= https://www.rfc-editor.org/rfc/rfc4443#section-4.2
    //# Every node MUST implement an ICMPv6 Echo responder function that receives Echo Requests and
    //# originates corresponding Echo Replies.
    //= https://www.rfc-editor.org/rfc/rfc4443#section-4.2
    //# An Echo Reply SHOULD be sent in response to an Echo Request message sent to an IPv6
    //# multicast or anycast address.
    //= https://www.rfc-editor.org/rfc/rfc4443#section-4.2
    //# The data received in the ICMPv6 Echo Request message MUST be returned entirely and
    //# unmodified in the ICMPv6 Echo Reply message.
    fn answer_echo_v6(
        &mut self,
        context: &RxContext,
        (from, to): (Ipv6Addr, Ipv6Addr),
        traffic_class: u8,
        request: &[u8],
    ) -> Result<(), DropReason> {
        let RxContext { now, interface, .. } = *context;
        let src = self.answers_as(interface, to, from).ok_or(DropReason::ReplyLimit)?;
        let (fixed, data) = request
            .split_first_chunk::<{ icmpv6::HEADER_LEN }>()
            .ok_or(DropReason::IcmpMalformed)?;
        let mut head = *fixed;
        if let Some(kind) = head.first_mut() {
            *kind = icmpv6::ECHO_REPLY;
        }
        let towards = Towards { interface, src, dst: from, traffic_class };
        let sent = self.send_icmpv6(now, towards, &mut head, data);
        sent.ok_or(DropReason::ReplyLimit)?;
        self.counters.echo_replies = self.counters.echo_replies.wrapping_add(1);
        Ok(())
    }
}

/// Whether a first fragment reaches into what the packet carries (RFC 7112).
fn has_all_headers(first: Protocol, payload: &[u8]) -> bool {
    match walk(first, payload, 0) {
        Ok(chain) => {
            let least = match chain.protocol {
                Protocol::TCP => 20,
                Protocol::UDP | Protocol::ICMPV6 => 8,
                _ => 0,
            };
            chain.fragment.is_none() && chain.payload.len() >= least
        }
        // What is wrong with it is said once it is whole.
        Err(Unreadable::Malformed(_)) => false,
        Err(_) => true,
    }
}
