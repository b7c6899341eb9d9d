//! A call on an endpoint in progress: what it sees of the endpoint's levels and limits.

use std::sync::atomic::Ordering;

use rustix::io::Errno;
use shm::client_side::{ClientEndpoint, Direction, Levels};
use shm::request::{Reply, Request};

use super::{CALLS, CLOSED, Inner, SHUT_READ, SHUT_WRITE, URGENT_INLINE};
use crate::driver::Driver;
use crate::share::Left;

/// A call in progress.
pub(crate) struct Call<'a> {
    pub(super) inner: &'a Inner,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let before = self.inner.gate.fetch_sub(1, Ordering::AcqRel);
        if before & CLOSED != 0 && before & CALLS == 1 {
            self.inner.finish(before & !CALLS);
        }
    }
}

impl Call<'_> {
    pub fn view(&self) -> &ClientEndpoint {
        &self.inner.primary().view
    }

    pub fn driver(&self) -> &Driver {
        self.inner.session.driver(self.inner.primary().worker)
    }

    pub fn again(&self) -> Errno {
        self.inner.session.again()
    }

    /// Rings the doorbell.
    pub fn ring(&self, direction: Direction) {
        let session = &self.inner.session;
        self.driver().ring(self.view().index(), direction, &|| session.probe());
    }

    /// Sends a request to the engine.
    pub fn ask(&self, request: &Request) -> Result<Reply, Errno> {
        self.inner.session.call(self.inner.primary().worker, request)
    }

    /// The pending error, if it has not been reported.
    pub fn error(&self, levels: &Levels) -> Option<Errno> {
        (levels.errno != 0 && self.view().report_error(levels.errors))
            .then(|| Errno::from_raw_os_error(i32::from(levels.errno)))
    }

    pub fn is_shut_for_reading(&self) -> bool {
        self.view().flags() & SHUT_READ != 0
    }

    pub fn is_shut_for_writing(&self) -> bool {
        self.view().flags() & SHUT_WRITE != 0
    }

    pub fn has_urgent_inline(&self) -> bool {
        self.view().flags() & URGENT_INLINE != 0
    }

    /// Maximum unacknowledged bytes: by the program's limit, by the capacity of the path and by the
    /// free buffers.
    pub fn send_limit(&self) -> u64 {
        let wished = self.inner.send_limit.load(Ordering::Relaxed);
        let geometry = self.view().region().geometry();
        let left = u64::from(self.driver().lane.sendable());
        let bytes = |buffers: u64| buffers.saturating_mul(u64::from(geometry.buffer_bytes));
        let pool = Left { bytes: bytes(left), whole: bytes(u64::from(geometry.buffer_count)) };
        match wished {
            0 => pool.room(self.view().send_room()),
            wished => wished.min(pool.most().max(pool.share())),
        }
    }

    /// Whether the program has set a limit of unacknowledged bytes.
    pub fn is_send_limited(&self) -> bool {
        self.inner.send_limit.load(Ordering::Relaxed) > 0
    }

    /// The offset at which these are counted; sets it to `at`, if given.
    pub fn frames_from(&self, at: Option<u64>) -> u64 {
        match at {
            Some(at) => {
                self.inner.frames_from.store(at, Ordering::Relaxed);
                at
            }
            None => self.inner.frames_from.load(Ordering::Relaxed),
        }
    }

    /// Size of the frames that collect writes.
    pub fn frame_bytes(&self) -> u64 {
        match self.view().unsent_limit() {
            (_, _, 0) => FRAME_BYTES_MAX,
            (_, _, frame) => u64::from(frame),
        }
    }

    /// Unacknowledged bytes at or below which the endpoint is writable: a third of the limit is
    /// free then, as in the kernel.
    pub(super) fn wakes_at(&self) -> u64 {
        let limit = self.send_limit();
        let most = limit - limit / 3;
        if !self.is_send_limited() {
            return most;
        }
        let frame = self.frame_bytes();
        let (frames, rest) = (most / (frame + FRAME_COST), most % (frame + FRAME_COST));
        frames * frame + rest.saturating_sub(FRAME_COST)
    }
}

/// Bytes that a read would return. An out-of-band byte alone does not count.
pub(super) fn come(call: &Call<'_>, levels: &Levels) -> u64 {
    let consumed = call.view().consumed();
    let at_mark = levels.urgent == consumed + 1 && !call.has_urgent_inline();
    levels.readable.saturating_sub(consumed + u64::from(at_mark))
}

/// The kernel's overhead of a frame (the minimum `truesize` of a segment).
pub(crate) const FRAME_COST: u64 = 832;
/// Maximum size of a frame, until the engine reports it.
const FRAME_BYTES_MAX: u64 = 65_536;
