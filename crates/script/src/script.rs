//! What a script says, parsed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::errors::ParseError;
use crate::system::{REMOTE, REMOTE6};

/// A script.
#[derive(Clone, Debug)]
pub struct Script {
    /// The first comment: what behaviour the script shows.
    pub title: String,
    /// What is known of the kernel.
    pub kernel: Expectation,
    /// How far off the expected time something may be, in virtual time.
    pub tolerance: Option<Duration>,
    /// Largest packet of the link.
    pub mtu: u16,
    /// Which IP it speaks.
    pub version: Version,
    /// Kernel settings the script wants, by name (`net.ipv4.tcp_sack`) and value.
    pub settings: Vec<(String, String)>,
    /// What happens, in order.
    pub events: Vec<Event>,
}

/// What a script's header says of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// It does the same.
    Agrees,
    /// It does something else, for the reason given.
    Differs(String),
    /// The script cannot be run against it, for the reason given.
    NotApplicable(String),
}

/// Which IP a script's sockets and packets are of (`--ip_version`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// `ipv4`
    #[default]
    V4,
    /// `ipv6`
    V6,
    /// `ipv4-mapped-ipv6`: sockets of IPv6 that speak IPv4.
    Mapped,
}

impl Version {
    /// Whether sockets are of IPv6, and so is the host, beside IPv4.
    pub fn has_v6_sockets(self) -> bool {
        self != Self::V4
    }

    /// Whether packets are of IPv6.
    pub fn has_v6_packets(self) -> bool {
        self == Self::V6
    }

    /// The address that sockets are bound to where a script leaves it open.
    pub fn any(self) -> IpAddr {
        if self.has_v6_sockets() {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        }
    }

    /// The peer's address as sockets call it.
    pub fn peer(self) -> IpAddr {
        match self {
            Self::V4 => REMOTE.into(),
            Self::V6 => REMOTE6.into(),
            Self::Mapped => REMOTE.to_ipv6_mapped().into(),
        }
    }
}

/// One line of a script.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its line, from 1.
    pub line: usize,
    /// When.
    pub when: When,
    /// What.
    pub action: Action,
}

/// When something happens, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Whenever it does.
    Any,
    /// That long after the event before, or after the start.
    At {
        /// Counted from the event before.
        relative: bool,
        /// First moment.
        from: u64,
        /// Last moment; `from` where there is no range.
        to: u64,
    },
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Action {
    /// The peer sends.
    Inject(Packet),
    /// We send.
    Expect(Packet),
    /// The program calls; it may take until the second time after the event before.
    Call(Call, Option<u64>),
    /// What TCP_INFO says.
    Assert(Vec<Condition>),
}

/// `name operator number`.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Field of TCP_INFO.
    pub name: String,
    /// `==`, `!=`, `<`, `<=`, `>` or `>=`.
    pub operator: String,
    /// What it is compared with.
    pub number: i64,
}

/// A packet.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Which conversation, 0 where there is only one.
    pub flow: usize,
    /// What is odd about its headers.
    pub marks: Vec<Mark>,
    /// What it carries.
    pub body: Body,
}

/// Something about a packet's headers that is not said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The ECN field: 0 to 3.
    Ecn(u8),
    /// The whole type-of-service byte.
    Tos(u8),
    /// Time to live.
    Ttl(u8),
    /// Whether routers may not cut it (IPv4).
    DontFragment(bool),
    /// A wrong TCP or UDP checksum.
    BadSum,
    /// A wrong IP checksum.
    BadIpSum,
    /// The TCP header's length field, in words.
    DataOffset(u8),
    /// The IP packet ends after so many bytes of its payload.
    Truncated(usize),
    /// UDP without a checksum.
    NoSum,
    /// To a port nobody has named.
    OtherPort,
    /// The version of IP of the conversation, 4 or 6.
    Version(u8),
    /// The datagrams that it was put together of have so many bytes.
    Gso(u16),
}

impl Mark {
    /// The version of IP that it tells.
    pub fn version(&self) -> Option<u8> {
        match self {
            Self::Version(version) => Some(*version),
            _ => None,
        }
    }

    /// The size of datagrams that it tells.
    pub fn gso(&self) -> Option<u16> {
        match self {
            Self::Gso(bytes) => Some(*bytes),
            _ => None,
        }
    }
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub enum Body {
    /// A segment.
    Tcp(Segment),
    /// A datagram with so many bytes, from a place of what was written on.
    Udp {
        /// The place.
        from: u64,
        /// How many bytes.
        len: usize,
    },
    /// An ICMP error about a segment or datagram that was sent.
    Icmp(IcmpError),
    /// A frame of the peer's, layer by layer.
    Raw(Vec<u8>),
    /// A frame of the host's, as a line of text says it.
    Line(String),
}

/// A segment; numbers are relative to the script's own view (see docs/scripts.md).
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// TCP flags as on the wire.
    pub flags: u8,
    /// First sequence number.
    pub seq: u32,
    /// Bytes of payload.
    pub len: usize,
    /// Acknowledged.
    pub ack: Option<u32>,
    /// The window field.
    pub window: Option<u16>,
    /// The urgent pointer.
    pub urgent: Option<u16>,
    /// Options in order; `None` for any.
    pub options: Option<Vec<TcpOption>>,
}

/// An option of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the option of its name")]
pub enum TcpOption {
    End,
    Nop,
    Mss(u16),
    WindowScale(u8),
    SackPermitted,
    Sack(Vec<(u32, u32)>),
    Timestamps {
        value: u32,
        echo: u32,
    },
    /// Any other kind with its bytes.
    Other(u8, Vec<u8>),
}

/// An ICMP error.
#[derive(Clone, Debug)]
pub struct IcmpError {
    /// Its type.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// The next hop's MTU.
    pub mtu: u16,
    /// What it quotes: first sequence number and length of a segment that we sent, or nothing for
    /// a datagram.
    pub quoted: Option<(u32, usize)>,
}

/// A system call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// What it is called with.
    pub arguments: Vec<Value>,
    /// What it returns; `None` for anything.
    pub result: Option<i64>,
    /// The name of the error, when it returns -1.
    pub errno: Option<String>,
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `...`
    Any,
    /// A number, or names of numbers joined by `|`.
    Number(i64),
    /// A name that is no number: `CONST` unknown to us.
    Name(String),
    /// A string.
    Text(String),
    /// `[a, b]`
    List(Vec<Value>),
    /// `{a=b, c=d}`; without names the place counts.
    Fields(Vec<(String, Value)>),
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// The first line that is wrong, and why.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        crate::parse::script(text)
    }
}
