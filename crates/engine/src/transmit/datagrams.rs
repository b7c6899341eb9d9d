//! Datagrams of sockets on their way to the ports, and back to ourselves.

use std::net::SocketAddr;

use port::{Gso, GsoKind, Port, TxError, TxMeta};
use shm::descriptor::{DatagramFlags, DatagramHeader};
use stack::HEADER_MAX;
use stack::api::{InterfaceIndex, RequestError, SocketId, UdpCut, UdpOut, UdpSend};

use super::{Attached, Scratch, Tx, append, deliver, with_pieces};
use crate::datagram::{Told, numbered};
use crate::registered::SpanMemory;
use crate::service::raw::{RawTable, Watch, Watched};
use crate::sessions::{Holder, Sessions};

/// What became of a socket's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagrams {
    /// None is left.
    Done,
    /// The next one waits for its port.
    WaitPort,
    /// The next one waits for its neighbour, as its sender asked when it is sent.
    WaitNeighbor,
    /// More are left than the limit allows in one turn.
    More,
}

/// Datagrams sent for one socket before others have their turn.
const DATAGRAM_BATCH: usize = 64;

/// The ports, and the endpoints that see what they send.
pub struct Outlets<'a> {
    /// The ports.
    pub ports: &'a mut [Attached],
    /// The raw endpoints.
    pub raw: &'a mut RawTable,
}

/// The send queue of a datagram socket.
#[derive(Clone, Copy, Debug)]
pub struct SendQueue {
    /// Place of its session.
    pub place: u32,
    /// Its endpoint.
    pub index: u32,
    /// The socket is about to close: nothing can wait in the queue.
    pub closes: bool,
}

/// A datagram's frame, or a fragment of it: the headers, and where in memory the places of the
/// scratch lie.
struct DatagramFrame<'a> {
    interface: InterfaceIndex,
    header: &'a [u8],
    memory: &'a SpanMemory,
    gso_bytes: Option<u16>,
}

