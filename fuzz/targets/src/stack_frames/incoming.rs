//! What the network does to the stack: frames of every kind, near enough to what the stack has
//! said itself that they get far.

use std::net::{IpAddr, Ipv6Addr};

use stack::api::*;
use wire::checksum::Sum;
use wire::ethernet::{EtherType, EthernetHeader};
use wire::icmp::IcmpMessage;
use wire::icmpv6::Icmpv6Message;
use wire::ipv4::{Ipv4Header, Protocol};
use wire::ipv6::{Fragment, Ipv6Header};
use wire::tcp::{
    FastOpenCookie, SackBlock, SeqNumber, TcpFlags, TcpHeader, Timestamps, UserTimeout,
};
use wire::udp::UdpHeader;
use wire::{MacAddr, arp, ipv6, mld, ndp, tcp};

use super::{INTERFACE, Input, OWN, OWN_MAC, OWN_V6, PEER, PEER_MAC, PEER_V6, ROUTER, Run};

/// The IP header around a payload, of either family.
struct Around {
    src: IpAddr,
    dst: IpAddr,
    protocol: Protocol,
    tos: u8,
    hops: u8,
}

impl Around {
    /// From the peer to us.
    fn peer(is_v6: bool, protocol: Protocol) -> Self {
        let (src, dst) = match is_v6 {
            false => (IpAddr::from(PEER), IpAddr::from(OWN)),
            true => (IpAddr::from(PEER_V6), IpAddr::from(OWN_V6)),
        };
        Self { src, dst, protocol, tos: 0, hops: 64 }
    }

    /// Around a message of ICMPv6.
    fn control(src: Ipv6Addr, dst: Ipv6Addr, hops: u8) -> Self {
        let (src, dst) = (src.into(), dst.into());
        Self { src, dst, protocol: Protocol::ICMPV6, tos: 0, hops }
    }

