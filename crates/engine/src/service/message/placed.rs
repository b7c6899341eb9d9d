//! Pieces of registered memory from which messages are sent and into which they are received, and
//! the line for the outcome of an operation.

use arch::SharedBytes;
use rustix::io::Errno;
use shm::descriptor::{REGISTERED, Span};
use shm::memory::{PIECE_BYTES, PIECES_MAX, decode_piece, split};
use shm::message::{CommandKind, CompletionKind, ENTRY_BYTES, Entry, Flags};
use stack::message::EndpointId;

use super::Messages;
use super::endpoint::completion;
use super::queue::Command;
use super::space::Part;
use super::tables::{Piece, Pieces};
use crate::session::Session;
use crate::sessions::Sessions;

/// Registered memory used by a command.
#[derive(Default)]
pub(super) struct Placed {
    /// The pieces.
    pub pieces: Pieces,
    /// The place of the line, if there is one.
    pub line: Option<u64>,
}

/// An operation that failed.
#[derive(Clone, Copy)]
pub(super) struct Failure {
    /// The client's name for it.
    pub ticket: u64,
    /// Why.
    pub errno: Errno,
}

/// The end of an operation as its client is told of it.
pub(super) struct Completion {
    /// The entry.
    pub told: Entry,
    /// The part of a message that goes with it.
    pub part: Option<Part>,
}

/// What holds the spans of a place's memory, as the pool names it.
fn holder(place: u64) -> u32 {
    REGISTERED | u32::from(split(place).0)
}

/// The span of a line.
fn line_span(place: u64) -> Span {
    Span { offset: place, len: ENTRY_BYTES as u32 }
}

impl Placed {
    /// Marks the pieces of a list and the line as in use. EINVAL: it is not a list of `length`
    /// bytes; EFAULT: it is out of bounds; ENOBUFS: the session has too many in use. On an error
    /// nothing is in use.
    pub fn hold(
        &mut self,
        session: &mut Session,
        list: &[u8],
        length: u32,
        line: u64,
    ) -> Result<(), Errno> {
        let done = self.hold_all(session, list, length, line);
        if done.is_err() {
            self.release(session);
        }
        done
    }

    fn hold_all(
        &mut self,
        session: &mut Session,
        list: &[u8],
        length: u32,
        line: u64,
    ) -> Result<(), Errno> {
        let (encoded, rest) = list.as_chunks::<PIECE_BYTES>();
        if !rest.is_empty() || encoded.len() > PIECES_MAX {
            return Err(Errno::INVAL);
        }
        if !session.pool.registered.has_room(encoded.len() + 1) {
            return Err(Errno::NOBUFS);
        }
        let mut start = 0u32;
        for piece in encoded {
            let span = decode_piece(piece);
            if span.len == 0 {
                continue;
            }
            let end = start.checked_add(span.len).filter(|end| *end <= length);
            let end = end.ok_or(Errno::INVAL)?;
            if !session.pool.registered.hold(span) {
                return Err(Errno::FAULT);
            }
            self.pieces.list.push_back(Piece { start, span, buffer: holder(span.offset) });
            start = end;
        }
        if start != length {
            return Err(Errno::INVAL);
        }
        if line != 0 {
            if !session.memory.has_line(line) || !session.pool.registered.hold(line_span(line)) {
                return Err(Errno::FAULT);
            }
            self.line = Some(line);
        }
        Ok(())
    }

    /// Releases all of it.
    pub fn release(&mut self, session: &mut Session) {
        self.pieces.release(session, u32::MAX);
        self.release_line(session);
    }

    /// Writes the outcome of the operation to its line, and releases the line. `false`: it has
    /// none.
    pub fn tell(&mut self, session: &mut Session, entry: &Entry) -> bool {
        if let Some(line) = self.line {
            session.memory.tell(line, entry);
        }
        self.release_line(session)
    }

    fn release_line(&mut self, session: &mut Session) -> bool {
        let line = self.line.take();
        if let Some(line) = line {
            session.pool.drop_span(holder(line));
        }
        line.is_some()
    }

    /// Spans in use.
    pub fn spans(&self) -> usize {
        self.pieces.list.len() + usize::from(self.line.is_some())
    }

    /// Writes bytes of a message to their pieces.
    pub fn write(&self, session: &Session, offset: u32, bytes: SharedBytes<'_>) {
        let mut done = 0;
        self.pieces.places(offset, bytes.len(), |span| {
            let here = span.len as usize;
            session.memory.write(span, bytes.slice(done..done + here));
            done += here;
        });
    }
}

impl Messages {
    /// Marks the registered memory of a command as in use, if it names any.
    pub(super) fn placed(
        &mut self,
        sessions: &mut Sessions,
        id: EndpointId,
        command: &Command,
        spans: &[(Span, u32)],
    ) -> Result<Placed, Errno> {
        let Command { kind, entry, payload } = command;
        let mut placed = Placed::default();
        let may =
            matches!(kind, CommandKind::Send | CommandKind::Receive | CommandKind::ReceiveClaimed);
        if !may || !entry.flags.contains(Flags::REGISTERED) {
            return Ok(placed);
        }
        if *payload as usize > PIECES_MAX * PIECE_BYTES {
            return Err(Errno::INVAL);
        }
        placed.pieces = self.tables.spare.pop().unwrap_or_default();
        let place = self.tables.port(id).ok_or(Errno::BADF)?.place;
        let session = sessions.at(place).ok_or(Errno::BADF)?;
        self.list.clear();
        for (span, _) in spans {
            let start = self.list.len();
            self.list.resize(start + span.len as usize, 0);
            if let Some(room) = self.list.get_mut(start..) {
                session.memory.shared(*span).copy_to(room);
            }
        }
        placed.hold(session, &self.list, entry.length as u32, entry.offset)?;
        Ok(placed)
    }

    /// An operation fails.
    pub(super) fn refuse(
        &mut self,
        sessions: &mut Sessions,
        id: EndpointId,
        placed: Placed,
        Failure { ticket, errno }: Failure,
    ) -> Option<()> {
        let mut told = completion(CompletionKind::Failed, ticket);
        told.other = errno.raw_os_error() as u64;
        self.tell_end(sessions, id, placed, Completion { told, part: None })
    }

    /// Reports the end of an operation as its client requested, and releases its memory.
    pub(super) fn tell_end(
        &mut self,
        sessions: &mut Sessions,
        id: EndpointId,
        mut placed: Placed,
        Completion { told, part }: Completion,
    ) -> Option<()> {
        let session = sessions.at(self.tables.port(id)?.place)?;
        placed.pieces.release(session, u32::MAX);
        let is_told = placed.tell(session, &told);
        self.tables.keep_list(placed.pieces);
        if !is_told {
            self.tables.port(id)?.tell(sessions, told, part);
        }
        Some(())
    }
}
