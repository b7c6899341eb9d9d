//! Partial checksums without metadata. A kernel peer on a virtual link leaves the layer-4 checksum
//! to a card that does not exist: the field holds the folded pseudo-header sum. The kernel marks
//! that in the frame's metadata, which an XDP socket does not get, so the exact sum is the only
//! sign.

use std::net::IpAddr;

use wire::checksum::Sum;
use wire::ethernet::{self, EtherType};
use wire::ipv4::{self, Protocol};
use wire::ipv6;
use wire::tcp::CHECKSUM_OFFSET as TCP_CHECKSUM;
use wire::udp::CHECKSUM_OFFSET as UDP_CHECKSUM;

/// Start and offset of the layer-4 checksum, if its field holds exactly the folded pseudo-header
/// sum.
pub(super) fn left_partial(frame: &[u8]) -> Option<(u16, u16)> {
    let (link, packet) = ethernet::parse(frame).ok()?;
    let (src, dst, protocol, header_len, payload): (IpAddr, IpAddr, _, _, _) = match link.ethertype
    {
        EtherType::IPV4 => {
            let packet = ipv4::parse(packet).ok().filter(|packet| !packet.header.is_fragment())?;
            let header_len = ipv4::HEADER_LEN + packet.options.len();
            let ipv4::Ipv4Header { src, dst, protocol, .. } = packet.header;
            (src.into(), dst.into(), protocol, header_len, packet.payload)
        }
        // With extension headers it is a fragment, whose sum is complete, or the kernel's.
        EtherType::IPV6 => {
            let (header, payload) = ipv6::parse(packet).ok()?;
            let (src, dst) = (header.src.into(), header.dst.into());
            (src, dst, header.next_header, ipv6::HEADER_LEN, payload)
        }
        _ => return None,
    };
    let offset = match protocol {
        Protocol::TCP => TCP_CHECKSUM,
        Protocol::UDP => UDP_CHECKSUM,
        _ => return None,
    };
    let field = payload.get(offset..)?.first_chunk::<2>()?;
    let len = u32::try_from(payload.len()).ok()?;
    let pseudo = Sum::pseudo(src, dst, protocol, len)?.folded();
    let start = link.header_len() + header_len;
    (u16::from_be_bytes(*field) == pseudo)
        .then_some((u16::try_from(start).ok()?, u16::try_from(offset).ok()?))
}
