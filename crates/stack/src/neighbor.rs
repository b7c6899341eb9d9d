//! Who has which address on the link: the neighbour table behind ARP (RFC 826; RFC 1122, section
//! 2.3.2 on ageing and floods) and behind neighbour discovery (RFC 4861, section 7.3).
//!
//! An entry is made only when we ask, or when somebody asks for us; it is changed by any ARP that
//! speaks for its address. Questions go out once a second and three times, then the address counts
//! as unreachable for a second. An entry being asked for by a program is never pushed out, so that a
//! full table asks no more often, and those who find no room wait until one of its answers has come or
//! failed; nor is one that is known and in use pushed out while there are such questions, so that a program
//! that asks for many silent addresses costs others no neighbour. What answers to strangers ask for
//! pushes out nothing that is in use, and gives way to what programs ask for (RFC 6583). An entry in use
//! is confirmed every minute by asking its owner; one not in use is forgotten then.
//!
//! Of IPv6, an entry is confirmed after 30 seconds (RFC 4861: REACHABLE), and questions are a second
//! apart, unless a router says otherwise. One that nobody vouched for (STALE) is confirmed five seconds
//! after it was made, or forgotten if it is not in use then.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.3
//# If address resolution fails, the entry SHOULD be deleted, so that subsequent traffic to that
//# neighbor invokes the next-hop determination procedure again.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.3
//# If no response is received after waiting RetransTimer milliseconds after sending the
//# MAX_UNICAST_SOLICIT solicitations, retransmissions cease and the entry SHOULD be deleted.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use wire::MacAddr;

use crate::api::{Instant, InterfaceIndex};
use crate::flow::{FlowTable, KeyedHash};

const SECOND: u64 = 1_000_000_000;
/// Between questions; never more often than RFC 1122 allows (one a second).
//= https://www.rfc-editor.org/rfc/rfc1122#section-2.3.2.1
//# A mechanism to prevent ARP flooding (repeatedly sending an ARP Request for the same IP address,
//# at a high rate) MUST be included.
const RETRY_NS: u64 = SECOND;
const TRIES: u8 = 3;
const FAILED_NS: u64 = SECOND;
const CONFIRM_NS: u64 = 60 * SECOND;
/// What holds of IPv6 where no router has said otherwise: REACHABLE_TIME and RETRANS_TIMER of RFC
/// 4861, section 10.
const TIMES: NeighborTimers = NeighborTimers { reachable_ns: 30 * SECOND, retransmit_ns: RETRY_NS };
/// DELAY_FIRST_PROBE_TIME.
const DELAY_NS: u64 = 5 * SECOND;
/// Entries looked at to find one that may go.
const EVICTION_PROBES: usize = 8;

type Key = (InterfaceIndex, IpAddr);

/// How long a neighbour of IPv6 counts as reachable, and the time between questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighborTimers {
    /// ReachableTime.
    pub reachable_ns: u64,
    /// RetransTimer.
    pub retransmit_ns: u64,
}

/// The table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Neighbors {
    slots: Vec<Option<Neighbor>>,
    free: Vec<u32>,
    by_key: FlowTable<Key>,
    /// The slot found last: mostly the next one too (a gateway, or the one busy peer).
    last: u32,
    hand: usize,
    generation: u64,
    /// Somebody found no room since the generation last changed, and waits for that.
    is_short: bool,
    evictions: u64,
    /// By interface; short where none has said anything of IPv6.
    times: Vec<NeighborTimers>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Neighbor {
    key: Key,
    state: State,
    /// Of one that is being asked for: by a program, not for the sake of a stranger alone.
    is_used: bool,
}

/// On whose behalf a packet goes to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A local program.
    Local,
    /// A remote host that gets an answer. Its address may be forged.
    Remote,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    /// Solicitations sent (INCOMPLETE).
    Incomplete(u8),
    /// Its link address (REACHABLE, STALE or DELAY).
    Known(MacAddr),
    /// Its link address, and the solicitations sent to confirm it (PROBE).
    Probe(MacAddr, u8),
    /// It did not answer.
    Failed,
}

impl State {
    /// Whether somebody may wait for the address.
    fn is_awaited(self) -> bool {
        matches!(self, Self::Incomplete(_) | Self::Failed)
    }
}

