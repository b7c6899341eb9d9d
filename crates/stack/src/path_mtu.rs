//! Path MTUs that are smaller than the link's, by destination (RFC 1191, RFC 8201).
//!
//! A bounded cache: four places for each hash of a destination, the oldest of which makes room.
//! What it knows ends by itself after a while, so that a path that has become wider is found to be.

use std::hash::BuildHasher;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::api::Instant;
use crate::flow::KeyedHash;

/// How long a path MTU is believed, as Linux's `mtu_expires`.
//= https://www.rfc-editor.org/rfc/rfc1191#section-6.3
//# When a PMTU
//# value has not been decreased for a while (on the order of 10
//# minutes), the PMTU estimate should be set to the first-hop data-link
//# MTU
//= https://www.rfc-editor.org/rfc/rfc8201#section-3
//# Therefore, attempts to detect increases in a path's PMTU should be done infrequently.
//= https://www.rfc-editor.org/rfc/rfc8201#section-4
//# Nodes may detect increases in PMTU, but because doing so requires sending packets larger than
//# the current estimated PMTU, and because the likelihood is that the PMTU will not have increased,
//# this must be done at infrequent intervals.
//= https://www.rfc-editor.org/rfc/rfc8201#section-4
//# An attempt to detect an increase (by sending a packet larger than the current estimate) must not
//# be done less than 5 minutes after a Packet Too Big message has been received for the given path.
//= https://www.rfc-editor.org/rfc/rfc8201#section-4
//# The recommended setting for this timer is twice its minimum value (10 minutes).
//= https://www.rfc-editor.org/rfc/rfc8201#section-5.3
//# No such mechanism exists for realizing that a stale PMTU value is too small, so an
//# implementation should "age" cached values.
//= https://www.rfc-editor.org/rfc/rfc8201#section-5.3
//# When a PMTU value has not been decreased for a while (on the order of 10 minutes), it should
//# probe to find if a larger PMTU is supported.
//= https://www.rfc-editor.org/rfc/rfc1191#section-3
//# Hosts MAY detect increases in Path MTU, but because doing so requires sending datagrams larger
//# than the current estimated PMTU, and because the likelihood is that the PMTU will not have
//# increased, this MUST be done at infrequent intervals.
//= https://www.rfc-editor.org/rfc/rfc1191#section-3
//# An attempt to detect an increase (by sending a datagram larger than the current estimate) MUST
//# NOT be done less than 5 minutes after a Datagram Too Big message has been received for the given
//# destination, or less than 1 minute after a previous, successful attempted increase.
pub const LIFE_NS: u64 = 600 * 1_000_000_000;
/// Below this a path MTU over IPv4 is not believed (Linux's `min_pmtu`): routers cut packets of this
/// size then.
const MTU_MIN_V4: u16 = 552;
/// What every link under IPv6 carries.
//= https://www.rfc-editor.org/rfc/rfc8200#section-5
//# IPv6 requires that every link in the Internet have an MTU of 1280
//# octets or greater.
const MTU_MIN_V6: u16 = 1280;
/// Places of one hash.
const WAYS: usize = 4;

/// MTUs that links have had, for routers that do not say theirs.
//= https://www.rfc-editor.org/rfc/rfc1191#section-7.1
const PLATEAUS: [u16; 7] = [32000, 17914, 8166, 4352, 2002, 1492, 576];

/// What a router means that says `told`; 0 where it does not say and no link takes less.
fn meant(current: u16, told: u16) -> u16 {
    match told {
        0 => PLATEAUS.into_iter().find(|&plateau| plateau < current).unwrap_or(0),
        told => told,
    }
}

