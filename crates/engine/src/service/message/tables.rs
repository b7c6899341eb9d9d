//! Sends, receives and buffered messages of all endpoints, and the core's access to their memory.

use std::collections::VecDeque;

use arch::SharedBytes;
use hashbrown::HashMap;
use shm::descriptor::Span;
use slab::Slab;
use stack::message::{EndpointId, Memory, PayloadPlace, ReceiveId, SendId};

use super::endpoint::Port;
use super::placed::Placed;
use super::space::Space;
use crate::session::Session;
use crate::sessions::Sessions;

/// Bytes copied at a time between messages.
const COPY_BYTES: usize = 4096;
/// Part of a session's buffers that unexpected messages may use.
const KEPT_PART: u32 = 4;

/// Location of a part of a send's message.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    /// From the start of the message.
    pub start: u32,
    /// The bytes.
    pub span: Span,
    /// Their buffer.
    pub buffer: u32,
}

/// Locations of a message's bytes, in order.
#[derive(Default)]
pub(super) struct Pieces {
    /// The pieces.
    pub list: VecDeque<Piece>,
}

impl Pieces {
    /// Calls `each` with the locations of some bytes; `false` if they are not all there.
    pub fn places(&self, offset: u32, len: usize, mut each: impl FnMut(Span)) -> bool {
        let (mut at, mut left) = (offset, len as u32);
        let first = self.list.partition_point(|piece| piece.start + piece.span.len <= at);
        for piece in self.list.iter().skip(first) {
            if left == 0 {
                break;
            }
            let Some(within) = at.checked_sub(piece.start) else { return false };
            let part = piece.span.part(within, left);
            each(part);
            (at, left) = (at + part.len, left - part.len);
        }
        left == 0
    }

    /// Releases the pieces before `bytes`.
    pub fn release(&mut self, session: &mut Session, bytes: u32) {
        while let Some(piece) = self.list.front() {
            if piece.start + piece.span.len > bytes {
                break;
            }
            session.pool.drop_span(piece.buffer);
            self.list.pop_front();
        }
    }
}

/// A send in progress.
pub(super) struct SendOp {
    /// Its endpoint.
    pub endpoint: EndpointId,
    /// Its number in the core; `None` while it is being started.
    pub id: Option<SendId>,
    /// The client's number for it.
    pub ticket: u64,
    /// Reported only if it fails.
    pub is_injected: bool,
    /// Bytes of the message.
    pub length: u32,
    /// Bytes supplied by the client.
    pub available: u32,
    /// Bytes requested by the core, for an announced message.
    pub wanted: u32,
    /// The session's memory has room reserved for the whole announced message.
    pub is_admitted: bool,
    /// Its registered memory and its line.
    pub placed: Placed,
}

/// A receive in progress.
pub(super) struct ReceiveOp {
    /// Its endpoint.
    pub endpoint: EndpointId,
    /// Its number in the core; `None` while it is being started.
    pub id: Option<ReceiveId>,
    /// The client's number for it.
    pub ticket: u64,
    /// Room for the message, bytes.
    pub capacity: u32,
    /// Its memory.
    pub room: Room,
    /// Bytes that may arrive before the client has read any; counted by its session.
    pub window: u32,
    /// Bytes handed over.
    pub told: u32,
    /// Bytes arrived, while the window waits for the client to read.
    pub waits: Option<u32>,
    /// Its endpoint has it in the list of those whose windows wait.
    pub is_listed: bool,
}

/// Destination of a receive.
pub(super) enum Room {
    /// Buffers of the session, which are handed over.
    Space(Space),
    /// Registered memory.
    Placed(Placed),
}

/// A buffered unexpected message.
pub(super) struct Kept {
    endpoint: EndpointId,
    pages: u32,
    space: Space,
}

/// All tables.
#[derive(Default)]
pub(super) struct Tables {
    /// Endpoints, by their number in the core.
    pub ports: Vec<Option<Box<Port>>>,
    /// Those that are open, by the port number by which peers know them.
    pub by_number: HashMap<u16, EndpointId>,
    /// Sends by cookie.
    pub sends: Slab<SendOp>,
    /// Receives by cookie.
    pub receives: Slab<ReceiveOp>,
    /// Buffered messages.
    pub kept: Slab<Kept>,
    /// Lists of pieces to be reused.
    pub spare: Vec<Pieces>,
}

/// Maximum number of lists kept for reuse, and of their length.
const SPARE_MAX: usize = 1024;
const SPARE_PIECES_MAX: usize = 64;

impl Tables {
    /// Keeps an empty list for reuse.
    pub fn keep_list(&mut self, pieces: Pieces) {
        let capacity = pieces.list.capacity();
        if self.spare.len() < SPARE_MAX && capacity > 0 && capacity <= SPARE_PIECES_MAX {
            self.spare.push(pieces);
        }
    }

    /// An endpoint.
    pub fn port(&mut self, id: EndpointId) -> Option<&mut Port> {
        self.ports.get_mut(id.index())?.as_deref_mut().filter(|port| port.id == id)
    }
}

/// The core's access to memory.
pub(super) struct Hands<'a> {
    pub tables: &'a mut Tables,
    pub sessions: &'a mut Sessions,
}

