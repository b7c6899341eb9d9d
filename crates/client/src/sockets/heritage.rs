//! Connections that a forked child inherits. The child holds them by a control connection of its
//! own, created before fork(2) returned, and does nothing with them until it uses one. That
//! connection then becomes a kernel socket, a *ticket*, by way of the engine's relay.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{Shutdown, shutdown};
use shm::census::{Kind, Reason};

use super::epoll::Epoll;
use super::kept::Settings;
use super::sharing::Service;
use super::socket::{Socket, held};
use super::table::Entry;
use super::{Era, Errno, Sockets};
use crate::open::{Keeping, Ticket};

/// A child's hold on its parent's connections, by its control connection.
#[derive(Debug)]
pub(super) struct Heritage {
    fd: RawFd,
    keeping: Mutex<Option<Keeping>>,
}

/// One inherited connection; its table entries hold it.
#[derive(Debug)]
pub(super) struct Heirloom {
    heritage: Arc<Heritage>,
    /// Its endpoint in the session that opened it.
    endpoint: u32,
    settings: Settings,
    /// Held while it becomes a ticket.
    passing: Mutex<()>,
}

/// State of an inherited connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Inherited {
    /// The listener that accepted it, if this process has it, too.
    pub service: Option<Arc<Service>>,
    /// How it can be used, if the engine has a relay.
    pub heirloom: Option<Arc<Heirloom>>,
}

impl Inherited {
    fn is_of(&self, heirloom: &Arc<Heirloom>) -> bool {
        self.heirloom.as_ref().is_some_and(|other| Arc::ptr_eq(other, heirloom))
    }
}

/// Control connections that a forking thread has requested for its child.
#[derive(Default)]
struct Bequest {
    /// For the connections of the current session.
    own: Option<Keeping>,
    /// For connections that this process has inherited itself.
    inherited: Vec<(Arc<Heritage>, Keeping)>,
}

thread_local! {
    static BEQUEST: RefCell<Bequest> = RefCell::default();
}

/// The child's side of a [`Bequest`].
pub(super) struct Will {
    own: Option<Arc<Heritage>>,
    inherited: Vec<(Arc<Heritage>, Arc<Heritage>)>,
}

impl Will {
    /// The child's state of a connection of the parent.
    pub fn of_connection(&self, socket: &Socket) -> Option<Arc<Heirloom>> {
        let connection = socket.connection()?;
        Some(Arc::new(Heirloom {
            heritage: self.own.clone()?,
            endpoint: connection.endpoint.id().0,
            settings: Settings::of_parents(socket).of_connection(),
            passing: Mutex::new(()),
        }))
    }

    /// The child's state of a connection that the parent has inherited.
    pub fn of_heirloom(&self, parents: &Arc<Heirloom>) -> Option<Arc<Heirloom>> {
        let is_it =
            |(old, _): &&(Arc<Heritage>, Arc<Heritage>)| Arc::ptr_eq(old, &parents.heritage);
        let (_, heritage) = self.inherited.iter().find(is_it)?;
        Some(Arc::new(Heirloom {
            heritage: heritage.clone(),
            endpoint: parents.endpoint,
            settings: parents.settings.clone(),
            passing: Mutex::new(()),
        }))
    }
}

impl Sockets {
    /// Before fork(2): the child's control connections are created, so that the child keeps its
    /// connections whatever this process does next.
    pub fn bequeath(&self) {
        if self.is_other_process() {
            return;
        }
        let Some(era) = self.era() else { return };
        let mut bequest = Bequest::default();
        if let Some(attachment) = era.link.current()
            && attachment.connections.load(Ordering::Relaxed) > 0
        {
            // An engine without a relay refuses; the child gets the error when it uses a
            // connection.
            bequest.own = attachment.session.fork().ok();
            self.has_heirs.fetch_or(bequest.own.is_some(), Ordering::Relaxed);
        }
        for fd in era.table.occupied(0, u32::MAX) {
            let heritage = era.table.with(fd, |entry| match entry {
                Entry::Foreign(Inherited { heirloom: Some(heirloom), .. }) => {
                    Some(heirloom.heritage.clone())
                }
                _ => None,
            });
            if let Some(Some(heritage)) = heritage
                && !bequest.inherited.iter().any(|(other, _)| Arc::ptr_eq(other, &heritage))
                && let Some(keeping) = heritage.fork()
            {
                bequest.inherited.push((heritage, keeping));
            }
        }
        // A thread that is ending does not fork.
        let _ = BEQUEST.try_with(|place| place.replace(bequest));
    }

