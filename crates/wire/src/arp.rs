//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::{MacAddr, Malformed, NoRoom, put};

/// Request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation(pub u16);

impl Operation {
    /// Who has the target's protocol address?
    pub const REQUEST: Operation = Operation(1);
    /// The sender has the sender's protocol address.
    pub const REPLY: Operation = Operation(2);
}

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpPacket {
    /// Request or reply.
    pub operation: Operation,
    /// Who speaks.
    pub sender_mac: MacAddr,
    /// Who speaks; unspecified in a probe (RFC 5227).
    pub sender_ip: Ipv4Addr,
    /// Who is spoken to; zero in a request.
    pub target_mac: MacAddr,
    /// Who is asked for.
    pub target_ip: Ipv4Addr,
}

/// Bytes of an ARP packet.
pub const LEN: usize = 28;

/// Hardware Ethernet (1), protocol IPv4, address lengths 6 and 4.
const PREFIX: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// Reads an ARP packet; padding behind it is ignored.
pub fn parse(bytes: &[u8]) -> Result<ArpPacket, Malformed> {
    let (prefix, rest) = bytes.split_first_chunk::<6>().ok_or(Malformed::Short)?;
    if *prefix != PREFIX {
        return Err(Malformed::Unsupported);
    }
    let (&operation, rest) = rest.split_first_chunk::<2>().ok_or(Malformed::Short)?;
    let (&sender_mac, rest) = rest.split_first_chunk::<6>().ok_or(Malformed::Short)?;
    let (&sender_ip, rest) = rest.split_first_chunk::<4>().ok_or(Malformed::Short)?;
    let (&target_mac, rest) = rest.split_first_chunk::<6>().ok_or(Malformed::Short)?;
    let (&target_ip, _) = rest.split_first_chunk::<4>().ok_or(Malformed::Short)?;
    Ok(ArpPacket {
        operation: Operation(u16::from_be_bytes(operation)),
        sender_mac: MacAddr(sender_mac),
        sender_ip: Ipv4Addr::from(sender_ip),
        target_mac: MacAddr(target_mac),
        target_ip: Ipv4Addr::from(target_ip),
    })
}

impl ArpPacket {
    /// Writes the packet to the start of `out` and gives its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let out = put(out, &PREFIX)?;
        let out = put(out, &self.operation.0.to_be_bytes())?;
        let out = put(out, &self.sender_mac.0)?;
        let out = put(out, &self.sender_ip.octets())?;
        let out = put(out, &self.target_mac.0)?;
        put(out, &self.target_ip.octets())?;
        Ok(LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_emit_and_parse() {
        let packet = ArpPacket {
            operation: Operation::REQUEST,
            sender_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            sender_ip: Ipv4Addr::new(10, 0, 0, 1),
            target_mac: MacAddr::ZERO,
            target_ip: Ipv4Addr::new(10, 0, 0, 2),
        };
        let mut bytes = [0; LEN];
        assert_eq!(packet.emit(&mut bytes), Ok(LEN));
        assert_eq!(parse(&bytes), Ok(packet));
        for len in 0..LEN {
            assert_eq!(parse(&bytes[..len]), Err(Malformed::Short));
            assert_eq!(packet.emit(&mut [0; LEN][..len]), Err(NoRoom));
        }
    }

    #[test]
    fn other_hardware_is_unsupported() {
        let mut bytes = [0; LEN];
        bytes[..6].copy_from_slice(&[0, 6, 8, 0, 6, 4]);
        assert_eq!(parse(&bytes), Err(Malformed::Unsupported));
    }
}
