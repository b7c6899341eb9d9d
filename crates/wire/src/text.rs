//! A frame as one line, in the manner of tcpdump: for golden transcripts and logs.
//!
//! ```text
//! arp who-has 10.0.0.2 tell 10.0.0.1
//! 10.0.0.1:40000>10.0.0.2:80 S 1000 win 64240 <mss 1460,sackOK,ts 7 0,wscale 10>
//! 10.0.0.1:40000>10.0.0.2:80 P. 1001:1101 ack 501 win 512 <ts 9 8>
//! 10.0.0.2:53>10.0.0.1:4000 udp 120
//! 10.0.0.9>10.0.0.1 icmp unreachable frag-needed mtu 1400 [10.0.0.1:40000>10.0.0.2:80 seq 1001]
//! ```
//!
//! Sequence numbers are absolute; a range is first and one past last, as in tcpdump's old form.
//! Layer-4 checksums are not looked at, because a frame on its way out has a partial one.

mod groups;
mod v6;

use core::fmt;
use core::net::IpAddr;

use crate::arp::Operation;
use crate::ethernet::EtherType;
use crate::icmp::{Echo, IcmpMessage, unreachable};
use crate::ipv4::{Ipv4Header, Protocol};
use crate::tcp::{TcpFlags, TcpOptions, TcpSegment};
use crate::{MacAddr, arp, ethernet, icmp, ipv4, tcp, udp};

/// Shows a frame, from its Ethernet header on, as one line.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    frame: &'a [u8],
    names: &'a [(IpAddr, &'a str)],
}

impl<'a> Line<'a> {
    /// The line of a frame.
    pub fn of(frame: &'a [u8]) -> Self {
        Line { frame, names: &[] }
    }

    /// The same, with names in the place of some addresses.
    pub fn with_names(self, names: &'a [(IpAddr, &'a str)]) -> Self {
        Line { names, ..self }
    }
}

impl fmt::Display for Echo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.identifier, self.sequence, self.data.len())
    }
}

/// An address, or its name.
struct Host<'a> {
    address: IpAddr,
    names: &'a [(IpAddr, &'a str)],
}

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names.iter().find(|(address, _)| *address == self.address) {
            Some((_, name)) => f.write_str(name),
            None if self.address.is_ipv6() => write!(f, "[{}]", self.address),
            None => self.address.fmt(f),
        }
    }
}

/// Addresses and protocol of a packet.
struct Route<'a> {
    src: Host<'a>,
    dst: Host<'a>,
    protocol: Protocol,
}

impl Route<'_> {
    /// `a:1>b:2`
    fn show_ports(&self, f: &mut fmt::Formatter<'_>, src: u16, dst: u16) -> fmt::Result {
        write!(f, "{}:{src}>{}:{dst}", self.src, self.dst)
    }

    /// `a>b`
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}>{}", self.src, self.dst)
    }

    /// What an ICMP error quotes, which may be cut behind the ports.
    fn show_quoted(&self, f: &mut fmt::Formatter<'_>, payload: &[u8]) -> fmt::Result {
        match (self.protocol, tcp::parse_quoted(payload)) {
            (Protocol::TCP, Ok((src, dst, seq))) => {
                self.show_ports(f, src, dst)?;
                write!(f, " seq {seq}")
            }
            // UDP's ports lie where TCP's do.
            (Protocol::UDP, Ok((src, dst, _))) => {
                self.show_ports(f, src, dst)?;
                f.write_str(" udp")
            }
            (Protocol(other), _) => {
                self.show(f)?;
                write!(f, " proto {other}")
            }
        }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (header, rest) = match ethernet::parse(self.frame) {
            Ok(parts) => parts,
            Err(error) => return write!(f, "ethernet: {error}"),
        };
        if let Some(tag) = header.vlan {
            write!(f, "vlan {} ", tag.id())?;
        }
        match header.ethertype {
            EtherType::ARP => self.show_arp(f, rest),
            EtherType::IPV4 => self.show_ipv4(f, rest),
            EtherType::IPV6 => self.show_ipv6(f, rest),
            other => {
                let (src, dst): (MacAddr, MacAddr) = (header.src, header.dst);
                write!(f, "{src}>{dst} ethertype {:#06x} ({})", other.0, rest.len())
            }
        }
    }
}

