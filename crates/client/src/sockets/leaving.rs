//! Connections that another program gets: over exec, over posix_spawn, or by a message. They are
//! converted to kernel sockets beforehand.

use std::os::fd::{IntoRawFd, RawFd};
use std::sync::atomic::Ordering;

use super::heritage::Inherited;
use super::notices::Notice;
use super::table::Entry;
use super::{Era, Errno, Sockets, process_id};

/// Maximum number of descriptors made by vfork children. Beyond, a child starts its program without
/// them.
const BORROWED_MAX: usize = 64;

/// A number that a vfork child has made from one of its parent's.
#[derive(Debug)]
pub(super) struct Borrowed {
    process: u32,
    fd: RawFd,
    entry: Entry,
    identity: u64,
}

/// Whether the descriptor is standard input, output or error, which every program may use.
fn is_standard(fd: RawFd) -> bool {
    (libc::STDIN_FILENO..=libc::STDERR_FILENO).contains(&fd)
}

/// Another program that is about to start.
pub struct Departure<'a> {
    /// Tells of a descriptor that is open on exec.
    pub is_inherited: &'a dyn Fn(RawFd) -> bool,
    /// Numbers that the program is told.
    pub named: &'a [RawFd],
    /// The program will run with the library.
    pub has_library: bool,
    /// This process becomes it.
    pub becomes: bool,
}

impl Departure<'_> {
    /// Whether the program is expected to use a number: of one that starts beside this process, that is
    /// its standard input, output and errors, and what it is told.
    fn takes(&self, fd: RawFd) -> bool {
        (self.becomes || is_standard(fd) || self.named.contains(&fd)) && (self.is_inherited)(fd)
    }

    /// The same of an epoll set. One that nobody has closed must not take the connections of a whole server with it.
    fn takes_set(&self, fd: RawFd) -> bool {
        self.named.contains(&fd) && (self.is_inherited)(fd)
    }
}

impl Sockets {
    /// Another program is about to start. Connections and listeners that it inherits are made ready for it;
    /// of one that starts beside this process, as far as it is expected to use them. Others are made ready by
    /// [`Sockets::hand_over`].
    pub fn leaving(&self, departure: &Departure<'_>) {
        let &Departure { is_inherited, has_library, becomes, .. } = departure;
        let Some(era) = self.era() else { return };
        let is_borrower = self.is_other_process();
        for fd in era.table.occupied(0, u32::MAX) {
            match era.table.with(fd, Entry::share) {
                Some(Entry::Socket(socket)) if socket.is_listening() && is_inherited(fd) => {
                    self.pass_listener(fd, &socket, has_library);
                }
                _ if is_borrower => (),
                Some(Entry::Socket(socket)) if socket.connection().is_some() => {
                    drop(socket);
                    if departure.takes(fd) {
                        // Where it cannot be had, a line has been logged.
                        let _ = self.hand_over(fd);
                    }
                }
                Some(Entry::Epoll(epoll)) if departure.takes_set(fd) => {
                    self.hand_over_set(era, &epoll);
                }
                Some(Entry::Foreign(inherited @ Inherited { heirloom: Some(_), .. })) => {
                    drop(inherited);
                    let _ = is_inherited(fd).then(|| self.hand_over(fd));
                }
                Some(Entry::Foreign(Inherited { service: Some(service), .. })) => {
                    if becomes && is_standard(fd) && is_inherited(fd) {
                        self.hand_off(era, service);
                    } else {
                        self.release_service(era, service);
                    }
                }
                _ => (),
            }
        }
        if is_borrower && becomes {
            self.leave_borrower(era, is_inherited);
        }
    }

    /// A vfork child, which has its parent's memory but its own descriptors, has made a number. Its
    /// program may use it.
    pub(super) fn note_borrowed(&self, era: &Era, old: RawFd, new: RawFd) {
        // Another thread's child may hold the lock: a child never waits for it.
        let Ok(mut borrowed) = era.borrowed.try_lock() else { return };
        let process = process_id();
        let made = borrowed.iter().find(|one| (one.process, one.fd) == (process, old));
        let made = made.map(|one| (one.entry.share(), one.identity));
        let of =
            made.or_else(|| Some((era.table.with(old, Entry::share)?, era.table.identity(old))));
        borrowed.retain(|one| (one.process, one.fd) != (process, new));
        if let Some((entry, identity)) = of
            && borrowed.len() < BORROWED_MAX
        {
            borrowed.push(Borrowed { process, fd: new, entry, identity });
        }
    }

    /// A vfork child becomes a program: connections under its numbers become kernel sockets, only
    /// there. For the parent the child counts as another holder.
    fn leave_borrower(&self, era: &Era, is_inherited: &dyn Fn(RawFd) -> bool) {
        let process = process_id();
        let mut left: Vec<(RawFd, Entry)> = Vec::new();
        if let Ok(mut borrowed) = era.borrowed.try_lock() {
            for one in borrowed.extract_if(.., |one| one.process == process) {
                if self.identity(one.fd) == one.identity {
                    left.push((one.fd, one.entry));
                }
            }
        }
        for fd in era.table.occupied(0, u32::MAX) {
            let is_made = left.iter().any(|(made, _)| *made == fd);
            if !is_made
                && self.identity(fd) == era.table.identity(fd)
                && let Some(entry) = era.table.with(fd, Entry::share)
            {
                left.push((fd, entry));
            }
        }
        for (fd, entry) in left {
            if is_inherited(fd)
                && let Some(outcome) = self.ticket_for_borrower(&entry)
            {
                let placed = outcome.and_then(|ticket| {
                    let placed = self.kernel.replace(ticket, fd);
                    self.kernel.close(ticket);
                    placed
                });
                match placed {
                    Ok(()) => self.show_borrowed(&entry, fd),
                    Err(errno) => self.notice_passed(fd, errno),
                }
            }
        }
    }

    /// Sets that wait for a connection, and that the child has, too, wait for its socket.
    fn show_borrowed(&self, entry: &Entry, fd: RawFd) {
        let Entry::Socket(socket) = entry else { return };
        for (epoll, number, event) in socket.interests() {
            if number == fd {
                let _ = self.kernel.epoll_ctl(epoll.number(), libc::EPOLL_CTL_ADD, fd, event);
            }
        }
    }

    /// The number of a kernel socket for a vfork child; `None` if the entry is not a connection.
    fn ticket_for_borrower(&self, entry: &Entry) -> Option<Result<RawFd, Errno>> {
        let ticket = match entry {
            Entry::Socket(socket) => {
                let connection = socket.connection()?;
                self.has_heirs.store(true, Ordering::Relaxed);
                let session = &connection.attachment.session;
                let keeping = session.fork().map_err(|error| error.errno);
                keeping.and_then(|mut keeping| {
                    let endpoint = connection.endpoint.id().0;
                    let ticket = keeping.pass(endpoint, socket.v6).map_err(|error| error.errno);
                    self.kernel.close(keeping.into_fd().into_raw_fd());
                    let ticket = ticket?;
                    self.ready_ticket(socket, ticket)
                })
            }
            Entry::Foreign(Inherited { heirloom: Some(heirloom), .. }) => {
                self.ticket_of_heirloom(heirloom)
            }
            _ => return None,
        };
        Some(ticket)
    }

    /// Logs once that a connection could not be passed to another process.
    pub(super) fn notice_passed(&self, fd: RawFd, errno: Errno) {
        self.notice(Notice::Passed, || {
            format!(
                "descriptor {fd}, an accelerated connection, cannot be passed to another process: \
                 {errno}; the engine needs a relay (relay = true in its configuration)"
            )
        });
    }
}
