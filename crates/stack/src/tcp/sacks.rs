//! What acknowledgements tell of data that came out of order (RFC 2018) or twice (RFC 2883).

use wire::tcp::{OPTIONS_LEN_MAX, SackBlock, SackBlocks, TcpSegment};

use super::connection::{Connection, Hot, Step};
use super::intervals::Range;

impl Connection<'_> {
    /// Remembers bytes received twice for the next acknowledgement (RFC 2883).
    pub fn note_duplicate(&mut self, step: &mut Step<'_>, segment: &TcpSegment<'_>) {
        let (start, end) = self.span(segment);
        let end = end.min(self.hot.rcv_nxt.cast_signed());
        if let (Ok(start), Ok(end)) = (u64::try_from(start), u64::try_from(end))
            && start < end
        {
            self.report_duplicate(step, Range { start, end });
        }
    }

    /// Duplicates in a row that come together are told as one: a peer takes its reduction back only
    /// when it has heard of each byte that it had sent in vain.
    pub fn report_duplicate(&mut self, step: &mut Step<'_>, duplicate: Range) {
        if self.hot.sack {
            let told = match self.cold.duplicate() {
                Some(before) if before.touches(&duplicate) => before.joined(&duplicate),
                _ => duplicate,
            };
            self.cold.rare_mut().duplicate = Some(told);
            step.shared.counters.duplicates += 1;
        }
    }

    /// The SACK option of the next acknowledgement.
    //= https://www.rfc-editor.org/rfc/rfc2018#section-4
    //# If the data receiver generates SACK options under any circumstance, it SHOULD generate them
    //# under all permitted circumstances.
    //= https://www.rfc-editor.org/rfc/rfc2018#section-4
    //# If the data receiver has not received a SACK-Permitted option for a given connection, it
    //# MUST NOT send SACK options on that connection.
    //= https://www.rfc-editor.org/rfc/rfc2018#section-4
    //# If sent at all, SACK options SHOULD be included in all ACKs which do not ACK the highest
    //# sequence number in the data receiver's queue.
    //= https://www.rfc-editor.org/rfc/rfc2018#section-4
    //# * The data receiver SHOULD include as many distinct SACK blocks as possible in the SACK
    //# option.
    //= https://www.rfc-editor.org/rfc/rfc2018#section-4
    //# * The SACK option SHOULD be filled out by repeating the most recently reported SACK blocks
    //# (based on first SACK blocks in previous SACK options) that are not subsets of a SACK block
    //# already included in the SACK option being constructed.
    //= https://www.rfc-editor.org/rfc/rfc2018#section-8
    //# * The first SACK block MUST reflect the newest segment.
    //= https://www.rfc-editor.org/rfc/rfc2883#section-3
    //# MUST specify the contiguous block of data containing the segment which triggered this ACK,
    //# unless that segment advanced the Acknowledgment Number field in the header."
    //= https://www.rfc-editor.org/rfc/rfc2883#section-3
    //# RFC 2018 further specifies that "if sent at all, SACK options SHOULD be included in all ACKs
    //# which do not ACK the highest sequence number in the data receiver's queue."
    pub fn sack_blocks(&mut self) -> SackBlocks {
        let mut blocks = SackBlocks::NONE;
        let room = OPTIONS_LEN_MAX.saturating_sub(usize::from(self.option_bytes()) + 4);
        let most = if self.hot.sack { room / 8 } else { 0 };
        if most == 0 {
            // Nothing waits to be told of.
            self.cold.received.tell(usize::MAX);
            return blocks;
        }
        // A FIN behind a gap is told of, too: with the data before it, or by itself.
        let fin = self.peer_fin().filter(|fin| *fin > self.hot.rcv_nxt);
        let block = |hot: &Hot, r: Range| SackBlock {
            left: hot.ack(r.start),
            right: hot.ack(r.end + u64::from(Some(r.end) == fin)),
        };
        //= https://www.rfc-editor.org/rfc/rfc2883#section-4
        //# A D-SACK block is only used to report a duplicate contiguous
        //# sequence of data received by the receiver in the most recent packet.
        if let Some(duplicate) = self.cold.take_duplicate() {
            blocks.push(block(self.hot, duplicate));
        }
        if self.cold.received.is_empty() && fin.is_none() {
            return blocks;
        }
        let mut reported: [Option<Range>; 4] = [None; 4];
        let mut count = 0;
        //= https://www.rfc-editor.org/rfc/rfc2018#section-4
        //# The first SACK block (i.e., the one immediately following the
        //# kind and length fields in the option) MUST specify the contiguous
        //# block of data containing the segment which triggered this ACK,
        let later = self.cold.received.tell(most.saturating_sub(blocks.len()));
        let received = &self.cold.received;
        for range in received.newest(later).chain(received.iter().take(4)) {
            if blocks.len() >= most || count >= reported.len() {
                break;
            }
            if reported.contains(&Some(range)) {
                continue;
            }
            reported[count] = Some(range);
            count += 1;
            blocks.push(block(self.hot, range));
        }
        if let Some(fin) = fin
            && blocks.len() < most
            && self.cold.received.iter().all(|range| range.end != fin)
        {
            blocks.push(block(self.hot, Range { start: fin, end: fin }));
        }
        blocks
    }
}
