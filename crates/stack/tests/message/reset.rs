//! RESETs that frames draw which were changed on their way, and those of a hostile member.

use outboard_stack::message::*;
use wire::message::{Body, Epoch, Epochs, Frame, Frames, flags, flow_key, job_identifier, seal};

use crate::net::{Fate, Heap, KEY, Net, ROOM, address, options, selector};

/// The first frame of the packet that left last.
fn last_sent(net: &Net) -> Vec<u8> {
    net.log.last().expect("a packet").clone()
}

fn kinds(net: &Net, wanted: fn(&Body) -> bool) -> usize {
    let packets = net.log.iter();
    packets
        .flat_map(|bytes| Frames::new(bytes).flatten())
        .filter(|it| wanted(&it.frame.body))
        .count()
}

fn is_reset(body: &Body) -> bool {
    matches!(body, Body::Reset { .. })
}

#[test]
fn a_frame_that_loses_its_epochs_on_the_way_ends_nothing() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let to = net.address(0, 1, 9);
    net.judge = Box::new(|_, _| Fate::Lost);
    let send = net.send(a, to, 5, 10);
    net.run(1);
    let mut changed = last_sent(&net);
    assert_eq!(changed[1] & flags::FIRST, flags::FIRST);
    changed[1] &= !flags::FIRST;
    net.judge = Box::new(|_, _| Fate::Arrives);
    net.inject(0, 1, &changed);
    let (_, receive) = net.receive(b, selector(None, 5, 0), 10);
    net.expect(1, receive, send, 10);
    assert_eq!(net.sent(0, send), Status::Ok);
    assert_eq!(kinds(&net, is_reset), 1);
    let counters = net.nodes[0].core.counters();
    assert_eq!((counters.drop_reset, counters.ended_reset), (1, 0));
}

#[test]
fn a_frame_that_is_changed_before_the_other_end_has_verified_one_ends_nothing() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let to = net.address(0, 1, 9);
    let (_, receive) = net.receive(b, selector(None, 5, 0), 10);
    let send = net.send(a, to, 5, 10);
    net.expect(1, receive, send, 10);
    assert_eq!(net.sent(0, send), Status::Ok);
    net.judge = Box::new(|_, _| Fate::Lost);
    let send = net.send(a, to, 5, 10);
    net.run(1);
    let mut changed = last_sent(&net);
    assert_eq!(changed[1] & flags::FIRST, 0, "this end knows both epochs");
    changed[1] ^= flags::ACK_NOW;
    net.judge = Box::new(|_, _| Fate::Arrives);
    net.inject(0, 1, &changed);
    let (_, receive) = net.receive(b, selector(None, 5, 0), 10);
    net.expect(1, receive, send, 10);
    assert_eq!(net.sent(0, send), Status::Ok);
    assert_eq!(kinds(&net, is_reset), 1);
    let counters = net.nodes[0].core.counters();
    assert_eq!((counters.drop_reset, counters.ended_reset), (1, 0));
}

/// Node 1's frame for node 0.
fn forged(body: Body, epochs: Epochs, frame: Frame) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let header = Frame { job: job_identifier(&KEY), body, ..frame };
    let len = header.emit(&mut bytes, 0).unwrap();
    bytes.truncate(len);
    seal(&mut bytes, &flow_key(&KEY, &address(1), &address(0), &epochs), 0);
    bytes
}

const FRAME: Frame =
    Frame { flags: 0, job: 0, sequence: 0, counter: 0, epochs: None, body: Body::Probe };

#[test]
fn an_epoch_that_nothing_is_above_is_not_taken_from_anybody() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let (to, back) = (net.address(0, 1, 9), net.address(1, 0, 7));
    let highest = Epoch { incarnation: u64::MAX, life: u32::MAX };
    net.judge = Box::new(|_, _| Fate::Lost);
    let send = net.send(a, to, 5, 10);
    net.run(1);
    let sent = last_sent(&net);
    let drawn = Frames::new(&sent).next().unwrap().unwrap();
    let epochs = Epochs { sender: Epoch { incarnation: 9, life: 9 }, receiver: highest };
    let reset = Body::Reset { authenticator: drawn.authenticator, epochs };
    let frame = Frame { flags: flags::VERIFIED, sequence: drawn.frame.sequence, ..FRAME };
    net.inject(1, 0, &forged(reset, Epochs::default(), frame));
    assert_eq!(net.nodes[0].core.counters().drop_reset, 1);
    // Nor as the other host's own.
    let epochs = Epochs { sender: highest, receiver: Epoch::UNKNOWN };
    net.inject(1, 0, &forged(Body::Probe, epochs, Frame { epochs: Some(epochs), ..FRAME }));
    assert_eq!(net.nodes[0].core.counters().drop_unverified, 1);
    // Both ends go on.
    net.judge = Box::new(|_, _| Fate::Arrives);
    let (_, receive) = net.receive(b, selector(None, 5, 0), 10);
    net.expect(1, receive, send, 10);
    let (_, receive) = net.receive(a, selector(None, 5, 0), 10);
    let send = net.send(b, back, 5, 10);
    net.expect(0, receive, send, 10);
}

#[test]
fn a_reset_of_a_forgotten_job_does_not_leave_as_another_ones() {
    let mut core = Core::new(CoreConfig { incarnation: 1_000, hosts: 1, seed: [5, 6] });
    let path = PathAddresses { local: address(0), remote: address(1) };
    let host = core.add_host(path, ROOM).unwrap();
    let (mut heap, mut out) = (Heap::default(), vec![0; 2048]);
    let endpoint = core.open(1, options(9)).unwrap();
    let unknown = forged(Body::Probe, Epochs::default(), FRAME);
    core.on_frame(1, host, &unknown, &mut heap);
    core.close(1, endpoint, &mut heap);
    let key = Some(*b"another job's   ");
    core.open(61_000_000_000, EndpointOptions { key, ..options(9) }).unwrap();
    assert!(core.poll_transmit(61_000_000_000, &mut out, &mut heap).is_none());
    // With its job it would have left.
    let key = Some(KEY);
    core.open(61_000_000_001, EndpointOptions { key, ..options(10) }).unwrap();
    core.on_frame(61_000_000_001, host, &unknown, &mut heap);
    assert!(core.poll_transmit(61_000_000_001, &mut out, &mut heap).is_some());
}
