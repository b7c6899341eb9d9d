//! The right to a local port is the kernel's to give: a program shows a kernel socket that it
//! has bound as its own user, and what the kernel says about that socket is what counts.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use port::Protocol;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};
use stack::api::{Local, Sharing};

use super::exchange::Shown;

/// What a socket is shown for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It listens.
    Listen,
    /// A bound UDP socket.
    Udp,
    /// A bound TCP socket, about to connect.
    Connect,
}

impl Purpose {
    /// Protocol of such a socket.
    pub fn protocol(self) -> Protocol {
        match self {
            Self::Listen | Self::Connect => Protocol::Tcp,
            Self::Udp => Protocol::Udp,
        }
    }
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Nearest errno.
    pub errno: i32,
    /// Why, and what to do.
    pub reason: String,
}

fn refuse(errno: Errno, reason: impl Into<String>) -> Refusal {
    Refusal { errno: errno.raw_os_error(), reason: reason.into() }
}

fn failed(what: &str, error: Errno) -> Refusal {
    refuse(error, format!("the descriptor shown is no usable socket: {what} says {error}"))
}

/// Checks that `socket` entitles its holder to its local address.
///
/// `own_namespace` is the engine's network namespace as SO_NETNS_COOKIE names it: getsockname
/// alone can be forged from another namespace.
///
/// # Errors
/// Why it does not, with the errno for its program.
pub fn check(
    socket: BorrowedFd<'_>,
    purpose: Purpose,
    own_namespace: u64,
    own_addresses: &[IpAddr],
) -> Result<Shown, Refusal> {
    let domain = sockopt::socket_domain(socket).map_err(|error| failed("SO_DOMAIN", error))?;
    if domain != AddressFamily::INET && domain != AddressFamily::INET6 {
        return Err(refuse(Errno::AFNOSUPPORT, "the socket shown is not an internet socket"));
    }
    let kind = sockopt::socket_type(socket).map_err(|error| failed("SO_TYPE", error))?;
    let wanted = match purpose.protocol() {
        Protocol::Tcp => SocketType::STREAM,
        Protocol::Udp => SocketType::DGRAM,
    };
    if kind != wanted {
        return Err(refuse(Errno::PROTOTYPE, "the socket shown has the wrong type"));
    }
    let namespace = port::netns::cookie(socket)
        .map_err(|error| refuse(Errno::OPNOTSUPP, format!("SO_NETNS_COOKIE fails: {error}")))?;
    if namespace != own_namespace {
        return Err(refuse(
            Errno::XDEV,
            "the socket belongs to another network namespace than the engine; start an engine in \
             the program's namespace",
        ));
    }
    if purpose == Purpose::Listen
        && !sockopt::socket_acceptconn(socket).map_err(|error| failed("SO_ACCEPTCONN", error))?
    {
        return Err(refuse(Errno::INVAL, "the socket shown does not listen"));
    }
    if purpose == Purpose::Connect && rustix::net::getpeername(socket).is_ok() {
        return Err(refuse(Errno::ISCONN, "the socket shown is connected already"));
    }
    let kernel_local = rustix::net::getsockname(socket)
        .ok()
        .and_then(|address| SocketAddr::try_from(address).ok())
        .ok_or_else(|| refuse(Errno::INVAL, "the socket shown has no internet address"))?;
    if kernel_local.port() == 0 {
        return Err(refuse(Errno::INVAL, "the socket shown is not bound to a port"));
    }
    let local = match kernel_local.ip() {
        // An address of IPv4 behind `::ffff:` is one of IPv4.
        address if address.is_unspecified() => address,
        address => address.to_canonical(),
    };
    let v6_only = domain == AddressFamily::INET6
        && sockopt::ipv6_v6only(socket).map_err(|error| failed("IPV6_V6ONLY", error))?;
    let is_group = purpose == Purpose::Udp && local.is_multicast();
    if !local.is_unspecified() && !is_group && !own_addresses.contains(&local) {
        return Err(refuse(
            Errno::ADDRNOTAVAIL,
            format!("{local} is not an address of the engine's ports"),
        ));
    }
    let cookie = sockopt::socket_cookie(socket).map_err(|error| failed("SO_COOKIE", error))?;
    let local = Local { address: SocketAddr::new(local, kernel_local.port()), v6_only };
    let on = |asked: Result<bool, Errno>, name| asked.map_err(|error| failed(name, error));
    let sharing = if on(sockopt::socket_reuseport(socket), "SO_REUSEPORT")? {
        Sharing::Port
    } else if on(sockopt::socket_reuseaddr(socket), "SO_REUSEADDR")? {
        Sharing::Address
    } else {
        Sharing::Alone
    };
    Ok(Shown { local, kernel_local, cookie, sharing })
}
