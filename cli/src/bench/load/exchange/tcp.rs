//! Messages over a TCP connection: their lengths are known to both sides.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use lab::failure::{Explain, Failure, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{ExchangeArguments, OPENED, PATIENCE, Transport};

const ADVICE: &str = "look at the other side";

/// A connection with what is to be read and written.
pub(super) struct Tcp {
    stream: TcpStream,
    out: Vec<u8>,
    slots: Vec<Vec<u8>>,
    /// Slots, and how many bytes each still takes.
    reads: VecDeque<(usize, usize, usize)>,
    /// Bytes of a message, and how many are written.
    writes: VecDeque<(usize, usize)>,
}

impl Tcp {
    pub fn open(arguments: &ExchangeArguments) -> Result<Self> {
        let stream = if arguments.serve {
            let listener =
                TcpListener::bind(arguments.address).explain("cannot listen", "see the address")?;
            tell!("{OPENED}");
            listener.accept().explain("cannot accept", ADVICE)?.0
        } else {
            TcpStream::connect(arguments.address).explain("cannot connect", ADVICE)?
        };
        stream.set_nodelay(true).explain("cannot set TCP_NODELAY", ADVICE)?;
        stream.set_nonblocking(true).explain("cannot set O_NONBLOCK", ADVICE)?;
        let (reads, writes) = (VecDeque::new(), VecDeque::new());
        Ok(Self { stream, out: Vec::new(), slots: Vec::new(), reads, writes })
    }

    /// Writes what the connection takes.
    fn write(&mut self) -> Result<()> {
        while let Some((bytes, done)) = self.writes.front_mut() {
            let rest = self.out.get(*done..*bytes).unwrap_or_default();
            match self.stream.write(rest) {
                Ok(written) => *done += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(Failure::new(format!("cannot write: {error}"), ADVICE)),
            }
            if done >= bytes {
                self.writes.pop_front();
            }
        }
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        while let Some((slot, bytes, done)) = self.reads.front_mut() {
            let room = self.slots.get_mut(*slot).and_then(|room| room.get_mut(*done..*bytes));
            match self.stream.read(room.unwrap_or_default()) {
                Ok(0) => return Err(Failure::new("the other side has closed", ADVICE)),
                Ok(read) => *done += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(Failure::new(format!("cannot read: {error}"), ADVICE)),
            }
            if done >= bytes {
                self.reads.pop_front();
            }
        }
        Ok(())
    }
}

impl Transport for Tcp {
    fn prepare(&mut self, slots: usize, bytes: usize) -> Result<()> {
        self.out = vec![0; bytes];
        self.slots = vec![vec![0; bytes]; slots];
        Ok(())
    }

    fn fill(&mut self, bytes: &[u8]) {
        for (to, from) in self.out.iter_mut().zip(bytes) {
            *to = *from;
        }
    }

    fn receive(&mut self, slot: usize, bytes: usize) -> Result<()> {
        self.reads.push_back((slot, bytes, 0));
        Ok(())
    }

    fn send(&mut self, bytes: usize) -> Result<()> {
        self.writes.push_back((bytes, 0));
        self.write()
    }

    fn finish(&mut self) -> Result<()> {
        loop {
            self.write()?;
            self.read()?;
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, !self.reads.is_empty());
            events.set(PollFlags::OUT, !self.writes.is_empty());
            if events.is_empty() {
                return Ok(());
            }
            let limit = Timespec::try_from(PATIENCE).ok();
            let mut watched = [PollFd::new(&self.stream, events)];
            if poll(&mut watched, limit.as_ref()).explain("cannot poll", ADVICE)? == 0 {
                return Err(Failure::new(format!("nothing arrived within {PATIENCE:?}"), ADVICE));
            }
        }
    }

    fn received(&self, slot: usize, bytes: usize) -> Vec<u8> {
        let whole = self.slots.get(slot).map_or(&[][..], Vec::as_slice);
        whole.get(..bytes).unwrap_or_default().to_vec()
    }
}
