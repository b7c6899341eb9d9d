//! Passing of the stack's frames to the ports: the bytes of send streams are gathered where the
//! client left them, and the port makes the one copy.

mod datagrams;

use arch::SharedBytes;
use port::{Gso, GsoKind, Port, RxBurst, TxError, TxMeta};
use shm::descriptor::Span;
use stack::api::{Instant, InterfaceIndex, Payload, RxChecksum, RxFrame, RxFrameMeta, Transmit};
use stack::{HEADER_MAX, Stack};

pub(crate) use self::datagrams::interface_of;
pub use self::datagrams::{Datagrams, Outlets, SendQueue, send_datagrams};
use crate::endpoint::Role;
use crate::registered::SpanMemory;
use crate::service::raw::{Watch, Watched};
use crate::session::Session;
use crate::sessions::{Holder, Sessions};
use crate::stats::Counters;

/// Maximum pieces of payload passed to a port; more are first gathered in private memory.
pub const PIECES_MAX: usize = 64;

/// A port and the worker's state for it.
pub struct Attached {
    /// The port.
    pub port: Box<dyn Port>,
    /// Its interface in the stack.
    pub interface: InterfaceIndex,
    /// Frames being worked on.
    pub burst: RxBurst,
    /// The frame that found the port full; it goes first.
    pub held: Option<(Transmit, [u8; HEADER_MAX])>,
    /// Its interface has been removed.
    pub gone: bool,
    /// A bridge forwards its frames.
    pub is_bridged: bool,
    /// It shares its frames with the kernel one by one.
    pub is_divided: bool,
}

/// Memory reused for every frame.
#[derive(Default)]
pub struct Scratch {
    places: Vec<(u64, u32)>,
    datagram: Vec<(u64, u32)>,
    bounce: Vec<u8>,
    loopback: Vec<u8>,
    /// The endpoint of the stream located last, if its sent bytes are counted.
    counted: Option<(u32, u32)>,
}

/// What frames are sent with, beside their port.
pub struct Tx<'a> {
    /// The stack that they come from.
    pub stack: &'a mut Stack,
    /// The sessions that their payload lies in.
    pub sessions: &'a mut Sessions,
    /// Memory for one frame.
    pub scratch: &'a mut Scratch,
    /// What is sent and dropped.
    pub counters: &'a Counters,
    /// The worker's time.
    pub now: Instant,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Yes,
    PortFull,
    Refused,
    Dropped,
}

fn gso_kind(header: &[u8], udp: bool) -> GsoKind {
    match (udp, header.get(12..14)) {
        (true, _) => GsoKind::Udp,
        (false, Some([0x86, 0xdd])) => GsoKind::Tcp6,
        (false, _) => GsoKind::Tcp4,
    }
}

/// Calls `send` with the pieces at some places, gathered if there are too many.
fn with_pieces<R>(
    from: &SpanMemory,
    places: &[(u64, u32)],
    bounce: &mut Vec<u8>,
    send: impl FnOnce(&[SharedBytes<'_>]) -> R,
) -> R {
    // Most frames have few: making room for many costs more than sending them.
    const FEW: usize = 4;
    const MORE: usize = FEW + 1;
    match places.len() {
        0..=FEW => send(located(from, places, &mut [SharedBytes::from_slice(&[]); FEW])),
        MORE..=PIECES_MAX => {
            send(located(from, places, &mut [SharedBytes::from_slice(&[]); PIECES_MAX]))
        }
        _ => {
            bounce.clear();
            append(from, places, bounce);
            send(&[SharedBytes::from_slice(bounce)])
        }
    }
}

/// The pieces at some places, as many as there is room for.
fn located<'a, 'b>(
    from: &'a SpanMemory,
    places: &[(u64, u32)],
    room: &'b mut [SharedBytes<'a>],
) -> &'b [SharedBytes<'a>] {
    let count = places.len().min(room.len());
    for (slot, (offset, len)) in room.iter_mut().zip(places) {
        *slot = from.shared(Span { offset: *offset, len: *len });
    }
    room.get(..count).unwrap_or_default()
}

