//! Names of socket options, address families and errors. The numbers are Linux' own, the same for
//! every architecture that it runs on here (asm-generic).

/// Options of SOL_SOCKET.
const SOCKET: &[(i32, &str)] = &[
    (1, "SO_DEBUG"),
    (2, "SO_REUSEADDR"),
    (3, "SO_TYPE"),
    (4, "SO_ERROR"),
    (5, "SO_DONTROUTE"),
    (6, "SO_BROADCAST"),
    (7, "SO_SNDBUF"),
    (8, "SO_RCVBUF"),
    (9, "SO_KEEPALIVE"),
    (10, "SO_OOBINLINE"),
    (11, "SO_NO_CHECK"),
    (12, "SO_PRIORITY"),
    (13, "SO_LINGER"),
    (15, "SO_REUSEPORT"),
    (16, "SO_PASSCRED"),
    (18, "SO_RCVLOWAT"),
    (19, "SO_SNDLOWAT"),
    (20, "SO_RCVTIMEO"),
    (21, "SO_SNDTIMEO"),
    (25, "SO_BINDTODEVICE"),
    (26, "SO_ATTACH_FILTER"),
    (27, "SO_DETACH_FILTER"),
    (29, "SO_TIMESTAMP"),
    (32, "SO_SNDBUFFORCE"),
    (33, "SO_RCVBUFFORCE"),
    (34, "SO_PASSSEC"),
    (35, "SO_TIMESTAMPNS"),
    (36, "SO_MARK"),
    (37, "SO_TIMESTAMPING"),
    (40, "SO_RXQ_OVFL"),
    (41, "SO_WIFI_STATUS"),
    (42, "SO_PEEK_OFF"),
    (43, "SO_NOFCS"),
    (44, "SO_LOCK_FILTER"),
    (45, "SO_SELECT_ERR_QUEUE"),
    (46, "SO_BUSY_POLL"),
    (47, "SO_MAX_PACING_RATE"),
    (49, "SO_INCOMING_CPU"),
    (50, "SO_ATTACH_BPF"),
    (51, "SO_ATTACH_REUSEPORT_CBPF"),
    (52, "SO_ATTACH_REUSEPORT_EBPF"),
    (60, "SO_ZEROCOPY"),
    (61, "SO_TXTIME"),
    (62, "SO_BINDTOIFINDEX"),
    (69, "SO_PREFER_BUSY_POLL"),
    (70, "SO_BUSY_POLL_BUDGET"),
    (74, "SO_TXREHASH"),
];

/// Options of IPPROTO_TCP.
const TCP: &[(i32, &str)] = &[
    (1, "TCP_NODELAY"),
    (2, "TCP_MAXSEG"),
    (3, "TCP_CORK"),
    (4, "TCP_KEEPIDLE"),
    (5, "TCP_KEEPINTVL"),
    (6, "TCP_KEEPCNT"),
    (7, "TCP_SYNCNT"),
    (8, "TCP_LINGER2"),
    (9, "TCP_DEFER_ACCEPT"),
    (10, "TCP_WINDOW_CLAMP"),
    (11, "TCP_INFO"),
    (12, "TCP_QUICKACK"),
    (13, "TCP_CONGESTION"),
    (14, "TCP_MD5SIG"),
    (16, "TCP_THIN_LINEAR_TIMEOUTS"),
    (17, "TCP_THIN_DUPACK"),
    (18, "TCP_USER_TIMEOUT"),
    (19, "TCP_REPAIR"),
    (23, "TCP_FASTOPEN"),
    (24, "TCP_TIMESTAMP"),
    (25, "TCP_NOTSENT_LOWAT"),
    (27, "TCP_SAVE_SYN"),
    (29, "TCP_REPAIR_WINDOW"),
    (30, "TCP_FASTOPEN_CONNECT"),
    (31, "TCP_ULP"),
    (32, "TCP_MD5SIG_EXT"),
    (33, "TCP_FASTOPEN_KEY"),
    (34, "TCP_FASTOPEN_NO_COOKIE"),
    (36, "TCP_INQ"),
    (37, "TCP_TX_DELAY"),
    (38, "TCP_AO_ADD_KEY"),
];