/// Sends the datagrams of a queue, at most [`DATAGRAM_BATCH`] and as many as are `left` for all.
/// Those whose next hop is not known go to the stack, which has a queue for each; when the socket
/// closes, so do those that find their port full.
pub fn send_datagrams(
    tx: &mut Tx<'_>,
    outlets: &mut Outlets<'_>,
    queue: SendQueue,
    left: &mut usize,
) -> Datagrams {
    let SendQueue { place, index, closes } = queue;
    let mut header = [0u8; HEADER_MAX];
    for _ in 0..DATAGRAM_BATCH {
        if *left == 0 {
            return Datagrams::More;
        }
        let Some(session) = tx.sessions.at(place) else { return Datagrams::Done };
        let next = session.next_datagram(index, &mut tx.scratch.datagram);
        let Some((id, told, offset)) = next else { return Datagrams::Done };
        let datagram = told.header;
        *left -= 1;
        let memory = std::sync::Arc::clone(&session.memory);
        let send = UdpSend {
            remote: known(datagram.remote),
            local: Some(datagram.local.ip()).filter(|ip| !ip.is_unspecified()),
            payload_len: datagram.payload_bytes,
            offset,
            tos: Some(datagram.tos).filter(|tos| *tos != 0),
            ttl: Some(datagram.ttl).filter(|ttl| *ttl != 0),
            gso_bytes: Some(datagram.gso_bytes).filter(|size| *size != 0),
            cut: UdpCut {
                not_routers: datagram.flags.contains(DatagramFlags::DONT_FRAGMENT),
                not_us: datagram.flags.contains(DatagramFlags::WHOLE),
                by_link: datagram.flags.contains(DatagramFlags::LINK_MTU),
            },
            no_checksum: datagram.flags.contains(DatagramFlags::NO_CHECKSUM),
            interface: interface_of(datagram.interface),
            comes_back: false,
        };
        let Scratch { bounce, datagram: whole, .. } = &mut *tx.scratch;
        let sum = || {
            bounce.clear();
            append(&memory, whole, bounce);
            arch::sum(bounce)
        };
        let out = UdpOut { header: &mut header, payload_sum: sum };
        let mut frame = match tx.stack.udp_transmit(tx.now, id, &send, out) {
            Ok(frame) => frame,
            Err(RequestError::Behind) if !closes => return Datagrams::WaitPort,
            Err(RequestError::WaitNeighbor) if !closes && tells(&told) => {
                return Datagrams::WaitNeighbor;
            }
            Err(
                RequestError::WaitNeighbor | RequestError::Behind | RequestError::HostUnreachable,
            ) => {
                keep(tx, id, &send, &memory);
                finish(tx.sessions, place, index);
                continue;
            }
            Err(error) => {
                tx.counters.datagrams_tx_failed.increment();
                if error == RequestError::TooLong {
                    tx.stack.udp_too_long(tx.now, id, &send, tx.sessions);
                }
                finish(tx.sessions, place, index);
                continue;
            }
        };
        let mut is_asked = offset == 0 && tells(&told);
        let mut is_kept = false;
        let comes_back = frame.comes_back && offset == 0;
        let stays_here = datagram.flags.contains(DatagramFlags::STAYS_HERE);
        loop {
            part_of(&tx.scratch.datagram, frame.offset, frame.len, &mut tx.scratch.places);
            let written = header.get(..usize::from(frame.header_bytes)).unwrap_or_default();
            let whole = DatagramFrame {
                interface: frame.interface,
                header: written,
                memory: &memory,
                gso_bytes: frame.gso_bytes,
            };
            if frame.interface == InterfaceIndex::LOOPBACK {
                if std::mem::take(&mut is_asked) {
                    tell_sent(tx, queue, id, told, &whole);
                }
                deliver_datagram(tx, &whole);
            } else if !stays_here {
                let meta = TxMeta {
                    checksum: frame.checksum,
                    gso: frame.gso_bytes.map(|size| Gso { size, kind: GsoKind::Udp }),
                    header_bytes: frame.header_bytes,
                };
                let mut numbered = outlets.ports.iter_mut().enumerate();
                let port = numbered.find(|(_, one)| one.interface == frame.interface);
                let sent = match port {
                    Some((number, attached)) => {
                        let Scratch { places, bounce, .. } = &mut *tx.scratch;
                        with_pieces(&memory, places, bounce, |pieces| {
                            match Watch::of(outlets.raw, number, tx.now.0) {
                                None => attached.port.send(&meta, written, pieces),
                                Some(watch) => Watched { port: &mut *attached.port, watch }
                                    .send(&meta, written, pieces),
                            }
                        })
                    }
                    None => Err(TxError::Down),
                };
                match sent {
                    // The first frame is told of.
                    Ok(()) if std::mem::take(&mut is_asked) => {
                        tell_sent(tx, queue, id, told, &whole);
                    }
                    Ok(()) => {}
                    // The first fragment decides: a datagram begun is gone on with, as UDP may
                    // lose any.
                    Err(TxError::Full) if frame.offset == offset => {
                        tx.counters.tx_held.increment();
                        if !closes {
                            return Datagrams::WaitPort;
                        }
                        keep(tx, id, &send, &memory);
                        is_kept = true;
                        break;
                    }
                    Err(_) => {
                        is_asked = false;
                        tx.counters.tx_dropped.increment();
                    }
                }
            }
            match frame.more.and_then(|rest| tx.stack.udp_fragment(rest, &mut header)) {
                Some(next) => frame = next,
                None => break,
            }
        }
        if is_kept {
            finish(tx.sessions, place, index);
            continue;
        }
        tx.counters.datagrams_tx.increment();
        let next = frame.next;
        // Ours is one copy of all of it.
        if comes_back && !datagram.flags.contains(DatagramFlags::NO_LOOP) {
            let send = UdpSend { comes_back: true, ..send };
            let out = UdpOut { header: &mut header, payload_sum: || 0 };
            if let Ok(frame) = tx.stack.udp_transmit(tx.now, id, &send, out) {
                part_of(&tx.scratch.datagram, frame.offset, frame.len, &mut tx.scratch.places);
                let whole = DatagramFrame {
                    interface: frame.interface,
                    header: header.get(..usize::from(frame.header_bytes)).unwrap_or_default(),
                    memory: &memory,
                    gso_bytes: frame.gso_bytes,
                };
                deliver_datagram(tx, &whole);
            }
        }
        match next {
            Some(next) => {
                if let Some(session) = tx.sessions.at(place) {
                    session.note_datagram_sent(index, next);
                }
            }
            None => finish(tx.sessions, place, index),
        }
    }
    Datagrams::More
}

