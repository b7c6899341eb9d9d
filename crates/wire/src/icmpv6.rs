//! ICMPv6 (RFC 4443): echo and errors. What else it carries has modules of its own:
//! [`ndp`](crate::ndp) and [`mld`](crate::mld).

use core::net::Ipv6Addr;

use crate::checksum::Sum;
use crate::icmp::Echo;
use crate::ipv4::Protocol;
use crate::{Malformed, NoRoom, put, put_slice};

/// An ICMPv6 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv6Message<'a> {
    /// A packet could not be delivered.
    Unreachable {
        /// Why: see [`unreachable`].
        code: u8,
        /// The start of that packet, from its IP header on.
        quoted: &'a [u8],
    },
    /// A packet is longer than the next link takes, and routers do not cut.
    PacketTooBig {
        /// Largest packet that it takes.
        mtu: u32,
        /// The start of that packet.
        quoted: &'a [u8],
    },
    /// A packet's hops, or its fragments' time, ran out.
    TimeExceeded {
        /// 0: hops; 1: reassembly.
        code: u8,
        /// The start of that packet.
        quoted: &'a [u8],
    },
    /// A packet's headers were not understood.
    ParameterProblem {
        /// 0: a field; 1: a next header; 2: an option; 3: a first fragment without all headers.
        code: u8,
        /// Byte of the quoted packet that is wrong.
        pointer: u32,
        /// The start of that packet.
        quoted: &'a [u8],
    },
    /// Are you there?
    EchoRequest(Echo<'a>),
    /// I am; with what the request had.
    EchoReply(Echo<'a>),
    /// Anything else, with what follows its type, code and checksum.
    Other {
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
        /// Its body.
        body: &'a [u8],
    },
}

/// Codes of [`Icmpv6Message::Unreachable`].
pub mod unreachable {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// Forbidden by an administrator.
    pub const PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The host does not answer.
    pub const ADDRESS: u8 = 3;
    /// Nobody listens at the port.
    pub const PORT: u8 = 4;
}

/// Codes of [`Icmpv6Message::ParameterProblem`].
pub mod problem {
    /// A field has a wrong value.
    pub const FIELD: u8 = 0;
    /// A next header that is not spoken.
    pub const NEXT_HEADER: u8 = 1;
    /// RFC 7112: a first fragment that does not have all headers.
    pub const FIRST_FRAGMENT: u8 = 3;
}

/// Bytes before the data or the quoted packet.
pub const HEADER_LEN: usize = 8;
/// Types below this are errors (RFC 4443, section 2.1).
pub const INFORMATIONAL: u8 = 128;
/// Type of an echo reply.
pub const ECHO_REPLY: u8 = 129;

const UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;

/// Reads a message and verifies its checksum, which covers the addresses.
pub fn parse(src: Ipv6Addr, dst: Ipv6Addr, bytes: &[u8]) -> Result<Icmpv6Message<'_>, Malformed> {
    let (&[kind, code, _, _], body) = bytes.split_first_chunk().ok_or(Malformed::Short)?;
    if !pseudo(src, dst, bytes.len()).then(Sum::of(bytes)).is_valid() {
        return Err(Malformed::Checksum);
    }
    read(kind, code, body)
}

/// The same without its checksum, which another has looked at (or which the sender has left to
/// its card).
pub fn parse_unverified(bytes: &[u8]) -> Result<Icmpv6Message<'_>, Malformed> {
    let (&[kind, code, _, _], body) = bytes.split_first_chunk().ok_or(Malformed::Short)?;
    read(kind, code, body)
}

fn read(kind: u8, code: u8, body: &[u8]) -> Result<Icmpv6Message<'_>, Malformed> {
    let is_known = matches!(kind, UNREACHABLE..=PARAMETER_PROBLEM | ECHO_REQUEST | ECHO_REPLY);
    if !is_known {
        return Ok(Icmpv6Message::Other { kind, code, body });
    }
    let (&[a, b, c, d], rest) = body.split_first_chunk().ok_or(Malformed::Short)?;
    let word = u32::from_be_bytes([a, b, c, d]);
    let (identifier, sequence) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let echo = Echo { identifier, sequence, data: rest };
    Ok(match kind {
        UNREACHABLE => Icmpv6Message::Unreachable { code, quoted: rest },
        PACKET_TOO_BIG => Icmpv6Message::PacketTooBig { mtu: word, quoted: rest },
        TIME_EXCEEDED => Icmpv6Message::TimeExceeded { code, quoted: rest },
        PARAMETER_PROBLEM => Icmpv6Message::ParameterProblem { code, pointer: word, quoted: rest },
        ECHO_REQUEST => Icmpv6Message::EchoRequest(echo),
        _ => Icmpv6Message::EchoReply(echo),
    })
}

/// Sum over the pseudo-header of a message of `len` bytes.
pub fn pseudo(src: Ipv6Addr, dst: Ipv6Addr, len: usize) -> Sum {
    // At most 64 KiB.
    Sum::pseudo_v6(src, dst, Protocol::ICMPV6, len as u32)
}

impl Icmpv6Message<'_> {
    /// Writes the whole message, checksum done, to the start of `out` and gives its length.
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, out: &mut [u8]) -> Result<usize, NoRoom> {
        let word = |echo: Echo<'_>| u32::from(echo.identifier) << 16 | u32::from(echo.sequence);
        let (kind, code, word, tail): (u8, u8, Option<u32>, &[u8]) = match *self {
            Icmpv6Message::Unreachable { code, quoted } => (UNREACHABLE, code, Some(0), quoted),
            Icmpv6Message::PacketTooBig { mtu, quoted } => (PACKET_TOO_BIG, 0, Some(mtu), quoted),
            Icmpv6Message::TimeExceeded { code, quoted } => (TIME_EXCEEDED, code, Some(0), quoted),
            Icmpv6Message::ParameterProblem { code, pointer, quoted } => {
                (PARAMETER_PROBLEM, code, Some(pointer), quoted)
            }
            Icmpv6Message::EchoRequest(echo) => (ECHO_REQUEST, 0, Some(word(echo)), echo.data),
            Icmpv6Message::EchoReply(echo) => (ECHO_REPLY, 0, Some(word(echo)), echo.data),
            Icmpv6Message::Other { kind, code, body } => (kind, code, None, body),
        };
        let room = put(out, &[kind, code, 0, 0])?;
        let len = match word {
            Some(word) => {
                let room = put(room, &word.to_be_bytes())?;
                put_slice(room, tail)?;
                HEADER_LEN + tail.len()
            }
            None => {
                put_slice(room, tail)?;
                4 + tail.len()
            }
        };
        seal(src, dst, out, len)
    }
}

/// Puts the checksum into a message of `len` bytes at the start of `out`, whose field is zero.
pub(crate) fn seal(
    src: Ipv6Addr,
    dst: Ipv6Addr,
    out: &mut [u8],
    len: usize,
) -> Result<usize, NoRoom> {
    let message = out.get_mut(..len).ok_or(NoRoom)?;
    let sum = pseudo(src, dst, len).then(Sum::of(message)).finish();
    let (_, field) = message.split_at_mut_checked(2).ok_or(NoRoom)?;
    put(field, &sum.to_be_bytes())?;
    Ok(len)
}
