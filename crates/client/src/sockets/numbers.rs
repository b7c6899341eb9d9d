//! TCP_INFO: the engine's data of a connection in the kernel's format.

use super::options::put;
use super::socket::{Connection, Socket};
use super::{Errno, Sockets};
use crate::{
    ConnectionCounts, ConnectionInfo, ConnectionProgress, ConnectionRates, Endpoint, OptionName,
    Stamp,
};

/// Of `struct tcp_info`.
const STRUCT_BYTES: usize = 280;
/// TCP_INFINITE_SSTHRESH.
const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;
/// Initial delayed-ACK timeout (TCP_ATO_MIN), microseconds.
const ACK_DELAY_US: u32 = 40_000;

/// Codes of [`OptionName::Congestion`].
const DCTCP: u64 = 2;
const BBR: u64 = 3;

/// TCP_SYN_SENT, and TCPI_OPT_TIMESTAMPS.
const SYN_SENT: u8 = 2;
const TIMESTAMPS: u8 = 1;

/// All data of the engine about a connection.
struct Told {
    info: ConnectionInfo,
    progress: ConnectionProgress,
    rates: ConnectionRates,
    counts: ConnectionCounts,
    /// End of the sent data, bytes.
    sent: u64,
}

impl Told {
    fn of(endpoint: &Endpoint) -> Result<Self, Errno> {
        let (info, progress, rates) = (endpoint.info()?, endpoint.progress()?, endpoint.rates()?);
        let counts = endpoint.counts()?;
        let sent = endpoint.option(OptionName::SentEnd)?;
        Ok(Self { info, progress, rates, counts, sent })
    }

    /// Whole segments in so many bytes.
    fn segments(&self, bytes: u32) -> u32 {
        bytes.checked_div(self.info.mss_bytes.into()).unwrap_or(0)
    }

    fn ssthresh(&self) -> u32 {
        match self.info.ssthresh_bytes {
            u32::MAX => SSTHRESH_INFINITE,
            bytes => self.segments(bytes),
        }
    }

    /// Bytes sent, retransmissions included.
    fn sent_in_all(&self) -> u64 {
        self.sent.saturating_add(self.rates.resent_bytes.into())
    }
}

/// A sequence of TCP_NLA_* attributes (linux/tcp.h).
struct Attributes(Vec<u8>);

