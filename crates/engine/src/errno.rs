//! Errors of the stack as errnos.

use rustix::io::Errno;
use stack::api::{RequestError, TcpError, UdpError};

/// The errno for a refused request.
pub fn of_request(error: RequestError) -> Errno {
    match error {
        RequestError::Stale => Errno::BADF,
        RequestError::AddressNotAvailable => Errno::ADDRNOTAVAIL,
        RequestError::AddressInUse => Errno::ADDRINUSE,
        RequestError::NoRoute => Errno::NETUNREACH,
        RequestError::LimitReached => Errno::NOBUFS,
        RequestError::State => Errno::INVAL,
        RequestError::TooLong => Errno::MSGSIZE,
        RequestError::WaitNeighbor | RequestError::Behind => Errno::AGAIN,
        RequestError::HostUnreachable => Errno::HOSTUNREACH,
        RequestError::Unknown => Errno::NOENT,
    }
}

/// The errno for a connection that died.
pub fn of_connection(error: TcpError) -> Errno {
    match error {
        TcpError::Refused => Errno::CONNREFUSED,
        TcpError::Reset => Errno::CONNRESET,
        TcpError::ResetAfterEnd => Errno::PIPE,
        TcpError::TimedOut => Errno::TIMEDOUT,
        TcpError::HostUnreachable => Errno::HOSTUNREACH,
        TcpError::NetUnreachable => Errno::NETUNREACH,
        TcpError::HostDown => Errno::HOSTDOWN,
        TcpError::NoNetwork => Errno::NONET,
        TcpError::NotSupported => Errno::OPNOTSUPP,
        TcpError::NoProtocol => Errno::NOPROTOOPT,
        TcpError::Prohibited => Errno::ACCESS,
        TcpError::Protocol => Errno::PROTO,
        TcpError::Aborted => Errno::CONNABORTED,
    }
}

/// The errno for a datagram that failed.
pub fn of_datagram(error: UdpError) -> Errno {
    match error {
        UdpError::Refused => Errno::CONNREFUSED,
        UdpError::NoProtocol => Errno::NOPROTOOPT,
        UdpError::HostUnreachable => Errno::HOSTUNREACH,
        UdpError::NetUnreachable => Errno::NETUNREACH,
        UdpError::HostDown => Errno::HOSTDOWN,
        UdpError::NoNetwork => Errno::NONET,
        UdpError::NotSupported => Errno::OPNOTSUPP,
        UdpError::Prohibited => Errno::ACCESS,
        UdpError::Protocol => Errno::PROTO,
        UdpError::TooLong => Errno::MSGSIZE,
    }
}

/// Its number in the contract.
pub fn number(errno: Errno) -> u32 {
    errno.raw_os_error().unsigned_abs()
}
