//! Segments for connections that a listener has not shown to anybody yet: SYN-RECEIVED of RFC 9293,
//! section 3.10.7.4, with Linux's order and answers (tcp_check_req).

use wire::tcp::{TcpFlags, TcpSegment, Timestamps};

use super::connection::{Connection, Step};
use super::reply::Reply;
use crate::api::{TcpError, TcpState};
use crate::drops::DropReason;

impl Connection<'_> {
    /// Whether it is one.
    pub fn is_half_open(&self) -> bool {
        self.cold.half_open && self.hot.state == TcpState::SynReceived
    }

    /// Where the segment begins, counted from the first byte; `None` when there is no more to do with it.
    pub fn check_half_open(
        &mut self,
        step: &mut Step<'_>,
        segment: &TcpSegment<'_>,
    ) -> Result<Option<i64>, DropReason> {
        let header = &segment.header;
        let flags = header.flags;
        if flags.syn() && !flags.ack() && !flags.rst() && header.seq == self.hot.irs {
            self.repeat_syn(step);
            return Ok(None);
        }
        // As to a listener, which it would be for without us; also where it lies beyond the window.
        if flags.ack() && !flags.rst() && header.ack != self.hot.iss + 1 {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
            //# If the segment acknowledgment is not acceptable, form a
            //# reset segment
            step.reply = self.reset_for(step, segment);
            return Err(DropReason::TcpBadAck);
        }
        let stamp = segment.options.timestamps.filter(|_| self.hot.timestamps && !flags.rst());
        if stamp.is_some_and(|stamp| self.hot.is_stamp_old(step.now, stamp.value)) {
            self.acknowledge_invalid(step, segment);
            return Err(DropReason::TcpPaws);
        }
        let (start, end) = self.span(segment);
        if !self.is_within_window(start, end) {
            step.shared.counters.beyond_window += u64::from(end > 0);
            if !flags.rst() {
                //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
                //# If an incoming segment is not acceptable, an acknowledgment
                //# should be sent in reply (unless the RST bit is set, if so drop
                //# the segment and return):
                self.acknowledge_invalid(step, segment);
            }
            return Err(DropReason::TcpOutOfWindow);
        }
        if flags.rst() {
            if start == 0 {
                return self.on_exact_reset(step).map(|()| None);
            }
            self.challenge(step);
            return Err(DropReason::TcpBlindReset);
        }
        if flags.syn() {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
            //# If the connection was initiated with a passive OPEN, then return this connection to the
            //# LISTEN state and return.
            self.abort_in_answer(step, segment, TcpError::Reset);
            return Err(DropReason::TcpBlindReset);
        }
        Ok(Some(start))
    }

    /// The peer did not get our SYN and ACK.
    pub fn repeat_syn(&mut self, step: &mut Step<'_>) {
        if !self.may_answer_invalid(step) {
            step.shared.counters.challenges_limited += 1;
            return;
        }
        self.hot.syn_due = true;
        step.ready = true;
    }

    /// `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>`, while the SYN and ACK is under way.
    pub fn acknowledge_syn(&mut self, step: &mut Step<'_>) {
        let tos = match self.is_half_open() {
            true => step.answers_as,
            false => self.cold.options.tos_to(self.cold.remote.ip()),
        };
        let window = self.offer_window();
        let hot = &*self.hot;
        step.reply = Some(Reply {
            interface: hot.interface,
            local: self.cold.local.address(),
            remote: self.cold.remote.address(),
            seq: hot.iss + 1,
            ack: hot.irs + 1,
            flags: TcpFlags::ACK,
            window,
            timestamps: hot
                .timestamps
                .then(|| Timestamps { value: hot.ts_now(step.now), echo: hot.ts_recent }),
            syn: None,
            tos,
            key: self.cold.key().cloned().map(Box::new),
        });
    }
}
