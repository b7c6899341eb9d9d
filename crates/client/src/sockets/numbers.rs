//! TCP_INFO: what the engine knows of a connection, as the kernel writes it.

use super::options::put;
use super::socket::{Connection, Socket};
use super::{Errno, Sockets};
use crate::OptionName;

/// Of `struct tcp_info`.
const STRUCT_BYTES: usize = 280;
/// TCP_INFINITE_SSTHRESH.
const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;
/// What an acknowledgement waits at first (TCP_ATO_MIN), microseconds.
const ACK_DELAY_US: u32 = 40_000;

/// TCP_SYN_SENT, and TCPI_OPT_TIMESTAMPS.
const SYN_SENT: u8 = 2;
const TIMESTAMPS: u8 = 1;

impl Sockets {
    /// `struct tcp_info`. Offsets are those of linux/tcp.h, which never change. What the engine does not
    /// count is zero: docs/sockets.md names it.
    pub(super) fn tcp_info(
        &self,
        (socket, connection): (&Socket, &Connection),
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        let endpoint = &connection.endpoint;
        let (info, progress, rates) = (endpoint.info()?, endpoint.progress()?, endpoint.rates()?);
        let counts = endpoint.counts()?;
        let sent = endpoint.option(OptionName::SentEnd)?;
        let acked = endpoint.option(OptionName::AckedEnd)?;
        // The SYN counts where it was ours, as in the kernel.
        let acked = acked + u64::from(!socket.was_accepted() && info.state != SYN_SENT);
        // The kernel tells what is left beside the options of every segment.
        let options = if info.agreed & TIMESTAMPS != 0 { 12 } else { 0 };
        let advertised = info.advertised_mss_bytes.saturating_sub(options);
        let most = endpoint.option(OptionName::MaxPacingRate)?;
        let most = if most == u64::from(u32::MAX) { u64::MAX } else { most };
        let mut value = [0_u8; STRUCT_BYTES];
        let mss = u32::from(info.mss_bytes);
        let segments = |bytes: u32| bytes.checked_div(mss).unwrap_or(0);
        let begun = |bytes: u32| bytes.div_ceil(mss.max(1));
        let ssthresh = match info.ssthresh_bytes {
            u32::MAX => SSTHRESH_INFINITE,
            bytes => segments(bytes),
        };
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
            (76, ssthresh),
            (80, segments(info.cwnd_bytes)),
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
            (200, sent.saturating_add(rates.resent_bytes.into())),
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
