//! Why input was dropped, and the counters of it.

use serde::{Deserialize, Serialize};

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $name:ident => $text:literal,)+) => {
        /// Why a received frame (or what it carried) was not used. Every drop is counted once.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl DropReason {
            /// All reasons, in the order of their counters.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)+];

            /// The name in `stack_drops_total{reason=}`.
            pub fn name(self) -> &'static str {
                match self {
                    $(DropReason::$name => $text,)+
                }
            }
        }
    };
}

drop_reasons! {
    /// Not an Ethernet header, or an interface that does not exist.
    FrameMalformed => "frame_malformed",
    /// Came in through an interface index that was never added.
    UnknownInterface => "unknown_interface",
    /// To another station.
    NotForUs => "not_for_us",
    /// Tagged for a VLAN that the interface does not have.
    VlanNotServed => "vlan_not_served",
    /// An EtherType that the stack does not speak.
    EtherTypeNotServed => "ether_type_not_served",
    /// IPv6 on an interface that does not have it.
    Ipv6NotServed => "ipv6_not_served",
    /// ARP that does not parse or is not Ethernet and IPv4.
    ArpMalformed => "arp_malformed",
    /// ARP about others, or an answer that nobody asked for.
    ArpNotForUs => "arp_not_for_us",
    /// An ARP sender that claims one of our addresses.
    ArpConflict => "arp_conflict",
    /// Neighbour discovery that fails the checks of RFC 4861 (hop limit, addresses, options).
    NdpInvalid => "ndp_invalid",
    /// Neighbour discovery about others, or an answer that nobody asked for.
    NdpNotForUs => "ndp_not_for_us",
    /// Another host that has one of our IPv6 addresses, or probes for it.
    NdpConflict => "ndp_conflict",
    /// A bad version, header length, total length or header checksum.
    IpMalformed => "ip_malformed",
    /// The IP header checksum is wrong.
    IpChecksum => "ip_checksum",
    /// Source routing, or another option or extension header that is not honoured.
    IpOptions => "ip_options",
    /// A source address that no host can have.
    IpSource => "ip_source",
    /// A destination address that is not ours.
    IpDestination => "ip_destination",
    /// A protocol over IP that the stack does not speak.
    ProtocolNotServed => "protocol_not_served",
    /// A partial checksum that is not the exact pseudo-header sum.
    PartialChecksum => "partial_checksum",
    /// A fragment with a bad offset or length.
    FragmentMalformed => "fragment_malformed",
    /// A fragment overlaps another; the datagram is given up.
    FragmentOverlap => "fragment_overlap",
    /// No room for a fragment, although others have made way.
    FragmentLimit => "fragment_limit",
    /// The rest of a fragmented datagram did not come in time.
    FragmentTimeout => "fragment_timeout",
    /// ICMP that does not parse.
    IcmpMalformed => "icmp_malformed",
    /// The ICMP checksum is wrong.
    IcmpChecksum => "icmp_checksum",
    /// An ICMP type or code without meaning here.
    IcmpNotServed => "icmp_not_served",
    /// An ICMP error about nothing that we sent.
    IcmpNoSocket => "icmp_no_socket",
    /// An ICMP error that fails the checks of RFC 5927.
    IcmpInvalid => "icmp_invalid",
    /// An answer (echo reply, port unreachable) for which there was no room or no allowance.
    ReplyLimit => "reply_limit",
    /// A packet of ours that waited for its next hop, as many do, and gave way to another one.
    NeighborQueueFull => "neighbor_queue_full",
    /// A packet of ours whose next hop does not answer.
    NeighborFailed => "neighbor_failed",
    /// IGMP that does not parse, or does not go where it says.
    IgmpMalformed => "igmp_malformed",
    /// The IGMP checksum is wrong.
    IgmpChecksum => "igmp_checksum",
    /// An IGMP type without meaning to a host.
    IgmpNotServed => "igmp_not_served",
    /// UDP that does not parse.
    UdpMalformed => "udp_malformed",
    /// The UDP checksum is wrong.
    UdpChecksum => "udp_checksum",
    /// No UDP socket has that port.
    UdpNoSocket => "udp_no_socket",
    /// The UDP socket's owner has no room.
    UdpNoRoom => "udp_no_room",
    /// TCP that does not parse.
    TcpMalformed => "tcp_malformed",
    /// The TCP checksum is wrong.
    TcpChecksum => "tcp_checksum",
    /// No connection or listener has that address; answered by a reset.
    TcpNoSocket => "tcp_no_socket",
    /// Outside the receive window; answered by an acknowledgement.
    TcpOutOfWindow => "tcp_out_of_window",
    /// An old timestamp (PAWS, RFC 7323).
    TcpPaws => "tcp_paws",
    /// An acknowledgement of what was never sent.
    TcpBadAck => "tcp_bad_ack",
    /// A reset or SYN that fails RFC 5961.
    TcpBlindReset => "tcp_blind_reset",
    /// The listener's queue of half-open connections is full.
    TcpSynQueueFull => "tcp_syn_queue_full",
    /// The listener takes no SYN for a time.
    TcpListenerShut => "tcp_listener_shut",
    /// The listener's accept queue is full.
    TcpAcceptQueueFull => "tcp_accept_queue_full",
    /// An acknowledgement of the handshake, where the listener waits for data (TCP_DEFER_ACCEPT).
    TcpDeferred => "tcp_deferred",
    /// Signed (RFC 2385), where no key has been agreed on.
    TcpSigned => "tcp_signed",
    /// Not signed (RFC 2385), where there is a key for the peer.
    TcpUnsigned => "tcp_unsigned",
    /// Signed with another key, or changed on the way.
    TcpBadSignature => "tcp_bad_signature",
    /// The connection table is full.
    TcpTableFull => "tcp_table_full",
    /// The owner has no room for the payload.
    TcpNoRoom => "tcp_no_room",
    /// Data for a connection that is closed for reading.
    TcpClosed => "tcp_closed",
    /// Reassembly of out-of-order data has reached its limit.
    TcpReassemblyLimit => "tcp_reassembly_limit",
}

