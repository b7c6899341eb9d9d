//! PORT as written by a user: `tap:ob0,addr=10.0.0.2/24,gw=10.0.0.1`.
//!
//! A kind, a colon, a name, then options after commas:
//!
//! | option | meaning |
//! |---|---|
//! | `addr=A/P` | an address of the engine's own with its prefix length; may be repeated |
//! | `gw=A` | next hop for everything off the link |
//! | `ipv6=auto`, `static` or `off` | whether and how IPv6 is used |
//! | `mac=M` | link address that the engine uses |
//! | `mtu=N` | largest IP packet, 576 to 65535 |
//! | `netns=NAME` | open the interface in this network namespace (`ip netns list`) |
//! | `napi=threaded` or `napi=off` | `tap` only: let a kernel thread do the kernel's share of receiving |
//! | `ports=A+B` | `trunk` only: its links, 2 to 8 ports without options of kind `packet` or `tap` |
//! | `ports=N` | `xdp` only: TCP ports reserved for connections that the engine opens, 1 to 16384 |
//! | `mode=M` | `xdp` only: the best way of receiving to try, `zero-copy`, `copy` or `generic` |
//! | `id=N` | `memif` only: the interface's number at its socket, 0 unless said |
//! | `secret=S` | `memif` only: what the client must know, at most 24 bytes |
//! | `uid=N` | `memif` only: a user that the other side may belong to, beside root and the engine's own; may be repeated |
//! | `role=server` or `role=client` | `memif` only: makes the socket, or connects to it |
//! | `size=N` | `gen` only: bytes of each frame made, 60 unless said |
//! | `rate=R` | `gen` and `sink` only: bits a second made or taken, e.g. `rate=10gbit` |
//! | `from=A:P`, `to=A:P` | `gen` only: makes UDP datagrams between these |
//! | `impair=...` | faults, see [`Impairment`] |
//! | `seed=N` | makes the faults repeatable |

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use wire::MacAddr;

use crate::memif::{MemifFacts, MemifRole, SECRET_BYTES_MAX};
use crate::station::StationFacts;
use crate::trunk::LINKS_MAX;
use crate::xdp::XdpMode;

mod impairment;
mod station;

pub use impairment::{Direction, Impairment, Parts};

/// Kinds of ports that this version opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PortKind {
    /// A TAP device that the engine creates or attaches to.
    Tap,
    /// AF_PACKET on an existing interface.
    Packet,
    /// AF_XDP on an interface that the kernel keeps using.
    Xdp,
    /// Memory shared with a DPDK, VPP or libmemif program or another engine.
    Memif,
    /// Several ports as one.
    Trunk,
    /// A station in memory that generates frames, for measurements.
    Generator,
    /// A station in memory that takes frames, for measurements.
    Sink,
}

impl PortKind {
    /// The word before the colon.
    pub fn word(self) -> &'static str {
        match self {
            PortKind::Tap => "tap",
            PortKind::Packet => "packet",
            PortKind::Xdp => "xdp",
            PortKind::Memif => "memif",
            PortKind::Trunk => "trunk",
            PortKind::Generator => "gen",
            PortKind::Sink => "sink",
        }
    }
}

/// An address of the engine's own on a port, with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortAddress {
    /// The address.
    pub address: IpAddr,
    /// Length of the on-link prefix.
    pub prefix: u8,
}

/// Whether traffic from a network is served. Of several networks that cover an address the one with
/// the longest prefix decides; an address in none is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Remote {
    /// The network's first address.
    pub network: IpAddr,
    /// Prefix length.
    pub prefix: u8,
    /// Served; otherwise left to the kernel.
    pub served: bool,
}

/// The thread that does the kernel's share of the work for a frame sent into a TAP device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Napi {
    /// The kernel's receive path runs within our write: lowest latency, at the cost of our core.
    #[default]
    Off,
    /// A kernel thread of the device does it (IFF_NAPI with threaded NAPI) on another core.
    Threaded,
}

/// Use of IPv6 on a port of the engine's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ipv6 {
    /// With a link-local address, its addr= and what routers advertise (SLAAC).
    #[default]
    Auto,
    /// With a link-local address and its addr=.
    Static,
    /// Not at all.
    Off,
}

