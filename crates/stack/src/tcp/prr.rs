//! Proportional rate reduction (RFC 9937): how much is sent for each acknowledgement of a
//! recovery, so that the window shrinks evenly and what is lost is replaced as fast as data
//! arrives.

use serde::{Deserialize, Serialize};

/// State of one recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prr {
    /// RecoverFS.
    recover_bytes: u64,
    /// prr_delivered.
    delivered: u64,
    /// prr_out.
    out: u64,
}

/// What one acknowledgement of the recovery says.
#[derive(Clone, Copy, Debug)]
pub struct PrrSample {
    /// DeliveredData.
    pub delivered: u64,
    /// Bytes in flight now.
    pub in_flight: u64,
    /// SafeACK: snd.una moved and nothing more is lost.
    pub is_safe: bool,
}

impl Prr {
    /// A recovery begins, in which so many bytes may yet be delivered.
    //= https://www.rfc-editor.org/rfc/rfc9937#section-6.1
    //# At the beginning of a congestion control response episode initiated
    //# by the congestion control algorithm, a data sender using PRR MUST
    //# initialize the PRR state.
    pub fn new(recover_bytes: u64) -> Self {
        Self { recover_bytes: recover_bytes.max(1), delivered: 0, out: 0 }
    }

    /// RecoverFS: bytes that could yet be delivered when it began.
    pub fn recover_bytes(&self) -> u64 {
        self.recover_bytes
    }

    /// Bytes of those in flight at the beginning that have not been delivered yet.
    pub fn undelivered(&self) -> u64 {
        self.recover_bytes.saturating_sub(self.delivered)
    }

    /// Data was sent.
    //= https://www.rfc-editor.org/rfc/rfc9937#section-6.3
    //# prr_out += (data sent)
    pub fn on_sent(&mut self, bytes: u64) {
        self.out = self.out.saturating_add(bytes);
    }

    /// Data was not sent after all.
    pub fn take_back(&mut self, bytes: u64) {
        self.out = self.out.saturating_sub(bytes);
    }

    /// The congestion window after an acknowledgement.
    //= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
    //# The full sequence of per-ACK PRR algorithm steps is as follows:
    //= https://www.rfc-editor.org/rfc/rfc5681#section-4.3
    //# until all lost segments in the window of data in question are repaired, the number of
    //# segments transmitted in each RTT MUST be no more than half the number of outstanding
    //# segments when the loss was detected
    pub fn window(&mut self, progress: PrrSample, ssthresh: u32, mss: u32) -> u32 {
        let (ssthresh, mss) = (u64::from(ssthresh), u64::from(mss));
        let PrrSample { delivered, in_flight, is_safe } = progress;
        self.delivered = self.delivered.saturating_add(delivered);
        let mut count = if in_flight > ssthresh {
            let out = self.delivered.saturating_mul(ssthresh).div_ceil(self.recover_bytes);
            out.saturating_sub(self.out)
        } else {
            let crb = self.delivered.saturating_sub(self.out).max(delivered);
            let ssrb = crb.saturating_add(if is_safe { mss } else { 0 });
            ssrb.min(ssthresh - in_flight)
        };
        if self.out == 0 {
            //= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
            //# // Force a fast retransmit upon entering recovery
            // Of a whole segment: less is not sent.
            count = count.max(mss);
        }
        u32::try_from(in_flight.saturating_add(count)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    /// Everything that the window allows is sent after each acknowledgement.
    fn run(prr: &mut Prr, in_flight: &mut u64, ssthresh: u64, is_safe: bool) -> u64 {
        *in_flight -= MSS;
        let progress = PrrSample { delivered: MSS, in_flight: *in_flight, is_safe };
        let window = u64::from(prr.window(progress, ssthresh as u32, MSS as u32));
        let sent = (window - *in_flight) / MSS * MSS;
        prr.on_sent(sent);
        *in_flight += sent;
        sent / MSS
    }

    /// The first example of RFC 9937 section 8: one of twenty segments is lost, Reno halves.
    //= https://www.rfc-editor.org/rfc/rfc5681#section-4.3
    //= type=test
    //# until all lost segments in the window of data in question are repaired, the number of
    //# segments transmitted in each RTT MUST be no more than half the number of outstanding
    //# segments when the loss was detected
    //= https://www.rfc-editor.org/rfc/rfc9937#section-6.1
    //= type=test
    //# At the beginning of a congestion control response episode initiated by the congestion
    //# control algorithm, a data sender using PRR MUST initialize the PRR state.
    #[test]
    fn one_loss_lets_a_segment_go_for_every_second_that_arrives() {
        let mut prr = Prr::new(20 * MSS);
        let mut in_flight = 19 * MSS;
        let sent: Vec<u64> =
            (0..19).map(|_| run(&mut prr, &mut in_flight, 10 * MSS, false)).collect();
        assert_eq!(sent.iter().sum::<u64>(), 10);
        assert!(sent.chunks(4).all(|c| c.iter().sum::<u64>() <= 3), "{sent:?}");
        assert_eq!(in_flight, 10 * MSS);
    }

    //= https://www.rfc-editor.org/rfc/rfc8985#section-9.3
    //= type=test
    //# A segment marked as lost by RACK-TLP MUST NOT be retransmitted until congestion control
    //# deems this appropriate.
    #[test]
    fn after_a_burst_of_losses_no_more_is_sent_than_arrives_unless_all_goes_well() {
        for (is_safe, each) in [(false, 1), (true, 2)] {
            let mut prr = Prr::new(20 * MSS);
            let mut in_flight = 5 * MSS;
            for _ in 0..3 {
                assert_eq!(run(&mut prr, &mut in_flight, 10 * MSS, is_safe), each);
            }
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
    //= type=test
    //# // Force a fast retransmit upon entering recovery
    #[test]
    fn the_first_retransmission_goes_at_once() {
        let mut prr = Prr::new(100 * MSS);
        let progress = PrrSample { delivered: 10, in_flight: 90 * MSS, is_safe: false };
        assert_eq!(prr.window(progress, 50_000, 1000), 91_000);
    }
}
