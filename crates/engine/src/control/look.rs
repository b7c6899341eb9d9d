//! A pass over the kernel's TCP and UDP sockets.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket_with};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, bind, recv, send};

use crate::diag::{self, Message, Row};

/// TCP_LISTEN.
pub(super) const LISTEN: u8 = 10;
/// TCP_ESTABLISHED, also the state of a connected UDP socket.
pub(super) const ESTABLISHED: u8 = 1;
/// TCP_CLOSE, the state of other UDP sockets.
const CLOSE: u8 = 7;
/// TCP_BOUND_INACTIVE: TCP sockets that are bound only (Linux 6.8).
const BOUND: u8 = 13;

const UDP_STATES: u32 = 1 << CLOSE | 1 << ESTABLISHED;
const LISTEN_STATES: u32 = 1 << LISTEN;
const BOUND_STATES: u32 = 1 << BOUND;

/// Batches of rows that a pass over a single port may take: more than a million sockets.
const PORT_BATCHES: usize = 4096;

/// The requests to the kernel, one after the other.
#[derive(Clone, Copy, Debug)]
struct Question {
    family: u8,
    protocol: u8,
    states: u32,
}

/// A pass in progress.
pub(super) struct Look {
    asker: OwnedFd,
    port: Option<u16>,
    left: Vec<Question>,
}

impl Look {
    /// Starts a pass over the sockets of these protocols, at all ports or at one. `lists_bound`:
    /// the kernel lists TCP sockets that are bound only.
    pub(super) fn begin(
        protocols: &[u8],
        port: Option<u16>,
        lists_bound: bool,
    ) -> rustix::io::Result<Self> {
        let mut left = Vec::with_capacity(6);
        for &(family, protocol) in &diag::KINDS {
            if !protocols.contains(&protocol) {
                continue;
            }
            let states = if protocol == diag::UDP { UDP_STATES } else { LISTEN_STATES };
            left.push(Question { family, protocol, states });
            if protocol == diag::TCP && lists_bound {
                left.push(Question { family, protocol, states: BOUND_STATES });
            }
        }
        let look = Self { asker: diag::socket(SocketFlags::NONBLOCK, 0)?, port, left };
        look.ask()?;
        Ok(look)
    }

    fn ask(&self) -> rustix::io::Result<()> {
        let Some(next) = self.left.last() else { return Ok(()) };
        let request = diag::request(next.family, next.protocol, next.states, self.port);
        send(&self.asker, &request, SendFlags::empty()).map(|_| ())
    }

    fn answered(&mut self) -> rustix::io::Result<()> {
        self.left.pop();
        self.ask()
    }

    /// Takes at most this many batches of rows, each with its protocol. `true`: the pass is
    /// complete.
    pub(super) fn go_on(
        &mut self,
        batches: usize,
        mut see: impl FnMut(u8, &Row),
    ) -> rustix::io::Result<bool> {
        let mut buffer = [0u8; 32 << 10];
        for _ in 0..batches {
            let Some(&Question { family, protocol, .. }) = self.left.last() else {
                return Ok(true);
            };
            let len = match recv(&self.asker, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((_, len)) => len,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            };
            for message in diag::messages(buffer.get(..len).unwrap_or_default()) {
                match message {
                    Message::Socket(socket) => {
                        if let Some(row) = Row::read(socket) {
                            see(protocol, &row);
                        }
                    }
                    // Without IPv6 there is nothing to list.
                    Message::Failed(Errno::NOENT | Errno::AFNOSUPPORT) if family == diag::V6 => {
                        self.answered()?;
                    }
                    Message::Failed(error) => return Err(error),
                    Message::Done => self.answered()?,
                }
            }
        }
        Ok(self.left.is_empty())
    }
}

/// The kernel's sockets of a protocol at one port, at once. The kernel builds the list during the
/// request, so this does not wait.
///
/// # Errors
/// If the kernel refuses, or has more of them than the bound.
pub(super) fn at_port(
    protocol: u8,
    port: u16,
    lists_bound: bool,
    matters: impl Fn(&Row) -> bool,
) -> rustix::io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut look = Look::begin(&[protocol], Some(port), lists_bound)?;
    let is_whole = look.go_on(PORT_BATCHES, |_, row| {
        if row.local.port() == port && matters(row) {
            rows.push(*row);
        }
    })?;
    if is_whole { Ok(rows) } else { Err(Errno::TOOBIG) }
}

/// Whether the kernel lists TCP sockets that are bound only.
pub(super) fn lists_bound() -> rustix::io::Result<bool> {
    let probe = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&probe, &std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0))?;
    let cookie = rustix::net::sockopt::socket_cookie(&probe)?;
    let local = rustix::net::getsockname(&probe)?;
    let port = std::net::SocketAddr::try_from(local).map_or(0, |local| local.port());
    let found = at_port(diag::TCP, port, true, |row| row.cookie == cookie)?;
    Ok(!found.is_empty())
}
