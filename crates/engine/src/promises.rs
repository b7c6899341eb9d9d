//! The receive windows that a session's connections may have in total: as much as its pool can
//! hold.
//!
//! Only connections read from in the last one to two seconds count, so that idle ones do not keep
//! others from growing after a large transfer. Nothing is scanned, because the sum starts anew with
//! each epoch. The first window of each connection is not counted.

/// Length of an epoch.
const EPOCH_NS: u64 = 1_000_000_000;
/// Part of the rest that one connection may take.
const SHARE: u64 = 4;

/// The windows promised to a session's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    epoch: u64,
    /// By connections that were read from in this epoch, and in the previous one.
    active: u64,
    before: u64,
}

/// The window promised to one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    bytes: u32,
    /// The epoch in which it was last counted, plus one, wrapping.
    counted: u32,
}

/// The mark of a connection that was counted in an epoch; 0 means never.
fn mark(epoch: u64) -> u32 {
    (epoch as u32).wrapping_add(1)
}

impl Promises {
    /// The maximum window of a connection, if `budget` bytes are available for all.
    pub fn ceiling(&mut self, now_ns: u64, own: &mut Promise, budget: u64) -> u32 {
        let epoch = now_ns / EPOCH_NS;
        if epoch != self.epoch {
            self.before = if epoch == self.epoch + 1 { self.active } else { 0 };
            self.active = 0;
            self.epoch = epoch;
        }
        if own.counted != mark(epoch) {
            own.counted = mark(epoch);
            self.active += u64::from(own.bytes);
        }
        let promised = self.active.max(self.before);
        let left = budget.saturating_sub(promised);
        let most = u64::from(own.bytes) + left / SHARE;
        // Too much was promised while others were idle: halve it until it fits.
        let most = if promised > budget { most / 2 } else { most };
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// A connection's window is `bytes` now.
    pub fn note(&mut self, own: &mut Promise, bytes: u32) {
        if own.counted == mark(self.epoch) {
            self.active = (self.active + u64::from(bytes)).saturating_sub(u64::from(own.bytes));
        }
        own.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_together_never_promise_more_than_there_is() {
        let (mut promises, budget) = (Promises::default(), 1 << 20);
        let mut all = [Promise::default(); 50];
        for round in 0..20 {
            for own in &mut all {
                let ceiling = promises.ceiling(round, own, budget);
                promises.note(own, ceiling);
            }
            let sum: u64 = all.iter().map(|own| u64::from(own.bytes)).sum();
            assert!(sum <= budget, "{sum}");
        }
        // The first has most, a quarter in the first round, and nobody goes without for ever.
        assert!(all[0].bytes >= 1 << 18);
    }

    #[test]
    fn what_is_idle_does_not_count_and_gives_way_when_it_awakes() {
        let (mut promises, budget) = (Promises::default(), 1 << 20);
        let (mut idle, mut active) = (Promise::default(), Promise::default());
        promises.ceiling(0, &mut idle, budget);
        promises.note(&mut idle, 1 << 20);
        assert_eq!(promises.ceiling(EPOCH_NS, &mut active, budget), 0);
        let later = 2 * EPOCH_NS;
        assert_eq!(promises.ceiling(later, &mut active, budget), 1 << 18);
        promises.note(&mut active, 1 << 18);
        assert_eq!(promises.ceiling(later, &mut idle, budget), 1 << 19);
    }
}
