//! Admission of clients and creation of their sessions: the region and the wake pipes of its lanes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use shm::control::{CONTRACT_VERSION, FromEngine, Geometry, Role};
use shm::region::Region;

use super::exchange::{Command, SessionKey};
use super::memory::Memories;
use super::{Control, Stage, connection};
use crate::session::{LanePipes, SessionSeed, SessionWho};
use crate::share::{Full, Shared};

/// A session in the control thread.
pub(super) struct Granted {
    /// Its owner.
    pub who: SessionWho,
    /// It was granted for messages.
    pub has_messages: bool,
    /// Its region.
    pub region: Arc<Region>,
    /// Bytes of its raw endpoints' rings.
    pub ring_bytes: u64,
    /// Its registered memories.
    pub memories: Memories,
}

/// The client's descriptors of a session.
pub struct ClientEnds {
    /// The region, then for each lane the read end of the client's wake pipe and the write end
    /// of the engine's.
    pub fds: Vec<OwnedFd>,
}

impl ClientEnds {
    /// In the order of `Welcome`.
    pub fn borrow(&self) -> Vec<BorrowedFd<'_>> {
        self.fds.iter().map(AsFd::as_fd).collect()
    }
}

/// Creates the region and the pipes of a session.
///
/// # Errors
/// If the kernel refuses memory or descriptors.
pub fn make(
    key: SessionKey,
    geometry: Geometry,
    who: SessionWho,
) -> Result<(SessionSeed, ClientEnds), Errno> {
    let region = Arc::new(Region::create(geometry).map_err(|_| Errno::NOMEM)?);
    let mut fds = Vec::new();
    fds.push(rustix::io::fcntl_dupfd_cloexec(region.file().ok_or(Errno::INVAL)?, 0)?);
    let lanes = usize::from(geometry.context_count) * usize::from(geometry.worker_count);
    let mut pipes = Vec::with_capacity(lanes);
    for _ in 0..lanes {
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        // The ends of a pipe are separate open files: flags that a client sets on its end do not
        // affect ours.
        let (client_read, engine_write) = pipe_with(flags)?;
        // A socket, because a write to a broken pipe would raise SIGPIPE in the program.
        let (engine_read, client_write) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        fds.push(client_read);
        fds.push(client_write);
        pipes.push(LanePipes { wake_client: engine_write, woken_by_client: engine_read });
    }
    let geometry = *region.geometry();
    Ok((SessionSeed { key, geometry, region, pipes: Some(pipes), who }, ClientEnds { fds }))
}

/// Maximum number of message endpoints of a session.
const MESSAGE_ENDPOINTS: u32 = 64;
/// Bytes of buffers of a message session; pages are touched as they are used. Half of it is for
/// long messages being sent.
const MESSAGE_BYTES: u32 = 128 << 20;
/// Descriptors in a message endpoint's queues.
const MESSAGE_SLOTS: u32 = 1024;

/// The region of a session for messages: few endpoints, with longer queues.
pub fn messages_geometry(of: &Geometry) -> Geometry {
    Geometry {
        region_bytes: 0,
        endpoint_capacity: of.endpoint_capacity.min(MESSAGE_ENDPOINTS),
        send_slots: MESSAGE_SLOTS,
        receive_slots: MESSAGE_SLOTS,
        buffer_count: (MESSAGE_BYTES / of.buffer_bytes).max(64),
        ..*of
    }
}