/// The path MTU after a router has said that a packet was too big for its next link, which takes
/// `told` bytes (0: it does not say); `None` when that makes nothing smaller.
//= https://www.rfc-editor.org/rfc/rfc8201#section-4
//# When a node receives a Packet Too Big message, it must reduce its estimate of the PMTU for the
//# relevant path, based on the value of the MTU field in the message.
//= https://www.rfc-editor.org/rfc/rfc8201#section-4
//# A node must not increase its estimate of the Path MTU in response to the contents of a Packet
//# Too Big message.
//= https://www.rfc-editor.org/rfc/rfc8201#section-6
//# In response, the victim node should never set its PMTU estimate below the IPv6 minimum link MTU.
//= https://www.rfc-editor.org/rfc/rfc8201#section-6
//# A node, however, must not raise its estimate of the PMTU based on a Packet Too Big message, so
//# it should not be vulnerable to this attack.
//= https://www.rfc-editor.org/rfc/rfc1191#section-3
//# When a host receives a Datagram Too Big message, it MUST reduce its estimate of the PMTU for the
//# relevant path, based on the value of the Next-Hop MTU field in the message (see section 4).
//= https://www.rfc-editor.org/rfc/rfc1191#section-3
//# Hosts MUST be able to deal with Datagram Too Big messages that do not include the next-hop MTU,
//# since it is not feasible to upgrade all the routers in the Internet in any finite time.
//= https://www.rfc-editor.org/rfc/rfc1191#section-3
//# A host MUST never reduce its estimate of the Path MTU below 68 octets.
//= https://www.rfc-editor.org/rfc/rfc1191#section-3
//# A host MUST not increase its estimate of the Path MTU in response to the contents of a Datagram
//# Too Big message.
pub fn reduced(current: u16, told: u16, remote: IpAddr) -> Option<u16> {
    let told = meant(current, told);
    let least = if remote.is_ipv4() { MTU_MIN_V4 } else { MTU_MIN_V6 };
    //= https://www.rfc-editor.org/rfc/rfc8899#section-3
    //# A PTB message MUST NOT be used to increase the PLPMTU [RFC8201] but could trigger a probe to
    //# test for a larger PLPMTU.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-3
    //# A PL_PTB_SIZE that is greater than that currently probed SHOULD be ignored.
    Some(told.max(least)).filter(|&mtu| mtu < current)
}

//= https://www.rfc-editor.org/rfc/rfc8201#section-5.2
//# Ideally, a PMTU value should be associated with a specific path traversed by packets exchanged
//# between the source and destination nodes.
//= https://www.rfc-editor.org/rfc/rfc8201#section-5.2
//# Rather, a node must associate a PMTU value with some local representation of a path.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Entry {
    remote: IpAddr,
    mtu: u16,
    /// The path takes even less, and its routers may cut.
    is_cut: bool,
    until: Instant,
}

/// The cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathMtus {
    hash: KeyedHash,
    entries: Vec<Option<Entry>>,
    /// Until then an entry may be valid.
    used_until: Instant,
    evictions: u64,
}

impl PathMtus {
    /// Room for about `limit` destinations.
    pub fn new(hash: KeyedHash, limit: u32) -> Self {
        let count = (limit as usize).div_ceil(WAYS).max(1) * WAYS;
        Self { hash, entries: vec![None; count], used_until: Instant(0), evictions: 0 }
    }

    fn places(&self, remote: IpAddr) -> std::ops::Range<usize> {
        let first = self.hash.hash_one(remote) as usize % (self.entries.len() / WAYS) * WAYS;
        first..first + WAYS
    }

    /// The MTU of the path to `remote` over a link of `link` bytes. Cheap while nothing is known.
    pub fn towards(&self, now: Instant, remote: IpAddr, link: u16) -> u16 {
        self.known(now, remote).map_or(link, |entry| entry.mtu.min(link))
    }

    /// Whether routers are to cut what is too long for the path to `remote`: it takes less than is
    /// believed (as Linux). Cheap while nothing is known.
    pub fn is_cut(&self, now: Instant, remote: IpAddr) -> bool {
        self.known(now, remote).is_some_and(|entry| entry.is_cut)
    }

    fn known(&self, now: Instant, remote: IpAddr) -> Option<&Entry> {
        if now >= self.used_until {
            return None;
        }
        let mut known = self.entries.get(self.places(remote)).unwrap_or_default().iter().flatten();
        known.find(|entry| entry.remote == remote && now < entry.until)
    }

