//! What programs have seen of the engine, as a digest: their events and the results of their calls.

use client::Errno;

use crate::digest::Digest;

/// What a program did or was told.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// An event came.
    Event,
    /// It opened a connection.
    Connect,
    /// It took a connection from its listener.
    Accept,
    /// It read from a connection.
    Read,
    /// It wrote to a connection.
    Write,
    /// It shut a direction of a connection.
    Shutdown,
    /// It sent a datagram.
    Send,
    /// It received a datagram.
    Receive,
}

/// The digest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    digest: Digest,
}

impl Seen {
    /// Notes a step of the program at (host, number) and what came of it.
    pub fn note(&mut self, at: (usize, usize), step: Step, result: Result<u64, Errno>) {
        self.digest.add(step as u64 | (at.0 as u64) << 8 | (at.1 as u64) << 16);
        match result {
            Ok(value) => self.digest.add(value),
            Err(errno) => self.digest.add(u64::MAX - errno.raw_os_error().unsigned_abs() as u64),
        }
    }

    /// The digest so far.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}
