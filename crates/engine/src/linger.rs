//! Connections that a program has closed, or that outlive it, until what was written is
//! delivered. The region stays mapped meanwhile; the endpoints are free for others.

use stack::api::SocketId;

use crate::session::Session;
use crate::spans::SpanList;

/// A closed connection that still delivers.
#[derive(Debug)]
pub struct Orphan {
    /// The connection in the stack.
    pub id: SocketId,
    /// What is not acknowledged yet.
    pub list: SpanList,
}

impl Session {
    /// Takes charge of a closed connection; returns its place.
    pub fn adopt(&mut self, orphan: Orphan) -> u32 {
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

    /// Frees what the peer of an orphan has acknowledged.
    pub fn on_orphan_acked(&mut self, place: u32, acked: u64) {
        if let Some(Some(orphan)) = self.orphans.get_mut(place as usize) {
            let pool = &mut self.pool;
            self.spans.free_before(&mut orphan.list, acked, |buffer| pool.drop_span(buffer));
        }
    }

    /// An orphan has ended: everything of it is free.
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
