//! Packets between hosts, as the payload of UDP datagrams.

use std::net::SocketAddr;

use arch::SharedBytes;
use port::{TxError, TxFrame, TxMeta};
use shm::descriptor::Span;
use stack::api::{DatagramMeta, Instant, InterfaceIndex, RequestError, SocketId, UdpOut, UdpSend};
use stack::message::Packet;
use stack::{HEADER_MAX, Stack};

use super::Messages;
use super::hosts::Path;
use super::link::{self, Unsent};
use super::tables::Hands;
use crate::config::Encapsulation;
use crate::registered::SpanMemory;
use crate::service::raw::{RawTable, Sending};
use crate::sessions::Sessions;
use crate::transmit::Attached;

/// Maximum pieces of payload passed to a port.
pub(super) const PIECES_MAX: usize = 15;

/// Outcome of sending a packet.
pub(super) enum Sent {
    Done,
    PortFull,
}

/// What packets are sent with.
pub(super) struct PacketTx<'a> {
    /// The ports.
    pub ports: &'a mut [Attached],
    /// The stack, whose routes they take.
    pub stack: &'a mut Stack,
    /// Who sees what is sent.
    pub raw: &'a mut RawTable,
    /// The worker's time.
    pub now: Instant,
}

impl PacketTx<'_> {
    /// Gives a frame to the port of an interface, and copies of it to those who see that. `None`: there is
    /// no such port.
    pub(super) fn give(
        &mut self,
        interface: InterfaceIndex,
        meta: &TxMeta,
        (header, payload): (&[u8], &[SharedBytes<'_>]),
    ) -> Option<Result<(), TxError>> {
        let mut numbered = self.ports.iter_mut().enumerate();
        let (number, of) = numbered.find(|(_, one)| one.interface == interface)?;
        let sending = Sending { number, except: None, now_ns: self.now.0 };
        Some(self.raw.send(&mut *of.port, sending, &TxFrame { meta, header, payload }))
    }
}

impl Messages {
    /// A datagram arrived at the port of the frames: one frame, or several of the same size.
    pub fn on_datagram(
        &mut self,
        sessions: &mut Sessions,
        now: u64,
        meta: &DatagramMeta,
        bytes: &[u8],
    ) {
        // Hosts send from the port on which they listen.
        if meta.remote.port() != self.settings.port {
            return;
        }
        let path =
            Path { local: meta.local.ip().to_canonical(), remote: meta.remote.ip().to_canonical() };
        let size = meta.gso_bytes.map_or(bytes.len(), usize::from).max(1);
        for packet in bytes.chunks(size) {
            self.on_packet(sessions, now, path, packet);
        }
    }

    /// Frames arrived from a host.
    pub(super) fn on_packet(
        &mut self,
        sessions: &mut Sessions,
        now: u64,
        path: Path,
        packet: &[u8],
    ) {
        let Some(host) = self.hosts.learnt(&mut self.core, path) else {
            self.counts.hosts_refused += 1;
            return;
        };
        self.counts.rx += 1;
        let Self { core, tables, .. } = self;
        core.on_frame(now, host, packet, &mut Hands { tables, sessions });
    }

    /// Sends what the core has, at most `limit` frames; returns how many, and whether more wait for
    /// their port.
    pub(super) fn transmit(
        &mut self,
        tx: &mut PacketTx<'_>,
        sessions: &mut Sessions,
        limit: usize,
    ) -> (usize, bool) {
        let now = tx.now.0;
        self.hosts.forget(&mut self.core, now);
        self.hosts.size(&mut self.core, tx.stack);
        for sent in 0..limit {
            let next = match self.held.take() {
                Some(held) => Some(held),
                None => {
                    let Self { core, tables, frame, .. } = self;
                    core.poll_transmit(now, frame, &mut Hands { tables, sessions })
                }
            };
            let Some(frame) = next else { return (sent, false) };
            match self.send_frame(tx, sessions, &frame) {
                Some(Sent::Done) => self.counts.tx += 1,
                Some(Sent::PortFull) => {
                    self.held = Some(frame);
                    return (sent, true);
                }
                None => self.counts.tx_failed += 1,
            }
        }
        (limit, false)
    }

    /// `None`: it cannot be sent.
    fn send_frame(
        &mut self,
        tx: &mut PacketTx<'_>,
        sessions: &Sessions,
        frame: &Packet,
    ) -> Option<Sent> {
        let path = self.hosts.path(frame.host)?;
        // At most as many as fit; more are gathered after the head.
        let mut gathered = 0;
        let mut pieces = [SharedBytes::from_slice(&[]); PIECES_MAX + 1];
        let mut places = [Span::default(); PIECES_MAX];
        let mut count = 0;
        let mut memory: Option<&SpanMemory> = None;
        if let Some(payload) = &frame.payload {
            let op = self.tables.sends.get(payload.cookie as usize)?;
            let place = self.tables.ports.get(op.endpoint.index())?.as_ref()?.place;
            let from = &*sessions.peek(place)?.memory;
            memory = Some(from);
            let mut fits = true;
            let is_there = op.placed.pieces.places(payload.offset, payload.len, |span| {
                match places.get_mut(count) {
                    Some(place) => *place = span,
                    None => fits = false,
                }
                count += 1;
            });
            // Released meanwhile.
            if !is_there {
                return None;
            }
            if !fits {
                let room = self.frame.get_mut(frame.len..frame.len + payload.len)?;
                let mut done = 0;
                op.placed.pieces.places(payload.offset, payload.len, |span| {
                    if let Some(room) = room.get_mut(done..) {
                        done += from.shared(span).copy_to(room);
                    }
                });
                (count, gathered) = (0, payload.len);
            }
        }
        let head = self.frame.get(..frame.len + gathered)?;
        *pieces.first_mut()? = SharedBytes::from_slice(head);
        for (piece, place) in pieces.iter_mut().skip(1).zip(places.iter().take(count)) {
            *piece = memory?.shared(*place);
        }
        let pieces = pieces.get(..=count)?;
        if self.settings.encapsulation == Encapsulation::Ethernet {
            let ethertype = self.settings.ethertype;
            match link::send(tx, (path, ethertype), (head, pieces.get(1..)?), &mut self.summed) {
                Ok(sent) => {
                    self.counts.tx_ethernet += u64::from(matches!(sent, Sent::Done));
                    return Some(sent);
                }
                Err(Unsent::NotOnLink) => {}
                Err(Unsent::Refused) => return None,
            }
        }
        send_datagram(tx, (self.socket, self.settings.port), path, pieces)
    }
}

/// Sends a packet as a datagram; `None`: it cannot be sent.
fn send_datagram(
    tx: &mut PacketTx<'_>,
    (socket, number): (SocketId, u16),
    Path { local, remote }: Path,
    pieces: &[SharedBytes<'_>],
) -> Option<Sent> {
    let payload_len = pieces.iter().map(SharedBytes::len).sum::<usize>() as u32;
    let send = UdpSend {
        remote: Some(SocketAddr::new(remote, number)),
        local: Some(local),
        payload_len,
        ..UdpSend::default()
    };
    let mut header = [0; HEADER_MAX];
    let out = UdpOut { header: &mut header, payload_sum: || 0 };
    match tx.stack.udp_transmit(tx.now, socket, &send, out) {
        Ok(udp) if udp.more.is_none() && udp.len == payload_len => {
            let meta = TxMeta { checksum: udp.checksum, gso: None, header_bytes: udp.header_bytes };
            let written = header.get(..usize::from(udp.header_bytes))?;
            match tx.give(udp.interface, &meta, (written, pieces))? {
                Ok(()) => Some(Sent::Done),
                Err(TxError::Full) => Some(Sent::PortFull),
                Err(_) => None,
            }
        }
        // Its next hop is not resolved, others wait before it, or it needs fragmentation.
        Ok(_) | Err(RequestError::WaitNeighbor | RequestError::Behind) => {
            let mut whole = Vec::with_capacity(payload_len as usize);
            for piece in pieces {
                let start = whole.len();
                whole.resize(start + piece.len(), 0);
                piece.copy_to(whole.get_mut(start..)?);
            }
            tx.stack.udp_keep(tx.now, socket, &send, &whole).ok()?;
            Some(Sent::Done)
        }
        Err(_) => None,
    }
}
