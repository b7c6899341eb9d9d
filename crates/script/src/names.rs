//! Names of numbers: constants of the C library, and of errors.

use client::sockets::Queue;
use rustix::io::Errno;

macro_rules! numbers {
    ($name:expr, $($known:ident),* $(,)?) => {
        match $name {
            $(stringify!($known) => Some(i64::from(libc::$known)),)*
            _ => None,
        }
    };
}

/// Whether the next byte is the urgent one (asm-generic/sockios.h); not in the libc crate.
pub const SIOCATMARK: i64 = 0x8905;

/// The number of a constant.
pub fn number(name: &str) -> Option<i64> {
    match name {
        "SOL_TCP" => return Some(i64::from(libc::IPPROTO_TCP)),
        "SOL_IP" => return Some(i64::from(libc::IPPROTO_IP)),
        "TCP_INQ" | "TCP_CM_INQ" => return Some(36),
        "SIOCINQ" => return Some(libc::FIONREAD as i64),
        "SIOCOUTQ" => return Some(libc::TIOCOUTQ as i64),
        "SIOCOUTQNSD" => return Some(Queue::SIOCOUTQNSD.cast_signed()),
        "SIOCATMARK" => return Some(SIOCATMARK),
        "TCP_FASTOPEN_KEY" => return Some(33),
        "TCP_FASTOPEN_NO_COOKIE" => return Some(34),
        "FIONREAD" => return Some(libc::FIONREAD as i64),
        "SCM_TSTAMP_SND" => return Some(0),
        "SCM_TSTAMP_SCHED" => return Some(1),
        "SCM_TSTAMP_ACK" => return Some(2),
        "SO_EE_ORIGIN_ZEROCOPY" => return Some(5),
        "SO_EE_CODE_ZEROCOPY_COPIED" => return Some(1),
        _ => {}
    }
    if let Some((_, errno)) = ERRORS.iter().find(|(known, _)| *known == name) {
        return Some(errno.raw_os_error().into());
    }
    numbers!(
        name,
        AF_INET,
        AF_UNSPEC,
        AF_INET6,
        SOCK_STREAM,
        SOCK_DGRAM,
        SOCK_NONBLOCK,
        SOCK_CLOEXEC,
        PF_INET,
        IPPROTO_TCP,
        IPPROTO_UDP,
        IPPROTO_IP,
        SOL_SOCKET,
        SOL_IPV6,
        SOL_UDP,
        SO_REUSEADDR,
        SO_REUSEPORT,
        SO_KEEPALIVE,
        SO_LINGER,
        SO_RCVBUF,
        SO_SNDBUF,
        SO_MAX_PACING_RATE,
        SO_ERROR,
        SO_TYPE,
        SO_DOMAIN,
        SO_PROTOCOL,
        SO_ACCEPTCONN,
        SO_OOBINLINE,
        SO_RCVLOWAT,
        SO_RCVTIMEO,
        SO_SNDTIMEO,
        SO_BROADCAST,
        SO_PRIORITY,
        SO_TIMESTAMP,
        SO_TIMESTAMPNS,
        SO_TIMESTAMPING,
        SO_ZEROCOPY,
        SCM_TIMESTAMP,
        SCM_TIMESTAMPNS,
        SCM_TIMESTAMPING,
        SCM_RIGHTS,
        SOF_TIMESTAMPING_SOFTWARE,
        SOF_TIMESTAMPING_RX_SOFTWARE,
        SOF_TIMESTAMPING_TX_SCHED,
        SOF_TIMESTAMPING_TX_SOFTWARE,
        SOF_TIMESTAMPING_TX_ACK,
        SOF_TIMESTAMPING_OPT_ID,
        SOF_TIMESTAMPING_OPT_TSONLY,
        SOF_TIMESTAMPING_OPT_CMSG,
        SO_EE_ORIGIN_LOCAL,
        SO_EE_ORIGIN_ICMP,
        SO_EE_ORIGIN_ICMP6,
        SO_EE_ORIGIN_TIMESTAMPING,
        TCP_NODELAY,
        TCP_CORK,
        TCP_QUICKACK,
        TCP_KEEPIDLE,
        TCP_KEEPINTVL,
        TCP_KEEPCNT,
        TCP_USER_TIMEOUT,
        TCP_MAXSEG,
        TCP_CONGESTION,
        TCP_DEFER_ACCEPT,
        TCP_NOTSENT_LOWAT,
        TCP_SYNCNT,
        TCP_LINGER2,
        TCP_WINDOW_CLAMP,
        TCP_INFO,
        TCP_FASTOPEN,
        TCP_FASTOPEN_CONNECT,
        IP_BIND_ADDRESS_NO_PORT,
        IP_TOS,
        IP_TTL,
        IP_RECVERR,
        IP_MTU_DISCOVER,
        IP_PKTINFO,
        IP_RECVTOS,
        IP_RECVTTL,
        IP_RECVORIGDSTADDR,
        IP_ORIGDSTADDR,
        IP_MTU,
        SO_NO_CHECK,
        UDP_CORK,
        UDP_SEGMENT,
        UDP_GRO,
        IP_ADD_MEMBERSHIP,
        IP_DROP_MEMBERSHIP,
        IP_ADD_SOURCE_MEMBERSHIP,
        IP_DROP_SOURCE_MEMBERSHIP,
        IP_BLOCK_SOURCE,
        IP_UNBLOCK_SOURCE,
        IP_MULTICAST_IF,
        IP_MULTICAST_TTL,
        IP_MULTICAST_LOOP,
        IP_MULTICAST_ALL,
        IPPROTO_IPV6,
        IPV6_ADD_MEMBERSHIP,
        IPV6_DROP_MEMBERSHIP,
        IPV6_MULTICAST_HOPS,
        IPV6_MULTICAST_LOOP,
        IPV6_UNICAST_HOPS,
        IPV6_TCLASS,
        IPV6_RECVERR,
        IPV6_MTU_DISCOVER,
        IPV6_DONTFRAG,
        IPV6_V6ONLY,
        IPV6_PKTINFO,
        IPV6_RECVPKTINFO,
        IPV6_RECVTCLASS,
        IPV6_HOPLIMIT,
        IPV6_RECVHOPLIMIT,
        IPV6_MTU,
        IPV6_RECVORIGDSTADDR,
        IPV6_ORIGDSTADDR,
        MSG_OOB,
        MSG_PEEK,
        MSG_DONTWAIT,
        MSG_WAITALL,
        MSG_NOSIGNAL,
        MSG_MORE,
        MSG_TRUNC,
        MSG_CTRUNC,
        MSG_ZEROCOPY,
        MSG_ERRQUEUE,
        MSG_FASTOPEN,
        MSG_EOR,
        F_GETFL,
        F_SETFL,
        O_RDWR,
        O_NONBLOCK,
        SHUT_RD,
        SHUT_WR,
        SHUT_RDWR,
        POLLIN,
        POLLOUT,
        POLLERR,
        POLLHUP,
        POLLRDHUP,
        POLLPRI,
        POLLNVAL,
    )
}

