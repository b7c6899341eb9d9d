//! How much of its message a receive may get before its client has read any. Payload beyond the
//! session's buffers is in private memory of the engine, so all receives of a session share a
//! limit.

use std::sync::atomic::Ordering;

use shm::message::{EAGER_MAX, Entry, Flags};
use stack::message::EndpointId;

use super::Messages;
use super::commands::ReceiveRoom;
use super::placed::Placed;
use super::space::Space;
use super::tables::{Hands, ReceiveOp, Room};
use crate::session::Session;
use crate::sessions::Sessions;

/// The minimum window of a receive while a session has few.
const WINDOW_BYTES: u32 = 256 << 10;
/// All windows of a session, in multiples of its buffers.
const BUDGET: u64 = 2;

/// Maximum and minimum window of longer messages: whole numbers of buffers, in which they are
/// handed over.
fn bounds(buffer_bytes: u32) -> (u32, u32) {
    let whole = |bytes: u32| bytes.next_multiple_of(buffer_bytes.max(1));
    (whole(WINDOW_BYTES.max(2 * buffer_bytes)), whole(EAGER_MAX))
}

/// The window of a receive with room for `capacity` bytes; `None`: it would exceed the session's
/// limit.
fn window(session: &Session, capacity: u32) -> Option<u32> {
    let geometry = session.region.geometry();
    let page_bytes = u64::from(geometry.buffer_bytes);
    let budget = BUDGET * page_bytes * u64::from(geometry.buffer_count);
    // Pages that the client has not read count beyond the end of their receive.
    let private = u64::from(session.private_pages.load(Ordering::Relaxed)) * page_bytes;
    let left = budget.saturating_sub(session.message_windows + private);
    let (most, least) = bounds(geometry.buffer_bytes);
    let most = capacity.min(if left > budget / 2 { most } else { least });
    (u64::from(most) <= left).then_some(most)
}

impl Messages {
    /// The room of a receive and its window: all of it for registered memory. `None`: none is left.
    pub(super) fn room_of(
        &mut self,
        sessions: &mut Sessions,
        id: EndpointId,
        entry: &Entry,
        placed: Placed,
    ) -> Option<ReceiveRoom> {
        let capacity = entry.length as u32;
        if entry.flags.contains(Flags::REGISTERED) {
            return Some(ReceiveRoom { room: Room::Placed(placed), window: capacity });
        }
        let session = sessions.at(self.tables.port(id)?.place)?;
        let Some(window) = window(session, capacity) else {
            self.counts.windows_refused += 1;
            return None;
        };
        session.message_windows += u64::from(window);
        Some(ReceiveRoom { room: Room::Space(Space::default()), window })
    }

    /// A receive has ended: others may use its window.
    pub(super) fn close_window(&mut self, sessions: &mut Sessions, op: &ReceiveOp) {
        let port = self.tables.ports.get(op.endpoint.index()).and_then(Option::as_ref);
        let session = port.and_then(|port| sessions.at(port.place));
        if let (Some(session), Room::Space(_)) = (session, &op.room) {
            session.message_windows = session.message_windows.saturating_sub(u64::from(op.window));
        }
    }

    /// Lets more of a message arrive, unless the client has not taken the previous part.
    pub(super) fn extend_windows_of(
        &mut self,
        sessions: &mut Sessions,
        now: u64,
        id: EndpointId,
        cookie: usize,
    ) -> Option<()> {
        let op = self.tables.receives.get_mut(cookie)?;
        let port = self.tables.ports.get_mut(id.index())?.as_deref_mut()?;
        if port.id != id {
            return None;
        }
        if !port.flows() {
            if !std::mem::replace(&mut op.is_listed, true) {
                port.windows.push(cookie);
            }
            self.block(id);
            return None;
        }
        let (bytes, of) = (op.waits.take()?, op.id?);
        let to = bytes.saturating_add(op.window).min(op.capacity);
        let Self { core, tables, .. } = self;
        // It may have ended meanwhile.
        let _ = core.extend(now, of, to, &mut Hands { tables, sessions });
        Some(())
    }

    /// The same for all receives of an endpoint that wait for it.
    pub fn extend_windows(&mut self, sessions: &mut Sessions, now: u64, id: EndpointId) {
        let Some(port) = self.tables.port(id) else { return };
        let mut waiting = std::mem::take(&mut port.windows);
        // In the order of the table.
        waiting.sort_unstable();
        for cookie in waiting {
            match self.tables.receives.get_mut(cookie) {
                Some(op) if op.endpoint == id => op.is_listed = false,
                _ => continue,
            }
            let _ = self.extend_windows_of(sessions, now, id, cookie);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_whole_numbers_of_buffers_and_never_less_than_what_comes_at_once() {
        for buffer_bytes in [1024, 2048, 16 << 10, 64 << 10, 1 << 20] {
            let (most, least) = bounds(buffer_bytes);
            assert!(least >= EAGER_MAX && most >= least);
            assert_eq!((most % buffer_bytes, least % buffer_bytes), (0, 0));
        }
    }
}