impl Control {
    /// A client says hello. `false`: the connection must be dropped.
    pub(super) fn on_hello(&mut self, id: u64, contract: u32, role: Role, program: String) -> bool {
        let Some(connection) = self.connections.get(&id) else { return false };
        if contract != CONTRACT_VERSION {
            self.counters.sessions_refused.increment();
            let reason = format!(
                "the engine speaks contract {CONTRACT_VERSION} and the program's library contract \
                 {contract}; install library and engine of the same release"
            );
            self.refuse(&connection.fd, &reason);
            return false;
        }
        match role {
            Role::Observer => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.stage = Stage::Observer;
                }
                self.connections.get(&id).is_some_and(|connection| {
                    let page = [self.page.file()];
                    connection::send(connection.fd.as_fd(), &FromEngine::Observing, &page).is_ok()
                })
            }
            Role::Bystander => {
                let connection = self.connections.get_mut(&id);
                connection.map(|connection| connection.stage = Stage::Bystander).is_some()
            }
            Role::Session | Role::Messages => self.grant(id, program, role),
            Role::Relay if self.tickets.relay == Some(id) => {
                self.grant(id, program, role) && self.worker.send(Command::Relay(SessionKey(id)))
            }
            Role::Relay => {
                self.counters.control_garbage.increment();
                self.complain(id, "claims to be the engine's relay; dropped");
                false
            }
        }
    }

    /// Bytes of shared memory in use by the sessions of a user.
    pub(super) fn held_bytes(&self, uid: u32) -> u64 {
        // A session whose usage cannot be read counts as unused.
        let held = |one: &Granted| {
            one.region.resident_bytes().unwrap_or(0) + one.ring_bytes + one.memories.bytes()
        };
        self.sessions.values().filter(|one| one.who.uid == uid).map(held).sum()
    }

    /// Checks whether user `uid` may have another session. The error is a sentence.
    fn admit_session(&self, uid: u32) -> Result<(), String> {
        let limits = &self.policy.limits;
        let is_program = |key: &SessionKey| self.tickets.relay != Some(key.0);
        let programs = self.sessions.iter().filter(move |(key, _)| is_program(key));
        let own = || programs.clone().map(|(_, one)| one).filter(|one| one.who.uid == uid);
        let shared =
            Shared { total: limits.sessions.into(), per_user: limits.sessions_per_user.into() };
        let (of_user, used) = (own().count() as u32, programs.clone().count() as u32);
        shared.admit(uid, of_user, used).map_err(|full| {
            match full {
                Full::Table { is_reserved: false, .. } => &self.counters.sessions_refused,
                Full::User { .. } | Full::Table { .. } => &self.counters.sessions_refused_of_user,
            }
            .increment();
            full.sentence("sessions", "sessions", "sessions_per_user")
        })?;
        let held = self.held_bytes(uid);
        let wanted = limits.session_bytes_first();
        if uid != 0 && held.saturating_add(wanted) > limits.memory_per_user {
            self.counters.sessions_refused_memory.increment();
            let most = limits.memory_per_user;
            return Err(format!(
                "the {of_user} sessions of this user use {held} bytes of shared memory and one more \
                 needs {wanted}, but `memory_per_user` is {most}; raise it under [limits], or end one \
                 of its programs"
            ));
        }
        Ok(())
    }

    fn grant(&mut self, id: u64, program: String, role: Role) -> bool {
        let has_messages = role == Role::Messages;
        let geometry = match has_messages {
            true => messages_geometry(&self.geometry),
            false => self.geometry,
        };
        let Some(connection) = self.connections.get(&id) else { return false };
        if self.is_ending {
            self.counters.sessions_refused.increment();
            self.refuse(&connection.fd, "the engine is about to end; it accepts no new programs");
            return false;
        }
        let uid = connection.peer.uid;
        let is_relay = self.tickets.relay == Some(id);
        if !is_relay && !self.policy.rules.admit_user(uid) {
            self.counters.left_users.increment();
            // A client that cannot receive the answer sees the hang-up.
            let _ = connection::send(connection.fd.as_fd(), &FromEngine::NotServed, &[]);
            return false;
        }
        if !is_relay && let Err(reason) = self.admit_session(uid) {
            self.refuse(&connection.fd, &reason);
            return false;
        }
        let key = SessionKey(id);
        let who = SessionWho {
            program: program.chars().filter(|c| !c.is_control()).take(64).collect(),
            pid: connection.peer.pid,
            uid,
        };
        let (seed, ends) = match make(key, geometry, who.clone()) {
            Ok(made) => made,
            Err(error) => {
                self.counters.sessions_refused.increment();
                self.refuse(
                    &connection.fd,
                    &format!(
                        "the engine cannot make a region of {} bytes: {error}; give it more address \
                         space or descriptors (ulimit -v, ulimit -n), or lower `endpoints` or \
                         `buffers` under [limits]",
                        geometry.region_bytes
                    ),
                );
                return false;
            }
        };
        let region = Arc::clone(&seed.region);
        let geometry = *region.geometry();
        // The worker first: a client may use its lanes as soon as it has the region.
        if !self.worker.send(Command::Attach(Box::new(seed))) {
            return false;
        }
        let memories = Memories::default();
        let granted = Granted { who, has_messages, region, ring_bytes: 0, memories };
        self.sessions.insert(key, granted);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.stage = Stage::Session(key);
        }
        let welcome = FromEngine::Welcome {
            geometry,
            interfaces: self.told(),
            remotes: self.remotes.clone(),
        };
        self.connections.get(&id).is_some_and(|connection| {
            connection::send(connection.fd.as_fd(), &welcome, &ends.borrow()).is_ok()
        })
    }
}
