//! Requests on a lane and their replies: one 64-byte slot each, answered in order and at once.
//! What takes time (a connection being opened) shows in the endpoint's levels afterwards.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;

use crate::descriptor::{mapped, unmapped};
use crate::ring::Words;

mod counts;
mod options;
pub use counts::ConnectionCounts;
pub use options::{OptionName, SEND_EDGE_PARTED};

/// What the engine answers to a request that it leaves to the kernel, although it could have been
/// its own: it is about to end, or the kernel may have a way or a port where it has none.
pub const LEFT_TO_KERNEL: Errno = Errno::SHUTDOWN;

/// What it answers when its lists leave the socket's port to the kernel: one that the kernel gives
/// for no other reason.
pub const LEFT_BY_LISTS: Errno = Errno::UNATCH;

/// A request to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Open a connection. Reply: [`Reply::Endpoint`] with the addresses; whether it succeeds shows
    /// in the endpoint's status.
    Connect {
        /// The peer.
        remote: SocketAddr,
        /// Token of an authorized local address (`BindTcp` on the control socket), or 0.
        token: u32,
        /// Options that shape the SYN.
        options: ConnectOptions,
    },
    /// Claim one waiting connection of a listener. Reply: [`Reply::Endpoint`], or
    /// [`Reply::Failed`] with EAGAIN.
    Accept {
        /// The listener's endpoint.
        listener: u32,
    },
    /// Close in order: what was sent is delivered; what was received and not read makes it a
    /// reset. The endpoint is the engine's again with the reply.
    Close {
        /// Which endpoint.
        endpoint: u32,
    },
    /// Close with a reset. The endpoint is the engine's again with the reply.
    Abort {
        /// Which endpoint.
        endpoint: u32,
    },
    /// Nothing more will be read (shutdown for reading): received bytes may be dropped.
    StopReceiving {
        /// Which endpoint.
        endpoint: u32,
    },
    /// Set an option. Reply: [`Reply::Done`].
    SetOption {
        /// Which endpoint.
        endpoint: u32,
        /// Which option.
        option: OptionName,
        /// Its value, in the option's unit.
        value: u64,
    },
    /// Ask for an option. Reply: [`Reply::Value`].
    Option {
        /// Which endpoint.
        endpoint: u32,
        /// Which option.
        option: OptionName,
    },
    /// Ask for a connection's numbers. Reply: [`Reply::Info`].
    Info {
        /// Which endpoint.
        endpoint: u32,
    },
    /// Ask what has become of a connection's data so far. Reply: [`Reply::Progress`].
    Progress {
        /// Which endpoint.
        endpoint: u32,
    },
    /// Ask what was counted of a connection. Reply: [`Reply::Counts`].
    Counts {
        /// Which endpoint.
        endpoint: u32,
    },
    /// Ask for a connection's rates and amounts. Reply: [`Reply::Rates`].
    Rates {
        /// Which endpoint.
        endpoint: u32,
    },
    /// Fix the peer of a datagram endpoint, or loosen it. Reply: [`Reply::Endpoint`] with the
    /// addresses.
    ConnectDatagram {
        /// Which endpoint.
        endpoint: u32,
        /// The peer.
        remote: Option<SocketAddr>,
    },
    /// Take the oldest of the times that were asked for. Reply: [`Reply::Stamp`], or
    /// [`Reply::Failed`] with EAGAIN.
    TakeStamp {
        /// Which endpoint.
        endpoint: u32,
    },
    /// Ask when the byte before `end` of the receive stream came
    /// ([`OptionName::ReceiveStamps`]). Reply: [`Reply::Value`], 0 where it is not known.
    Arrival {
        /// Which endpoint.
        endpoint: u32,
        /// One past the byte's offset.
        end: u64,
    },
    /// What a datagram endpoint hears of a group that comes through an interface. Whom it named
    /// before is forgotten. Reply: [`Reply::Done`].
    SetGroup {
        /// Which endpoint.
        endpoint: u32,
        /// Number of the interface, plus one.
        interface: u32,
        /// The group.
        group: IpAddr,
        /// All senders but those that are named; else those alone; `None`: nothing.
        excludes: Option<bool>,
    },
    /// Name a sender of a group that a datagram endpoint hears, or name it no more. Reply:
    /// [`Reply::Done`].
    NameSource {
        /// Which endpoint.
        endpoint: u32,
        /// Number of the interface, plus one.
        interface: u32,
        /// The group.
        group: IpAddr,
        /// The sender.
        source: IpAddr,
        /// Whether it is named.
        is_named: bool,
    },
    /// Give a listener Fast Open keys of its own (TCP_FASTOPEN_KEY). Reply: [`Reply::Done`].
    SetFastOpenKeys {
        /// Which endpoint.
        endpoint: u32,
        /// The key that makes cookies.
        primary: u128,
        /// The one before, whose cookies are still believed.
        backup: Option<u128>,
    },
    /// Set or take back the key that the segments of some peers are signed with (RFC 2385): of a
    /// listener or a connection, or ([`NEXT_ENDPOINT`]) of the one that is made next in this session. A
    /// key comes in parts, each behind the one before. Reply: [`Reply::Done`].
    SetKey {
        /// Which endpoint.
        endpoint: u32,
        /// Which part of the key.
        part: KeyPart,
    },
}

