use wire::groups::records;

use super::*;

const IF: InterfaceIndex = InterfaceIndex(0);
const SECOND: u64 = 1_000_000_000;

/// Groups of a few sockets on one interface, in virtual time.
struct Bench {
    groups: Groups,
    now: Instant,
    told: Vec<String>,
}

/// A message in words.
fn words(message: &Message) -> String {
    let v6 = message.to.is_ipv6();
    let kind = message.bytes[0];
    if !matches!(kind, igmp::REPORT | wire::mld::REPORT) {
        return format!("{}: {kind}", message.to);
    }
    let said = records(&message.bytes[4..], v6).unwrap().map(|record| {
        let sources: Vec<String> = record.sources().map(|source| source.to_string()).collect();
        format!("{:?} {} {}", record.kind, record.group, sources.join(" ")).trim_end().to_string()
    });
    said.collect::<Vec<_>>().join("; ")
}

impl Bench {
    fn new() -> Self {
        let groups = Groups::new(KeyedHash::new([1; 16]), 4, 8, 7);
        Self { groups, now: Instant(SECOND), told: Vec::new() }
    }

    /// Lets time pass, in milliseconds.
    fn run(&mut self, ms: u64) -> Vec<String> {
        let end = Instant(self.now.0 + ms * 1_000_000);
        while let Some(due) = self.groups.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let told = &mut self.told;
            self.groups.on_time(self.now, |message| told.push(words(&message)));
        }
        self.now = end;
        std::mem::take(&mut self.told)
    }

    fn set(&mut self, socket: u32, group: &str, excludes: Option<bool>) -> Result<(), Refused> {
        self.groups.set(self.now, socket, (IF, ip(group)), excludes)
    }

    fn name(&mut self, socket: u32, group: &str, source: &str, is_named: bool) {
        let of = (IF, ip(group));
        self.groups.name(self.now, socket, of, change(source, is_named)).unwrap();
    }

    fn ask(&mut self, version: u8, group: &str, within_ms: u32, sources: &[u8]) {
        let (group, response_ms) = (ip(group), within_ms);
        let mut bytes = vec![igmp::QUERY, 0, 0, 0];
        bytes.extend([0; 4]);
        bytes.extend([0, 0, 0, sources.len() as u8]);
        sources.iter().for_each(|last| bytes.extend([10, 0, 0, *last]));
        let sum = wire::checksum::Sum::of(&bytes).finish();
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        let Ok(igmp::IgmpMessage::Query(mut query)) = igmp::parse(&bytes) else {
            panic!("no query")
        };
        (query.version, query.response_ms, query.group) = (version, response_ms, group);
        self.groups.on_query(self.now, IF, &query);
    }
}

