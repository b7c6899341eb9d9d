use super::*;

const IF: InterfaceIndex = InterfaceIndex(0);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xff);
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0);

struct Bench {
    autoconf: Autoconf,
    now: Instant,
    sent: Vec<Action>,
}

impl Bench {
    fn new(mode: Ipv6Mode) -> Self {
        let mut autoconf = Autoconf::default();
        let fixed = Cidr { address: "fd00::2".parse().unwrap(), prefix: 64 };
        let config = InterfaceConfig {
            mac: MAC,
            mtu: 1500,
            addresses: vec![fixed],
            gateway: None,
            routes: Vec::new(),
            shared: None,
            ipv6: mode,
            tso: false,
            tso6: false,
            uso: false,
        };
        autoconf.start(IF, &config, 7);
        Self { autoconf, now: Instant(0), sent: Vec::new() }
    }

    fn run(&mut self, seconds: u64) {
        let end = self.now.0 + seconds * SECOND;
        while let Some(due) = self.autoconf.next_deadline().filter(|due| due.0 <= end) {
            self.now = Instant(due.0.max(self.now.0));
            let sent = &mut self.sent;
            self.autoconf.on_time(self.now, |action| sent.push(action));
        }
        self.now = Instant(end);
    }

    /// Whether it changes anything.
    fn advertise(&mut self, said: RouterAdvertisement) -> bool {
        self.autoconf.on_advertisement(self.now, IF, ROUTER, &said).unwrap()
    }

    fn state(&self, ip: &str) -> Option<AddressState> {
        self.autoconf.state(IF, ip.parse().unwrap())
    }

    fn solicitations(&self) -> usize {
        self.sent.iter().filter(|sent| matches!(sent, Action::SolicitRouters(_))).count()
    }
}

fn prefix(valid_s: u32, preferred_s: u32) -> RouterAdvertisement {
    let prefix = PrefixInformation {
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_s,
        preferred_s,
        prefix: PREFIX,
    };
    RouterAdvertisement {
        lifetime_s: 1800,
        prefixes: [prefix].into_iter().collect(),
        ..RouterAdvertisement::default()
    }
}

const LEARNT: &str = "2001:db8::ff:fe00:1";

//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.1
//= type=test
//# In such cases the node MUST join and leave the solicited-node multicast address corresponding to
//# the new and old addresses, respectively.
//= https://www.rfc-editor.org/rfc/rfc4862#section-5.4
//= type=test
//# Duplicate Address Detection MUST be performed on all unicast addresses prior to assigning them
//# to an interface
//= https://www.rfc-editor.org/rfc/rfc4862#section-5.4
//= type=test
//# - Each individual unicast address SHOULD be tested for uniqueness.
//= https://www.rfc-editor.org/rfc/rfc4862#section-5.4
//= type=test
//# Whereas this document does not invalidate such implementations, this kind of "optimization" is
//# NOT RECOMMENDED, and new implementations MUST NOT do that optimization.
//= https://www.rfc-editor.org/rfc/rfc4862#section-5.4.2
//= type=test
//# Before sending a Neighbor Solicitation, an interface MUST join the all-nodes multicast address
//# and the solicited-node multicast address of the tentative address.
//= https://www.rfc-editor.org/rfc/rfc4862#section-5.4.2
//= type=test
//# In order to improve the robustness of the Duplicate Address Detection algorithm, an interface
//# MUST receive and process datagrams sent to the all-nodes multicast address or solicited-node
//# multicast address of the tentative address during the delay period.
//= https://www.rfc-editor.org/rfc/rfc3810#section-9.1
//= type=test
//# The value of the Robustness Variable MUST NOT be zero, and SHOULD NOT be one.
#[test]
fn addresses_are_used_when_nobody_answered_a_probe() {
    let mut bench = Bench::new(Ipv6Mode::Static);
    assert_eq!(bench.state("fe80::ff:fe00:1"), Some(AddressState::Tentative));
    assert!(!bench.autoconf.is_settled());
    assert!(bench.autoconf.listens(IF, solicited_node("fd00::2".parse().unwrap())));
    bench.run(2);
    for ip in ["fe80::ff:fe00:1", "fd00::2"] {
        let ip: Ipv6Addr = ip.parse().unwrap();
        assert_eq!(bench.autoconf.state(IF, ip), Some(AddressState::Preferred));
        let place = |action| bench.sent.iter().position(|sent| *sent == action);
        let listens = place(Action::Listen(IF, solicited_node(ip), true)).expect("it listens");
        assert!(place(Action::Probe(IF, ip)) > Some(listens), "first of all");
    }
    assert!(bench.autoconf.is_settled() && bench.solicitations() == 0);
}

