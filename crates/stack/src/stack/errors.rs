//! ICMP errors about packets of ours (RFC 792, RFC 4443), on their way to who has sent them.

use std::net::{IpAddr, SocketAddr};

use wire::ipv4::Protocol;
use wire::{icmpv6, udp};

use super::Stack;
use super::receive::Ip;
use crate::api::*;
use crate::drops::DropReason;
use crate::tcp::{Ends, IcmpError};

/// An ICMP message about a packet that we sent.
pub(super) struct IcmpReport<'a> {
    /// Through which it came.
    pub interface: InterfaceIndex,
    /// The message's own header.
    pub ip: &'a Ip<'a>,
    /// Its type and code.
    pub kind: u8,
    pub code: u8,
    /// MTU or pointer, where its type has one.
    pub info: u32,
    /// What would not have been too long, where that was the reason; 0 is not known.
    pub mtu: Option<u16>,
}

/// The packet that an ICMP error quotes.
pub(super) struct Quoted<'a> {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub protocol: Protocol,
    /// From layer 4 on.
    pub payload: &'a [u8],
}

/// Types of ICMP and of ICMPv6.
const UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const UNREACHABLE6: u8 = 1;
const TOO_BIG6: u8 = 2;
const TIME_EXCEEDED6: u8 = 3;

/// What a message means, and whether a UDP socket is told unasked (for it will not go away by itself):
/// as Linux's `icmp_err_convert` and `udp_err` have it.
fn meaning(report: &IcmpReport<'_>) -> Option<(UdpError, bool)> {
    use UdpError::*;
    use wire::icmp::unreachable as v4;
    use wire::icmpv6::unreachable as v6;
    if report.ip.src.is_ipv6() {
        return Some(match (report.kind, report.code) {
            (UNREACHABLE6, v6::NO_ROUTE) => (NetUnreachable, false),
            (UNREACHABLE6, v6::PROHIBITED | 5 | 6) => (Prohibited, true),
            (UNREACHABLE6, v6::PORT) => (Refused, true),
            (UNREACHABLE6, v6::BEYOND_SCOPE | v6::ADDRESS) => (HostUnreachable, false),
            // A socket that lets others cut is not concerned; see `Stack::on_udp_error`.
            (TOO_BIG6, _) => (TooLong, true),
            (TIME_EXCEEDED6, _) => (HostUnreachable, false),
            _ => (Protocol, true),
        });
    }
    Some(match (report.kind, report.code) {
        (UNREACHABLE, v4::NET | 11) => (NetUnreachable, false),
        (UNREACHABLE, v4::HOST | 12) => (HostUnreachable, false),
        (UNREACHABLE, v4::PROTOCOL) => (NoProtocol, true),
        (UNREACHABLE, v4::PORT) => (Refused, true),
        (UNREACHABLE, v4::FRAGMENTATION_NEEDED) => (TooLong, true),
        (UNREACHABLE, 5) => (NotSupported, false),
        (UNREACHABLE, 6 | 9) => (NetUnreachable, true),
        (UNREACHABLE, 7) => (HostDown, true),
        (UNREACHABLE, 8) => (NoNetwork, true),
        (UNREACHABLE, 10 | 13..=15) => (HostUnreachable, true),
        (UNREACHABLE, _) => return None,
        (TIME_EXCEEDED, _) => (HostUnreachable, false),
        _ => (Protocol, true),
    })
}

/// What a message means to a connection.
fn meaning_to_tcp(report: &IcmpReport<'_>) -> Option<IcmpError> {
    if let Some(mtu) = report.mtu {
        return Some(IcmpError::TooBig { mtu });
    }
    Some(IcmpError::Failed(match meaning(report)?.0 {
        UdpError::Refused => TcpError::Refused,
        UdpError::NoProtocol => TcpError::NoProtocol,
        UdpError::HostUnreachable => TcpError::HostUnreachable,
        UdpError::NetUnreachable => TcpError::NetUnreachable,
        UdpError::HostDown => TcpError::HostDown,
        UdpError::NoNetwork => TcpError::NoNetwork,
        UdpError::NotSupported => TcpError::NotSupported,
        UdpError::Prohibited => TcpError::Prohibited,
        UdpError::Protocol => TcpError::Protocol,
        UdpError::TooLong => return None,
    }))
}

