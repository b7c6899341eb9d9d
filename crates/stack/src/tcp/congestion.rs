//! How much may be in the network, and how fast: Reno (RFC 5681), CUBIC (RFC 9438), DCTCP (RFC 8257)
//! and BBR behind one interface.
//!
//! The window and threshold lie in [`Window`]; an algorithm moves them at the occasions that a
//! sender knows: something was acknowledged, a loss was found, congestion was marked, the timer
//! ran out, the connection was idle. One that models the path (BBR) sets window and rate with
//! every acknowledgement instead, from [`Sample`]s.

mod bbr;
mod cubic;
mod dctcp;
mod hystart;
mod hystart_kernel;
mod reno;

use serde::{Deserialize, Serialize};

use super::connection::Phase;
use super::rate::RateSample;
use super::settings::HyStartKind;
use crate::api::{CongestionKind, Instant, Metrics};

pub use bbr::Bbr;
pub use cubic::Cubic;
pub use dctcp::Dctcp;
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
    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
    //# The initial value of ssthresh SHOULD be set arbitrarily high (e.g., to the size of the
    //# largest possible advertised window), but ssthresh MUST be reduced in response to congestion.
    pub fn initial(mss: u32) -> Self {
        let cwnd = (INITIAL_SEGMENTS * mss).min((2 * mss).max(14600));
        Self { cwnd, ssthresh: u32::MAX }
    }

    /// The initial window of a connection whose route may say one.
    pub fn first(mss: u16, route: &Metrics) -> Self {
        let mss = u32::from(mss);
        match route.initial_cwnd {
            0 => Self::initial(mss),
            segments => Self { cwnd: u32::from(segments) * mss, ssthresh: u32::MAX },
        }
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

/// What one acknowledgement says about the path, for algorithms that keep an account of it.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When.
    pub now: Instant,
    /// Maximum segment size in use.
    pub mss: u32,
    /// snd.una now.
    pub una: u64,
    /// snd.nxt.
    pub nxt: u64,
    /// Bytes newly known to have arrived.
    pub acked: u64,
    /// Bytes newly counted as lost.
    pub lost: u64,
    /// Smoothed round-trip time, nanoseconds; 0 before the first.
    pub srtt_ns: u64,
    /// The round-trip time that it measures, nanoseconds.
    pub rtt_ns: Option<u64>,
    /// The peer may have delayed it.
    pub is_ack_delayed: bool,
    /// Bytes in flight before it, and now.
    pub prior_in_flight: u64,
    /// See `prior_in_flight`.
    pub in_flight: u64,
    /// The delivery rate, where it tells one.
    pub rate: Option<RateSample>,
    /// Bytes delivered in all, when the last of them were, those acknowledged with an echo of
    /// congestion, and those ever lost.
    pub delivered: u64,
    /// See `delivered`.
    pub delivered_at: u64,
    /// See `delivered`.
    pub marked: u64,
    /// See `delivered`.
    pub total_lost: u64,
    /// Time until pacing lets the next burst go, nanoseconds.
    pub paced_ahead_ns: u64,
    /// Where loss recovery stands after it.
    pub phase: Phase,
}

/// What an algorithm may move.
#[derive(Debug)]
pub struct Control<'a> {
    /// The window.
    pub window: &'a mut Window,
    /// Bytes per second.
    pub pacing_rate: &'a mut u64,
    /// Set where what is sent from now on must not count as what the path can carry.
    pub limits_application: bool,
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
    /// The peer echoes that packets were marked: the new threshold.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
    //# If the sender receives an ECN-Echo (ECE) ACK
    //# packet (that is, an ACK packet with the ECN-Echo flag set in the TCP
    //# header), then the sender knows that congestion was encountered in the
    //# network on the path from the sender to the receiver.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-5
    //# the congestion control algorithms followed at the end-systems MUST be essentially the same
    //# as the congestion control response to a *single* dropped packet
    fn on_marked(&mut self, window: &Window, flight: u32, mss: u32) -> u32 {
        self.on_loss(window, flight, mss)
    }
    /// An acknowledgement, whatever it says.
    fn on_sample(&mut self, control: &mut Control<'_>, sample: &Sample) {
        let _ = (control, sample);
    }
    /// A supposed loss was none.
    fn on_undo(&mut self) {}
}

/// What an algorithm knows of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing that it would tell.
    Nothing,
    /// DCTCP's.
    Marks {
        /// DCTCP.Alpha, in 1024ths.
        alpha: u32,
        /// Bytes delivered, and marked of them, until the window began.
        delivered: u64,
        /// See `delivered`.
        marked: u64,
    },
    /// BBR's.
    Model {
        /// Bytes per second that the path carries.
        rate: u64,
        /// Nanoseconds of the shortest round trip.
        min_rtt_ns: Option<u64>,
        /// Of the rate at which is sent, in 256ths.
        pacing_gain: u16,
        /// Of the window, in 256ths.
        cwnd_gain: u16,
    },
}

/// The algorithm of one connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Congestion {
    /// RFC 9438.
    Cubic(Cubic),
    /// RFC 5681.
    Reno(Reno),
    /// RFC 8257.
    Dctcp(Box<Dctcp>),
    /// BBR, version 1.
    Bbr(Box<Bbr>),
}

const _: () = assert!(size_of::<Congestion>() <= 32, "what few connections need lies elsewhere");

