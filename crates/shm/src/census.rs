//! What became of a program's sockets: the lines in which its library counts them, and the words
//! for each. The lines lie in the header page of the region, where the engine reads them for
//! `outboard ss`; the library prints its own copy at exit (`outboard run --explain`).
//!
//! A line is identified by its first four words, which never change once the line is in place.
//! Only its count does. Anybody who reads one therefore needs no lock.

use std::fmt;
use std::net::SocketAddr;

use crate::descriptor::{mapped, unmapped};

#[cfg(not(loom))]
mod area;
mod names;

pub use names::{family_name, option_name};

/// Lines of a program: what the header page has room for behind its first cache line.
pub const CENSUS_LINES: usize = 63;
/// Words that identify a line.
pub const IDENTITY_WORDS: usize = 4;

/// What kind of socket a line counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A listening TCP socket; the address is its own.
    Listener = 1,
    /// A connection that a listener accepted; the address is the listener's.
    Accepted = 2,
    /// A connection that the program opened; the address is the peer's.
    Opened = 3,
    /// A bound UDP socket; the address is its own.
    UdpBound = 4,
    /// A UDP socket that the program did not bind; the address is the first destination.
    UdpSending = 5,
    /// A TCP socket that has no address yet.
    Tcp = 6,
    /// A UDP socket that has no address yet.
    Udp = 7,
    /// A socket of another family or protocol.
    Other = 8,
    /// An io_uring instance.
    Ring = 9,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        const ALL: [Kind; 9] = [
            Kind::Listener,
            Kind::Accepted,
            Kind::Opened,
            Kind::UdpBound,
            Kind::UdpSending,
            Kind::Tcp,
            Kind::Udp,
            Kind::Other,
            Kind::Ring,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    /// One word, for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Accepted => "accepted",
            Self::Opened => "opened",
            Self::UdpBound => "udp-bound",
            Self::UdpSending => "udp-sending",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Other => "other",
            Self::Ring => "io_uring",
        }
    }

    /// Singular, plural, and what joins them to the address.
    fn nouns(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Listener => ("listener", "listeners", "at"),
            Self::Accepted => ("connection accepted", "connections accepted", "at"),
            Self::Opened => ("connection", "connections", "to"),
            Self::UdpBound => ("UDP socket", "UDP sockets", "at"),
            Self::UdpSending => ("UDP socket", "UDP sockets", "sending to"),
            Self::Tcp => ("TCP socket", "TCP sockets", ""),
            Self::Udp => ("UDP socket", "UDP sockets", ""),
            Self::Other => ("socket", "sockets", ""),
            Self::Ring => ("io_uring instance", "io_uring instances", ""),
        }
    }
}

/// Why the kernel serves a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A family other than AF_INET and AF_INET6.
    Family(u16),
    /// Neither TCP nor UDP: the number of the protocol, or 0 for a type without one.
    Protocol(u16),
    /// A loopback address, or one that means this machine.
    Loopback,
    /// No interface of the engine leads to the peer.
    NoRoute,
    /// A multicast or broadcast destination that the engine does not send to.
    Group,
    /// [allow] or [deny] leave the port or the peer to the kernel.
    Lists,
    /// [allow] or [deny] leave this user's programs to the kernel.
    User,
    /// A socket option that only the kernel follows: its level and name.
    SocketOption(u16, u16),
    /// The socket was opened by the parent process.
    Inherited,
    /// The socket was open when the program started.
    Passed,
    /// No engine answered at the control socket.
    NoEngine,
    /// Something answered at the control socket, but not as an engine does.
    NotAnEngine,
    /// Library and engine are of different versions.
    Version,
    /// The engine refused the program a session.
    SessionRefused,
    /// The engine refused the socket: errno.
    Refused(u16),
    /// The engine was about to end, or the kernel's routing rules kept it from taking the socket.
    Withheld,
    /// The engine ended.
    EngineEnded,
    /// The peer came in through an interface or an address that is not the engine's.
    OtherInterface,
    /// The descriptor number is beyond what the library follows.
    NumberTooHigh,
    /// Operations submitted to io_uring bypass the C library.
    Ring,
    /// The session could not be set up in this process.
    SessionFailed,
}