    /// Writes the sum over the pseudo-header and `bytes` to two of the bytes.
    fn seal(&self, bytes: &mut [u8], at: usize) {
        bytes[at..at + 2].fill(0);
        let pseudo = Sum::pseudo(self.src, self.dst, self.protocol, bytes.len() as u32);
        let sum = pseudo.expect("one family").then(Sum::of(bytes)).finish();
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

impl Run {
    /// Lets the stack know the peer over both families, and its own addresses be settled.
    pub(super) fn settle(&mut self) {
        for _ in 0..4 {
            self.now = Instant(self.now.0 + 1_000_000_000);
            self.timers();
        }
        self.ask_for(OWN, PEER, PEER_MAC, arp::Operation::REQUEST);
        let mut solicitation = vec![0; 4];
        solicitation.extend(Ipv6Addr::from(OWN_V6).octets());
        solicitation.extend([1, 1]);
        solicitation.extend(PEER_MAC.0);
        let src = PEER_V6.into();
        let group = ipv6::solicited_node(OWN_V6.into());
        let around = Around::control(src, group, ndp::HOP_LIMIT);
        self.control(ndp::NEIGHBOR_SOLICITATION, &solicitation, &around);
    }

    pub(super) fn receive(&mut self, frame: &[u8], meta: RxFrameMeta) {
        self.stack.on_frame(
            self.now,
            &RxFrame { interface: INTERFACE, bytes: frame, meta },
            &mut self.keeper,
        );
    }

    fn deliver(&mut self, around: &Around, payload: &[u8], meta: RxFrameMeta) {
        let mut frame = vec![0; 54];
        let (mac, ethertype) = match around.dst {
            IpAddr::V6(dst) if dst.is_multicast() => {
                (MacAddr::of_multicast_v6(dst), EtherType::IPV6)
            }
            IpAddr::V6(_) => (OWN_MAC, EtherType::IPV6),
            IpAddr::V4(_) => (OWN_MAC, EtherType::IPV4),
        };
        let ethernet = EthernetHeader { dst: mac, src: PEER_MAC, vlan: None, ethertype };
        ethernet.emit(&mut frame).expect("room");
        let emitted = match (around.src, around.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let (tos, ttl) = (around.tos, around.hops);
                let ip = Ipv4Header {
                    protocol: around.protocol,
                    src,
                    dst,
                    tos,
                    ttl,
                    ..Ipv4Header::default()
                };
                ip.emit(payload.len(), &mut frame[14..])
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let ip = Ipv6Header {
                    traffic_class: around.tos,
                    flow_label: 0,
                    next_header: around.protocol,
                    hop_limit: around.hops,
                    src,
                    dst,
                };
                ip.emit(payload.len(), &mut frame[14..])
            }
            _ => return,
        };
        let Ok(header_len) = emitted else { return };
        frame.truncate(14 + header_len);
        frame.extend(payload);
        self.receive(&frame, meta);
    }

    /// A good IP header around anything, also in fragments.
    pub(super) fn packet(&mut self, input: &mut Input<'_>) {
        let fragment = input.short();
        let ip = Ipv4Header {
            protocol: Protocol([1, 6, 17, 1][usize::from(input.byte() % 4)]),
            identification: u16::from(input.byte() % 2),
            dont_fragment: false,
            more_fragments: fragment & 0x2000 != 0,
            fragment_offset: (fragment & 0x1f) << 3,
            src: if input.byte() == 0 { [10, 0, 0, input.byte()] } else { PEER }.into(),
            dst: OWN.into(),
            ..Ipv4Header::default()
        };
        let len = usize::from(input.byte()) * 8;
        let mut payload = input.bytes(len).to_vec();
        // Right ICMP sums let the quoted packets be looked at.
        if ip.protocol == Protocol::ICMP && !ip.is_fragment() && payload.len() >= 8 {
            payload[2..4].fill(0);
            let sum = Sum::of(&payload).finish();
            payload[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        let mut frame = vec![0; 34];
        let ethernet =
            EthernetHeader { dst: OWN_MAC, src: PEER_MAC, vlan: None, ethertype: EtherType::IPV4 };
        ethernet.emit(&mut frame).expect("room");
        if ip.emit(payload.len(), &mut frame[14..]).is_ok() {
            frame.extend(payload);
            self.receive(&frame, meta(input));
        }
    }

    /// An IPv6 packet with anything behind its header: extension headers, a fragment.
    pub(super) fn packet_v6(&mut self, input: &mut Input<'_>) {
        const NEXT: [u8; 8] = [0, 43, 44, 60, 59, 17, 58, 6];
        let shape = input.byte();
        let mut around = Around::peer(true, Protocol(NEXT[usize::from(shape % 8)]));
        let mut payload = Vec::new();
        if shape & 8 != 0 {
            let place = input.byte();
            let fragment = Fragment {
                next_header: around.protocol,
                offset: u16::from(place & 0x3f) << 3,
                more: place & 0x40 != 0,
                identification: u32::from(place >> 7),
            };
            payload.resize(ipv6::FRAGMENT_LEN, 0);
            fragment.emit(&mut payload).expect("room");
            around.protocol = Protocol::FRAGMENT;
        }
        if shape & 16 != 0 {
            around.dst = ipv6::ALL_NODES.into();
        }
        let len = usize::from(input.byte()) * 8;
        payload.extend(input.bytes(len));
        self.deliver(&around, &payload, meta(input));
    }

    /// A segment near what the last one of ours suggests.
    pub(super) fn segment(&mut self, input: &mut Input<'_>) {
        let near = |input: &mut Input<'_>, to: u32| match input.byte() {
            delta @ 0..=200 => to.wrapping_add(u32::from(delta / 50)),
            delta @ 201..=240 => to.wrapping_sub(u32::from(delta - 200) * 300),
            _ => u32::from(input.short()) << 16 | u32::from(input.short()),
        };
        let shape = input.byte();
        let (is_v6, ports, sequence, acknowledged) = match &self.last {
            Some(last) => {
                let (ours, end) = (&last.header, last.header.seq.0.wrapping_add(last.len));
                (last.is_v6, (ours.dst_port, ours.src_port), ours.ack.0, end)
            }
            None => (shape & 1 != 0, (input.short(), 80), 0, 0),
        };
        let (is_v6, ports) = match input.byte() {
            0..=40 => (shape & 1 != 0, (input.short(), 80)),
            _ => (is_v6, ports),
        };
        let flags = match input.byte() {
            0..=30 => TcpFlags(input.byte()),
            31..=60 => TcpFlags::SYN,
            61..=75 => TcpFlags::SYN.with(TcpFlags::ACK),
            76..=85 => TcpFlags::SYN.with(TcpFlags::ECE).with(TcpFlags::CWR),
            86..=110 => TcpFlags::FIN.with(TcpFlags::ACK),
            111..=130 => TcpFlags::URG.with(TcpFlags::ACK),
            131..=150 => TcpFlags::ECE.with(TcpFlags::ACK),
            _ => TcpFlags::ACK,
        };
        let mut header = TcpHeader {
            src_port: ports.0,
            dst_port: ports.1,
            seq: SeqNumber(near(input, sequence)),
            ack: SeqNumber(near(input, acknowledged)),
            flags,
            window: input.short(),
            checksum: 0,
            urgent: 0,
        };
        if flags.urg() {
            header.urgent = u16::from(input.byte());
        }
        let mut bytes = vec![0; tcp::HEADER_LEN + tcp::OPTIONS_LEN_MAX];
        let options =
            if shape & 2 != 0 { self.options_near(&header, input) } else { Default::default() };
        let Ok(len) = header.emit(&options, &mut bytes) else { return };
        bytes.truncate(len);
        if shape & 2 == 0 {
            let len = usize::from(input.byte() % 11) * 4;
            let raw = input.bytes(len);
            bytes.extend(&raw[..raw.len() / 4 * 4]);
            bytes[12] = ((bytes.len() / 4) as u8) << 4;
        }
        let len = usize::from(input.byte()) * 6;
        bytes.extend(input.bytes(len));
        let mut around = Around::peer(is_v6, Protocol::TCP);
        around.tos = shape >> 6;
        around.seal(&mut bytes, 16);
        let gso_bytes = (shape & 4 != 0).then(|| input.short());
        self.deliver(&around, &bytes, RxFrameMeta { checksum: RxChecksum::Unknown, gso_bytes });
    }

    /// Options as a peer would send them: its echo of our clock, blocks of what we have sent,
    /// our own cookie.
    fn options_near(&self, header: &TcpHeader, input: &mut Input<'_>) -> tcp::TcpOptions {
        let which = input.byte();
        let ours = self.last.as_ref().map(|last| last.options).unwrap_or_default();
        let mut options = tcp::TcpOptions::default();
        if which & 1 != 0 {
            let echo = ours.timestamps.map_or(0, |ours| ours.value);
            let value = ours.timestamps.map_or(0, |ours| ours.echo);
            let drift = u32::from(input.byte());
            options.timestamps = Some(Timestamps {
                value: value.wrapping_add(drift).wrapping_sub(16),
                echo: echo.wrapping_sub(drift >> 6),
            });
        }
        if header.flags.syn() {
            options.mss = (which & 2 != 0).then(|| input.short());
            options.window_scale = (which & 4 != 0).then(|| input.byte() % 16);
            options.sack_permitted = which & 8 != 0;
            if which & 16 != 0 {
                options.fast_open = Some(self.cookie.unwrap_or(FastOpenCookie::REQUEST));
            }
        } else if which & 2 != 0 {
            let block = |input: &mut Input<'_>| {
                let left = header.ack + u32::from(input.byte()) * 100;
                SackBlock { left, right: left + u32::from(input.byte()) * 100 }
            };
            options.sack = (0..=which >> 6).map(|_| block(input)).collect();
        }
        if which & 32 != 0 {
            options.user_timeout = UserTimeout::from_seconds(u64::from(input.short()) * 8);
        }
        options
    }

    /// A router or the peer complains of the last packet that went out.
    pub(super) fn error(&mut self, input: &mut Input<'_>) {
        let Some(sent) = &self.sent else { return };
        let (is_v6, mut quoted) = (sent[0] >> 4 == 6, sent.clone());
        let (kind, code, word) = (input.byte(), input.byte() % 16, input.short());
        quoted.truncate(usize::from(input.byte()).max(8));
        // Sometimes it is not quite ours.
        let at = usize::from(input.byte());
        if let Some(byte) = quoted.get_mut(at) {
            *byte ^= 1;
        }
        let quoted = &quoted[..];
        let mut message = vec![0; quoted.len() + 8];
        let mut around = Around::peer(is_v6, Protocol::ICMP);
        if is_v6 {
            let error = match kind % 4 {
                0 => Icmpv6Message::Unreachable { code, quoted },
                1 => Icmpv6Message::PacketTooBig { mtu: word.into(), quoted },
                2 => Icmpv6Message::TimeExceeded { code, quoted },
                _ => Icmpv6Message::ParameterProblem { code, pointer: word.into(), quoted },
            };
            around.protocol = Protocol::ICMPV6;
            error.emit(PEER_V6.into(), OWN_V6.into(), &mut message).expect("room");
        } else {
            let error = match kind % 4 {
                0 => IcmpMessage::Unreachable { code, next_hop_mtu: word, quoted },
                1 => {
                    let code = wire::icmp::unreachable::FRAGMENTATION_NEEDED;
                    IcmpMessage::Unreachable { code, next_hop_mtu: word, quoted }
                }
                2 => IcmpMessage::TimeExceeded { code, quoted },
                _ => IcmpMessage::ParameterProblem { code, pointer: word as u8, quoted },
            };
            error.emit(&mut message).expect("room");
        }
        self.deliver(&around, &message, RxFrameMeta::default());
    }

    pub(super) fn datagram(&mut self, input: &mut Input<'_>) {
        let shape = input.byte();
        let len = usize::from(input.byte()) * 4;
        let payload = input.bytes(len);
        let header = UdpHeader {
            src_port: 9,
            dst_port: u16::from(shape >> 5) + 50,
            len: payload.len() as u16 + 8,
            checksum: 0,
        };
        let mut bytes = vec![0; 8];
        header.emit(&mut bytes).expect("room");
        bytes.extend(payload);
        let mut around = Around::peer(shape & 1 != 0, Protocol::UDP);
        if shape & 2 != 0 {
            around.seal(&mut bytes, 6);
        }
        if shape & 4 != 0 {
            (around.tos, around.hops) = (input.byte(), input.byte());
        }
        // What the port has coalesced (GRO).
        let gso_bytes = (shape & 8 != 0).then(|| input.short());
        self.deliver(&around, &bytes, RxFrameMeta { gso_bytes, ..RxFrameMeta::default() });
    }

    pub(super) fn neighbor(&mut self, input: &mut Input<'_>) {
        let operation = arp::Operation(u16::from(input.byte() % 3));
        let mac = MacAddr([2, 0, 0, 0, 0, input.byte()]);
        let sender = [10, 0, 0, input.byte()];
        let target = if input.byte() < 200 { OWN } else { PEER };
        // A neighbour that is not a unicast station is refused as malformed; that is the point.
        self.ask_for(target, sender, mac, operation);
    }

    fn ask_for(
        &mut self,
        target: [u8; 4],
        sender: [u8; 4],
        mac: MacAddr,
        operation: arp::Operation,
    ) {
        let packet = arp::ArpPacket {
            operation,
            sender_mac: mac,
            sender_ip: sender.into(),
            target_mac: MacAddr::ZERO,
            target_ip: target.into(),
        };
        let ethertype = EtherType::ARP;
        let ethernet = EthernetHeader { dst: MacAddr::BROADCAST, src: mac, vlan: None, ethertype };
        let mut frame = [0; 42];
        ethernet.emit(&mut frame).expect("room");
        packet.emit(&mut frame[14..]).expect("room");
        self.receive(&frame, RxFrameMeta::default());
    }

    /// Neighbour discovery and listener discovery: what routers and neighbours say.
    pub(super) fn discovery(&mut self, input: &mut Input<'_>) {
        const KINDS: [u8; 8] = [
            mld::QUERY,
            ndp::ROUTER_SOLICITATION,
            ndp::ROUTER_ADVERTISEMENT,
            ndp::NEIGHBOR_SOLICITATION,
            ndp::NEIGHBOR_ADVERTISEMENT,
            137,
            mld::REPORT,
            128,
        ];
        let shape = input.byte();
        let kind = KINDS[usize::from(shape % 8)];
        let hops =
            if shape & 8 != 0 || kind != mld::QUERY { ndp::HOP_LIMIT } else { mld::HOP_LIMIT };
        let src: Ipv6Addr = match shape >> 4 & 3 {
            0 => ROUTER.into(),
            1 => PEER_V6.into(),
            2 => OWN_V6.into(),
            _ => Ipv6Addr::UNSPECIFIED,
        };
        let dst = match shape >> 6 {
            0 => ipv6::ALL_NODES,
            1 => OWN_V6.into(),
            2 => ipv6::solicited_node(OWN_V6.into()),
            _ => ipv6::ALL_ROUTERS,
        };
        let mut body = Vec::new();
        // A neighbour is spoken of: flags, and mostly an address that matters.
        if (ndp::NEIGHBOR_SOLICITATION..=ndp::NEIGHBOR_ADVERTISEMENT).contains(&kind) {
            body.extend([input.byte(), 0, 0, 0]);
            let target = match input.byte() % 4 {
                0 => OWN_V6.into(),
                1 => PEER_V6.into(),
                2 => ROUTER.into(),
                _ => self.own_link_local(),
            };
            body.extend(target.octets());
        }
        let len = usize::from(input.byte());
        body.extend(input.bytes(len));
        self.control(kind, &body, &Around::control(src, dst, hops));
    }

    /// The link-local address that the stack has made of its MAC address.
    fn own_link_local(&self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = OWN_MAC.0.map(u16::from);
        let tail = [(a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d, e << 8 | f];
        Ipv6Addr::new(0xfe80, 0, 0, 0, tail[0], tail[1], tail[2], tail[3])
    }

    fn control(&mut self, kind: u8, body: &[u8], around: &Around) {
        let mut message = vec![kind, 0, 0, 0];
        message.extend(body);
        around.seal(&mut message, 2);
        self.deliver(around, &message, RxFrameMeta::default());
    }
}

pub(super) fn meta(input: &mut Input<'_>) -> RxFrameMeta {
    let checksum = match input.byte() {
        0..=100 => RxChecksum::Valid,
        101..=180 => RxChecksum::Unknown,
        _ => RxChecksum::Partial { start: input.short() % 64, offset: input.short() % 32 },
    };
    RxFrameMeta { checksum, gso_bytes: (input.byte() > 200).then(|| input.short()) }
}