macro_rules! errors {
    ($($name:literal $known:ident),* $(,)?) => {
        /// Errors by name.
        const ERRORS: &[(&str, Errno)] = &[$(($name, Errno::$known)),*];
    };
}

errors! {
    "EPERM" PERM, "EINTR" INTR, "EIO" IO, "EBADF" BADF, "EAGAIN" AGAIN, "EACCES" ACCESS,
    "EFAULT" FAULT, "EINVAL" INVAL, "EMFILE" MFILE, "EPIPE" PIPE, "EDOM" DOM, "ENOENT" NOENT,
    "ENOTSOCK" NOTSOCK, "EDESTADDRREQ" DESTADDRREQ, "EMSGSIZE" MSGSIZE, "EPROTOTYPE" PROTOTYPE,
    "ENOPROTOOPT" NOPROTOOPT, "EOPNOTSUPP" OPNOTSUPP, "EAFNOSUPPORT" AFNOSUPPORT,
    "EADDRINUSE" ADDRINUSE, "EADDRNOTAVAIL" ADDRNOTAVAIL, "ENETUNREACH" NETUNREACH,
    "ECONNABORTED" CONNABORTED, "ECONNRESET" CONNRESET, "ENOBUFS" NOBUFS, "EISCONN" ISCONN,
    "ENOTCONN" NOTCONN, "ETIMEDOUT" TIMEDOUT, "ECONNREFUSED" CONNREFUSED,
    "EHOSTUNREACH" HOSTUNREACH, "EALREADY" ALREADY, "EINPROGRESS" INPROGRESS, "EPROTO" PROTO,
    "EHOSTDOWN" HOSTDOWN, "ENONET" NONET, "ENODEV" NODEV, "ENOMSG" NOMSG,
}

/// The name of an error.
pub fn error_name(errno: Errno) -> String {
    match ERRORS.iter().find(|(_, known)| *known == errno) {
        Some((name, _)) => (*name).to_string(),
        None => format!("errno {}", errno.raw_os_error()),
    }
}

/// Whether there is an error of that name.
pub fn is_error(name: &str) -> bool {
    ERRORS.iter().any(|(known, _)| *known == name)
}