impl Line<'_> {
    fn host(&self, address: impl Into<IpAddr>) -> Host<'_> {
        Host { address: address.into(), names: self.names }
    }

    fn route_v4(&self, header: &Ipv4Header) -> Route<'_> {
        Route { src: self.host(header.src), dst: self.host(header.dst), protocol: header.protocol }
    }

    fn show_arp(&self, f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
        let packet = match arp::parse(bytes) {
            Ok(packet) => packet,
            Err(error) => return write!(f, "arp: {error}"),
        };
        let (sender, target) = (self.host(packet.sender_ip), self.host(packet.target_ip));
        match packet.operation {
            Operation::REQUEST => write!(f, "arp who-has {target} tell {sender}"),
            Operation::REPLY => write!(f, "arp {sender} is-at {}", packet.sender_mac),
            Operation(other) => write!(f, "arp operation {other}"),
        }
    }

    fn show_ipv4(&self, f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
        let packet = match ipv4::parse(bytes) {
            Ok(packet) => packet,
            Err(error) => return write!(f, "ip: {error}"),
        };
        let (header, route) = (packet.header, self.route_v4(&packet.header));
        if header.is_fragment() {
            route.show(f)?;
            let more = if header.more_fragments { "+" } else { "" };
            let start = header.fragment_offset;
            let len = packet.payload.len();
            return write!(
                f,
                " frag {} {start}:{len}{more} proto {}",
                header.identification, header.protocol.0
            );
        }
        self.show_transport(f, &route, packet.payload)
    }

    fn show_transport(
        &self,
        f: &mut fmt::Formatter<'_>,
        route: &Route<'_>,
        payload: &[u8],
    ) -> fmt::Result {
        match route.protocol {
            Protocol::TCP => match tcp::parse(payload) {
                Ok(segment) => {
                    route.show_ports(f, segment.header.src_port, segment.header.dst_port)?;
                    show_segment(f, &segment)
                }
                Err(error) => {
                    route.show(f)?;
                    write!(f, " tcp: {error}")
                }
            },
            Protocol::UDP => match udp::parse_header(payload) {
                Ok((header, rest)) => {
                    route.show_ports(f, header.src_port, header.dst_port)?;
                    write!(f, " udp {}", rest.len())
                }
                Err(error) => {
                    route.show(f)?;
                    write!(f, " udp: {error}")
                }
            },
            Protocol::ICMP => {
                route.show(f)?;
                match icmp::parse(payload) {
                    Ok(message) => self.show_icmp(f, &message),
                    Err(error) => write!(f, " icmp: {error}"),
                }
            }
            Protocol::IGMP => {
                route.show(f)?;
                self.show_igmp(f, payload)
            }
            Protocol::ICMPV6 => {
                route.show(f)?;
                self.show_icmpv6(f, payload)
            }
            Protocol(other) => {
                route.show(f)?;
                write!(f, " proto {other} ({})", payload.len())
            }
        }
    }

    fn show_icmp(&self, f: &mut fmt::Formatter<'_>, message: &IcmpMessage<'_>) -> fmt::Result {
        match *message {
            IcmpMessage::EchoRequest(echo) => write!(f, " icmp echo request {echo}"),
            IcmpMessage::EchoReply(echo) => write!(f, " icmp echo reply {echo}"),
            IcmpMessage::Unreachable { code, next_hop_mtu, quoted } => {
                f.write_str(" icmp unreachable ")?;
                match code {
                    unreachable::NET => f.write_str("net")?,
                    unreachable::HOST => f.write_str("host")?,
                    unreachable::PROTOCOL => f.write_str("protocol")?,
                    unreachable::PORT => f.write_str("port")?,
                    unreachable::FRAGMENTATION_NEEDED => {
                        write!(f, "frag-needed mtu {next_hop_mtu}")?;
                    }
                    other => write!(f, "code {other}")?,
                }
                self.show_quoted(f, quoted)
            }
            IcmpMessage::TimeExceeded { code, quoted } => {
                f.write_str(" icmp time-exceeded ")?;
                f.write_str(if code == 0 { "in-transit" } else { "reassembly" })?;
                self.show_quoted(f, quoted)
            }
            IcmpMessage::ParameterProblem { pointer, quoted, .. } => {
                write!(f, " icmp parameter-problem at {pointer}")?;
                self.show_quoted(f, quoted)
            }
            IcmpMessage::Other { kind, code } => write!(f, " icmp type {kind} code {code}"),
        }
    }

    fn show_quoted(&self, f: &mut fmt::Formatter<'_>, quoted: &[u8]) -> fmt::Result {
        f.write_str(" [")?;
        match ipv4::parse_quoted(quoted) {
            Ok(packet) => self.route_v4(&packet.header).show_quoted(f, packet.payload)?,
            Err(error) => write!(f, "ip: {error}")?,
        }
        f.write_str("]")
    }
}