/// Stands for the listener, or the connection with [`ConnectOptions::signed`], that is asked for next.
pub const NEXT_ENDPOINT: u32 = u32::MAX;

/// Most bytes of a key that signs segments (TCP_MD5SIG_MAXKEYLEN).
pub const KEY_BYTES_MAX: usize = 80;

/// A part of a key, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// The peers' network.
    pub network: IpAddr,
    /// Bits of it that count.
    pub prefix: u8,
    /// Where in the key the part lies.
    pub at: u8,
    /// Bytes of the whole key; none takes it back.
    pub key_bytes: u8,
    /// The part, and zeros.
    pub bytes: [u8; KEY_PART_BYTES],
}

/// Bytes of a key in one request.
pub const KEY_PART_BYTES: usize = 32;

/// Options that an opened connection has from its SYN on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// SO_KEEPALIVE.
    pub keepalive: bool,
    /// TCP_MAXSEG in bytes; 0 for what the path allows.
    pub maxseg: u16,
    /// IP_TOS, or IPV6_TCLASS over IPv6.
    pub tos: u8,
    /// IP_TTL, or IPV6_UNICAST_HOPS; 0 for the engine's own.
    pub ttl: u8,
    /// Limit of the receive window in bytes; 0 for the engine's own.
    pub receive_limit: u32,
    /// TCP_USER_TIMEOUT in milliseconds; 0 for the engine's own.
    pub user_timeout_ms: u32,
    /// TCP_CONGESTION, as [`OptionName::Congestion`]; `None` for the engine's own.
    pub congestion: Option<u8>,
    /// The first data goes with the SYN, if the server's cookie is known (TCP_FASTOPEN_CONNECT,
    /// MSG_FASTOPEN). EOPNOTSUPP where the engine does not.
    pub fast_open: bool,
    /// It does so without a cookie (TCP_FASTOPEN_NO_COOKIE).
    pub fast_open_no_cookie: bool,
    /// Segments are signed with the keys for [`NEXT_ENDPOINT`].
    pub signed: bool,
}

/// The answer to a [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Done,
    /// It is refused.
    Failed {
        /// Nearest errno.
        errno: u32,
    },
    /// An endpoint, granted or named.
    Endpoint {
        /// Which.
        endpoint: u32,
        /// Its addresses.
        addresses: Addresses,
    },
    /// An option's value.
    Value(u64),
    /// A connection's numbers.
    Info(ConnectionInfo),
    /// Something happened to a byte.
    Stamp(Stamp),
    /// What has become of a connection's data.
    Progress(ConnectionProgress),
    /// What was counted of a connection.
    Counts(ConnectionCounts),
    /// Rates and amounts of a connection.
    Rates(ConnectionRates),
}

/// When something happened to a byte of a send stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// 1 put into a segment, 2 given to the port, 4 acknowledged.
    pub kind: u8,
    /// One past the byte's offset in the send stream.
    pub end: u64,
    /// When, nanoseconds of the monotonic clock.
    pub at_ns: u64,
}

/// Both ends of a connection or datagram endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Ours.
    pub local: SocketAddr,
    /// The peer's; unspecified with port 0 when there is none.
    pub remote: SocketAddr,
}