/// A PORT, parsed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortSpec {
    /// Its kind.
    pub kind: PortKind,
    /// The interface's name; for a memif the path of its socket, or `@` and an abstract name.
    pub name: String,
    /// Addresses for the stack, in the order written.
    pub addresses: Vec<PortAddress>,
    /// Next hop for IPv4 destinations off the link.
    pub gateway: Option<IpAddr>,
    /// Next hop for IPv6 destinations off the link.
    pub gateway_v6: Option<IpAddr>,
    /// Use of IPv6.
    pub ipv6: Ipv6,
    /// Link address to use instead of the default.
    pub mac: Option<MacAddr>,
    /// Largest IP packet, instead of the interface's own.
    pub mtu: Option<u16>,
    /// Name of the network namespace to open the interface in.
    pub netns: Option<String>,
    /// Who does the kernel's share (TAP only).
    pub napi: Napi,
    /// TCP ports reserved in the kernel for outgoing connections (XDP only).
    pub connect_ports: u16,
    /// The best mode to try (XDP only). `None`: the best that the driver is known to support.
    pub mode: Option<XdpMode>,
    /// Which side it is, and who may be the other (memif only).
    pub memif: MemifFacts,
    /// Its links (trunk only).
    pub links: Vec<PortSpec>,
    /// Its frames and rate (gen and sink only).
    pub station: StationFacts,
    /// Remote addresses to be served (XDP only); not part of the text.
    pub remotes: Vec<Remote>,
    /// Faults to inject.
    pub impairment: Option<Impairment>,
    /// Seed of the faults; random if absent.
    pub seed: Option<u64>,
}

/// Why a PORT is invalid: a sentence with the cause and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(pub(crate) String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

/// Maximum length of an interface name in Linux (IFNAMSIZ less the terminator).
const NAME_BYTES_MAX: usize = 15;
/// RFC 791: every host accepts datagrams of 576 bytes.
const MTU_MIN: u16 = 576;

/// Default number of TCP ports reserved for connects: each costs a descriptor and 4 KiB.
const CONNECT_PORTS: u16 = 1024;

const OPTIONS: &str = "addr=, gw=, ipv6=, mac=, mtu=, netns=, napi=, ports=, mode=, id=, \
    secret=, uid=, role=, size=, rate=, from=, to=, impair= and seed=";

impl PortSpec {
    /// `tap:ob0`: the port's name in messages and statistics.
    pub fn label(&self) -> String {
        format!("{}:{}", self.kind.word(), self.name)
    }
}

impl FromStr for PortSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (kind_word, rest) = text.split_once(':').ok_or_else(|| {
            SpecError(format!(
                "port \"{text}\" has no kind: write the kind, a colon and the interface's name, \
                 e.g. tap:ob0,addr=10.0.0.2/24"
            ))
        })?;
        let kind = parse_kind(kind_word, text)?;
        let mut parts = rest.split(',');
        let name = parts.next().unwrap_or_default();
        match kind {
            PortKind::Memif => check_path(name, text)?,
            _ => check_name(name, text)?,
        }
        let mut spec = PortSpec {
            kind,
            name: name.to_owned(),
            addresses: Vec::new(),
            gateway: None,
            gateway_v6: None,
            ipv6: Ipv6::default(),
            mac: None,
            mtu: None,
            netns: None,
            napi: Napi::Off,
            connect_ports: CONNECT_PORTS,
            mode: None,
            memif: MemifFacts::default(),
            links: Vec::new(),
            station: StationFacts::default(),
            remotes: Vec::new(),
            impairment: None,
            seed: None,
        };
        for option in parts {
            spec.option(option, text)?;
        }
        spec.check_gateway(text)?;
        spec.check_shared(text)?;
        spec.check_netns(text)?;
        spec.check_trunk(text)?;
        spec.check_station(text)?;
        Ok(spec)
    }
}