impl Hands<'_> {
    fn write_space(&mut self, to: PayloadPlace, offset: u32, bytes: &[u8]) -> Option<()> {
        let Tables { ports, receives, kept, .. } = &mut *self.tables;
        let (endpoint, space) = match to {
            PayloadPlace::Receive(cookie) => {
                let op = receives.get_mut(cookie as usize)?;
                match &mut op.room {
                    Room::Space(space) => (op.endpoint, space),
                    Room::Placed(placed) => {
                        let place = ports.get(op.endpoint.index())?.as_ref()?.place;
                        let bytes = SharedBytes::from_slice(bytes);
                        placed.write(self.sessions.peek(place)?, offset, bytes);
                        return Some(());
                    }
                }
            }
            PayloadPlace::Buffer(key) => {
                let kept = kept.get_mut(key as usize)?;
                (kept.endpoint, &mut kept.space)
            }
            PayloadPlace::Send(_) => return None,
        };
        let port = ports.get_mut(endpoint.index())?.as_deref_mut()?;
        let session = self.sessions.at(port.place)?;
        space.write(port, session, offset, bytes);
        Some(())
    }

    /// Copies once from a local send to registered memory; `None` if this is not such a case.
    fn copy_placed(
        &self,
        from: PayloadPlace,
        to: PayloadPlace,
        offset: u32,
        length: u32,
    ) -> Option<()> {
        let (PayloadPlace::Send(send), PayloadPlace::Receive(receive)) = (from, to) else {
            return None;
        };
        let Tables { ports, sends, receives, .. } = &*self.tables;
        let (send, receive) = (sends.get(send as usize)?, receives.get(receive as usize)?);
        let Room::Placed(room) = &receive.room else { return None };
        let session_of = |id: EndpointId| {
            self.sessions.peek(ports.get(id.index())?.as_ref().filter(|port| port.id == id)?.place)
        };
        let (source, target) = (session_of(send.endpoint)?, session_of(receive.endpoint)?);
        let mut at = offset;
        send.placed.pieces.places(offset, length as usize, |span| {
            room.write(target, at, source.memory.shared(span));
            at += span.len;
        });
        Some(())
    }

    fn read_place(&mut self, from: PayloadPlace, offset: u32, out: &mut [u8]) -> Option<()> {
        let endpoint = match from {
            PayloadPlace::Send(cookie) => self.tables.sends.get(cookie as usize)?.endpoint,
            PayloadPlace::Buffer(key) => self.tables.kept.get(key as usize)?.endpoint,
            PayloadPlace::Receive(_) => return None,
        };
        let place = self.tables.port(endpoint)?.place;
        let session = self.sessions.at(place)?;
        match from {
            PayloadPlace::Send(cookie) => {
                let op = self.tables.sends.get(cookie as usize)?;
                let mut rest = out;
                op.placed
                    .pieces
                    .places(offset, rest.len(), |span| {
                        let (now, later) =
                            std::mem::take(&mut rest).split_at_mut(span.len as usize);
                        session.memory.shared(span).copy_to(now);
                        rest = later;
                    })
                    .then_some(())
            }
            PayloadPlace::Buffer(key) => {
                self.tables.kept.get(key as usize)?.space.read(session, offset, out);
                Some(())
            }
            PayloadPlace::Receive(_) => None,
        }
    }
}

impl Memory for Hands<'_> {
    fn read(&mut self, from: PayloadPlace, offset: u32, out: &mut [u8]) {
        self.read_place(from, offset, out);
    }

    fn write(&mut self, to: PayloadPlace, offset: u32, bytes: &[u8]) {
        self.write_space(to, offset, bytes);
    }

    fn copy(&mut self, from: PayloadPlace, to: PayloadPlace, offset: u32, length: u32) {
        if self.copy_placed(from, to, offset, length).is_some() {
            return;
        }
        let mut bytes = [0; COPY_BYTES];
        let mut done = 0;
        while done < length {
            let here = ((length - done) as usize).min(COPY_BYTES);
            let Some(bytes) = bytes.get_mut(..here) else { return };
            self.read_place(from, offset + done, bytes);
            self.write_space(to, offset + done, bytes);
            done += here as u32;
        }
    }

    fn reserve(&mut self, endpoint: EndpointId, length: u32) -> Option<u64> {
        let port = self.tables.port(endpoint)?;
        let session = self.sessions.at(port.place)?;
        let pages = length.div_ceil(session.region.geometry().buffer_bytes);
        if port.at.is_none() || port.kept + pages > session.pool.total() / KEPT_PART {
            return None;
        }
        let mut space = Space::default();
        if !space.reserve(session, pages) {
            return None;
        }
        port.kept += pages;
        Some(self.tables.kept.insert(Kept { endpoint, pages, space }) as u64)
    }

    fn release(&mut self, buffer: u64) {
        let Some(mut kept) = self.tables.kept.try_remove(buffer as usize) else { return };
        let Some(port) = self.tables.port(kept.endpoint) else { return };
        port.kept = port.kept.saturating_sub(kept.pages);
        if let Some(session) = self.sessions.at(port.place) {
            kept.space.release(session);
        }
    }
}
