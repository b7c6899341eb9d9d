//! A connected peer, and how the thread that deals with peers hands it to the worker.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::net::Shutdown;

use super::ring::MemifRings;

/// A connected peer. The worker alone uses it.
pub(super) struct Peer {
    /// Its rings.
    pub rings: Box<dyn MemifRings>,
    /// Its control socket.
    socket: OwnedFd,
    has_ended: bool,
}

impl Peer {
    /// A peer whose handshake is done.
    pub fn new(rings: Box<dyn MemifRings>, socket: OwnedFd) -> Self {
        Self { rings, socket, has_ended: false }
    }

    /// Whether it was hung up.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Ends the connection: its thread at our side finds it hung up.
    pub fn hang_up(&mut self) {
        self.has_ended = true;
        // One that has gone already needs no end.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

/// What the thread and the worker hand to each other.
#[derive(Default)]
pub(super) struct Exchange {
    has_news: AtomicBool,
    trade: Mutex<Trade>,
}

#[derive(Default)]
struct Trade {
    arrived: Option<Box<Peer>>,
    is_gone: bool,
    /// To be unmapped by the thread, as that takes its time.
    #[expect(clippy::vec_box, reason = "the worker hands over a pointer, not the peer's bytes")]
    retired: Vec<Box<Peer>>,
}

impl Exchange {
    /// Whether the worker has something to take.
    pub fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed)
    }

    /// The worker takes what there is, unless the thread is just putting it there.
    pub fn trade(&self, peer: &mut Option<Box<Peer>>) {
        let Ok(mut trade) = self.trade.try_lock() else { return };
        self.has_news.store(false, Ordering::Relaxed);
        if std::mem::take(&mut trade.is_gone) {
            trade.retired.extend(peer.take());
        }
        if let Some(arrived) = trade.arrived.take() {
            trade.retired.extend(peer.replace(arrived));
        }
    }

    /// A peer's handshake is done.
    pub fn arrive(&self, peer: Peer) {
        self.put(|trade| trade.arrived = Some(Box::new(peer)));
    }

    /// The connected peer is gone. One that the worker has not taken yet goes at once.
    pub fn leave(&self) {
        self.put(|trade| trade.is_gone = trade.arrived.take().is_none());
    }

    fn put(&self, change: impl FnOnce(&mut Trade)) {
        let mut trade = self.trade.lock().unwrap_or_else(PoisonError::into_inner);
        trade.retired.clear();
        change(&mut trade);
        self.has_news.store(true, Ordering::Relaxed);
    }
}