    /// After fork(2) in the parent: the child has its own copies.
    pub(super) fn forget_bequest(&self) {
        let bequest = BEQUEST.try_with(|place| place.take()).unwrap_or_default();
        let inherited = bequest.inherited.into_iter().map(|(_, keeping)| keeping);
        for keeping in bequest.own.into_iter().chain(inherited) {
            self.kernel.close(keeping.into_fd().into_raw_fd());
        }
    }

    /// After fork(2) in the child.
    pub(super) fn take_bequest(&self, era: &Era) -> Will {
        let bequest = BEQUEST.try_with(|place| place.take()).unwrap_or_default();
        let settle = |keeping: Keeping| {
            let fd = keeping.raw_fd();
            self.hide(era, fd);
            Arc::new(Heritage { fd, keeping: Mutex::new(Some(keeping)) })
        };
        Will {
            own: bequest.own.map(settle),
            inherited: bequest
                .inherited
                .into_iter()
                .map(|(old, keeping)| (old, settle(keeping)))
                .collect(),
        }
    }

    /// Closes the control connection of a child without inherited connections.
    pub(super) fn drop_empty(&self, era: &Era, will: Will) {
        let inherited = will.inherited.into_iter().map(|(old, own)| {
            // The parent's is left untouched.
            std::mem::forget(old);
            own
        });
        for heritage in will.own.into_iter().chain(inherited) {
            self.release_heritage(era, heritage);
        }
    }

    /// Converts an inherited connection to a kernel socket, under all its numbers. `Ok(false)`: the
    /// number refers to none.
    pub(super) fn redeem(&self, era: &Era, fd: RawFd) -> Result<bool, Errno> {
        let found = era.table.with(fd, |entry| match entry {
            entry if entry.is_elsewhere() => Some(entry.share()),
            _ => None,
        });
        let heirloom = match found.flatten() {
            Some(Entry::Foreign(Inherited { heirloom: Some(heirloom), .. })) => heirloom,
            Some(Entry::Socket(socket)) => return self.redeem_own(era, &socket).map(|()| true),
            _ => return Ok(false),
        };
        let only = held(heirloom.passing.lock());
        let numbers: Vec<RawFd> = era
            .table
            .occupied(0, u32::MAX)
            .into_iter()
            .filter(|&number| {
                let is_of = |entry: &Entry| match entry {
                    Entry::Foreign(inherited) => inherited.is_of(&heirloom),
                    _ => false,
                };
                era.table.with(number, is_of) == Some(true)
            })
            .collect();
        if numbers.is_empty() {
            // Another thread was first.
            return Ok(true);
        }
        let ticket = heirloom.heritage.pass(heirloom.endpoint, heirloom.settings.v6)?;
        self.settle_ticket(era, ticket, &heirloom.settings, &numbers)?;
        self.show_in_sets(era, &numbers);
        drop(only);
        for _ in &numbers {
            self.count(era, Kind::Tcp, Reason::Inherited);
        }
        self.release_heirloom(era, heirloom);
        Ok(true)
    }