/// A connection's numbers, for TCP_INFO and the curious.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// RFC 9293 state with the kernel's numbers (TCP_ESTABLISHED is 1).
    pub state: u8,
    /// Retransmissions since the last progress.
    pub retransmits: u8,
    /// Smoothed round-trip time, microseconds.
    pub srtt_us: u32,
    /// Its variation, microseconds.
    pub rttvar_us: u32,
    /// Retransmission timeout, microseconds.
    pub rto_us: u32,
    /// Congestion window, bytes.
    pub cwnd_bytes: u32,
    /// Slow-start threshold, bytes.
    pub ssthresh_bytes: u32,
    /// Sender's maximum segment size, bytes.
    pub mss_bytes: u16,
    /// Window scales: the peer's in the low half, ours in the high half.
    pub scales: u8,
    /// Sent and not acknowledged, bytes.
    pub unacked_bytes: u32,
    /// Segments retransmitted in all.
    pub retransmitted: u32,
    /// The peer's window, bytes.
    pub send_window_bytes: u32,
    /// Our window, bytes.
    pub receive_window_bytes: u32,
    /// What was agreed on: 1 timestamps, 2 SACK, 4 scaled windows, 8 ECN, 32 data with the SYN (the
    /// kernel's `TCPI_OPT_*`).
    pub agreed: u8,
    /// The kernel's `TCP_CA_*`: 0 open, 1 disorder, 2 reduction for marks, 3 recovery, 4 loss.
    pub recovery: u8,
    /// Largest IP packet to the peer, bytes.
    pub path_mtu_bytes: u16,
    /// Full segments of the peer's, bytes.
    pub receive_mss_bytes: u16,
    /// Segment size that was announced to the peer, bytes.
    pub advertised_mss_bytes: u16,
    /// Selectively acknowledged, bytes.
    pub sacked_bytes: u32,
    /// Found lost and not acknowledged, bytes; what has been sent again is among them.
    pub lost_bytes: u32,
}

/// What has become of a connection's data so far, for TCP_INFO and the curious.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionProgress {
    /// Time in which there was something to send or to be acknowledged, microseconds.
    pub busy_us: u64,
    /// Part of it in which the peer's window was too small, microseconds.
    pub window_limited_us: u64,
    /// Bytes received in order.
    pub received_bytes: u64,
    /// Segments that have arrived at the peer, the SYN among them.
    pub delivered: u32,
    /// Bytes sent again and not acknowledged.
    pub resent_bytes: u32,
    /// Milliseconds since data was received, or since the connection stands.
    pub last_received_ms: u32,
    /// Milliseconds since data was sent, or since the connection stands.
    pub last_sent_ms: u32,
    /// Smallest round-trip time of the last minutes, microseconds; 0 before the first.
    pub min_rtt_us: u32,
    /// Segments by which the network is known to change their order.
    pub reordering: u16,
    /// How often it did.
    pub reorderings: u16,
    /// Probes of a closed window, or of a peer that may be gone, without an answer.
    pub probes: u8,
    /// How often the retransmission timeout has been doubled.
    pub backoff: u8,
}

/// Rates and amounts of a connection, for TCP_INFO and the curious.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionRates {
    /// Bytes per second at which it is paced, or would be; the largest number for no limit.
    pub pacing: u64,
    /// Bytes per second that were delivered last; 0 where this has not been measured.
    pub delivery: u64,
    /// Bytes sent again in all, going round.
    pub resent_bytes: u32,
    /// Bytes that the engine knows to be written and has not sent.
    pub unsent_bytes: u32,
    /// Round-trip time as the receiving side sees it, microseconds; 0 before the first measurement.
    pub receive_rtt_us: u32,
    /// Bytes that the program reads in a round trip, as far as known.
    pub receive_space_bytes: u32,
    /// Bytes that the receive window may reach now.
    pub receive_limit_bytes: u32,
    /// Milliseconds since a segment came.
    pub last_acked_ms: u32,
    /// The program, not the network, limited `delivery`.
    pub app_limited: bool,
    /// Data has come, and acknowledgements may be delayed.
    pub delays_acks: bool,
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn put_address(address: SocketAddr) -> ([u64; 2], u64) {
    let bytes = mapped(address.ip());
    let (high, low) = bytes.split_at(8);
    let word = |half: &[u8]| half.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let family = if address.is_ipv4() { 4 } else { 6 };
    ([word(high), word(low)], u64::from(address.port()) | family << 16)
}

fn take_address(words: [u64; 2], rest: u64) -> SocketAddr {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].to_le_bytes());
    SocketAddr::new(unmapped(bytes, (rest >> 16) as u8), rest as u16)
}

