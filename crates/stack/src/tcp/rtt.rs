//! Round-trip time and retransmission timeout, RFC 6298 with Linux's floor and first timeout.

use serde::{Deserialize, Serialize};

/// One second in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;
/// One millisecond in nanoseconds.
pub const MILLISECOND: u64 = 1_000_000;

/// Timeout before there is a measurement.
//= https://www.rfc-editor.org/rfc/rfc6298#section-2
//# Until a round-trip time (RTT) measurement has been made for a
//# segment sent between the sender and receiver, the sender SHOULD
//# set RTO <- 1 second
pub const RTO_NS_INITIAL: u64 = SECOND;
/// Linux's floor of the variance part (the RFC would have the whole at 1 s or more).
pub const RTO_NS_MIN: u64 = 200 * MILLISECOND;
/// Ceiling where the settings do not say another, as Linux has it; RFC 6298 asks for at least 60 s.
pub const RTO_NS_MAX: u64 = 120 * SECOND;
/// Ceilings that there may be, milliseconds.
const CEILINGS_MS: std::ops::RangeInclusive<u32> = 1_000..=120_000;

/// The estimator, fed by every acknowledgement that measures something, as Linux's
/// tcp_rtt_estimator. Times in microseconds, which is enough and keeps it small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rtt {
    /// Eight times SRTT.
    srtt8_us: u32,
    /// Four times RTTVAR, K of them.
    mdev_us: u32,
    /// The largest of these in the round trip that goes on, and the least variance part.
    mdev_max_us: u32,
    /// The variance part of the timeout: it grows at once with what varies, and shrinks by a
    /// quarter of the difference once in a round trip.
    rttvar_us: u32,
    /// The round trip is over when this is acknowledged; a send offset, going round.
    round_end: u32,
    /// Ceiling of the timeout, in units of 2 ms.
    ceiling: u16,
    /// Least variance part, milliseconds; 0 for [`RTO_NS_MIN`].
    floor_ms: u16,
    /// Doublings since the last measurement.
    backoff: u8,
    known: Known,
}

/// What the timeout is reckoned from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Known {
    #[default]
    Nothing,
    /// The SYN was sent again: see [`Rtt::on_handshake_timeout`].
    HandshakeTimeout,
    Measurements,
}

impl Default for Rtt {
    fn default() -> Self {
        Self::limited_to((RTO_NS_MAX / MILLISECOND) as u32)
    }
}

impl Rtt {
    /// Nothing is known, and timeouts are of `most_ms` milliseconds at the most.
    pub fn limited_to(most_ms: u32) -> Self {
        let mut fresh = Self {
            srtt8_us: 0,
            mdev_us: 0,
            mdev_max_us: 0,
            rttvar_us: 0,
            round_end: 0,
            ceiling: 0,
            floor_ms: 0,
            backoff: 0,
            known: Known::Nothing,
        };
        fresh.set_ceiling(most_ms);
        fresh
    }

    /// Timeouts are of `most_ms` milliseconds at the most from now on.
    pub fn set_ceiling(&mut self, most_ms: u32) {
        let most_ms = most_ms.clamp(*CEILINGS_MS.start(), *CEILINGS_MS.end());
        self.ceiling = (most_ms / 2) as u16;
    }

    /// The longest timeout, nanoseconds.
    pub fn most_ns(&self) -> u64 {
        u64::from(self.ceiling) * 2 * MILLISECOND
    }

