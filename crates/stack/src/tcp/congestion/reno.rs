//! Reno: RFC 5681.

use serde::{Deserialize, Serialize};

use super::{Ack, Algorithm, WINDOW_MAX, Window, slow_start};

/// State of Reno.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reno {
    /// Bytes acknowledged since the window last grew.
    acked: u32,
}

impl Algorithm for Reno {
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
    //# A TCP endpoint MUST implement the basic congestion control algorithms slow start, congestion
    //# avoidance, and exponential backoff of RTO to avoid creating congestion collapse conditions
    //# (MUST-19).
    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let left = slow_start(window, ack.bytes);
        if left == 0 {
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
        //# The RECOMMENDED way to increase cwnd during congestion avoidance is
        //# to count the number of bytes that have been acknowledged by ACKs for
        //# new data.
        self.acked = self.acked.saturating_add(left);
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
        //# SHOULD increment cwnd per equation (2) once per RTT
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
        //# MUST NOT increment cwnd by more than SMSS bytes
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
        //# Note that during congestion avoidance, cwnd MUST NOT be increased by more than SMSS
        //# bytes per RTT.
        // A round trip brings the window's whole segments; what is beyond them is never sent.
        let in_a_round_trip = |cwnd: u32| (cwnd / ack.mss).max(1) * ack.mss;
        while self.acked >= in_a_round_trip(window.cwnd) {
            self.acked -= in_a_round_trip(window.cwnd);
            window.cwnd = window.cwnd.saturating_add(ack.mss).min(WINDOW_MAX);
        }
    }

    fn on_loss(&mut self, window: &Window, flight: u32, mss: u32) -> u32 {
        self.acked = 0;
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
        //# ssthresh = max (FlightSize / 2, 2*SMSS)            (4)
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
        //# When [RFC3042] is in use, additional data sent in limited transmit MUST NOT be included
        //# in this calculation.
        // It is what goes beyond the window.
        (flight.min(window.cwnd) / 2).max(2 * mss)
    }

    fn on_timeout(&mut self) {
        self.acked = 0;
    }

    fn on_idle(&mut self, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Instant;

    /// The acknowledgement of one segment.
    const SEGMENT: Ack =
        Ack { bytes: 1000, now: Instant(0), srtt_ns: 0, rtt_ns: None, mss: 1000, una: 0, nxt: 0 };

    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
    //= type=test
    //# SHOULD increment cwnd per equation (2) once per RTT
    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
    //= type=test
    //# MUST NOT increment cwnd by more than SMSS bytes
    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
    //= type=test
    //# The RECOMMENDED way to increase cwnd during congestion avoidance is to count the number of
    //# bytes that have been acknowledged by ACKs for new data.
    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
    //= type=test
    //# Note that during congestion avoidance, cwnd MUST NOT be increased by more than SMSS bytes
    //# per RTT.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
    //= type=test
    //# A TCP endpoint MUST implement the basic congestion control algorithms slow start, congestion
    //# avoidance, and exponential backoff of RTO to avoid creating congestion collapse conditions
    //# (MUST-19).
    #[test]
    fn avoidance_adds_a_segment_in_a_round_trip() {
        let mut reno = Reno::default();
        let mut window = Window { cwnd: 10_000, ssthresh: 10_000 };
        for _ in 0..10 {
            reno.on_ack(&mut window, &SEGMENT);
        }
        assert_eq!(window.cwnd, 11_000);
    }

    /// It took five segments in two round trips, where only four of them are ever sent.
    #[test]
    fn the_part_of_a_segment_in_a_window_is_not_waited_for() {
        let mut reno = Reno::default();
        let mut window = Window { cwnd: 2500, ssthresh: 2500 };
        for cwnd in [2500, 3500, 3500, 3500, 4500] {
            reno.on_ack(&mut window, &SEGMENT);
            assert_eq!(window.cwnd, cwnd);
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
    //= type=test
    //# ssthresh = max (FlightSize / 2, 2*SMSS)            (4)
    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
    //= type=test
    //# When a TCP sender detects segment loss using the retransmission timer and the given segment
    //# has not yet been resent by way of the retransmission timer, the value of ssthresh MUST be
    //# set to no more than the value given in equation (4):
    #[test]
    fn a_loss_halves_the_flight_but_leaves_two_segments() {
        let window = Window { cwnd: 10_000, ssthresh: 10_000 };
        assert_eq!(Reno::default().on_loss(&window, 8000, 1000), 4000);
        assert_eq!(Reno::default().on_loss(&window, 1000, 1000), 2000);
    }

    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
    //= type=test
    //# When [RFC3042] is in use, additional data sent in limited transmit MUST NOT be included in
    //# this calculation.
    #[test]
    fn what_limited_transmit_has_sent_does_not_count() {
        let window = Window { cwnd: 10_000, ssthresh: 10_000 };
        assert_eq!(Reno::default().on_loss(&window, 12_000, 1000), 5000);
    }
}