/// Finds the bytes of a stream payload; `None` when they have been released.
fn locate<'a>(
    sessions: &'a mut Sessions,
    payload: &Payload,
    places: &mut Vec<(u64, u32)>,
    counted: &mut Option<(u32, u32)>,
) -> Option<&'a SpanMemory> {
    let Payload::Stream { id, owner, offset, len } = *payload else { return None };
    places.clear();
    *counted = None;
    let (place, which) = match Holder::of(owner) {
        Holder::Endpoint { place, index } => (place, Ok(index)),
        Holder::Orphan { place, orphan } => (place, Err(orphan)),
        Holder::Nobody | Holder::Listener(_) | Holder::Messages => return None,
    };
    let Session { endpoints, orphans, spans, memory, .. } = sessions.at(place)?;
    let (of, list) = match which {
        Ok(index) => match &mut endpoints.get_mut(index as usize)?.role {
            Role::Stream(stream) => {
                if stream.send.unsent_most != u32::MAX {
                    stream.send.sent = stream.send.sent.max(offset + u64::from(len));
                    *counted = Some((place, index));
                }
                (stream.id, &mut stream.send.list)
            }
            _ => return None,
        },
        Err(orphan) => {
            let orphan = orphans.get_mut(orphan as usize)?.as_mut()?;
            (orphan.id, &mut orphan.list)
        }
    };
    (of == id && spans.pieces(list, offset, len, |at, len| places.push((at, len))))
        .then_some(&**memory)
}

fn give(
    port: &mut dyn Port,
    tx: &mut Tx<'_>,
    transmit: &Transmit,
    header: &[u8; HEADER_MAX],
) -> Sent {
    let Tx { stack, sessions, scratch, counters, .. } = tx;
    let header = header.get(..usize::from(transmit.header_bytes)).unwrap_or_default();
    let meta = TxMeta {
        checksum: transmit.checksum,
        gso: transmit.gso_bytes.map(|size| Gso { size, kind: gso_kind(header, false) }),
        header_bytes: transmit.header_bytes,
    };
    let sent = match &transmit.payload {
        Payload::None => port.send(&meta, header, &[]),
        Payload::Own { start, len } => {
            let bytes = SharedBytes::from_slice(stack.own_bytes(*start, *len));
            port.send(&meta, header, &[bytes])
        }
        payload @ Payload::Stream { len, .. } => {
            let Scratch { places, bounce, counted, .. } = &mut **scratch;
            match locate(sessions, payload, places, counted) {
                Some(from) => {
                    let given = with_pieces(from, places, bounce, |pieces| {
                        port.send(&meta, header, pieces)
                    });
                    if given.is_ok() {
                        counters.stream_tx_bytes.add(u64::from(*len));
                    }
                    given
                }
                None => {
                    counters.tx_stale.increment();
                    return Sent::Dropped;
                }
            }
        }
    };
    if let Some((place, index)) = scratch.counted.take() {
        sessions.note_sent(place, index);
    }
    match sent {
        Ok(()) => Sent::Yes,
        Err(TxError::Full) => {
            counters.tx_held.increment();
            Sent::PortFull
        }
        Err(TxError::Refused) => {
            counters.tx_refused.increment();
            Sent::Refused
        }
        Err(TxError::Unsendable | TxError::Down) => {
            counters.tx_dropped.increment();
            Sent::Dropped
        }
    }
}

/// Signs a frame with its payload, where it is to be (RFC 2385). What the client changes in the payload
/// after that makes the peer drop the segment.
fn sign(tx: &mut Tx<'_>, frame: Transmit, header: &mut [u8; HEADER_MAX]) -> Transmit {
    if frame.unsigned {
        let Tx { stack, sessions, scratch, .. } = tx;
        let Scratch { places, bounce, counted, .. } = &mut **scratch;
        bounce.clear();
        // If the payload has been released, the frame is dropped later.
        if let Some(from) = locate(sessions, &frame.payload, places, counted) {
            append(from, places, bounce);
        }
        stack.tcp_sign(&frame, header, bounce);
    }
    Transmit { unsigned: false, ..frame }
}

