//! One connection that is carried: bytes, urgent bytes, ends and resets of either side to the other.
//!
//! Each side is asked how many bytes come before its urgent mark, and no more are read: what is urgent is marked
//! by the time that it can be read, so that no urgent byte passes for an ordinary one.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::time::Duration;

use client::{Endpoint, Errno, How, Readiness};
use rustix::event::epoll::EventFlags;
use rustix::io::ioctl_fionread;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, socket_error,
};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// Bytes read at a time.
pub const ROOM_BYTES: usize = 64 << 10;

/// Reads and writes of one connection before others have their turn.
const STEPS_MAX: usize = 16;

/// Once the holders write no more, their end is asked so often whether it is there at all: the kernel forgets
/// one that was closed, and not only shut down, and says no.
const ASK_AFTER: Duration = Duration::from_secs(1);
const ASK_EVERY: Duration = Duration::from_secs(5);
const ASK_TIMES: u32 = 3;

/// Whether there is anything left to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarryState {
    /// More may come.
    Goes,
    /// There is more, for which others have waited long enough.
    More,
    /// Both sides are closed.
    Over,
}

/// Bytes that one side has given and the other has not taken.
#[derive(Debug, Default)]
struct Rest {
    bytes: Vec<u8>,
    taken: usize,
    /// It is one byte, which is urgent.
    is_urgent: bool,
    /// Nothing follows, and the other side has been told.
    is_over: bool,
}

impl Rest {
    fn left(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.left().is_empty()
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    fn put_urgent(&mut self, byte: u8) {
        self.put(&[byte]);
        self.is_urgent = true;
    }

    /// Idle connections keep no memory.
    fn took(&mut self, count: usize) {
        self.taken += count;
        if self.is_empty() {
            *self = Self { is_over: self.is_over, ..Self::default() };
        }
    }
}

/// A connection and the relay's end of the pair.
#[derive(Debug)]
pub struct Carried {
    endpoint: Endpoint,
    pair: OwnedFd,
    /// To the holders.
    down: Rest,
    /// To the peer.
    up: Rest,
    /// What the kernel has told of the pair: that it has an urgent byte, or ends.
    told: EventFlags,
    /// The holders' urgent byte has been taken: reading the pair passes over it.
    is_past_mark: bool,
}

/// Why one step was not made.
enum Stop {
    /// The side has nothing, or no room.
    Waits,
    /// The connection is broken.
    Broken,
    /// All holders have closed their end, after an end of what they wrote.
    Left,
}

impl Carried {
    /// Nothing has been carried yet. `is_shut`: nothing more may be written to the peer.
    pub fn new(endpoint: Endpoint, pair: OwnedFd, is_shut: bool) -> Self {
        let up = Rest { is_over: is_shut, ..Rest::default() };
        let (down, told) = (Rest::default(), EventFlags::empty());
        let carried = Self { endpoint, pair, down, up, told, is_past_mark: false };
        if is_shut {
            carried.ask_for_holders();
        }
        carried
    }

    /// Carries what there is, in both directions. `told`: what the kernel says of the pair.
    pub fn carry(&mut self, told: EventFlags, room: &mut [u8]) -> CarryState {
        self.told |= told;
        for _ in 0..STEPS_MAX {
            let steps = [self.carry_down(room), self.carry_up(room)];
            if steps.iter().any(|step| matches!(step, Err(Stop::Broken))) {
                // A pair that is closed resets its holders.
                self.endpoint.abort();
                return CarryState::Over;
            }
            if steps.iter().any(|step| matches!(step, Err(Stop::Left))) {
                // Nobody reads any more. What they have written goes its way yet, and the engine answers
                // what the peer sends as the kernel does for a socket that is closed.
                self.down = Rest { is_over: true, ..Rest::default() };
            }
            if self.down.is_over && self.up.is_over {
                self.endpoint.close();
                return CarryState::Over;
            }
            if steps.iter().all(Result::is_err) && !self.has_room() {
                return CarryState::Goes;
            }
        }
        CarryState::More
    }

    /// Asks the engine to tell when there is room for what the peer is to get; whether there is.
    fn has_room(&self) -> bool {
        !self.up.is_empty() && self.endpoint.readiness().contains(Readiness::OUT)
    }

    /// From the peer to the holders.
    fn carry_down(&mut self, room: &mut [u8]) -> Result<(), Stop> {
        if self.down.is_over {
            return Err(Stop::Waits);
        }
        if self.down.is_empty() {
            match self.read_peer(room) {
                Err(Stop::Waits) if self.up.is_over => return Err(self.why_nothing_is_taken()),
                other => other?,
            }
        }
        let flags = match self.down.is_urgent {
            true => SendFlags::NOSIGNAL | SendFlags::DONTWAIT | SendFlags::OOB,
            false => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        };
        if !self.down.is_empty() {
            let sent = send(&self.pair, self.down.left(), flags);
            self.down.took(sent.map_err(pair_stop)?);
        }
        Ok(())
    }

