//! An event counter.

/// Successes and failures of the endpoints bound to it.
#[derive(Debug, Default)]
pub struct Counter {
    pub successes: u64,
    pub failures: u64,
    /// Both at the last check of a poll set.
    pub looked_at: (u64, u64),
    /// The endpoints bound to it.
    pub endpoints: Vec<usize>,
}

impl Counter {
    /// Counts an operation that ended.
    pub fn count(&mut self, failed: bool) {
        let which = if failed { &mut self.failures } else { &mut self.successes };
        *which = which.wrapping_add(1);
    }

    /// Whether it has changed since the last check.
    pub fn has_changed(&mut self) -> bool {
        let now = (self.successes, self.failures);
        std::mem::replace(&mut self.looked_at, now) != now
    }
}
