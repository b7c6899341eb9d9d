//! Layout of commands in a client's queue: an entry, and what follows it in the same spans.

use shm::descriptor::{DescriptorKind, Span};
use shm::message::{CommandKind, ENTRY_BYTES, Entry};

use super::tables::{Piece, SendOp};
use crate::endpoint::Role;
use crate::session::{Breach, Session};

/// Maximum descriptors of a command.
const SPANS_MAX: usize = 32;

/// A command taken from its queue.
pub(super) struct Command {
    /// Its kind.
    pub kind: CommandKind,
    /// Its entry.
    pub entry: Entry,
    /// Bytes after the entry.
    pub payload: u32,
}

/// Counts a command.
pub(super) fn note_taken(session: &mut Session, index: u32) {
    if let Some(endpoint) = session.endpoints.get_mut(index as usize)
        && let Role::Messages(messages) = &mut endpoint.role
    {
        messages.commands += 1;
        messages.taken = true;
    }
}

/// Takes the next command; its payload is left in `spans`.
pub(super) fn take(
    spans: &mut Vec<(Span, u32)>,
    session: &mut Session,
    index: u32,
    lane: u16,
) -> Result<Option<Command>, Breach> {
    let Some(endpoint) = session.endpoints.get_mut(index as usize) else { return Ok(None) };
    // Bounded, because a client may push empty descriptors without end.
    for _ in 0..session.region.geometry().send_slots {
        let Some(of) = endpoint.view.take_descriptor().map_err(Breach::Contract)? else {
            return Ok(None);
        };
        let (DescriptorKind::Datagram, Some(buffer)) = (of.kind, of.buffer) else {
            return Err(Breach::WrongKind { endpoint: index });
        };
        // Commands are in buffers only: a span of registered memory may have any length.
        if session.pool.on_span(buffer, lane, of.extent).is_err() {
            return Err(Breach::BufferNotGranted { endpoint: index, buffer });
        }
        if of.span.len == 0 {
            // This descriptor only closes its buffer.
            session.pool.drop_span(buffer);
            continue;
        }
        spans.push((of.span, buffer));
        if spans.len() > SPANS_MAX {
            return Err(Breach::BadMessage { endpoint: index });
        }
        if of.more {
            continue;
        }
        let bad = Breach::BadMessage { endpoint: index };
        let mut bytes = [0; ENTRY_BYTES];
        let (first, _) = spans.first_mut().ok_or(bad)?;
        if session.region.read_buffer(*first, &mut bytes) < ENTRY_BYTES {
            return Err(bad);
        }
        *first = first.part(ENTRY_BYTES as u32, u32::MAX);
        let entry = Entry::decode(&bytes);
        let kind = CommandKind::from_code(entry.kind).ok_or(bad)?;
        let mut lens = spans.iter().map(|(span, _)| span.len);
        let payload = lens.try_fold(0, u32::checked_add).ok_or(bad)?;
        return Ok(Some(Command { kind, entry, payload }));
    }
    Ok(None)
}

/// Moves the bytes of a command to a send; empty spans are left.
pub(super) fn append(op: &mut SendOp, spans: &mut Vec<(Span, u32)>) {
    spans.retain(|(span, buffer)| {
        if span.len > 0 {
            op.placed.pieces.list.push_back(Piece {
                start: op.available,
                span: *span,
                buffer: *buffer,
            });
            op.available += span.len;
        }
        span.len == 0
    });
}