    /// Takes a measurement, with snd.una as it is by then, and snd.nxt. Karn's algorithm is the
    /// caller's duty: never of a segment that was sent twice, unless the timestamp option tells
    /// which copy was answered.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.1
    //# The RTO MUST be computed according to the algorithm in [10], including Karn's algorithm for
    //# taking RTT samples (MUST-18).
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //# (2.2) When the first RTT measurement R is made, the host MUST set
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //# (2.3) When a subsequent RTT measurement R' is made, a host MUST set
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //# That is, updating RTTVAR and SRTT MUST be computed in the above order.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //# The above SHOULD be computed using alpha=1/8 and beta=1/4 (as suggested in [JK88]).
    //= https://www.rfc-editor.org/rfc/rfc6298#section-3
    //# TCP MUST use Karn's algorithm [KP87] for taking RTT samples.
    pub fn on_sample(&mut self, rtt_ns: u64, una: u64, nxt: u64) {
        let sample = u32::try_from(rtt_ns / 1000).unwrap_or(u32::MAX).min(u32::MAX / 8);
        let floor_us = (self.floor_ns() / 1000) as u32;
        if self.known == Known::Measurements {
            //= https://www.rfc-editor.org/rfc/rfc6298#section-2
            //# RTTVAR <- (1 - beta) * RTTVAR + beta * |SRTT - R'|
            //# SRTT <- (1 - alpha) * SRTT + alpha * R'
            let error = i64::from(sample) - i64::from(self.srtt8_us / 8);
            let mut change = error.abs() - i64::from(self.mdev_us / 4);
            // A path that has become faster is no reason to wait longer: with the plain rule one
            // slow handshake would raise the timeout for many round trips (as Linux, after Eifel).
            if error < 0 && change > 0 {
                change /= 8;
            }
            self.mdev_us = clamped(i64::from(self.mdev_us) + change);
            self.srtt8_us = clamped(i64::from(self.srtt8_us) + error);
            // Many measurements in a round trip say little more than one: the largest deviation
            // of a round trip counts, so that they do not wear the variance down sooner.
            self.mdev_max_us = self.mdev_max_us.max(self.mdev_us);
            self.rttvar_us = self.rttvar_us.max(self.mdev_max_us);
            if (una as u32).wrapping_sub(self.round_end).cast_signed() > 0 {
                self.rttvar_us -= (self.rttvar_us - self.mdev_max_us) / 4;
                self.round_end = nxt as u32;
                self.mdev_max_us = floor_us;
            }
        } else {
            //= https://www.rfc-editor.org/rfc/rfc6298#section-2
            //# SRTT <- R
            //# RTTVAR <- R/2
            self.srtt8_us = sample * 8;
            self.mdev_us = sample * 2;
            self.rttvar_us = self.mdev_us.max(floor_us);
            self.mdev_max_us = self.rttvar_us;
            self.round_end = nxt as u32;
            self.known = Known::Measurements;
        }
        self.backoff = 0;
    }

    /// The timer ran out.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-5
    //# The host MUST set RTO <- RTO * 2 ("back off the timer").
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
    //# A TCP endpoint MUST implement the basic congestion control algorithms slow start,
    //# congestion avoidance, and exponential backoff of RTO to avoid creating congestion collapse
    //# conditions (MUST-19).
    pub fn on_timeout(&mut self) {
        self.backoff = self.backoff.saturating_add(1).min(32);
    }

    /// The path answers, though what it said measures nothing: the next timeout is not doubled any
    /// more.
    pub fn on_progress(&mut self) {
        self.backoff = 0;
    }

    /// The SYN had to be sent again and no measurement exists.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-5
    //# If the timer expires awaiting the ACK of a SYN segment and the
    //# TCP implementation is using an RTO less than 3 seconds, the RTO
    //# MUST be re-initialized to 3 seconds when data transmission
    //# begins
    pub fn on_handshake_timeout(&mut self) {
        if self.known == Known::Nothing {
            self.known = Known::HandshakeTimeout;
        }
        self.backoff = 0;
    }

    /// Retransmission timeout in nanoseconds, doublings included.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //# After the computation, a host MUST update RTO <- SRTT + max (G, K*RTTVAR)
    //= https://www.rfc-editor.org/rfc/rfc6298#section-4
    //# if the K*RTTVAR term in the RTO calculation equals zero, the variance term MUST be rounded
    //# to G seconds
    pub fn rto_ns(&self) -> u64 {
        let base = match self.known {
            Known::Measurements => {
                let variance = (u64::from(self.rttvar_us) * 1000).max(self.floor_ns());
                u64::from(self.srtt8_us) * 125 + variance
            }
            Known::HandshakeTimeout => 3 * SECOND,
            Known::Nothing => RTO_NS_INITIAL,
        };
        base.saturating_mul(1 << u64::from(self.backoff.min(32))).min(self.most_ns())
    }

    /// A route says how long the variance part is at the least; 0 for what it is for all.
    pub fn set_floor(&mut self, floor_ms: u16) {
        let was_us = (self.floor_ns() / 1000) as u32;
        self.floor_ms = floor_ms;
        let floor_us = (self.floor_ns() / 1000) as u32;
        // What was no more than the former one is the new one's.
        for us in [&mut self.rttvar_us, &mut self.mdev_max_us] {
            if *us <= was_us {
                *us = self.mdev_us.max(floor_us);
            }
        }
    }

    /// The least variance part, which also bounds how long acknowledgements are awaited.
    pub fn floor_ns(&self) -> u64 {
        match self.floor_ms {
            0 => RTO_NS_MIN,
            floor => u64::from(floor) * MILLISECOND,
        }
    }

    /// Smoothed round-trip time in nanoseconds, once measured.
    pub fn srtt_ns(&self) -> Option<u64> {
        (self.known == Known::Measurements).then_some(u64::from(self.srtt8_us) * 125)
    }

    /// How often the timeout has been doubled.
    pub fn backoff(&self) -> u8 {
        self.backoff
    }

    /// Mean deviation in nanoseconds.
    pub fn rttvar_ns(&self) -> u64 {
        u64::from(self.mdev_us / 4) * 1000
    }
}

