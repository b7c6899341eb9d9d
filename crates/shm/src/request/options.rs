//! Options of endpoints: their numbers, and what values they take.

macro_rules! option_names {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// Options by name; values are numbers, flags 0 or 1.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum OptionName { $($(#[$doc])* $name = $code,)* }

        impl OptionName {
            pub(super) fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

option_names! {
    /// TCP_NODELAY.
    Nodelay = 1,
    /// TCP_CORK.
    Cork = 2,
    /// TCP_QUICKACK.
    Quickack = 3,
    /// SO_KEEPALIVE.
    Keepalive = 4,
    /// TCP_KEEPIDLE, seconds.
    Keepidle = 5,
    /// TCP_KEEPINTVL, seconds.
    Keepintvl = 6,
    /// TCP_KEEPCNT.
    Keepcnt = 7,
    /// TCP_USER_TIMEOUT, milliseconds.
    UserTimeout = 8,
    /// TCP_MAXSEG, bytes.
    Maxseg = 9,
    /// SO_LINGER: 0 off, else seconds plus one.
    Linger = 10,
    /// IP_TOS.
    Tos = 11,
    /// IP_TTL.
    Ttl = 12,
    /// Limit of the receive window (SO_RCVBUF), bytes; of a UDP socket SO_RCVBUF as the kernel tells it.
    ReceiveLimit = 13,
    /// TCP_CONGESTION: 0 CUBIC, 1 Reno, 2 DCTCP, 3 BBR.
    Congestion = 14,
    /// TCP_DEFER_ACCEPT, seconds.
    DeferAccept = 15,
    /// A listener's backlog.
    Backlog = 16,
    /// IP_MTU_DISCOVER.
    MtuDiscover = 17,
    /// TCP_LINGER2, seconds.
    Linger2 = 18,
    /// TCP_SYNCNT.
    SynRetries = 19,
    /// TCP_WINDOW_CLAMP, bytes.
    WindowClamp = 20,
    /// IP_MTU, only to be asked for.
    PathMtu = 21,
    /// SO_MAX_PACING_RATE, bytes per second; the largest number for no limit.
    MaxPacingRate = 30,
    /// TCP_FASTOPEN of a listener: how many connections may wait.
    FastOpen = 31,
    /// TCP_FASTOPEN_NO_COOKIE of a listener.
    FastOpenNoCookie = 32,
    /// SO_RCVLOWAT: bytes that the window is to hold at the least.
    ReceiveLowWater = 33,
    /// TCP_NOTSENT_LOWAT: bytes; 0 for the engine's own.
    UnsentLowWater = 34,
    /// Where the stream ends that has been sent, a FIN counted as one byte; only to be asked for.
    SentEnd = 35,
    /// The same of what is acknowledged.
    AckedEnd = 36,
    /// When bytes come is remembered (SO_TIMESTAMP and its kin).
    ReceiveStamps = 37,
    /// Up to where the stream could be sent now if so much were written, with [`SEND_EDGE_PARTED`];
    /// only to be asked for.
    SendEdge = 38,
    /// TCP_RTO_MAX_MS.
    RetransmitTimeoutMax = 39,
    /// The rate, or the marks, that the congestion control knows of (`TcpModel::rate` of the stack);
    /// only to be asked for.
    ModelRate = 44,
    /// What else it knows (`TcpModel::state`); only to be asked for.
    ModelState = 45,
    /// Of a listener: it stays for a time when its last endpoint is closed, since other processes may
    /// have the kernel's socket for it.
    Outlives = 48,
    /// IP_RECVERR of a datagram endpoint.
    ReceiveErrors = 40,
    /// IPV6_RECVERR of a datagram endpoint.
    ReceiveErrors6 = 41,
    /// UDP_NO_CHECK6_RX.
    NoCheck6Receive = 42,
    /// UDP_GRO.
    ReceiveCoalesced = 43,
    /// IPV6_TCLASS of a connection, or of those of a listener, over IPv6.
    TrafficClass = 46,
    /// IPV6_UNICAST_HOPS, the same.
    HopLimit = 47,
    /// IP_MULTICAST_ALL of a datagram endpoint, on to begin with.
    AllGroups = 60,
    /// IPV6_MULTICAST_ALL, the same.
    AllGroups6 = 61,
}

/// Set in the answer about [`OptionName::SendEdge`] where what a program fills a frame with goes in more
/// than one: it is more than half of the congestion window, or than the rate allows at a time.
pub const SEND_EDGE_PARTED: u64 = 1 << 63;

impl OptionName {
    /// Whether [`Self::admits`] alone decides what setting the option of a connection or a listener
    /// answers, so that a client need not wait for the engine to say it.
    pub fn is_decided_by_value(self) -> bool {
        matches!(
            self,
            Self::Nodelay
                | Self::Cork
                | Self::Quickack
                | Self::Keepalive
                | Self::Keepidle
                | Self::Keepintvl
                | Self::Keepcnt
                | Self::UserTimeout
                | Self::RetransmitTimeoutMax
                | Self::Linger
                | Self::Linger2
                | Self::Tos
                | Self::Ttl
                | Self::TrafficClass
                | Self::HopLimit
                | Self::MtuDiscover
        )
    }

    /// Whether an option of a TCP socket takes the value, as Linux decides it (net/ipv4/tcp.c,
    /// net/ipv4/ip_sockglue.c). Values are 32-bit numbers: a negative one is its two's complement.
    pub fn admits(self, value: u64) -> bool {
        let Ok(bits) = u32::try_from(value) else { return false };
        let number = bits.cast_signed();
        match self {
            // -1 asks for the default.
            Self::Ttl => number == -1 || (1..=255).contains(&number),
            Self::TrafficClass | Self::HopLimit => (-1..=255).contains(&number),
            Self::Keepidle | Self::Keepintvl => (1..=32767).contains(&number),
            Self::Keepcnt => (1..=127).contains(&number),
            Self::UserTimeout => number >= 0,
            Self::RetransmitTimeoutMax => (1_000..=120_000).contains(&number),
            // TCP_MIN_MSS and MAX_TCP_WINDOW; 0 takes the wish back.
            Self::Maxseg => number == 0 || (88..=32767).contains(&number),
            Self::Congestion => (0..=3).contains(&number),
            Self::MtuDiscover => (0..=5).contains(&number),
            Self::SynRetries => (1..=127).contains(&number),
            Self::WindowClamp => number != 0,
            Self::PathMtu
            | Self::SentEnd
            | Self::AckedEnd
            | Self::SendEdge
            | Self::ModelRate
            | Self::ModelState => false,
            Self::FastOpen => number >= 0,
            Self::FastOpenNoCookie => matches!(number, 0 | 1),
            Self::Nodelay
            | Self::Cork
            | Self::Quickack
            | Self::Keepalive
            | Self::Linger
            | Self::Tos
            | Self::ReceiveLimit
            | Self::MaxPacingRate
            | Self::DeferAccept
            | Self::Linger2
            | Self::ReceiveLowWater
            | Self::UnsentLowWater
            | Self::ReceiveStamps
            | Self::ReceiveErrors
            | Self::ReceiveErrors6
            | Self::NoCheck6Receive
            | Self::ReceiveCoalesced
            | Self::AllGroups
            | Self::AllGroups6
            | Self::Outlives
            | Self::Backlog => true,
        }
    }
}
