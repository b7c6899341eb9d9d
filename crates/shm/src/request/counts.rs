//! What a connection's segments are counted as.

use super::pair;

/// Counts of a connection, for TCP_INFO and the curious; all go round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Segments received.
    pub received: u32,
    /// Of these, with data.
    pub received_data: u32,
    /// Segments sent, also again.
    pub sent: u32,
    /// Of these, with data.
    pub sent_data: u32,
    /// Segments that the peer reports to have got twice.
    pub duplicates: u32,
    /// Segments that came out of order.
    pub out_of_order: u32,
    /// Segments that arrived at the peer by acknowledgements that echo congestion.
    pub marked: u32,
    /// Timeouts.
    pub timeouts: u16,
    /// Rows of timeouts.
    pub timeout_series: u16,
    /// Time that rows of timeouts took, milliseconds.
    pub timeouts_ms: u32,
    /// Time in which what the program may write ahead was all under way, microseconds.
    pub buffer_limited_us: u64,
}

impl ConnectionCounts {
    pub(super) fn encode(&self) -> [u64; 7] {
        [
            pair(self.received, self.received_data),
            pair(self.sent, self.sent_data),
            pair(self.duplicates, self.out_of_order),
            u64::from(self.marked)
                | u64::from(self.timeouts) << 32
                | u64::from(self.timeout_series) << 48,
            u64::from(self.timeouts_ms),
            self.buffer_limited_us,
            0,
        ]
    }

    pub(super) fn decode(content: [u64; 7]) -> Self {
        let high = |word: u64| (word >> 32) as u32;
        Self {
            received: content[0] as u32,
            received_data: high(content[0]),
            sent: content[1] as u32,
            sent_data: high(content[1]),
            duplicates: content[2] as u32,
            out_of_order: high(content[2]),
            marked: content[3] as u32,
            timeouts: (content[3] >> 32) as u16,
            timeout_series: (content[3] >> 48) as u16,
            timeouts_ms: content[4] as u32,
            buffer_limited_us: content[5],
        }
    }
}
