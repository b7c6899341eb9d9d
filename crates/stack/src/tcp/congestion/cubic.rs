//! CUBIC: RFC 9438. Windows in bytes, times in nanoseconds, the cubic in floating point
//! (deterministic: only additions, multiplications and one cube root of our own).

use serde::{Deserialize, Serialize};

use super::hystart::HyStart;
use super::hystart_kernel::HyStartKernel;
use super::{Ack, Algorithm, WINDOW_MAX, Window, slow_start};
use crate::api::Instant;

//= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
//# The parameter β__cubic_ SHOULD be set to 0.7
const BETA: f64 = 0.7;
/// Scale of the cubic (RFC 9438 section 5.1).
//= https://www.rfc-editor.org/rfc/rfc9438#section-5.1
//# it is NOT RECOMMENDED to set _C_ to a very low value like 0.04, since CUBIC with a low _C_
//# cannot efficiently use the bandwidth in fast and long-distance networks.
//= https://www.rfc-editor.org/rfc/rfc9438#section-5.1
//# Therefore, _C_ SHOULD be set to 0.4.
const C: f64 = 0.4;
/// Growth of the window in the region where Reno would be faster (RFC 9438 section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// State of CUBIC: what it needs at a time of the two, in the memory of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Cubic {
    /// The first slow start, and how it ends.
    Start(HyStart),
    /// The same where it is to end as in Linux.
    KernelStart(HyStartKernel),
    /// Everything after it.
    Curve(Box<Curve>),
}

impl Default for Cubic {
    fn default() -> Self {
        Self::Start(HyStart::default())
    }
}

impl Cubic {
    /// The first slow start ends as in Linux.
    pub fn start_as_kernel(&mut self) {
        if let Self::Start(_) = self {
            *self = Self::KernelStart(HyStartKernel::default());
        }
    }

    /// Lets the curve act, which is what counts from now on.
    fn with_curve<R>(&mut self, act: impl FnOnce(&mut Curve) -> R) -> R {
        if let Self::Curve(curve) = self {
            return act(curve);
        }
        let mut curve = Box::<Curve>::default();
        let result = act(&mut curve);
        *self = Self::Curve(curve);
        result
    }
}

/// The window's curve. Windows in segments, as the RFC has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Where the cubic has its plateau.
    w_max: f64,
    /// Window just before the last reduction.
    cwnd_prior: f64,
    /// Seconds the cubic takes back to `w_max`.
    k: f64,
    /// What Reno would have by now.
    w_est: f64,
    /// Start of the current avoidance phase.
    epoch: Option<Instant>,
    /// Fraction of a segment still to be added.
    fraction: f64,
}

impl Algorithm for Cubic {
    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        //= https://www.rfc-editor.org/rfc/rfc9406#section-4.3
        //# An implementation SHOULD use HyStart++ only for the initial slow
        //# start (when the ssthresh is at its initial value of arbitrarily high
        //# per [RFC5681]) and fall back to using standard slow start for the
        //# remainder of the connection lifetime.
        //= https://www.rfc-editor.org/rfc/rfc9438#section-4.10
        //# When _cwnd_ is no more than _ssthresh_, CUBIC MUST employ a slow start algorithm.
        //= https://www.rfc-editor.org/rfc/rfc9438#section-4.10
        //# In general, CUBIC SHOULD use the HyStart++ slow start algorithm [RFC9406] or MAY use the
        //# Reno TCP slow start algorithm [RFC5681] in the rare cases when HyStart++ is not
        //# suitable.
        if let Self::KernelStart(hystart) = self {
            hystart.on_ack(window, ack);
            if window.ssthresh == u32::MAX {
                slow_start(window, ack.bytes);
                return;
            }
        }
        if window.ssthresh == u32::MAX {
            let mut hystart = match self {
                Self::Start(hystart) => *hystart,
                Self::KernelStart(_) | Self::Curve(_) => HyStart::default(),
            };
            hystart.on_ack(window, ack);
            *self = Self::Start(hystart);
            return;
        }
        self.with_curve(|curve| curve.on_ack(window, ack));
    }

    fn on_loss(&mut self, window: &Window, flight: u32, mss: u32) -> u32 {
        self.with_curve(|curve| curve.on_loss(window, flight, mss))
    }

    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.8
    //# _K_ is set to 0, and _W_max_ is set to the congestion window
    //# size at the beginning of the current congestion avoidance stage.
    fn on_timeout(&mut self) {
        self.with_curve(|curve| {
            curve.epoch = None;
            curve.w_max = 0.0;
        });
    }

    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.2
    //# The elapsed time _t_ in Figure 1 MUST NOT include periods during which _cwnd_ has not been
    //# updated due to application-limited behavior (see Section 5.8).
    fn on_idle(&mut self, idle_ns: u64) {
        // Time in which nothing was sent does not count (RFC 9438 section 5.8).
        if let Self::Curve(curve) = self
            && let Some(epoch) = &mut curve.epoch
        {
            epoch.0 = epoch.0.saturating_add(idle_ns);
        }
    }
}

