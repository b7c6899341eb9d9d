//! Connections that are moved to the relay's session, for other processes.

mod common;

use common::{Net, Program, pattern, small};
use outboard_engine::control::exchange::Command;
use outboard_engine::passing::{HeirKey, Keeper};
use rustix::io::Errno;
use shm::Status;
use shm::client_side::ClientEndpoint;
use shm::lock::Tag;
use shm::request::{Reply, Request};
use stack::api::Instant;

/// Most that is read at a time.
const MUCH: usize = 1 << 20;

/// A server on host B with a relay and a connection: server, relay, client, and both ends.
fn served(net: &mut Net) -> (Program, Program, Program, u32, u32) {
    let limits = small();
    let (client, server) = (net.a.attach(&limits), net.b.attach(&limits));
    let relay = net.b.attach(&limits);
    command(net, Command::Relay(relay.key));
    let listener = net.listen(&server, 80);
    let (near, far) = net.connected(&client, &server, listener, 80);
    (server, relay, client, near, far)
}

fn command(net: &mut Net, command: Command) {
    let now = Instant(net.now);
    net.b.worker.on_command(command, now);
    net.settle();
}

fn fork(net: &mut Net, server: &Program, heir: u64) -> Keeper {
    let by = Keeper::Session(server.key);
    command(net, Command::Fork { by, heir: HeirKey(heir), serial: 1 });
    Keeper::Heir(HeirKey(heir))
}

/// The endpoint in the relay's session, the first time that it is told.
fn pass(net: &mut Net, by: Keeper, endpoint: u32) -> Result<Option<u32>, Errno> {
    command(net, Command::Pass { by, serial: 2, endpoint, v6: false });
    let outcome = net.b.passed.pop().expect("the command was answered");
    outcome.map(|handover| handover.serve.map(|serve| serve.endpoint))
}

#[test]
fn an_heir_goes_on_with_what_was_not_read_and_not_acknowledged() {
    let mut net = Net::new(small());
    let (server, relay, client, near, far) = served(&mut net);
    client.write(near, &pattern(0, 9_000));
    net.settle();
    assert_eq!(server.read(far, 5_000), pattern(0, 5_000));
    let heir = fork(&mut net, &server, 100);
    server.write(far, b"written before");
    let moved = pass(&mut net, heir, far).unwrap().expect("it is told to the relay");
    assert_eq!(relay.read(moved, MUCH), pattern(5_000, 4_000));
    assert!(server.levels(far).status.contains(Status::MOVED));
    relay.write(moved, b", and after");
    net.settle();
    assert_eq!(client.read(near, MUCH), b"written before, and after");
    client.write(near, &pattern(9_000, 20_000));
    net.settle();
    assert_eq!(relay.read(moved, MUCH), pattern(9_000, 20_000));
    // The session gets the same, and the heir does not get it twice.
    assert_eq!(pass(&mut net, Keeper::Session(server.key), far), Ok(None));
    assert_eq!(pass(&mut net, heir, far), Err(Errno::BADF));
    assert_eq!(net.ask(true, &server, Request::Close { endpoint: far }), Reply::Done);
    assert_eq!(net.ask(true, &relay, Request::Close { endpoint: moved }), Reply::Done);
    net.settle();
    assert!(client.levels(near).status.contains(Status::PEER_CLOSED));
}

/// A move in the middle of a write lost what the write went on with.
#[test]
fn a_thread_that_reads_or_writes_ends_that_before_the_move() {
    let mut net = Net::new(small());
    let (server, relay, client, near, far) = served(&mut net);
    let heir = fork(&mut net, &server, 100);
    let view = ClientEndpoint::new(server.region.clone(), far).expect("an endpoint");
    let tag = Tag::new(std::process::id(), 1);
    let writing = view.lock_send(tag).expect("free");
    assert_eq!(pass(&mut net, heir, far), Err(Errno::AGAIN));
    drop(writing);
    let reading = view.lock_receive(tag).expect("free");
    assert_eq!(pass(&mut net, heir, far), Err(Errno::AGAIN));
    assert!(!server.levels(far).status.contains(Status::MOVED));
    drop(reading);
    // Not told by a doorbell yet.
    server.write(far, b"the last word");
    let moved = pass(&mut net, heir, far).unwrap().expect("it is told to the relay");
    drop((view.lock_send(tag).expect("free"), view.lock_receive(tag).expect("free")));
    assert!(view.status().contains(Status::MOVED));
    relay.write(moved, b", and the heir's");
    net.settle();
    assert_eq!(client.read(near, MUCH), b"the last word, and the heir's");
    assert_eq!(net.b.counter("passes_put_off"), 2);
}