impl Request {
    /// As words, without the serial.
    pub fn encode(&self) -> Words {
        let mut content = [0; 7];
        let kind = match *self {
            Self::Connect { remote, token, options } => {
                let (address, rest) = put_address(remote);
                content[..2].copy_from_slice(&address);
                content[2] = rest
                    | u64::from(options.nodelay) << 24
                    | u64::from(options.keepalive) << 25
                    | u64::from(options.fast_open) << 26
                    | u64::from(options.fast_open_no_cookie) << 27
                    | u64::from(options.signed) << 28
                    | u64::from(options.tos) << 32
                    | u64::from(options.ttl) << 40
                    | u64::from(options.maxseg) << 48;
                content[3] = u64::from(token) | u64::from(options.receive_limit) << 32;
                let congestion = options.congestion.map_or(0, |code| u64::from(code) + 1);
                content[4] = u64::from(options.user_timeout_ms) | congestion << 32;
                1
            }
            Self::Accept { listener } => {
                content[0] = u64::from(listener);
                2
            }
            Self::Close { endpoint } => {
                content[0] = u64::from(endpoint);
                3
            }
            Self::Abort { endpoint } => {
                content[0] = u64::from(endpoint);
                4
            }
            Self::StopReceiving { endpoint } => {
                content[0] = u64::from(endpoint);
                5
            }
            Self::SetOption { endpoint, option, value } => {
                content[0] = u64::from(endpoint) | (option as u64) << 32;
                content[1] = value;
                6
            }
            Self::Option { endpoint, option } => {
                content[0] = u64::from(endpoint) | (option as u64) << 32;
                7
            }
            Self::Info { endpoint } => {
                content[0] = u64::from(endpoint);
                8
            }
            Self::Progress { endpoint } => {
                content[0] = u64::from(endpoint);
                15
            }
            Self::Counts { endpoint } => {
                content[0] = u64::from(endpoint);
                23
            }
            Self::Rates { endpoint } => {
                content[0] = u64::from(endpoint);
                16
            }
            Self::ConnectDatagram { endpoint, remote } => {
                content[0] = u64::from(endpoint) | u64::from(remote.is_some()) << 32;
                if let Some(remote) = remote {
                    let (address, rest) = put_address(remote);
                    content[1..3].copy_from_slice(&address);
                    content[3] = rest;
                }
                9
            }
            Self::TakeStamp { endpoint } => {
                content[0] = u64::from(endpoint);
                13
            }
            Self::Arrival { endpoint, end } => {
                content[..2].copy_from_slice(&[u64::from(endpoint), end]);
                14
            }
            Self::SetFastOpenKeys { endpoint, primary, backup } => {
                content[0] = u64::from(endpoint) | u64::from(backup.is_some()) << 32;
                let halves = |key: u128| [key as u64, (key >> 64) as u64];
                content[1..3].copy_from_slice(&halves(primary));
                content[3..5].copy_from_slice(&halves(backup.unwrap_or(0)));
                12
            }
            Self::SetGroup { endpoint, interface, group, excludes } => {
                let excludes = excludes.map_or(0, |excludes| 1 + u64::from(excludes));
                content[0] =
                    u64::from(endpoint) | u64::from(interface as u8) << 32 | excludes << 40;
                let (address, rest) = put_address(SocketAddr::new(group, 0));
                content[1..3].copy_from_slice(&address);
                content[3] = rest;
                20
            }
            Self::NameSource { endpoint, interface, group, source, is_named } => {
                content[0] = u64::from(endpoint)
                    | u64::from(interface as u8) << 32
                    | u64::from(is_named) << 40;
                let (address, rest) = put_address(SocketAddr::new(group, 0));
                content[1..3].copy_from_slice(&address);
                content[3] = rest;
                // Of the group's family.
                let (address, _) = put_address(SocketAddr::new(source, 0));
                content[4..6].copy_from_slice(&address);
                21
            }
            Self::SetKey { endpoint, part } => {
                let (address, rest) = put_address(SocketAddr::new(part.network, 0));
                content[0] = u64::from(endpoint)
                    | u64::from(part.prefix) << 32
                    | u64::from(part.at) << 40
                    | u64::from(part.key_bytes) << 48
                    | rest >> 16 << 56;
                content[1..3].copy_from_slice(&address);
                let (words, _) = part.bytes.as_chunks::<8>();
                for (word, bytes) in content[3..].iter_mut().zip(words) {
                    *word = u64::from_le_bytes(*bytes);
                }
                22
            }
        };
        Words { kind, serial: 0, content }
    }