fn change(source: &str, is_added: bool) -> SourceChange {
    SourceChange { address: ip(source), is_added }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const A: &str = "239.1.1.1";
const B: &str = "239.1.1.2";

//= https://www.rfc-editor.org/rfc/rfc3810#section-9.1
//= type=test
//# The value of the Robustness Variable MUST NOT be zero, and SHOULD NOT be one.
#[test]
fn a_group_is_told_of_twice_when_it_is_joined_and_when_it_is_left() {
    let mut bench = Bench::new();
    bench.set(0, A, Some(true)).unwrap();
    assert_eq!(bench.run(0), ["ToExclude 239.1.1.1"], "at once");
    assert_eq!(bench.run(1000), ["ToExclude 239.1.1.1"], "and within a second");
    // A second socket changes nothing, nor does its end.
    bench.set(1, A, Some(true)).unwrap();
    assert!(bench.groups.hears(IF, ip(A), ip("10.0.0.9")));
    bench.groups.close(bench.now, 1);
    assert!(bench.run(5000).is_empty());
    bench.set(0, A, None).unwrap();
    assert!(!bench.groups.hears(IF, ip(A), ip("10.0.0.9")));
    assert_eq!(bench.run(1000), ["ToInclude 239.1.1.1"; 2]);
    assert_eq!(bench.groups.next_deadline(), None);
    assert_eq!(bench.set(0, A, None), Err(Refused::NotJoined));
}

#[test]
fn senders_are_told_of_as_they_are_named() {
    let mut bench = Bench::new();
    bench.set(0, A, Some(false)).unwrap();
    assert!(bench.run(2000).is_empty(), "nobody is heard yet");
    bench.name(0, A, "10.0.0.1", true);
    assert_eq!(bench.run(2000), ["Allow 239.1.1.1 10.0.0.1"; 2]);
    bench.name(0, A, "10.0.0.2", true);
    bench.name(0, A, "10.0.0.1", false);
    let both = "Allow 239.1.1.1 10.0.0.2; Block 239.1.1.1 10.0.0.1";
    assert_eq!(bench.run(2000), [both; 2]);
    assert!(bench.groups.hears(IF, ip(A), ip("10.0.0.2")));
    assert!(!bench.groups.hears(IF, ip(A), ip("10.0.0.1")));
    // Another socket hears all but one: so does the interface, but for whom the first one hears.
    bench.set(1, A, Some(true)).unwrap();
    bench.name(1, A, "10.0.0.2", true);
    bench.name(1, A, "10.0.0.3", true);
    assert_eq!(bench.run(2000), ["ToExclude 239.1.1.1 10.0.0.3"; 2]);
    let admits = |socket, from| bench.groups.admits(socket, (IF, ip(A)), ip(from), true);
    assert!(admits(0, "10.0.0.2") && !admits(0, "10.0.0.9"));
    assert!(!admits(1, "10.0.0.2") && admits(1, "10.0.0.9"));
    assert!(admits(2, "10.0.0.9") && !bench.groups.admits(2, (IF, ip(A)), ip("10.0.0.9"), false));
}

#[test]
fn a_change_of_mind_before_it_is_told_is_told_as_it_ended() {
    let mut bench = Bench::new();
    bench.set(0, A, Some(true)).unwrap();
    bench.set(0, A, None).unwrap();
    assert_eq!(bench.run(1000), ["ToInclude 239.1.1.1"; 2]);
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.7
//= type=test
//# A host SHOULD support local IP multicasting on all connected networks for which a mapping from
//# Class D IP addresses to link-layer addresses has been specified (see below).
#[test]
fn queries_are_answered_in_their_time() {
    let mut bench = Bench::new();
    for group in [A, B, "224.0.0.1"] {
        bench.set(0, group, Some(true)).unwrap();
    }
    bench.name(0, B, "10.0.0.1", true);
    bench.run(10_000);
    bench.ask(3, "0.0.0.0", 1000, &[]);
    assert_eq!(bench.run(1000), ["IsExclude 239.1.1.1; IsExclude 239.1.1.2 10.0.0.1"]);
    bench.ask(3, A, 1000, &[]);
    bench.ask(3, "239.9.9.9", 1000, &[]);
    assert_eq!(bench.run(1000), ["IsExclude 239.1.1.1"], "that group, and none that is not ours");
    bench.ask(3, B, 1000, &[1, 2]);
    assert_eq!(bench.run(1000), ["IsInclude 239.1.1.2 10.0.0.2"]);
    bench.ask(3, B, 1000, &[1]);
    assert!(bench.run(1000).is_empty(), "nobody listens to that sender");
    bench.ask(3, B, 1000, &[2]);
    bench.ask(3, B, 1000, &[3]);
    assert_eq!(bench.run(1000), ["IsInclude 239.1.1.2 10.0.0.2 10.0.0.3"], "one answer for both");
    bench.ask(3, "224.0.0.1", 1000, &[]);
    assert!(bench.run(1000).is_empty(), "every host listens to that");
}

//= https://www.rfc-editor.org/rfc/rfc3810#section-6.3
//= type=test
//# MUST NOT send a Report immediately upon reception of a General Query.
#[test]
fn answers_to_a_query_are_spread_over_the_time_that_it_allows() {
    // An ordinary querier's 10 s, and the most that MLD can say: hours.
    for within_ms in [10_000, 0x1fff << 10] {
        let delays = (0..64u64).map(|seed| {
            let mut bench = Bench::new();
            bench.set(0, A, Some(true)).unwrap();
            bench.run(10_000);
            bench.groups.random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            bench.ask(3, "0.0.0.0", within_ms, &[]);
            bench.groups.next_deadline().unwrap().0 - bench.now.0
        });
        let delays: Vec<u64> = delays.collect();
        let most = u64::from(within_ms) * 1_000_000;
        assert!(delays.iter().all(|delay| *delay < most), "{within_ms} ms");
        for part in [0, 1] {
            let half = part * most / 2..(part + 1) * most / 2;
            assert!(delays.iter().any(|delay| half.contains(delay)), "{within_ms} ms, {part}");
        }
    }
}

#[test]
fn older_routers_are_spoken_to_in_their_version() {
    let mut bench = Bench::new();
    bench.set(0, A, Some(true)).unwrap();
    bench.run(5000);
    bench.ask(2, "0.0.0.0", 1000, &[]);
    assert_eq!(bench.run(1000), ["239.1.1.1: 22"]);
    // A change is told at once and within ten seconds, and so is a leave, once.
    bench.set(0, B, Some(true)).unwrap();
    assert_eq!(bench.run(0), ["239.1.1.2: 22"]);
    assert_eq!(bench.run(10_000), ["239.1.1.2: 22"]);
    bench.set(0, B, None).unwrap();
    assert_eq!(bench.run(10_000), ["224.0.0.2: 23"]);
    // Somebody else reports it: we need not, neither now nor when it is left.
    bench.ask(2, "0.0.0.0", 1000, &[]);
    bench.groups.on_report(IF, ip(A));
    assert!(bench.run(1000).is_empty());
    bench.set(0, A, None).unwrap();
    assert!(bench.run(10_000).is_empty());
    // The very first version knows no leaving.
    bench.set(0, A, Some(true)).unwrap();
    bench.run(20_000);
    bench.ask(1, "0.0.0.0", 10_000, &[]);
    assert_eq!(bench.run(10_000), ["239.1.1.1: 18"]);
    bench.set(0, A, None).unwrap();
    assert!(bench.run(10_000).is_empty());
    // When such routers have been silent for long, the newest version is spoken again.
    bench.run(300_000);
    bench.set(0, A, Some(true)).unwrap();
    assert_eq!(bench.run(1000), ["ToExclude 239.1.1.1"; 2]);
}

//= https://www.rfc-editor.org/rfc/rfc3810#section-8.2.1
//= type=test
//# In order to be compatible with MLDv1 routers, MLDv2 hosts MUST operate in version 1 compatibility
//# mode.
//= https://www.rfc-editor.org/rfc/rfc3810#section-8.2.1
//= type=test
//# MLDv2 hosts MUST keep state per local interface regarding the compatibility mode of each attached
//# link.
#[test]
fn ipv6_has_its_own_older_version() {
    let mut bench = Bench::new();
    bench.set(0, "ff05::7", Some(true)).unwrap();
    assert_eq!(bench.run(2000), ["ToExclude ff05::7"; 2]);
    bench.ask(1, "::", 1000, &[]);
    assert_eq!(bench.run(1000), ["ff05::7: 131"]);
    // On other links the newest one is spoken on.
    let other = (InterfaceIndex(1), ip("ff05::7"));
    bench.groups.set(bench.now, 1, other, Some(true)).unwrap();
    assert_eq!(bench.run(2000), ["ToExclude ff05::7"; 2]);
    bench.set(0, "ff05::7", None).unwrap();
    assert_eq!(bench.run(1000), ["ff02::2: 132"]);
    // Nobody is told of groups of the host or of all nodes.
    bench.set(0, "ff02::1", Some(true)).unwrap();
    bench.set(0, "ff01::9", Some(true)).unwrap();
    assert!(bench.run(20_000).is_empty());
}

#[test]
fn groups_are_told_anew_in_the_name_of_an_address_that_has_become_valid() {
    let mut bench = Bench::new();
    bench.set(0, "ff05::7", Some(true)).unwrap();
    bench.set(0, "ff05::8", Some(false)).unwrap();
    bench.name(0, "ff05::8", "fd00::1", true);
    bench.set(0, A, Some(true)).unwrap();
    bench.run(5000);
    bench.groups.tell_anew(bench.now, IF);
    assert_eq!(bench.run(5000), ["ToExclude ff05::7; Allow ff05::8 fd00::1"; 2]);
    // As older routers want it, too.
    bench.ask(1, "::", 1000, &[]);
    bench.run(1000);
    bench.groups.tell_anew(bench.now, IF);
    assert_eq!(bench.run(0), ["ff05::7: 131", "ff05::8: 131"]);
}

#[test]
fn what_a_query_says_of_robustness_is_heeded() {
    let mut bench = Bench::new();
    let group = ip("0.0.0.0");
    let body = [igmp::QUERY, 1, 0, 0, 0, 0, 0, 0, 4, 10, 0, 0];
    let mut bytes = body.to_vec();
    let sum = wire::checksum::Sum::of(&bytes).finish();
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    let Ok(igmp::IgmpMessage::Query(query)) = igmp::parse(&bytes) else { panic!("no query") };
    assert_eq!((query.robustness, query.interval_s, query.group), (4, 10, group));
    bench.groups.on_query(bench.now, IF, &query);
    // The answer, of which there is nothing yet to tell.
    assert!(bench.run(1000).is_empty());
    bench.set(0, A, Some(true)).unwrap();
    assert_eq!(bench.run(5000), ["ToExclude 239.1.1.1"; 4]);
}

//= https://www.rfc-editor.org/rfc/rfc3810#section-3
//= type=test
//# When an operation causes the source list size limit to be exceeded, the service interface SHOULD
//# return an error.
#[test]
fn there_are_only_so_many_groups_and_senders() {
    let mut bench = Bench::new();
    for last in 0..8 {
        bench.set(0, &format!("239.0.0.{last}"), Some(true)).unwrap();
    }
    assert_eq!(bench.set(1, A, Some(true)), Err(Refused::Full));
    bench.set(1, "239.0.0.3", Some(true)).unwrap();
    for last in 0..SOURCES_MAX as u8 {
        bench.name(1, "239.0.0.3", &format!("10.0.0.{last}"), true);
    }
    let of = (IF, ip("239.0.0.3"));
    let full = bench.groups.name(bench.now, 1, of, change("10.0.1.0", true));
    assert_eq!(full, Err(Refused::Full));
    assert_eq!(bench.groups.on(IF).len(), 8);
    // A group that is left makes room, once that has been told.
    bench.groups.close(bench.now, 0);
    assert_eq!(bench.set(1, A, Some(true)), Err(Refused::Full));
    bench.run(2000);
    bench.set(1, A, Some(true)).unwrap();
}

/// One program took all, and new addresses were silent on the link.
#[test]
fn the_stacks_own_groups_have_room_beside_those_of_sockets() {
    let mut bench = Bench::new();
    for last in 0..8 {
        bench.set(0, &format!("239.0.0.{last}"), Some(true)).unwrap();
    }
    let listens = [0, 1, 2]
        .map(|last| bench.groups.listen(bench.now, IF, ip(&format!("ff02::1:ff00:{last}")), true));
    assert_eq!(listens, [true, true, false]);
    assert_eq!(bench.set(1, A, Some(true)), Err(Refused::Full));
}

//= https://www.rfc-editor.org/rfc/rfc3810#section-4.2
//= type=test
//# If system resource limits are reached when a per-interface state source list is calculated, an
//# error MUST be returned to the application which requested the operation.
#[test]
fn sockets_name_only_so_many_senders_of_a_group_together() {
    let sockets = (SOURCES_OF_GROUP_MAX / SOURCES_MAX) as u32 + 1;
    let mut groups = Groups::new(KeyedHash::new([1; 16]), sockets, 8, 7);
    let (now, of) = (Instant(SECOND), (IF, ip(A)));
    let fill = |groups: &mut Groups, socket| {
        groups.set(now, socket, of, Some(true)).unwrap();
        for last in 0..SOURCES_MAX as u8 {
            groups.name(now, socket, of, change(&format!("10.0.{socket}.{last}"), true))?;
        }
        Ok(())
    };
    for socket in 0..sockets - 1 {
        assert_eq!(fill(&mut groups, socket), Ok(()));
    }
    assert_eq!(fill(&mut groups, sockets - 1), Err(Refused::Full));
    // What others name no more makes room: one by one, all at once, and with the socket.
    groups.name(now, 0, of, change("10.0.0.7", false)).unwrap();
    groups.name(now, sockets - 1, of, change("10.9.9.9", true)).unwrap();
    assert_eq!(fill(&mut groups, sockets - 1), Err(Refused::Full));
    groups.set(now, 0, of, Some(true)).unwrap();
    assert_eq!(fill(&mut groups, sockets - 1), Ok(()));
    assert_eq!(fill(&mut groups, 0), Err(Refused::Full));
    groups.close(now, 1);
    assert_eq!(fill(&mut groups, 0), Ok(()));
}

#[test]
fn many_senders_are_told_in_several_reports() {
    let mut bench = Bench::new();
    for socket in 0..4 {
        let group = "ff05::7";
        bench.set(socket, group, Some(false)).unwrap();
        for last in 0..SOURCES_MAX {
            bench.name(socket, group, &format!("fd00::{socket}:{last:x}"), true);
        }
    }
    let told = bench.run(0);
    assert!(told.len() >= 4 && told.iter().all(|one| one.starts_with("Allow ff05::7 fd00::")));
    let named: usize = told.iter().map(|one| one.split(' ').count() - 2).sum();
    assert_eq!(named, 4 * SOURCES_MAX);
}
