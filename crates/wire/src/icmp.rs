//! ICMP for IPv4 (RFC 792), with the next hop's MTU of RFC 1191.

use crate::checksum::Sum;
use crate::{Malformed, NoRoom, put, put_slice};

/// What an echo request carries, and its reply again, in both versions of ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo<'a> {
    /// Which conversation.
    pub identifier: u16,
    /// Which question of it.
    pub sequence: u16,
    /// To be sent back as it is.
    pub data: &'a [u8],
}

/// An ICMP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpMessage<'a> {
    /// Are you there?
    EchoRequest(Echo<'a>),
    /// I am; with what the request had.
    EchoReply(Echo<'a>),
    /// A packet could not be delivered.
    Unreachable {
        /// Why: see [`unreachable`].
        code: u8,
        /// With code [`unreachable::FRAGMENTATION_NEEDED`]: the largest packet that the next
        /// hop takes; 0 from routers older than RFC 1191.
        next_hop_mtu: u16,
        /// The start of that packet, from its IP header on.
        quoted: &'a [u8],
    },
    /// A packet's hops, or its fragments' time, ran out.
    TimeExceeded {
        /// 0: hops; 1: reassembly.
        code: u8,
        /// The start of that packet.
        quoted: &'a [u8],
    },
    /// A packet's header was not understood.
    ParameterProblem {
        /// 0: see the pointer.
        code: u8,
        /// Byte of the quoted header that is wrong.
        pointer: u8,
        /// The start of that packet.
        quoted: &'a [u8],
    },
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
    //# Source Quench TCP implementations MUST silently discard any received ICMP Source Quench
    //# messages (MUST-55).
    /// Anything else (redirects, timestamps): valid, not spoken.
    Other {
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

/// Codes of [`IcmpMessage::Unreachable`].
pub mod unreachable {
    /// RFC 792: no route to the network.
    pub const NET: u8 = 0;
    /// RFC 792: the host does not answer.
    pub const HOST: u8 = 1;
    /// RFC 792: the host does not speak the protocol.
    pub const PROTOCOL: u8 = 2;
    /// RFC 792: nobody listens at the port.
    pub const PORT: u8 = 3;
    /// RFC 792, RFC 1191: too long for the next hop and not to be cut.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// RFC 1812: forbidden by an administrator.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
}

/// Bytes before the data or the quoted packet.
pub const HEADER_LEN: usize = 8;

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// Reads a message and verifies its checksum.
pub fn parse(bytes: &[u8]) -> Result<IcmpMessage<'_>, Malformed> {
    let (&[kind, code, _, _, a0, a1, b0, b1], rest) =
        bytes.split_first_chunk().ok_or(Malformed::Short)?;
    if !Sum::of(bytes).is_valid() {
        return Err(Malformed::Checksum);
    }
    let (first, second) = (u16::from_be_bytes([a0, a1]), u16::from_be_bytes([b0, b1]));
    let echo = Echo { identifier: first, sequence: second, data: rest };
    Ok(match (kind, code) {
        (ECHO_REPLY, 0) => IcmpMessage::EchoReply(echo),
        (ECHO_REQUEST, 0) => IcmpMessage::EchoRequest(echo),
        (UNREACHABLE, _) => IcmpMessage::Unreachable { code, next_hop_mtu: second, quoted: rest },
        (TIME_EXCEEDED, _) => IcmpMessage::TimeExceeded { code, quoted: rest },
        (PARAMETER_PROBLEM, _) => IcmpMessage::ParameterProblem { code, pointer: a0, quoted: rest },
        _ => IcmpMessage::Other { kind, code },
    })
}

impl IcmpMessage<'_> {
    /// Writes the whole message, checksum done, to the start of `out` and gives its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let (kind, code, first, second, tail): (u8, u8, u16, u16, &[u8]) = match *self {
            IcmpMessage::EchoRequest(echo) => {
                (ECHO_REQUEST, 0, echo.identifier, echo.sequence, echo.data)
            }
            IcmpMessage::EchoReply(echo) => {
                (ECHO_REPLY, 0, echo.identifier, echo.sequence, echo.data)
            }
            IcmpMessage::Unreachable { code, next_hop_mtu, quoted } => {
                (UNREACHABLE, code, 0, next_hop_mtu, quoted)
            }
            IcmpMessage::TimeExceeded { code, quoted } => (TIME_EXCEEDED, code, 0, 0, quoted),
            IcmpMessage::ParameterProblem { code, pointer, quoted } => {
                (PARAMETER_PROBLEM, code, u16::from(pointer) << 8, 0, quoted)
            }
            IcmpMessage::Other { kind, code } => (kind, code, 0, 0, &[]),
        };
        let ([a0, a1], [b0, b1]) = (first.to_be_bytes(), second.to_be_bytes());
        let sum = Sum::of(&[kind, code, 0, 0, a0, a1, b0, b1]).then(Sum::of(tail));
        let [c0, c1] = sum.finish().to_be_bytes();
        let rest = put(out, &[kind, code, c0, c1, a0, a1, b0, b1])?;
        put_slice(rest, tail)?;
        Ok(HEADER_LEN + tail.len())
    }
}