    /// From words; `None` when no request looks like that.
    pub fn decode(words: &Words) -> Option<Self> {
        let content = words.content;
        let endpoint = content[0] as u32;
        let option = || OptionName::from_code((content[0] >> 32) as u8);
        Some(match words.kind {
            1 => Self::Connect {
                remote: take_address([content[0], content[1]], content[2]),
                token: content[3] as u32,
                options: ConnectOptions {
                    nodelay: content[2] >> 24 & 1 != 0,
                    keepalive: content[2] >> 25 & 1 != 0,
                    fast_open: content[2] >> 26 & 1 != 0,
                    fast_open_no_cookie: content[2] >> 27 & 1 != 0,
                    signed: content[2] >> 28 & 1 != 0,
                    tos: (content[2] >> 32) as u8,
                    ttl: (content[2] >> 40) as u8,
                    maxseg: (content[2] >> 48) as u16,
                    receive_limit: (content[3] >> 32) as u32,
                    user_timeout_ms: content[4] as u32,
                    congestion: ((content[4] >> 32) as u8).checked_sub(1),
                },
            },
            2 => Self::Accept { listener: endpoint },
            3 => Self::Close { endpoint },
            4 => Self::Abort { endpoint },
            5 => Self::StopReceiving { endpoint },
            6 => Self::SetOption { endpoint, option: option()?, value: content[1] },
            7 => Self::Option { endpoint, option: option()? },
            8 => Self::Info { endpoint },
            9 => Self::ConnectDatagram {
                endpoint,
                remote: (content[0] >> 32 & 1 != 0)
                    .then(|| take_address([content[1], content[2]], content[3])),
            },
            12 => {
                let key = |at: usize| u128::from(content[at]) | u128::from(content[at + 1]) << 64;
                let backup = (content[0] >> 32 & 1 != 0).then(|| key(3));
                Self::SetFastOpenKeys { endpoint, primary: key(1), backup }
            }
            13 => Self::TakeStamp { endpoint },
            14 => Self::Arrival { endpoint, end: content[1] },
            15 => Self::Progress { endpoint },
            20 => Self::SetGroup {
                endpoint,
                interface: u32::from((content[0] >> 32) as u8),
                group: take_address([content[1], content[2]], content[3]).ip(),
                excludes: ((content[0] >> 40) as u8).checked_sub(1).map(|excludes| excludes != 0),
            },
            21 => Self::NameSource {
                endpoint,
                interface: u32::from((content[0] >> 32) as u8),
                group: take_address([content[1], content[2]], content[3]).ip(),
                source: take_address([content[4], content[5]], content[3]).ip(),
                is_named: content[0] >> 40 & 1 != 0,
            },
            16 => Self::Rates { endpoint },
            23 => Self::Counts { endpoint },
            22 => {
                let mut bytes = [0; KEY_PART_BYTES];
                let (places, _) = bytes.as_chunks_mut::<8>();
                for (place, word) in places.iter_mut().zip(&content[3..]) {
                    *place = word.to_le_bytes();
                }
                let network = take_address([content[1], content[2]], content[0] >> 56 << 16);
                let part = KeyPart {
                    network: network.ip(),
                    prefix: (content[0] >> 32) as u8,
                    at: (content[0] >> 40) as u8,
                    key_bytes: (content[0] >> 48) as u8,
                    bytes,
                };
                Self::SetKey { endpoint, part }
            }
            _ => return None,
        })
    }
}

