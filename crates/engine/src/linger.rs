//! Connections closed or outlived by their program, until their data is delivered. The region stays
//! mapped meanwhile; the endpoints are free for reuse.

use stack::api::SocketId;

use crate::session::Session;
use crate::spans::SpanList;

/// Orphans checked for one without progress.
const LOOKS: usize = 8;

/// A closed connection that still delivers.
#[derive(Debug)]
pub struct Orphan {
    /// The connection in the stack.
    pub id: SocketId,
    /// Spans not yet acknowledged.
    pub list: SpanList,
}

impl Session {
    /// Takes over a closed connection; returns its slot.
    pub fn adopt(&mut self, orphan: Orphan) -> u32 {
        let id = orphan.id;
        let place = self.place_orphan(orphan);
        // Most have ended since they were added.
        if self.orphans_by_age.len() > 2 * self.orphans.len() {
            let orphans = &self.orphans;
            self.orphans_by_age.retain(|&(place, id)| is_there(orphans, place, id));
        }
        self.orphans_by_age.push_back((place, id));
        place
    }

    /// The oldest orphan without progress, if it is among the first few. Those before it move to
    /// the end of the queue.
    pub fn oldest_orphan(
        &mut self,
        gets_nowhere: impl Fn(SocketId) -> bool,
    ) -> Option<(u32, SocketId)> {
        let mut looks = 0;
        while looks < LOOKS
            && let Some((place, id)) = self.orphans_by_age.pop_front()
        {
            if !is_there(&self.orphans, place, id) {
                continue;
            }
            if gets_nowhere(id) {
                return Some((place, id));
            }
            self.orphans_by_age.push_back((place, id));
            looks += 1;
        }
        None
    }

    fn place_orphan(&mut self, orphan: Orphan) -> u32 {
        match self.free_orphans.pop() {
            Some(place) => {
                if let Some(slot) = self.orphans.get_mut(place as usize) {
                    *slot = Some(orphan);
                }
                place
            }
            None => {
                self.orphans.push(Some(orphan));
                self.orphans.len() as u32 - 1
            }
        }
    }

    /// Frees the acknowledged spans of an orphan.
    pub fn on_orphan_acked(&mut self, place: u32, acked: u64) {
        if let Some(Some(orphan)) = self.orphans.get_mut(place as usize) {
            let pool = &mut self.pool;
            self.spans.free_before(&mut orphan.list, acked, |buffer| pool.drop_span(buffer));
        }
    }

    /// An orphan has ended: frees everything it held.
    pub fn bury(&mut self, place: u32) -> Option<SocketId> {
        let mut orphan = self.orphans.get_mut(place as usize)?.take()?;
        let pool = &mut self.pool;
        self.spans.clear(&mut orphan.list, |buffer| pool.drop_span(buffer));
        self.free_orphans.push(place);
        Some(orphan.id)
    }

    /// Orphans left.
    pub fn orphan_count(&self) -> usize {
        self.orphans.len() - self.free_orphans.len()
    }
}

/// Whether `id` is the connection in an orphan slot.
pub fn is_there(orphans: &[Option<Orphan>], place: u32, id: SocketId) -> bool {
    orphans.get(place as usize).and_then(Option::as_ref).is_some_and(|orphan| orphan.id == id)
}
