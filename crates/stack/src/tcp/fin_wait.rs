//! FIN-WAIT-2 of a connection that nobody owns any more. Linux has only a record of it by then, as of
//! TIME-WAIT, and answers so (tcp_timewait_state_process): all that is still awaited is the peer's FIN.

use wire::tcp::TcpSegment;

use super::connection::{Connection, Step};
use crate::api::{TcpError, TcpState};
use crate::drops::DropReason;

impl Connection<'_> {
    /// Whether it is one.
    pub fn awaits_fin_alone(&self) -> bool {
        self.hot.orphan && self.hot.state == TcpState::FinWait2
    }

    /// Where the segment begins, which is the peer's FIN; `None` when there is no more to do with it.
    pub fn check_awaited_fin(
        &mut self,
        step: &mut Step<'_>,
        segment: &TcpSegment<'_>,
    ) -> Result<Option<i64>, DropReason> {
        let flags = segment.header.flags;
        let (start, end) = self.span(segment);
        let next = self.hot.rcv_nxt.cast_signed();
        let stamp = segment.options.timestamps.filter(|_| self.hot.timestamps && !flags.rst());
        if stamp.is_some_and(|stamp| self.hot.is_stamp_old(step.now, stamp.value)) {
            self.acknowledge_invalid(step, segment);
            return Err(DropReason::TcpPaws);
        }
        if !self.is_within_window(start, end) {
            self.acknowledge_invalid(step, segment);
            return Err(DropReason::TcpOutOfWindow);
        }
        if flags.rst() {
            return self.on_exact_reset(step).map(|()| None);
        }
        let is_foreign_syn = flags.syn() && start >= next;
        if !is_foreign_syn && (!flags.ack() || end <= next || start == end) {
            return Err(DropReason::TcpClosed);
        }
        if is_foreign_syn || !flags.fin() || end != next + 1 {
            //= https://www.rfc-editor.org/rfc/rfc1122#section-4.2.2.13
            //# if new data is received after CLOSE is called, its TCP
            //# SHOULD send a RST to show that data was lost.
            step.shared.counters.aborts_on_data += u64::from(!is_foreign_syn);
            self.abort_in_answer(step, segment, TcpError::Aborted);
            return Err(DropReason::TcpClosed);
        }
        Ok(Some(start))
    }

    /// Where a segment begins and ends, SYN and FIN counted, from the first byte on.
    pub fn span(&self, segment: &TcpSegment<'_>) -> (i64, i64) {
        let start = self.hot.receive_offset(segment.header.seq);
        (start, start + i64::from(segment.seq_len()))
    }

    /// Linux's reading of the acceptability test where there is no connection yet, or no more
    /// (tcp_in_window).
    pub fn is_within_window(&self, start: i64, end: i64) -> bool {
        let (next, edge) = (self.hot.rcv_nxt.cast_signed(), self.hot.rcv_edge.cast_signed());
        start == next || (end > next && start < edge) || (start == edge && start == end)
    }
}