impl Reply {
    /// As words, without the serial.
    pub fn encode(&self) -> Words {
        let mut content = [0; 7];
        let kind = match *self {
            Self::Done => 1,
            Self::Failed { errno } => {
                content[0] = u64::from(errno);
                2
            }
            Self::Endpoint { endpoint, addresses } => {
                let (local, local_rest) = put_address(addresses.local);
                let (remote, remote_rest) = put_address(addresses.remote);
                content[..2].copy_from_slice(&local);
                content[2..4].copy_from_slice(&remote);
                content[4] = local_rest | remote_rest << 32;
                content[5] = u64::from(endpoint);
                3
            }
            Self::Value(value) => {
                content[0] = value;
                4
            }
            Self::Stamp(stamp) => {
                content[..3].copy_from_slice(&[u64::from(stamp.kind), stamp.end, stamp.at_ns]);
                6
            }
            Self::Counts(counts) => {
                content = counts.encode();
                9
            }
            Self::Rates(rates) => {
                content[..6].copy_from_slice(&[
                    rates.pacing,
                    rates.delivery,
                    pair(rates.resent_bytes, rates.unsent_bytes),
                    pair(rates.receive_rtt_us, rates.receive_space_bytes),
                    pair(rates.receive_limit_bytes, rates.last_acked_ms),
                    u64::from(rates.app_limited) | u64::from(rates.delays_acks) << 1,
                ]);
                8
            }
            Self::Progress(progress) => {
                content = [
                    progress.busy_us,
                    progress.window_limited_us,
                    progress.received_bytes,
                    pair(progress.delivered, progress.resent_bytes),
                    pair(progress.last_received_ms, progress.last_sent_ms),
                    u64::from(progress.min_rtt_us)
                        | u64::from(progress.reordering) << 32
                        | u64::from(progress.reorderings) << 48,
                    u64::from(progress.probes) | u64::from(progress.backoff) << 8,
                ];
                7
            }
            Self::Info(info) => {
                let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
                content = [
                    u64::from(info.state & 15)
                        | u64::from(info.agreed >> 4) << 4
                        | u64::from(info.retransmits) << 8
                        | u64::from(info.scales) << 16
                        | u64::from(info.agreed & 15) << 24
                        | u64::from(info.recovery & 15) << 28
                        | u64::from(info.mss_bytes) << 32
                        | u64::from(info.path_mtu_bytes) << 48,
                    pair(info.srtt_us, info.rttvar_us),
                    pair(info.rto_us, info.cwnd_bytes),
                    pair(info.ssthresh_bytes, info.unacked_bytes),
                    pair(info.retransmitted, info.send_window_bytes),
                    u64::from(info.receive_window_bytes)
                        | u64::from(info.receive_mss_bytes) << 32
                        | u64::from(info.advertised_mss_bytes) << 48,
                    pair(info.sacked_bytes, info.lost_bytes),
                ];
                5
            }
        };
        Words { kind, serial: 0, content }
    }

    /// From words; `None` when no reply looks like that.
    pub fn decode(words: &Words) -> Option<Self> {
        let content = words.content;
        let high = |word: u64| (word >> 32) as u32;
        Some(match words.kind {
            1 => Self::Done,
            2 => Self::Failed { errno: content[0] as u32 },
            3 => Self::Endpoint {
                endpoint: content[5] as u32,
                addresses: Addresses {
                    local: take_address([content[0], content[1]], content[4]),
                    remote: take_address([content[2], content[3]], content[4] >> 32),
                },
            },
            4 => Self::Value(content[0]),
            6 => Self::Stamp(Stamp { kind: content[0] as u8, end: content[1], at_ns: content[2] }),
            5 => Self::Info(ConnectionInfo {
                state: content[0] as u8 & 15,
                retransmits: (content[0] >> 8) as u8,
                scales: (content[0] >> 16) as u8,
                mss_bytes: (content[0] >> 32) as u16,
                srtt_us: content[1] as u32,
                rttvar_us: high(content[1]),
                rto_us: content[2] as u32,
                cwnd_bytes: high(content[2]),
                ssthresh_bytes: content[3] as u32,
                unacked_bytes: high(content[3]),
                retransmitted: content[4] as u32,
                send_window_bytes: high(content[4]),
                receive_window_bytes: content[5] as u32,
                agreed: (content[0] >> 24) as u8 & 15 | content[0] as u8 & 0xf0,
                recovery: (content[0] >> 28) as u8 & 15,
                path_mtu_bytes: (content[0] >> 48) as u16,
                receive_mss_bytes: (content[5] >> 32) as u16,
                advertised_mss_bytes: (content[5] >> 48) as u16,
                sacked_bytes: content[6] as u32,
                lost_bytes: high(content[6]),
            }),
            9 => Self::Counts(ConnectionCounts::decode(content)),
            8 => Self::Rates(ConnectionRates {
                pacing: content[0],
                delivery: content[1],
                resent_bytes: content[2] as u32,
                unsent_bytes: high(content[2]),
                receive_rtt_us: content[3] as u32,
                receive_space_bytes: high(content[3]),
                receive_limit_bytes: content[4] as u32,
                last_acked_ms: high(content[4]),
                app_limited: content[5] & 1 != 0,
                delays_acks: content[5] & 2 != 0,
            }),
            7 => Self::Progress(ConnectionProgress {
                busy_us: content[0],
                window_limited_us: content[1],
                received_bytes: content[2],
                delivered: content[3] as u32,
                resent_bytes: high(content[3]),
                last_received_ms: content[4] as u32,
                last_sent_ms: high(content[4]),
                min_rtt_us: content[5] as u32,
                reordering: (content[5] >> 32) as u16,
                reorderings: (content[5] >> 48) as u16,
                probes: content[6] as u8,
                backoff: (content[6] >> 8) as u8,
            }),
            _ => return None,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
