//! How far the senders of long and held messages may send.

use super::ring::Control;
use super::slab::IncomingId;
use super::{Bugs, Core};

/// Bytes of one message granted ahead of what has arrived.
const AHEAD: u32 = 256 * 1024;
/// The same of all messages; more than that, each has [`AHEAD_LEAST`].
const AHEAD_ALL: u64 = 2 * 1024 * 1024;
/// What every message has, so that none waits for others whose senders are slow.
const AHEAD_LEAST: u32 = 32 * 1024;

impl<B: Bugs> Core<B> {
    /// Grants more of a matched message, if there is enough of it to be worth a frame.
    pub(super) fn grant(&mut self, id: IncomingId) {
        let incoming = &self.incoming[id];
        let (Some(receive), Some(association), Some(number)) =
            (incoming.receive, incoming.association, incoming.number)
        else {
            return;
        };
        let receive = &self.receives[receive];
        let end = incoming.length.min(receive.capacity).min(receive.window);
        let free = AHEAD_ALL.saturating_sub(self.granted - u64::from(incoming.counted));
        let ahead = AHEAD.min(u32::try_from(free).unwrap_or(AHEAD)).max(AHEAD_LEAST);
        let offset = incoming.prefix.saturating_add(ahead).min(end);
        let worth = offset.saturating_sub(incoming.granted) >= ahead / 4 || offset == end;
        let granted = if offset > incoming.granted && worth { offset } else { incoming.granted };
        let attempt = incoming.attempt;
        if granted > incoming.granted
            && let Some(it) = self.associations.get_mut(association)
        {
            it.control(Control::Grant { number, offset, attempt });
            self.touch(association);
        }
        let incoming = &mut self.incoming[id];
        incoming.granted = granted;
        let counted = granted.saturating_sub(incoming.prefix);
        self.granted = self.granted - u64::from(incoming.counted) + u64::from(counted);
        incoming.counted = counted;
    }
}
