//! CPU time of a worker: its own share, whether other tasks share the CPU, and how long idle
//! polling is worthwhile.

/// How long a CPU counts as shared after another task was seen on it.
const SHARED_FOR_NS: u64 = 10_000_000;

/// Time taken by others between two readings that shows that the CPU is shared: more than an
/// interrupt takes.
const OTHERS_NS_LEAST: u64 = 5_000;

/// Maximum length of an idle turn; the rest was spent off the CPU.
const IDLE_TURN_NS_MAX: u64 = 3_000;

/// The CPU time of a worker since the last reading, by use, in nanoseconds.
#[derive(Debug, Default)]
pub struct Occupancy {
    looked_at: Option<(u64, u64)>,
    slept: u64,
    idled: u64,
    shared_until: u64,
}

impl Occupancy {
    /// An idle turn took `ns`.
    pub fn idled(&mut self, ns: u64) {
        self.idled += ns.min(IDLE_TURN_NS_MAX);
    }

    /// The worker slept for `ns`.
    pub fn slept(&mut self, ns: u64) {
        self.slept += ns;
    }

    /// Reads the clock and the thread's own processor time; returns the time spent working since
    /// the last reading, all overhead included, and the time spent idly polling.
    pub fn look(&mut self, now: u64, own: u64) -> (u64, u64) {
        let Some((wall_before, own_before)) = self.looked_at.replace((now, own)) else {
            return (0, 0);
        };
        let own = own.saturating_sub(own_before);
        let awake = now.saturating_sub(wall_before).saturating_sub(std::mem::take(&mut self.slept));
        if awake.saturating_sub(own) > OTHERS_NS_LEAST {
            self.shared_until = now + SHARED_FOR_NS;
        }
        let idled = std::mem::take(&mut self.idled).min(own);
        (own - idled, idled)
    }

    /// Whether other tasks have recently run on this CPU, which idle polling would delay.
    pub fn is_shared(&self, now: u64) -> bool {
        now < self.shared_until
    }
}

/// How long an adaptive worker polls idly before it sleeps. A sleep shorter than the longest
/// interval was not worth its wakeup, which costs both sides more than continued polling: the next
/// interval is longer. After long sleeps the interval becomes short.
#[derive(Debug)]
pub struct Patience {
    spell_ns: u64,
}

/// Minimum and maximum interval of idle polling.
const SPELL_NS: [u64; 2] = [20_000, 1_000_000];

impl Patience {
    /// Starts with the minimum.
    pub fn new() -> Self {
        Self { spell_ns: SPELL_NS[0] }
    }

    /// Whether idle polling for `ns` is enough.
    pub fn is_over(&self, ns: u64) -> bool {
        ns >= self.spell_ns
    }

    /// A sleep lasted `ns`.
    pub fn slept(&mut self, ns: u64) {
        let [least, most] = SPELL_NS;
        let next = if ns < most { self.spell_ns * 2 } else { self.spell_ns / 2 };
        self.spell_ns = next.clamp(least, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_the_own_time_without_idle_turns_however_long_others_held_the_cpu_in_them() {
        let mut occupancy = Occupancy::default();
        assert_eq!(occupancy.look(1_000_000, 500), (0, 0));
        occupancy.idled(1_000);
        occupancy.idled(400_000);
        let idle = 1_000 + IDLE_TURN_NS_MAX;
        assert_eq!(occupancy.look(2_000_000, 500 + 20_000), (20_000 - idle, idle));
        assert_eq!(occupancy.look(2_010_000, 500 + 30_000), (10_000, 0));
    }

    #[test]
    fn a_cpu_is_shared_for_a_while_after_time_went_to_others_and_sleep_is_nobodys() {
        let mut occupancy = Occupancy::default();
        occupancy.look(1_000_000, 0);
        occupancy.slept(950_000);
        occupancy.look(2_000_000, 50_000);
        assert!(!occupancy.is_shared(2_000_000), "asleep, not robbed");
        occupancy.look(2_050_000, 60_000);
        assert!(occupancy.is_shared(2_050_000));
        assert!(!occupancy.is_shared(2_050_000 + SHARED_FOR_NS));
    }

    #[test]
    fn short_sleeps_make_patient_and_long_ones_impatient() {
        let mut patience = Patience::new();
        assert!(patience.is_over(SPELL_NS[0]));
        for _ in 0..10 {
            patience.slept(30_000);
        }
        assert!(!patience.is_over(SPELL_NS[1] - 1) && patience.is_over(SPELL_NS[1]));
        for _ in 0..10 {
            patience.slept(5_000_000);
        }
        assert!(patience.is_over(SPELL_NS[0]));
    }
}