    /// Takes what the peer has sent next, or its end.
    fn read_peer(&mut self, room: &mut [u8]) -> Result<(), Stop> {
        let before_mark = usize::try_from(self.endpoint.readable_bytes()).unwrap_or(usize::MAX);
        if before_mark == 0 && self.endpoint.is_at_mark() {
            match self.endpoint.read_urgent(true) {
                Ok(Some(byte)) => {
                    self.down.put_urgent(byte);
                    return Ok(());
                }
                // It has been taken: reading passes over it.
                Ok(None) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(stop(errno)),
            }
        } else if before_mark == 0 {
            // An end, or nothing; what has come this moment may be urgent.
            let mut byte = [0];
            let looked = self.endpoint.peek_vectored(&mut [IoSliceMut::new(&mut byte)]);
            if looked.map_err(stop)? > 0 {
                return Ok(());
            }
        }
        let most = if before_mark == 0 { room.len() } else { before_mark.min(room.len()) };
        let room = room.get_mut(..most).unwrap_or_default();
        match self.endpoint.read(room).map_err(stop)? {
            0 => {
                self.down.is_over = true;
                // A holder that is gone needs no end.
                let _ = shutdown(&self.pair, Shutdown::Write);
            }
            len => self.down.put(room.get(..len).unwrap_or_default()),
        }
        Ok(())
    }

    /// From the holders to the peer.
    fn carry_up(&mut self, room: &mut [u8]) -> Result<(), Stop> {
        if self.up.is_over {
            return Err(Stop::Waits);
        }
        if self.up.is_empty() {
            self.read_holders(room)?;
        }
        let left = [IoSlice::new(self.up.left())];
        if !self.up.is_empty() {
            let taken = match self.up.is_urgent {
                true => self.endpoint.write_urgent(&left),
                false => self.endpoint.write_vectored(&left),
            };
            self.up.took(taken.map_err(stop)?);
        }
        Ok(())
    }

    /// Takes what the holders have written next, or their end.
    fn read_holders(&mut self, room: &mut [u8]) -> Result<(), Stop> {
        let before_mark = ioctl_fionread(&self.pair).map_err(stop)?;
        let before_mark = usize::try_from(before_mark).unwrap_or(usize::MAX);
        let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if before_mark == 0 {
            if self.told.contains(EventFlags::PRI)
                && let Some(byte) = self.urgent_of_holders()?
            {
                self.up.put_urgent(byte);
                return Ok(());
            }
            if !self.is_past_mark && !self.told.intersects(ends) {
                return Err(Stop::Waits);
            }
        }
        let most = if before_mark == 0 { room.len() } else { before_mark.min(room.len()) };
        let room = room.get_mut(..most).unwrap_or_default();
        let (len, _) = recv(&self.pair, &mut *room, RecvFlags::DONTWAIT).map_err(pair_stop)?;
        self.is_past_mark = false;
        if len == 0 {
            self.up.is_over = true;
            self.ask_for_holders();
            // One that is over already has told its peer more than this.
            let _ = self.endpoint.shutdown(How::Write);
        } else {
            self.up.put(room.get(..len).unwrap_or_default());
        }
        Ok(())
    }

    /// The holders' urgent byte, if nothing that comes before it is left.
    fn urgent_of_holders(&mut self) -> Result<Option<u8>, Stop> {
        let mut byte = [0];
        let flags = RecvFlags::DONTWAIT | RecvFlags::OOB;
        match recv(&self.pair, &mut byte, flags | RecvFlags::PEEK) {
            // Bytes before it came with it.
            Ok(_) if ioctl_fionread(&self.pair).map_err(stop)? > 0 => return Ok(None),
            Ok(_) => {}
            Err(Errno::INVAL) => {
                self.told -= EventFlags::PRI;
                return Ok(None);
            }
            Err(errno) => return Err(stop(errno)),
        }
        let (len, _) = recv(&self.pair, &mut byte, flags).map_err(stop)?;
        self.is_past_mark = true;
        Ok((len > 0).then_some(byte[0]))
    }

    /// Whether the holders, who write no more, are there to read.
    fn why_nothing_is_taken(&self) -> Stop {
        match socket_error(&self.pair) {
            Ok(Ok(())) => Stop::Waits,
            Ok(Err(errno)) | Err(errno) => pair_stop(errno),
        }
    }

    fn ask_for_holders(&self) {
        // Without it a connection that its peer does not close stays until the engine ends.
        let _ = set_tcp_keepidle(&self.pair, ASK_AFTER)
            .and_then(|()| set_tcp_keepintvl(&self.pair, ASK_EVERY))
            .and_then(|()| set_tcp_keepcnt(&self.pair, ASK_TIMES))
            .and_then(|()| set_socket_keepalive(&self.pair, true));
    }
}

/// Of the connection.
fn stop(errno: Errno) -> Stop {
    match errno {
        Errno::AGAIN | Errno::INTR => Stop::Waits,
        _ => Stop::Broken,
    }
}

/// Of the pair.
fn pair_stop(errno: Errno) -> Stop {
    match errno {
        // The error of a reset after the end of what was written; one before it is ECONNRESET.
        Errno::PIPE => Stop::Left,
        other => stop(other),
    }
}
