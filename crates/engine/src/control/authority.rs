//! The kernel grants the right to a local port: a program passes a kernel socket that it has bound
//! as its own user, and the kernel's data about that socket decides.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use port::Protocol;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use stack::api::{Local, Sharing};

use super::exchange::{Shown, SocketKey};

/// `asm-generic/socket.h`; the second since Linux 5.1.
const SOL_SOCKET: i32 = 1;
const SO_BINDTOIFINDEX: i32 = 62;

/// The purpose for which a socket is passed.
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
    /// The reason, and what to do.
    pub reason: String,
}

fn refuse(errno: Errno, reason: impl Into<String>) -> Refusal {
    Refusal { errno: errno.raw_os_error(), reason: reason.into() }
}

fn failed(what: &str, error: Errno) -> Refusal {
    refuse(
        error,
        format!("the passed descriptor is not a usable socket: {what} fails with {error}"),
    )
}

/// The interface that the socket is bound to, or 0. A socket bound to an interface does not keep
/// other users from the same port on other interfaces.
fn device(socket: BorrowedFd<'_>) -> Result<i32, Refusal> {
    let mut index = [0; 4];
    port::sockets::option(socket, SOL_SOCKET, SO_BINDTOIFINDEX, &mut index)
        .map_err(|error| refuse(Errno::OPNOTSUPP, format!("SO_BINDTOIFINDEX fails: {error}")))?;
    Ok(i32::from_ne_bytes(index))
}

