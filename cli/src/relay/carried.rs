//! One connection that is carried: bytes, ends and resets of either side to the other.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::Duration;

use client::{Endpoint, Errno, How, Readiness};
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// Bytes read at a time.
pub const ROOM_BYTES: usize = 64 << 10;

/// Reads and writes of one connection before others have their turn.
const STEPS_MAX: usize = 16;

/// Once the holders write no more, their end is asked so often whether it is there at all: one that was
/// closed, and not only shut down, says no when the kernel has forgotten it.
const ASK_AFTER: Duration = Duration::from_secs(10);
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
}

/// Why one step was not made.
enum Stop {
    /// The side has nothing, or no room.
    Waits,
    /// The connection is broken.
    Broken,
}

impl Carried {
    /// Nothing has been carried yet. `is_shut`: nothing more may be written to the peer.
    pub fn new(endpoint: Endpoint, pair: OwnedFd, is_shut: bool) -> Self {
        let up = Rest { is_over: is_shut, ..Rest::default() };
        let carried = Self { endpoint, pair, down: Rest::default(), up };
        if is_shut {
            carried.ask_for_holders();
        }
        carried
    }

    /// Carries what there is, in both directions.
    pub fn carry(&mut self, room: &mut [u8]) -> CarryState {
        for _ in 0..STEPS_MAX {
            let steps = [self.carry_down(room), self.carry_up(room)];
            if steps.iter().any(|step| matches!(step, Err(Stop::Broken))) {
                // A pair that is closed resets its holders.
                self.endpoint.abort();
                return CarryState::Over;
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
            match self.endpoint.read(room) {
                Ok(0) => {
                    self.down.is_over = true;
                    // A holder that is gone needs no end.
                    let _ = shutdown(&self.pair, Shutdown::Write);
                    return Ok(());
                }
                Ok(len) => self.down.put(room.get(..len).unwrap_or_default()),
                Err(errno) => return Err(stop(errno)),
            }
        }
        let sent = send(&self.pair, self.down.left(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        self.down.took(sent.map_err(stop)?);
        Ok(())
    }

    /// From the holders to the peer.
    fn carry_up(&mut self, room: &mut [u8]) -> Result<(), Stop> {
        if self.up.is_over {
            return Err(Stop::Waits);
        }
        if self.up.is_empty() {
            let flags = RecvFlags::DONTWAIT;
            match recv(&self.pair, &mut *room, flags) {
                Ok((0, _)) => {
                    self.up.is_over = true;
                    self.ask_for_holders();
                    // One that is over already has told its peer more than this.
                    let _ = self.endpoint.shutdown(How::Write);
                    return Ok(());
                }
                Ok((len, _)) => self.up.put(room.get(..len).unwrap_or_default()),
                Err(errno) => return Err(stop(errno)),
            }
        }
        let taken = self.endpoint.write_vectored(&[IoSlice::new(self.up.left())]);
        self.up.took(taken.map_err(stop)?);
        Ok(())
    }

    fn ask_for_holders(&self) {
        // Without it a connection that its peer does not close stays until the engine ends.
        let _ = set_tcp_keepidle(&self.pair, ASK_AFTER)
            .and_then(|()| set_tcp_keepintvl(&self.pair, ASK_EVERY))
            .and_then(|()| set_tcp_keepcnt(&self.pair, ASK_TIMES))
            .and_then(|()| set_socket_keepalive(&self.pair, true));
    }
}

fn stop(errno: Errno) -> Stop {
    match errno {
        Errno::AGAIN | Errno::INTR => Stop::Waits,
        _ => Stop::Broken,
    }
}