/// What the table knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Send there.
    Known(MacAddr),
    /// It is being asked.
    Wait,
    /// There is no room to ask yet.
    Full,
    /// It is new: send the first question, and set the timer of the slot.
    Ask(u32, Instant),
    /// It does not answer.
    Failed,
}

/// What came of an advertisement of a neighbour that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// The slot whose timer to set, when the entry is other than before.
    pub learnt: Option<(u32, Instant)>,
    /// What it says holds, also of who is a router.
    pub is_believed: bool,
}

/// What to do when an entry's time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Ask (the known owner, or everybody) and set the timer again.
    Ask(InterfaceIndex, IpAddr, Option<MacAddr>, Instant),
    /// It does not answer; set the timer again, unless it is forgotten.
    Failed(InterfaceIndex, IpAddr, Option<Instant>),
    /// Forgotten.
    Gone,
}

/// An address of a neighbour with its link address.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// On which interface.
    pub interface: InterfaceIndex,
    /// Its IP address.
    pub address: IpAddr,
    /// Its link address.
    pub mac: MacAddr,
}

/// What a neighbour advertisement says (RFC 4861, section 4.4).
#[derive(Clone, Copy, Debug)]
pub struct Advertisement {
    /// The link address, if it names one.
    pub mac: Option<MacAddr>,
    /// The Solicited flag.
    pub solicited: bool,
    /// The Override flag.
    pub overrides: bool,
}

impl Neighbors {
    /// Room for `count` neighbours.
    pub fn new(hash: KeyedHash, count: u32) -> Self {
        Self {
            slots: vec![None; count as usize],
            free: (0..count).rev().collect(),
            by_key: FlowTable::new(hash, count),
            last: 0,
            hand: 0,
            generation: 0,
            is_short: false,
            evictions: 0,
            times: Vec::new(),
        }
    }

    /// From now on these hold on an interface.
    pub fn set_times(&mut self, interface: InterfaceIndex, times: NeighborTimers) {
        let place = usize::from(interface.0);
        if self.times.len() <= place {
            self.times.resize(place + 1, TIMES);
        }
        self.times[place] = times;
    }

    fn times(&self, interface: InterfaceIndex) -> NeighborTimers {
        self.times.get(usize::from(interface.0)).copied().unwrap_or(TIMES)
    }

    /// When a question about an address is repeated.
    fn again(&self, now: Instant, (interface, address): Key) -> Instant {
        let pause = match address {
            IpAddr::V4(_) => RETRY_NS,
            IpAddr::V6(_) => self.times(interface).retransmit_ns,
        };
        Instant(now.0.saturating_add(pause))
    }

