//! Ports of connections that no longer have a kernel socket, because their listener or the socket
//! with which they were opened is closed. For the kernel such a port must stay in use as long as
//! there is a connection, TIME-WAIT included. A socket bound in place of the connections ensures
//! that.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

// Of `linux/in.h` and `linux/in6.h`.
const IPPROTO_IP: i32 = 0;
const IP_FREEBIND: i32 = 15;
const IPPROTO_IPV6: i32 = 41;
const IPV6_FREEBIND: i32 = 78;

/// A port to be held.
#[derive(Debug)]
struct Hold {
    /// SO_REUSEADDR of the sockets that it replaces.
    reuses: bool,
    /// One socket for all attempts to bind: the kernel notifies us of each destroyed socket, and
    /// that notification triggers the next attempt.
    socket: Option<OwnedFd>,
    is_bound: bool,
}

/// All held ports; the worker bounds their number.
#[derive(Debug, Default)]
pub(super) struct Holds(BTreeMap<SocketAddr, Hold>);

impl Holds {
    /// Holds the port from now on, or as soon as the program's own socket is closed.
    pub(super) fn hold(&mut self, local: SocketAddr, reuses: bool) {
        self.0.entry(local).or_insert(Hold { reuses, socket: None, is_bound: false });
        self.retry();
    }

    /// The last connection has ended, or a program's socket has the port again.
    pub(super) fn let_go(&mut self, local: SocketAddr) {
        self.0.remove(&local);
    }

    /// Tries again where another socket had the port, which may have been closed.
    pub(super) fn retry(&mut self) {
        self.0.retain(|local, hold| match hold.try_to_bind(*local) {
            // A port below 1024 needs a privilege that the engine has dropped.
            Err(error) => matches!(error, Errno::ADDRINUSE) || is_shortage(error),
            Ok(()) => true,
        });
    }

    /// The number of held ports.
    pub(super) fn count(&self) -> usize {
        self.0.values().filter(|hold| hold.is_bound).count()
    }

    /// Ports that other sockets have yet.
    pub(super) fn awaited(&self) -> usize {
        self.0.len() - self.count()
    }
}

impl Hold {
    fn try_to_bind(&mut self, local: SocketAddr) -> rustix::io::Result<()> {
        if self.is_bound {
            return Ok(());
        }
        if self.socket.is_none() {
            self.socket = Some(unbound(local.ip(), self.reuses)?);
        }
        if let Some(socket) = &self.socket {
            bind(socket, &local)?;
            self.is_bound = true;
        }
        Ok(())
    }
}

/// Whether the next attempt may succeed.
fn is_shortage(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
}

/// A TCP socket that can be bound to an address that only the engine has.
fn unbound(address: IpAddr, reuses: bool) -> rustix::io::Result<OwnedFd> {
    let (family, level, freebind) = match address {
        IpAddr::V4(_) => (AddressFamily::INET, IPPROTO_IP, IP_FREEBIND),
        IpAddr::V6(_) => (AddressFamily::INET6, IPPROTO_IPV6, IPV6_FREEBIND),
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    sockopt::set_socket_reuseaddr(&socket, reuses)?;
    port::sockets::set_option(socket.as_fd(), level, freebind, &1_i32.to_ne_bytes())
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use super::*;

    /// bind(2) with SO_REUSEADDR, or without it.
    fn binds(local: SocketAddr, reuses: bool) -> Result<(), Errno> {
        bind(&unbound(local.ip(), reuses)?, &local)
    }

    #[test]
    fn a_port_is_held_once_its_socket_is_closed_as_the_kernel_would_hold_it() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            for reuses in [false, true] {
                let listener = TcpListener::bind(address).unwrap();
                let local = listener.local_addr().unwrap();
                let mut holds = Holds::default();
                holds.hold(local, reuses);
                assert_eq!((holds.count(), holds.awaited()), (0, 1));
                let number =
                    |holds: &Holds| holds.0[&local].socket.as_ref().map(AsRawFd::as_raw_fd);
                let before = number(&holds);
                holds.retry();
                assert!(
                    before.is_some() && number(&holds) == before,
                    "an attempt destroys a socket"
                );
                drop(listener);
                holds.retry();
                assert_eq!((holds.count(), holds.awaited()), (1, 0));
                assert_eq!(binds(local, false), Err(Errno::ADDRINUSE));
                let expected = if reuses { Ok(()) } else { Err(Errno::ADDRINUSE) };
                assert_eq!(binds(local, true), expected);
                holds.let_go(local);
                assert_eq!((holds.count(), binds(local, false)), (0, Ok(())));
            }
        }
    }
}
