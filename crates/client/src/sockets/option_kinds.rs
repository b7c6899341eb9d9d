//! Which options have no effect, as in the kernel, and which only the kernel implements.

use shm::census::Reason;

const SOCKET: i32 = libc::SOL_SOCKET;
const TCP: i32 = libc::IPPROTO_TCP;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;
/// linux/tcp.h; not in the libc crate.
const TCP_AO_ADD_KEY: i32 = 38;
/// linux/in6.h; not in the libc crate.
const IPV6_MINHOPCOUNT: i32 = 73;

/// What getsockopt(2) and setsockopt(2) name an option by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketOption {
    /// SOL_SOCKET, or a protocol.
    pub level: i32,
    /// The option of that level.
    pub name: i32,
}

/// Options whose name alone is enough to say that they change nothing on a connection, as they do
/// not in the kernel.
pub(super) fn is_moot(level: i32, name: i32) -> bool {
    matches!(
        (level, name),
        (SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) | (IPV6, libc::IPV6_V6ONLY)
    )
}

/// Options whose effect a program cannot observe on a kernel connection either.
pub(super) fn is_silent(level: i32, name: i32) -> bool {
    matches!(
        (level, name),
        (SOCKET, libc::SO_DEBUG | libc::SO_BROADCAST | libc::SO_NO_CHECK | libc::SO_TXREHASH)
            | (TCP, libc::TCP_THIN_LINEAR_TIMEOUTS | libc::TCP_THIN_DUPACK)
            | (IP, libc::IP_BIND_ADDRESS_NO_PORT | libc::IP_FREEBIND | libc::IP_TRANSPARENT)
    ) || asks_for_messages_of_datagrams(level, name)
}

/// Options that request control messages with datagrams. The kernel sends none with a stream's
/// bytes either.
pub(super) fn asks_for_messages_of_datagrams(level: i32, name: i32) -> bool {
    matches!(
        (level, name),
        (SOCKET, libc::SO_RXQ_OVFL)
            | (
                IP,
                libc::IP_PKTINFO
                    | libc::IP_RECVTTL
                    | libc::IP_RECVTOS
                    | libc::IP_RECVOPTS
                    | libc::IP_RETOPTS
                    | libc::IP_RECVORIGDSTADDR
            )
            | (
                IPV6,
                libc::IPV6_RECVPKTINFO
                    | libc::IPV6_RECVHOPLIMIT
                    | libc::IPV6_RECVTCLASS
                    | libc::IPV6_RECVORIGDSTADDR
            )
    )
}

/// Options that choose a kernel route, or sign segments: only the kernel implements them.
pub(super) fn is_for_kernel(level: i32, name: i32) -> bool {
    signs_otherwise(level, name)
        || matches!(
            (level, name),
            (SOCKET, libc::SO_MARK | libc::SO_BINDTODEVICE | libc::SO_BINDTOIFINDEX)
        )
}

/// Options that reject packets: filters, and the minimum hop limit (RFC 5082). Only the kernel
/// implements them, and no packet may bypass them through the engine.
pub(super) fn keeps_out(level: i32, name: i32, bytes: &[u8]) -> bool {
    match (level, name) {
        // A program may have descriptor 0.
        (SOCKET, libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF) => true,
        (IP, libc::IP_MINTTL) | (IPV6, IPV6_MINHOPCOUNT) => bytes.iter().any(|byte| *byte != 0),
        _ => false,
    }
}

/// Programs that select among the sockets of one port.
pub(super) fn chooses_among_sockets(level: i32, name: i32) -> bool {
    level == SOCKET
        && matches!(name, libc::SO_ATTACH_REUSEPORT_CBPF | libc::SO_ATTACH_REUSEPORT_EBPF)
}

/// The reason why a socket with such an option is left to the kernel.
pub(super) fn reason_of_option(level: i32, name: i32) -> Reason {
    Reason::SocketOption(level as u16, name as u16)
}

/// Keys for signatures that only the kernel implements.
pub(super) fn signs_otherwise(level: i32, name: i32) -> bool {
    (level, name) == (TCP, TCP_AO_ADD_KEY)
}
