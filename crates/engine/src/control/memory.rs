//! The control thread's part of registered memory: creating and charging it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use shm::control::FromEngine;
use shm::memory::{REGISTERED_BYTES_MAX, REGISTERED_MAX, Registered, rounded};
use shm::region::RegionError;

use super::Control;
use super::authority::Refusal;
use super::exchange::{Command, SessionKey};

struct Made {
    memory: Arc<Registered>,
    /// For the client, until the worker has it.
    file: Option<OwnedFd>,
    /// The client has released it; operations in progress still use it.
    is_closing: bool,
}

/// The registered memories of a session, by number.
#[derive(Default)]
pub(super) struct Memories {
    made: Vec<Option<Made>>,
}

impl Memories {
    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.made.iter().flatten().map(|made| made.memory.bytes()).sum()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.made.iter().flatten().count()
    }

    /// Stores one under the lowest free number.
    fn add(&mut self, made: Made) -> Option<u16> {
        let free = self.made.iter().position(Option::is_none).unwrap_or(self.made.len());
        let number = u16::try_from(free + 1).ok().filter(|number| *number <= REGISTERED_MAX)?;
        self.made.resize_with(self.made.len().max(free + 1), || None);
        *self.made.get_mut(free)? = Some(made);
        Some(number)
    }

    fn get_mut(&mut self, number: u16) -> Option<&mut Made> {
        self.made.get_mut(usize::from(number).checked_sub(1)?)?.as_mut()
    }

    fn remove(&mut self, number: u16) -> Option<Made> {
        self.made.get_mut(usize::from(number).checked_sub(1)?)?.take()
    }
}

fn refuse(errno: Errno, reason: String) -> Refusal {
    Refusal { errno: errno.raw_os_error(), reason }
}

impl Control {
    /// A session requests registered memory. `false`: its connection must be dropped.
    pub(super) fn on_register(
        &mut self,
        id: u64,
        session: SessionKey,
        serial: u32,
        bytes: u64,
    ) -> bool {
        match self.make_memory(session, bytes) {
            Ok((number, memory)) => {
                self.wait_for_answer(id);
                self.worker.send(Command::Register { session, serial, number, memory })
            }
            Err(Refusal { errno, reason }) => {
                self.counters.memories_refused.increment();
                self.tell(id, &FromEngine::Denied { serial, errno, reason })
            }
        }
    }

    fn make_memory(
        &mut self,
        session: SessionKey,
        bytes: u64,
    ) -> Result<(u16, Arc<Registered>), Refusal> {
        let gone = || refuse(Errno::BADF, "the session has ended".into());
        let granted = self.sessions.get(&session).ok_or_else(gone)?;
        let (uid, count) = (granted.who.uid, granted.memories.count());
        if bytes == 0 || bytes > REGISTERED_BYTES_MAX {
            return Err(refuse(
                Errno::INVAL,
                format!("registered memory has 1 to {REGISTERED_BYTES_MAX} bytes, not {bytes}"),
            ));
        }
        if count >= usize::from(REGISTERED_MAX) {
            return Err(refuse(
                Errno::NOSPC,
                format!(
                    "a session has at most {REGISTERED_MAX} registered memories; release one, or \
                     register fewer and longer ones"
                ),
            ));
        }
        let (held, bytes) = (self.held_bytes(uid), rounded(bytes));
        let most = self.policy.limits.memory_per_user;
        if uid != 0 && held.saturating_add(bytes) > most {
            return Err(refuse(
                Errno::NOMEM,
                format!(
                    "this user's sessions use {held} bytes of shared memory and request {bytes} \
                     more, but `memory_per_user` is {most}; register less, or raise it under \
                     [limits]"
                ),
            ));
        }
        let mut memory = Registered::create(bytes).map_err(|error| {
            let errno = match error {
                RegionError::System(_, errno) => errno,
                _ => Errno::NOMEM,
            };
            refuse(errno, format!("cannot create registered memory of {bytes} bytes: {error}"))
        })?;
        let file = memory.take_file();
        let memory = Arc::new(memory);
        let made = Made { memory: Arc::clone(&memory), file, is_closing: false };
        let granted = self.sessions.get_mut(&session).ok_or_else(gone)?;
        let number = granted.memories.add(made).ok_or_else(gone)?;
        self.count_memories();
        Ok((number, memory))
    }

    /// The worker knows a registered memory, or its session has ended.
    pub(super) fn on_registered(
        &mut self,
        session: SessionKey,
        serial: u32,
        number: u16,
        is_known: bool,
    ) {
        let id = session.0;
        let granted = self.sessions.get_mut(&session);
        let made = granted.and_then(|granted| granted.memories.get_mut(number));
        let made = made.and_then(|made| Some((made.file.take()?, made.memory.bytes())));
        match made {
            Some((file, bytes)) if is_known => {
                let registered = FromEngine::Registered { serial, number, bytes };
                self.answer_with(id, &registered, &[file.as_fd()]);
            }
            _ => {
                self.on_unregistered(session, number);
                let (errno, reason) = (Errno::BADF.raw_os_error(), "the session has ended".into());
                self.answer(id, &FromEngine::Denied { serial, errno, reason });
            }
        }
    }

    /// A session releases a memory. `false`: its connection must be dropped.
    pub(super) fn on_unregister(&mut self, id: u64, session: SessionKey, number: u16) -> bool {
        let granted = self.sessions.get_mut(&session);
        let made = granted.and_then(|granted| granted.memories.get_mut(number));
        // Only once: each release is work for the worker.
        if made.is_some_and(|made| !std::mem::replace(&mut made.is_closing, true)) {
            return self.worker.send(Command::Unregister { session, number });
        }
        self.counters.control_garbage.increment();
        self.complain(id, &format!("releases registered memory {number}, which it does not have"));
        true
    }

    /// The worker has dropped a memory, which is unmapped here.
    pub(super) fn on_unregistered(&mut self, session: SessionKey, number: u16) {
        if let Some(granted) = self.sessions.get_mut(&session) {
            granted.memories.remove(number);
        }
        self.count_memories();
    }

    /// Counts the registered memories of all sessions.
    pub(super) fn count_memories(&self) {
        let count = self.sessions.values().map(|granted| granted.memories.count() as u64).sum();
        self.counters.memories.set(count);
    }
}
