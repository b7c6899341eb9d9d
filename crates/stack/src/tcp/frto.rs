//! F-RTO with SACK and without (RFC 5682): whether a timeout came too early. After the first
//! retransmission new data is sent rather than what may not be lost, and what was never sent
//! again but arrives shows that nothing was.

use serde::{Deserialize, Serialize};

use super::connection::{Connection, Phase, Step};
use super::rack::Delivery;

/// How far the question has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frto {
    /// Not asked, or answered.
    #[default]
    Off,
    /// Step 2: the first segment was sent again.
    Repeated,
    /// Step 3: new data goes out instead of retransmissions.
    Asked,
}

impl Connection<'_> {
    /// The timer ran out; to be called before the phase changes.
    //= https://www.rfc-editor.org/rfc/rfc5682#section-3.1
    //# This algorithm
    //# SHOULD NOT be applied if the TCP sender is already in loss recovery
    //# when a retransmission timeout occurs.
    //= https://www.rfc-editor.org/rfc/rfc5682#section-2.1
    //# the F-RTO algorithm SHOULD NOT be
    //# entered when earlier fast recovery is underway.
    pub fn begin_frto(&mut self) {
        // A second timeout for the same segment begins it again.
        //= https://www.rfc-editor.org/rfc/rfc5682#section-3.1
        //# If the retransmission timer expires again during the execution of the SACK-enhanced
        //# F-RTO algorithm, the TCP sender MUST re-start the algorithm processing from step 1.
        //= https://www.rfc-editor.org/rfc/rfc5682#section-2.1
        //# If the retransmission timer expires again during the execution of the F-RTO
        //# algorithm, the TCP sender MUST re-start the algorithm processing from
        //# step 1.
        let may = self.hot.phase == Phase::Open || self.cold.retries > 1;
        self.cold.frto = if may { Frto::Repeated } else { Frto::Off };
    }

    /// An acknowledgement after a timeout. `bare`: it says nothing new.
    //= https://www.rfc-editor.org/rfc/rfc5682#section-3.1
    //# If the sender applies the SACK-enhanced F-RTO algorithm, it MUST follow the steps below.
    //= https://www.rfc-editor.org/rfc/rfc5682#section-2.1
    //# A TCP sender implementing the basic F-RTO algorithm MUST take the
    //# following steps after the retransmission timer expires.
    pub fn on_frto_ack(
        &mut self,
        step: &mut Step<'_>,
        delivery: &Delivery,
        progress: bool,
        bare: bool,
    ) {
        if self.hot.phase != Phase::Loss || self.cold.frto == Frto::Off {
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc5682#section-3.1
        //# The retransmission timeout can be declared spurious,
        //# because the segment acknowledged with this ACK was transmitted
        //# before the timeout.
        // As in Linux already in step 2.
        if delivery.original_end.is_some_and(|end| end <= self.cold.recover)
            && self.cold.undo.is_some()
        {
            step.shared.counters.spurious_timeouts += 1;
            self.undo(step);
            return;
        }
        match self.cold.frto {
            //= https://www.rfc-editor.org/rfc/rfc5682#section-3.1
            //# If the TCP sender is not able to transmit any previously unsent data
            //# -- either due to receiver window limitation or because it does
            //# not have any new data to send -- the recommended action is to
            //# refrain from entering step 3 of this algorithm.
            Frto::Repeated if progress => {
                let unsent = self.hot.nxt < self.hot.send_end() && !self.is_window_closed();
                self.cold.frto = if unsent { Frto::Asked } else { Frto::Off };
            }
            //= https://www.rfc-editor.org/rfc/rfc5682#section-3.1
            //# Take this
            //# branch also when the acknowledgment is a duplicate ACK and it
            //# does not acknowledge any new, previously unacknowledged data
            //# below "RecoveryPoint" in the SACK information.
            //= https://www.rfc-editor.org/rfc/rfc5682#section-2.1
            //# The TCP sender SHOULD ignore
            //# such segments and wait for a segment that either acknowledges new
            //# data or is a duplicate acknowledgment.
            Frto::Asked if delivery.sacked > 0 || bare => self.cold.frto = Frto::Off,
            _ => {}
        }
    }
}
