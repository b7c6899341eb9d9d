//! The kernel tells when sockets that programs have shown are closed for the last time, also by
//! SIGKILL: with the socket ends the right to its port, whatever the program that showed it still
//! holds of the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, recv, send};

use super::authority::Purpose;
use crate::diag::{self, Message};

/// SKNLGRP_INET_TCP_DESTROY, .._UDP_.., SKNLGRP_INET6_TCP_DESTROY, .._UDP_.. of
/// `linux/sock_diag.h`, as a mask.
const GROUPS: u32 = 0b1111;

/// Messages taken at a time.
const BATCH: usize = 64;

/// Room for those that come in a burst; the kernel allows at most `net.core.rmem_max` of it.
const BACKLOG_BYTES: usize = 4 << 20;

/// Answers taken at a time while the kernel's sockets are looked through, and the pause between.
const LOOK_BATCH: usize = 8;
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// Least time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// TCP_CLOSE, in which UDP sockets are, and TCP_LISTEN.
const UDP_STATES: u32 = 1 << 7 | 1 << 1;
const TCP_STATES: u32 = 1 << 10;

/// The sockets that were shown, and the kernel's news of sockets that are no more.
pub struct ClosedSockets {
    news: OwnedFd,
    /// Cookies, and whether a look would find the socket while it lives: older kernels list no TCP
    /// socket that is only bound. Those are told by news alone.
    shown: BTreeMap<u64, bool>,
    /// News was lost: those that are shown are to be looked for.
    is_stale: bool,
    look: Option<Look>,
    /// No look begins before.
    next_look: Option<Instant>,
    /// A look has failed, and it has been said.
    has_failed: bool,
}

/// A look through all of the kernel's sockets for those that are shown. The kernel lists them by
/// places in tables and may leave one out when others come and go meanwhile; whoever is missing
/// is looked for a second time.
struct Look {
    asker: OwnedFd,
    /// Not found yet.
    missing: BTreeSet<u64>,
    /// Which of [`diag::KINDS`] the kernel has been asked for.
    kind: usize,
    is_second: bool,
}

/// What a look brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Cookies of shown sockets that are gone.
    pub cookies: Vec<u64>,
    /// The kernel had to drop news.
    pub missed: bool,
}

impl ClosedSockets {
    /// Listens to the kernel's news of the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel has no such news, or no descriptor is left.
    pub fn open() -> rustix::io::Result<Self> {
        let news = diag::socket(SocketFlags::NONBLOCK, GROUPS)?;
        // Less room is given by a kernel that allows less.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&news, BACKLOG_BYTES);
        let shown = BTreeMap::new();
        Ok(Self { news, shown, is_stale: false, look: None, next_look: None, has_failed: false })
    }

    /// Readable when there is news.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// From now on the end of the socket with this cookie is told by [`ClosedSockets::take`].
    pub fn watch(&mut self, cookie: u64, purpose: Purpose) {
        self.shown.insert(cookie, purpose != Purpose::Connect);
    }

    /// How long until [`Self::take`] is to be called also without news; `None` when not at all.
    pub fn due(&self) -> Option<Duration> {
        if self.look.is_some() {
            return Some(LOOK_PAUSE);
        }
        let left = |then: Instant| then.saturating_duration_since(Instant::now());
        self.is_stale.then(|| self.next_look.map_or(Duration::ZERO, left))
    }

    /// Takes news without blocking; bounded, so that a machine that closes many sockets of the
    /// kernel's does not keep the thread.
    pub fn take(&mut self) -> Closed {
        let mut closed = Closed::default();
        let mut buffer = [0u8; 8192];
        for _ in 0..BATCH {
            match recv(&self.news, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((_, len)) => {
                    let shown = &mut self.shown;
                    let cookies = cookies(buffer.get(..len).unwrap_or_default());
                    closed.cookies.extend(cookies.filter(|one| shown.remove(one).is_some()));
                }
                Err(Errno::NOBUFS) => closed.missed = true,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.is_stale |= closed.missed;
        self.look_on(&mut closed);
        closed
    }

    /// Takes the next steps of a look, and begins one where it is time.
    fn look_on(&mut self, closed: &mut Closed) {
        if self.look.is_none() && self.due().is_some_and(|due| due.is_zero()) {
            let all = self.shown.iter().filter(|(_, is_listed)| **is_listed);
            self.is_stale = false;
            self.look = Look::begin(all.map(|(cookie, _)| *cookie).collect(), false);
            self.next_look = Some(Instant::now() + LOOK_EVERY);
            // Without a descriptor it is tried again.
            self.is_stale = self.look.is_none();
        }
        let Some(look) = &mut self.look else { return };
        match look.go_on() {
            Ok(false) => {}
            Ok(true) if look.is_second => {
                let gone = std::mem::take(&mut look.missing).into_iter();
                closed.cookies.extend(gone.filter(|one| self.shown.remove(one).is_some()));
                self.look = None;
            }
            Ok(true) => {
                let missing = std::mem::take(&mut look.missing);
                let is_over = missing.is_empty();
                self.look = if is_over { None } else { Look::begin(missing, true) };
                self.is_stale |= !is_over && self.look.is_none();
            }
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!("the kernel cannot list its sockets, trying on: {error}");
                }
                (self.look, self.is_stale) = (None, true);
            }
        }
    }
}