impl Reason {
    fn codes(self) -> (u8, u16, u16) {
        match self {
            Self::Family(family) => (1, family, 0),
            Self::Protocol(protocol) => (2, protocol, 0),
            Self::Loopback => (3, 0, 0),
            Self::NoRoute => (4, 0, 0),
            Self::Group => (5, 0, 0),
            Self::Lists => (6, 0, 0),
            Self::User => (7, 0, 0),
            Self::SocketOption(level, name) => (8, level, name),
            Self::Inherited => (9, 0, 0),
            Self::Passed => (10, 0, 0),
            Self::NoEngine => (11, 0, 0),
            Self::NotAnEngine => (12, 0, 0),
            Self::Version => (13, 0, 0),
            Self::SessionRefused => (14, 0, 0),
            Self::Refused(errno) => (15, errno, 0),
            Self::Withheld => (16, 0, 0),
            Self::EngineEnded => (17, 0, 0),
            Self::OtherInterface => (18, 0, 0),
            Self::NumberTooHigh => (19, 0, 0),
            Self::Ring => (20, 0, 0),
            Self::SessionFailed => (21, 0, 0),
        }
    }

    fn of(code: u8, first: u16, second: u16) -> Option<Self> {
        Some(match code {
            1 => Self::Family(first),
            2 => Self::Protocol(first),
            3 => Self::Loopback,
            4 => Self::NoRoute,
            5 => Self::Group,
            6 => Self::Lists,
            7 => Self::User,
            8 => Self::SocketOption(first, second),
            9 => Self::Inherited,
            10 => Self::Passed,
            11 => Self::NoEngine,
            12 => Self::NotAnEngine,
            13 => Self::Version,
            14 => Self::SessionRefused,
            15 => Self::Refused(first),
            16 => Self::Withheld,
            17 => Self::EngineEnded,
            18 => Self::OtherInterface,
            19 => Self::NumberTooHigh,
            20 => Self::Ring,
            21 => Self::SessionFailed,
            _ => return None,
        })
    }

    /// All of it in one word, never 0.
    pub fn to_word(self) -> u64 {
        let (code, first, second) = self.codes();
        u64::from(code) | u64::from(first) << 8 | u64::from(second) << 24
    }

    /// Reads that word.
    pub fn of_word(word: u64) -> Option<Self> {
        Self::of(word as u8, (word >> 8) as u16, (word >> 24) as u16)
    }

    /// One word, for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Family(_) => "family",
            Self::Protocol(_) => "protocol",
            Self::Loopback => "loopback",
            Self::NoRoute => "no-route",
            Self::Group => "group",
            Self::Lists => "lists",
            Self::User => "user",
            Self::SocketOption(..) => "socket-option",
            Self::Inherited => "inherited",
            Self::Passed => "passed",
            Self::NoEngine => "no-engine",
            Self::NotAnEngine => "not-an-engine",
            Self::Version => "version",
            Self::SessionRefused => "session-refused",
            Self::Refused(_) => "refused",
            Self::Withheld => "withheld",
            Self::EngineEnded => "engine-ended",
            Self::OtherInterface => "other-interface",
            Self::NumberTooHigh => "number-too-high",
            Self::Ring => "io_uring",
            Self::SessionFailed => "session-failed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::Family(family) => match family_name(family) {
                Some(name) => return write!(f, "family {name}, not IPv4 or IPv6"),
                None => return write!(f, "family {family}, not IPv4 or IPv6"),
            },
            Self::Protocol(0) => "neither TCP nor UDP",
            Self::Protocol(protocol) => {
                return write!(f, "protocol {protocol}, neither TCP nor UDP");
            }
            Self::Loopback => "loopback",
            Self::NoRoute => "no route through the engine's interfaces",
            Self::Group => "multicast or broadcast",
            Self::Lists => "left to the kernel by [allow] and [deny]",
            Self::User => "programs of this user are left to the kernel by [allow] and [deny]",
            Self::SocketOption(level, name) => match option_name(level.into(), name.into()) {
                Some(option) => return write!(f, "{option} is implemented only by the kernel"),
                None => {
                    return write!(
                        f,
                        "option {name} of level {level} is implemented only by the kernel"
                    );
                }
            },
            Self::Inherited => "opened by the parent process",
            Self::Passed => "already open when the program started",
            Self::NoEngine => "no engine answered",
            Self::NotAnEngine => "the control socket belongs to no engine, or to one that hangs",
            Self::Version => "engine and library have different versions",
            Self::SessionRefused => "the engine refused a session",
            Self::Refused(errno) => match names::errno_name(errno) {
                Some(name) => return write!(f, "refused by the engine ({name})"),
                None => return write!(f, "refused by the engine (errno {errno})"),
            },
            Self::Withheld => "the engine was ending, or routing rules prevent it",
            Self::EngineEnded => "the engine ended",
            Self::OtherInterface => "arrived at an interface that the engine does not serve",
            Self::NumberTooHigh => "descriptor number too high",
            Self::Ring => "io_uring bypasses the C library",
            Self::SessionFailed => "the session with the engine could not be set up",
        })
    }
}

