//! Partial checksums without metadata. A kernel peer on a virtual link leaves the layer-4
//! checksum to a card that is not there: the field holds the folded pseudo-header sum. Otherwise
//! that travels beside the frame; to an XDP socket the frame comes alone, so that the exact sum
//! is all there is to tell by.

use wire::checksum::Sum;
use wire::ethernet::{self, EtherType};
use wire::ipv4::{self, Protocol};
use wire::tcp::CHECKSUM_OFFSET as TCP_CHECKSUM;
use wire::udp::CHECKSUM_OFFSET as UDP_CHECKSUM;

/// Where the checksum of layer 4 starts and lies, when its field holds exactly the folded
/// pseudo-header sum.
pub(super) fn left_partial(frame: &[u8]) -> Option<(u16, u16)> {
    let (link, packet) = ethernet::parse(frame).ok()?;
    if link.ethertype != EtherType::IPV4 {
        return None;
    }
    let packet = ipv4::parse(packet).ok()?;
    let header = packet.header;
    let offset = match header.protocol {
        Protocol::TCP => TCP_CHECKSUM,
        Protocol::UDP => UDP_CHECKSUM,
        _ => return None,
    };
    if header.is_fragment() {
        return None;
    }
    let field = packet.payload.get(offset..)?.first_chunk::<2>()?;
    let len = u32::try_from(packet.payload.len()).ok()?;
    let pseudo = Sum::pseudo_v4(header.src, header.dst, header.protocol, len).folded();
    let start = link.header_len() + ipv4::HEADER_LEN + packet.options.len();
    (u16::from_be_bytes(*field) == pseudo)
        .then_some((u16::try_from(start).ok()?, u16::try_from(offset).ok()?))
}
