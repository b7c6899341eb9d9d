//! Frames of the stack on their way to the ports: the bytes of send streams are gathered where
//! the client left them, and the port makes the one copy.

use std::net::SocketAddr;

use arch::SharedBytes;
use port::{Gso, GsoKind, Port, RxBurst, TxError, TxMeta};
use shm::descriptor::{DatagramFlags, DatagramHeader, Span};
use stack::api::{
    InterfaceIndex, Payload, RequestError, RxFrame, SocketId, Transmit, UdpCut, UdpOut, UdpSend,
};
use stack::{HEADER_MAX, Stack};

use crate::datagram::{Told, numbered};
use crate::endpoint::Role;
use crate::registered::SpanMemory;
use crate::service::raw::{RawTable, Watch, Watched};
use crate::session::Session;
use crate::sessions::{Holder, Sessions};
use crate::stats::Counters;

/// Most pieces of payload that a port is given; more are gathered in private memory first.
pub const PIECES_MAX: usize = 64;

/// A port and what the worker keeps beside it.
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
    /// A bridge passes its frames on.
    pub is_bridged: bool,
    /// It shares its frames with the kernel one by one.
    pub is_divided: bool,
}

/// Memory used again for every frame.
#[derive(Default)]
pub struct Scratch {
    places: Vec<(u64, u32)>,
    datagram: Vec<(u64, u32)>,
    bounce: Vec<u8>,
    loopback: Vec<u8>,
    /// The endpoint of the stream located last, where it is kept count of what is sent.
    counted: Option<(u32, u32)>,
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

/// Gives the pieces at some places to `send`, gathered when there are too many.
fn with_pieces<R>(
    from: &SpanMemory,
    places: &[(u64, u32)],
    bounce: &mut Vec<u8>,
    send: impl FnOnce(&[SharedBytes<'_>]) -> R,
) -> R {
    let piece = |(offset, len): (u64, u32)| from.shared(Span { offset, len });
    const FEW: usize = 4;
    let mut few = [SharedBytes::from_slice(&[]); FEW];
    let mut many = [SharedBytes::from_slice(&[]); PIECES_MAX];
    let pieces = match places.len() {
        count if count <= FEW => few.get_mut(..count),
        count if count <= PIECES_MAX => many.get_mut(..count),
        _ => None,
    };
    match pieces {
        Some(pieces) => {
            for (slot, place) in pieces.iter_mut().zip(places) {
                *slot = piece(*place);
            }
            send(pieces)
        }
        None => {
            bounce.clear();
            append(from, places, bounce);
            send(&[SharedBytes::from_slice(bounce)])
        }
    }
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
    stack: &mut Stack,
    sessions: &mut Sessions,
    scratch: &mut Scratch,
    counters: &Counters,
    transmit: &Transmit,
    header: &[u8; HEADER_MAX],
) -> Sent {
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
            let Scratch { places, bounce, counted, .. } = scratch;
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
fn sign(
    stack: &Stack,
    sessions: &mut Sessions,
    scratch: &mut Scratch,
    frame: Transmit,
    header: &mut [u8; HEADER_MAX],
) -> Transmit {
    if frame.unsigned {
        let Scratch { places, bounce, counted, .. } = scratch;
        bounce.clear();
        // Where the payload has been released, the frame is dropped later.
        if let Some(from) = locate(sessions, &frame.payload, places, counted) {
            append(from, places, bounce);
        }
        stack.tcp_sign(&frame, header, bounce);
    }
    Transmit { unsigned: false, ..frame }
}

/// Sends what the stack has for a port, at most `limit` frames; returns how many.
#[allow(clippy::too_many_arguments)]
pub fn transmit(
    attached: &mut Attached,
    watch: Option<Watch<'_>>,
    stack: &mut Stack,
    sessions: &mut Sessions,
    scratch: &mut Scratch,
    counters: &Counters,
    now: stack::api::Instant,
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
                let next = stack.poll_transmit(now, *interface, &mut header);
                next.map(|frame| sign(stack, sessions, scratch, frame, &mut header))
            }
        };
        let Some(frame) = next else { return sent };
        let outcome = give(port, stack, sessions, scratch, counters, &frame, &header);
        match outcome {
            Sent::PortFull => {
                *held = Some((frame, header));
                return sent;
            }
            Sent::Yes | Sent::Refused | Sent::Dropped => {
                if outcome == Sent::Refused {
                    stack.tcp_refused(now, &frame);
                }
                if let Payload::Own { start, len } = frame.payload {
                    stack.release_own(start, len);
                }
            }
        }
    }
    limit
}

/// Carries what the stack sends to itself, at most `limit` frames; returns how many.
pub fn loop_back(
    stack: &mut Stack,
    sessions: &mut Sessions,
    scratch: &mut Scratch,
    counters: &Counters,
    now: stack::api::Instant,
    limit: usize,
) -> usize {
    let mut header = [0u8; HEADER_MAX];
    for sent in 0..limit {
        let Some(transmit) = stack.poll_transmit(now, InterfaceIndex::LOOPBACK, &mut header) else {
            return sent;
        };
        let transmit = sign(stack, sessions, scratch, transmit, &mut header);
        let mut frame = std::mem::take(&mut scratch.loopback);
        frame.clear();
        frame.extend_from_slice(
            header.get(..usize::from(transmit.header_bytes)).unwrap_or_default(),
        );
        let whole = match &transmit.payload {
            Payload::None => true,
            Payload::Own { start, len } => {
                frame.extend_from_slice(stack.own_bytes(*start, *len));
                stack.release_own(*start, *len);
                true
            }
            payload @ Payload::Stream { .. } => {
                let Scratch { places, counted, .. } = scratch;
                match locate(sessions, payload, places, counted) {
                    Some(from) => {
                        append(from, places, &mut frame);
                        true
                    }
                    None => false,
                }
            }
        };
        if let Some((place, index)) = scratch.counted.take() {
            sessions.note_sent(place, index);
        }
        if whole {
            deliver(stack, sessions, now, &frame, transmit.gso_bytes);
        } else {
            counters.tx_stale.increment();
        }
        scratch.loopback = frame;
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

fn deliver(
    stack: &mut Stack,
    sessions: &mut Sessions,
    now: stack::api::Instant,
    frame: &[u8],
    gso_bytes: Option<u16>,
) {
    let meta = stack::api::RxFrameMeta { checksum: stack::api::RxChecksum::Valid, gso_bytes };
    stack.on_frame(
        now,
        &RxFrame { interface: InterfaceIndex::LOOPBACK, bytes: frame, meta },
        sessions,
    );
}

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

/// Sends the datagrams that wait at an endpoint, at most [`DATAGRAM_BATCH`] and as many as are
/// `left` for all. Those whose next hop is not known go to the stack, which has a queue for each; when
/// the socket `closes`, so do those that find their port full.
#[allow(clippy::too_many_arguments)]
pub fn send_datagrams(
    ports: &mut [Attached],
    stack: &mut Stack,
    sessions: &mut Sessions,
    scratch: &mut Scratch,
    raw: &mut RawTable,
    counters: &Counters,
    now: stack::api::Instant,
    (place, index): (u32, u32),
    closes: bool,
    left: &mut usize,
) -> Datagrams {
    let mut header = [0u8; HEADER_MAX];
    for _ in 0..DATAGRAM_BATCH {
        if *left == 0 {
            return Datagrams::More;
        }
        let Some(session) = sessions.at(place) else { return Datagrams::Done };
        let Some((id, told, offset)) = session.next_datagram(index, &mut scratch.datagram) else {
            return Datagrams::Done;
        };
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
        let Scratch { bounce, datagram: whole, .. } = &mut *scratch;
        let sum = || {
            bounce.clear();
            append(&memory, whole, bounce);
            arch::sum(bounce)
        };
        let mut frame = match stack.udp_transmit(
            now,
            id,
            &send,
            UdpOut { header: &mut header, payload_sum: sum },
        ) {
            Ok(frame) => frame,
            Err(RequestError::Behind) if !closes => return Datagrams::WaitPort,
            Err(RequestError::WaitNeighbor) if !closes && tells(&told) => {
                return Datagrams::WaitNeighbor;
            }
            Err(
                RequestError::WaitNeighbor | RequestError::Behind | RequestError::HostUnreachable,
            ) => {
                keep(stack, scratch, counters, now, id, &send, &memory);
                finish(sessions, place, index);
                continue;
            }
            Err(error) => {
                counters.datagrams_tx_failed.increment();
                if error == RequestError::TooLong {
                    stack.udp_too_long(now, id, &send, sessions);
                }
                finish(sessions, place, index);
                continue;
            }
        };
        let mut is_asked = offset == 0 && tells(&told);
        let mut is_kept = false;
        let comes_back = frame.comes_back && offset == 0;
        let stays_here = datagram.flags.contains(DatagramFlags::STAYS_HERE);
        loop {
            part_of(&scratch.datagram, frame.offset, frame.len, &mut scratch.places);
            let written = header.get(..usize::from(frame.header_bytes)).unwrap_or_default();
            if frame.interface == InterfaceIndex::LOOPBACK {
                if std::mem::take(&mut is_asked) {
                    let holder = (place, index, id);
                    let of = (&*memory, written);
                    tell_sent(sessions, scratch, holder, told, frame.interface, of);
                }
                deliver_datagram(stack, sessions, scratch, now, &memory, written, frame.gso_bytes);
            } else if !stays_here {
                let meta = TxMeta {
                    checksum: frame.checksum,
                    gso: frame.gso_bytes.map(|size| Gso { size, kind: GsoKind::Udp }),
                    header_bytes: frame.header_bytes,
                };
                let mut numbered = ports.iter_mut().enumerate();
                let port = numbered.find(|(_, one)| one.interface == frame.interface);
                let sent = match port {
                    Some((number, attached)) => {
                        let Scratch { places, bounce, .. } = &mut *scratch;
                        with_pieces(&memory, places, bounce, |pieces| {
                            match Watch::of(raw, number, now.0) {
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
                        let holder = (place, index, id);
                        let of = (&*memory, written);
                        tell_sent(sessions, scratch, holder, told, frame.interface, of);
                    }
                    Ok(()) => {}
                    // The first fragment decides: a datagram begun is gone on with, as UDP may
                    // lose any.
                    Err(TxError::Full) if frame.offset == offset => {
                        counters.tx_held.increment();
                        if !closes {
                            return Datagrams::WaitPort;
                        }
                        keep(stack, scratch, counters, now, id, &send, &memory);
                        is_kept = true;
                        break;
                    }
                    Err(_) => {
                        is_asked = false;
                        counters.tx_dropped.increment();
                    }
                }
            }
            match frame.more.and_then(|rest| stack.udp_fragment(rest, &mut header)) {
                Some(next) => frame = next,
                None => break,
            }
        }
        if is_kept {
            finish(sessions, place, index);
            continue;
        }
        counters.datagrams_tx.increment();
        let next = frame.next;
        // Ours is one copy of all of it.
        if comes_back && !datagram.flags.contains(DatagramFlags::NO_LOOP) {
            let send = UdpSend { comes_back: true, ..send };
            if let Ok(frame) = stack.udp_transmit(
                now,
                id,
                &send,
                UdpOut { header: &mut header, payload_sum: || 0 },
            ) {
                part_of(&scratch.datagram, frame.offset, frame.len, &mut scratch.places);
                let written = header.get(..usize::from(frame.header_bytes)).unwrap_or_default();
                deliver_datagram(stack, sessions, scratch, now, &memory, written, frame.gso_bytes);
            }
        }
        match next {
            Some(next) => {
                if let Some(session) = sessions.at(place) {
                    session.note_datagram_sent(index, next);
                }
            }
            None => finish(sessions, place, index),
        }
    }
    Datagrams::More
}

/// Whether the sender of a datagram asked when it is sent.
fn tells(told: &Told) -> bool {
    told.header.flags.intersects(DatagramFlags::TELL_SCHEDULED | DatagramFlags::TELL_SENT)
}

/// Gives what is left of a datagram, whose bytes lie at the places of `scratch`, to the stack.
fn keep(
    stack: &mut Stack,
    scratch: &mut Scratch,
    counters: &Counters,
    now: stack::api::Instant,
    id: SocketId,
    send: &UdpSend,
    memory: &SpanMemory,
) {
    let Scratch { bounce, datagram: whole, .. } = scratch;
    bounce.clear();
    append(memory, whole, bounce);
    let mut rest = *send;
    loop {
        match stack.udp_keep(now, id, &rest, bounce) {
            Ok(next) => {
                counters.datagrams_tx.increment();
                let Some(next) = next else { return };
                rest.offset = next;
            }
            Err(_) => return counters.datagrams_tx_failed.increment(),
        }
    }
}

/// Tells the program of endpoint `index` at `place` that its datagram was sent: what was `written` of
/// its first frame, and the bytes at the places of `scratch`, are quoted where it wants that.
fn tell_sent(
    sessions: &mut Sessions,
    scratch: &mut Scratch,
    (place, index, id): (u32, u32, SocketId),
    told: Told,
    interface: InterfaceIndex,
    (memory, written): (&SpanMemory, &[u8]),
) {
    let Scratch { bounce, places, .. } = scratch;
    bounce.clear();
    if told.header.flags.contains(DatagramFlags::TELL_WHOLE) {
        bounce.extend_from_slice(written);
        append(memory, places, bounce);
    }
    let header = DatagramHeader { interface: numbered(interface), ..told.header };
    let (told, now) = (Told { header, ..told }, sessions.now);
    sessions.store(Holder::Endpoint { place, index }.owner(), |session, index, counters| {
        session.store_sent(index, id, &told, bounce, now, counters)
    });
}

/// Delivers a datagram of ours to ourselves: what was `written` of it, and the bytes at the places of
/// `scratch`.
fn deliver_datagram(
    stack: &mut Stack,
    sessions: &mut Sessions,
    scratch: &mut Scratch,
    now: stack::api::Instant,
    memory: &SpanMemory,
    written: &[u8],
    gso_bytes: Option<u16>,
) {
    let mut whole = std::mem::take(&mut scratch.loopback);
    whole.clear();
    whole.extend_from_slice(written);
    append(memory, &scratch.places, &mut whole);
    deliver(stack, sessions, now, &whole, gso_bytes);
    scratch.loopback = whole;
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
