//! The engine's messages, from and to the program's memory or registered memory.

use std::io::IoSlice;
use std::path::Path;
use std::time::Instant;

use client::Session;
use client::message::{Endpoint, Memory, Outcome, Pattern, Peer, Send};
use lab::failure::{Explain, Failure, Result};
use rustix::io::Errno;

use super::{ExchangeArguments, ExchangeCarrier, OPENED, PATIENCE, Transport};

const ADVICE: &str = "check the other side and `outboard stats` of both engines";
/// Tag of all messages.
const TAG: u64 = 1;
/// Context of sends; receives have their slot.
const SEND: u64 = u64::MAX - 1;
/// The job's key.
const KEY: [u8; 16] = *b"outboard bench..";

/// An endpoint and the peer that it talks with.
pub(super) struct Messages {
    endpoint: Endpoint,
    /// Side B learns it with the first message.
    peer: Option<Peer>,
    memory: Slots,
    registered: Option<client::memory::Registered>,
    is_registered: bool,
    open: usize,
}

/// The program's memory.
#[derive(Default)]
struct Slots {
    out: Vec<u8>,
    slots: Vec<Vec<u8>>,
    /// Bytes of a slot.
    bytes: usize,
}

impl Memory for Slots {
    fn gather(&mut self, _: u64, offset: u64, len: usize, copy: &mut dyn FnMut(&[u8])) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        copy(self.out.get(start..start.saturating_add(len)).unwrap_or_default());
    }

    fn scatter(&mut self, slot: u64, offset: u64, len: usize, copy: &mut dyn FnMut(&mut [u8])) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let slot = usize::try_from(slot).ok().and_then(|slot| self.slots.get_mut(slot));
        if let Some(room) = slot.and_then(|room| room.get_mut(start..start.saturating_add(len))) {
            copy(room);
        }
    }
}

impl Messages {
    pub fn open(
        arguments: &ExchangeArguments,
        engine: &Path,
        carrier: ExchangeCarrier,
    ) -> Result<Self> {
        let session = Session::attach_messages(engine, "outboard bench")
            .explain("cannot attach", "start an engine there")?;
        let endpoint = Endpoint::open(&session, arguments.local, Some(KEY))
            .explain("cannot open an endpoint", "see the address")?;
        let peer = match arguments.serve {
            true => {
                tell!("{OPENED}");
                None
            }
            false => endpoint.add_peer(arguments.address),
        };
        let (memory, is_registered) = (Slots::default(), carrier == ExchangeCarrier::Registered);
        Ok(Self { endpoint, peer, memory, registered: None, is_registered, open: 0 })
    }

    /// Waits until something ends or room comes, and takes what has ended.
    fn await_one(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.endpoint.poll_completion(&mut self.memory).explain("lost", ADVICE)?;
            match ended.map(|completion| completion.outcome) {
                Some(Outcome::Sent) => self.open -= 1,
                Some(Outcome::Received(message)) => {
                    self.peer.get_or_insert(message.source);
                    self.open -= 1;
                }
                Some(other) => return Err(Failure::new(format!("{other:?}"), ADVICE)),
                None if self.endpoint.wait(Some(deadline)).explain("lost", ADVICE)? => continue,
                None => {
                    return Err(Failure::new(
                        format!("nothing arrived within {PATIENCE:?}"),
                        ADVICE,
                    ));
                }
            }
            return Ok(());
        }
    }

    /// Begins an operation, waiting for room where there is none.
    fn begin(&mut self, operation: impl Fn(&Self) -> std::result::Result<(), Errno>) -> Result<()> {
        loop {
            match operation(self) {
                Ok(()) => {
                    self.open += 1;
                    return Ok(());
                }
                Err(Errno::AGAIN) => self.await_one()?,
                Err(errno) => {
                    return Err(Failure::new(
                        format!("cannot start an operation: {errno}"),
                        ADVICE,
                    ));
                }
            }
        }
    }

    /// Where a slot lies in registered memory; what is sent lies before the slots.
    fn offset(&self, slot: usize) -> u64 {
        ((slot + 1) * self.memory.bytes) as u64
    }
}

impl Transport for Messages {
    fn prepare(&mut self, slots: usize, bytes: usize) -> Result<()> {
        // Whole lines each.
        let bytes = bytes.next_multiple_of(64);
        if self.is_registered {
            self.registered = None;
            let all = ((slots + 1) * bytes) as u64;
            let memory = self.endpoint.session().register(all);
            self.registered = Some(memory.explain("no registered memory", "raise the limit")?);
            self.memory.bytes = bytes;
            return Ok(());
        }
        self.memory = Slots { out: vec![0; bytes], slots: vec![vec![0; bytes]; slots], bytes };
        Ok(())
    }

    fn fill(&mut self, bytes: &[u8]) {
        match &self.registered {
            Some(memory) => {
                memory.write(0, bytes);
            }
            None => {
                for (to, from) in self.memory.out.iter_mut().zip(bytes) {
                    *to = *from;
                }
            }
        }
    }

    fn receive(&mut self, slot: usize, bytes: usize) -> Result<()> {
        self.begin(|this| {
            let pattern = Pattern { source: this.peer, tag: Some((TAG, 0)) };
            let ticket = match &this.registered {
                Some(memory) => {
                    let piece = memory.piece(this.offset(slot), bytes as u32);
                    let piece = piece.ok_or(Errno::INVAL)?;
                    this.endpoint.post_recv_registered(&pattern, &[piece], slot as u64)
                }
                None => this.endpoint.post_recv(&pattern, bytes as u64, slot as u64),
            };
            ticket.map(drop)
        })
    }

    fn send(&mut self, bytes: usize) -> Result<()> {
        self.begin(|this| {
            let peer = this.peer.ok_or(Errno::NOTCONN)?;
            let send = Send { tag: Some(TAG), ..Send::default() };
            let ticket = match &this.registered {
                Some(memory) => {
                    let piece = memory.piece(0, bytes as u32).ok_or(Errno::INVAL)?;
                    this.endpoint.send_registered(peer, &send, &[piece], SEND)
                }
                None => {
                    let part = this.memory.out.get(..bytes).ok_or(Errno::INVAL)?;
                    this.endpoint.send(peer, &send, &[IoSlice::new(part)], SEND)
                }
            };
            ticket.map(drop)
        })
    }

    fn finish(&mut self) -> Result<()> {
        while self.open > 0 {
            self.await_one()?;
        }
        Ok(())
    }

    fn received(&self, slot: usize, bytes: usize) -> Vec<u8> {
        match &self.registered {
            Some(memory) => {
                let mut read = vec![0; bytes];
                memory.read(self.offset(slot), &mut read);
                read
            }
            None => {
                let whole = self.memory.slots.get(slot).map_or(&[][..], Vec::as_slice);
                whole.get(..bytes).unwrap_or_default().to_vec()
            }
        }
    }
}
