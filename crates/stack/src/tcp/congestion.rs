//! How much may be in the network: Reno (RFC 5681) and CUBIC (RFC 9438) behind one interface.
//!
//! The window and threshold lie in [`Window`]; an algorithm moves them at the four occasions that
//! a sender knows: something was acknowledged, a loss was found, the timer ran out, the
//! connection was idle.

mod cubic;
mod hystart;
mod reno;

use serde::{Deserialize, Serialize};

use crate::api::{CongestionKind, Instant};

pub use cubic::Cubic;
pub use reno::Reno;

/// Segments of the initial window.
//= https://www.rfc-editor.org/rfc/rfc6928#section-2
//# min (10*MSS, max (2*MSS, 14600))
pub const INITIAL_SEGMENTS: u32 = 10;

/// Congestion window and slow-start threshold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Bytes that may be in the network.
    pub cwnd: u32,
    /// Below it the window doubles every round trip.
    pub ssthresh: u32,
}

impl Window {
    /// The initial window (RFC 6928).
    pub fn initial(mss: u32) -> Self {
        let cwnd = (INITIAL_SEGMENTS * mss).min((2 * mss).max(14600));
        Self { cwnd, ssthresh: u32::MAX }
    }

    /// Whether the window is below the threshold.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }
}

/// What an algorithm is told with an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// Bytes newly acknowledged.
    pub bytes: u32,
    /// When.
    pub now: Instant,
    /// Smoothed round-trip time, nanoseconds.
    pub srtt_ns: u64,
    /// The round-trip time that it measures, nanoseconds.
    pub rtt_ns: Option<u64>,
    /// Maximum segment size in use.
    pub mss: u32,
    /// snd.una now.
    pub una: u64,
    /// snd.nxt.
    pub nxt: u64,
}

/// The occasions at which an algorithm acts.
pub trait Algorithm {
    /// New data was acknowledged outside recovery while the window was the limit.
    fn on_ack(&mut self, window: &mut Window, ack: &Ack);
    /// A loss was found (three duplicates or their like): the new threshold, from the bytes in
    /// flight.
    fn on_loss(&mut self, window: &Window, flight: u32, mss: u32) -> u32;
    /// The retransmission timer ran out; called after [`Algorithm::on_loss`] gave the threshold.
    fn on_timeout(&mut self);
    /// Nothing was in flight for `idle_ns`.
    fn on_idle(&mut self, idle_ns: u64);
}

/// The algorithm of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Congestion {
    /// RFC 9438.
    Cubic(Cubic),
    /// RFC 5681.
    Reno(Reno),
}

impl Congestion {
    /// A fresh state of the algorithm.
    pub fn new(kind: CongestionKind) -> Self {
        match kind {
            CongestionKind::Cubic => Congestion::Cubic(Cubic::default()),
            CongestionKind::Reno => Congestion::Reno(Reno::default()),
        }
    }

    /// Which algorithm it is.
    pub fn kind(&self) -> CongestionKind {
        match self {
            Congestion::Cubic(_) => CongestionKind::Cubic,
            Congestion::Reno(_) => CongestionKind::Reno,
        }
    }

    fn algorithm(&mut self) -> &mut dyn Algorithm {
        match self {
            Congestion::Cubic(cubic) => cubic,
            Congestion::Reno(reno) => reno,
        }
    }
}

impl Algorithm for Congestion {
    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        self.algorithm().on_ack(window, ack);
    }
    fn on_loss(&mut self, window: &Window, flight: u32, mss: u32) -> u32 {
        self.algorithm().on_loss(window, flight, mss)
    }
    fn on_timeout(&mut self) {
        self.algorithm().on_timeout();
    }
    fn on_idle(&mut self, idle_ns: u64) {
        self.algorithm().on_idle(idle_ns);
    }
}

/// Slow start with appropriate byte counting, as far as the threshold: RFC 5681 with RFC 3465's
/// L taken as Linux does (all that was acknowledged). Yields the bytes left for avoidance.
fn slow_start(window: &mut Window, bytes: u32) -> u32 {
    let room = window.ssthresh.saturating_sub(window.cwnd);
    let used = bytes.min(room);
    window.cwnd = window.cwnd.saturating_add(used).min(WINDOW_MAX);
    bytes - used
}

/// No window grows beyond what sequence numbers can carry.
const WINDOW_MAX: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initial_window_is_ten_segments() {
        assert_eq!(Window::initial(1460).cwnd, 14600);
        assert_eq!(Window::initial(536).cwnd, 5360);
        assert_eq!(Window::initial(8960).cwnd, 17920);
    }

    #[test]
    fn slow_start_doubles_in_a_round_trip() {
        for kind in [CongestionKind::Cubic, CongestionKind::Reno] {
            let mut congestion = Congestion::new(kind);
            let mut window = Window::initial(1000);
            let ack = Ack {
                bytes: 1000,
                now: Instant(0),
                srtt_ns: 1_000_000,
                rtt_ns: None,
                mss: 1000,
                una: 0,
                nxt: 0,
            };
            for _ in 0..10 {
                congestion.on_ack(&mut window, &ack);
            }
            assert_eq!(window.cwnd, 20_000, "{kind:?}");
        }
    }
}
