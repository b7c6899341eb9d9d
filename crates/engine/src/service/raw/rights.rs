//! Rights to raw endpoints: of a program that passes a packet socket, and of those named in
//! `[[raw]]`. Decided on the control thread.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};

/// `asm-generic/socket.h`.
const SOL_SOCKET: i32 = 1;
const SO_LOCK_FILTER: i32 = 44;

/// Operations permitted on the frames of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawRights {
    /// See copies of them.
    pub receive: bool,
    /// Send.
    pub send: bool,
    /// Take them from stack and kernel.
    pub take: bool,
    /// Send with any source address.
    pub spoof: bool,
}

impl RawRights {
    /// The rights of a packet socket. The kernel lets its holder send with any source address.
    pub const OF_PACKET_SOCKET: Self = Self { receive: true, send: true, take: false, spoof: true };

    /// The rights in either.
    pub fn or(self, other: Self) -> Self {
        Self {
            receive: self.receive || other.receive,
            send: self.send || other.send,
            take: self.take || other.take,
            spoof: self.spoof || other.spoof,
        }
    }

    /// The rights in both.
    pub fn and(self, other: Self) -> Self {
        Self {
            receive: self.receive && other.receive,
            send: self.send && other.send,
            take: self.take && other.take,
            spoof: self.spoof && other.spoof,
        }
    }
}

/// One `[[raw]]` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawRule {
    /// Users covered.
    pub users: Vec<u32>,
    /// Groups covered, by the group that a program runs as.
    pub groups: Vec<u32>,
    /// Ports by name; all when empty.
    pub ports: Vec<String>,
    /// Permitted operations.
    pub rights: RawRights,
}

/// Whether `asked` refers to a port called `name`: by its whole name, or that of its interface.
pub fn is_named(name: &str, asked: &str) -> bool {
    name == asked || name.split_once(':').is_some_and(|(_, interface)| interface == asked)
}

/// The rights of a user and a group at a port by the rules.
pub fn by_rules(rules: &[RawRule], uid: u32, gid: u32, port: &str) -> RawRights {
    let named = |rule: &&RawRule| {
        let is_whose = rule.users.contains(&uid) || rule.groups.contains(&gid);
        is_whose && (rule.ports.is_empty() || rule.ports.iter().any(|one| is_named(port, one)))
    };
    rules.iter().filter(named).fold(RawRights::default(), |all, rule| all.or(rule.rights))
}

/// The rights of a packet socket at the interface with index `index` of its namespace.
///
/// # Errors
/// Why it gives no right there.
pub fn by_socket(
    socket: BorrowedFd<'_>,
    own_namespace: u64,
    index: u32,
) -> Result<RawRights, (Errno, String)> {
    let failed = |what: &str, error: Errno| {
        (error, format!("the passed descriptor is not a usable socket: {what} fails with {error}"))
    };
    let domain = sockopt::socket_domain(socket).map_err(|error| failed("SO_DOMAIN", error))?;
    if domain != AddressFamily::PACKET {
        return Err((Errno::AFNOSUPPORT, "the passed socket is not a packet socket".into()));
    }
    let system = |what: &'static str| {
        move |error: std::io::Error| {
            failed(what, Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
        }
    };
    let namespace = port::netns::cookie(socket).map_err(system("SO_NETNS_COOKIE"))?;
    if namespace != own_namespace {
        let reason = "the passed packet socket belongs to another network namespace than the port";
        return Err((Errno::PERM, reason.into()));
    }
    let mut locked = [0; 4];
    port::sockets::option(socket, SOL_SOCKET, SO_LOCK_FILTER, &mut locked)
        .map_err(system("SO_LOCK_FILTER"))?;
    if i32::from_ne_bytes(locked) != 0 {
        let reason = "the passed packet socket has a locked filter, which the engine does not run";
        return Err((Errno::PERM, reason.into()));
    }
    let bound = port::sockets::packet_interface(socket).map_err(system("getsockname"))?;
    if index == 0 || (bound != 0 && bound != index) {
        let reason = format!(
            "the passed packet socket is bound to interface {bound}, but the port uses {index}"
        );
        return Err((Errno::PERM, reason));
    }
    Ok(RawRights::OF_PACKET_SOCKET)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_give_what_they_say_to_whom_they_name() {
        let see = RawRights { receive: true, ..RawRights::default() };
        let send = RawRights { send: true, ..RawRights::default() };
        let rules = [
            RawRule {
                users: vec![7],
                ports: vec!["eth1".into()],
                rights: see,
                ..RawRule::default()
            },
            RawRule { groups: vec![9], rights: send, ..RawRule::default() },
        ];
        let of = |uid, gid, port| by_rules(&rules, uid, gid, port);
        assert_eq!(of(7, 7, "packet:eth1"), see);
        assert_eq!(of(7, 9, "packet:eth1"), see.or(send));
        assert_eq!(of(7, 7, "packet:eth2"), RawRights::default());
        assert_eq!(of(8, 9, "tap:x"), send);
        assert_eq!(of(0, 0, "packet:eth1"), RawRights::default());
    }

    #[test]
    fn another_socket_than_a_packet_socket_entitles_to_nothing() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = std::os::fd::AsFd::as_fd(&socket);
        let namespace = port::netns::cookie(socket).unwrap();
        let (errno, _) = by_socket(socket, namespace, 1).unwrap_err();
        assert_eq!(errno, Errno::AFNOSUPPORT);
    }
}