/// How many reasons there are.
pub const DROP_REASON_COUNT: usize = DropReason::ALL.len();

/// What the stack counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// Drops by [`DropReason`], in the order of [`DropReason::ALL`].
    pub drops: Vec<u64>,
    /// Frames given to [`on_frame`](crate::Stack::on_frame).
    pub rx_frames: u64,
    /// Frames transmitted.
    pub tx_frames: u64,
    /// ARP requests sent.
    pub arp_requests: u64,
    /// ARP replies sent.
    pub arp_replies: u64,
    /// Next hops of IPv4 that did not answer.
    pub arp_failures: u64,
    /// Neighbour solicitations sent, those of duplicate address detection among them.
    pub ndp_solicitations: u64,
    /// Neighbour advertisements sent.
    pub ndp_advertisements: u64,
    /// Next hops of IPv6 that did not answer.
    pub ndp_failures: u64,
    /// Router solicitations sent.
    pub router_solicitations: u64,
    /// Messages about multicast groups of IPv4 sent.
    pub igmp_reports: u64,
    /// Messages about multicast groups of IPv6 sent.
    pub mld_reports: u64,
    /// Wishes to listen to groups refused, as there are as many as there may be.
    pub groups_limited: u64,
    /// Own IPv6 addresses given up because somebody else has them.
    pub addresses_duplicate: u64,
    /// Addresses, prefixes and routers of advertisements that found no room.
    pub autoconf_limited: u64,
    /// Neighbours forgotten because the table was full.
    pub neighbor_evictions: u64,
    /// Path MTUs forgotten because there were too many.
    pub path_mtu_evictions: u64,
    /// Destinations of ICMP errors forgotten because there were too many; what they may get begins
    /// anew.
    pub complaint_evictions: u64,
    /// Incomplete datagrams forgotten because there were too many, or too many bytes of them.
    pub reassembly_evictions: u64,
    /// Datagrams reassembled from fragments.
    pub reassembled: u64,
    /// Echo requests answered.
    pub echo_replies: u64,
    /// Port unreachable messages sent.
    pub unreachables: u64,
    /// Other ICMPv6 errors sent: headers not understood, fragments out of time.
    pub problems: u64,
    /// Datagrams delivered to UDP sockets.
    pub udp_received: u64,
    /// Datagrams sent by UDP sockets.
    pub udp_sent: u64,
    /// Requests refused because a table was full.
    pub requests_limited: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            drops: vec![0; DROP_REASON_COUNT],
            rx_frames: 0,
            tx_frames: 0,
            arp_requests: 0,
            arp_replies: 0,
            arp_failures: 0,
            ndp_solicitations: 0,
            ndp_advertisements: 0,
            ndp_failures: 0,
            router_solicitations: 0,
            igmp_reports: 0,
            mld_reports: 0,
            groups_limited: 0,
            addresses_duplicate: 0,
            autoconf_limited: 0,
            neighbor_evictions: 0,
            path_mtu_evictions: 0,
            complaint_evictions: 0,
            reassembly_evictions: 0,
            reassembled: 0,
            echo_replies: 0,
            unreachables: 0,
            problems: 0,
            udp_received: 0,
            udp_sent: 0,
            requests_limited: 0,
        }
    }
}

impl Counters {
    /// Counts one drop.
    pub fn drop(&mut self, reason: DropReason) {
        if let Some(count) = self.drops.get_mut(reason as usize) {
            *count = count.wrapping_add(1);
        }
    }

    /// Drops for one reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.get(reason as usize).copied().unwrap_or(0)
    }

    /// Every counter but the drops, with its name.
    pub fn each(&self, mut visit: impl FnMut(&str, u64)) {
        for (name, value) in [
            ("rx_frames", self.rx_frames),
            ("tx_frames", self.tx_frames),
            ("arp_requests", self.arp_requests),
            ("arp_replies", self.arp_replies),
            ("arp_failures", self.arp_failures),
            ("ndp_solicitations", self.ndp_solicitations),
            ("ndp_advertisements", self.ndp_advertisements),
            ("ndp_failures", self.ndp_failures),
            ("router_solicitations", self.router_solicitations),
            ("igmp_reports", self.igmp_reports),
            ("mld_reports", self.mld_reports),
            ("groups_limited", self.groups_limited),
            ("addresses_duplicate", self.addresses_duplicate),
            ("autoconf_limited", self.autoconf_limited),
            ("neighbor_evictions", self.neighbor_evictions),
            ("path_mtu_evictions", self.path_mtu_evictions),
            ("complaint_evictions", self.complaint_evictions),
            ("reassembly_evictions", self.reassembly_evictions),
            ("reassembled", self.reassembled),
            ("echo_replies", self.echo_replies),
            ("unreachables", self.unreachables),
            ("problems", self.problems),
            ("udp_received", self.udp_received),
            ("udp_sent", self.udp_sent),
            ("requests_limited", self.requests_limited),
        ] {
            visit(name, value);
        }
    }
}
