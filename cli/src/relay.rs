//! The relay: a thread of the engine's process that makes sockets of the kernel's out of connections which
//! several processes use, or one that knows nothing of the engine.
//!
//! It lives in a network namespace of its own in which every address is local ([`port::netns`]). There a TCP
//! pair has the two addresses of the connection; one end goes to the holders, and the relay carries bytes
//! between the other and the connection, which is an endpoint of its session. Should it die, the kernel resets
//! its ends.

mod carried;
mod pairs;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use client::{EndpointId, Errno, Served, Session};
use lab::failure::{Explain, Failure, Result};
use rustix::event::{Timespec, epoll};
use rustix::thread::CapabilitySet;
use shm::control::Socket;

use self::carried::{Carried, CarryState};
use crate::privileges::reduce;
use crate::users::User;

/// Descriptors looked at after one wait.
const READY_MAX: usize = 256;

/// Names what the relay waits for beside the pairs.
const CONTROL: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

/// What is waited for at the relay's end of a pair.
const PAIR: epoll::EventFlags = epoll::EventFlags::IN
    .union(epoll::EventFlags::OUT)
    .union(epoll::EventFlags::PRI)
    .union(epoll::EventFlags::RDHUP)
    .union(epoll::EventFlags::ET);

/// Starts the relay, which becomes `user` with `group` once it has its namespace. Returns the engine's end
/// of its control connection.
///
/// # Errors
/// When there is no network namespace to be had, or no thread.
pub fn start(user: Option<User>, group: Option<u32>) -> Result<Arc<OwnedFd>> {
    let (ours, theirs) = Socket::pair().explain("cannot make a socket pair", "report this")?;
    let (tell, hear) = sync_channel(1);
    let body = move || {
        let ready = enter(user, group);
        let is_ready = ready.is_ok();
        if tell.send(ready).is_err() || !is_ready {
            return;
        }
        if let Err(reason) = serve(ours) {
            tracing::error!("the relay ended: {reason}");
        }
    };
    std::thread::Builder::new()
        .name("relay".into())
        .spawn(body)
        .explain("cannot start a thread", "see the limit of processes (ulimit -u)")?;
    hear.recv().map_err(|_| Failure::new("the relay did not start", "report this"))??;
    Ok(Arc::new(theirs.into_fd()))
}

/// Takes the calling thread to its namespace, and its privileges away.
fn enter(user: Option<User>, group: Option<u32>) -> Result<()> {
    port::netns::enter_everywhere().explain(
        "no network namespace can be created",
        "start the engine as root, or with CAP_SYS_ADMIN",
    )?;
    reduce(user, group, CapabilitySet::empty())
}

/// Serves until the engine is gone.
fn serve(socket: Socket) -> std::result::Result<(), String> {
    let session = Session::attach_relay(socket).map_err(|error| error.to_string())?;
    let mut relay = Relay::new(session).map_err(|error| error.to_string())?;
    loop {
        match relay.round() {
            Ok(()) | Err(Errno::INTR) => {}
            // The engine has ended, as it is allowed to.
            Err(Errno::CONNRESET) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
    }
}

struct Relay {
    session: Arc<Session>,
    poll: OwnedFd,
    carried: HashMap<EndpointId, Carried>,
    hints: Vec<EndpointId>,
    /// Those with more to carry.
    busy: Vec<EndpointId>,
    room: Vec<u8>,
}

impl Relay {
    fn new(session: Arc<Session>) -> std::result::Result<Self, Errno> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let readable = epoll::EventFlags::IN;
        session.with_control(|control| {
            epoll::add(&poll, control, epoll::EventData::new_u64(CONTROL), readable)
        })?;
        for wake in session.wake_fds() {
            epoll::add(&poll, wake, epoll::EventData::new_u64(WAKE), readable)?;
        }
        let (carried, hints, busy) = (HashMap::new(), Vec::new(), Vec::new());
        Ok(Self { session, poll, carried, hints, busy, room: vec![0; carried::ROOM_BYTES] })
    }

    /// Does what is to be done, then waits for more.
    fn round(&mut self) -> std::result::Result<(), Errno> {
        self.hear()?;
        if !self.session.arm() {
            return if self.session.is_alive() { Ok(()) } else { Err(Errno::CONNRESET) };
        }
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; READY_MAX];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let limit = (!self.busy.is_empty()).then_some(&now);
        let waited = epoll::wait(&self.poll, &mut events[..], limit);
        self.session.disarm();
        if !self.session.is_alive() {
            return Err(Errno::CONNRESET);
        }
        for event in events.iter().take(waited?) {
            match event.data.u64() {
                WAKE => {}
                CONTROL => self.serve_new()?,
                number => self.carry(EndpointId(number as u32), event.flags),
            }
        }
        Ok(())
    }

    /// Serves the endpoints that the engine has news of.
    fn hear(&mut self) -> std::result::Result<(), Errno> {
        let mut hints = std::mem::take(&mut self.hints);
        hints.append(&mut self.busy);
        self.session.take_events(&mut hints);
        for id in hints.drain(..) {
            self.carry(id, epoll::EventFlags::empty());
        }
        self.hints = hints;
        Ok(())
    }

    /// Makes sockets for the connections that the engine has given us.
    fn serve_new(&mut self) -> std::result::Result<(), Errno> {
        while let Some(served) = self.session.next_served()? {
            let Served { pass, endpoint, local, remote, is_shut, v6 } = served;
            let id = endpoint.id();
            let made = pairs::make(local, remote, v6).and_then(|ends| {
                epoll::add(&self.poll, &ends.0, epoll::EventData::new_u64(id.0.into()), PAIR)?;
                Ok(ends)
            });
            let (ours, theirs) = match made {
                Ok(ends) => ends,
                Err(errno) => {
                    tracing::warn!(
                        "the relay cannot create a socket from {local} to {remote}: {errno}"
                    );
                    endpoint.abort();
                    self.session.answer_served(pass, Err(errno)).map_err(|_| Errno::CONNRESET)?;
                    continue;
                }
            };
            if is_shut {
                // Writing fails for the holders as it did before.
                let _ = rustix::net::shutdown(&theirs, rustix::net::Shutdown::Write);
            }
            self.carried.insert(id, Carried::new(endpoint, ours, is_shut));
            // What was not read lies in the holders' socket before any of them reads.
            self.carry(id, epoll::EventFlags::empty());
            let answered = self.session.answer_served(pass, Ok(theirs.as_fd()));
            answered.map_err(|_| Errno::CONNRESET)?;
        }
        Ok(())
    }

    fn carry(&mut self, id: EndpointId, told: epoll::EventFlags) {
        let Some(carried) = self.carried.get_mut(&id) else { return };
        match carried.carry(told, &mut self.room) {
            CarryState::Goes => {}
            CarryState::More => self.busy.push(id),
            CarryState::Over => drop(self.carried.remove(&id)),
        }
    }
}