/// Checks that `socket` entitles its holder to its local address.
///
/// `own_namespace` is the engine's network namespace as SO_NETNS_COOKIE names it: getsockname
/// alone can be forged from another namespace.
///
/// # Errors
/// The reason if it does not, with the errno for the program.
pub fn check(
    socket: BorrowedFd<'_>,
    purpose: Purpose,
    own_namespace: u64,
    own_addresses: &[IpAddr],
) -> Result<Shown, Refusal> {
    let domain = sockopt::socket_domain(socket).map_err(|error| failed("SO_DOMAIN", error))?;
    if domain != AddressFamily::INET && domain != AddressFamily::INET6 {
        return Err(refuse(Errno::AFNOSUPPORT, "the passed socket is not an internet socket"));
    }
    let kind = sockopt::socket_type(socket).map_err(|error| failed("SO_TYPE", error))?;
    let (wanted, its_protocol) = match purpose.protocol() {
        Protocol::Tcp => (SocketType::STREAM, ipproto::TCP),
        Protocol::Udp => (SocketType::DGRAM, ipproto::UDP),
    };
    if kind != wanted {
        return Err(refuse(Errno::PROTOTYPE, "the passed socket has the wrong type"));
    }
    // A socket of TCP's or UDP's type may have another protocol with other port numbers: a ping
    // socket's is an identifier that any program may choose.
    let protocol =
        sockopt::socket_protocol(socket).map_err(|error| failed("SO_PROTOCOL", error))?;
    if protocol != Some(its_protocol) {
        return Err(refuse(Errno::PROTOTYPE, "the passed socket has the wrong protocol"));
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
    if device(socket)? != 0 {
        return Err(refuse(
            Errno::OPNOTSUPP,
            "the passed socket is bound to a device (SO_BINDTODEVICE), so it has no right to its \
             port on others",
        ));
    }
    let listens =
        || sockopt::socket_acceptconn(socket).map_err(|error| failed("SO_ACCEPTCONN", error));
    if purpose == Purpose::Listen && !listens()? {
        return Err(refuse(Errno::INVAL, "the passed socket is not listening"));
    }
    if purpose == Purpose::Connect && (listens()? || rustix::net::getpeername(socket).is_ok()) {
        return Err(refuse(Errno::ISCONN, "the passed socket is already listening or connected"));
    }
    let kernel_local = rustix::net::getsockname(socket)
        .ok()
        .and_then(|address| SocketAddr::try_from(address).ok())
        .ok_or_else(|| refuse(Errno::INVAL, "the passed socket has no internet address"))?;
    if kernel_local.port() == 0 {
        return Err(refuse(Errno::INVAL, "the passed socket is not bound to a port"));
    }
    let local = match kernel_local.ip() {
        // An IPv4-mapped IPv6 address is an IPv4 address.
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
    let key = SocketKey { namespace, cookie };
    let uid = rustix::fs::fstat(socket).map_err(|error| failed("fstat", error))?.st_uid;
    let local = Local { address: SocketAddr::new(local, kernel_local.port()), v6_only };
    let on = |asked: Result<bool, Errno>, name| asked.map_err(|error| failed(name, error));
    let sharing = if on(sockopt::socket_reuseport(socket), "SO_REUSEPORT")? {
        Sharing::Port
    } else if on(sockopt::socket_reuseaddr(socket), "SO_REUSEADDR")? {
        Sharing::Address
    } else {
        Sharing::Alone
    };
    Ok(Shown { local, kernel_local, key, uid, sharing })
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::net::{Protocol as Number, bind, listen, socket};

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    fn asked(socket: &OwnedFd, purpose: Purpose) -> Result<(), i32> {
        let namespace = port::netns::cookie(socket.as_fd()).unwrap();
        let checked = check(socket.as_fd(), purpose, namespace, &[ANY.ip()]);
        checked.map(|_| ()).map_err(|refusal| refusal.errno)
    }

    /// A socket at a free port, listening if it is to; `None` where the kernel has none of the kind.
    fn bound(purpose: Purpose, number: Option<Number>) -> Option<OwnedFd> {
        let kind = match purpose.protocol() {
            Protocol::Tcp => SocketType::STREAM,
            Protocol::Udp => SocketType::DGRAM,
        };
        let socket = socket(AddressFamily::INET, kind, number).ok()?;
        bind(&socket, &ANY).unwrap();
        if purpose == Purpose::Listen {
            listen(&socket, 1).unwrap();
        }
        Some(socket)
    }

    /// UDP-Lite's ports are nobody's, and a ping socket could be bound to 53 by everybody; whoever showed
    /// one had UDP's.
    #[test]
    fn the_port_of_another_protocol_is_no_right_to_that_of_tcp_or_udp() {
        for purpose in [Purpose::Listen, Purpose::Connect, Purpose::Udp] {
            let socket = bound(purpose, None).expect("TCP and UDP");
            assert_eq!(asked(&socket, purpose), Ok(()));
        }
        let others = [
            (Purpose::Udp, ipproto::UDPLITE),
            (Purpose::Udp, ipproto::ICMP),
            (Purpose::Listen, ipproto::SCTP),
            (Purpose::Listen, ipproto::MPTCP),
            (Purpose::Connect, ipproto::MPTCP),
        ];
        let mut tried = 0;
        for (purpose, number) in others {
            let Some(socket) = bound(purpose, Some(number)) else {
                eprintln!("no sockets of protocol {number:?} here");
                continue;
            };
            assert_eq!(asked(&socket, purpose), Err(Errno::PROTOTYPE.raw_os_error()), "{number:?}");
            tried += 1;
        }
        assert!(tried > 0);
    }

    /// Two users may have the same port on two devices, but the claim was for all of it.
    #[test]
    fn a_socket_that_is_bound_to_a_device_has_no_right_to_the_port_elsewhere() {
        for purpose in [Purpose::Listen, Purpose::Connect, Purpose::Udp] {
            let socket = bound(purpose, None).expect("TCP and UDP");
            assert_eq!(asked(&socket, purpose), Ok(()));
            let first = 1_i32.to_ne_bytes();
            port::sockets::set_option(socket.as_fd(), SOL_SOCKET, SO_BINDTOIFINDEX, &first)
                .unwrap();
            assert_eq!(asked(&socket, purpose), Err(Errno::OPNOTSUPP.raw_os_error()));
        }
    }
}