    /// A number is about to be passed to another process, by a message or by exec: a connection of
    /// the engine's becomes a kernel socket under all its numbers. Others are left as they are.
    ///
    /// # Errors
    /// EOPNOTSUPP if the engine has no relay, or the connection is not established yet.
    pub fn hand_over(&self, fd: RawFd) -> Result<(), Errno> {
        let Some(era) = self.era().filter(|_| !self.is_other_process()) else { return Ok(()) };
        let handed = match era.table.with(fd, Entry::share) {
            Some(Entry::Socket(socket)) if socket.is_listening() => {
                // The receiver tracks it, if it has the library.
                self.pass_listener(fd, &socket, true);
                Ok(())
            }
            Some(Entry::Socket(socket)) => match socket.connection() {
                Some(connection) if !connection.is_opened() => Err(Errno::OPNOTSUPP),
                Some(_) => {
                    self.has_heirs.store(true, Ordering::Relaxed);
                    self.redeem_own(era, &socket)
                }
                None => Ok(()),
            },
            Some(entry @ Entry::Foreign(_)) => {
                drop(entry);
                self.redeem(era, fd).and_then(|made| made.then_some(()).ok_or(Errno::OPNOTSUPP))
            }
            Some(Entry::Epoll(epoll)) => {
                self.hand_over_set(era, &epoll);
                Ok(())
            }
            Some(Entry::Internal) | None => Ok(()),
        };
        handed.inspect_err(|errno| self.notice_passed(fd, *errno))
    }

    /// A set is about to be passed to another process, for which the kernel's alone tells what is ready:
    /// the connections that it waits for become sockets of the kernel's.
    pub(super) fn hand_over_set(&self, era: &Era, epoll: &Epoll) {
        self.adopt_bequeathed(era, epoll);
        for socket in epoll.connections() {
            self.has_heirs.store(true, Ordering::Relaxed);
            // One that has ended waits for nothing more.
            let _ = self.redeem_own(era, &socket);
        }
    }

    /// A set that a child has from its parent waits for inherited connections: they become sockets of the
    /// kernel's, which it then holds.
    pub(super) fn adopt_bequeathed(&self, era: &Era, epoll: &Epoll) {
        for fd in epoll.bequeathed_numbers() {
            // Where it cannot be had, whoever uses the number is told why.
            let _ = self.redeem(era, fd);
        }
        epoll.forget_bequeathed();
    }

    /// Numbers have become sockets of the kernel's: sets that the parent has made wait for those.
    fn show_in_sets(&self, era: &Era, numbers: &[RawFd]) {
        for fd in era.table.occupied(0, u32::MAX) {
            let set = era.table.with(fd, |entry| match entry {
                Entry::Epoll(epoll) => Some(epoll.clone()),
                _ => None,
            });
            let Some(Some(epoll)) = set else { continue };
            for (number, event) in epoll.take_bequeathed(numbers) {
                // The parent may have put it there before.
                let _ = self.kernel.epoll_ctl(epoll.number(), libc::EPOLL_CTL_ADD, number, event);
            }
        }
    }

    /// A connection of this process becomes a socket of the kernel's.
    fn redeem_own(&self, era: &Era, socket: &Arc<Socket>) -> Result<(), Errno> {
        let Some(connection) = socket.connection() else { return Ok(()) };
        let _only = held(socket.passing.lock());
        let numbers = socket.numbers();
        let is_its = |entry: &Entry| match entry {
            Entry::Socket(other) => Arc::ptr_eq(other, socket),
            _ => false,
        };
        if !numbers.iter().any(|number| era.table.with(*number, is_its) == Some(true)) {
            // Another thread was first.
            return Ok(());
        }
        let session = &connection.attachment.session;
        let asked = session.pass(connection.endpoint.id().0, socket.v6);
        let ticket = asked.map_err(|error| error.errno)?;
        let interests = socket.interests();
        self.forget_interests(socket);
        self.unfollow_owner(socket);
        let settled =
            self.settle_ticket(era, ticket, &Settings::of(socket).of_connection(), &numbers);
        // The sets that waited for it wait for the ticket from now on.
        for (epoll, number, event) in interests {
            let _ = self.kernel.epoll_ctl(epoll.number(), libc::EPOLL_CTL_ADD, number, event);
        }
        settled
    }

    /// A ticket of an own connection for a vfork child, with the connection's settings.
    pub(super) fn ready_ticket(&self, socket: &Socket, ticket: Ticket) -> Result<RawFd, Errno> {
        self.ready(&Settings::of(socket).of_connection(), ticket)
    }