/// A datagram of ours that an error quotes.
struct QuotedDatagram<'a> {
    local: SocketAddr,
    remote: SocketAddr,
    payload: &'a [u8],
}

impl Stack {
    /// Believes an ICMP error only when it quotes something that we sent (RFC 5927, section 4);
    /// TCP compares the sequence number too.
    //= https://www.rfc-editor.org/rfc/rfc4443#section-3.1
    //# A node receiving the ICMPv6 Destination Unreachable message MUST notify the upper-layer
    //# process if the relevant process can be identified (see Section 2.4, (d)).
    //= https://www.rfc-editor.org/rfc/rfc4443#section-3.2
    //# An incoming Packet Too Big message MUST be passed to the upper-layer process if the relevant
    //# process can be identified (see Section 2.4, (d)).
    //= https://www.rfc-editor.org/rfc/rfc4443#section-3.3
    //# An incoming Time Exceeded message MUST be passed to the upper-layer process if the relevant
    //# process can be identified (see Section 2.4, (d)).
    //= https://www.rfc-editor.org/rfc/rfc4443#section-3.4
    //# A node receiving this ICMPv6 message MUST notify the upper-layer process if the relevant
    //# process can be identified (see Section 2.4, (d)).
    //= https://www.rfc-editor.org/rfc/rfc8201#section-4
    //# Nodes should appropriately validate the payload of ICMPv6 PTB messages to ensure these are
    //# received in response to transmitted traffic (i.e., a reported error condition that
    //# corresponds to an IPv6 packet actually sent by the application) per [ICMPv6].
    pub(super) fn on_icmp_error<S: Sink>(
        &mut self,
        now: Instant,
        report: &IcmpReport<'_>,
        quoted: &Quoted<'_>,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        // Of what we send nothing goes to an IPv4 address in an IPv6 header.
        let is_mapped = matches!(quoted.dst, IpAddr::V6(to) if to.to_ipv4_mapped().is_some());
        if is_mapped || !self.routes.is_own(quoted.src) {
            return Err(DropReason::IcmpInvalid);
        }
        let (&[s0, s1, d0, d1, a, b, c, d], _) =
            quoted.payload.split_first_chunk().ok_or(DropReason::IcmpMalformed)?;
        let local = SocketAddr::new(quoted.src, u16::from_be_bytes([s0, s1]));
        let remote = SocketAddr::new(quoted.dst, u16::from_be_bytes([d0, d1]));
        match quoted.protocol {
            Protocol::TCP => {
                let error = meaning_to_tcp(report).ok_or(DropReason::IcmpNotServed)?;
                let sequence = u32::from_be_bytes([a, b, c, d]);
                self.tcp.on_icmp(now, Ends { local, remote }, sequence, error)?;
                if let Some(mtu) = report.mtu {
                    self.on_too_big(now, remote.ip(), mtu);
                }
                Ok(())
            }
            Protocol::UDP => {
                let payload = quoted.payload.get(udp::HEADER_LEN..).unwrap_or_default();
                self.on_udp_error(now, report, &QuotedDatagram { local, remote, payload }, sink)
            }
            // An echo reply of ours: nobody is to be told, and the next ones are to be smaller. That it
            // is one cannot be known, and nothing is lost but bytes of each packet if it is none.
            Protocol::ICMPV6 if quoted.payload.first() == Some(&icmpv6::ECHO_REPLY) => {
                if let Some(mtu) = report.mtu {
                    self.on_too_big(now, remote.ip(), mtu);
                }
                Ok(())
            }
            _ => Err(DropReason::IcmpNoSocket),
        }
    }

