//! Programs that listen to multicast groups and send to them: on an engine's interface as on a
//! kernel's, and on one that both have.

use lab::{Program, Side, Task};
use outboard_tests::beside::{Answerer, ENGINE, Hosts, KERNEL};
use outboard_tests::joined::{CLIENT, Joined, PATIENCE, SERVER};
use outboard_tests::turn;
use outboard_tests::world::scripted;

/// What a program hears that joins anew for itself as the sender, as the kernel has it.
const HEARD_ANEW: &str = "heard: one from its own\nheard: two\nheard: three\nleft twice: EINVAL\n";

fn groups(hosts: &Hosts, mode: &str, own: &str, interface: &str) -> Task {
    scripted(&hosts.lab, "groups.py").args([mode, own, interface])
}

/// What a program says until its end.
#[track_caller]
fn said(program: Program) -> String {
    let finished = program.wait(PATIENCE).expect("it ends");
    assert!(finished.status.success(), "{}{}", finished.output, finished.errors);
    finished.output
}

/// What a program on the answerer's host hears of what one on the other host sends.
fn heard(hosts: &Hosts, who: Answerer) -> String {
    let interface = hosts.interface(who, Side::B);
    let hears = groups(hosts, "hear", who.v4, &interface).args(who.own);
    let mut hearer = hosts.serve(who, hears);
    hearer.until(PATIENCE, |hearer| hearer.output().contains("ready")).expect("it listens");
    let interface = hosts.interface(who, Side::A);
    let sends = groups(hosts, "send", who.own[0], &interface);
    said(hosts.lab.start(Side::A, sends).expect("a sender"));
    said(hearer)
}

#[test]
fn programs_hear_groups_on_an_engine_as_on_a_kernel() {
    let Some(_turn) = turn("programs_hear_groups_on_an_engine_as_on_a_kernel") else { return };
    let hosts = Hosts::start();
    let kernels = heard(&hosts, KERNEL);
    assert!(kernels.contains("first: one, in pieces, two, other\n"), "{kernels}");
    let at = "at its interface to 239.1.1.1";
    assert!(kernels.contains(&format!("second: one {at}, in pieces {at}, two {at}")), "{kernels}");
    assert!(kernels.contains("not joined: nothing\n"), "{kernels}");
    assert_eq!(heard(&hosts, ENGINE), kernels);
}

#[test]
fn a_program_alone_with_a_group_finds_an_engine_as_it_finds_a_kernel() {
    let Some(_turn) = turn("a_program_alone_with_a_group_finds_an_engine_as_it_finds_a_kernel")
    else {
        return;
    };
    let hosts = Hosts::start();
    let alone = |who: Answerer| {
        let interface = hosts.interface(who, Side::B);
        said(hosts.serve(who, groups(&hosts, "alone", who.v4, &interface)))
    };
    let kernels = alone(KERNEL);
    assert!(kernels.contains("heard: no further\n"), "{kernels}");
    assert_eq!(alone(ENGINE), kernels);
}

#[test]
fn a_program_that_names_no_interface_hears_the_sender_that_it_joins_for() {
    let Some(_turn) = turn("a_program_that_names_no_interface_hears_the_sender_that_it_joins_for")
    else {
        return;
    };
    let hosts = Hosts::start();
    let kernels = hosts.interface(KERNEL, Side::B);
    let anew = |who: Answerer| {
        let interface = hosts.interface(who, Side::B);
        hosts.serve(who, groups(&hosts, "anew", who.v4, &interface))
    };
    for who in [KERNEL, ENGINE] {
        let refused = anew(who).wait(PATIENCE).expect("it ends");
        assert!(refused.errors.contains("No such device"), "{}{}", refused.output, refused.errors);
    }
    let route = format!("ip route add 224.0.0.0/4 dev {kernels}");
    hosts.lab.inside(Side::B, &route.split(' ').collect::<Vec<_>>()).expect("a route");
    assert_eq!(said(anew(KERNEL)), HEARD_ANEW);
    assert_eq!(said(anew(ENGINE)), HEARD_ANEW);
}

#[test]
fn an_engines_program_sends_to_groups_of_others() {
    let Some(_turn) = turn("an_engines_program_sends_to_groups_of_others") else { return };
    let hosts = Hosts::start();
    let who = ENGINE;
    let hears = groups(&hosts, "hear", who.own[0], &hosts.interface(who, Side::A));
    let mut hearer = hosts.lab.start(Side::A, hears.args([who.v4, who.v6])).expect("a hearer");
    hearer.until(PATIENCE, |hearer| hearer.output().contains("ready")).expect("it listens");
    said(hosts.serve(who, groups(&hosts, "send", who.v4, &hosts.interface(who, Side::B))));
    let heard = said(hearer);
    for whole in ["first: one, in pieces, two, other\n", "first of six: one, in pieces, two\n"] {
        assert!(heard.contains(whole), "{heard}");
    }
}

#[test]
fn on_a_shared_interface_groups_are_the_kernels_and_programs_hear_them() {
    let Some(_turn) = turn("on_a_shared_interface_groups_are_the_kernels_and_programs_hear_them")
    else {
        return;
    };
    let mut joined = Joined::without_engine();
    for (side, address) in [(Side::A, "fd78::1/64"), (Side::B, "fd78::2/64")] {
        let interface = joined.link.end(side);
        for words in [
            format!("sysctl -qw net.ipv6.conf.{interface}.disable_ipv6=0"),
            format!("ip addr replace {address} dev {interface} nodad"),
        ] {
            joined.lab.inside(side, &words.split(' ').collect::<Vec<_>>()).expect(&words);
        }
    }
    joined.start_engine();
    let of = |mode: &str, own: &str, side: Side| {
        let interface = joined.link.end(side);
        scripted(&joined.lab, "groups.py").args([mode, own, &interface])
    };
    let hears = joined.accelerated(of("hear", SERVER, Side::B).args([CLIENT, "fd78::1"]));
    let mut hearer = joined.lab.start(Side::B, hears).expect("a hearer");
    hearer.until(PATIENCE, |hearer| hearer.output().contains("ready")).expect("it listens");
    said(joined.lab.start(Side::A, of("send", CLIENT, Side::A)).expect("a sender"));
    let heard = said(hearer);
    assert!(heard.contains("first: one, in pieces, two, other\n"), "{heard}");
    assert!(heard.contains("from another: other\n"), "{heard}");
    assert!(heard.contains("first of six: one, in pieces, two\n"), "{heard}");
    let route = format!("ip route add 224.0.0.0/4 dev {}", joined.link.end(Side::B));
    joined.lab.inside(Side::B, &route.split(' ').collect::<Vec<_>>()).expect("a route");
    let anew = joined.accelerated(of("anew", SERVER, Side::B));
    assert_eq!(said(joined.lab.start(Side::B, anew).expect("a program")), HEARD_ANEW);
}
