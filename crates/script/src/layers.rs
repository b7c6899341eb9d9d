//! Packets written layer by layer, for what has no words of its own: `raw "ip6 hop=255 / icmp6 135 0
//! 00000000 fd000000000000000000000000000001"`. Layers are read from the innermost one outwards;
//! checksums and lengths are filled in.

use std::net::IpAddr;

use wire::MacAddr;
use wire::checksum::Sum;
use wire::ipv4::{Ipv4Header, Protocol};
use wire::ipv6::{self, FRAGMENT_LEN, Fragment, Ipv6Header};
use wire::udp::UdpHeader;

use crate::frame::{self, address_to};
use crate::system::{local, remote};

/// One layer: its name, its bare words and its `name=value` words.
struct Layer<'a> {
    name: &'a str,
    bare: Vec<&'a str>,
    named: Vec<(&'a str, &'a str)>,
}

impl<'a> Layer<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let name = words.next().ok_or("a layer has no name")?;
        let (named, bare): (Vec<&str>, Vec<&str>) = words.partition(|word| word.contains('='));
        let named = named.iter().filter_map(|word| word.split_once('=')).collect();
        Ok(Self { name, bare, named })
    }

    fn named(&self, name: &str) -> Option<&'a str> {
        self.named.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn has(&self, word: &str) -> bool {
        self.bare.contains(&word)
    }

    fn number<T: std::str::FromStr>(&self, name: &str, otherwise: T) -> Result<T, String> {
        match self.named(name) {
            None => Ok(otherwise),
            Some(text) => text.parse().map_err(|_| format!("{name}={text} is no such number")),
        }
    }

    fn place<T: std::str::FromStr>(&self, at: usize) -> Result<T, String> {
        let word = self.bare.get(at).ok_or_else(|| format!("{} is too short", self.name))?;
        word.parse().map_err(|_| format!("{}: {word} is no such number", self.name))
    }

    fn address(&self, name: &str, otherwise: IpAddr) -> Result<IpAddr, String> {
        match self.named(name) {
            None => Ok(otherwise),
            Some(text) => text.parse().map_err(|_| format!("{text} is no address")),
        }
    }

    /// The bytes that the bare words from `at` on say in hexadecimal.
    fn bytes(&self, at: usize) -> Result<Vec<u8>, String> {
        let digits: String = self.bare.iter().skip(at).copied().collect();
        hexadecimal(&digits)
    }
}

fn hexadecimal(digits: &str) -> Result<Vec<u8>, String> {
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return Err(format!("{digits} is not bytes in hexadecimal"));
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16))
        .collect::<Result<_, _>>()
        .map_err(|_| format!("{digits} is not bytes in hexadecimal"))
}

/// What has been written of a packet, from the inside.
struct Written {
    bytes: Vec<u8>,
    protocol: Protocol,
}

/// Puts a checksum at a place, over the bytes and a pseudo-header.
fn seal(bytes: &mut [u8], at: usize, (src, dst): (IpAddr, IpAddr), protocol: Option<Protocol>) {
    let pseudo = protocol.and_then(|of| Sum::pseudo(src, dst, of, bytes.len() as u32));
    let sum = pseudo.unwrap_or(Sum::ZERO).then(Sum::of(bytes)).finish();
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
}

