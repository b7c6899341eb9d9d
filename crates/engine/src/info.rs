//! Connection statistics for clients.

use rustix::io::Errno;
use shm::request::{ConnectionCounts, ConnectionInfo, ConnectionProgress, ConnectionRates, Reply};
use stack::api::{SocketId, TcpState};
use stack::tcp::{TcpDetails, TcpInfo};

use crate::endpoint::Role;
use crate::errno;
use crate::worker::Worker;

impl Worker {
    pub(crate) fn stream_id(&mut self, place: u32, index: u32) -> Result<SocketId, Errno> {
        match self.endpoint(place, index).map(|one| &one.role) {
            Some(Role::Stream(stream)) => Ok(stream.id),
            _ => Err(Errno::BADF),
        }
    }

    pub(crate) fn progress(&mut self, place: u32, index: u32) -> Result<Reply, Errno> {
        let id = self.stream_id(place, index)?;
        let told = self.stack.tcp_progress(self.now, id).map_err(errno::of_request)?;
        let bytes = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Reply::Progress(ConnectionProgress {
            busy_us: told.busy_us,
            window_limited_us: told.window_limited_us,
            received_bytes: told.received,
            delivered: told.delivered,
            resent_bytes: bytes(told.resent),
            last_received_ms: told.last_received_ms,
            last_sent_ms: told.last_sent_ms,
            min_rtt_us: told.min_rtt_us,
            reordering: told.reordering,
            reorderings: told.reorderings,
            probes: told.probes,
            backoff: told.backoff,
        }))
    }

    pub(crate) fn counts(&mut self, place: u32, index: u32) -> Result<Reply, Errno> {
        let id = self.stream_id(place, index)?;
        let told = self.stack.tcp_counts(self.now, id).map_err(errno::of_request)?;
        Ok(Reply::Counts(ConnectionCounts {
            received: told.received,
            received_data: told.received_data,
            sent: told.sent,
            sent_data: told.sent_data,
            duplicates: told.duplicates,
            out_of_order: told.out_of_order,
            marked: told.marked,
            timeouts: told.timeouts,
            timeout_series: told.timeout_series,
            timeouts_ms: told.timeouts_ms,
            buffer_limited_us: told.buffer_limited_us,
        }))
    }

    pub(crate) fn rates(&mut self, place: u32, index: u32) -> Result<Reply, Errno> {
        let id = self.stream_id(place, index)?;
        let told = self.stack.tcp_rates(self.now, id).map_err(errno::of_request)?;
        Ok(Reply::Rates(ConnectionRates {
            pacing: told.pacing,
            delivery: told.delivery,
            resent_bytes: told.resent,
            unsent_bytes: u32::try_from(told.unsent).unwrap_or(u32::MAX),
            receive_rtt_us: told.receive_rtt_us,
            receive_space_bytes: told.receive_space,
            receive_limit_bytes: told.receive_limit,
            last_acked_ms: told.last_acked_ms,
            app_limited: told.is_app_limited,
            delays_acks: told.delays_acks,
        }))
    }

    pub(crate) fn info(&mut self, place: u32, index: u32) -> Result<Reply, Errno> {
        let id = self.stream_id(place, index)?;
        let info = self.stack.tcp_info(id).map_err(errno::of_request)?;
        let levels = self.stack.tcp_levels(id).map_err(errno::of_request)?;
        Ok(Reply::Info(connection_info(&info, levels.receive_window)))
    }
}

/// The kernel's state numbers, as in TCP_INFO.
fn state_number(state: TcpState) -> u8 {
    match state {
        TcpState::Established => 1,
        TcpState::SynSent => 2,
        TcpState::SynReceived => 3,
        TcpState::FinWait1 => 4,
        TcpState::FinWait2 => 5,
        TcpState::TimeWait => 6,
        TcpState::Closed => 7,
        TcpState::CloseWait => 8,
        TcpState::LastAck => 9,
        TcpState::Closing => 11,
    }
}

fn connection_info(info: &TcpInfo, receive_limit: u32) -> ConnectionInfo {
    let micros = |ns: u64| u32::try_from(ns / 1000).unwrap_or(u32::MAX);
    let bytes = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    ConnectionInfo {
        state: state_number(info.state),
        retransmits: info.more.retries,
        srtt_us: micros(info.srtt_ns),
        rttvar_us: micros(info.rttvar_ns),
        rto_us: micros(info.rto_ns),
        cwnd_bytes: info.cwnd,
        ssthresh_bytes: info.ssthresh,
        mss_bytes: info.mss,
        scales: info.more.scales.map_or(0, |(peer, own)| peer & 15 | own << 4),
        unacked_bytes: bytes(info.more.outstanding),
        retransmitted: bytes(info.retransmits),
        send_window_bytes: info.send_window,
        receive_window_bytes: receive_limit.saturating_sub(bytes(info.receive_queue)),
        agreed: u8::from(info.more.timestamps)
            | u8::from(info.more.sack) << 1
            | u8::from(info.more.scales.is_some()) << 2
            | u8::from(info.more.ecn) << 3
            | u8::from(info.more.syn_data) << 5,
        recovery: match info.more {
            TcpDetails { is_lossy: true, .. } => 4,
            TcpDetails { is_recovering: true, .. } => 3,
            TcpDetails { is_reducing: true, .. } => 2,
            details => u8::from(details.sacked > 0),
        },
        path_mtu_bytes: info.mtu,
        receive_mss_bytes: info.more.receive_mss,
        advertised_mss_bytes: info.more.advertised_mss,
        sacked_bytes: bytes(info.more.sacked),
        lost_bytes: bytes(info.more.lost),
    }
}
