//! Rate limits of what remote hosts can cause.

use std::hash::BuildHasher;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::api::Instant;
use crate::flow::{FlowTable, KeyedHash};

/// A token bucket: a bounded number of events per second, with a burst.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct TokenBucket {
    per_second: u32,
    burst: u32,
    /// Tokens left, in billionths.
    saved: u64,
    last: Instant,
}

const ONE: u64 = 1_000_000_000;

impl TokenBucket {
    pub(super) fn new(per_second: u32, burst: u32) -> Self {
        Self { per_second, burst, saved: u64::from(burst) * ONE, last: Instant(0) }
    }

    pub(super) fn take(&mut self, now: Instant) -> bool {
        let may = self.has(now);
        self.spend(u64::from(may));
        may
    }

    /// Whether there is a token.
    fn has(&mut self, now: Instant) -> bool {
        let passed = now.0.saturating_sub(self.last.0);
        self.last = Instant(self.last.0.max(now.0));
        let earned = passed.saturating_mul(u64::from(self.per_second));
        self.saved = self.saved.saturating_add(earned).min(u64::from(self.burst) * ONE);
        self.saved >= ONE
    }

    fn spend(&mut self, count: u64) {
        self.saved = self.saved.saturating_sub(count * ONE);
    }
}

/// ICMP errors of all in a second and at once (Linux's icmp_msgs_per_sec and icmp_msgs_burst).
const ALL: (u32, u32) = (1000, 50);
/// To one address of IPv4 (icmp_ratelimit).
const OF_V4: (u32, u32) = (1, 6);
/// To one of IPv6 (net.ipv6.icmp.ratelimit).
const OF_V6: (u32, u32) = (10, 6);
/// Addresses that are told apart; the one that was told first is forgotten beyond them.
const TARGETS: u32 = 1024;

/// How many ICMP errors are sent, as in Linux 6.18: to each address by itself, and of all together
/// a number that is not the same from one second to the next. With a fixed one, whoever sends with
/// the source of another can count what is left for himself, and so learn which ports are open
/// (CVE-2020-25705).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct IcmpRateLimiter {
    all: TokenBucket,
    hash: KeyedHash,
    /// Numbers drawn.
    drawn: u64,
    targets: Vec<(IpAddr, TokenBucket)>,
    by_address: FlowTable<IpAddr>,
    /// The entry that the next new address replaces when all are taken.
    oldest: u32,
    evictions: u64,
}

impl IcmpRateLimiter {
    pub(super) fn new(hash: KeyedHash) -> Self {
        Self {
            all: TokenBucket::new(ALL.0, ALL.1),
            hash,
            drawn: 0,
            targets: Vec::with_capacity(TARGETS as usize),
            by_address: FlowTable::new(hash, TARGETS),
            oldest: 0,
            evictions: 0,
        }
    }

    /// Whether one may go to this address now.
    pub(super) fn take(&mut self, now: Instant, to: IpAddr) -> bool {
        if !self.all.has(now) || !self.target(to).is_some_and(|own| own.take(now)) {
            return false;
        }
        self.drawn = self.drawn.wrapping_add(1);
        self.all.spend(self.hash.hash_one(self.drawn) % 3);
        true
    }

    fn target(&mut self, to: IpAddr) -> Option<&mut TokenBucket> {
        let place = match self.by_address.find(&to) {
            Some(known) => known,
            None => {
                let (per_second, burst) = if to.is_ipv4() { OF_V4 } else { OF_V6 };
                let new = (to, TokenBucket::new(per_second, burst));
                let place = match self.targets.get_mut(self.oldest as usize) {
                    Some(held) if self.by_address.len() >= TARGETS as usize => {
                        self.by_address.remove(&held.0);
                        *held = new;
                        self.evictions += 1;
                        let place = self.oldest;
                        self.oldest = (place + 1) % TARGETS;
                        place
                    }
                    _ => {
                        self.targets.push(new);
                        self.targets.len() as u32 - 1
                    }
                };
                // There is room: an address has left where the table was full.
                let _ = self.by_address.insert(to, place);
                place
            }
        };
        self.targets.get_mut(place as usize).map(|(_, own)| own)
    }

    /// Addresses forgotten, whose buckets are full again.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn limiter() -> IcmpRateLimiter {
        IcmpRateLimiter::new(KeyedHash::new([3; 16]))
    }

    fn host(n: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + n).into())
    }

    #[test]
    fn an_address_gets_a_few_errors_at_once_and_then_one_a_second() {
        let mut all = limiter();
        let sent = |all: &mut IcmpRateLimiter, to, ms| {
            (0..20).filter(|_| all.take(Instant(ms * MS), to)).count()
        };
        assert_eq!(sent(&mut all, host(1), 0), 6);
        assert_eq!(sent(&mut all, host(2), 0), 6, "whatever others got");
        assert_eq!(sent(&mut all, host(1), 900), 0);
        assert_eq!(sent(&mut all, host(1), 1000), 1);
        let v6 = "fd00::1".parse().unwrap();
        assert_eq!(sent(&mut all, v6, 1000), 6);
        assert_eq!(sent(&mut all, v6, 1100), 1);
    }

    #[test]
    fn how_many_errors_there_are_in_all_cannot_be_foreseen() {
        let mut counts = Vec::new();
        for second in 0..20u32 {
            let mut all = limiter();
            all.drawn = u64::from(second) * 1000;
            counts.push((0..500).filter(|n| all.take(Instant(0), host(*n))).count());
        }
        assert!(counts.iter().all(|count| (25..=120).contains(count)), "{counts:?}");
        counts.sort_unstable();
        counts.dedup();
        assert!(counts.len() > 5, "{counts:?}");
    }

    #[test]
    fn an_address_that_is_forgotten_is_counted_and_no_other_is() {
        let mut all = limiter();
        for n in 0..TARGETS + 10 {
            // Slow enough for all together.
            all.take(Instant(u64::from(n) * 10 * MS), host(n));
        }
        assert_eq!((all.evictions(), all.by_address.len()), (10, TARGETS as usize));
        assert!(all.by_address.find(&host(9)).is_none());
        assert!(all.by_address.find(&host(10)).is_some());
    }
}