/// A packet of the peer's as a frame. Without an `eth` layer the host's own link address is left
/// open, or is that of the group.
pub fn packet(text: &str) -> Result<Vec<u8>, String> {
    let layers = text.split('/').map(Layer::parse).collect::<Result<Vec<_>, _>>()?;
    let ip = layers
        .iter()
        .find(|layer| matches!(layer.name, "ip4" | "ip6"))
        .ok_or("there is no ip4 or ip6 layer")?;
    let v6 = ip.name == "ip6";
    let ends = (ip.address("src", remote(v6))?, ip.address("dst", local(v6))?);
    let mut written = Written { bytes: Vec::new(), protocol: Protocol(59) };
    for layer in layers.iter().rev() {
        add(&mut written, layer, ends)?;
    }
    let mut frame = frame::packet_frame(&written.bytes);
    match (layers[0].named("dst").filter(|_| layers[0].name == "eth"), ends.1) {
        (Some(mac), _) => {
            let mac: MacAddr = mac.parse().map_err(|_| format!("{mac} is no link address"))?;
            address_to(&mut frame, mac);
        }
        (None, IpAddr::V4(group)) if group.is_multicast() => {
            address_to(&mut frame, MacAddr::of_multicast_v4(group));
        }
        (None, IpAddr::V6(group)) if group.is_multicast() => {
            address_to(&mut frame, MacAddr::of_multicast_v6(group));
        }
        _ => {}
    }
    Ok(frame)
}

/// Writes a layer around what there is.
fn add(written: &mut Written, layer: &Layer<'_>, ends: (IpAddr, IpAddr)) -> Result<(), String> {
    let Written { bytes, protocol } = written;
    match layer.name {
        "eth" => {}
        "bytes" => bytes.extend(layer.bytes(0)?),
        "fill" => bytes.extend(frame::patterned(layer.number("from", 0)?, layer.place(0)?)),
        // A part of what is inside, for fragments.
        "part" => {
            let (from, to): (usize, usize) = (layer.place(0)?, layer.place(1)?);
            *bytes = bytes.get(from..to.min(bytes.len())).ok_or("there is no such part")?.to_vec();
        }
        "udp" => {
            let (src_port, dst_port) = (layer.number("from", 40_000)?, layer.number("to", 8080)?);
            let len = layer.number("len", (8 + bytes.len()) as u16)?;
            let mut head = [0; 8];
            UdpHeader { src_port, dst_port, len, checksum: 0 }
                .emit(&mut head)
                .map_err(|why| why.to_string())?;
            bytes.splice(0..0, head);
            *protocol = Protocol::UDP;
            if !layer.has("unsummed") {
                seal(bytes, 6, ends, Some(Protocol::UDP));
            }
        }
        "icmp" | "icmp6" => {
            let head = [&[layer.place(0)?, layer.place(1)?, 0, 0][..], &layer.bytes(2)?].concat();
            bytes.splice(0..0, head);
            let v6 = layer.name == "icmp6";
            *protocol = if v6 { Protocol::ICMPV6 } else { Protocol::ICMP };
            seal(bytes, 2, ends, v6.then_some(Protocol::ICMPV6));
        }
        // The header as it is, but for the checksum.
        "tcp" => {
            bytes.splice(0..0, layer.bytes(0)?);
            *protocol = Protocol::TCP;
            seal(bytes, 16, ends, Some(Protocol::TCP));
        }
        "igmp" => {
            bytes.splice(0..0, layer.bytes(0)?);
            *protocol = Protocol::IGMP;
            seal(bytes, 2, ends, None);
        }
        "proto" => *protocol = Protocol(layer.place(0)?),
        // Extension headers with a body: hop-by-hop, destination, routing.
        "hop" | "dest" | "route" => {
            let body = layer.bytes(0)?;
            if body.len() % 8 != 6 {
                return Err(format!("{} has {} bytes, not 6 + 8n", layer.name, body.len()));
            }
            let head = [&[protocol.0, (body.len() / 8) as u8][..], &body].concat();
            bytes.splice(0..0, head);
            *protocol = Protocol(match layer.name {
                "hop" => 0,
                "dest" => 60,
                _ => 43,
            });
        }
        "frag" => {
            let (offset, more) = (layer.place(0)?, layer.has("more"));
            let identification = layer.number("id", 7)?;
            let mut head = [0; FRAGMENT_LEN];
            Fragment { next_header: *protocol, offset, more, identification }
                .emit(&mut head)
                .map_err(|why| why.to_string())?;
            bytes.splice(0..0, head);
            *protocol = Protocol::FRAGMENT;
        }
        "ip4" | "ip6" => add_ip(written, layer, ends)?,
        other => return Err(format!("there is no layer {other}")),
    }
    Ok(())
}

