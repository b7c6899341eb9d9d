//! Ethernet II with at most one 802.1Q or 802.1ad tag.

use crate::{Malformed, NoRoom, put};

/// An Ethernet address.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All stations.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
    /// Nobody: the target of an ARP request.
    pub const ZERO: MacAddr = MacAddr([0; 6]);

    /// Group bit set: multicast or broadcast.
    pub fn is_multicast(&self) -> bool {
        let [first, ..] = self.0;
        first & 1 != 0
    }
    /// All ones.
    pub fn is_broadcast(&self) -> bool {
        *self == Self::BROADCAST
    }
    /// May be somebody's source address: neither a group nor zero.
    pub fn is_unicast(&self) -> bool {
        !self.is_multicast() && *self != Self::ZERO
    }
    /// The group address of an IPv4 multicast address (RFC 1112, section 6.4).
    pub fn of_multicast_v4(group: core::net::Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }
    /// The group address of an IPv6 multicast address (RFC 2464, section 7).
    pub fn of_multicast_v6(group: core::net::Ipv6Addr) -> Self {
        let [.., c, d, e, f] = group.octets();
        MacAddr([0x33, 0x33, c, d, e, f])
    }
}

impl core::fmt::Display for MacAddr {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The text is not six hexadecimal bytes with colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMacAddr;

impl core::fmt::Display for BadMacAddr {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("not an Ethernet address; write it as 02:00:00:00:00:01")
    }
}

impl core::error::Error for BadMacAddr {}

impl core::str::FromStr for MacAddr {
    type Err = BadMacAddr;

    fn from_str(text: &str) -> Result<Self, BadMacAddr> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(BadMacAddr)?;
            let is_hex = part.len() == 2 && part.bytes().all(|c| c.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| is_hex).ok_or(BadMacAddr)?;
        }
        if parts.next().is_some() { Err(BadMacAddr) } else { Ok(MacAddr(bytes)) }
    }
}

/// What an Ethernet frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// RFC 894.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// RFC 826.
    pub const ARP: EtherType = EtherType(0x0806);
    /// RFC 2464.
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// IEEE 802.1Q customer tag.
    pub const VLAN: EtherType = EtherType(0x8100);
    /// IEEE 802.1ad service tag.
    pub const SERVICE_VLAN: EtherType = EtherType(0x88a8);
}

/// An 802.1Q or 802.1ad tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// Which kind of tag: [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    pub kind: EtherType,
    /// Priority (3 bits), drop eligible (1 bit), identifier (12 bits).
    pub control: u16,
}

impl VlanTag {
    /// The VLAN's identifier, 0 for a frame that is only prioritized.
    pub fn id(&self) -> u16 {
        self.control & 0x0fff
    }
}

/// Ethernet header, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetHeader {
    /// To whom.
    pub dst: MacAddr,
    /// From whom.
    pub src: MacAddr,
    /// The outermost tag. A second one shows as `ethertype`.
    pub vlan: Option<VlanTag>,
    /// What follows.
    pub ethertype: EtherType,
}

/// Bytes of the header without a tag.
pub const HEADER_LEN: usize = 14;
/// Bytes that a tag adds.
pub const VLAN_LEN: usize = 4;

/// Splits a frame into header and payload. The payload may be followed by padding: the IP
/// header's length says where the packet ends.
//= https://www.rfc-editor.org/rfc/rfc1122#section-2.3.3
//# o MUST be able to send and receive packets using RFC-894 encapsulation;
#[inline]
pub fn parse(frame: &[u8]) -> Result<(EthernetHeader, &[u8]), Malformed> {
    let (dst, rest) = frame.split_first_chunk::<6>().ok_or(Malformed::Short)?;
    let (src, rest) = rest.split_first_chunk::<6>().ok_or(Malformed::Short)?;
    let (&ethertype, rest) = rest.split_first_chunk::<2>().ok_or(Malformed::Short)?;
    let (dst, src) = (MacAddr(*dst), MacAddr(*src));
    let kind = EtherType(u16::from_be_bytes(ethertype));
    if kind != EtherType::VLAN && kind != EtherType::SERVICE_VLAN {
        return Ok((EthernetHeader { dst, src, vlan: None, ethertype: kind }, rest));
    }
    let (&[c0, c1, t0, t1], rest) = rest.split_first_chunk().ok_or(Malformed::Short)?;
    let vlan = Some(VlanTag { kind, control: u16::from_be_bytes([c0, c1]) });
    let ethertype = EtherType(u16::from_be_bytes([t0, t1]));
    Ok((EthernetHeader { dst, src, vlan, ethertype }, rest))
}

impl EthernetHeader {
    /// Bytes on the wire: 14, or 18 with a tag.
    pub fn header_len(&self) -> usize {
        HEADER_LEN + if self.vlan.is_some() { VLAN_LEN } else { 0 }
    }

    /// Writes the header to the start of `out` and gives its length.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let out = put(out, &self.dst.0)?;
        let mut out = put(out, &self.src.0)?;
        if let Some(tag) = self.vlan {
            out = put(out, &tag.kind.0.to_be_bytes())?;
            out = put(out, &tag.control.to_be_bytes())?;
        }
        put(out, &self.ethertype.0.to_be_bytes())?;
        Ok(self.header_len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tag_is_kept_and_emitted_again() {
        let header = EthernetHeader {
            dst: MacAddr([1, 2, 3, 4, 5, 6]),
            src: MacAddr([7, 8, 9, 10, 11, 12]),
            vlan: Some(VlanTag { kind: EtherType::VLAN, control: 0x6005 }),
            ethertype: EtherType::IPV4,
        };
        let mut frame = [0xee; 20];
        assert_eq!(header.emit(&mut frame), Ok(18));
        let (parsed, rest) = parse(&frame).expect("whole");
        assert_eq!(parsed, header);
        assert_eq!(parsed.vlan.map(|tag| tag.id()), Some(5));
        assert_eq!(rest, [0xee, 0xee]);
    }

    #[test]
    fn a_frame_cut_anywhere_in_its_header_is_short() {
        let mut frame = [0; 18];
        frame[12..14].copy_from_slice(&[0x81, 0x00]);
        for len in 0..18 {
            assert_eq!(parse(&frame[..len]), Err(Malformed::Short));
        }
        assert!(parse(&frame).is_ok());
    }

    #[test]
    fn addresses_are_read_and_written_as_text() {
        let address = MacAddr([2, 0, 0xab, 0, 0, 1]);
        assert_eq!(address.to_string(), "02:00:ab:00:00:01");
        assert_eq!("02:00:AB:00:00:01".parse(), Ok(address));
        for bad in
            ["", "02:00:ab:00:00", "02:00:ab:00:00:01:02", "2:0:ab:0:0:1", "+2:00:ab:00:00:01"]
        {
            assert_eq!(bad.parse::<MacAddr>(), Err(BadMacAddr), "{bad}");
        }
    }
}
