//! Operations on registered memory: nothing is copied here. Their outcome can be written to a line
//! of that memory, for programs that poll it instead of waiting.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use shm::descriptor::Span;
use shm::memory::{PIECE_BYTES, PIECES_MAX, encode_piece};
use shm::message::{CommandKind, CompletionKind, Entry, Flags, MESSAGE_MAX};
use shm::region::Region;

use super::endpoint::{Command, MessageEndpoint, Shared, matching, outgoing};
use super::operations::{Operation, OperationKind};
use super::{Completion, Pattern, Peer, Send, Ticket};
use crate::driver::locked;
use crate::memory::{Line, Piece};

/// An operation whose outcome is written to a line. If this is dropped before, the outcome is not
/// reported; the operation counts until a [`MessageEndpoint::poll_completion`] after its end, and
/// its line must not be reused until then.
#[derive(Debug)]
pub struct Watched {
    ticket: Ticket,
    line: Line,
    /// The endpoint that counts it; none once it is finished.
    of: Weak<Shared>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(of) = self.of.upgrade() {
            locked(&of.state).forgotten.push_back((self.ticket, self.line.clone()));
        }
    }
}

impl Watched {
    /// Whether the operation has ended: one load, which involves neither library nor engine.
    pub fn is_done(&self) -> bool {
        self.line.is_told()
    }

    /// Its ticket, to cancel it.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl MessageEndpoint {
    /// Starts to send a message made of pieces of registered memory, at most 1024. The bytes are
    /// read when they are sent and must not change until the send completes, when the peer has
    /// acknowledged them.
    ///
    /// # Errors
    /// EAGAIN: no room now, see [`Self::wait`]. MSGSIZE: longer than [`MESSAGE_MAX`], or too many
    /// pieces. INVAL: no such peer, or memory of another session.
    pub fn send_registered(
        &self,
        peer: Peer,
        send: &Send,
        pieces: &[Piece<'_>],
        context: u64,
    ) -> Result<Ticket, Errno> {
        let entry = outgoing(&locked(&self.shared.state), peer, send, self.length_of(pieces)?)?;
        let operation = Operation { context, kind: OperationKind::Send };
        self.begin_registered(operation, entry, pieces, None)
    }

    /// The same; its outcome is written to a line, and reported only by [`Self::finish`].
    ///
    /// # Errors
    /// As [`Self::send_registered`].
    pub fn send_watched(
        &self,
        peer: Peer,
        send: &Send,
        pieces: &[Piece<'_>],
        line: Line,
    ) -> Result<Watched, Errno> {
        let entry = outgoing(&locked(&self.shared.state), peer, send, self.length_of(pieces)?)?;
        let operation = Operation { context: 0, kind: OperationKind::Send };
        let ticket = self.begin_registered(operation, entry, pieces, Some(&line))?;
        Ok(Watched { ticket, line, of: Arc::downgrade(&self.shared) })
    }

    /// Starts to receive a message into pieces of registered memory, at most 1024. The engine
    /// copies it there, once.
    ///
    /// # Errors
    /// As [`Self::send_registered`].
    pub fn post_recv_registered(
        &self,
        of: &Pattern,
        pieces: &[Piece<'_>],
        context: u64,
    ) -> Result<Ticket, Errno> {
        let (entry, kind) = self.incoming(of, pieces)?;
        self.begin_registered(Operation { context, kind }, entry, pieces, None)
    }

    /// The same; its outcome is written to a line, and reported only by [`Self::finish`].
    ///
    /// # Errors
    /// As [`Self::send_registered`].
    pub fn post_recv_watched(
        &self,
        of: &Pattern,
        pieces: &[Piece<'_>],
        line: Line,
    ) -> Result<Watched, Errno> {
        let (entry, kind) = self.incoming(of, pieces)?;
        let operation = Operation { context: 0, kind };
        let ticket = self.begin_registered(operation, entry, pieces, Some(&line))?;
        Ok(Watched { ticket, line, of: Arc::downgrade(&self.shared) })
    }

    /// The outcome of a watched operation; returns the operation if it has not ended.
    ///
    /// # Errors
    /// CONNRESET: the engine is gone. PROTO: it wrote an invalid outcome.
    pub fn finish(&self, mut watched: Watched) -> Result<Result<Completion, Watched>, Errno> {
        let Some(entry) = watched.line.told() else {
            let call = self.call()?;
            // Checks from time to time whether the engine is alive.
            return match call.again() {
                Errno::CONNRESET => Err(Errno::CONNRESET),
                _ => Ok(Err(watched)),
            };
        };
        let ends = CompletionKind::from_code(entry.kind).is_some_and(|kind| {
            use CompletionKind::{Failed, Received, Sent};
            matches!(kind, Sent | Received | Failed)
        });
        if entry.ticket != watched.ticket.0 || !ends {
            return Err(Errno::PROTO);
        }
        let ended = self.on_ended(&mut locked(&self.shared.state), &entry)?;
        watched.of = Weak::new();
        Ok(Ok(ended))
    }

    fn incoming(
        &self,
        of: &Pattern,
        pieces: &[Piece<'_>],
    ) -> Result<(Entry, OperationKind), Errno> {
        let capacity = self.length_of(pieces)?;
        let state = locked(&self.shared.state);
        let mut entry = matching(&state, CommandKind::Receive, of)?;
        entry.length = capacity;
        Ok((entry, OperationKind::Receive { capacity }))
    }

    fn length_of(&self, pieces: &[Piece<'_>]) -> Result<u64, Errno> {
        if !pieces.iter().all(|piece| piece.is_of(self.session())) {
            return Err(Errno::INVAL);
        }
        let length = pieces.iter().map(|piece| u64::from(piece.len())).sum();
        if length > MESSAGE_MAX || pieces.len() > PIECES_MAX {
            return Err(Errno::MSGSIZE);
        }
        Ok(length)
    }

    fn begin_registered(
        &self,
        operation: Operation,
        mut entry: Entry,
        pieces: &[Piece<'_>],
        line: Option<&Line>,
    ) -> Result<Ticket, Errno> {
        entry.flags |= Flags::REGISTERED;
        if let Some(line) = line {
            if !line.is_of(self.session()) {
                return Err(Errno::INVAL);
            }
            line.clear();
            entry.offset = line.place();
        }
        let call = self.call()?;
        let mut state = locked(&self.shared.state);
        let bytes = (pieces.len() * PIECE_BYTES) as u32;
        let command = Command { entry, bytes, fill: &mut of_pieces(pieces) };
        self.begin(&call, &mut state, operation, command)
    }
}

/// Fills spans with the list of pieces, one after the other; a span may end within an item.
fn of_pieces<'a>(pieces: &'a [Piece<'a>]) -> impl FnMut(&Region, Span, u32) + 'a {
    let next = Cell::new(0usize);
    move |region, span, _| {
        let mut done = 0u32;
        while done < span.len {
            let (at, within) = (next.get() / PIECE_BYTES, next.get() % PIECE_BYTES);
            let Some(piece) = pieces.get(at) else { break };
            let encoded = encode_piece(piece.span());
            let rest = encoded.get(within..).unwrap_or_default();
            let copied = region.write_buffer(span.part(done, u32::MAX), rest);
            if copied == 0 {
                break;
            }
            next.set(next.get() + copied);
            done += copied as u32;
        }
    }
}