    /// The same for an inherited one.
    pub(super) fn ticket_of_heirloom(&self, heirloom: &Heirloom) -> Result<RawFd, Errno> {
        let mut keeping = heirloom.heritage.fork().ok_or(Errno::OPNOTSUPP)?;
        let ticket = keeping.pass(heirloom.endpoint, heirloom.settings.v6);
        self.kernel.close(keeping.into_fd().into_raw_fd());
        self.ready(&heirloom.settings, ticket.map_err(|error| error.errno)?)
    }

    /// The number of a ticket, with its options applied. SO_REUSEADDR stays: the relay creates
    /// other sockets with the same address.
    fn ready(&self, settings: &Settings, ticket: Ticket) -> Result<RawFd, Errno> {
        let Ticket { fd: ticket, is_fresh } = ticket;
        if is_fresh {
            rustix::io::ioctl_fionbio(&ticket, settings.nonblocking)?;
            self.restore(settings, ticket.as_raw_fd());
            if settings.is_deaf {
                // One that is reset has told its holders more than this.
                let _ = shutdown(&ticket, Shutdown::Read);
            }
            settings.told.restore(ticket.as_raw_fd(), self.kernel);
            if settings.told.is_asynchronous {
                let flags = OFlags::from_bits_retain(libc::O_ASYNC as u32);
                fcntl_setfl(&ticket, fcntl_getfl(&ticket)? | flags)?;
            }
        }
        Ok(ticket.into_raw_fd())
    }

    /// Whether heirs may have moved connections of this process.
    #[inline]
    pub(super) fn has_heirs(&self) -> bool {
        self.has_heirs.load(Ordering::Relaxed)
    }

    /// Converts ready connections that heirs have moved to tickets, whose readiness the kernel
    /// reports. Returns whether there were any.
    pub(super) fn redeem_ready(&self, era: &Era, fds: impl IntoIterator<Item = RawFd>) -> bool {
        let mut redeemed = false;
        for fd in fds {
            // If that fails, the next call on the number gets the error.
            redeemed |= era.table.with(fd, Entry::is_elsewhere) == Some(true)
                && self.redeem(era, fd) == Ok(true);
        }
        redeemed
    }

    /// Stores a ticket under numbers, which are the kernel's from now on.
    pub(super) fn settle_ticket(
        &self,
        era: &Era,
        ticket: Ticket,
        settings: &Settings,
        numbers: &[RawFd],
    ) -> Result<(), Errno> {
        let raw = self.ready(settings, ticket)?;
        let mut outcome = Ok(());
        for &number in numbers {
            outcome = self.kernel.replace(raw, number);
            if let Some(entry) = era.table.take(number) {
                self.let_go(era, number, entry, false);
            }
        }
        self.kernel.close(raw);
        outcome
    }

    /// Drops one reference; with the last one the process no longer holds the connection.
    pub(super) fn release_heirloom(&self, era: &Era, heirloom: Arc<Heirloom>) {
        let Some(Heirloom { heritage, endpoint, .. }) = Arc::into_inner(heirloom) else { return };
        heritage.release(endpoint);
        self.release_heritage(era, heritage);
    }

    fn release_heritage(&self, era: &Era, heritage: Arc<Heritage>) {
        if let Some(heritage) = Arc::into_inner(heritage) {
            if let Some(keeping) = held(heritage.keeping.into_inner()) {
                // Closed below, bypassing the program's own close.
                let _ = keeping.into_fd().into_raw_fd();
            }
            self.unhide_number(era, heritage.fd);
        }
    }
}

impl Heritage {
    fn fork(&self) -> Option<Keeping> {
        held(self.keeping.lock()).as_mut()?.fork().ok()
    }

    fn pass(&self, endpoint: u32, v6: bool) -> Result<Ticket, Errno> {
        let mut keeping = held(self.keeping.lock());
        let keeping = keeping.as_mut().ok_or(Errno::BADF)?;
        keeping.pass(endpoint, v6).map_err(|error| error.errno)
    }

    fn release(&self, endpoint: u32) {
        if let Some(keeping) = held(self.keeping.lock()).as_ref() {
            keeping.release(endpoint);
        }
    }
}