#[test]
fn a_connection_ends_when_the_last_who_holds_it_is_gone() {
    let mut net = Net::new(small());
    let (server, _, client, near, far) = served(&mut net);
    let heir = fork(&mut net, &server, 100);
    let Keeper::Heir(key) = heir else { unreachable!("a fork makes an heir") };
    command(&mut net, Command::Fork { by: heir, heir: HeirKey(101), serial: 1 });
    assert_eq!(net.ask(true, &server, Request::Close { endpoint: far }), Reply::Done);
    net.settle();
    assert!(!client.levels(near).status.contains(Status::PEER_CLOSED), "two hold it");
    command(&mut net, Command::Release { heir: key, endpoint: far });
    assert!(!client.levels(near).status.contains(Status::PEER_CLOSED), "one holds it");
    command(&mut net, Command::EndHeir(HeirKey(101)));
    assert!(client.levels(near).status.contains(Status::PEER_CLOSED));
}

#[test]
fn the_end_of_a_session_leaves_its_heirs_what_they_hold() {
    let mut net = Net::new(small());
    let (server, relay, client, near, far) = served(&mut net);
    let heir = fork(&mut net, &server, 100);
    client.write(near, b"question");
    net.settle();
    command(&mut net, Command::Detach(server.key));
    assert!(!client.levels(near).status.contains(Status::PEER_CLOSED));
    let moved = pass(&mut net, heir, far).unwrap().expect("it is told to the relay");
    assert_eq!(relay.read(moved, MUCH), b"question");
}

#[test]
fn nobody_gets_a_connection_that_he_does_not_hold() {
    let mut net = Net::new(small());
    let (server, _, client, near, far) = served(&mut net);
    let heir = fork(&mut net, &server, 100);
    let Keeper::Heir(key) = heir else { unreachable!("a fork makes an heir") };
    let stranger = net.b.attach(&small());
    let of_stranger = fork(&mut net, &stranger, 101);
    for by in [Keeper::Session(stranger.key), of_stranger, Keeper::Heir(HeirKey(999))] {
        assert_eq!(pass(&mut net, by, far), Err(Errno::BADF), "{by:?}");
    }
    // One that came after the fork.
    let listener = net.listen(&server, 81);
    let (_, later) = net.connected(&client, &server, listener, 81);
    for endpoint in [later, listener, 63, u32::MAX] {
        assert_eq!(pass(&mut net, heir, endpoint), Err(Errno::BADF), "{endpoint}");
    }
    // One that it has closed.
    command(&mut net, Command::Release { heir: key, endpoint: far });
    assert_eq!(pass(&mut net, heir, far), Err(Errno::BADF));
    client.write(near, b"still the server's");
    net.settle();
    assert_eq!(server.read(far, MUCH), b"still the server's");
}

#[test]
fn without_a_relay_there_are_no_heirs() {
    let limits = small();
    let mut net = Net::new(limits);
    let (client, server) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&server, 80);
    let (near, far) = net.connected(&client, &server, listener, 80);
    let heir = fork(&mut net, &server, 100);
    assert_eq!(pass(&mut net, heir, far), Err(Errno::BADF));
    assert_eq!(pass(&mut net, Keeper::Session(server.key), far), Err(Errno::OPNOTSUPP));
    assert_eq!(net.ask(true, &server, Request::Close { endpoint: far }), Reply::Done);
    net.settle();
    assert!(client.levels(near).status.contains(Status::PEER_CLOSED));
}
