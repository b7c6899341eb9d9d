//! The link of a trunk's frame: frames of one flow use one link, so that they stay in order.

use wire::ethernet::{self, EtherType};
use wire::ipv4::{self, Protocol};
use wire::ipv6;

/// A hash that is the same for all frames of a flow: of addresses and ports; without ports of the
/// addresses, as for every fragment; and of link addresses and EtherType if it is not IP.
pub fn of(header: &[u8], key: u64) -> u64 {
    let Ok((link, packet)) = ethernet::parse(header) else { return key };
    let hash = match link.ethertype {
        EtherType::IPV4 => of_ipv4(packet, key),
        EtherType::IPV6 => of_ipv6(packet, key),
        _ => None,
    };
    hash.unwrap_or_else(|| fold(header.get(..14).unwrap_or(header), key))
}

fn of_ipv4(packet: &[u8], key: u64) -> Option<u64> {
    let bytes: &[u8; ipv4::HEADER_LEN] = packet.first_chunk()?;
    let [version_ihl, _, _, _, _, _, fragment, fragment_low, _, protocol, ..] = *bytes;
    let hash = fold(&bytes[12..20], key ^ u64::from(protocol));
    let is_fragment = fragment & 0x3f != 0 || fragment_low != 0;
    let ports_at = usize::from(version_ihl & 15) * 4;
    Some(with_ports(hash, Protocol(protocol), packet.get(ports_at..).filter(|_| !is_fragment)))
}

fn of_ipv6(packet: &[u8], key: u64) -> Option<u64> {
    let bytes: &[u8; ipv6::HEADER_LEN] = packet.first_chunk()?;
    // Fragment and other extension headers are not parsed: such flows go by their addresses.
    let protocol = bytes[6];
    let hash = fold(&bytes[8..40], key ^ u64::from(protocol));
    Some(with_ports(hash, Protocol(protocol), packet.get(ipv6::HEADER_LEN..)))
}

fn with_ports(hash: u64, protocol: Protocol, segment: Option<&[u8]>) -> u64 {
    match segment.and_then(|segment| segment.first_chunk::<4>()) {
        Some(ports) if matches!(protocol, Protocol::TCP | Protocol::UDP) => fold(ports, hash),
        _ => hash,
    }
}

fn fold(bytes: &[u8], key: u64) -> u64 {
    bytes.chunks(8).fold(mix(key), |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash ^ u64::from_le_bytes(word))
    })
}

/// The finalizer of SplitMix64.
fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The weight of a link for a flow. The highest one of the links in use gets the flow (highest
/// random weight), so that a link that leaves moves only its own flows.
pub fn weight(flow: u64, link: usize) -> u64 {
    mix(flow ^ mix(link as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp4(port: u16, fragment: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 60, 0, 0]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(port.to_be_bytes());
        frame.extend([0, 80, 1, 2, 3, 4]);
        frame
    }

    fn udp6(port: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 17, 64]);
        frame.extend([7; 32]);
        frame.extend(port.to_be_bytes());
        frame.extend([0, 53, 0, 20, 0, 0]);
        frame
    }

    #[test]
    fn a_flow_is_known_by_its_ports_and_a_fragment_by_its_addresses() {
        assert_ne!(of(&tcp4(1000, 0), 7), of(&tcp4(1001, 0), 7));
        assert_ne!(of(&udp6(1000), 7), of(&udp6(1001), 7));
        // The Don't Fragment bit makes no fragment.
        assert_eq!(of(&tcp4(1000, 0), 7), of(&tcp4(1000, 0x4000), 7));
        // Neither the first nor a later fragment goes by what may be ports.
        assert_eq!(of(&tcp4(1000, 0x2000), 7), of(&tcp4(1001, 0x2000), 7));
        assert_eq!(of(&tcp4(1000, 0x2000), 7), of(&tcp4(1001, 5), 7));
        let mut rest = tcp4(1000, 0);
        rest.extend([9; 100]);
        assert_eq!(of(&tcp4(1000, 0), 7), of(&rest, 7));
    }

    #[test]
    fn frames_that_are_no_ip_and_cut_ones_have_a_flow_too() {
        let arp = |last| [&[2; 11][..], &[last, 8, 6, 0, 1]].concat();
        assert_ne!(of(&arp(1), 7), of(&arp(2), 7));
        for len in 0..tcp4(1, 0).len() {
            of(&tcp4(1, 0)[..len], 7);
            of(&udp6(1)[..len], 7);
        }
    }

    #[test]
    fn flows_spread_evenly_and_a_link_that_leaves_moves_its_own_alone() {
        let link_of = |port, links: &[usize]| {
            let flow = of(&tcp4(port, 0), 7);
            *links.iter().max_by_key(|link| weight(flow, **link)).unwrap()
        };
        let mut counts = [0; 4];
        for port in 0..4000 {
            let before = link_of(port, &[0, 1, 2, 3]);
            counts[before] += 1;
            let after = link_of(port, &[0, 1, 3]);
            assert!(before == 2 || after == before, "port {port}");
        }
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }
}