/// Sends what the stack has for a port, at most `limit` frames; returns how many.
pub fn transmit(
    attached: &mut Attached,
    watch: Option<Watch<'_>>,
    tx: &mut Tx<'_>,
    limit: usize,
) -> usize {
    let mut header = [0u8; HEADER_MAX];
    let Attached { port, interface, held, .. } = attached;
    let mut watched;
    let port: &mut dyn Port = match watch {
        None => &mut **port,
        Some(watch) => {
            watched = Watched { port: &mut **port, watch };
            &mut watched
        }
    };
    for sent in 0..limit {
        let next = match held.take() {
            Some((held, bytes)) => {
                header = bytes;
                Some(held)
            }
            None => {
                let next = tx.stack.poll_transmit(tx.now, *interface, &mut header);
                next.map(|frame| sign(tx, frame, &mut header))
            }
        };
        let Some(frame) = next else { return sent };
        let outcome = give(port, tx, &frame, &header);
        match outcome {
            Sent::PortFull => {
                *held = Some((frame, header));
                return sent;
            }
            Sent::Yes | Sent::Refused | Sent::Dropped => {
                if outcome == Sent::Refused {
                    tx.stack.tcp_refused(tx.now, &frame);
                }
                if let Payload::Own { start, len } = frame.payload {
                    tx.stack.release_own(start, len);
                }
            }
        }
    }
    limit
}

/// Carries what the stack sends to itself, at most `limit` frames; returns how many.
pub fn loop_back(tx: &mut Tx<'_>, limit: usize) -> usize {
    let mut header = [0u8; HEADER_MAX];
    for sent in 0..limit {
        let next = tx.stack.poll_transmit(tx.now, InterfaceIndex::LOOPBACK, &mut header);
        let Some(transmit) = next else { return sent };
        let transmit = sign(tx, transmit, &mut header);
        let mut frame = std::mem::take(&mut tx.scratch.loopback);
        frame.clear();
        frame.extend_from_slice(
            header.get(..usize::from(transmit.header_bytes)).unwrap_or_default(),
        );
        let whole = match &transmit.payload {
            Payload::None => true,
            Payload::Own { start, len } => {
                frame.extend_from_slice(tx.stack.own_bytes(*start, *len));
                tx.stack.release_own(*start, *len);
                true
            }
            payload @ Payload::Stream { .. } => {
                let Scratch { places, counted, .. } = &mut *tx.scratch;
                match locate(tx.sessions, payload, places, counted) {
                    Some(from) => {
                        append(from, places, &mut frame);
                        true
                    }
                    None => false,
                }
            }
        };
        if let Some((place, index)) = tx.scratch.counted.take() {
            tx.sessions.note_sent(place, index);
        }
        if whole {
            deliver(tx, &frame, transmit.gso_bytes);
        } else {
            tx.counters.tx_stale.increment();
        }
        tx.scratch.loopback = frame;
    }
    limit
}

fn append(from: &SpanMemory, places: &[(u64, u32)], frame: &mut Vec<u8>) {
    for (offset, len) in places {
        let start = frame.len();
        frame.resize(start + *len as usize, 0);
        if let Some(room) = frame.get_mut(start..) {
            from.shared(Span { offset: *offset, len: *len }).copy_to(room);
        }
    }
}

/// Delivers a frame of ours to ourselves.
fn deliver(tx: &mut Tx<'_>, frame: &[u8], gso_bytes: Option<u16>) {
    let meta = RxFrameMeta { checksum: RxChecksum::Valid, gso_bytes };
    let frame = RxFrame { interface: InterfaceIndex::LOOPBACK, bytes: frame, meta };
    tx.stack.on_frame(tx.now, &frame, tx.sessions);
}
