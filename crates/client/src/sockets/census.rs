//! The census: the outcome of each socket of this process, counted by kind, address and reason.
//!
//! The table is made of atomics and only grows, because a signal handler may open a socket, or end
//! the process, in the middle of another call's counting. A socket is counted in one line at a
//! time: when an engine takes over a listener, the listener moves to the line of accelerated ones.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use shm::census::{CENSUS_LINES, CensusLine, IDENTITY_WORDS, Kind, Reason, Subject};
use shm::control::CONTRACT_VERSION;
use shm::request::{LEFT_BY_LISTS, LEFT_TO_KERNEL};

use super::link::Attachment;
use super::socket::{Socket, is_kernels, plain};
use super::{Era, Errno, Sockets};
use crate::AttachError;

/// Lines with an address. The others are reserved for lines without one, which count the sockets
/// with further addresses.
const ADDRESSED_LINES: usize = CENSUS_LINES - 15;

const EMPTY: u32 = 0;
const CLAIMED: u32 = 1;
const READY: u32 = 2;

#[derive(Default)]
struct Slot {
    state: AtomicU32,
    identity: [AtomicU64; IDENTITY_WORDS],
    count: AtomicU64,
}

impl Slot {
    fn identity(&self) -> [u64; IDENTITY_WORDS] {
        std::array::from_fn(|at| self.identity[at].load(Ordering::Relaxed))
    }

    fn line(&self) -> Option<CensusLine> {
        if self.state.load(Ordering::Acquire) != READY {
            return None;
        }
        let subject = Subject::decode(self.identity())?;
        Some(CensusLine { subject, count: self.count.load(Ordering::Relaxed) })
    }
}

/// The lines of a process.
pub(super) struct Census {
    slots: Box<[Slot]>,
}

impl Census {
    pub fn new() -> Self {
        Self { slots: (0..CENSUS_LINES).map(|_| Slot::default()).collect() }
    }

    /// The line of a subject; `None` if there is no line left, not even without its address.
    fn place(&self, subject: Subject) -> Option<usize> {
        let limit = if subject.address.is_some() { ADDRESSED_LINES } else { CENSUS_LINES };
        self.place_among(limit, subject)
            .or_else(|| self.place_among(CENSUS_LINES, subject.summary()))
    }

    fn place_among(&self, limit: usize, subject: Subject) -> Option<usize> {
        let wanted = subject.encode();
        self.slots.iter().take(limit).position(|slot| {
            // Only an empty line is written: the lines before it are read by every thread.
            let state = match slot.state.load(Ordering::Acquire) {
                EMPTY => slot.state.compare_exchange(
                    EMPTY,
                    CLAIMED,
                    Ordering::Acquire,
                    Ordering::Acquire,
                ),
                state => Err(state),
            };
            match state {
                Ok(_) => {
                    for (word, value) in slot.identity.iter().zip(wanted) {
                        word.store(value, Ordering::Relaxed);
                    }
                    slot.state.store(READY, Ordering::Release);
                    true
                }
                Err(READY) => slot.identity() == wanted,
                // Another thread is about to fill it. A duplicate line does no harm.
                Err(_) => false,
            }
        })
    }

