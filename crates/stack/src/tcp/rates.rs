//! What is told of a connection's rates, windows and segments beside its progress, as TCP_INFO has it.

use super::congestion::Known;
use super::connection::{Cold, Hot};
use super::progress::millis;
use super::rate::Rate;
use super::tables::Tcp;
use super::window::window_of;
use crate::api::{Instant, RequestError, SocketId};

/// Rates and amounts of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpRates {
    /// Bytes per second at which it is paced, or would be; the largest number for no limit.
    pub pacing: u64,
    /// Bytes per second that were delivered last while the program did not limit it; 0 before the
    /// first ten segments, from which on it is measured.
    pub delivery: u64,
    /// The program, not the network, limited the last estimate.
    pub is_app_limited: bool,
    /// Bytes sent again in all, going round.
    pub resent: u32,
    /// Bytes written and not sent.
    pub unsent: u64,
    /// Round-trip time as the receiving side sees it, microseconds; 0 before the first measurement.
    pub receive_rtt_us: u32,
    /// Bytes that the program reads in a round trip, as far as known.
    pub receive_space: u32,
    /// Bytes that the receive window may reach now.
    pub receive_limit: u32,
    /// Receive memory, twice SO_RCVBUF.
    pub receive_memory: u32,
    /// Milliseconds since a segment came.
    pub last_acked_ms: u32,
    /// Data has come, and acknowledgements may be delayed.
    pub delays_acks: bool,
}

/// What a connection's congestion control knows of the path, as TCP_CC_INFO has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpModel {
    /// BBR: bytes per second that the path carries. DCTCP: bytes marked in this window, and, from
    /// bit 32 on, delivered.
    pub rate: u64,
    /// BBR: shortest round trip, microseconds, the largest number for none yet; gains in 256ths, from
    /// bit 32 on of the rate and from bit 48 on of the window. DCTCP: alpha in 1024ths; bit 32 what
    /// came last was marked, bit 33 ECN was agreed on.
    pub state: u64,
}

fn model(hot: &Hot, cold: &Cold) -> TcpModel {
    match cold.congestion.known() {
        Known::Nothing => TcpModel::default(),
        Known::Model { rate, min_rtt_ns, pacing_gain, cwnd_gain } => {
            let min_rtt = min_rtt_ns.and_then(|ns| u32::try_from(ns / 1000).ok());
            let gains = u64::from(pacing_gain) << 32 | u64::from(cwnd_gain) << 48;
            TcpModel { rate, state: u64::from(min_rtt.unwrap_or(u32::MAX)) | gains }
        }
        // As in the kernel: without ECN it is Reno, and nothing else is told.
        Known::Marks { .. } if !hot.ecn.is_agreed() => TcpModel::default(),
        Known::Marks { alpha, delivered, marked } => {
            let since = |now: fn(&Rate) -> u64, then: u64| {
                let bytes = cold.rate.as_deref().map_or(0, now).saturating_sub(then);
                u64::from(u32::try_from(bytes).unwrap_or(u32::MAX))
            };
            let delivered = since(|rate| rate.delivered, delivered);
            let is_marked = u64::from(hot.ecn.echoes());
            TcpModel {
                rate: since(|rate| rate.marked, marked) | delivered << 32,
                state: u64::from(alpha) | is_marked << 32 | 1 << 33,
            }
        }
    }
}

impl Tcp {
    /// What a connection's congestion control knows of the path.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn model(&self, id: SocketId) -> Result<TcpModel, RequestError> {
        let index = self.slot(id)? as usize;
        match (self.hot.get(index), self.cold.get(index)) {
            (Some(hot), Some(cold)) => Ok(model(hot, cold)),
            _ => Err(RequestError::Stale),
        }
    }

    /// Rates and amounts of a connection.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn rates(&self, now: Instant, id: SocketId) -> Result<TcpRates, RequestError> {
        let index = self.slot(id)? as usize;
        match (self.hot.get(index), self.cold.get(index)) {
            (Some(hot), Some(cold)) => Ok(told(now, hot, cold)),
            _ => Err(RequestError::Stale),
        }
    }
}

fn told(now: Instant, hot: &Hot, cold: &Cold) -> TcpRates {
    let (receive_rtt_us, receive_space) = cold.tuning.told(cold.advertised_mss());
    let paced = cold.pacer.as_ref().map(|pacer| pacer.rate);
    TcpRates {
        pacing: paced.or_else(|| hot.pace_of_window(cold)).unwrap_or(u64::MAX),
        delivery: cold.rate.as_ref().map_or(0, |rate| rate.last),
        is_app_limited: cold.rate.as_ref().is_some_and(|rate| rate.last_is_app_limited()),
        resent: cold.rare.as_ref().map_or(0, |rare| rare.resent),
        unsent: hot.written.saturating_sub(hot.nxt),
        receive_rtt_us,
        receive_space,
        receive_limit: window_of(hot, cold),
        receive_memory: hot.rcv_memory,
        last_acked_ms: millis(now.0).wrapping_sub(millis(hot.received_at)),
        delays_acks: cold.data_at != 0,
    }
}
