//! Streams that are sent from registered memory.

use rustix::io::Errno;
use shm::Status;
use shm::client_side::Direction;
use shm::descriptor::{DescriptorFlags, DescriptorKind};

use crate::driver::reentered;
use crate::endpoint::{Endpoint, Kind};
use crate::memory::Piece;

impl Endpoint {
    /// Writes pieces of registered memory to a stream, as many as there is room for, and returns
    /// how many. Their bytes are read when they are sent, maybe more than once, and must not change
    /// until the peer has acknowledged them: [`Self::send_ends`] returns the acknowledged and the
    /// written offset of the stream, [`Self::has_acknowledged`] requests an event.
    ///
    /// # Errors
    /// EAGAIN: no room now, or the connection is not established yet. EPIPE: after the end. INVAL:
    /// memory of another session. If memory is released before the engine has taken a piece of it,
    /// the connection is reset.
    pub fn write_registered(&self, pieces: &[Piece<'_>]) -> Result<usize, Errno> {
        let call = self.call_as(Kind::Stream)?;
        let view = call.view();
        let levels = view.levels();
        if let Some(errno) = call.error(&levels) {
            return Err(errno);
        }
        if call.is_shut_for_writing() || levels.status.intersects(Status::HANGUP | Status::ERROR) {
            return Err(Errno::PIPE);
        }
        if !levels.status.contains(Status::CONNECTED) {
            return Err(call.again());
        }
        if !pieces.iter().all(|piece| piece.is_of(self.session())) {
            return Err(Errno::INVAL);
        }
        if pieces.is_empty() {
            return Ok(0);
        }
        let mut send = view.lock_send(call.driver().tag()).map_err(reentered)?;
        if call.is_shut_for_writing() {
            return Err(Errno::PIPE);
        }
        // Under the lock: the engine takes nothing more from a connection that is moved.
        if view.status().contains(Status::MOVED) {
            return Err(Errno::STALE);
        }
        let mut done = 0;
        for piece in pieces {
            // The last slot is left for the end of the stream.
            if send.room() <= 1 {
                break;
            }
            if !piece.is_empty() {
                send.push(DescriptorKind::Data, DescriptorFlags::empty(), piece.span());
            }
            done += 1;
        }
        drop(send);
        if done == 0 {
            view.wish(|now| {
                let is_full = view.pushed().wrapping_sub(now.taken) + 1
                    >= u64::from(view.region().geometry().send_slots);
                is_full.then_some(now.acked + 1)
            });
            return Err(call.again());
        }
        call.ring(Direction::Send);
        Ok(done)
    }

    /// Whether the peer has acknowledged the stream up to `offset`; if not, there is an event when
    /// it has.
    ///
    /// # Errors
    /// It never will: BADF: closed here; EPIPE: the connection has ended; CONNRESET and others: it
    /// has failed, or the engine is gone.
    pub fn has_acknowledged(&self, offset: u64) -> Result<bool, Errno> {
        let call = self.call_as(Kind::Stream)?;
        let levels =
            call.view().wish(|now| (now.acked < offset).then(|| offset.min(call.view().written())));
        if levels.acked >= offset {
            return Ok(true);
        }
        if let Some(errno) = call.error(&levels) {
            return Err(errno);
        }
        if levels.status.intersects(Status::HANGUP | Status::ERROR) {
            return Err(Errno::PIPE);
        }
        match call.again() {
            Errno::AGAIN => Ok(false),
            errno => Err(errno),
        }
    }
}
