//! Rate limit for log lines that clients can cause, so that they neither fill a log nor block the
//! control thread on a slow reader. Counters count all of them.

use std::time::{Duration, Instant};

/// Lines logged in each [`PERIOD`].
const PER_PERIOD: u32 = 16;
const PERIOD: Duration = Duration::from_secs(60);

/// Number of recent complaints.
#[derive(Debug, Default)]
pub struct Complaints {
    begun: Option<Instant>,
    said: u32,
}

impl Complaints {
    /// Logs that the client of process `pid` has done `what`, unless the limit is reached.
    pub fn say(&mut self, now: Instant, pid: i32, what: &str) {
        match self.count(now) {
            ..PER_PERIOD => tracing::warn!(pid, "control: {what}"),
            PER_PERIOD => tracing::warn!(
                pid,
                "control: {what}; further ones are only counted for a minute (outboard stats)"
            ),
            _ => {}
        }
    }

    /// The number of complaints in this period before this one.
    fn count(&mut self, now: Instant) -> u32 {
        if self.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= PERIOD) {
            (self.begun, self.said) = (Some(now), 0);
        }
        let before = self.said;
        self.said = before.saturating_add(1);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_does_wrong_all_the_time_does_not_fill_the_log() {
        let mut complaints = Complaints::default();
        let start = Instant::now();
        let told = |complaints: &mut Complaints, at| {
            (0..1000).filter(|_| complaints.count(at) <= PER_PERIOD).count()
        };
        assert_eq!(told(&mut complaints, start), PER_PERIOD as usize + 1);
        assert_eq!(told(&mut complaints, start + PERIOD / 2), 0);
        assert_eq!(told(&mut complaints, start + PERIOD), PER_PERIOD as usize + 1);
    }
}
