//! Hosts and jobs: how long they are remembered.

use outboard_stack::message::*;

use crate::net::{Heap, KEY, Net, ROOM, options, selector};

const SECOND_NS: u64 = 1_000_000_000;

fn path(number: u32) -> PathAddresses {
    let mut remote = [0; 16];
    remote[..4].copy_from_slice(&number.to_be_bytes());
    PathAddresses { local: [1; 16], remote }
}

#[test]
fn hosts_that_nothing_is_about_are_forgotten() {
    let mut core = Core::new(CoreConfig { incarnation: 1_000, hosts: 3, seed: [5, 6] });
    let mut heap = Heap::default();
    let hosts: Vec<Host> = (0..3).map(|at| core.add_host(path(at), ROOM).unwrap()).collect();
    assert_eq!(core.add_host(path(3), ROOM), Err(MessageError::TooMany));
    let endpoint = core.open(1, options(9)).unwrap();
    // One is named by a receive, one has an association.
    let source = Some(Address { host: hosts[0], port: 7 });
    let selector = Selector { source, tag: Some(1), ignore: 0 };
    let request = ReceiveRequest { selector, capacity: 0, window: 0, cookie: 1 };
    let receive = core.receive(1, endpoint, request, &mut heap).unwrap();
    let request = SendRequest {
        to: Address { host: hosts[1], port: 7 },
        tag: Some(1),
        immediate: None,
        length: 0,
        available: 0,
        delivery: false,
        cookie: 2,
    };
    core.send(1, endpoint, request, &mut heap).unwrap();
    let mut gone = Vec::new();
    core.forget_hosts(1, |host| gone.push(host));
    assert_eq!((gone, core.counters().hosts_forgotten), (vec![hosts[2]], 1));
    assert_eq!(
        core.send(
            1,
            endpoint,
            SendRequest { to: Address { host: hosts[2], port: 7 }, ..request },
            &mut heap
        ),
        Err(MessageError::UnknownHost)
    );
    assert_eq!(core.add_host(path(3), ROOM), Ok(hosts[2]));
    // Epochs are remembered for 60 s after the job's last endpoint.
    assert!(core.cancel_receive(receive));
    core.abort(SECOND_NS, endpoint, &mut heap);
    let mut gone = Vec::new();
    core.forget_hosts(60 * SECOND_NS, |host| gone.push(host));
    assert_eq!((gone.as_slice(), core.usage().peers), (&[hosts[0], hosts[2]][..], 1));
    core.forget_hosts(61 * SECOND_NS, |host| gone.push(host));
    assert_eq!((gone.last(), core.usage().peers), (Some(&hosts[1]), 0));
    assert_eq!((core.usage().hosts, core.associations()), (0, 0));
}

#[test]
fn a_job_whose_key_is_used_again_after_a_minute_loses_no_message() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let (to, back) = (net.address(0, 1, 9), net.address(1, 0, 7));
    let (_, receive) = net.receive(b, selector(None, 5, 0), 10);
    let send = net.send(a, to, 5, 10);
    net.expect(1, receive, send, 10);
    assert_eq!(net.sent(0, send), Status::Ok);
    net.run(SECOND_NS);
    // The other end keeps its endpoint, and has the association.
    let now = net.now;
    let node = &mut net.nodes[0];
    node.core.close(now, a.id, &mut node.heap);
    net.now += 100 * SECOND_NS;
    let a = net.open(0, 7);
    let (_, receive) = net.receive(a, selector(None, 5, 0), 10);
    let send = net.send(b, back, 5, 10);
    net.expect(0, receive, send, 10);
    assert_eq!(net.sent(1, send), Status::Ok);
    assert_eq!(net.nodes[1].core.counters().opened, 1);
}

#[test]
fn jobs_are_bounded_and_those_without_peers_leave_at_once() {
    let mut core = Core::new(CoreConfig { incarnation: 1_000, hosts: 1, seed: [5, 6] });
    let mut heap = Heap::default();
    let key = |number: u32| {
        let mut key = KEY;
        key[..4].copy_from_slice(&number.to_be_bytes());
        Some(key)
    };
    for number in 0..3_000 {
        let endpoint = core.open(1, EndpointOptions { key: key(number), ..options(9) }).unwrap();
        core.close(1, endpoint, &mut heap);
    }
    let opened = (0..2_000u16)
        .take_while(|number| {
            let options = EndpointOptions { key: key((*number).into()), ..options(100 + number) };
            match core.open(1, options) {
                Ok(_) => true,
                Err(error) => {
                    assert_eq!(error, MessageError::TooManyJobs);
                    false
                }
            }
        })
        .count();
    assert_eq!(opened, 1_024);
}
