//! A lane of a session: the rings that a worker shares with one context of a client.

use std::sync::Arc;

use rustix::io::Errno;
use shm::engine_side::EngineLane;
use shm::region::Region;

use crate::session::LanePipes;

/// Reads of a lane's pipe at a time; an honest client has one byte in it.
const DRAIN_READS: usize = 4;

/// A lane as its worker keeps it.
pub struct Lane {
    /// The rings.
    pub view: EngineLane,
    /// The engine's ends of its pipes; `None` in simulation.
    pub pipes: Option<LanePipes>,
    /// Polled every turn. Otherwise the client rings by the pipe.
    pub polled: bool,
    /// When it last had work, in engine nanoseconds.
    pub worked_at: u64,
    /// Used at all: its stock is kept filled.
    pub in_use: bool,
    /// Its stock could not be filled for lack of free buffers.
    pub starved: bool,
    /// Something was pushed since the client was last woken if it slept.
    pub to_finish: bool,
}

impl Lane {
    /// A new lane, asleep until its client rings.
    pub fn new(
        region: &Arc<Region>,
        context: u16,
        worker: u16,
        pipes: Option<LanePipes>,
        now: u64,
    ) -> Self {
        Self {
            view: EngineLane::new(Arc::clone(region), context, worker),
            pipes,
            polled: true,
            worked_at: now,
            in_use: false,
            starved: false,
            to_finish: false,
        }
    }

    /// Wakes the client by its pipe.
    pub fn wake(&self) {
        if let Some(pipes) = &self.pipes {
            // A full pipe has already woken the client; a broken one is found by its hang-up.
            let _ = rustix::io::write(&pipes.wake_client, &[1]);
        }
    }

    /// Empties the pipe by which the client rings; `false` if the client is gone. Bounded: the rest
    /// of a client that writes as fast as we read is taken in a later turn.
    pub fn drain(&self) -> bool {
        let Some(pipes) = &self.pipes else { return true };
        let mut bytes = [0u8; 1024];
        for _ in 0..DRAIN_READS {
            match rustix::io::read(&pipes.woken_by_client, &mut bytes) {
                Ok(0) => return false,
                Ok(count) if count == bytes.len() => {}
                Ok(_) | Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::pipe::{PipeFlags, pipe_with};
    use shm::region::Region;

    use super::*;
    use crate::config::Limits;

    #[test]
    fn a_client_that_never_stops_ringing_is_left_for_another_turn() {
        let limits = Limits { endpoints: 2, buffers: 4, contexts: 1, ..Limits::default() };
        let region = Arc::new(Region::private(limits.geometry(1)).unwrap());
        let (_, wake_client) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (woken_by_client, bell) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None)
                .unwrap();
        let lane = Lane::new(&region, 0, 0, Some(LanePipes { wake_client, woken_by_client }), 0);
        while rustix::io::write(&bell, &[1; 4096]).is_ok() {}
        assert!(lane.drain());
        let pipes = lane.pipes.as_ref().unwrap();
        assert!(rustix::io::read(&pipes.woken_by_client, &mut [0; 1]).is_ok(), "some was left");
        drop(bell);
        while lane.drain() {}
    }
}