    /// An error about a datagram. Connected sockets hear of those that stay (RFC 1122, section
    /// 4.1.3.3; connected, because only then it is known whose it is), and of all who asks for it.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.3.3
    //# UDP MUST pass to the application layer all ICMP error messages that it receives from the IP
    //# layer.
    fn on_udp_error<S: Sink>(
        &mut self,
        now: Instant,
        report: &IcmpReport<'_>,
        quoted: &QuotedDatagram<'_>,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let QuotedDatagram { local, remote, payload } = *quoted;
        let (error, is_lasting) = meaning(report).ok_or(DropReason::IcmpNotServed)?;
        let (id, owner) = self.udp.find(local, remote).ok_or(DropReason::IcmpNoSocket)?;
        let socket = *self.udp.socket(id).map_err(|_| DropReason::IcmpNoSocket)?;
        let options = socket.options;
        if let (UdpError::TooLong, Some(mtu)) = (error, report.mtu) {
            //= https://www.rfc-editor.org/rfc/rfc8200#section-5
            //# It is strongly recommended that IPv6 nodes implement Path MTU
            //# Discovery [RFC8201], in order to discover and take advantage of path
            //# MTUs greater than 1280 octets.
            let is_cut = options.pmtu == PathMtuDiscovery::Dont;
            if is_cut && local.is_ipv4() {
                // What routers may cut was not too long for any of them.
                return Err(DropReason::IcmpInvalid);
            }
            if options.pmtu != PathMtuDiscovery::Probe {
                self.on_too_big(now, remote.ip(), mtu);
            }
            if is_cut {
                return Ok(());
            }
        }
        let is_asked_for =
            if local.is_ipv4() { options.report_errors } else { options.report_errors6 };
        if !(is_asked_for || is_lasting && socket.remote.is_some()) {
            return Ok(());
        }
        let report = UdpErrorReport {
            error,
            kind: report.kind,
            code: report.code,
            info: report.info,
            offender: report.ip.src,
            remote,
            local,
            interface: report.interface,
            tos: report.ip.tos,
            ttl: report.ip.ttl,
        };
        if !(is_asked_for && sink.udp_error(id, owner, &report, payload)) {
            self.udp.raise(id, error);
        }
        Ok(())
    }

    /// Largest IP packet that reaches the remote of a UDP socket, as far as is known.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no UDP socket; [`RequestError::State`] if it is not
    /// connected; [`RequestError::NoRoute`] without a route to its remote.
    pub fn udp_path_mtu(&self, now: Instant, id: SocketId) -> Result<u16, RequestError> {
        let remote = self.udp.socket(id)?.remote.ok_or(RequestError::State)?;
        let route = self.route_to(remote.ip()).ok_or(RequestError::NoRoute)?;
        Ok(self.mtu_towards(now, remote.ip(), route.mtu))
    }

    /// A datagram was too long to be sent ([`RequestError::TooLong`]): its socket learns of it,
    /// since the caller of the program is gone by now.
    pub fn udp_too_long<S: Sink>(
        &mut self,
        now: Instant,
        id: SocketId,
        send: &UdpSend,
        sink: &mut S,
    ) {
        let Ok(&socket) = self.udp.socket(id) else { return };
        let Some(remote) = send.remote.map(canonical).or(socket.remote) else { return };
        let Some(route) = self.routes.lookup(remote.ip()) else { return };
        let mtu = match send.cut.by_link {
            true => route.mtu,
            false => self.path_mtus.towards(now, remote.ip(), route.mtu),
        };
        let UdpOptions { report_errors, report_errors6, .. } = socket.options;
        let is_asked_for = if remote.is_ipv4() { report_errors } else { report_errors6 };
        let error = UdpError::TooLong;
        let report = UdpErrorReport {
            error,
            kind: 0,
            code: 0,
            info: mtu.into(),
            offender: route.source,
            remote,
            local: SocketAddr::new(route.source, socket.local.port()),
            interface: route.interface,
            tos: 0,
            ttl: 0,
        };
        if !(is_asked_for && sink.udp_error(id, socket.owner, &report, &[])) {
            self.udp.raise(id, error);
        }
    }
}