impl Curve {
    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let left = slow_start(window, ack.bytes);
        if left == 0 {
            return;
        }
        let mss = f64::from(ack.mss.max(1));
        let cwnd = f64::from(window.cwnd) / mss;
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.epoch = Some(ack.now);
                if self.w_max < cwnd {
                    self.w_max = cwnd;
                }
                self.k = cube_root((self.w_max - cwnd) / C);
                //= https://www.rfc-editor.org/rfc/rfc9438#section-4.8
                //# In addition, for the Reno-friendly region, _W_est_ SHOULD be set to the
                //# congestion window size at the beginning of the current congestion avoidance
                //# stage.
                self.w_est = cwnd;
                self.fraction = 0.0;
                ack.now
            }
        };
        let t = ack.now.0.saturating_sub(epoch.0) as f64 / 1e9;
        let rtt = ack.srtt_ns as f64 / 1e9;
        let acked = f64::from(left) / mss;
        //= https://www.rfc-editor.org/rfc/rfc9438#section-4.3
        //# Once _W_est_ has grown to reach the _cwnd_ at the time of most
        //# recently setting _ssthresh_ -- that is, _W_est_ >= _cwnd_prior_ --
        //# the sender SHOULD set α__cubic_ to 1 to ensure that it can achieve
        //# the same congestion window increment rate as Reno, which uses AIMD(1,
        //# 0.5).
        let alpha = if self.w_est >= self.cwnd_prior { 1.0 } else { ALPHA };
        self.w_est += alpha * acked / cwnd;
        // Figure 1: W_cubic(t) = C * (t - K)^3 + W_max.
        let cubic = |t: f64| C * (t - self.k) * (t - self.k) * (t - self.k) + self.w_max;
        //= https://www.rfc-editor.org/rfc/rfc9438#section-4.3
        //# If so, CUBIC is in the Reno-friendly region and _cwnd_ SHOULD be set to _W_est_ at each
        //# reception of a new ACK.
        if cubic(t) < self.w_est {
            self.fraction += (self.w_est - cwnd).max(0.0);
        } else {
            //= https://www.rfc-editor.org/rfc/rfc9438#section-4.4
            //# In this region, _cwnd_ MUST be incremented by
            //= https://www.rfc-editor.org/rfc/rfc9438#section-4.5
            //# In this region, _cwnd_ MUST be incremented by
            let target = cubic(t + rtt).clamp(cwnd, 1.5 * cwnd);
            self.fraction += (target - cwnd) / cwnd * acked;
        }
        // Never more than half of what was acknowledged, like the target's own bound.
        let whole = self.fraction.min(acked.max(1.0));
        if whole * mss >= 1.0 {
            window.cwnd = window.cwnd.saturating_add((whole * mss) as u32).min(WINDOW_MAX);
            self.fraction = 0.0;
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.7
    //# To speed up this bandwidth release by existing flows, the following fast convergence
    //# mechanism SHOULD be implemented.
    fn on_loss(&mut self, window: &Window, flight: u32, mss: u32) -> u32 {
        let cwnd = f64::from(window.cwnd) / f64::from(mss.max(1));
        // Fast convergence, RFC 9438 section 4.7.
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.cwnd_prior = cwnd;
        self.epoch = None;
        // RFC 9438 section 4.6 reduces the flight, or the window when it was kept in use; Linux
        // takes the window, which is the same for a sender that the window limits.
        let basis = window.cwnd.min(flight.saturating_add(2 * mss).max(window.cwnd / 2));
        ((f64::from(basis) * BETA) as u32).max(2 * mss)
    }
}

