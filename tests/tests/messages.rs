//! Messages between the programs of two hosts with an engine each: the example, both ways, and its
//! sudden end.

use lab::{Program, Side, Task};
use outboard_tests::held::{counter, holds_nothing};
use outboard_tests::joined::{PATIENCE, eventually};
use outboard_tests::turn;
use outboard_tests::world::{Arrangement, CLIENTS, SERVERS, World, example};
use rustix::process::Signal;

/// A job's key.
const KEY: &str = "00112233445566778899aabbccddeeff";
/// Where the server of the example is.
const PORT: u16 = 5000;
fn pingpong(world: &World, side: Side, words: &str) -> Program {
    let task = Task::new(example("message_pingpong"))
        .arg(world.socket(side))
        .args(words.split_whitespace())
        .env("OUTBOARD_MESSAGE_KEY", KEY);
    world.lab.start(side, task).expect("the example")
}

/// The example's server on host `side`, once it is there, and its address.
fn serve(world: &World, side: Side) -> (Program, String) {
    let host = if side == Side::A { CLIENTS } else { SERVERS };
    let address = format!("{host}:{PORT}");
    let mut server = pingpong(world, side, &format!("serve {address}"));
    let is_there = |server: &Program| server.output().contains("serving at");
    server.until(PATIENCE, is_there).expect("a server");
    (server, address)
}

/// Pings of several lengths are answered: within a frame, copied as they are sent, announced.
fn answers(world: &World, from: Side, address: &str) {
    for (count, bytes) in [(100, 8), (50, 10_000), (5, 300_000)] {
        let before = counter(world, from, "messages_rx_frames");
        let client = pingpong(world, from, &format!("ping {address} {count} {bytes}"));
        let finished = client.wait(PATIENCE).and_then(lab::Finished::success).expect("answers");
        let wanted = format!("{count} round trips of {bytes} bytes");
        assert!(finished.output.contains(&wanted), "{}", finished.output);
        let more = counter(world, from, "messages_rx_frames") - before;
        assert!(more >= count, "{more} frames for {count} answers");
    }
}

#[test]
fn messages_go_both_ways_between_two_hosts() {
    let Some(_turn) = turn("messages_go_both_ways_between_two_hosts") else { return };
    let world = World::new(Arrangement::XdpBoth, None).expect("two hosts");
    for side in Side::BOTH {
        let (server, address) = serve(&world, side);
        answers(&world, side.other(), &address);
        server.stop();
        Side::BOTH.into_iter().for_each(|side| holds_nothing(&world, side));
    }
}

/// Engines that send messages in Ethernet frames.
const ETHERNET: &str = "[messages]\nencapsulation = \"ethernet\"\n";

/// Packets that a host's engine has received in datagrams and in Ethernet frames.
fn received(world: &World, side: Side) -> (u64, u64) {
    let ethernet = counter(world, side, "messages_rx_ethernet");
    (counter(world, side, "messages_rx_frames") - ethernet, ethernet)
}

#[test]
fn messages_travel_in_ethernet_frames_between_hosts_of_a_link() {
    let Some(_turn) = turn("messages_travel_in_ethernet_frames") else { return };
    for arrangement in [Arrangement::XdpBoth, Arrangement::PacketBoth] {
        let world = World::configured(arrangement, None, ETHERNET).expect("two hosts");
        let (server, address) = serve(&world, Side::B);
        answers(&world, Side::A, &address);
        for side in Side::BOTH {
            let (datagrams, frames) = received(&world, side);
            // The first ones, before it is known where the other host is.
            assert!(frames > 500 && datagrams < frames / 10, "{datagrams} {frames}");
            if arrangement == Arrangement::XdpBoth {
                // The kernel gives the datagrams' port to nobody else.
                let kept = world.lab.inside(side, &["ss", "-lunH", "sport = :26870"]).expect("ss");
                assert_eq!(kept.lines().count(), 1, "{kept}");
            }
            for name in ["malformed", "misaddressed"] {
                let count = counter(&world, side, &format!("messages_ethernet_{name}"));
                assert_eq!(count, 0, "{name} frames of {side:?}");
            }
        }
        server.stop();
        Side::BOTH.into_iter().for_each(|side| holds_nothing(&world, side));
    }
}