    /// Changes whenever an address that was asked for becomes known or is given up. It wakes all that wait,
    /// so that others' changes of what is known must not move it: anybody on the link can make those.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn wake(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.is_short = false;
    }

    /// Entries forgotten for lack of room.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Looks an address up in order to send to it.
    pub fn resolve(
        &mut self,
        now: Instant,
        interface: InterfaceIndex,
        to: IpAddr,
        requester: Requester,
    ) -> Resolution {
        let is_ours = requester == Requester::Local;
        let key = (interface, to);
        let is_last = |n: &&Neighbor| n.key == key;
        let last = self.slots.get(self.last as usize).and_then(Option::as_ref).filter(is_last);
        let found = if last.is_some() { Some(self.last) } else { self.by_key.find(&key) };
        if let Some(slot) = found {
            self.last = slot;
            let Some(entry) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else {
                return Resolution::Failed;
            };
            // Who is known exists, whoever wants to answer.
            entry.is_used |=
                is_ours || !matches!(entry.state, State::Incomplete(_) | State::Failed);
            return match entry.state {
                State::Known(mac) | State::Probe(mac, _) => Resolution::Known(mac),
                State::Incomplete(_) => Resolution::Wait,
                State::Failed => Resolution::Failed,
            };
        }
        match self.insert(key, State::Incomplete(1), is_ours) {
            //= https://www.rfc-editor.org/rfc/rfc1122#section-2.4
            //# The link layer MUST NOT report a Destination Unreachable error to IP solely because
            //# there is no ARP cache entry for a destination.
            Some(slot) => Resolution::Ask(slot, self.again(now, key)),
            // Within three seconds one of those that are being asked is known or has failed, and
            // the generation changes.
            None if self.slots.iter().take(EVICTION_PROBES).any(Option::is_some) => {
                self.is_short = true;
                Resolution::Full
            }
            None => Resolution::Failed,
        }
    }

    /// A neighbour has told its link address. `asked_for_us`: in a question about our address, so
    /// that we will want to answer. Gives the slot whose timer to set, when the entry is new or
    /// has changed, or `None` when nothing was learnt.
    pub fn learn(
        &mut self,
        now: Instant,
        binding: Binding,
        asked_for_us: bool,
    ) -> Option<(u32, Instant)> {
        let Binding { interface, address: from, mac } = binding;
        let (slot, is_awaited) = match self.by_key.find(&(interface, from)) {
            Some(slot) => {
                let entry = self.slots.get_mut(slot as usize).and_then(Option::as_mut)?;
                let was = std::mem::replace(&mut entry.state, State::Known(mac));
                if was == State::Known(mac) {
                    return None;
                }
                (slot, was.is_awaited())
            }
            None if asked_for_us => {
                (self.insert((interface, from), State::Known(mac), false)?, self.is_short)
            }
            None => return None,
        };
        if is_awaited {
            self.wake();
        }
        Some((slot, Instant(now.0.saturating_add(CONFIRM_NS))))
    }

    /// A message of neighbour discovery names its sender's link address, which nobody has
    /// confirmed. `makes`: also when it is not known yet. As [`learn`](Self::learn).
    //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
    //# If a Neighbor Cache entry is created for the router, its reachability state MUST be set to
    //# STALE as specified in Section 7.3.3.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
    //# If a cache entry already exists and is updated with a different link-layer address, the
    //# reachability state MUST also be set to STALE.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.3
    //# If the Source Address is not the unspecified address and, on link layers that have
    //# addresses, the solicitation includes a Source Link-Layer Address option, then the recipient
    //# SHOULD create or update the Neighbor Cache entry for the IP Source Address of the
    //# solicitation.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.3
    //# If an entry does not already exist, the node SHOULD create a new one and set its
    //# reachability state to STALE as specified in Section 7.3.3.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.3
    //# If an entry already exists, and the cached link-layer address differs from the one in the
    //# received Source Link-Layer option, the cached address should be replaced by the received
    //# address, and the entry's reachability state MUST be set to STALE.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.3
    //# In addition, should a cached link-layer address be modified due to receiving one of the
    //# above messages, the state SHOULD also be set to STALE to provide prompt verification that
    //# the path to the new link-layer address is working.
    pub fn hint(&mut self, now: Instant, binding: Binding, makes: bool) -> Option<(u32, Instant)> {
        let Binding { interface, address: from, mac } = binding;
        let (slot, is_awaited) = match self.by_key.find(&(interface, from)) {
            Some(slot) => {
                let entry = self.slots.get_mut(slot as usize).and_then(Option::as_mut)?;
                if matches!(entry.state, State::Known(at) | State::Probe(at, _) if at == mac) {
                    return None;
                }
                let was = std::mem::replace(&mut entry.state, State::Known(mac));
                (slot, was.is_awaited())
            }
            None if makes => {
                (self.insert((interface, from), State::Known(mac), false)?, self.is_short)
            }
            None => return None,
        };
        if is_awaited {
            self.wake();
        }
        Some((slot, Instant(now.0.saturating_add(DELAY_NS))))
    }

    /// A neighbour advertisement about `target` (RFC 4861, section 7.2.5); `None` when nobody knows
    /// that neighbour, and nothing is made.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
    //# If no entry exists, the advertisement SHOULD be silently discarded.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
    //# If the link layer has addresses and no Target Link-Layer Address option is included, the
    //# receiving node SHOULD silently discard the received advertisement.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
    //# If the Override flag is set, or the supplied link-layer address is the same as that in the
    //# cache, or no Target Link-Layer Address option was supplied, the received advertisement MUST
    //# update the Neighbor Cache entry as follows:
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
    //# - If the Solicited flag is set, the state of the entry MUST be set to REACHABLE.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
    //# If the Solicited flag is zero and the link-layer address was updated with a different
    //# address, the state MUST be set to STALE.
    pub fn advertise(
        &mut self,
        now: Instant,
        (interface, target): (InterfaceIndex, IpAddr),
        advertisement: &Advertisement,
    ) -> Option<Advertised> {
        let Advertisement { mac, solicited, overrides } = *advertisement;
        let slot = self.by_key.find(&(interface, target))?;
        let reachable_ns = self.times(interface).reachable_ns;
        let entry = self.slots.get_mut(slot as usize).and_then(Option::as_mut)?;
        let known = match entry.state {
            State::Known(known) | State::Probe(known, _) => Some(known),
            State::Incomplete(_) | State::Failed => None,
        };
        let told = mac.or(known)?;
        let (is_new, is_other) = (known.is_none(), known.is_some_and(|known| known != told));
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
        //# Otherwise, the received advertisement should be ignored and MUST NOT update the cache.
        if is_other && !overrides {
            // Not believed, but doubted: the known owner is asked soon.
            entry.is_used = true;
            entry.state = State::Known(known?);
            let learnt = Some((slot, Instant(now.0.saturating_add(DELAY_NS))));
            return Some(Advertised { learnt, is_believed: false });
        }
        if !solicited && !is_new && !is_other {
            return Some(Advertised { learnt: None, is_believed: true });
        }
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
        //# - The link-layer address in the Target Link-Layer Address option MUST be inserted in the
        //# cache (if one is supplied and differs from the already recorded address).
        entry.state = State::Known(told);
        if is_new {
            self.wake();
        }
        let holds = if solicited { reachable_ns } else { DELAY_NS };
        let learnt = Some((slot, Instant(now.0.saturating_add(holds))));
        Some(Advertised { learnt, is_believed: true })
    }

    /// The timer of a slot has expired.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-2.3.2.1
    //# An implementation of the Address Resolution Protocol (ARP) [LINK:2] MUST provide a mechanism
    //# to flush out-of-date cache entries.
    pub fn on_timer(&mut self, now: Instant, slot: u32) -> Due {
        let Some(key) = self.slots.get(slot as usize).and_then(|entry| Some(entry.as_ref()?.key))
        else {
            return Due::Gone;
        };
        let retry = self.again(now, key);
        let Some(entry) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else {
            return Due::Gone;
        };
        let (interface, address) = key;
        match entry.state {
            //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
            //# While awaiting a response, the sender SHOULD retransmit Neighbor Solicitation
            //# messages approximately every RetransTimer milliseconds, even in the absence of
            //# additional traffic to the neighbor.
            //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
            //# Retransmissions MUST be rate-limited to at most one solicitation per neighbor every
            //# RetransTimer milliseconds.
            //= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.3
            //# A node MUST NOT send Neighbor Solicitations to the same neighbor more frequently
            //# than once every RetransTimer milliseconds.
            State::Incomplete(tries) if tries < TRIES => {
                entry.state = State::Incomplete(tries + 1);
                Due::Ask(interface, address, None, retry)
            }
            State::Incomplete(_) => {
                entry.state = State::Failed;
                self.wake();
                let again = Instant(now.0.saturating_add(FAILED_NS));
                Due::Failed(interface, address, Some(again))
            }
            // The address may be somebody else's now, who is asked for with the next packet.
            State::Probe(_, TRIES..) => {
                self.remove(slot);
                Due::Failed(interface, address, None)
            }
            State::Known(mac) if entry.is_used => {
                entry.is_used = false;
                entry.state = State::Probe(mac, 1);
                Due::Ask(interface, address, Some(mac), retry)
            }
            State::Probe(mac, tries) => {
                entry.state = State::Probe(mac, tries + 1);
                Due::Ask(interface, address, Some(mac), retry)
            }
            State::Known(_) | State::Failed => {
                self.remove(slot);
                Due::Gone
            }
        }
    }

    /// `must`: we want to send to it, so somebody else has to make room.
    fn insert(&mut self, key: Key, state: State, must: bool) -> Option<u32> {
        if self.free.is_empty() {
            self.evict(must);
        }
        let slot = self.free.pop()?;
        *self.slots.get_mut(slot as usize)? = Some(Neighbor { key, state, is_used: must });
        // There is room: the table is as large as the list of slots.
        let _ = self.by_key.insert(key, slot);
        Some(slot)
    }

    fn evict(&mut self, must: bool) {
        let count = self.slots.len();
        if count == 0 {
            return;
        }
        let (mut victim, mut in_use, mut is_asked_for) = (None, None, false);
        for _ in 0..EVICTION_PROBES {
            self.hand = (self.hand + 1) % count;
            let Some(entry) = &self.slots[self.hand] else { continue };
            match entry.state {
                State::Incomplete(_) if entry.is_used => is_asked_for = true,
                State::Incomplete(_) if !must => (),
                State::Known(_) | State::Probe(..) if entry.is_used => in_use = Some(self.hand),
                _ => {
                    victim = Some(self.hand);
                    break;
                }
            }
        }
        if must && !is_asked_for {
            victim = victim.or(in_use);
        }
        if let Some(slot) = victim {
            let of = self.slots[slot].as_ref();
            if of.is_some_and(|entry| matches!(entry.state, State::Incomplete(_))) {
                // Those who wait for it find no room now.
                self.wake();
            }
            self.evictions = self.evictions.wrapping_add(1);
            self.remove(slot as u32);
        }
    }

    fn remove(&mut self, slot: u32) {
        if let Some(entry) = self.slots.get_mut(slot as usize).and_then(Option::take) {
            self.by_key.remove(&entry.key);
            self.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IF: InterfaceIndex = InterfaceIndex(0);
    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn at(seconds: u64) -> Instant {
        Instant(seconds * SECOND)
    }

    fn binding(address: IpAddr, mac: MacAddr) -> Binding {
        Binding { interface: IF, address, mac }
    }

    fn a_is_at(mac: MacAddr) -> Binding {
        binding(A, mac)
    }

    fn about_a(mac: Option<MacAddr>, solicited: bool, overrides: bool) -> Advertisement {
        Advertisement { mac, solicited, overrides }
    }

    fn believed(learnt: (u32, Instant)) -> Option<Advertised> {
        Some(Advertised { learnt: Some(learnt), is_believed: true })
    }

    fn table(count: u32) -> Neighbors {
        Neighbors::new(KeyedHash::new([1; 16]), count)
    }

    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
    //= type=test
    //# While awaiting a response, the sender SHOULD retransmit Neighbor Solicitation messages
    //# approximately every RetransTimer milliseconds, even in the absence of additional traffic to
    //# the neighbor.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
    //= type=test
    //# Retransmissions MUST be rate-limited to at most one solicitation per neighbor every
    //# RetransTimer milliseconds.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.3
    //= type=test
    //# If address resolution fails, the entry SHOULD be deleted, so that subsequent traffic to that
    //# neighbor invokes the next-hop determination procedure again.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.3
    //= type=test
    //# A node MUST NOT send Neighbor Solicitations to the same neighbor more frequently than once
    //# every RetransTimer milliseconds.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-2.3.2.1
    //= type=test
    //# A mechanism to prevent ARP flooding (repeatedly sending an ARP Request for the same IP
    //# address, at a high rate) MUST be included.
    #[test]
    fn three_questions_go_out_a_second_apart_before_it_fails() {
        let mut n = table(4);
        assert_eq!(n.resolve(at(0), IF, A, Requester::Local), Resolution::Ask(0, at(1)));
        assert_eq!(n.resolve(at(0), IF, A, Requester::Local), Resolution::Wait);
        assert_eq!(n.on_timer(at(1), 0), Due::Ask(IF, A, None, at(2)));
        assert_eq!(n.on_timer(at(2), 0), Due::Ask(IF, A, None, at(3)));
        assert_eq!(n.generation(), 0);
        assert_eq!(n.on_timer(at(3), 0), Due::Failed(IF, A, Some(at(4))));
        assert_eq!(n.generation(), 1);
        assert_eq!(n.resolve(at(3), IF, A, Requester::Local), Resolution::Failed);
        assert_eq!(n.on_timer(at(4), 0), Due::Gone);
        assert_eq!(n.resolve(at(4), IF, A, Requester::Local), Resolution::Ask(0, at(5)));
    }

    /// Each frame of a host that changed its mind woke all connections and packets that waited for others.
    #[test]
    fn what_nobody_waits_for_wakes_nobody() {
        let other = |last: u8| IpAddr::from([10, 0, 1, last]);
        let mut n = table(8);
        n.resolve(at(0), IF, A, Requester::Local);
        n.learn(at(0), a_is_at(MAC), false);
        let generation = n.generation();
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        for (time, mac) in [(1, mac), (2, MAC), (3, mac)] {
            assert!(n.learn(at(time), a_is_at(mac), true).is_some());
            assert!(n.hint(at(time), binding(other(time as u8), mac), true).is_some());
        }
        assert!(n.advertise(at(4), (IF, A), &about_a(Some(MAC), false, true)).is_some());
        assert_eq!(n.generation(), generation);
        // Who found no room waits for any entry.
        let mut n = table(1);
        n.resolve(at(0), IF, A, Requester::Local);
        assert_eq!(n.resolve(at(0), IF, other(1), Requester::Local), Resolution::Full);
        n.learn(at(0), a_is_at(MAC), false);
        assert_ne!(n.generation(), 0);
    }

    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.3
    //= type=test
    //# If no response is received after waiting RetransTimer milliseconds after sending the
    //# MAX_UNICAST_SOLICIT solicitations, retransmissions cease and the entry SHOULD be deleted.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-2.3.2.1
    //= type=test
    //# An implementation of the Address Resolution Protocol (ARP) [LINK:2] MUST provide a mechanism
    //# to flush out-of-date cache entries.
    #[test]
    fn an_entry_in_use_is_confirmed_with_its_owner() {
        let mut n = table(4);
        n.resolve(at(0), IF, A, Requester::Local);
        assert_eq!(n.learn(at(0), a_is_at(MAC), false), Some((0, at(60))));
        assert_eq!(n.resolve(at(1), IF, A, Requester::Local), Resolution::Known(MAC));
        assert_eq!(n.on_timer(at(60), 0), Due::Ask(IF, A, Some(MAC), at(61)));
        assert_eq!(n.resolve(at(60), IF, A, Requester::Local), Resolution::Known(MAC));
        assert_eq!(n.learn(at(60), a_is_at(MAC), false), Some((0, at(120))));
        // It was given up for a second, in which whoever had taken the address over was not asked for.
        n.resolve(at(61), IF, A, Requester::Local);
        for second in 120..123 {
            let again = at(second + 1);
            assert_eq!(n.on_timer(at(second), 0), Due::Ask(IF, A, Some(MAC), again));
        }
        assert_eq!(n.on_timer(at(123), 0), Due::Failed(IF, A, None));
        assert_eq!(n.resolve(at(123), IF, A, Requester::Local), Resolution::Ask(0, at(124)));
    }

    #[test]
    fn an_entry_not_in_use_is_forgotten() {
        let mut n = table(4);
        n.learn(at(0), a_is_at(MAC), true);
        assert_eq!(n.on_timer(at(60), 0), Due::Gone);
    }

    #[test]
    fn what_nobody_asked_for_is_not_learnt() {
        let mut n = table(4);
        assert_eq!(n.learn(at(0), a_is_at(MAC), false), None);
    }

    #[test]
    fn an_address_that_is_being_asked_for_is_not_pushed_out() {
        let mut n = table(2);
        let other = |i: u32| IpAddr::V4((0x0a00_0100 + i).into());
        n.resolve(at(0), IF, A, Requester::Local);
        n.resolve(at(0), IF, other(0), Requester::Local);
        for i in 1..1000 {
            assert_eq!(n.resolve(at(0), IF, other(i), Requester::Local), Resolution::Full);
        }
        assert_eq!(n.evictions(), 0);
        assert_eq!(n.learn(at(0), a_is_at(MAC), false), Some((0, at(60))));
        assert_eq!(n.resolve(at(0), IF, A, Requester::Local), Resolution::Known(MAC));
        // What is known and in use makes no room while another is asked for; what failed does.
        assert_eq!(n.resolve(at(0), IF, other(1), Requester::Local), Resolution::Full);
        for second in 1..=3 {
            n.on_timer(at(second), 1);
        }
        assert_eq!(n.resolve(at(3), IF, other(1), Requester::Local), Resolution::Ask(1, at(4)));
    }

    /// Answers to spoofed senders on the link pushed out the router.
    #[test]
    fn answers_to_strangers_push_out_nothing_in_use_and_give_way_to_programs() {
        let other = |i: u32| IpAddr::V4((0x0a00_0100 + i).into());
        let mut n = table(8);
        n.resolve(at(0), IF, A, Requester::Local);
        n.learn(at(0), a_is_at(MAC), false);
        for i in 0..1000 {
            let stranger = n.resolve(at(0), IF, other(i), Requester::Remote);
            assert_eq!(stranger == Resolution::Full, i >= 7, "{i}");
        }
        assert_eq!(n.resolve(at(1), IF, A, Requester::Local), Resolution::Known(MAC));
        // A program's wish takes the place of one of theirs, and keeps it.
        let generation = n.generation();
        let asks = |resolution| matches!(resolution, Resolution::Ask(..));
        assert!(asks(n.resolve(at(1), IF, other(5000), Requester::Local)));
        assert_ne!(n.generation(), generation, "who waited for that one looks again");
        for i in 1..7 {
            assert!(asks(n.resolve(at(1), IF, other(5000 + i), Requester::Local)), "{i}");
        }
        for i in 0..1000 {
            assert_eq!(n.resolve(at(1), IF, other(i), Requester::Remote), Resolution::Full);
        }
        assert_eq!(n.resolve(at(1), IF, other(5000), Requester::Local), Resolution::Wait);
        assert_eq!(n.resolve(at(1), IF, A, Requester::Local), Resolution::Known(MAC));
    }

    #[test]
    fn a_flood_of_questions_does_not_push_out_what_is_in_use() {
        let mut n = table(8);
        n.resolve(at(0), IF, A, Requester::Local);
        n.learn(at(0), a_is_at(MAC), false);
        for i in 0..1000u32 {
            n.learn(at(0), binding(IpAddr::V4((0x0a00_0100 + i).into()), MAC), true);
        }
        assert_eq!(n.resolve(at(1), IF, A, Requester::Local), Resolution::Known(MAC));
        assert!(n.evictions() > 900);
    }

    /// It pushed out the router of all other programs, and every neighbour that they talked to.
    #[test]
    fn a_program_that_asks_for_many_silent_addresses_pushes_no_neighbour_in_use_out() {
        let mut n = table(64);
        let at_end = |last: u32| IpAddr::V4((0x0a00_0100 + last).into());
        for last in 0..8 {
            n.resolve(at(0), IF, at_end(last), Requester::Local);
            n.learn(at(0), binding(at_end(last), MAC), false);
        }
        let asked = (8..1000).filter(|&last| {
            matches!(n.resolve(at(1), IF, at_end(last), Requester::Local), Resolution::Ask(..))
        });
        assert_eq!(asked.count(), 56);
        for last in 0..8 {
            assert_eq!(
                n.resolve(at(2), IF, at_end(last), Requester::Local),
                Resolution::Known(MAC)
            );
        }
        // Where all are known, one gives way.
        for last in 8..64 {
            n.learn(at(2), binding(at_end(last), MAC), false);
        }
        assert!(matches!(n.resolve(at(2), IF, at_end(64), Requester::Local), Resolution::Ask(..)));
    }

    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
    //= type=test
    //# If the Override flag is set, or the supplied link-layer address is the same as that in the
    //# cache, or no Target Link-Layer Address option was supplied, the received advertisement MUST
    //# update the Neighbor Cache entry as follows:
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
    //= type=test
    //# - The link-layer address in the Target Link-Layer Address option MUST be inserted in the
    //# cache (if one is supplied and differs from the already recorded address).
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
    //= type=test
    //# - If the Solicited flag is set, the state of the entry MUST be set to REACHABLE.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
    //= type=test
    //# If the link layer has addresses and no Target Link-Layer Address option is included, the
    //# receiving node SHOULD silently discard the received advertisement.
    #[test]
    fn an_advertisement_that_was_asked_for_is_believed_for_half_a_minute() {
        let mut n = table(4);
        assert_eq!(
            n.advertise(at(0), (IF, A), &about_a(Some(MAC), true, true)),
            None,
            "nobody asked"
        );
        n.resolve(at(0), IF, A, Requester::Local);
        assert_eq!(
            n.advertise(at(0), (IF, A), &about_a(None, true, true)),
            None,
            "it does not say where"
        );
        assert_eq!(
            n.advertise(at(0), (IF, A), &about_a(Some(MAC), true, false)),
            believed((0, at(30)))
        );
        assert_eq!(n.generation(), 1);
        assert_eq!(n.resolve(at(1), IF, A, Requester::Local), Resolution::Known(MAC));
        assert_eq!(n.on_timer(at(30), 0), Due::Ask(IF, A, Some(MAC), at(31)));
        assert_eq!(
            n.advertise(at(30), (IF, A), &about_a(None, true, false)),
            believed((0, at(60)))
        );
    }

    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
    //= type=test
    //# Otherwise, the received advertisement should be ignored and MUST NOT update the cache.
    #[test]
    fn an_advertisement_that_does_not_override_only_raises_doubt() {
        let mut n = table(4);
        let other = MacAddr([2, 0, 0, 0, 0, 9]);
        n.resolve(at(0), IF, A, Requester::Local);
        n.advertise(at(0), (IF, A), &about_a(Some(MAC), true, true));
        let doubt = n.advertise(at(1), (IF, A), &about_a(Some(other), false, false));
        let learnt = Some((0, at(6)));
        assert_eq!(doubt, Some(Advertised { learnt, is_believed: false }));
        assert_eq!(n.resolve(at(1), IF, A, Requester::Local), Resolution::Known(MAC));
        assert_eq!(n.on_timer(at(6), 0), Due::Ask(IF, A, Some(MAC), at(7)));
        assert_eq!(
            n.advertise(at(7), (IF, A), &about_a(Some(other), false, true)),
            believed((0, at(12)))
        );
        assert_eq!(n.resolve(at(7), IF, A, Requester::Local), Resolution::Known(other));
    }

    //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
    //= type=test
    //# If a Neighbor Cache entry is created for the router, its reachability state MUST be set to
    //# STALE as specified in Section 7.3.3.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
    //= type=test
    //# If a cache entry already exists and is updated with a different link-layer address, the
    //# reachability state MUST also be set to STALE.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.3
    //= type=test
    //# If the Source Address is not the unspecified address and, on link layers that have
    //# addresses, the solicitation includes a Source Link-Layer Address option, then the recipient
    //# SHOULD create or update the Neighbor Cache entry for the IP Source Address of the
    //# solicitation.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.3
    //= type=test
    //# If an entry does not already exist, the node SHOULD create a new one and set its
    //# reachability state to STALE as specified in Section 7.3.3.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.3
    //= type=test
    //# If an entry already exists, and the cached link-layer address differs from the one in the
    //# received Source Link-Layer option, the cached address should be replaced by the received
    //# address, and the entry's reachability state MUST be set to STALE.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.3
    //= type=test
    //# In addition, should a cached link-layer address be modified due to receiving one of the
    //# above messages, the state SHOULD also be set to STALE to provide prompt verification that
    //# the path to the new link-layer address is working.
    #[test]
    fn what_a_question_says_of_its_sender_is_confirmed_when_it_is_used() {
        let mut n = table(4);
        assert_eq!(n.hint(at(0), a_is_at(MAC), false), None);
        assert_eq!(n.hint(at(0), a_is_at(MAC), true), Some((0, at(5))));
        assert_eq!(n.hint(at(1), a_is_at(MAC), true), None, "it says the same");
        assert_eq!(n.resolve(at(2), IF, A, Requester::Local), Resolution::Known(MAC));
        assert_eq!(n.on_timer(at(5), 0), Due::Ask(IF, A, Some(MAC), at(6)));
        let other = MacAddr([2, 0, 0, 0, 0, 9]);
        assert_eq!(n.hint(at(6), a_is_at(other), false), Some((0, at(11))));
    }
}