fn clamped(us: i64) -> u32 {
    us.clamp(0, u32::MAX.into()) as u32
}

/// How long `retries` retransmissions with a first timeout of `base_ns` and longest ones of `most_ns`
/// take altogether: Linux
/// reads tcp_retries2 this way, so that the time to give up does not hang on the measured RTT.
pub fn patience_ns(retries: u32, base_ns: u64, most_ns: u64) -> u64 {
    let mut total = 0u64;
    let mut timeout = base_ns;
    for _ in 0..=retries.min(64) {
        total = total.saturating_add(timeout);
        timeout = timeout.saturating_mul(2).min(most_ns);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //= type=test
    //# Until a round-trip time (RTT) measurement has been made for a
    //# segment sent between the sender and receiver, the sender SHOULD
    //# set RTO <- 1 second
    #[test]
    fn the_first_timeout_is_a_second() {
        assert_eq!(Rtt::default().rto_ns(), SECOND);
    }

    //= https://www.rfc-editor.org/rfc/rfc6298#section-5
    //= type=test
    //# The host MUST set RTO <- RTO * 2 ("back off the timer").
    #[test]
    fn timeouts_double_up_to_the_ceiling() {
        let mut rtt = Rtt::default();
        rtt.on_timeout();
        assert_eq!(rtt.rto_ns(), 2 * SECOND);
        for _ in 0..100 {
            rtt.on_timeout();
        }
        assert_eq!(rtt.rto_ns(), RTO_NS_MAX);
        let mut short = Rtt::limited_to(1000);
        short.on_timeout();
        assert_eq!(short.rto_ns(), SECOND);
    }

    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //= type=test
    //# (2.2) When the first RTT measurement R is made, the host MUST set
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //= type=test
    //# (2.3) When a subsequent RTT measurement R' is made, a host MUST set
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //= type=test
    //# That is, updating RTTVAR and SRTT MUST be computed in the above order.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //= type=test
    //# The above SHOULD be computed using alpha=1/8 and beta=1/4 (as suggested in [JK88]).
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //= type=test
    //# After the computation, a host MUST update RTO <- SRTT + max (G, K*RTTVAR)
    //= https://www.rfc-editor.org/rfc/rfc6298#section-4
    //= type=test
    //# if the K*RTTVAR term in the RTO calculation equals zero, the variance term MUST be rounded
    //# to G seconds
    #[test]
    fn the_estimate_follows_the_samples_and_keeps_the_floor() {
        let mut rtt = Rtt::default();
        rtt.on_sample(100 * MILLISECOND, 0, 0);
        assert_eq!(rtt.srtt_ns(), Some(100 * MILLISECOND));
        assert_eq!(rtt.rto_ns(), 300 * MILLISECOND);
        for round in 1..200 {
            rtt.on_sample(MILLISECOND, round, round);
        }
        assert!(rtt.srtt_ns().unwrap() < 2 * MILLISECOND);
        assert!(rtt.rto_ns() >= RTO_NS_MIN && rtt.rto_ns() < 210 * MILLISECOND);
    }

    #[test]
    fn a_faster_path_does_not_lengthen_the_timeout() {
        let mut rtt = Rtt::default();
        rtt.on_sample(3 * SECOND, 0, 0);
        let mut before = rtt.rto_ns();
        for round in 1..50 {
            rtt.on_sample(MILLISECOND, round, round);
            assert!(rtt.rto_ns() <= before);
            before = rtt.rto_ns();
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc7323#section-4.2
    //= type=test
    //# When multiple RTTMs per RTT are available to update the RTT estimator, an implementation
    //# SHOULD try to adhere to the spirit of the history specified in [RFC6298].
    #[test]
    fn many_measurements_of_a_round_trip_keep_its_largest_deviation() {
        let mut rtt = Rtt::default();
        rtt.on_sample(100 * MILLISECOND, 0, 0);
        rtt.on_sample(400 * MILLISECOND, 1, 100);
        let varied = rtt.rttvar_us;
        assert!(varied > 300_000, "{varied}");
        for una in 2..=100 {
            rtt.on_sample(137 * MILLISECOND, una, 200);
        }
        assert_eq!(rtt.rttvar_us, varied);
        assert!(rtt.rttvar_ns() < 20 * MILLISECOND, "{}", rtt.rttvar_ns());
        rtt.on_sample(137 * MILLISECOND, 101, 200);
        assert!((varied - varied / 4..varied).contains(&rtt.rttvar_us), "{}", rtt.rttvar_us);
    }

    #[test]
    fn fifteen_retries_take_as_long_as_linux_says() {
        assert_eq!(patience_ns(15, RTO_NS_MIN, RTO_NS_MAX), 924_600 * MILLISECOND);
    }
}