impl PortSpec {
    fn option(&mut self, option: &str, text: &str) -> Result<(), SpecError> {
        let (key, value) = option.split_once('=').ok_or_else(|| {
            SpecError(format!(
                "port \"{text}\": option \"{option}\" has no value; options are {OPTIONS}"
            ))
        })?;
        let bad =
            |why: &str| SpecError(format!("port \"{text}\": {key}={value} is invalid: {why}"));
        let twice = |set: bool| {
            if set {
                Err(SpecError(format!("port \"{text}\": {key}= is given twice; keep one of them")))
            } else {
                Ok(())
            }
        };
        match key {
            "addr" => {
                let address = parse_address(value).ok_or_else(|| {
                    bad("write an address and its prefix length, e.g. addr=10.0.0.2/24")
                })?;
                if self.addresses.iter().any(|known| known.address == address.address) {
                    return Err(bad("this address is already in the list; remove one of the two"));
                }
                self.addresses.push(address);
            }
            "gw" => {
                let gateway: IpAddr =
                    value.parse().map_err(|_| bad("write one address, e.g. gw=10.0.0.1"))?;
                let place = match gateway {
                    IpAddr::V4(_) => &mut self.gateway,
                    IpAddr::V6(_) => &mut self.gateway_v6,
                };
                twice(place.is_some())?;
                *place = Some(gateway);
            }
            "ipv6" => {
                self.ipv6 = match value {
                    "auto" => Ipv6::Auto,
                    "static" => Ipv6::Static,
                    "off" => Ipv6::Off,
                    _ => return Err(bad("write ipv6=auto, ipv6=static or ipv6=off")),
                };
            }
            "mac" => {
                twice(self.mac.is_some())?;
                let mac = parse_mac(value)
                    .ok_or_else(|| bad("write six bytes in hex, e.g. mac=02:00:00:00:00:02"))?;
                if mac.0[0] & 1 != 0 || mac.0 == [0; 6] {
                    return Err(bad("this is a group address or zero; make the first byte even, \
                     e.g. 02:..."));
                }
                self.mac = Some(mac);
            }
            "mtu" => {
                twice(self.mtu.is_some())?;
                let mtu = value.parse().ok().filter(|mtu| *mtu >= MTU_MIN);
                self.mtu = Some(mtu.ok_or_else(|| bad("write a number from 576 to 65535"))?);
            }
            "netns" => {
                twice(self.netns.is_some())?;
                if value.is_empty() || value.contains('/') || value.starts_with('.') {
                    return Err(bad("write a name that \"ip netns list\" shows"));
                }
                self.netns = Some(value.to_owned());
            }
            "napi" => match (self.kind, value) {
                (PortKind::Tap, "threaded") => self.napi = Napi::Threaded,
                (PortKind::Tap, "off") => self.napi = Napi::Off,
                (PortKind::Tap, _) => return Err(bad("write napi=threaded or napi=off")),
                _ => return Err(bad("only tap ports have this option; leave it out")),
            },
            "ports" if self.kind == PortKind::Trunk => {
                twice(!self.links.is_empty())?;
                self.links = parse_links(value).map_err(|why| bad(&why))?;
            }
            "ports" => {
                if self.kind != PortKind::Xdp {
                    return Err(bad("only xdp ports have this option; leave it out"));
                }
                let count = value.parse().ok().filter(|count| (1..=16_384).contains(count));
                self.connect_ports = count.ok_or_else(|| bad("write a number from 1 to 16384"))?;
            }
            "mode" => {
                if self.kind != PortKind::Xdp {
                    return Err(bad("only xdp ports have this option; leave it out"));
                }
                twice(self.mode.is_some())?;
                let mode = XdpMode::named(value);
                self.mode = Some(mode.ok_or_else(|| bad("write zero-copy, copy or generic"))?);
            }
            "id" | "secret" | "uid" | "role" if self.kind != PortKind::Memif => {
                return Err(bad("only memif ports have this option; leave it out"));
            }
            "id" => {
                self.memif.id = value.parse().map_err(|_| bad("write a whole number"))?;
            }
            "secret" => {
                twice(self.memif.secret.is_some())?;
                if value.is_empty() || value.len() > SECRET_BYTES_MAX {
                    return Err(bad("write 1 to 24 bytes"));
                }
                self.memif.secret = Some(value.to_owned());
            }
            "uid" => {
                let uid = value.parse().map_err(|_| bad("write the number of a user"))?;
                self.memif.users.push(uid);
            }
            "role" => {
                self.memif.role = match value {
                    "server" => MemifRole::Server,
                    "client" => MemifRole::Client,
                    _ => return Err(bad("write role=server or role=client")),
                };
            }
            "size" | "rate" | "from" | "to" => self.station_option(key, value).map_err(bad)?,
            "impair" => {
                twice(self.impairment.is_some())?;
                self.impairment = Some(value.parse().map_err(|why: SpecError| bad(&why.0))?);
            }
            "seed" => {
                twice(self.seed.is_some())?;
                self.seed = Some(value.parse().map_err(|_| bad("write a whole number"))?);
            }
            _ => {
                return Err(SpecError(format!(
                    "port \"{text}\": there is no option \"{key}\"; options are {OPTIONS}"
                )));
            }
        }
        Ok(())
    }