    fn add(&self, place: usize) {
        if let Some(slot) = self.slots.get(place) {
            slot.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&self, place: usize) {
        if let Some(slot) = self.slots.get(place) {
            slot.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn subject(&self, place: usize) -> Option<Subject> {
        self.slots.get(place)?.line().map(|line| line.subject)
    }

    /// Publishes all lines to a new session.
    pub fn publish_all(era: &Era) {
        (0..CENSUS_LINES).for_each(|place| publish(era, place));
    }

    /// Every line that counts something.
    pub fn lines(&self) -> impl Iterator<Item = CensusLine> {
        self.slots.iter().filter_map(Slot::line).filter(|line| line.count > 0)
    }
}

/// Publishes the current state of a line of the kernel's, if there is a session. Lines of
/// accelerated sockets are not published: the engine knows its own.
fn publish(era: &Era, place: usize) {
    let line = era.census.slots.get(place).and_then(Slot::line);
    if let (Some(line), Some(attachment)) = (line, era.link.current())
        && line.subject.reason.is_some()
    {
        attachment.session.put_census_line(place, &line);
    }
}

/// A place in the census, or none.
#[derive(Debug, Default)]
pub(super) struct Counted(AtomicU32);

impl Counted {
    fn get(&self) -> Option<usize> {
        (self.0.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    fn swap(&self, place: usize) -> Option<usize> {
        (self.0.swap(place as u32 + 1, Ordering::Relaxed) as usize).checked_sub(1)
    }
}

/// The reason why an attempt to attach failed.
pub(super) fn absence_of(error: &AttachError) -> Reason {
    match error {
        AttachError::NoEngine(..) => Reason::NoEngine,
        AttachError::NotServed => Reason::User,
        AttachError::Refused { contract, .. } if *contract != CONTRACT_VERSION => Reason::Version,
        AttachError::Refused { .. } => Reason::SessionRefused,
        AttachError::Silent(_) | AttachError::Control(_) => Reason::NotAnEngine,
        AttachError::Grant(_) | AttachError::Region(_) | AttachError::System(_) => {
            Reason::SessionFailed
        }
    }
}

/// The reason for a socket that the engine refused with this error.
pub(super) fn refusal_of(errno: Errno) -> Reason {
    match errno {
        LEFT_BY_LISTS => Reason::Lists,
        LEFT_TO_KERNEL => Reason::Withheld,
        errno => Reason::Refused(errno.raw_os_error() as u16),
    }
}

impl Sockets {
    /// The census of this process, for the report at its end.
    pub fn census(&self) -> impl Iterator<Item = CensusLine> {
        let era = if self.is_other_process() { None } else { self.era() };
        era.into_iter().flat_map(|era| era.census.lines())
    }

    /// The program's name, as `outboard ss` has it.
    pub fn program(&self) -> &str {
        &self.config.program
    }

    /// Counts the TCP and UDP sockets that the program was started with and that the layer does not
    /// track, among the first `numbers` descriptors.
    pub fn count_passed(&self, numbers: RawFd) {
        let Some(era) = self.era() else { return };
        for fd in 0..numbers {
            let option = |name| self.kernel.option(fd, libc::SOL_SOCKET, name);
            if !matches!(option(libc::SO_DOMAIN), Ok(libc::AF_INET | libc::AF_INET6)) {
                continue;
            }
            let kind = match option(libc::SO_PROTOCOL) {
                Ok(libc::IPPROTO_UDP) => Kind::UdpBound,
                Ok(libc::IPPROTO_TCP) if option(libc::SO_ACCEPTCONN) == Ok(1) => Kind::Listener,
                Ok(libc::IPPROTO_TCP) => Kind::Tcp,
                _ => continue,
            };
            let local = self.kernel.local(fd).ok().map(plain);
            if kind == Kind::Listener && !local.is_some_and(|local| is_kernels(local.ip())) {
                // It is tracked, and counted when it is passed.
                continue;
            }
            let address = local.filter(|_| kind != Kind::Tcp);
            self.add(era, Subject { kind, address, reason: Some(Reason::Passed) });
        }
    }

    /// Counts a socket that is not tracked.
    pub(super) fn count(&self, era: &Era, kind: Kind, reason: Reason) {
        let subject = Subject { kind, address: None, reason: Some(reason) };
        self.add(era, subject);
    }

    fn add(&self, era: &Era, subject: Subject) {
        if let Some(place) = era.census.place(subject) {
            era.census.add(place);
            publish(era, place);
        }
    }

    /// Counts a socket, and removes it from the line in which it was counted before.
    pub(super) fn count_socket(
        &self,
        era: &Era,
        socket: &Socket,
        (kind, address): (Kind, Option<SocketAddr>),
        reason: Option<Reason>,
    ) {
        let subject = Subject { kind, address: address.map(plain), reason };
        let Some(place) = era.census.place(subject) else { return };
        let before = socket.counted.swap(place);
        if before == Some(place) {
            return;
        }
        if let Some(before) = before {
            era.census.take(before);
            publish(era, before);
        }
        era.census.add(place);
        publish(era, place);
    }

    /// Counts a socket again, under the same kind and address.
    pub(super) fn recount(&self, era: &Era, socket: &Socket, reason: Option<Reason>) {
        let counted = socket.counted.get().and_then(|place| era.census.subject(place));
        let (kind, address) = match counted {
            Some(subject) => (subject.kind, subject.address),
            None if socket.stream => (Kind::Tcp, None),
            None => (Kind::Udp, None),
        };
        self.count_socket(era, socket, (kind, address), reason);
    }

    /// Whether a socket is counted.
    pub(super) fn is_counted(socket: &Socket) -> bool {
        socket.counted.get().is_some()
    }

    /// Counts a connection accepted through the engine.
    pub(super) fn count_accepted(&self, era: &Era, listener: &Socket) {
        let place = listener.counted_accepted.get().or_else(|| {
            let place = era.census.place(self.accepted_at(era, listener, None))?;
            listener.counted_accepted.swap(place);
            Some(place)
        });
        if let Some(place) = place {
            era.census.add(place);
        }
    }

    /// Counts a connection accepted through the kernel.
    pub(super) fn count_accepted_from_kernel(&self, era: &Era, listener: &Socket) {
        let subject = listener.counted.get().and_then(|place| era.census.subject(place));
        // If the engine serves the listener, the peer arrived at another interface.
        let reason = match subject {
            Some(Subject { reason: Some(reason), .. }) => reason,
            _ => Reason::OtherInterface,
        };
        self.add(era, self.accepted_at(era, listener, Some(reason)));
    }

    fn accepted_at(&self, era: &Era, listener: &Socket, reason: Option<Reason>) -> Subject {
        let subject = listener.counted.get().and_then(|place| era.census.subject(place));
        let address = subject.and_then(|subject| subject.address);
        Subject { kind: Kind::Accepted, address, reason }
    }

    /// The reason why the engine does not reach an address; without an attachment, why there is
    /// none.
    pub(super) fn why_not(&self, era: &Era, attachment: Option<&Attachment>, to: IpAddr) -> Reason {
        if is_kernels(to) || to.is_unspecified() {
            return Reason::Loopback;
        }
        match attachment {
            Some(attachment) => attachment.session.why_not_reached(to),
            None => era.link.absence(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(port: u16) -> Subject {
        let address = Some(SocketAddr::from(([192, 0, 2, 1], port)));
        Subject { kind: Kind::Opened, address, reason: Some(Reason::NoRoute) }
    }

    #[test]
    fn more_addresses_than_there_are_lines_are_counted_together() {
        let census = Census::new();
        for port in 0..1000 {
            census.add(census.place(opened(port)).expect("a line"));
        }
        let lines: Vec<_> = census.lines().collect();
        assert_eq!(lines.len(), ADDRESSED_LINES + 1);
        assert_eq!(lines.iter().map(|line| line.count).sum::<u64>(), 1000);
        let rest = lines.iter().find(|line| line.subject.address.is_none()).expect("the rest");
        assert_eq!(rest.count, 1000 - ADDRESSED_LINES as u64);
    }

    #[test]
    fn threads_that_count_at_once_lose_nothing() {
        let census = Census::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for port in 0..10_000_u16 {
                        census.add(census.place(opened(port % 40)).expect("a line"));
                    }
                });
            }
        });
        assert_eq!(census.lines().map(|line| line.count).sum::<u64>(), 40_000);
    }
}