#[test]
fn an_address_that_somebody_has_is_not_used() {
    let mut bench = Bench::new(Ipv6Mode::Static);
    bench.run(1);
    let ip = "fd00::2".parse().unwrap();
    assert_eq!(bench.autoconf.on_conflict(IF, ip), Some(true));
    bench.run(10);
    assert_eq!(bench.state("fd00::2"), Some(AddressState::Duplicate));
    assert_eq!(bench.autoconf.counts(), (1, 0));
    let in_use = bench.autoconf.on_conflict(IF, "fe80::ff:fe00:1".parse().unwrap());
    assert_eq!(in_use, None);
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.7
//= type=test
//# To obtain Router Advertisements quickly, a host SHOULD transmit up to MAX_RTR_SOLICITATIONS
//# Router Solicitation messages, each separated by at least RTR_SOLICITATION_INTERVAL seconds.
//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.7
//= type=test
//# Once the host sends a Router Solicitation, and receives a valid Router Advertisement with a
//# non-zero Router Lifetime, the host MUST desist from sending additional solicitations on that
//# interface, until the next time one of the above events occurs.
#[test]
fn routers_are_solicited_ever_more_rarely_until_one_answers() {
    let mut bench = Bench::new(Ipv6Mode::Automatic);
    bench.run(3);
    assert_eq!(bench.solicitations(), 1);
    bench.run(60);
    assert_eq!(bench.solicitations(), 5, "after 4, 8, 16, 32 seconds and a little");
    bench.advertise(RouterAdvertisement::default());
    bench.run(7200);
    assert_eq!(bench.solicitations(), 5);
}

//= https://www.rfc-editor.org/rfc/rfc4862#section-5.5.4
//= type=test
//# An invalid address MUST NOT be used as a source address in outgoing communications and MUST NOT
//# be recognized as a destination on a receiving interface.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.1
//= type=test
//# a node MUST NOT leave the solicited-node multicast group until all assigned addresses
//# corresponding to that multicast address have been removed.
#[test]
fn an_advertised_prefix_makes_an_address_that_fades_and_ends() {
    let mut bench = Bench::new(Ipv6Mode::Automatic);
    bench.run(3);
    bench.advertise(prefix(100, 50));
    assert_eq!(bench.state(LEARNT), Some(AddressState::Tentative));
    bench.run(2);
    assert_eq!(bench.state(LEARNT), Some(AddressState::Preferred));
    assert_eq!(bench.autoconf.learnt(IF).routers, [ROUTER]);
    bench.run(50);
    assert_eq!(bench.state(LEARNT), Some(AddressState::Deprecated));
    bench.advertise(prefix(100, 50));
    assert_eq!(bench.state(LEARNT), Some(AddressState::Preferred));
    bench.run(101);
    assert_eq!(bench.state(LEARNT), None);
    assert!(bench.autoconf.learnt(IF).on_link.is_empty());
    // The link-local address ends with the same bytes, and keeps their group.
    let group = solicited_node(LEARNT.parse().unwrap());
    let held = bench.sent.iter().map(|sent| match sent {
        Action::Listen(_, of, listens) if *of == group => 2 * i32::from(*listens) - 1,
        _ => 0,
    });
    assert_eq!(held.sum::<i32>(), 1, "{:?}", bench.sent);
    bench.run(1800);
    assert!(bench.autoconf.learnt(IF).routers.is_empty());
}

//= https://www.rfc-editor.org/rfc/rfc4862#section-5.6
//= type=test
//# In any case, if there is no security difference, the most recently obtained values SHOULD have
//# precedence over information learned earlier.
#[test]
fn one_advertisement_does_not_end_an_address_at_once() {
    let mut bench = Bench::new(Ipv6Mode::Automatic);
    bench.run(3);
    bench.advertise(prefix(86_400, 86_400));
    bench.run(3);
    bench.advertise(prefix(1, 0));
    bench.run(7190);
    assert_eq!(bench.state(LEARNT), Some(AddressState::Deprecated));
    bench.run(20);
    assert_eq!(bench.state(LEARNT), None);
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
//= type=test
//# If the received Reachable Time value is non-zero, the host SHOULD set its BaseReachableTime
//# variable to the received value.
//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
//= type=test
//# If the new value differs from the previous value, the host SHOULD re-compute a new random
//# ReachableTime value.
//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
//= type=test
//# In such cases, an implementation SHOULD ensure that a new random value gets re-computed at least
//# once every few hours.
#[test]
fn a_router_says_how_long_neighbours_count_as_reachable() {
    let mut bench = Bench::new(Ipv6Mode::Automatic);
    let reachable_ns = |bench: &Bench| bench.autoconf.learnt(IF).times.unwrap().reachable_ns;
    assert_eq!(reachable_ns(&bench), 30 * SECOND);
    let said = |reachable_ms| RouterAdvertisement { reachable_ms, ..Default::default() };
    for base in [1000, 20_000] {
        assert!(bench.advertise(said(base)));
        let around = u64::from(base) * 500_000..u64::from(base) * 1_500_000;
        assert!(around.contains(&reachable_ns(&bench)), "{base}");
    }
    // The same again, or nothing, changes nothing until it is old.
    let first = reachable_ns(&bench);
    for again in [20_000, 0] {
        assert!(!bench.advertise(said(again)));
    }
    bench.run(2 * 3600);
    assert!(bench.advertise(said(20_000)));
    assert_ne!(reachable_ns(&bench), first);
    // What a hostile one says is bounded.
    bench.advertise(RouterAdvertisement { retransmit_ms: 1, ..said(u32::MAX) });
    assert!(reachable_ns(&bench) < 2 * 3600 * SECOND);
    assert_eq!(bench.autoconf.learnt(IF).times.unwrap().retransmit_ns, 10_000_000);
    bench.advertise(RouterAdvertisement { retransmit_ms: u32::MAX, ..said(1) });
    assert!(reachable_ns(&bench) >= 50_000_000);
    assert_eq!(bench.autoconf.learnt(IF).times.unwrap().retransmit_ns, 3600 * SECOND);
}

/// RFC 4862, section 5.5.3, e: what becomes of the valid lifetime that is left when another is
/// advertised.
#[test]
fn a_lifetime_is_taken_when_it_is_long_enough_or_prolongs_and_else_cut_to_two_hours() {
    const HOUR: u32 = 3600;
    for (left, told, becomes) in [
        (HOUR, 3 * HOUR, 3 * HOUR),
        (5 * HOUR, 3 * HOUR, 3 * HOUR),
        (HOUR, 2 * HOUR, 2 * HOUR),
        (HOUR, 1800, HOUR),
        (HOUR, 0, HOUR),
        (2 * HOUR, 0, 2 * HOUR),
        (5 * HOUR, HOUR, 2 * HOUR),
        (5 * HOUR, 0, 2 * HOUR),
    ] {
        let mut bench = Bench::new(Ipv6Mode::Automatic);
        bench.run(3);
        bench.advertise(prefix(left, left));
        bench.advertise(prefix(told, told));
        bench.run(u64::from(becomes) - 1);
        assert!(bench.state(LEARNT).is_some(), "{left} {told}");
        bench.run(2);
        assert_eq!(bench.state(LEARNT), None, "{left} {told}");
    }
}

#[test]
fn what_a_lying_router_says_is_bounded_and_counted() {
    let mut bench = Bench::new(Ipv6Mode::Automatic);
    bench.run(3);
    for number in 0..100u16 {
        let entry = PrefixInformation {
            prefix_len: 64,
            on_link: true,
            autonomous: true,
            valid_s: u32::MAX,
            preferred_s: u32::MAX,
            prefix: Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 0),
        };
        let said = RouterAdvertisement {
            lifetime_s: 9000,
            mtu: Some(100),
            prefixes: [entry].into_iter().collect(),
            ..RouterAdvertisement::default()
        };
        let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number);
        bench.autoconf.on_advertisement(bench.now, IF, from, &said);
    }
    let learnt = bench.autoconf.learnt(IF);
    assert_eq!(learnt.addresses.len(), ADDRESSES_MAX);
    assert_eq!((learnt.on_link.len(), learnt.routers.len()), (PREFIXES_MAX, ROUTERS_MAX));
    assert_eq!(learnt.mtu, None, "no link takes so little");
    assert!(bench.autoconf.counts().1 > 150);
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
//= type=test
//# However, a host MUST retain at least two router addresses and SHOULD retain more.
//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.6
//= type=test
//# 1) Routers that are reachable or probably reachable (i.e., in any state other than INCOMPLETE)
//# SHOULD be preferred over routers whose reachability is unknown or suspect (i.e., in the
//# INCOMPLETE state, or for which no Neighbor Cache entry exists).
//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.5
//= type=test
//# When removing a router from the Default Router list, the node MUST update the Destination Cache
//# in such a way that all entries using the router perform next-hop determination again
#[test]
fn the_router_that_answers_and_is_preferred_comes_first() {
    let mut bench = Bench::new(Ipv6Mode::Automatic);
    bench.run(3);
    let [high, low]: [Ipv6Addr; 2] = ["fe80::1".parse().unwrap(), "fe80::2".parse().unwrap()];
    for (from, flags) in [(low, 0x18), (high, 0x08)] {
        let said = RouterAdvertisement { lifetime_s: 60, flags, ..Default::default() };
        bench.autoconf.on_advertisement(bench.now, IF, from, &said);
    }
    assert_eq!(bench.autoconf.learnt(IF).routers, [high, low]);
    assert!(bench.autoconf.on_router_silent(IF, high.into(), true));
    assert_eq!(bench.autoconf.learnt(IF).routers, [low, high]);
    assert!(!bench.autoconf.on_router_silent(IF, high.into(), true));
    // It is heard again, though nobody has asked it.
    let said = RouterAdvertisement { lifetime_s: 60, flags: 0x08, ..Default::default() };
    let changes = bench.autoconf.on_advertisement(bench.now, IF, high, &said);
    assert_eq!(changes, Some(true));
    assert_eq!(bench.autoconf.learnt(IF).routers, [high, low]);
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
//= type=test
//# Hosts accept the union of all received information; the receipt of a Router Advertisement MUST
//# NOT invalidate all information received in a previous advertisement or from another source.
//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
//= type=test
//# In particular, a host MUST NOT interpret the unspecified value as meaning change back to the
//# default value that was in use before the first Router Advertisement was received.
#[test]
fn an_advertisement_that_says_nothing_new_changes_nothing() {
    let mut bench = Bench::new(Ipv6Mode::Automatic);
    bench.run(3);
    let said = RouterAdvertisement { mtu: Some(1400), ..prefix(86_400, 50) };
    for (changes, said) in [
        (true, said),
        (false, said),
        (true, RouterAdvertisement { mtu: Some(1300), ..said }),
        (true, RouterAdvertisement { lifetime_s: 0, mtu: None, ..said }),
        (false, RouterAdvertisement { lifetime_s: 0, mtu: None, ..said }),
        (true, said),
    ] {
        let before = bench.autoconf.learnt(IF);
        assert_eq!(bench.advertise(said), changes);
        assert_eq!(bench.autoconf.learnt(IF) != before, changes);
    }
    bench.run(60);
    assert_eq!(bench.state(LEARNT), Some(AddressState::Deprecated));
    assert!(bench.advertise(said), "the address is preferred again");
    let gone = prefix(0, 0);
    assert!(bench.advertise(gone), "no longer on the link");
    assert!(!bench.advertise(gone));
}
