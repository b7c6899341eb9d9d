//! The engine's part of a `nic`'s traffic, by its claims.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use wire::ethernet::{EtherType, HEADER_LEN};
use wire::ipv4::Protocol as IpProtocol;
use wire::tcp::TcpFlags;

use super::fragments::Fragments;
use crate::interface::{Claim, Protocol};
use crate::layers::{IpLayer, Transport, ethertype};

/// The receiver of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Only the engine.
    Engine,
    /// Only the kernel.
    Kernel,
    /// Both; neither replies.
    Both,
}

/// ICMP types that are errors (RFC 792), and the first type of ICMPv6 that is not (RFC 4443).
const ICMP_ERRORS: [u8; 4] = [3, 4, 11, 12];
const ICMPV6_INFORMATION: u8 = 128;

/// The claims of a `nic`.
#[derive(Debug)]
pub(super) struct Claims {
    /// Whether the engine takes new connections, too (always for UDP).
    sockets: BTreeMap<(Protocol, SocketAddr), bool>,
    ethertypes: Vec<u16>,
    addresses: Vec<IpAddr>,
    connect_ports: (u16, u16),
    fragments: Fragments,
}

impl Claims {
    /// Only a block of ports for outgoing connections of the engine.
    pub fn new(connect_ports: (u16, u16)) -> Self {
        Self {
            sockets: BTreeMap::new(),
            ethertypes: Vec::new(),
            addresses: Vec::new(),
            connect_ports,
            fragments: Fragments::default(),
        }
    }

    /// Adds a claim.
    pub fn claim(&mut self, claim: &Claim) {
        match *claim {
            Claim::Tcp { local, listens } => {
                self.sockets.insert((Protocol::Tcp, local), listens);
            }
            Claim::Udp(local) => {
                self.sockets.insert((Protocol::Udp, local), true);
            }
            Claim::EtherType(kind) => self.ethertypes.push(kind),
        }
    }

    /// Removes a claim.
    pub fn release(&mut self, claim: &Claim) {
        match *claim {
            Claim::Tcp { local, .. } => {
                self.sockets.remove(&(Protocol::Tcp, local));
            }
            Claim::Udp(local) => {
                self.sockets.remove(&(Protocol::Udp, local));
            }
            Claim::EtherType(kind) => self.ethertypes.retain(|one| *one != kind),
        }
    }

    /// Sets the addresses of the kernel's interface.
    pub fn follow(&mut self, addresses: &[IpAddr]) {
        self.addresses = addresses.to_vec();
    }

    /// The receiver of a received frame. `awaits` returns whether the engine has a connection
    /// between a local and a remote address.
    pub fn owner(
        &mut self,
        frame: &[u8],
        awaits: &dyn Fn(SocketAddr, SocketAddr) -> bool,
    ) -> Owner {
        let Some((kind, start)) = ethertype(frame) else { return Owner::Kernel };
        if start != HEADER_LEN {
            return Owner::Kernel;
        }
        if kind != EtherType::IPV4 && kind != EtherType::IPV6 {
            let is_ours = self.ethertypes.contains(&kind.0);
            return if is_ours { Owner::Engine } else { Owner::Kernel };
        }
        let Some(ip) = IpLayer::parse(frame) else { return Owner::Kernel };
        if !self.addresses.contains(&ip.destination) {
            return Owner::Kernel;
        }
        let Some(part) = ip.fragment else { return self.owner_of_whole(frame, ip, awaits) };
        if part.is_first {
            let owner = self.owner_of_whole(frame, ip, awaits);
            self.fragments.note(&ip, part.identification, owner == Owner::Engine);
            return owner;
        }
        if self.fragments.is_ours(&ip, part.identification) { Owner::Engine } else { Owner::Kernel }
    }

    fn owner_of_whole(
        &self,
        frame: &[u8],
        ip: IpLayer,
        awaits: &dyn Fn(SocketAddr, SocketAddr) -> bool,
    ) -> Owner {
        let kind = || frame.get(ip.payload).copied().unwrap_or(u8::MAX);
        let is_ours = match ip.protocol {
            IpProtocol::ICMP if ICMP_ERRORS.contains(&kind()) => return Owner::Both,
            IpProtocol::ICMPV6 if kind() < ICMPV6_INFORMATION => return Owner::Both,
            IpProtocol::TCP => Transport::of(frame, ip).is_some_and(|found| {
                let flags = TcpFlags(frame.get(ip.payload + 13).copied().unwrap_or_default());
                self.is_segment_ours(&found, flags, awaits)
            }),
            IpProtocol::UDP => Transport::of(frame, ip)
                .is_some_and(|found| self.find(Protocol::Udp, found.local()).is_some()),
            _ => false,
        };
        if is_ours { Owner::Engine } else { Owner::Kernel }
    }

    fn is_segment_ours(
        &self,
        found: &Transport,
        flags: TcpFlags,
        awaits: &dyn Fn(SocketAddr, SocketAddr) -> bool,
    ) -> bool {
        let (first, last) = self.connect_ports;
        if (first..=last).contains(&found.destination) {
            return true;
        }
        let Some(listens) = self.find(Protocol::Tcp, found.local()) else { return false };
        let is_new = flags.syn() && !flags.ack();
        (is_new && listens) || awaits(found.local(), found.remote())
    }