/// Whether the sender of a datagram asked when it is sent.
fn tells(told: &Told) -> bool {
    told.header.flags.intersects(DatagramFlags::TELL_SCHEDULED | DatagramFlags::TELL_SENT)
}

/// Gives what is left of a datagram, whose bytes lie at the places of the scratch, to the stack.
fn keep(tx: &mut Tx<'_>, id: SocketId, send: &UdpSend, memory: &SpanMemory) {
    let Scratch { bounce, datagram: whole, .. } = &mut *tx.scratch;
    bounce.clear();
    append(memory, whole, bounce);
    let mut rest = *send;
    loop {
        match tx.stack.udp_keep(tx.now, id, &rest, bounce) {
            Ok(next) => {
                tx.counters.datagrams_tx.increment();
                let Some(next) = next else { return };
                rest.offset = next;
            }
            Err(_) => return tx.counters.datagrams_tx_failed.increment(),
        }
    }
}

/// Reports to the program of a queue that its datagram was sent; the first frame is quoted where it
/// wants that.
fn tell_sent(
    tx: &mut Tx<'_>,
    queue: SendQueue,
    id: SocketId,
    told: Told,
    frame: &DatagramFrame<'_>,
) {
    let Scratch { bounce, places, .. } = &mut *tx.scratch;
    bounce.clear();
    if told.header.flags.contains(DatagramFlags::TELL_WHOLE) {
        bounce.extend_from_slice(frame.header);
        append(frame.memory, places, bounce);
    }
    let header = DatagramHeader { interface: numbered(frame.interface), ..told.header };
    let told = Told { header, ..told };
    let owner = Holder::Endpoint { place: queue.place, index: queue.index }.owner();
    tx.sessions.store(id, owner, |session, to, rx| session.store_sent(to, &told, bounce, rx));
}

/// Delivers a datagram of ours to ourselves.
fn deliver_datagram(tx: &mut Tx<'_>, frame: &DatagramFrame<'_>) {
    let mut whole = std::mem::take(&mut tx.scratch.loopback);
    whole.clear();
    whole.extend_from_slice(frame.header);
    append(frame.memory, &tx.scratch.places, &mut whole);
    deliver(tx, &whole, frame.gso_bytes);
    tx.scratch.loopback = whole;
}

/// The interface that a datagram's header names, by its number plus one.
pub(crate) fn interface_of(number: u32) -> Option<InterfaceIndex> {
    number.checked_sub(1).and_then(|index| u8::try_from(index).ok()).map(InterfaceIndex)
}

/// The places of bytes `offset .. offset + len` of what lies at `whole`.
fn part_of(whole: &[(u64, u32)], offset: u32, len: u32, places: &mut Vec<(u64, u32)>) {
    places.clear();
    let (mut skip, mut left) = (offset, len);
    for (at, of) in whole {
        let skipped = skip.min(*of);
        let here = left.min(of - skipped);
        if here > 0 {
            places.push((at + u64::from(skipped), here));
        }
        skip -= skipped;
        left -= here;
    }
}

fn known(remote: SocketAddr) -> Option<SocketAddr> {
    (remote.port() != 0).then_some(remote)
}

fn finish(sessions: &mut Sessions, place: u32, index: u32) {
    if let Some(session) = sessions.at(place) {
        session.finish_datagram(index);
    }
}
