//! Registered memory: created by the engine for a program, so that both access the same bytes.
//! Messages and streams are sent from it and messages are received into it without a copy by the
//! library.

use std::sync::Arc;

use rustix::io::Errno;
use shm::descriptor::Span;
use shm::memory::place;
use shm::message::{ENTRY_BYTES, Entry};

use crate::open::RequestError;
use crate::session::Session;

/// Memory that a program shares with the engine. Its bytes are read and written by copies, because
/// the engine may write them at any time. Clones refer to the same memory, which is released with
/// the last of them; operations in progress still complete.
#[derive(Clone, Debug)]
pub struct Registered {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    session: Arc<Session>,
    number: u16,
    memory: Arc<shm::memory::Registered>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.session.unregister(self.number);
    }
}

impl Session {
    /// Requests `bytes` of memory from the engine, rounded up to whole pages. The pages are
    /// allocated at once.
    ///
    /// # Errors
    /// INVAL: none, or more than 256 MiB. NOSPC: the session has 64 already. NOMEM: the user's
    /// `memory_per_user`, or the machine's memory, does not suffice. MFILE: the process has no
    /// descriptor left. CONNRESET: the engine is gone.
    pub fn register(self: &Arc<Self>, bytes: u64) -> Result<Registered, RequestError> {
        let (number, file, bytes) = self.ask_memory(bytes)?;
        let unusable = |error: shm::region::RegionError| {
            RequestError::new(Errno::PROTO, format!("the engine's grant is invalid: {error}"))
        };
        let opened = shm::memory::Registered::open(file, bytes).map_err(unusable);
        if opened.is_err() {
            self.unregister(number);
        }
        Ok(self.adopt_memory(number, Arc::new(opened?)))
    }

    /// Registered memory that the worker has granted as `number`: for simulation.
    pub fn adopt_memory(
        self: &Arc<Self>,
        number: u16,
        memory: Arc<shm::memory::Registered>,
    ) -> Registered {
        let session = Arc::clone(self);
        Registered { shared: Arc::new(Shared { session, number, memory }) }
    }
}

impl Registered {
    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.shared.memory.bytes()
    }

    /// Its session.
    pub fn session(&self) -> &Arc<Session> {
        &self.shared.session
    }

    /// Copies `bytes` to `offset`, truncated to its end; returns the number copied.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> usize {
        self.shared.memory.write(offset, bytes)
    }

    /// Copies from `offset` to `bytes`, truncated to its end; returns the number copied.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> usize {
        self.shared.memory.read(offset, bytes)
    }

    /// A part of it, to be sent from or received into; `None` beyond the end.
    pub fn piece(&self, offset: u64, len: u32) -> Option<Piece<'_>> {
        let contains = self.shared.memory.contains(offset, u64::from(len));
        contains.then_some(Piece { memory: self, offset, len })
    }

    /// The line of 64 bytes at `offset`, a multiple of 64, for the outcome of an operation; `None`
    /// if it is out of bounds.
    pub fn line(&self, offset: u64) -> Option<Line> {
        let has = self.shared.memory.has_line(offset);
        has.then(|| Line { memory: self.clone(), offset })
    }
}

/// A part of registered memory.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    memory: &'a Registered,
    offset: u64,
    len: u32,
}

impl Piece<'_> {
    /// Its length in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn span(&self) -> Span {
        Span { offset: place(self.memory.shared.number, self.offset), len: self.len }
    }

    pub(crate) fn is_of(&self, session: &Arc<Session>) -> bool {
        Arc::ptr_eq(&self.memory.shared.session, session)
    }
}

/// A line of registered memory to which the engine writes the outcome of an operation. It serves
/// one operation at a time.
#[derive(Clone, Debug)]
pub struct Line {
    memory: Registered,
    offset: u64,
}

impl Line {
    /// Whether the operation has ended: one load.
    pub fn is_told(&self) -> bool {
        self.memory.shared.memory.is_told(self.offset)
    }

    pub(crate) fn told(&self) -> Option<Entry> {
        self.memory.shared.memory.told(self.offset)
    }

    pub(crate) fn clear(&self) {
        self.memory.shared.memory.clear_line(self.offset);
    }

    pub(crate) fn place(&self) -> u64 {
        place(self.memory.shared.number, self.offset)
    }

    pub(crate) fn is_of(&self, session: &Arc<Session>) -> bool {
        Arc::ptr_eq(&self.memory.shared.session, session)
    }
}

/// Bytes of a [`Line`].
pub const LINE_BYTES: u64 = ENTRY_BYTES as u64;