/// Options of IPPROTO_UDP.
const UDP: &[(i32, &str)] = &[
    (1, "UDP_CORK"),
    (100, "UDP_ENCAP"),
    (101, "UDP_NO_CHECK6_TX"),
    (102, "UDP_NO_CHECK6_RX"),
    (103, "UDP_SEGMENT"),
    (104, "UDP_GRO"),
];

/// Options of IPPROTO_IP.
const IP: &[(i32, &str)] = &[
    (1, "IP_TOS"),
    (2, "IP_TTL"),
    (3, "IP_HDRINCL"),
    (4, "IP_OPTIONS"),
    (6, "IP_RECVOPTS"),
    (7, "IP_RETOPTS"),
    (8, "IP_PKTINFO"),
    (10, "IP_MTU_DISCOVER"),
    (11, "IP_RECVERR"),
    (12, "IP_RECVTTL"),
    (13, "IP_RECVTOS"),
    (14, "IP_MTU"),
    (15, "IP_FREEBIND"),
    (16, "IP_IPSEC_POLICY"),
    (17, "IP_XFRM_POLICY"),
    (18, "IP_PASSSEC"),
    (19, "IP_TRANSPARENT"),
    (20, "IP_RECVORIGDSTADDR"),
    (21, "IP_MINTTL"),
    (22, "IP_NODEFRAG"),
    (23, "IP_CHECKSUM"),
    (24, "IP_BIND_ADDRESS_NO_PORT"),
    (25, "IP_RECVFRAGSIZE"),
    (26, "IP_RECVERR_RFC4884"),
    (32, "IP_MULTICAST_IF"),
    (33, "IP_MULTICAST_TTL"),
    (34, "IP_MULTICAST_LOOP"),
    (35, "IP_ADD_MEMBERSHIP"),
    (36, "IP_DROP_MEMBERSHIP"),
    (49, "IP_MULTICAST_ALL"),
    (50, "IP_UNICAST_IF"),
    (51, "IP_LOCAL_PORT_RANGE"),
];

/// Options of IPPROTO_IPV6.
const IPV6: &[(i32, &str)] = &[
    (1, "IPV6_ADDRFORM"),
    (7, "IPV6_CHECKSUM"),
    (16, "IPV6_UNICAST_HOPS"),
    (17, "IPV6_MULTICAST_IF"),
    (18, "IPV6_MULTICAST_HOPS"),
    (19, "IPV6_MULTICAST_LOOP"),
    (20, "IPV6_ADD_MEMBERSHIP"),
    (21, "IPV6_DROP_MEMBERSHIP"),
    (23, "IPV6_MTU_DISCOVER"),
    (24, "IPV6_MTU"),
    (25, "IPV6_RECVERR"),
    (26, "IPV6_V6ONLY"),
    (29, "IPV6_MULTICAST_ALL"),
    (33, "IPV6_FLOWINFO_SEND"),
    (49, "IPV6_RECVPKTINFO"),
    (50, "IPV6_PKTINFO"),
    (51, "IPV6_RECVHOPLIMIT"),
    (52, "IPV6_HOPLIMIT"),
    (53, "IPV6_RECVHOPOPTS"),
    (54, "IPV6_HOPOPTS"),
    (56, "IPV6_RECVRTHDR"),
    (57, "IPV6_RTHDR"),
    (58, "IPV6_RECVDSTOPTS"),
    (59, "IPV6_DSTOPTS"),
    (60, "IPV6_RECVPATHMTU"),
    (61, "IPV6_PATHMTU"),
    (62, "IPV6_DONTFRAG"),
    (66, "IPV6_RECVTCLASS"),
    (67, "IPV6_TCLASS"),
    (70, "IPV6_AUTOFLOWLABEL"),
    (72, "IPV6_ADDR_PREFERENCES"),
    (73, "IPV6_MINHOPCOUNT"),
    (74, "IPV6_RECVORIGDSTADDR"),
    (75, "IPV6_TRANSPARENT"),
    (76, "IPV6_UNICAST_IF"),
    (78, "IPV6_FREEBIND"),
];

