//! The control thread's part of raw endpoints: rights, rings, memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use shm::control::{FilterInstruction, FromEngine, RawPort, RawWants};
use shm::raw::{RingSizes, Rings};

use super::authority::Refusal;
use super::exchange::{Command, SessionKey};
use super::{Control, connection};
use crate::service::raw::filter::RawFilter;
use crate::service::raw::rights::{RawRights, RawRule, by_rules, by_socket, is_named};
use crate::service::raw::{PORTS_MAX, RawSeed, charged_bytes};

/// The least EtherType; what is less is a length (IEEE 802.3).
const ETHERTYPE_MIN: u16 = 0x0600;
/// EtherTypes that are never claimed as such: IPv4, ARP, VLAN tags, IPv6.
const OF_OTHERS: [u16; 5] = [0x0800, 0x0806, 0x8100, 0x88a8, 0x86dd];

/// Configuration of raw endpoints.
#[derive(Clone, Debug, Default)]
pub struct RawPolicy {
    /// `[[raw]]` of the configuration.
    pub rules: Vec<RawRule>,
    /// The engine's ports, in its own numbering.
    pub ports: Vec<RawPort>,
    /// Names of ports whose interface is in another network namespace than the engine.
    pub elsewhere: Vec<String>,
    /// Names of ports whose frames cannot be taken, because the kernel gets its own before the
    /// engine sees them.
    pub untakeable: Vec<String>,
}

/// A raw endpoint requested from the worker.
pub(super) struct Opening {
    file: OwnedFd,
    sizes: RingSizes,
    /// Bytes that its user is charged.
    charged: u64,
    ports: Vec<RawPort>,
}

/// A program's request.
pub(super) struct Asked {
    pub serial: u32,
    pub context: u16,
    pub ports: Vec<String>,
    pub sizes: RingSizes,
    pub filter: Vec<FilterInstruction>,
    pub wants: RawWants,
}

fn refuse(errno: Errno, reason: impl Into<String>) -> Refusal {
    Refusal { errno: errno.raw_os_error(), reason: reason.into() }
}

impl RawPolicy {
    /// The ports named in `asked`, in the engine's numbering.
    fn find(&self, asked: &[String]) -> Result<Vec<usize>, Refusal> {
        let all = || {
            let names: Vec<&str> = self.ports.iter().map(|port| port.name.as_str()).collect();
            names.join(", ")
        };
        if asked.is_empty() {
            return match self.ports.len() {
                1 => Ok(vec![0]),
                _ => Err(refuse(Errno::INVAL, format!("name a port; the engine has {}", all()))),
            };
        }
        if asked.len() > PORTS_MAX {
            let reason = format!("a raw endpoint has at most {PORTS_MAX} ports");
            return Err(refuse(Errno::INVAL, reason));
        }
        let mut found = Vec::with_capacity(asked.len());
        for name in asked {
            let at = self.ports.iter().position(|port| is_named(&port.name, name));
            let at = at.ok_or_else(|| {
                let reason = format!("there is no port {name:?}; the engine has {}", all());
                refuse(Errno::NODEV, reason)
            })?;
            if found.contains(&at) {
                return Err(refuse(Errno::INVAL, format!("port {name:?} is named twice")));
            }
            found.push(at);
        }
        Ok(found)
    }
}

