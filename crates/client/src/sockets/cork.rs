//! Datagrams in pieces: data sent with MSG_MORE, or while UDP_CORK is on, is held back, and sent as
//! one datagram with the last piece. As in the kernel, the first piece determines destination and
//! parameters, and a piece that makes the datagram too long discards all of it.

use std::io::IoSlice;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::calls::SocketCall;
use super::datagram::Outbound;
use super::options::int;
use super::signals::Undisturbed;
use super::socket::{Socket, held};
use super::transfer::may_wait;
use super::{Errno, Sockets, Verdict};

/// Longer pieces are refused at once.
const PIECE_MAX: usize = 0xffff;

/// Data that a UDP socket holds back.
#[derive(Debug, Default)]
pub(super) struct Cork {
    /// UDP_CORK.
    is_on: AtomicBool,
    /// Whether data is held back, so that sending need not take the lock to know.
    holds: AtomicBool,
    gathered: Mutex<Option<Gathered>>,
}

/// An incomplete datagram.
#[derive(Debug)]
struct Gathered {
    outbound: Outbound,
    bytes: Vec<u8>,
}

/// Result of adding a piece.
enum Added {
    Held(usize),
    /// It was the last of this datagram.
    Ended(usize, Gathered),
}

impl Cork {
    /// Whether a piece with these flags is held back.
    pub fn holds_back(&self, flags: i32) -> bool {
        flags & libc::MSG_MORE != 0 || self.is_on.load(Ordering::Relaxed)
    }

    /// Adds a piece to the held datagram; `None`: there is none.
    fn add(
        &self,
        socket: &Socket,
        bufs: &[IoSlice<'_>],
        flags: i32,
    ) -> Option<Result<Added, Errno>> {
        if !self.holds.load(Ordering::Relaxed) {
            return None;
        }
        let _undisturbed = Undisturbed::begin();
        let mut place = held(self.gathered.lock());
        let gathered = place.as_mut()?;
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        if len > PIECE_MAX {
            return Some(Err(Errno::MSGSIZE));
        }
        if !crate::memory::are_readable(bufs) {
            return Some(Err(Errno::FAULT));
        }
        let added = gathered.outbound.admits(socket, gathered.bytes.len() + len);
        if added.is_ok() {
            gathered.add(bufs);
            if self.holds_back(flags) {
                return Some(Ok(Added::Held(len)));
            }
        }
        self.holds.store(false, Ordering::Relaxed);
        let gathered = place.take()?;
        Some(added.map(|()| Added::Ended(len, gathered)))
    }

    /// Holds back a new datagram.
    fn begin(&self, begun: Gathered) {
        let _undisturbed = Undisturbed::begin();
        let mut place = held(self.gathered.lock());
        match place.as_mut() {
            // Another thread has started one meanwhile.
            Some(gathered) => gathered.add(&[IoSlice::new(&begun.bytes)]),
            None => *place = Some(begun),
        }
        self.holds.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> Option<Gathered> {
        let _undisturbed = Undisturbed::begin();
        let mut place = held(self.gathered.lock());
        self.holds.store(false, Ordering::Relaxed);
        place.take()
    }
}

impl Gathered {
    fn add(&mut self, bufs: &[IoSlice<'_>]) {
        for buf in bufs {
            self.bytes.extend_from_slice(buf);
        }
    }
}

impl Sockets {
    /// Adds a piece to a held datagram, which the last piece sends. `None`: there is none.
    pub(super) fn send_piece(
        &'static self,
        call: SocketCall<'_>,
        bufs: &[IoSlice<'_>],
        flags: i32,
    ) -> Option<Result<usize, Errno>> {
        let socket = call.socket;
        Some(match socket.cork.add(socket, bufs, flags)? {
            Ok(Added::Held(len)) => Ok(len),
            Ok(Added::Ended(len, gathered)) => {
                let wait = may_wait(socket, flags);
                self.send_gathered(call, &gathered, wait).map(|()| len)
            }
            Err(error) => Err(error),
        })
    }

    /// Holds back the first piece of a datagram.
    pub(super) fn begin_pieces(
        &self,
        socket: &Socket,
        outbound: Outbound,
        bufs: &[IoSlice<'_>],
    ) -> Result<usize, Errno> {
        if let Some(error) = outbound.endpoint.take_error() {
            return Err(error);
        }
        if socket.shut.is_written() {
            return Err(Errno::PIPE);
        }
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        outbound.admits(socket, len)?;
        if !crate::memory::are_readable(bufs) {
            return Err(Errno::FAULT);
        }
        let mut begun = Gathered { outbound, bytes: Vec::with_capacity(len) };
        begun.add(bufs);
        socket.cork.begin(begun);
        Ok(len)
    }

    /// setsockopt(UDP_CORK), also on the kernel's side; clearing it sends the held data.
    pub(super) fn set_cork(&'static self, socket: &Arc<Socket>, fd: RawFd, bytes: &[u8]) {
        let Ok(value) = int(bytes) else { return };
        if bytes.len() < 4 {
            return;
        }
        socket.cork.is_on.store(value != 0, Ordering::Relaxed);
        if value == 0
            && let Some(era) = self.era()
            && let Some(gathered) = socket.cork.take()
        {
            // The option is set whatever becomes of the datagram.
            let call = SocketCall { era, socket, fd };
            let _ = self.send_gathered(call, &gathered, may_wait(socket, 0));
        }
    }

    fn send_gathered(
        &'static self,
        call: SocketCall<'_>,
        gathered: &Gathered,
        wait: bool,
    ) -> Result<(), Errno> {
        let Gathered { outbound, bytes } = gathered;
        let whole = [IoSlice::new(bytes)];
        match self.transmit(call, outbound, &whole, wait) {
            Verdict::Done(outcome) => outcome.map(drop),
            // The engine ended meanwhile.
            Verdict::Kernel => {
                let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
                let to = Some(call.socket.dressed(outbound.peer));
                self.kernel.send(call.fd, &whole, flags, to).map(drop)
            }
        }
    }
}
