//! What a route says of its paths.

use serde::{Deserialize, Serialize};

use crate::api::CongestionKind;

/// What `ip route` says of the paths of a route beside where they lead (`RTAX_*` of
/// `linux/rtnetlink.h`). Zero, or `None`, says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// Largest IP packet, where that is less than the link takes.
    pub mtu: u16,
    /// `mtu lock`: routers are not listened to, and those of IPv4 may cut.
    pub mtu_lock: bool,
    /// The MSS option of our SYNs.
    pub advmss: u16,
    /// First congestion window, segments.
    pub initial_cwnd: u16,
    /// First receive window, segments of what the MSS option says.
    pub initial_rwnd: u16,
    /// Least variance of the retransmission timeout, milliseconds.
    pub rto_min_ms: u16,
    /// Acknowledgements are not delayed.
    pub quickack: bool,
    /// Time to live, or hop limit, of what nobody asked for another.
    pub hop_limit: u8,
    /// The congestion control of connections.
    pub congestion: Option<CongestionKind>,
}

impl Metrics {
    /// Largest IP packet over a link that takes packets of `link` bytes.
    pub fn mtu_over(&self, link: u16) -> u16 {
        if self.mtu == 0 { link } else { self.mtu.min(link) }
    }

    /// Most bytes of a first receive window, of segments of `mss` bytes.
    pub fn first_window_most(&self, mss: u16) -> u32 {
        match self.initial_rwnd {
            0 => u32::MAX,
            segments => u32::from(segments) * u32::from(mss),
        }
    }

    /// The time to live, or hop limit, if it says one.
    pub fn hops(&self) -> Option<u8> {
        (self.hop_limit > 0).then_some(self.hop_limit)
    }
}