/// Cube root by Newton's method; `no_std` in spirit and the same on every machine.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = if x > 1.0 { x / 2.0 } else { 1.0 };
    for _ in 0..64 {
        let next = (2.0 * root + x / (root * root)) / 3.0;
        if (next - root).abs() < 1e-9 * root {
            return next;
        }
        root = next;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Cubic {
        fn curve(&mut self) -> Curve {
            self.with_curve(|curve| *curve)
        }
    }

    #[test]
    fn cube_roots_are_right() {
        for x in [0.001f64, 0.5, 1.0, 8.0, 27.0, 1e6, 1e12] {
            assert!((cube_root(x).powi(3) - x).abs() < 1e-6 * x, "{x}");
        }
        assert_eq!(cube_root(-1.0), 0.0);
    }

    fn run(cubic: &mut Cubic, window: &mut Window, from_s: f64, seconds: f64) {
        // One acknowledgement for each two segments of a window every 100 ms.
        let mut t = from_s;
        while t < from_s + seconds {
            let mut acked = 0;
            let flight = window.cwnd;
            while acked < flight {
                let now = Instant((t * 1e9) as u64);
                let ack = Ack {
                    bytes: 2000,
                    now,
                    srtt_ns: 100_000_000,
                    rtt_ns: None,
                    mss: 1000,
                    una: 0,
                    nxt: 0,
                };
                cubic.on_ack(window, &ack);
                acked += 2000;
            }
            t += 0.1;
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.4
    //= type=test
    //# In this region, _cwnd_ MUST be incremented by
    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.5
    //= type=test
    //# In this region, _cwnd_ MUST be incremented by
    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
    //= type=test
    //# The parameter β__cubic_ SHOULD be set to 0.7, which is different from the multiplicative
    //# decrease factor used in [RFC5681] (and [RFC6675]) during fast recovery.
    //= https://www.rfc-editor.org/rfc/rfc9438#section-5.1
    //= type=test
    //# it is NOT RECOMMENDED to set _C_ to a very low value like 0.04, since CUBIC with a low _C_
    //# cannot efficiently use the bandwidth in fast and long-distance networks.
    //= https://www.rfc-editor.org/rfc/rfc9438#section-5.1
    //= type=test
    //# Therefore, _C_ SHOULD be set to 0.4.
    #[test]
    fn the_window_returns_to_its_former_size_after_k() {
        let mut cubic = Cubic::default();
        let mut window = Window { cwnd: 1_000_000, ssthresh: 1 };
        window.ssthresh = cubic.on_loss(&window, 1_000_000, 1000);
        window.cwnd = window.ssthresh;
        assert_eq!(window.cwnd, 700_000);
        // K = cbrt(300 / 0.4) = 9.08 s.
        run(&mut cubic, &mut window, 0.0, 4.0);
        assert!((850_000..980_000).contains(&window.cwnd), "{}", window.cwnd);
        run(&mut cubic, &mut window, 4.0, 5.2);
        assert!((980_000..1_030_000).contains(&window.cwnd), "{}", window.cwnd);
        run(&mut cubic, &mut window, 9.2, 6.0);
        assert!(window.cwnd > 1_060_000, "{}", window.cwnd);
    }

    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.8
    //= type=test
    //# In addition, for the Reno-friendly region, _W_est_ SHOULD be set to the congestion window
    //# size at the beginning of the current congestion avoidance stage.
    #[test]
    fn after_a_timeout_the_window_stands_on_its_plateau() {
        let mut cubic = Cubic::default();
        let mut window = Window { cwnd: 100_000, ssthresh: 1 };
        window.ssthresh = cubic.on_loss(&window, 100_000, 1000);
        cubic.on_timeout();
        window.cwnd = window.ssthresh;
        run(&mut cubic, &mut window, 0.0, 0.3);
        assert_eq!((cubic.curve().k, cubic.curve().w_max), (0.0, 70.0));
        assert!((70.0..73.0).contains(&cubic.curve().w_est), "{}", cubic.curve().w_est);
    }

    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.3
    //= type=test
    //# If so, CUBIC is in the Reno-friendly region and _cwnd_ SHOULD be set to _W_est_ at each
    //# reception of a new ACK.
    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.3
    //= type=test
    //# the sender SHOULD set α__cubic_ to 1 to ensure that it can achieve the same congestion
    //# window increment rate as Reno
    #[test]
    fn where_reno_would_be_faster_the_window_grows_as_renos() {
        let mut cubic = Cubic::default();
        let mut window = Window { cwnd: 10_000, ssthresh: 1 };
        window.ssthresh = cubic.on_loss(&window, 10_000, 1000);
        window.cwnd = window.ssthresh;
        // About half a segment in a round trip up to where the loss was, then one.
        run(&mut cubic, &mut window, 0.0, 0.5);
        assert!((9_000..=10_500).contains(&window.cwnd), "{}", window.cwnd);
        run(&mut cubic, &mut window, 0.5, 2.0);
        assert!((26_000..34_000).contains(&window.cwnd), "{}", window.cwnd);
    }

    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.2
    //= type=test
    //# The elapsed time _t_ in Figure 1 MUST NOT include periods during which _cwnd_ has not been
    //# updated due to application-limited behavior (see Section 5.8).
    #[test]
    fn idle_time_does_not_count() {
        let [mut busy, mut idle] = [Cubic::default(), Cubic::default()];
        let windows = [&mut busy, &mut idle].map(|cubic| {
            let mut window = Window { cwnd: 1_000_000, ssthresh: 1 };
            window.ssthresh = cubic.on_loss(&window, 1_000_000, 1000);
            window.cwnd = window.ssthresh;
            run(cubic, &mut window, 0.0, 2.0);
            window
        });
        let [mut of_busy, mut of_idle] = windows;
        run(&mut busy, &mut of_busy, 2.0, 2.0);
        idle.on_idle(60_000_000_000);
        run(&mut idle, &mut of_idle, 62.0, 2.0);
        assert!(of_busy.cwnd.abs_diff(of_idle.cwnd) < 2000, "{of_busy:?} {of_idle:?}");
    }

    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.7
    //= type=test
    //# To speed up this bandwidth release by existing flows, the following fast convergence
    //# mechanism SHOULD be implemented.
    #[test]
    fn fast_convergence_lets_a_newcomer_in() {
        let mut cubic = Cubic::default();
        cubic.on_loss(&Window { cwnd: 100_000, ssthresh: 1 }, 100_000, 1000);
        cubic.on_loss(&Window { cwnd: 80_000, ssthresh: 1 }, 80_000, 1000);
        assert!((cubic.curve().w_max - 68.0).abs() < 0.01);
    }
}
