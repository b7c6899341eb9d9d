//! What a peer urges.

use super::connection::{Connection, Step};
use crate::api::Urgent;

impl Connection<'_> {
    /// The peer says that what ends with `pointer` is urgent. As Linux: the byte before the pointer
    /// is the urgent one, and the first where the pointer is nought; one that has been received is
    /// not urgent any more.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
    //# A TCP implementation MUST (MUST-32) inform the application layer asynchronously
    //# whenever it receives an urgent pointer and there was previously no pending urgent data,
    //# or whenever the urgent pointer advances in the data stream.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4
    //# A TCP receiver MUST process the RST and URG fields of all incoming segments, even when
    //# the receive window is zero (MUST-66).
    pub fn on_urgent(&mut self, step: &mut Step<'_>, start: i64, pointer: u16) {
        let end = start.saturating_add(i64::from(pointer.max(1)));
        if let Ok(end) = u64::try_from(end)
            && end > self.hot.rcv_nxt
            && end > self.cold.urgent().end()
            && !self.hot.fin_received
        {
            self.cold.rare_mut().urgent = Urgent::announced(end);
            step.shared.counters.urgent_received += 1;
            step.event = true;
        }
    }

    /// Takes note of the urgent byte when a segment brings it. As Linux: whether what is before it has
    /// come or not, and only what comes with the pointer or after it.
    pub fn find_urgent(&mut self, step: &mut Step<'_>, start: i64, payload: &[u8]) {
        let urgent = self.cold.urgent();
        let place = urgent.end().cast_signed() - 1 - start;
        let byte = usize::try_from(place).ok().and_then(|place| payload.get(place));
        if let Some(&byte) = byte {
            self.cold.rare_mut().urgent = urgent.come(byte);
            step.event = true;
        }
    }
}