    /// A router has said that a packet to `remote` was too big (see [`reduced`]). The caller has
    /// checked that we sent such a packet. The path MTU from now on, where it is news.
    pub fn learn(&mut self, now: Instant, remote: IpAddr, told: u16, link: u16) -> Option<u16> {
        let current = self.towards(now, remote, link);
        let less = reduced(current, told, remote);
        let meant = meant(current, told);
        // Also where nothing is made smaller, since less than that is not believed.
        let is_cut = remote.is_ipv4() && meant < MTU_MIN_V4 && meant <= current;
        if less.is_none() && !is_cut {
            return None;
        }
        let until = Instant(now.0.saturating_add(LIFE_NS));
        let places = self.places(remote);
        let entries = self.entries.get_mut(places)?;
        // The same destination's, else a free or the oldest one.
        let age = |entry: &Option<Entry>| match entry {
            Some(entry) if entry.remote == remote => (0, Instant(0)),
            Some(entry) if now < entry.until => (2, entry.until),
            _ => (1, Instant(0)),
        };
        let place = entries.iter_mut().min_by_key(|entry| age(entry))?;
        self.evictions += u64::from(age(place).0 == 2);
        *place = Some(Entry { remote, mtu: less.unwrap_or(current), is_cut, until });
        self.used_until = until;
        less
    }