impl Control {
    /// A program requests a raw endpoint. `false`: its connection must be dropped.
    pub(super) fn on_open_raw(
        &mut self,
        id: u64,
        session: SessionKey,
        asked: Asked,
        fds: Vec<OwnedFd>,
    ) -> bool {
        let Some(uid) = self.connections.get(&id).map(|one| one.peer.uid) else { return false };
        let (socket, is_within) = self.only(id, fds);
        let (serial, context) = (asked.serial, asked.context);
        let checked = self.check_raw(id, session, asked, socket.as_ref());
        let is_within = self.discard.close(uid, socket.into_iter().collect()) && is_within;
        match checked {
            Ok((seed, opening)) => {
                self.wait_for_answer(id);
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.opening = Some(opening);
                }
                let seed = Box::new(seed);
                let command = Command::OpenRaw { session, serial, context, seed };
                self.worker.send(command) && is_within
            }
            Err(Refusal { errno, reason }) => {
                self.counters.raw_denied.increment();
                is_within && self.tell(id, &FromEngine::Denied { serial, errno, reason })
            }
        }
    }

    fn check_raw(
        &mut self,
        id: u64,
        session: SessionKey,
        asked: Asked,
        socket: Option<&OwnedFd>,
    ) -> Result<(RawSeed, Opening), Refusal> {
        let gone = || refuse(Errno::BADF, "the session has ended");
        let peer = self.connections.get(&id).map(|one| one.peer).ok_or_else(gone)?;
        let policy = &self.policy.raw;
        let numbers = policy.find(&asked.ports)?;
        let RawWants { received, sent, take, ethertype, .. } = asked.wants;
        if ethertype.is_some_and(|kind| kind < ETHERTYPE_MIN || OF_OTHERS.contains(&kind)) {
            let reason = format!(
                "EtherType {:#06x} is a length or the stack's own; take frames of another one",
                ethertype.unwrap_or_default()
            );
            return Err(refuse(Errno::INVAL, reason));
        }
        let wanted =
            RawRights { receive: received || sent, send: asked.sizes.down > 0, take, spoof: false };
        let mut spoofs = true;
        for number in &numbers {
            let Some(port) = policy.ports.get(*number) else { return Err(gone()) };
            let by_rule = by_rules(&policy.rules, peer.uid, peer.gid, &port.name);
            let mut why_not = None;
            let by_kernel = socket.map_or(RawRights::default(), |socket| {
                let index = match policy.elsewhere.contains(&port.name) {
                    true => 0,
                    false => self.interfaces.get(*number).map_or(0, |of| of.kernel_index),
                };
                by_socket(socket.as_fd(), self.namespace, index).unwrap_or_else(|(_, reason)| {
                    why_not = Some(reason);
                    RawRights::default()
                })
            });
            let rights = by_rule.or(by_kernel);
            spoofs &= rights.spoof;
            if rights.and(wanted) != wanted {
                let hint = why_not.map_or_else(String::new, |reason| format!(" ({reason})"));
                return Err(refuse(
                    Errno::PERM,
                    format!(
                        "no right to {} at {}{hint}: pass a packet socket of its namespace \
                         (CAP_NET_RAW), or add a [[raw]] rule for the user",
                        missing(wanted, rights),
                        port.name
                    ),
                ));
            }
            if take && ethertype.is_none() && policy.untakeable.contains(&port.name) {
                let reason = format!(
                    "{} shares its interface with the kernel, from which frames cannot be taken by a \
                     filter alone; name an EtherType, or use a packet port",
                    port.name
                );
                return Err(refuse(Errno::OPNOTSUPP, reason));
            }
        }
        let filter = match asked.filter.is_empty() {
            true => None,
            false => Some(
                RawFilter::check(asked.filter)
                    .map_err(|bad| refuse(Errno::INVAL, bad.to_string()))?,
            ),
        };
        let charged = charged_bytes(asked.sizes, numbers.len());
        self.admit_rings(peer.uid, charged)?;
        let mut rings = Rings::create(asked.sizes).map_err(|error| {
            let errno = match error {
                shm::raw::RingError::System(_, errno) => errno,
                _ => Errno::INVAL,
            };
            refuse(errno, error.to_string())
        })?;
        let file = rings.take_file().ok_or_else(gone)?;
        if let Some(granted) = self.sessions.get_mut(&session) {
            granted.ring_bytes += charged;
        }
        let ports = numbers.iter().filter_map(|at| self.policy.raw.ports.get(*at).cloned());
        let opening = Opening { file, sizes: asked.sizes, charged, ports: ports.collect() };
        let (rings, wants) = (Arc::new(rings), asked.wants);
        Ok((RawSeed { rings, ports: numbers, filter, wants, spoofs }, opening))
    }

    /// Checks whether a user may have this many more bytes of rings.
    fn admit_rings(&self, uid: u32, bytes: u64) -> Result<(), Refusal> {
        let held = self.held_bytes(uid);
        let most = self.policy.limits.memory_per_user;
        if uid != 0 && held.saturating_add(bytes) > most {
            return Err(refuse(
                Errno::NOMEM,
                format!(
                    "this user's sessions use {held} bytes of shared memory and the rings need \
                     {bytes}, but `memory_per_user` is {most}; ask for smaller rings or fewer ports, \
                     or raise it under [limits]"
                ),
            ));
        }
        Ok(())
    }

    /// The worker has opened a raw endpoint, or refused it.
    pub(super) fn on_raw(
        &mut self,
        session: SessionKey,
        serial: u32,
        result: Result<u32, Refusal>,
    ) {
        let id = session.0;
        let opening = self.connections.get_mut(&id).and_then(|one| one.opening.take());
        let Some(Opening { file, sizes, charged, ports }) = opening else { return };
        match result {
            Ok(endpoint) => {
                let endpoints = vec![endpoint];
                let granted = FromEngine::RawGranted { serial, endpoints, sizes, ports };
                self.answer_with(id, &granted, &[file.as_fd()]);
            }
            Err(Refusal { errno, reason }) => {
                self.uncharge_rings(session, charged);
                self.answer(id, &FromEngine::Denied { serial, errno, reason });
            }
        }
    }

    /// Rings are no longer used; here they are unmapped.
    pub(super) fn on_raw_closed(&mut self, session: SessionKey, rings: Arc<Rings>, ports: usize) {
        self.uncharge_rings(session, charged_bytes(rings.sizes(), ports));
        drop(rings);
    }

    fn uncharge_rings(&mut self, session: SessionKey, bytes: u64) {
        if let Some(granted) = self.sessions.get_mut(&session) {
            granted.ring_bytes = granted.ring_bytes.saturating_sub(bytes);
        }
    }

    /// Sends the answer for which a connection waits, with descriptors.
    pub(super) fn answer_with(
        &mut self,
        id: u64,
        message: &FromEngine,
        fds: &[std::os::fd::BorrowedFd<'_>],
    ) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.next = super::Next::Message;
        if connection::send(connection.fd.as_fd(), message, fds).is_err() {
            self.note_deaf(id);
            self.drop_connection(id);
        }
    }
}

/// The rights that are wanted but missing, in words.
fn missing(wanted: RawRights, rights: RawRights) -> String {
    let lacks = [
        ("see frames", wanted.receive && !rights.receive),
        ("send frames", wanted.send && !rights.send),
        ("take frames", wanted.take && !rights.take),
    ];
    let words: Vec<&str> =
        lacks.into_iter().filter(|(_, lacks)| *lacks).map(|(what, _)| what).collect();
    words.join(" and ")
}