impl Look {
    fn begin(missing: BTreeSet<u64>, is_second: bool) -> Option<Self> {
        let asker = diag::socket(SocketFlags::NONBLOCK, 0).ok()?;
        let look = Self { asker, missing, kind: 0, is_second };
        look.ask().is_ok().then_some(look)
    }

    fn ask(&self) -> rustix::io::Result<()> {
        let Some((family, protocol)) = diag::KINDS.get(self.kind) else { return Ok(()) };
        let states = if *protocol == diag::TCP { TCP_STATES } else { UDP_STATES };
        send(&self.asker, &diag::request(*family, *protocol, states), SendFlags::empty())
            .map(|_| ())
    }

    /// Takes some answers. `true`: all there are.
    fn go_on(&mut self) -> rustix::io::Result<bool> {
        let mut buffer = [0u8; 32 << 10];
        for _ in 0..LOOK_BATCH {
            let Some((family, _)) = diag::KINDS.get(self.kind) else { return Ok(true) };
            let len = match recv(&self.asker, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((_, len)) => len,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            };
            for message in diag::messages(buffer.get(..len).unwrap_or_default()) {
                match message {
                    Message::Socket(socket) => {
                        diag::cookie(socket).map(|cookie| self.missing.remove(&cookie));
                    }
                    // Without IPv6 there is nothing to list.
                    Message::Failed(Errno::NOENT | Errno::AFNOSUPPORT) if *family == diag::V6 => {
                        self.kind += 1;
                        self.ask()?;
                    }
                    Message::Failed(error) => return Err(error),
                    Message::Done => {
                        self.kind += 1;
                        self.ask()?;
                    }
                }
            }
        }
        Ok(false)
    }
}

/// The cookies in a series of messages.
fn cookies(messages: &[u8]) -> impl Iterator<Item = u64> {
    diag::messages(messages).filter_map(|message| match message {
        Message::Socket(socket) => diag::cookie(socket),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::net::sockopt::socket_cookie;

    use super::*;

    #[test]
    fn the_last_close_of_a_shown_socket_is_told() {
        let mut sockets = ClosedSockets::open().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let copy = listener.try_clone().unwrap();
        let mut expected =
            vec![socket_cookie(&listener).unwrap(), socket_cookie(&datagrams).unwrap()];
        expected.iter().for_each(|cookie| sockets.watch(*cookie, Purpose::Listen));
        drop(listener);
        assert_eq!(sockets.take().cookies, []);
        drop((copy, datagrams));
        let mut found = Vec::new();
        while found.len() < 2 {
            poll(&mut [PollFd::new(&sockets.fd(), PollFlags::IN)], None).unwrap();
            found.extend(sockets.take().cookies);
        }
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_ended_while_news_was_lost_is_found_by_looking() {
        let mut sockets = ClosedSockets::open().unwrap();
        let kept = (
            TcpListener::bind("127.0.0.1:0").unwrap(),
            TcpListener::bind("[::]:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        let cookies = [socket_cookie(&kept.0), socket_cookie(&kept.1), socket_cookie(&kept.2)];
        cookies.into_iter().for_each(|cookie| sockets.watch(cookie.unwrap(), Purpose::Udp));
        // Never was a socket's; and that of a socket which is only bound is not judged.
        sockets.watch(u64::MAX, Purpose::Listen);
        sockets.watch(u64::MAX - 1, Purpose::Connect);
        assert_eq!((sockets.take(), sockets.due()), (Closed::default(), None));
        sockets.is_stale = true;
        let mut found = Vec::new();
        while sockets.due().is_some() {
            found.extend(sockets.take().cookies);
        }
        assert_eq!(found, [u64::MAX]);
        assert_eq!(sockets.shown.len(), 4);
        drop(kept);
    }
}
