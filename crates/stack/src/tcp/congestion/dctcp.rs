//! DCTCP (RFC 8257): the window shrinks with the share of bytes that routers have marked. Grows as
//! Reno. For networks whose every router marks early, and no others.

use serde::{Deserialize, Serialize};

use super::{Ack, Algorithm, Control, Known, Reno, Sample, Window};

/// One in the fixed point of alpha.
const ONE: u64 = 1024;
/// g: alpha moves by a sixteenth of the difference in each window.
//= https://www.rfc-editor.org/rfc/rfc8257#section-4.2
//# A fixed estimation gain of 1/16 is used in some
//# implementations.
const GAIN_SHIFT: u32 = 4;

/// State of DCTCP.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dctcp {
    reno: Reno,
    /// DCTCP.Alpha, in 1024ths.
    alpha: u64,
    /// DCTCP.WindowEnd.
    window_end: u64,
    /// Bytes delivered, and marked of them, when the window began.
    delivered: u64,
    marked: u64,
}

impl Default for Dctcp {
    fn default() -> Self {
        //= https://www.rfc-editor.org/rfc/rfc8257#section-3.3
        //# The current estimate is stored in a new TCP state
        //# variable, DCTCP.Alpha, which is initialized to 1
        Self { reno: Reno::default(), alpha: ONE, window_end: 0, delivered: 0, marked: 0 }
    }
}

impl Dctcp {
    /// What it knows of the path.
    pub fn known(&self) -> Known {
        Known::Marks { alpha: self.alpha as u32, delivered: self.delivered, marked: self.marked }
    }
}

impl Algorithm for Dctcp {
    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        self.reno.on_ack(window, ack);
    }

    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.5
    //# A DCTCP sender MUST react to loss episodes in the same way as
    //# conventional TCP, including fast retransmit and fast recovery
    //# algorithms, as specified in [RFC5681].
    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.5
    //# For cases where the packet loss is inferred and not explicitly signaled by ECN, the cwnd and
    //# other state variables like ssthresh MUST be changed in the same way that a conventional TCP
    //# would have changed them.
    fn on_loss(&mut self, window: &Window, _flight: u32, mss: u32) -> u32 {
        (window.cwnd / 2).max(2 * mss)
    }

    fn on_timeout(&mut self) {
        self.reno.on_timeout();
    }

    fn on_idle(&mut self, idle_ns: u64) {
        self.reno.on_idle(idle_ns);
    }

    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.3
    //# cwnd = cwnd * (1 - DCTCP.Alpha / 2)
    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.3
    //# 9. Rather than always halving the congestion window as described in [RFC3168], the sender
    //# SHOULD update cwnd as follows:
    fn on_marked(&mut self, window: &Window, _flight: u32, mss: u32) -> u32 {
        let cwnd = u64::from(window.cwnd);
        let less = cwnd * self.alpha / (2 * ONE);
        u32::try_from(cwnd - less).unwrap_or(u32::MAX).max(2 * mss)
    }

    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.3
    //# DCTCP.Alpha = DCTCP.Alpha * (1 - g) + g * M
    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.3
    //# The current estimate is stored in a new TCP state variable, DCTCP.Alpha, which is
    //# initialized to 1 and SHOULD be updated as follows:
    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.3
    //# The congestion estimator on the sender MUST process acceptable ACKs as follows:
    fn on_sample(&mut self, _control: &mut Control<'_>, sample: &Sample) {
        if sample.una < self.window_end {
            return;
        }
        let delivered = sample.delivered - self.delivered;
        let marked = sample.marked - self.marked;
        //= https://www.rfc-editor.org/rfc/rfc8257#section-4.2
        //# A scaling
        //# implementation SHOULD ensure that DCTCP.Alpha is able to reach 0 once
        //# it falls below the smallest shifted value (16 in the above example).
        let less = match self.alpha >> GAIN_SHIFT {
            0 => self.alpha,
            less => less,
        };
        let more = (marked << (ONE.trailing_zeros() - GAIN_SHIFT)) / delivered.max(1);
        //= https://www.rfc-editor.org/rfc/rfc8257#section-4.2
        //# So, DCTCP.Alpha MUST be clamped after
        //# an update.
        self.alpha = (self.alpha - less + more).min(ONE);
        self.window_end = sample.nxt;
        (self.delivered, self.marked) = (sample.delivered, sample.marked);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    fn round(dctcp: &mut Dctcp, window: &mut Window, delivered: u64, marked: u64) {
        let mut rate = 0;
        let mut control = Control { window, pacing_rate: &mut rate, limits_application: false };
        let una = dctcp.window_end;
        let (delivered, marked) = (dctcp.delivered + delivered, dctcp.marked + marked);
        let nxt = una + 100_000;
        dctcp.on_sample(&mut control, &Sample { una, nxt, delivered, marked, ..sample() });
    }

    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.3
    //= type=test
    //# DCTCP.Alpha = DCTCP.Alpha * (1 - g) + g * M
    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.3
    //= type=test
    //# The current estimate is stored in a new TCP state variable, DCTCP.Alpha, which is
    //# initialized to 1 and SHOULD be updated as follows:
    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.3
    //= type=test
    //# The congestion estimator on the sender MUST process acceptable ACKs as follows:
    //= https://www.rfc-editor.org/rfc/rfc8257#section-4.2
    //= type=test
    //# A scaling implementation SHOULD ensure that DCTCP.Alpha is able to reach 0 once it falls
    //# below the smallest shifted value (16 in the above example).
    //= https://www.rfc-editor.org/rfc/rfc8257#section-4.2
    //= type=test
    //# So, DCTCP.Alpha MUST be clamped after an update.
    #[test]
    fn alpha_follows_the_share_that_is_marked() {
        let mut dctcp = Dctcp::default();
        let mut window = Window { cwnd: 100_000, ssthresh: 1 };
        for _ in 0..200 {
            round(&mut dctcp, &mut window, 100_000, 25_000);
        }
        assert!((240..=272).contains(&dctcp.alpha), "{}", dctcp.alpha);
        for _ in 0..200 {
            round(&mut dctcp, &mut window, 100_000, 0);
        }
        assert_eq!(dctcp.alpha, 0);
        for _ in 0..200 {
            round(&mut dctcp, &mut window, 100_000, 200_000);
            assert!(dctcp.alpha <= ONE);
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.3
    //= type=test
    //# cwnd = cwnd * (1 - DCTCP.Alpha / 2)
    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.3
    //= type=test
    //# 9. Rather than always halving the congestion window as described in [RFC3168], the sender
    //# SHOULD update cwnd as follows:
    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.5
    //= type=test
    //# A DCTCP sender MUST react to loss episodes in the same way as conventional TCP, including
    //# fast retransmit and fast recovery algorithms, as specified in [RFC5681].
    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.5
    //= type=test
    //# For cases where the packet loss is inferred and not explicitly signaled by ECN, the cwnd and
    //# other state variables like ssthresh MUST be changed in the same way that a conventional TCP
    //# would have changed them.
    #[test]
    fn the_window_shrinks_by_half_of_the_share() {
        let window = Window { cwnd: 100_000, ssthresh: 1 };
        assert_eq!(Dctcp::default().on_marked(&window, 0, 1000), 50_000);
        let mut gentle = Dctcp { alpha: ONE / 8, ..Dctcp::default() };
        assert_eq!(gentle.on_marked(&window, 0, 1000), 93_750);
        assert_eq!(gentle.on_loss(&window, 0, 1000), 50_000);
    }
}