/// What a line counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The kind of socket.
    pub kind: Kind,
    /// Its address, as far as the line is about one.
    pub address: Option<SocketAddr>,
    /// Why the kernel serves it; `None` when the engine does.
    pub reason: Option<Reason>,
}

impl Subject {
    /// The words that identify the line. The first is never 0.
    pub fn encode(&self) -> [u64; IDENTITY_WORDS] {
        let head = u64::from(self.kind as u8) | self.reason.map_or(0, Reason::to_word) << 8;
        let Some(address) = self.address else { return [head, 0, 0, 0] };
        let bytes = u128::from_le_bytes(mapped(address.ip()));
        let (low, high) = (bytes as u64, (bytes >> 64) as u64);
        let family: u64 = if address.is_ipv4() { 4 } else { 6 };
        [head, low, high, u64::from(address.port()) | family << 16]
    }

    /// Reads them; `None` when they are none.
    pub fn decode(words: [u64; IDENTITY_WORDS]) -> Option<Self> {
        let [head, low, high, end] = words;
        let reason = match head >> 8 {
            0 => None,
            word => Some(Reason::of_word(word)?),
        };
        let bytes = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
        let address = match end >> 16 {
            0 => None,
            4 => Some(SocketAddr::new(unmapped(bytes, 4), end as u16)),
            6 => Some(SocketAddr::new(unmapped(bytes, 6), end as u16)),
            _ => return None,
        };
        Some(Self { kind: Kind::of(head as u8)?, address, reason })
    }

    /// The same without its address, for a table that has no room for every address.
    pub fn summary(self) -> Self {
        Self { address: None, ..self }
    }
}

/// A line with its count: "12 connections to 192.0.2.1:443: kernel, no route ...".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CensusLine {
    /// What is counted.
    pub subject: Subject,
    /// How many.
    pub count: u64,
}

impl fmt::Display for CensusLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subject { kind, address, reason } = self.subject;
        let (one, many, at) = kind.nouns();
        write!(f, "{} {}", self.count, if self.count == 1 { one } else { many })?;
        if let Some(address) = address {
            write!(f, " {at} {address}")?;
        }
        match reason {
            None => write!(f, ": accelerated"),
            Some(reason) => write!(f, ": kernel, {reason}"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn all_reasons() -> impl Iterator<Item = Reason> {
        (1..=u8::MAX).map_while(|code| Reason::of(code, 41, 7))
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let addresses =
            [None, Some("192.0.2.1:443"), Some("[2001:db8::1]:53"), Some("[::ffff:1.2.3.4]:1")];
        for address in addresses.map(|text| text.map(|text| text.parse().unwrap())) {
            for reason in all_reasons().map(Some).chain([None]) {
                for kind in (1..=9).filter_map(Kind::of) {
                    let subject = Subject { kind, address, reason };
                    assert_eq!(Subject::decode(subject.encode()), Some(subject));
                    assert_ne!(subject.encode()[0], 0);
                }
            }
        }
        assert_eq!(all_reasons().count(), 21);
    }

    #[test]
    fn words_that_no_library_writes_are_no_line() {
        for words in [[0; 4], [10, 0, 0, 0], [1 | 200 << 8, 0, 0, 0], [1, 0, 0, 5 << 16]] {
            assert_eq!(Subject::decode(words), None);
        }
    }

    #[test]
    fn a_line_reads_as_a_sentence() {
        let of =
            |kind, address: &str, reason| Subject { kind, address: address.parse().ok(), reason };
        let said = |subject, count| CensusLine { subject, count }.to_string();
        assert_eq!(
            said(of(Kind::Opened, "192.0.2.1:443", Some(Reason::NoRoute)), 12),
            "12 connections to 192.0.2.1:443: kernel, no route through the engine's interfaces"
        );
        assert_eq!(
            said(of(Kind::Listener, "0.0.0.0:80", None), 1),
            "1 listener at 0.0.0.0:80: accelerated"
        );
        assert_eq!(
            said(of(Kind::Other, "", Some(Reason::Family(1))), 3),
            "3 sockets: kernel, family AF_UNIX, not IPv4 or IPv6"
        );
        assert_eq!(
            said(of(Kind::Tcp, "", Some(Reason::SocketOption(1, 36))), 1),
            "1 TCP socket: kernel, SO_MARK is implemented only by the kernel"
        );
        assert_eq!(
            said(of(Kind::UdpBound, "[::]:53", Some(Reason::Refused(105))), 2),
            "2 UDP sockets at [::]:53: kernel, refused by the engine (ENOBUFS)"
        );
    }
}