    /// Entries that had to make room before their time.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn remote(number: u16) -> IpAddr {
        let [high, low] = number.to_be_bytes();
        IpAddr::from([192, 0, high, low])
    }

    fn cache() -> PathMtus {
        PathMtus::new(KeyedHash::new([7; 16]), 8)
    }

    //= https://www.rfc-editor.org/rfc/rfc8201#section-3
    //= type=test
    //# Therefore, attempts to detect increases in a path's PMTU should be done infrequently.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-4
    //= type=test
    //# Nodes may detect increases in PMTU, but because doing so requires sending packets larger
    //# than the current estimated PMTU, and because the likelihood is that the PMTU will not have
    //# increased, this must be done at infrequent intervals.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-4
    //= type=test
    //# An attempt to detect an increase (by sending a packet larger than the current estimate) must
    //# not be done less than 5 minutes after a Packet Too Big message has been received for the
    //# given path.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-4
    //= type=test
    //# The recommended setting for this timer is twice its minimum value (10 minutes).
    //= https://www.rfc-editor.org/rfc/rfc8201#section-5.3
    //= type=test
    //# No such mechanism exists for realizing that a stale PMTU value is too small, so an
    //# implementation should "age" cached values.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-5.3
    //= type=test
    //# When a PMTU value has not been decreased for a while (on the order of 10 minutes), it should
    //# probe to find if a larger PMTU is supported.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-5.2
    //= type=test
    //# Rather, a node must associate a PMTU value with some local representation of a path.
    //= https://www.rfc-editor.org/rfc/rfc1191#section-3
    //= type=test
    //# Hosts MAY detect increases in Path MTU, but because doing so requires sending datagrams
    //# larger than the current estimated PMTU, and because the likelihood is that the PMTU will not
    //# have increased, this MUST be done at infrequent intervals.
    //= https://www.rfc-editor.org/rfc/rfc1191#section-3
    //= type=test
    //# An attempt to detect an increase (by sending a datagram larger than the current estimate)
    //# MUST NOT be done less than 5 minutes after a Datagram Too Big message has been received for
    //# the given destination, or less than 1 minute after a previous, successful attempted
    //# increase.
    #[test]
    fn a_path_mtu_holds_for_its_destination_and_ends_after_ten_minutes() {
        let mut cache = cache();
        let now = Instant(SECOND);
        assert_eq!(cache.learn(now, remote(1), 1400, 1500), Some(1400));
        assert_eq!(cache.towards(now, remote(1), 1500), 1400);
        assert_eq!(cache.towards(now, remote(1), 1300), 1300);
        assert_eq!(cache.towards(now, remote(2), 1500), 1500);
        assert_eq!(cache.towards(Instant(SECOND + LIFE_NS - 1), remote(1), 1500), 1400);
        assert_eq!(cache.towards(Instant(SECOND + LIFE_NS), remote(1), 1500), 1500);
    }

    //= https://www.rfc-editor.org/rfc/rfc8201#section-4
    //= type=test
    //# A node must not increase its estimate of the Path MTU in response to the contents of a
    //# Packet Too Big message.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-6
    //= type=test
    //# A node, however, must not raise its estimate of the PMTU based on a Packet Too Big message,
    //# so it should not be vulnerable to this attack.
    //= https://www.rfc-editor.org/rfc/rfc1191#section-3
    //= type=test
    //# A host MUST not increase its estimate of the Path MTU in response to the contents of a
    //# Datagram Too Big message.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-3
    //= type=test
    //# A PTB message MUST NOT be used to increase the PLPMTU [RFC8201] but could trigger a probe to
    //# test for a larger PLPMTU.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-3
    //= type=test
    //# A PL_PTB_SIZE that is greater than that currently probed SHOULD be ignored.
    #[test]
    fn nothing_makes_a_path_wider_before_its_time() {
        let mut cache = cache();
        assert_eq!(cache.learn(Instant(1), remote(1), 1000, 1500), Some(1000));
        assert_eq!(cache.learn(Instant(2), remote(1), 1400, 1500), None);
        assert_eq!(cache.learn(Instant(2), remote(1), 1500, 1500), None);
        assert_eq!(cache.towards(Instant(3), remote(1), 1500), 1000);
    }

    //= https://www.rfc-editor.org/rfc/rfc8201#section-4
    //= type=test
    //# A node must not reduce its estimate of the Path MTU below the IPv6 minimum link MTU on
    //# receipt of a Packet Too Big message.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-6
    //= type=test
    //# In response, the victim node should never set its PMTU estimate below the IPv6 minimum link
    //# MTU.
    //= https://www.rfc-editor.org/rfc/rfc1191#section-3
    //= type=test
    //# A host MUST never reduce its estimate of the Path MTU below 68 octets.
    #[test]
    fn no_path_is_believed_narrower_than_its_family_allows() {
        assert_eq!(reduced(1500, 68, remote(1)), Some(552));
        assert_eq!(reduced(552, 68, remote(1)), None);
        let v6 = "2001:db8::1".parse().unwrap();
        assert_eq!(reduced(1500, 68, v6), Some(1280));
        assert_eq!(reduced(1280, 1000, v6), None);
    }

    //= https://www.rfc-editor.org/rfc/rfc1191#section-3
    //= type=test
    //# Hosts MUST be able to deal with Datagram Too Big messages that do not include the next-hop
    //# MTU, since it is not feasible to upgrade all the routers in the Internet in any finite time.
    #[test]
    fn a_router_that_does_not_say_is_met_a_plateau_lower() {
        assert_eq!(reduced(1500, 0, remote(1)), Some(1492));
        assert_eq!(reduced(1492, 0, remote(1)), Some(576));
        assert_eq!(reduced(576, 0, remote(1)), Some(552));
    }

    #[test]
    fn where_a_path_takes_less_than_is_believed_routers_may_cut() {
        let mut cache = cache();
        let now = Instant(SECOND);
        cache.learn(now, remote(1), 296, 1500);
        cache.learn(now, remote(2), 552, 1500);
        cache.learn(now, remote(3), 0, 1500);
        let cut = |number| cache.is_cut(now, remote(number));
        assert_eq!([1, 2, 3, 4].map(cut), [true, false, false, false]);
        // Also where no less is believed already, or no link takes less than it does.
        let mut cache = self::cache();
        assert_eq!(cache.learn(now, remote(1), 296, 552), None);
        assert_eq!(cache.learn(now, remote(2), 552, 1500), Some(552));
        assert_eq!(cache.learn(now, remote(2), 296, 1500), None);
        assert_eq!(cache.learn(now, remote(3), 0, 576), Some(552));
        assert_eq!(cache.learn(now, remote(4), 500, 400), None);
        let cut = |number| cache.is_cut(now, remote(number));
        assert_eq!([1, 2, 3, 4].map(cut), [true, true, true, false]);
        assert_eq!([1, 2, 3].map(|number| cache.towards(now, remote(number), 552)), [552; 3]);
        let v6 = "2001:db8::1".parse().unwrap();
        let mut cache = self::cache();
        cache.learn(now, v6, 296, 1500);
        assert!(!cache.is_cut(now, v6));
    }

    #[test]
    fn a_full_cache_forgets_the_oldest_and_counts_it() {
        let mut cache = cache();
        for number in 0..100 {
            let now = Instant(SECOND + u64::from(number));
            assert_eq!(cache.learn(now, remote(number), 1400, 1500), Some(1400));
            assert_eq!(cache.towards(now, remote(number), 1500), 1400);
        }
        assert_eq!(cache.evictions(), 92);
        assert_eq!(cache.towards(Instant(2 * SECOND), remote(0), 1500), 1500);
    }
}
