//! What TCP counts beside drops.

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counters of all connections together.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct TcpCounters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl TcpCounters {
            /// Every counter with its name.
            pub fn each(&self, mut visit: impl FnMut(&'static str, u64)) {
                $(visit(concat!("tcp_", stringify!($name)), self.$name);)+
            }
        }
    };
}

counters! {
    /// Connections opened by us.
    active_opens,
    /// Connections opened by peers.
    passive_opens,
    /// Connections that reached ESTABLISHED.
    established,
    /// Segments received for a connection.
    segments_received,
    /// Segments sent.
    segments_sent,
    /// Segments sent again.
    retransmits,
    /// Retransmissions found lost without waiting for a timeout.
    lost_retransmits,
    /// Tail loss probes due (RFC 8985).
    tail_probes,
    /// Losses that a tail loss probe repaired.
    tail_probe_repairs,
    /// Retransmission timeouts.
    timeouts,
    /// Timeouts that F-RTO found to have come too early.
    spurious_timeouts,
    /// Fast recoveries entered.
    fast_recoveries,
    /// Window probes sent.
    window_probes,
    /// Keepalive probes sent.
    keepalive_probes,
    /// Resets sent.
    resets_sent,
    /// Valid resets received.
    resets_received,
    /// Challenge acknowledgements sent (RFC 5961).
    challenge_acks,
    /// Challenge acknowledgements not sent because of the rate limit.
    challenges_limited,
    /// Connections given up for lack of answers.
    timed_out,
    /// Acknowledgements delayed until their timer.
    delayed_acks,
    /// Segments that arrived out of order.
    out_of_order,
    /// Segments that began or ended beyond the window and were not taken.
    beyond_window,
    /// Duplicates reported to the peer (RFC 2883).
    duplicates,
    /// Duplicates reported by peers (RFC 2883).
    duplicates_reported,
    /// Supposed losses whose cost was taken back.
    undone,
    /// Ranges forgotten because a list was full.
    ranges_forgotten,
    /// TIME-WAITs ended early because their table was full.
    time_wait_evictions,
    /// TIME-WAITs taken over by a new connection.
    time_wait_reuses,
    /// SYNs of ours whose data was taken at once (Fast Open).
    fast_open_active,
    /// SYNs of ours whose data was not taken.
    fast_open_active_failed,
    /// SYNs of peers whose data was taken at once.
    fast_open_passive,
    /// SYNs with a cookie that was not believed.
    fast_open_passive_failed,
    /// SYNs with a cookie that was made with the former key.
    fast_open_former_key,
    /// SYNs that asked for a cookie.
    fast_open_cookies_requested,
    /// SYNs not taken at once because the listener's allowance was used up.
    fast_open_overflows,
    /// Servers of which nothing is remembered any more for want of room.
    fast_open_evictions,
    /// Pauses of Fast Open after connections with it timed out.
    fast_open_pauses,
    /// Times that a peer announced urgent data.
    urgent_received,
    /// SYNs answered with a cookie because the SYN queue was full.
    syn_cookies_sent,
    /// Answers to SYN cookies that made a connection, or would have with room for one.
    syn_cookies_received,
    /// Acknowledgements that were no answer to a cookie while cookies were about.
    syn_cookies_failed,
    /// Half-open connections displaced from a full SYN queue by newer ones.
    half_open_evicted,
    /// Connections reset because data arrived after close or was unread at close.
    aborts_on_data,
    /// Answers without a connection that found no room in their queue.
    replies_dropped,
    /// Requests refused because the connection table was full.
    connections_limited,
    /// Active opens that found no free port.
    ports_exhausted,
    /// ICMP errors taken.
    icmp_errors,
    /// ICMP errors about a connection's bytes that are not under way.
    icmp_out_of_window,
    /// Path MTU reductions.
    path_mtu_reductions,
    /// Segments lost for want of a way, a neighbour or their own address.
    segments_unroutable,
    /// Segments that the port's queue refused.
    segments_refused,
    /// Larger packets tried where routers say nothing of the path MTU (RFC 8899).
    path_mtu_probes,
    /// Times that large packets were suspected to vanish.
    black_holes,
    /// Packets received that routers had marked (ECN's CE).
    ecn_marks,
    /// Windows reduced because peers told of marks.
    ecn_reductions,
    /// Times that data waited for its pace.
    paced,
    /// Receive windows that grew with what was read in a round trip.
    receive_windows_grown,
    /// Windows reduced because they had not been used for a timeout.
    unused_windows_reduced,
    /// Handshakes that wait for the peer's first data (TCP_DEFER_ACCEPT).
    accepts_deferred,
    /// Ends of records (MSG_EOR) that were not kept, for too many of them waited.
    records_joined,
    /// User timeouts told to peers (RFC 5482).
    user_timeouts_sent,
    /// User timeouts that peers told.
    user_timeouts_received,
    /// Bytes whose times were asked for (SO_TIMESTAMPING) and not kept, for too many of them waited.
    stamps_forgotten,
}