fn add_ip(written: &mut Written, layer: &Layer<'_>, ends: (IpAddr, IpAddr)) -> Result<(), String> {
    let Written { bytes, protocol } = written;
    let mut head = [0; 60];
    let len = match ends {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = Ipv4Header {
                tos: layer.number("tos", 0)?,
                identification: layer.number("id", 7)?,
                dont_fragment: layer.has("df"),
                more_fragments: layer.has("more"),
                fragment_offset: layer.number("off", 0)?,
                ttl: layer.number("ttl", 64)?,
                protocol: *protocol,
                src,
                dst,
            };
            let options = layer.named("options").map_or(Ok(Vec::new()), hexadecimal)?;
            header.emit_with_options(&options, bytes.len(), &mut head)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header = Ipv6Header {
                traffic_class: layer.number("tos", 0)?,
                flow_label: 0,
                next_header: *protocol,
                hop_limit: layer.number("hop", 64)?,
                src,
                dst,
            };
            header.emit(layer.number("len", bytes.len())?, &mut head)
        }
        _ => return Err("the addresses are of two families".into()),
    };
    let len = len.map_err(|why| why.to_string())?;
    bytes.splice(0..0, head.into_iter().take(len));
    Ok(())
}

/// Whether a frame is what a host may send at any time, and nobody asked: questions about and to
/// its neighbours (of whose answers that is not so), and reports of groups.
pub fn is_background(frame: &[u8]) -> bool {
    let Ok((header, packet)) = wire::ethernet::parse(frame) else { return false };
    match (header.ethertype, packet.first().map_or(0, |first| first >> 4)) {
        (wire::ethernet::EtherType::ARP, _) => true,
        (_, 4) => packet.get(9) == Some(&Protocol::IGMP.0),
        (_, 6) => {
            let Ok((ip, payload)) = ipv6::parse(packet) else { return false };
            let chain = ipv6::walk(ip.next_header, payload, 0);
            let kind = chain.ok().filter(|chain| chain.protocol == Protocol::ICMPV6);
            let kind = kind.and_then(|chain| chain.payload.first().copied());
            matches!(kind, Some(130..=133 | 135 | 143))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        wire::text::Line::of(&packet(text).unwrap()).to_string()
    }

    #[test]
    fn layers_are_put_around_each_other() {
        assert_eq!(line("ip6 / udp / fill 5"), "[fd00::2]:40000>[fd00::1]:8080 udp 5");
        assert_eq!(line("ip4 / udp to=9 / fill 5"), "10.0.0.2:40000>10.0.0.1:9 udp 5");
        let part = "ip6 / frag 1448 more / part 1448 2000 / udp / fill 3000";
        assert_eq!(line(part), "[fd00::2]>[fd00::1] frag 7 1448:552+ proto 17");
        let query = "ip4 dst=224.0.0.1 options=94040000 / igmp 1164 0000 00000000 00000000";
        assert_eq!(line(query), "10.0.0.2>224.0.0.1 igmp query v3");
        let alerted = "ip6 hop=1 / hop 050200000100 / dest 000000000000 / icmp6 128 0 00070001";
        assert!(line(alerted).starts_with("[fd00::2]>[fd00::1] icmp6 echo request"));
    }

    #[test]
    fn what_is_wrong_with_layers_is_said() {
        for (text, told) in [
            ("udp / fill 5", "no ip4 or ip6"),
            ("ip6 / hop 00", "6 + 8n"),
            ("ip6 / what", "no layer what"),
            ("ip6 / bytes 0", "hexadecimal"),
            ("ip4 dst=fd00::1", "two families"),
        ] {
            assert!(packet(text).unwrap_err().contains(told), "{text}: {:?}", packet(text));
        }
    }
}