    /// The claim at an address, or at the unspecified one.
    fn find(&self, protocol: Protocol, local: SocketAddr) -> Option<bool> {
        let any: IpAddr = match local {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let here = self.sockets.get(&(protocol, local));
        let everywhere = self.sockets.get(&(protocol, SocketAddr::new(any, local.port())));
        here.into_iter().chain(everywhere).copied().reduce(|one, other| one || other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 4] = [10, 0, 0, 2];

    /// From 10.0.0.1, port 7, to `port` of [`OWN`]; `place` is the fragment field, `rest` what lies
    /// behind the ports.
    fn packet(protocol: u8, port: u16, place: u16, rest: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 24 + rest.len() as u8, 0, 9]);
        frame.extend(place.to_be_bytes());
        frame.extend([64, protocol, 0, 0, 10, 0, 0, 1]);
        frame.extend(OWN);
        frame.extend([0, 7]);
        frame.extend(port.to_be_bytes());
        frame.extend(rest);
        frame
    }

    fn segment(port: u16, flags: u8) -> Vec<u8> {
        packet(6, port, 0, &[0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0])
    }

    fn claims() -> Claims {
        let mut claims = Claims::new((5000, 5009));
        claims.follow(&[IpAddr::from(OWN)]);
        let local = "0.0.0.0:80".parse().unwrap();
        claims.claim(&Claim::Tcp { local, listens: true });
        claims.claim(&Claim::Udp("10.0.0.2:53".parse().unwrap()));
        claims
    }

    const SYN: u8 = 2;
    const ACK: u8 = 16;

    #[test]
    fn the_engine_gets_what_it_claimed_and_its_connections() {
        let mut claims = claims();
        let mut of = |frame: &[u8], is_known: bool| claims.owner(frame, &|_, _| is_known);
        assert_eq!(of(&segment(80, SYN), false), Owner::Engine);
        assert_eq!(of(&segment(80, ACK), true), Owner::Engine);
        assert_eq!(of(&segment(80, ACK), false), Owner::Kernel, "a connection of the kernel's");
        assert_eq!(of(&segment(22, SYN), true), Owner::Kernel);
        assert_eq!(of(&segment(5009, ACK), false), Owner::Engine);
        assert_eq!(of(&segment(5010, ACK), false), Owner::Kernel);
        assert_eq!(of(&packet(17, 53, 0, &[0, 8, 0, 0]), false), Owner::Engine);
        assert_eq!(of(&packet(17, 54, 0, &[0, 8, 0, 0]), false), Owner::Kernel);
        assert_eq!(of(&packet(1, 8, 0, &[0; 8]), false), Owner::Kernel);
    }

    #[test]
    fn connections_that_outlive_their_listener_stay_the_engines_and_new_ones_do_not_come() {
        let mut claims = claims();
        claims.claim(&Claim::Tcp { local: "0.0.0.0:80".parse().unwrap(), listens: false });
        assert_eq!(claims.owner(&segment(80, SYN), &|_, _| false), Owner::Kernel);
        assert_eq!(claims.owner(&segment(80, ACK), &|_, _| true), Owner::Engine);
        claims.release(&Claim::Tcp { local: "0.0.0.0:80".parse().unwrap(), listens: false });
        assert_eq!(claims.owner(&segment(80, ACK), &|_, _| true), Owner::Kernel);
    }

    #[test]
    fn errors_are_for_both_and_other_addresses_for_the_kernel() {
        let mut claims = claims();
        let mut error = packet(1, 0, 0, &[0; 8]);
        error[34] = 3;
        assert_eq!(claims.owner(&error, &|_, _| false), Owner::Both);
        claims.follow(&[]);
        assert_eq!(claims.owner(&error, &|_, _| false), Owner::Kernel);
        assert_eq!(claims.owner(&segment(80, SYN), &|_, _| true), Owner::Kernel);
        assert_eq!(claims.owner(&[0; 13], &|_, _| true), Owner::Kernel);
        let mut tagged = segment(80, SYN);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(self::claims().owner(&tagged, &|_, _| true), Owner::Kernel);
    }

    #[test]
    fn fragments_follow_the_first_one() {
        let mut claims = claims();
        let more = 0x2000;
        let rest = packet(17, 0, 0x00b9, &[0; 8]);
        assert_eq!(claims.owner(&rest, &|_, _| false), Owner::Kernel);
        let first = packet(17, 53, more, &[0, 8, 0, 0]);
        assert_eq!(claims.owner(&first, &|_, _| false), Owner::Engine);
        assert_eq!(claims.owner(&rest, &|_, _| false), Owner::Engine);
        let first = packet(17, 54, more, &[0, 8, 0, 0]);
        assert_eq!(claims.owner(&first, &|_, _| false), Owner::Kernel);
        assert_eq!(claims.owner(&rest, &|_, _| false), Owner::Kernel);
    }
}
