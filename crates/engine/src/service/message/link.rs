//! Packets between hosts of one link, in Ethernet frames of their own.

use arch::SharedBytes;
use port::{TxError, TxMeta};
use stack::HEADER_MAX;
use stack::api::{InterfaceIndex, LinkPacket, LinkSend};
use stack::route::Routes;
use wire::checksum::Sum;
use wire::message::{CHECKSUM_OFFSET, COMMON_LEN, LinkHeader};

use super::Messages;
use super::frames::{PacketTx, Sent};
use super::hosts::Path;
use crate::sessions::Sessions;

/// Why a packet was not sent in an Ethernet frame.
pub(super) enum Unsent {
    /// The host is behind a router, or its link address is not resolved: a datagram reaches it.
    NotOnLink,
    /// It cannot be sent at all.
    Refused,
}

/// Whether these are an address of the engine and one of a host on the link.
fn is_addressed(header: &LinkHeader, interface: InterfaceIndex, routes: &Routes) -> bool {
    let is_on_link = |route: stack::route::Route| {
        route.interface == interface && route.next_hop == header.source
    };
    routes.is_own(header.destination) && routes.lookup(header.source).is_some_and(is_on_link)
}

impl Messages {
    /// A frame arrived with an EtherType unknown to the stack. `false`: it is not that of messages
    /// either.
    pub fn on_link_packet(
        &mut self,
        sessions: &mut Sessions,
        now: u64,
        packet: &LinkPacket<'_>,
    ) -> bool {
        if packet.ethertype != self.settings.ethertype {
            return false;
        }
        match LinkHeader::parse(packet.bytes) {
            Err(_) => self.counts.ethernet_malformed += 1,
            Ok((header, _)) if !is_addressed(&header, packet.interface, packet.routes) => {
                self.counts.ethernet_misaddressed += 1;
            }
            Ok((header, frames)) => {
                self.counts.rx_ethernet += 1;
                let path = Path { local: header.destination, remote: header.source };
                self.on_packet(sessions, now, path, frames);
            }
        }
        true
    }
}

/// Sends a packet, given as the first bytes of its frames and their payload, in an Ethernet frame.
pub(super) fn send(
    tx: &mut PacketTx<'_>,
    (path, ethertype): (Path, u16),
    (head, payload): (&[u8], &[SharedBytes<'_>]),
    summed: &mut Vec<u8>,
) -> Result<Sent, Unsent> {
    let addresses = LinkHeader { source: path.local, destination: path.remote };
    let behind = head.len() + payload.iter().map(SharedBytes::len).sum::<usize>();
    let len = addresses.header_len() + behind;
    let send = LinkSend { local: path.local, remote: path.remote, ethertype, len };
    let mut header = [0; HEADER_MAX];
    let (interface, start) =
        tx.stack.link_transmit(tx.now, &send, &mut header).map_err(|_| Unsent::NotOnLink)?;
    let port = tx.ports.iter().find(|one| one.interface == interface);
    let leaves_sum = port.ok_or(Unsent::Refused)?.port.info().offloads.tx_checksum;
    let room = header.get_mut(start..).ok_or(Unsent::Refused)?;
    let frames = addresses.emit(room, behind).map_err(|_| Unsent::Refused)?;
    // The checksum field is among the headers.
    let (first, rest) = head.split_first_chunk::<COMMON_LEN>().ok_or(Unsent::Refused)?;
    let end = start + frames + COMMON_LEN;
    header.get_mut(start + frames..end).ok_or(Unsent::Refused)?.copy_from_slice(first);
    let field = frames + CHECKSUM_OFFSET;
    let header = header.get_mut(..end).ok_or(Unsent::Refused)?;
    let mut meta = TxMeta { checksum: None, gso: None, header_bytes: end as u16 };
    let sent = if leaves_sum {
        // Such ports may leave the sum to the kernel, which leaves it to whoever takes the frame from a
        // virtual link, and nobody there knows this protocol.
        let all = gather(header, start, (rest, payload), summed);
        let place = header.get_mut(start + field..start + field + 2).ok_or(Unsent::Refused)?;
        place.copy_from_slice(&all.finish_udp().to_be_bytes());
        tx.give(interface, &meta, (header, &[SharedBytes::from_slice(summed)]))
    } else {
        meta.checksum = Some((start as u16, field as u16));
        let mut pieces = [SharedBytes::from_slice(rest); super::frames::PIECES_MAX + 1];
        let places = pieces.get_mut(1..=payload.len()).ok_or(Unsent::Refused)?;
        places.copy_from_slice(payload);
        let pieces = pieces.get(..=payload.len()).ok_or(Unsent::Refused)?;
        tx.give(interface, &meta, (header, pieces))
    };
    match sent {
        Some(Ok(())) => Ok(Sent::Done),
        Some(Err(TxError::Full)) => Ok(Sent::PortFull),
        Some(Err(_)) | None => Err(Unsent::Refused),
    }
}

/// Copies the data after the headers to `summed`, and returns the checksum of the whole packet.
fn gather(
    header: &[u8],
    start: usize,
    (rest, payload): (&[u8], &[SharedBytes<'_>]),
    summed: &mut Vec<u8>,
) -> Sum {
    let mut sum = Sum::of(header.get(start..).unwrap_or_default()).then(Sum::of(rest));
    summed.clear();
    summed.extend_from_slice(rest);
    for piece in payload {
        let from = summed.len();
        summed.resize(from + piece.len(), 0);
        let (_, folded) = piece.copy_to_and_sum(summed.get_mut(from..).unwrap_or_default());
        sum = sum.then(Sum::of_known(folded, piece.len()));
    }
    sum
}