/// Flag letters in tcpdump's order; the dot is ACK.
const FLAG_LETTERS: [(TcpFlags, &str); 8] = [
    (TcpFlags::FIN, "F"),
    (TcpFlags::SYN, "S"),
    (TcpFlags::RST, "R"),
    (TcpFlags::PSH, "P"),
    (TcpFlags::ACK, "."),
    (TcpFlags::URG, "U"),
    (TcpFlags::ECE, "E"),
    (TcpFlags::CWR, "W"),
];

fn show_segment(f: &mut fmt::Formatter<'_>, segment: &TcpSegment<'_>) -> fmt::Result {
    let header = &segment.header;
    f.write_str(" ")?;
    if header.flags == TcpFlags::NONE {
        f.write_str("none")?;
    }
    for (flag, letter) in FLAG_LETTERS {
        if header.flags.contains(flag) {
            f.write_str(letter)?;
        }
    }
    write!(f, " {}", header.seq)?;
    if !segment.payload.is_empty() {
        // At most 64 KiB.
        write!(f, ":{}", header.seq + segment.payload.len() as u32)?;
    }
    if header.flags.ack() {
        write!(f, " ack {}", header.ack)?;
    }
    write!(f, " win {}", header.window)?;
    if header.flags.urg() {
        write!(f, " urg {}", header.urgent)?;
    }
    show_options(f, &segment.options)
}

fn show_options(f: &mut fmt::Formatter<'_>, options: &TcpOptions) -> fmt::Result {
    if *options == TcpOptions::NONE {
        return Ok(());
    }
    let mut lead = " <";
    let mut separate = |f: &mut fmt::Formatter<'_>| {
        f.write_str(lead)?;
        lead = ",";
        Ok(())
    };
    if let Some(mss) = options.mss {
        separate(f)?;
        write!(f, "mss {mss}")?;
    }
    if options.sack_permitted {
        separate(f)?;
        f.write_str("sackOK")?;
    }
    if let Some(timestamps) = options.timestamps {
        separate(f)?;
        write!(f, "ts {} {}", timestamps.value, timestamps.echo)?;
    }
    if let Some(shift) = options.window_scale {
        separate(f)?;
        write!(f, "wscale {shift}")?;
    }
    if !options.sack.is_empty() {
        separate(f)?;
        f.write_str("sack")?;
        for block in options.sack.as_slice() {
            write!(f, " {}:{}", block.left, block.right)?;
        }
    }
    if let Some(timeout) = options.user_timeout {
        separate(f)?;
        write!(f, "uto {}", timeout.seconds())?;
    }
    f.write_str(">")
}
