//! Which bytes are lost, and when to send them again: RFC 6675 over a list of SACKed ranges,
//! RFC 6582 where the peer has no SACK, RFC 5681 after a timeout.
//!
//! Three positions describe a recovery: everything unsacked below `lost_edge` is lost; everything
//! lost below `rxt_next` has been sent again; the recovery ends when `recover` is acknowledged.

use wire::tcp::TcpSegment;

use super::congestion::Algorithm;
use super::connection::{Connection, NEVER, Phase, Step};
use super::intervals::Insertion;

/// Duplicates that mean loss rather than reordering.
const DUP_THRESH: u8 = 3;

impl Connection<'_> {
    /// Records the SACK blocks of a segment; how many bytes are newly sacked.
    pub fn take_sack(&mut self, segment: &TcpSegment<'_>, ack: i64) -> u64 {
        if !self.hot.sack || segment.options.sack.is_empty() {
            return 0;
        }
        let before = self.cold.sacked.bytes();
        for block in segment.options.sack.iter() {
            let left = self.hot.send_offset(block.left);
            let right = self.hot.send_offset(block.right);
            // A block at or below the acknowledgement reports a duplicate (RFC 2883); one that
            // was never sent is nonsense.
            if left < ack.max(self.hot.una.cast_signed())
                || right <= left
                || right > self.hot.nxt.cast_signed()
            {
                continue;
            }
            let (left, right) = (left.cast_unsigned(), right.cast_unsigned());
            if self.cold.sacked.insert(left, right, |_| ()) == Insertion::Full {
                break;
            }
        }
        self.cold.sacked.bytes().saturating_sub(before)
    }

    /// After an acknowledgement: ends, enters or deepens the recovery.
    pub fn judge_losses(&mut self, step: &mut Step<'_>, progress: bool) {
        if self.hot.phase != Phase::Open && self.hot.una >= self.cold.recover {
            self.hot.phase = Phase::Open;
            self.hot.dup_acks = 0;
            self.hot.forced = false;
            self.cold.lost_edge = self.hot.una;
            self.cold.rxt_next = self.hot.una;
        }
        let mss = u64::from(self.hot.mss);
        match self.hot.phase {
            Phase::Open => {
                if progress {
                    self.hot.dup_acks = 0;
                }
                let edge = self.edge_of_loss();
                let enough = self.hot.dup_acks >= DUP_THRESH || edge > self.hot.una;
                if enough && self.hot.flight() > 0 {
                    self.enter_recovery(step);
                    let first = self.hot.una.saturating_add(mss).min(self.hot.nxt);
                    self.cold.lost_edge = edge.max(first);
                }
            }
            Phase::Recovery => {
                if self.hot.sack {
                    self.cold.lost_edge = self.cold.lost_edge.max(self.edge_of_loss());
                }
                if progress {
                    //= https://www.rfc-editor.org/rfc/rfc6582#section-3.2
                    //# If this ACK does *not* acknowledge all of the data up to and
                    //# including recover, then this is a partial ACK.
                    let first = self.hot.una.saturating_add(mss).min(self.hot.nxt);
                    if !self.hot.sack {
                        self.hot.dup_acks = 0;
                        self.cold.lost_edge = first;
                        self.cold.rxt_next = self.hot.una;
                        self.hot.forced = true;
                    }
                    // With SACK too, what is at snd.una when nothing above it is sacked (the
                    // list forgot, or the tail was lost) counts as lost: RFC 6675 NextSeg (4).
                    if self.cold.lost_edge <= self.hot.una && self.cold.sacked.is_empty() {
                        self.cold.lost_edge = first;
                        self.cold.rxt_next = self.hot.una;
                    }
                }
            }
            Phase::Loss => {
                self.cold.lost_edge = self.cold.lost_edge.max(self.edge_of_loss());
            }
        }
        if self.hot.phase != Phase::Open {
            self.find_lost_retransmission(step);
            self.cold.rxt_next = self.cold.rxt_next.max(self.hot.una);
            step.ready = true;
        }
    }

    /// What was sent after a retransmission has arrived and the retransmission has not: it is
    /// lost, too. Looked at for the first hole only, which is the one that holds everything up;
    /// without it each such loss would cost a timeout.
    fn find_lost_retransmission(&mut self, step: &mut Step<'_>) {
        let Some(mark) = self.cold.rxt_mark.filter(|m| m.start == self.hot.una) else { return };
        let enough = u64::from(DUP_THRESH) * u64::from(self.hot.mss);
        let newer: u64 = self
            .cold
            .sacked
            .iter()
            .map(|r| r.end.saturating_sub(r.start.max(mark.end)))
            .fold(0, u64::saturating_add);
        if newer >= enough {
            self.cold.rxt_mark = None;
            self.cold.rxt_next = self.hot.una;
            self.hot.forced = true;
            step.shared.counters.lost_retransmits += 1;
        }
    }

    /// RFC 6675's IsLost as a position: unsacked bytes below it are lost.
    //= https://www.rfc-editor.org/rfc/rfc6675#section-4
    //# The routine returns true when either
    //# DupThresh discontiguous SACKed sequences have arrived above
    //# 'SeqNum' or more than (DupThresh - 1) * SMSS bytes with sequence
    //# numbers greater than 'SeqNum' have been SACKed.
    fn edge_of_loss(&self) -> u64 {
        let enough = u64::from(DUP_THRESH - 1) * u64::from(self.hot.mss);
        let (mut bytes, mut sequences) = (0u64, 0u8);
        for range in self.cold.sacked.iter().rev() {
            bytes = bytes.saturating_add(range.len());
            sequences = sequences.saturating_add(1);
            if bytes > enough || sequences >= DUP_THRESH {
                return range.start;
            }
        }
        self.hot.una
    }

    fn enter_recovery(&mut self, step: &mut Step<'_>) {
        //= https://www.rfc-editor.org/rfc/rfc6675#section-5
        //# RecoveryPoint = HighData
        //#
        //# When the TCP sender receives a cumulative ACK for this data
        //# octet, the loss recovery phase is terminated.
        self.hot.phase = Phase::Recovery;
        self.cold.recover = self.hot.nxt;
        self.cold.rxt_next = self.hot.una;
        self.cold.repaired_at = step.now.0;
        self.hot.forced = true;
        let mss = u32::from(self.hot.mss);
        let flight = u32::try_from(self.hot.flight()).unwrap_or(u32::MAX);
        let ssthresh = self.cold.congestion.on_loss(&self.hot.window, flight, mss);
        self.hot.window.ssthresh = ssthresh;
        self.hot.window.cwnd = ssthresh;
        step.shared.counters.fast_recoveries += 1;
        step.ready = true;
    }

    /// The retransmission timer ran out: everything outstanding counts as lost.
    pub fn enter_loss(&mut self, step: &mut Step<'_>) {
        let mss = u32::from(self.hot.mss);
        if self.hot.phase != Phase::Loss {
            let flight = u32::try_from(self.hot.flight()).unwrap_or(u32::MAX);
            //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
            //# When a TCP sender detects segment loss using the retransmission timer
            //# and the given segment has not yet been resent by way of the
            //# retransmission timer, the value of ssthresh MUST be set to no more
            //# than the value given in equation (4):
            self.hot.window.ssthresh = self.cold.congestion.on_loss(&self.hot.window, flight, mss);
        }
        self.cold.congestion.on_timeout();
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
        //# Furthermore, upon a timeout (as specified in [RFC2988]) cwnd MUST be
        //# set to no more than the loss window, LW, which equals 1 full-sized
        //# segment (regardless of the value of IW).
        self.hot.window.cwnd = mss;
        self.hot.phase = Phase::Loss;
        self.hot.dup_acks = 0;
        self.hot.forced = true;
        self.hot.timed_at = NEVER;
        self.cold.repaired_at = step.now.0;
        self.cold.recover = self.hot.nxt;
        self.cold.lost_edge = self.hot.nxt;
        self.cold.rxt_next = self.hot.una;
        if self.cold.retries > 1 || self.cold.sacked.find(self.hot.una).is_some() {
            //= https://www.rfc-editor.org/rfc/rfc2018#section-8
            //# After a retransmit timeout the data sender SHOULD turn off all of the
            //# SACKed bits
            // Once is taken as congestion (RFC 6675 section 5.1), twice as a peer that reneged.
            self.cold.sacked.clear();
        }
        step.ready = true;
    }

    /// Bytes that are in the network by our count (RFC 6675's pipe).
    pub fn pipe(&self) -> u64 {
        let flight = self.hot.flight();
        if self.hot.phase == Phase::Open && self.cold.sacked.is_empty() {
            let arrived = u64::from(self.hot.dup_acks) * u64::from(self.hot.mss);
            return if self.hot.sack { flight } else { flight.saturating_sub(arrived) };
        }
        let una = self.hot.una;
        let arrived = if self.hot.sack {
            self.cold.sacked.bytes()
        } else {
            u64::from(self.hot.dup_acks) * u64::from(self.hot.mss)
        };
        let (lost, again) = if self.hot.phase == Phase::Open {
            (0, 0)
        } else {
            (self.unsacked(una, self.cold.lost_edge), self.unsacked(una, self.cold.rxt_next))
        };
        flight.saturating_sub(arrived).saturating_sub(lost).saturating_add(again)
    }

    fn unsacked(&self, from: u64, to: u64) -> u64 {
        let mut bytes = to.saturating_sub(from);
        for range in self.cold.sacked.iter() {
            let (start, end) = (range.start.max(from), range.end.min(to));
            bytes = bytes.saturating_sub(end.saturating_sub(start));
        }
        bytes
    }

    /// The next lost range to send again: RFC 6675's NextSeg, rule 1.
    pub fn next_lost(&self) -> Option<(u64, u64)> {
        if self.hot.phase == Phase::Open {
            return None;
        }
        let mut start = self.cold.rxt_next.max(self.hot.una);
        if let Some(sacked) = self.cold.sacked.find(start) {
            start = sacked.end;
        }
        let hole_end = self.cold.sacked.next_after(start).map_or(u64::MAX, |r| r.start);
        let end = self.cold.lost_edge.min(hole_end).min(self.hot.nxt);
        (start < end).then_some((start, end))
    }
}