/// Address families but IPv4 and IPv6.
const FAMILIES: &[(i32, &str)] = &[
    (1, "AF_UNIX"),
    (3, "AF_AX25"),
    (4, "AF_IPX"),
    (5, "AF_APPLETALK"),
    (9, "AF_X25"),
    (15, "AF_KEY"),
    (16, "AF_NETLINK"),
    (17, "AF_PACKET"),
    (21, "AF_RDS"),
    (29, "AF_CAN"),
    (30, "AF_TIPC"),
    (31, "AF_BLUETOOTH"),
    (33, "AF_RXRPC"),
    (38, "AF_ALG"),
    (40, "AF_VSOCK"),
    (41, "AF_KCM"),
    (42, "AF_QIPCRTR"),
    (43, "AF_SMC"),
    (44, "AF_XDP"),
    (45, "AF_MCTP"),
];

/// Errors that an engine gives.
const ERRORS: &[(i32, &str)] = &[
    (1, "EPERM"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (22, "EINVAL"),
    (23, "ENFILE"),
    (24, "EMFILE"),
    (28, "ENOSPC"),
    (49, "EUNATCH"),
    (91, "EPROTOTYPE"),
    (92, "ENOPROTOOPT"),
    (95, "EOPNOTSUPP"),
    (98, "EADDRINUSE"),
    (99, "EADDRNOTAVAIL"),
    (104, "ECONNRESET"),
    (105, "ENOBUFS"),
    (108, "ESHUTDOWN"),
    (110, "ETIMEDOUT"),
    (122, "EDQUOT"),
];

fn find(table: &[(i32, &'static str)], number: i32) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// The name of a socket option.
pub fn option_name(level: i32, name: i32) -> Option<&'static str> {
    let table = match level {
        libc::SOL_SOCKET => SOCKET,
        libc::IPPROTO_TCP => TCP,
        libc::IPPROTO_UDP => UDP,
        libc::IPPROTO_IP => IP,
        libc::IPPROTO_IPV6 => IPV6,
        _ => return None,
    };
    find(table, name)
}

/// The name of an address family.
pub fn family_name(family: u16) -> Option<&'static str> {
    find(FAMILIES, family.into())
}

/// The name of an error.
pub(super) fn errno_name(errno: u16) -> Option<&'static str> {
    find(ERRORS, errno.into())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn options_families_and_errors_have_the_names_of_the_headers() {
        assert_eq!(option_name(libc::IPPROTO_IP, libc::IP_PKTINFO), Some("IP_PKTINFO"));
        assert_eq!(option_name(libc::SOL_SOCKET, libc::SO_MARK), Some("SO_MARK"));
        assert_eq!(option_name(libc::IPPROTO_TCP, libc::TCP_NODELAY), Some("TCP_NODELAY"));
        assert_eq!(option_name(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), Some("IPV6_V6ONLY"));
        assert_eq!(option_name(libc::IPPROTO_UDP, libc::UDP_GRO), Some("UDP_GRO"));
        assert_eq!(option_name(libc::SOL_SOCKET, 9999), None);
        assert_eq!(family_name(libc::AF_UNIX as u16), Some("AF_UNIX"));
        assert_eq!(errno_name(libc::ENOBUFS as u16), Some("ENOBUFS"));
        for table in [SOCKET, TCP, UDP, IP, IPV6, FAMILIES, ERRORS] {
            assert!(table.is_sorted_by_key(|(number, _)| number));
        }
    }
}
