//! Which round-trip times an acknowledgement measures, as Linux's tcp_ack_update_rtt: each one
//! measures, by what was sent once and is acknowledged in order, or else selectively, or else by
//! the timestamp that it echoes.

use wire::tcp::TcpSegment;

use super::connection::Connection;
use super::progress::millis;
use super::rack::Delivery;
use super::rtt::MILLISECOND;
use super::scoreboard::Piece;
use crate::api::Instant;

/// When what an acknowledgement newly tells of was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendTimes {
    /// Of what is acknowledged in order and was sent once: when the first and the last was sent.
    in_order: Option<(u64, u64)>,
    /// Something that is acknowledged in order was sent more than once.
    again: bool,
    /// Of what is acknowledged selectively and was sent once, the lowest: where, and when.
    lowest: Option<(u64, u64)>,
    /// The highest of it.
    highest: Option<(u64, u64)>,
}

impl SendTimes {
    /// A piece is acknowledged in order, and had not been selectively.
    pub fn note_in_order(&mut self, piece: &Piece) {
        if !piece.again {
            let (first, _) = self.in_order.unwrap_or((piece.at, piece.at));
            self.in_order = Some((first, piece.at));
        }
    }

    /// A piece is acknowledged selectively.
    pub fn note_sacked(&mut self, piece: &Piece) {
        if !piece.again {
            let place = (piece.start, piece.at);
            self.lowest = Some(self.lowest.map_or(place, |lowest| lowest.min(place)));
            self.highest = self.highest.max(Some(place));
        }
    }

    /// Something among what is acknowledged in order was sent more than once, whenever it arrived.
    pub fn note_again(&mut self, again: bool) {
        self.again |= again;
    }

    /// The round trip for the estimator, and the latest.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-3
    //# RTT samples MUST NOT be made using segments that were retransmitted
    fn round_trips(&self, now: Instant) -> Option<(u64, u64)> {
        let since = |at: u64| now.0.saturating_sub(at);
        let sacked = self.lowest.zip(self.highest).map(|((_, low), (_, high))| (low, high));
        match self.in_order.filter(|_| !self.again) {
            Some((first, last)) => Some((since(first), since(sacked.map_or(last, |of| of.1)))),
            None => sacked.map(|(low, high)| (since(low), since(high))),
        }
    }
}

impl Connection<'_> {
    /// Takes the round trip that an acknowledgement of everything below `ack` measures, before
    /// snd.una moves.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-4.2
    //# When multiple RTTMs per RTT are available to update the RTT estimator, an implementation
    //# SHOULD try to adhere to the spirit of the history specified in [RFC6298].
    //= https://www.rfc-editor.org/rfc/rfc6298#section-3
    //# A TCP implementation MUST take at least one RTT measurement per RTT (unless that is not
    //# possible per Karn's algorithm).
    pub fn measure(
        &mut self,
        now: Instant,
        segment: &TcpSegment<'_>,
        ack: u64,
        delivery: &mut Delivery,
    ) {
        let progress = ack > self.hot.una;
        let measured = match delivery.times.round_trips(now) {
            None if progress => self.echoed(now, segment).map(|rtt_ns| (rtt_ns, rtt_ns)),
            measured => measured,
        };
        let Some((rtt_ns, latest_ns)) = measured else { return };
        delivery.rtt_ns = Some(latest_ns);
        self.cold.rack.on_round_trip(now, latest_ns);
        self.cold.tlp.on_measured();
        self.hot.rtt.on_sample(rtt_ns, ack, self.hot.nxt);
        let head = self.cold.scoreboard.first().map_or(u64::MAX, |head| head.at);
        if !progress && now.0.saturating_sub(rtt_ns) < head {
            // What was sent before the first segment was last sent has only now arrived: that
            // segment is given its time anew (as Linux).
            self.cold.rto_at = now.0.saturating_add(self.hot.rtt.rto_ns());
        }
    }

    /// The round trip by the timestamp echoed, which tells the copy that was answered, also in
    /// recovery (RFC 7323 section 4.1).
    fn echoed(&mut self, now: Instant, segment: &TcpSegment<'_>) -> Option<u64> {
        let echo = segment.options.timestamps.filter(|_| self.hot.timestamps)?.echo;
        if echo == 0 {
            return None;
        }
        let ticks = u64::from(self.hot.ts_now(now).wrapping_sub(echo));
        let since_repair = u64::from(millis(now.0).wrapping_sub(self.cold.repaired_ms));
        if ticks > since_repair + 1 {
            // When it was the copy before the repair, an acknowledgement was lost, and the time
            // since is our own waiting, not the path's.
            self.hot.rtt.on_progress();
            return None;
        }
        Some(ticks.max(1) * MILLISECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cuts::Cuts;
    use super::super::rate::Snapshot;
    use super::super::scoreboard::Fate;
    use super::*;

    fn piece(start: u64, at: u64, again: bool) -> Piece {
        let (end, snapshot, cuts) = (start + 1, Snapshot::default(), Cuts::UNKNOWN);
        Piece { start, end, at, fate: Fate::Sent, again, lost: false, cuts, snapshot }
    }

    fn round_trips(in_order: &[Piece], sacked: &[Piece]) -> Option<(u64, u64)> {
        let mut times = SendTimes::default();
        for piece in in_order {
            times.note_in_order(piece);
            times.note_again(piece.again);
        }
        sacked.iter().for_each(|piece| times.note_sacked(piece));
        times.round_trips(Instant(100))
    }

    #[test]
    fn the_first_segment_acknowledged_is_measured_and_the_last_tells_of_the_path_now() {
        let in_order = [piece(0, 10, false), piece(1, 20, false), piece(2, 30, false)];
        assert_eq!(round_trips(&in_order, &[]), Some((90, 70)));
        let sacked = [piece(9, 50, false), piece(5, 40, false)];
        assert_eq!(round_trips(&in_order, &sacked), Some((90, 50)));
        assert_eq!(round_trips(&[], &sacked), Some((60, 50)));
        assert_eq!(round_trips(&[], &[]), None);
    }

    //= https://www.rfc-editor.org/rfc/rfc6298#section-3
    //= type=test
    //# RTT samples MUST NOT be made using segments that were retransmitted
    #[test]
    fn what_was_sent_twice_measures_nothing() {
        let in_order = [piece(0, 10, false), piece(1, 20, true)];
        assert_eq!(round_trips(&in_order, &[]), None);
        assert_eq!(round_trips(&in_order, &[piece(7, 30, true)]), None);
        assert_eq!(round_trips(&in_order, &[piece(7, 30, false)]), Some((70, 70)));
    }
}
