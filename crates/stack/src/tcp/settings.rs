//! How TCP behaves towards the network, for all connections of a stack.

use serde::{Deserialize, Serialize};

use super::ecn::EcnMode;
use super::fast_open::FastOpenKeys;
use crate::api::CongestionKind;

/// What the kernel has as `net.ipv4.tcp_*`. The defaults are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSettings {
    /// Offers and accepts timestamps (RFC 7323), as `tcp_timestamps`. Without them there is no
    /// protection against wrapped sequence numbers (PAWS), ports in TIME-WAIT are not used again
    /// early, and needless timeouts are told by F-RTO and D-SACK only.
    pub timestamps: bool,
    /// When the path MTU is searched for without help from routers, as `tcp_mtu_probing`; the one
    /// default that is not the kernel's, which has it off.
    pub mtu_probing: MtuProbing,
    /// Where the search begins, as `tcp_base_mss`; it goes below that only by halves.
    pub base_mss: u16,
    /// Offers and accepts selective acknowledgements (RFC 2018), as `tcp_sack`.
    pub sack: bool,
    /// Offers and accepts scaled windows (RFC 7323), as `tcp_window_scaling`.
    pub window_scaling: bool,
    /// Receive memory that a connection starts with which tunes it itself, as the second number of
    /// `tcp_rmem`; the first window takes half of it.
    pub receive_initial: u32,
    /// Bytes that a receive window which tunes itself may reach, as the third number of `tcp_rmem`;
    /// the window scale option is chosen for them at the least, for a shift cannot be changed later.
    pub receive_max: u32,
    /// The congestion window shrinks while a connection is idle, as `tcp_slow_start_after_idle`.
    pub slow_start_after_idle: bool,
    /// Milliseconds of the longest retransmission timeout, 1,000 to 120,000, as `tcp_rto_max_ms`.
    pub rto_max_ms: u32,
    /// How often a SYN is sent again where TCP_SYNCNT does not say so, as `tcp_syn_retries`.
    pub syn_retries: u8,
    /// How often a SYN and ACK is sent again, as `tcp_synack_retries`.
    pub syn_ack_retries: u8,
    /// Answers SYNs with cookies when a listener's SYN queue is full (RFC 4987), as
    /// `tcp_syncookies` = 1. Without them the oldest of the waiting handshakes gives way.
    pub syn_cookies: bool,
    /// Whether ECN is asked for and agreed to, as `tcp_ecn`.
    pub ecn: EcnMode,
    /// The congestion control of connections that do not say, as `tcp_congestion_control`.
    pub congestion: CongestionKind,
    /// How CUBIC's first slow start ends.
    pub hystart: HyStartKind,
    /// Bytes that a program may have written and not acknowledged on a connection whose send
    /// buffer tunes itself, as the last of `tcp_wmem`.
    pub send_max: u32,
    /// Bytes that a program may have written and not sent where TCP_NOTSENT_LOWAT does not say so,
    /// as `tcp_notsent_lowat`; the largest number for no limit.
    pub unsent_low_water: u32,
    /// Fast Open (RFC 7413), the bits of `tcp_fastopen`: 1 for data on our SYNs, 2 for listeners
    /// that allow it (TCP_FASTOPEN), 4 for SYNs without a cookie, 0x200 for listeners without
    /// one, 0x400 for all listeners.
    pub fast_open: u32,
    /// Seconds without data on our SYNs after connections with it timed out, the longer the more
    /// often; 0 for none, as `tcp_fastopen_blackhole_timeout_sec`.
    pub fast_open_pause_s: u32,
    /// Segments of a large frame, whatever the rate, as `tcp_min_tso_segs`.
    pub tso_segments_min: u8,
    /// Speaks the User Timeout Option (RFC 5482), which the kernel does not: a program's TCP_USER_TIMEOUT,
    /// or the usual patience, is told to the peer, and what the peer tells makes the patience of
    /// connections longer whose programs have not set it.
    pub user_timeout_option: bool,
    /// Seconds of the longest user timeout that a peer can ask for (U_LIMIT of RFC 5482); it makes none
    /// shorter than it is without the option.
    pub user_timeout_max_s: u32,
    /// Paces every connection, as the kernel does where the interface's queue is fq; otherwise only
    /// those whose congestion control (bbr) or program (SO_MAX_PACING_RATE) wants it.
    pub paced: bool,
    /// What makes Fast Open's cookies at listeners without keys of their own, as
    /// `tcp_fastopen_key`, so that the engines behind one address believe each other's; drawn at
    /// random where `None`.
    pub fast_open_key: Option<FastOpenKeys>,
}

/// When the path MTU is searched for by probes (RFC 8899).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MtuProbing {
    /// Never.
    Off,
    /// Once three timeouts in a row let suspect that large packets vanish.
    #[default]
    AfterBlackHole,
    /// From the beginning of each connection.
    Always,
}

/// How CUBIC's first slow start ends when the round-trip time grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HyStartKind {
    /// By way of a slower growth that can be taken back (HyStart++, RFC 9406).
    #[default]
    Rfc9406,
    /// At once, as the kernel's HyStart, which looks at trains of acknowledgements, too.
    Kernel,
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self {
            timestamps: true,
            mtu_probing: MtuProbing::default(),
            base_mss: 1024,
            sack: true,
            window_scaling: true,
            receive_initial: 128 << 10,
            receive_max: 6 << 20,
            slow_start_after_idle: true,
            rto_max_ms: 120_000,
            syn_retries: 6,
            syn_ack_retries: 5,
            syn_cookies: true,
            ecn: EcnMode::default(),
            congestion: CongestionKind::default(),
            hystart: HyStartKind::default(),
            send_max: 4 << 20,
            unsent_low_water: u32::MAX,
            fast_open: 1,
            fast_open_pause_s: 0,
            tso_segments_min: 2,
            user_timeout_option: false,
            user_timeout_max_s: 3600,
            paced: false,
            fast_open_key: None,
        }
    }
}
