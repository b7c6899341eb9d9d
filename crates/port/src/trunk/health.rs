//! Use of a trunk's links by their health.

/// How long a link must be healthy before it is used again.
const HEALTH_NS: u64 = 1_000_000_000;
/// The maximum for one that has left often.
const HEALTH_MAX_NS: u64 = 30_000_000_000;
/// A departure within this time of the last one counts as flapping.
const FLAP_NS: u64 = 60_000_000_000;

/// Whether a link is in use. It leaves at once when it fails, and returns after a healthy second,
/// doubled up to 30 s by each departure within a minute of the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Since when it has been healthy; `None` while it is down.
    well_since: Option<u64>,
    is_used: bool,
    /// How long it must be healthy to be used again.
    health_ns: u64,
    left_at: Option<u64>,
}

impl Health {
    /// A link that is used until it fails.
    pub const NEW: Self =
        Self { well_since: Some(0), is_used: true, health_ns: HEALTH_NS, left_at: None };

    /// Whether frames may be sent over it.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// It has failed now; returns whether it was in use.
    pub fn fail(&mut self, now: u64) -> bool {
        self.well_since = None;
        if !std::mem::take(&mut self.is_used) {
            return false;
        }
        let is_flapping = self.left_at.is_some_and(|before| now.saturating_sub(before) <= FLAP_NS);
        self.health_ns =
            if is_flapping { (self.health_ns * 2).min(HEALTH_MAX_NS) } else { HEALTH_NS };
        self.left_at = Some(now);
        true
    }

    /// It is healthy now; returns whether it has come back into use.
    pub fn note_well(&mut self, now: u64) -> bool {
        let since = *self.well_since.get_or_insert(now);
        if self.is_used || now.saturating_sub(since) < self.health_ns {
            return false;
        }
        self.is_used = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Seconds from a failure until the link is used again, when it is well at once.
    fn back_after(health: &mut Health, now: &mut u64) -> u64 {
        assert!(health.fail(*now) && !health.is_used());
        let failed = *now;
        while !health.note_well(*now) {
            *now += SECOND / 10;
        }
        (*now - failed) / SECOND
    }

    #[test]
    fn a_link_that_flaps_waits_longer_each_time() {
        let (mut health, mut now) = (Health::NEW, 5 * SECOND);
        let waits: Vec<_> = (0..7).map(|_| back_after(&mut health, &mut now)).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        now += 61 * SECOND;
        assert_eq!(back_after(&mut health, &mut now), 1, "a minute without a departure");
    }

    #[test]
    fn a_failure_before_the_return_begins_the_second_anew_and_is_no_departure() {
        let mut health = Health::NEW;
        assert!(health.fail(0));
        assert!(!health.note_well(0));
        assert!(!health.fail(SECOND / 2));
        assert!(!health.note_well(SECOND / 2 + 1));
        assert!(!health.note_well(SECOND), "half a second");
        assert!(health.note_well(SECOND / 2 + 1 + SECOND));
    }
}
