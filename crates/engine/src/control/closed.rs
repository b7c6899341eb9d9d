//! The kernel tells when sockets that programs have shown are closed for the last time, also by
//! SIGKILL: with the socket ends the right to its port, whatever the program that showed it still
//! holds of the engine.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// SKNLGRP_INET_TCP_DESTROY, .._UDP_.., SKNLGRP_INET6_TCP_DESTROY, .._UDP_.. of
/// `linux/sock_diag.h`, as a mask.
const GROUPS: u32 = 0b1111;

/// SOCK_DIAG_BY_FAMILY of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;

/// `struct nlmsghdr`: length u32, type u16 and ten bytes more.
const HEADER: usize = 16;

/// Where the cookie lies in the `struct inet_diag_msg` behind it.
const COOKIE: usize = 44;

/// Messages taken at a time.
const BATCH: usize = 64;

/// Room for those that come in a burst; the kernel allows at most `net.core.rmem_max` of it.
const BACKLOG_BYTES: usize = 4 << 20;

/// The sockets that were shown, and the kernel's news of sockets that are no more.
pub struct ClosedSockets {
    news: OwnedFd,
    shown: BTreeSet<u64>,
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
    pub fn open() -> rustix::io::Result<Self> {
        let news = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            Some(netlink::SOCK_DIAG),
        )?;
        // Less room is given by a kernel that allows less.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&news, BACKLOG_BYTES);
        bind(&news, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { news, shown: BTreeSet::new() })
    }

    /// Readable when there is news.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// From now on the end of the socket with this cookie is told by [`ClosedSockets::take`].
    pub fn watch(&mut self, cookie: u64) {
        self.shown.insert(cookie);
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
                    closed.cookies.extend(cookies.filter(|cookie| shown.remove(cookie)));
                }
                Err(Errno::NOBUFS) => closed.missed = true,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        closed
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The cookies in a series of messages.
fn cookies(mut messages: &[u8]) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        loop {
            let len = u32::from_ne_bytes(field(messages, 0)?) as usize;
            let kind = u16::from_ne_bytes(field(messages, 4)?);
            let message = messages.get(..len).filter(|message| message.len() >= HEADER)?;
            messages = messages.get(len.next_multiple_of(4)..).unwrap_or_default();
            // Two words, the lower one first.
            let cookie =
                field::<4>(message, HEADER + COOKIE).zip(field(message, HEADER + COOKIE + 4));
            if let Some((low, high)) = cookie.filter(|_| kind == BY_FAMILY) {
                return Some(
                    u64::from(u32::from_ne_bytes(high)) << 32 | u64::from(u32::from_ne_bytes(low)),
                );
            }
        }
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
        expected.iter().for_each(|cookie| sockets.watch(*cookie));
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
    fn whatever_a_message_says_about_its_length_ends_in_bounds() {
        for len in [0u32, 3, 15, 16, 17, 60, 68, 200, u32::MAX] {
            let mut bytes = vec![0u8; 80];
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
            assert!(cookies(&bytes).count() <= 5, "{len}");
        }
    }
}