    /// On a shared interface, addresses and the like are configured in the kernel.
    fn check_shared(&self, text: &str) -> Result<(), SpecError> {
        let said = [
            ("addr=", !self.addresses.is_empty(), "ip addr add"),
            ("gw=", self.gateway.or(self.gateway_v6).is_some(), "ip route add"),
            ("ipv6=", self.ipv6 != Ipv6::Auto, "sysctl net.ipv6.conf"),
            ("mac=", self.mac.is_some(), "ip link set address"),
            ("mtu=", self.mtu.is_some(), "ip link set mtu"),
            ("netns=", self.netns.is_some(), "run the engine by ip netns exec"),
        ];
        match said.into_iter().find(|(_, given, _)| *given) {
            Some((option, _, instead)) if self.kind == PortKind::Xdp => Err(SpecError(format!(
                "port \"{text}\": an xdp port follows the kernel's interface; remove {option} and \
                 configure the kernel instead ({instead})"
            ))),
            _ => Ok(()),
        }
    }

    /// A port in memory has no network namespace.
    fn check_netns(&self, text: &str) -> Result<(), SpecError> {
        let is_memory = matches!(self.kind, PortKind::Memif | PortKind::Generator | PortKind::Sink);
        if is_memory && self.netns.is_some() {
            let word = self.kind.word();
            let why = format!("a {word} port has no namespace; leave netns= out");
            return Err(SpecError(format!("port \"{text}\": {why}")));
        }
        Ok(())
    }

    fn check_trunk(&self, text: &str) -> Result<(), SpecError> {
        if self.kind == PortKind::Trunk && self.links.is_empty() {
            let why = "a trunk needs its links; write e.g. ports=packet:eth1+packet:eth2";
            return Err(SpecError(format!("port \"{text}\": {why}")));
        }
        Ok(())
    }

    fn check_gateway(&self, text: &str) -> Result<(), SpecError> {
        let has_v6 = self.addresses.iter().any(|own| own.address.is_ipv6());
        if self.ipv6 == Ipv6::Off && (has_v6 || self.gateway_v6.is_some()) {
            return Err(SpecError(format!(
                "port \"{text}\": ipv6=off and an IPv6 address contradict each other; remove one"
            )));
        }
        let gateways = [self.gateway, self.gateway_v6].into_iter().flatten();
        gateways.into_iter().try_for_each(|gateway| self.check_one_gateway(gateway, text))
    }

    fn check_one_gateway(&self, gateway: IpAddr, text: &str) -> Result<(), SpecError> {
        if self.addresses.iter().any(|own| own.address == gateway) {
            return Err(SpecError(format!(
                "port \"{text}\": the gateway {gateway} is the port's own address; set gw= to the \
                 router's address"
            )));
        }
        let link_local = matches!(gateway, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if link_local || self.addresses.iter().any(|own| own.contains(gateway)) {
            return Ok(());
        }
        Err(SpecError(format!(
            "port \"{text}\": the gateway {gateway} is in no network of the port; give an addr= \
             whose prefix covers it"
        )))
    }
}

impl PortAddress {
    /// Whether `other` is on-link by this prefix.
    pub fn contains(&self, other: IpAddr) -> bool {
        let (own, other, bits) = match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (u128::from(own.to_bits()) << 96, u128::from(other.to_bits()) << 96, 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix.min(bits))).unwrap_or(0);
        (own ^ other) & mask == 0
    }
}

/// The links of a trunk. Shared properties are options of the trunk.
fn parse_links(value: &str) -> Result<Vec<PortSpec>, String> {
    let mut links: Vec<PortSpec> = Vec::new();
    for text in value.split('+') {
        let link: PortSpec = text.parse().map_err(|why: SpecError| why.0)?;
        if !matches!(link.kind, PortKind::Tap | PortKind::Packet) {
            return Err(format!(
                "{text} cannot be a link of a trunk, which is made of packet and tap ports"
            ));
        }
        if links.iter().any(|known| known.name == link.name) {
            return Err(format!("{text} is in the list twice; remove one of the two"));
        }
        links.push(link);
    }
    match links.len() {
        2..=LINKS_MAX => Ok(links),
        count => {
            Err(format!("{count} ports are given; write 2 to {LINKS_MAX} with + between them"))
        }
    }
}