impl Congestion {
    /// A fresh state of the algorithm.
    pub fn new(kind: CongestionKind) -> Self {
        match kind {
            CongestionKind::Cubic => Congestion::Cubic(Cubic::default()),
            CongestionKind::Reno => Congestion::Reno(Reno::default()),
            CongestionKind::Dctcp => Congestion::Dctcp(Box::default()),
            CongestionKind::Bbr => Congestion::Bbr(Box::default()),
        }
    }

    /// Which algorithm it is.
    pub fn kind(&self) -> CongestionKind {
        match self {
            Congestion::Cubic(_) => CongestionKind::Cubic,
            Congestion::Reno(_) => CongestionKind::Reno,
            Congestion::Dctcp(_) => CongestionKind::Dctcp,
            Congestion::Bbr(_) => CongestionKind::Bbr,
        }
    }

    /// Window and rate are its own: no recovery, idle time or missing use changes them.
    pub fn models_path(&self) -> bool {
        matches!(self, Congestion::Bbr(_))
    }

    /// Data is to go out at a rate.
    pub fn is_paced(&self) -> bool {
        self.models_path()
    }

    /// It wants [`Sample`]s.
    pub fn wants_rate(&self) -> bool {
        matches!(self, Congestion::Bbr(_) | Congestion::Dctcp(_))
    }

    /// It is of use only where routers mark packets, and every packet may be marked.
    pub fn needs_ecn(&self) -> bool {
        matches!(self, Congestion::Dctcp(_))
    }

    /// How many windows the program should have at hand (Linux's sndbuf_expand).
    pub fn windows_at_hand(&self) -> u32 {
        if self.models_path() { 3 } else { 2 }
    }

    /// The first slow start is to end so.
    pub fn set_hystart(&mut self, kind: HyStartKind) {
        if let (Congestion::Cubic(cubic), HyStartKind::Kernel) = (self, kind) {
            cubic.start_as_kernel();
        }
    }

    /// The connection stands, or the algorithm is another one from now on.
    pub fn on_start(&mut self, control: &mut Control<'_>, sample: &Sample, min_rtt: Option<u64>) {
        if let Congestion::Bbr(bbr) = self {
            bbr.on_start(control, sample, min_rtt);
        }
    }

    /// Sending begins again after a time with nothing in flight, limited by the application.
    pub fn on_restart(&mut self, control: &mut Control<'_>, sample: &Sample) {
        if let Congestion::Bbr(bbr) = self {
            bbr.on_restart(control, sample);
        }
    }

    /// What it knows of the path.
    pub fn known(&self) -> Known {
        match self {
            Congestion::Cubic(_) | Congestion::Reno(_) => Known::Nothing,
            Congestion::Dctcp(dctcp) => dctcp.known(),
            Congestion::Bbr(bbr) => bbr.known(),
        }
    }

    /// A copy that [`Algorithm::on_undo`] cannot do without.
    pub fn kept(&self) -> Option<Self> {
        (!self.models_path()).then(|| self.clone())
    }

    fn algorithm(&mut self) -> &mut dyn Algorithm {
        match self {
            Congestion::Cubic(cubic) => cubic,
            Congestion::Reno(reno) => reno,
            Congestion::Dctcp(dctcp) => dctcp.as_mut(),
            Congestion::Bbr(bbr) => bbr.as_mut(),
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
    fn on_marked(&mut self, window: &Window, flight: u32, mss: u32) -> u32 {
        self.algorithm().on_marked(window, flight, mss)
    }
    fn on_sample(&mut self, control: &mut Control<'_>, sample: &Sample) {
        self.algorithm().on_sample(control, sample);
    }
    fn on_undo(&mut self) {
        self.algorithm().on_undo();
    }
}

/// Slow start with appropriate byte counting, as far as the threshold: RFC 5681 with RFC 3465's
/// L taken as Linux does (all that was acknowledged). Yields the bytes left for avoidance.
//= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
//# The slow start and congestion avoidance algorithms MUST be used by a TCP sender to control the
//# amount of outstanding data being injected into the network.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//# A TCP endpoint MUST implement the basic congestion control algorithms slow start, congestion
//# avoidance, and exponential backoff of RTO to avoid creating congestion collapse conditions
//# (MUST-19).
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

    /// An acknowledgement that says nothing.
    pub fn sample() -> Sample {
        Sample {
            now: Instant(0),
            mss: 1000,
            una: 0,
            nxt: 0,
            acked: 0,
            lost: 0,
            srtt_ns: 0,
            rtt_ns: None,
            is_ack_delayed: false,
            prior_in_flight: 0,
            in_flight: 0,
            rate: None,
            delivered: 0,
            delivered_at: 0,
            marked: 0,
            total_lost: 0,
            paced_ahead_ns: 0,
            phase: Phase::Open,
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
    //= type=test
    //# The initial value of ssthresh SHOULD be set arbitrarily high (e.g., to the size of the
    //# largest possible advertised window), but ssthresh MUST be reduced in response to congestion.
    #[test]
    fn the_initial_window_is_ten_segments() {
        assert_eq!(Window::initial(1460).cwnd, 14600);
        assert_eq!(Window::initial(536).cwnd, 5360);
        assert_eq!(Window::initial(8960).cwnd, 17920);
        assert_eq!(Window::initial(1460).ssthresh, u32::MAX);
    }

    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.10
    //= type=test
    //# When _cwnd_ is no more than _ssthresh_, CUBIC MUST employ a slow start algorithm.
    #[test]
    fn slow_start_doubles_in_a_round_trip() {
        for kind in [CongestionKind::Cubic, CongestionKind::Reno, CongestionKind::Dctcp] {
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