#[test]
fn tcpdump_sees_the_ethertype_that_the_configuration_names() {
    let Some(_turn) = turn("tcpdump_sees_the_ethertype") else { return };
    let settings = "[messages]\nencapsulation = \"ethernet\"\nethertype = 0x88b6\n";
    let world = World::configured(Arrangement::PacketBoth, None, settings).expect("two hosts");
    let task = Task::words("tcpdump -lnn -c 100 -i").arg(world.link(Side::A));
    let task = task.args(["ether", "proto", "0x88b6"]);
    let mut capture = world.lab.start(Side::A, task).expect("tcpdump");
    capture.until(PATIENCE, |one| one.errors().contains("listening on")).expect("it listens");
    let (server, address) = serve(&world, Side::B);
    answers(&world, Side::A, &address);
    let seen = capture.wait(PATIENCE).and_then(lab::Finished::success).expect("a hundred frames");
    let frames = seen.output.lines().filter(|line| line.contains("ethertype Unknown (0x88b6)"));
    assert_eq!(frames.count(), 100, "{}", seen.output);
    server.stop();
}

#[test]
fn each_host_receives_both_encapsulations() {
    let Some(_turn) = turn("each_host_receives_both_encapsulations") else { return };
    let mut world = World::configured(Arrangement::XdpBoth, None, ETHERNET).expect("two hosts");
    world.set_settings("");
    world.kill_engine(Side::B);
    world.start_engine(Side::B).expect("an engine that sends datagrams");
    let (server, address) = serve(&world, Side::B);
    answers(&world, Side::A, &address);
    let ((_, frames), (datagrams, _)) = (received(&world, Side::B), received(&world, Side::A));
    assert!(frames > 200 && datagrams > 200, "{frames} frames there, {datagrams} datagrams back");
    server.stop();
}

#[test]
fn a_server_outlives_a_client_that_is_killed_while_it_sends() {
    let Some(_turn) = turn("a_server_outlives_a_client_that_is_killed") else { return };
    let world = World::new(Arrangement::XdpBoth, None).expect("two hosts");
    let (server, address) = serve(&world, Side::B);
    for bytes in [8, 1_000_000] {
        let before = counter(&world, Side::B, "messages_rx_frames");
        let client = pingpong(&world, Side::A, &format!("ping {address} 1000000 {bytes}"));
        eventually("pings", || counter(&world, Side::B, "messages_rx_frames") > before + 100);
        client.signal(Signal::KILL);
        client.wait(PATIENCE).expect("it is dead");
        holds_nothing(&world, Side::A);
        answers(&world, Side::A, &address);
    }
    server.stop();
    holds_nothing(&world, Side::B);
}

#[test]
fn a_client_learns_that_its_server_is_killed() {
    let Some(_turn) = turn("a_client_learns_that_its_server_is_killed") else { return };
    let world = World::new(Arrangement::XdpBoth, None).expect("two hosts");
    for bytes in [8, 1_000_000] {
        let (server, address) = serve(&world, Side::B);
        let before = counter(&world, Side::A, "messages_rx_frames");
        let client = pingpong(&world, Side::A, &format!("ping {address} 1000000 {bytes}"));
        eventually("answers", || counter(&world, Side::A, "messages_rx_frames") > before + 100);
        server.signal(Signal::KILL);
        let client = client.wait(PATIENCE).expect("it ends");
        assert!(!client.status.success(), "{}", client.output);
        // One that comes later is refused at once.
        let late = pingpong(&world, Side::A, &format!("ping {address} 1 {bytes}"));
        let late = late.wait(PATIENCE).expect("it ends");
        assert!(late.errors.contains("Connection refused"), "{}", late.errors);
        Side::BOTH.into_iter().for_each(|side| holds_nothing(&world, side));
    }
}