/// Maximum length of a Unix socket path, without its terminator.
const PATH_BYTES_MAX: usize = 107;

fn check_path(name: &str, text: &str) -> Result<(), SpecError> {
    let is_good =
        name.starts_with('/') || name.strip_prefix('@').is_some_and(|name| !name.is_empty());
    if is_good && name.len() <= PATH_BYTES_MAX && !name.contains('\0') {
        return Ok(());
    }
    Err(SpecError(format!(
        "port \"{text}\": write the absolute path of a socket, or @ and an abstract name, of at most \
         {PATH_BYTES_MAX} bytes, e.g. memif:/run/outboard/m.sock"
    )))
}

fn parse_kind(word: &str, text: &str) -> Result<PortKind, SpecError> {
    match word {
        "tap" => Ok(PortKind::Tap),
        "packet" => Ok(PortKind::Packet),
        "xdp" => Ok(PortKind::Xdp),
        "memif" => Ok(PortKind::Memif),
        "trunk" => Ok(PortKind::Trunk),
        "gen" => Ok(PortKind::Generator),
        "sink" => Ok(PortKind::Sink),
        "dpdk" | "vhost" | "netmap" => Err(SpecError(format!(
            "port \"{text}\": ports of kind {word} are not available in this version; use \
             xdp:NAME, tap:NAME, packet:NAME or memif:PATH"
        ))),
        _ => Err(SpecError(format!(
            "port \"{text}\": there is no kind of port called \"{word}\"; use xdp:NAME (an \
             interface shared with the kernel), tap:NAME (a TAP device), packet:NAME (an interface \
             used by the engine alone), memif:PATH (a DPDK or VPP program), trunk:NAME (several of \
             these as one), or for measurements gen:NAME (generates frames) and sink:NAME (takes \
             them)"
        ))),
    }
}

fn check_name(name: &str, text: &str) -> Result<(), SpecError> {
    check_interface_name(name)
        .map_err(|why| SpecError(format!("port \"{text}\": {why}; write e.g. tap:ob0")))
}

/// Whether Linux accepts a name for an interface.
///
/// # Errors
/// What is wrong with it.
pub fn check_interface_name(name: &str) -> Result<(), &'static str> {
    let why = if name.is_empty() {
        "the interface's name is missing"
    } else if name.len() > NAME_BYTES_MAX {
        "Linux takes at most 15 characters for an interface's name"
    } else if name == "." || name == ".." || name.contains(['/', ':', '%']) {
        "an interface's name contains no slash, colon or percent sign"
    } else if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        "an interface's name contains no spaces or control characters"
    } else {
        return Ok(());
    };
    Err(why)
}

fn parse_address(value: &str) -> Option<PortAddress> {
    let (address, prefix) = value.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= longest)?;
    let usable = !address.is_unspecified() && !address.is_multicast();
    usable.then_some(PortAddress { address, prefix })
}