impl Attributes {
    fn put(&mut self, kind: u16, value: &[u8]) {
        self.0.extend((4 + value.len() as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// The statistics of SCM_TIMESTAMPING_OPT_STATS, in the kernel's order
/// (tcp_get_timestamping_opt_stats), as of the query. Omitted are those that the engine does not
/// know: the transmit time of the acknowledged byte, and the TTL of the acknowledgement.
pub(super) fn statistics(endpoint: &Endpoint, stamp: &Stamp) -> Result<Vec<u8>, Errno> {
    const ACKED: u8 = 4;
    let told = Told::of(endpoint)?;
    let Told { info, progress, rates, counts, .. } = &told;
    let mut out = Attributes(Vec::with_capacity(256));
    for (kind, long) in [
        (1, progress.busy_us),
        (2, progress.window_limited_us),
        (3, counts.buffer_limited_us),
        (4, counts.sent_data.into()),
        (5, info.retransmitted.into()),
        (6, rates.pacing),
        (7, rates.delivery),
    ] {
        out.put(kind, &long.to_ne_bytes());
    }
    let word = |out: &mut Attributes, kind, word: u32| out.put(kind, &word.to_ne_bytes());
    word(&mut out, 8, told.segments(info.cwnd_bytes));
    word(&mut out, 9, progress.reordering.into());
    word(&mut out, 10, progress.min_rtt_us);
    out.put(11, &[info.retransmits]);
    out.put(12, &[u8::from(rates.app_limited)]);
    word(&mut out, 15, told.ssthresh());
    word(&mut out, 16, progress.delivered);
    word(&mut out, 17, counts.marked);
    word(&mut out, 13, u32::try_from(endpoint.unacknowledged_bytes()).unwrap_or(u32::MAX));
    out.put(14, &[info.recovery]);
    out.put(18, &told.sent_in_all().to_ne_bytes());
    out.put(19, &u64::from(rates.resent_bytes).to_ne_bytes());
    word(&mut out, 20, counts.duplicates);
    word(&mut out, 21, progress.reorderings.into());
    word(&mut out, 22, info.srtt_us);
    // The engine never rehashes.
    out.put(23, &0_u16.to_ne_bytes());
    word(&mut out, 24, rates.unsent_bytes);
    if stamp.kind != ACKED {
        out.put(25, &stamp.at_ns.to_ne_bytes());
    }
    word(&mut out, 27, 0);
    Ok(out.0)
}

impl Sockets {
    /// `union tcp_cc_info` (linux/inet_diag.h): `struct tcp_bbr_info`, `struct tcp_dctcp_info`, or
    /// empty, as for CUBIC and Reno in the kernel.
    pub(super) fn congestion_info(connection: &Connection, out: &mut [u8]) -> Result<usize, Errno> {
        let endpoint = &connection.endpoint;
        let kind = endpoint.option(OptionName::Congestion)?;
        if kind != DCTCP && kind != BBR {
            return Ok(0);
        }
        let rate = endpoint.option(OptionName::ModelRate)?;
        let state = endpoint.option(OptionName::ModelState)?;
        let (low, high) = (rate as u32, (rate >> 32) as u32);
        let known = state as u32;
        let words: &[u32] = if kind == BBR {
            &[low, high, known, u32::from((state >> 32) as u16), u32::from((state >> 48) as u16)]
        } else {
            // Two 16-bit numbers: whether it is enabled, and whether the last segment was marked.
            let (is_marked, acts) = ((state >> 32) as u32 & 1, (state >> 33) as u32 & 1);
            &[u32::from_ne_bytes(halves(acts as u16, is_marked as u16)), known, low, high]
        };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Ok(put(out, &bytes))
    }

    /// `struct tcp_info`. Offsets are those of linux/tcp.h, which never change. Fields that the
    /// engine does not count are zero: docs/sockets.md lists them.
    pub(super) fn tcp_info(
        &self,
        (socket, connection): (&Socket, &Connection),
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        let endpoint = &connection.endpoint;
        let told = Told::of(endpoint)?;
        let Told { info, progress, rates, counts, .. } = &told;
        let acked = endpoint.option(OptionName::AckedEnd)?;
        // The SYN counts for the side that sent it first, as in the kernel.
        let acked = acked + u64::from(!socket.was_accepted() && info.state != SYN_SENT);
        // The kernel subtracts the options of every segment.
        let options = if info.agreed & TIMESTAMPS != 0 { 12 } else { 0 };
        let advertised = info.advertised_mss_bytes.saturating_sub(options);
        let most = endpoint.option(OptionName::MaxPacingRate)?;
        let most = if most == u64::from(u32::MAX) { u64::MAX } else { most };
        let mut value = [0_u8; STRUCT_BYTES];
        let mss = u32::from(info.mss_bytes);
        let begun = |bytes: u32| bytes.div_ceil(mss.max(1));
        let bytes = [
            info.state,
            info.recovery,
            info.retransmits,
            progress.probes,
            progress.backoff,
            info.agreed,
            info.scales,
            u8::from(rates.app_limited),
        ];
        let words = [
            (8, info.rto_us),
            (12, if rates.delays_acks { ACK_DELAY_US } else { 0 }),
            (16, mss),
            (20, u32::from(info.receive_mss_bytes)),
            (24, begun(info.unacked_bytes)),
            (28, begun(info.sacked_bytes)),
            (32, begun(info.lost_bytes)),
            (36, begun(progress.resent_bytes)),
            (44, progress.last_sent_ms),
            (52, progress.last_received_ms),
            (56, rates.last_acked_ms),
            (60, u32::from(info.path_mtu_bytes)),
            (64, rates.receive_limit_bytes),
            (68, info.srtt_us),
            (72, info.rttvar_us),
            (76, told.ssthresh()),
            (80, told.segments(info.cwnd_bytes)),
            (84, u32::from(advertised)),
            (88, u32::from(progress.reordering)),
            (92, rates.receive_rtt_us),
            (96, rates.receive_space_bytes),
            (100, info.retransmitted),
            (136, counts.sent),
            (140, counts.received),
            (144, rates.unsent_bytes),
            (148, progress.min_rtt_us),
            (152, counts.received_data),
            (156, counts.sent_data),
            (192, progress.delivered),
            (196, counts.marked),
            (216, counts.duplicates),
            (220, u32::from(progress.reorderings)),
            (224, counts.out_of_order),
            (228, info.send_window_bytes),
            (232, info.receive_window_bytes),
            (240, u32::from(counts.timeouts) | u32::from(counts.timeout_series) << 16),
            (244, counts.timeouts_ms),
        ];
        let longs = [
            (104, rates.pacing),
            (112, most),
            (120, acked),
            (128, progress.received_bytes),
            (160, rates.delivery),
            (168, progress.busy_us),
            (176, progress.window_limited_us),
            (184, counts.buffer_limited_us),
            (200, told.sent_in_all()),
            (208, rates.resent_bytes.into()),
        ];
        put(&mut value, &bytes);
        for (at, word) in words {
            put(value.get_mut(at..).unwrap_or_default(), &word.to_ne_bytes());
        }
        for (at, long) in longs {
            put(value.get_mut(at..).unwrap_or_default(), &long.to_ne_bytes());
        }
        Ok(put(out, &value))
    }
}

/// Two 16-bit numbers next to each other in memory.
fn halves(first: u16, second: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
    [a, b, c, d]
}