fn parse_mac(value: &str) -> Option<MacAddr> {
    let mut bytes = [0; 6];
    let mut parts = value.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(MacAddr(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<PortSpec>().expect_err(text).0
    }

    #[test]
    fn addresses_and_gateways_of_both_families_stand_beside_each_other() {
        let text = "tap:ob0,addr=10.0.0.2/24,addr=fd00::2/64,gw=10.0.0.1,gw=fe80::1";
        let spec: PortSpec = text.parse().unwrap();
        assert_eq!(spec.addresses.len(), 2);
        assert_eq!(spec.gateway, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(spec.gateway_v6, Some("fe80::1".parse().unwrap()));
        assert_eq!(spec.ipv6, Ipv6::Auto);
        assert!(error("tap:ob0,addr=fd00::2/64,gw=fd00::1,gw=fd00::3").contains("twice"));
        assert!(error("tap:ob0,addr=fd00::2/64,gw=fd01::1").contains("in no network"));
        assert!(error("tap:ob0,addr=fd00::2/64,ipv6=off").contains("contradict"));
        assert!(error("tap:ob0,ipv6=on").contains("ipv6=auto"));
        assert!(error("xdp:ob0,ipv6=off").contains("follows the kernel"));
    }

    #[test]
    fn a_port_with_all_options_is_understood() {
        let spec: PortSpec = "tap:ob0,addr=10.0.0.2/24,addr=fd00::2/64,gw=10.0.0.1,\
            mac=02:00:00:00:00:07,mtu=9000,netns=blue,napi=threaded,\
            impair=loss:1%+delay:5ms,seed=7"
            .parse()
            .unwrap();
        assert_eq!(spec.label(), "tap:ob0");
        assert_eq!(spec.addresses.len(), 2);
        assert_eq!(spec.gateway, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(spec.mac, Some(MacAddr([2, 0, 0, 0, 0, 7])));
        assert_eq!((spec.mtu, spec.seed, spec.napi), (Some(9000), Some(7), Napi::Threaded));
        assert_eq!(spec.netns.as_deref(), Some("blue"));
        assert!(spec.impairment.is_some());
    }

    #[test]
    fn later_kinds_are_named_as_not_available_in_this_version() {
        for text in ["dpdk:0", "vhost:/run/m.sock"] {
            let why = error(text);
            assert!(why.contains("not available in this version"), "{why}");
            assert!(why.contains("tap:NAME"), "{why}");
        }
    }

    #[test]
    fn every_error_names_the_port_and_says_what_to_write() {
        for (text, expected) in [
            ("ob0", "has no kind"),
            ("wifi:ob0", "no kind of port called \"wifi\""),
            ("tap:", "name is missing"),
            ("tap:a-name-that-is-too-long", "at most 15"),
            ("tap:ob0,addr=10.0.0.2", "addr=10.0.0.2/24"),
            ("tap:ob0,addr=10.0.0.2/33", "prefix length"),
            ("tap:ob0,addr=10.0.0.2/24,addr=10.0.0.2/16", "already in the list"),
            ("tap:ob0,gw=10.0.0.1", "in no network"),
            ("tap:ob0,addr=10.0.0.2/24,gw=10.0.0.2", "own address"),
            ("tap:ob0,mac=01:00:00:00:00:01", "first byte even"),
            ("tap:ob0,mac=02:00", "six bytes"),
            ("tap:ob0,mtu=100", "576"),
            ("tap:ob0,speed=1", "no option \"speed\""),
            ("tap:ob0,mtu", "has no value"),
            ("tap:ob0,netns=../x", "ip netns list"),
            ("packet:v,napi=threaded", "only tap"),
            ("tap:ob0,impair=loss:2", "percent"),
            ("tap:ob0,mtu=1500,mtu=1400", "given twice"),
            ("xdp:eth0,addr=10.0.0.2/24", "ip addr add"),
            ("xdp:eth0,netns=blue", "ip netns exec"),
            ("xdp:eth0,ports=0", "1 to 16384"),
            ("tap:ob0,ports=10", "only xdp"),
            ("tap:ob0,mode=copy", "only xdp"),
            ("xdp:eth0,mode=fast", "zero-copy, copy or generic"),
            ("memif:m.sock", "absolute path"),
            ("memif:@", "absolute path"),
            ("memif:/run/m.sock,role=master", "role=server or role=client"),
            ("memif:/run/m.sock,secret=0123456789012345678901234", "1 to 24 bytes"),
            ("memif:/run/m.sock,netns=blue", "no namespace"),
            ("tap:ob0,id=3", "only memif"),
            ("trunk:t", "needs its links"),
            ("trunk:t,ports=packet:a", "2 to 8"),
            ("trunk:t,ports=packet:a+xdp:b", "made of packet and tap ports"),
            ("trunk:t,ports=packet:a+packet:a", "twice"),
            ("trunk:t,ports=packet:a+b", "has no kind"),
            ("trunk:t,ports=tap:a+tap:b,napi=off", "only tap"),
        ] {
            let why = error(text);
            assert!(why.contains(expected), "{text}: {why}");
            assert!(why.contains(text), "{why}");
        }
    }

    #[test]
    fn a_prefix_covers_what_shares_its_leading_bits() {
        let net = parse_address("10.0.0.2/24").unwrap();
        assert!(net.contains("10.0.0.254".parse().unwrap()));
        assert!(!net.contains("10.0.1.1".parse().unwrap()));
        assert!(!net.contains("fd00::1".parse().unwrap()));
        assert!(parse_address("10.0.0.2/0").unwrap().contains("1.2.3.4".parse().unwrap()));
    }
}
