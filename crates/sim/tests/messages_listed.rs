//! Endpoints and associations in an engine's list for observers.

#[path = "messages_common/mod.rs"]
mod common;

use std::io::IoSlice;
use std::net::SocketAddr;

use client::message::{Buffers, Endpoint, Pattern, Send};
use common::{KEY, Net, peer};
use engine::ss::SeenSocket;
use stack::message::{AssociationSummary, EndpointSummary};

#[derive(Default)]
struct Listed {
    endpoints: Vec<(SocketAddr, EndpointSummary, Option<u64>)>,
    associations: Vec<(SocketAddr, SocketAddr, AssociationSummary)>,
}

fn list(net: &Net, host: usize) -> Listed {
    let worker = net.hosts[host].worker.lock().unwrap();
    let (mut listed, mut place) = (Listed::default(), Some(0));
    while let Some(from) = place {
        let (seen, next) = worker.sockets_from(from);
        for one in seen {
            let session = one.session.map(|key| key.0);
            match one.socket {
                SeenSocket::Stack(_) => {}
                SeenSocket::Endpoint(address, of) => listed.endpoints.push((address, of, session)),
                SeenSocket::Association(ours, theirs, of) => {
                    listed.associations.push((ours, theirs, of));
                }
            }
        }
        place = next;
    }
    listed
}

fn send(from: &Endpoint, to: &Endpoint, tag: u64) {
    let what = Send { tag: Some(tag), ..Send::default() };
    from.send(peer(from, to), &what, &[IoSlice::new(b"message")], tag).unwrap();
}

#[test]
fn a_list_tells_endpoints_with_their_operations_and_associations_with_their_hosts() {
    let mut net = Net::new(1500);
    assert!(list(&net, 0).endpoints.is_empty());
    let (a, b) = (net.program(0), net.program(1));
    let (from, to) = (net.open(&a, 5000, KEY), net.open(&b, 5001, KEY));
    // More than a step of the list.
    let more = [net.program(1), net.program(1)];
    let others: Vec<Endpoint> =
        (0..100).map(|number| net.open(&more[number % 2], 6000 + number as u16, None)).collect();
    let mut memory = Buffers::default();
    memory.add(9, vec![0; 100]);
    to.post_recv(&Pattern { source: None, tag: Some((9, 0)) }, 100, 9).unwrap();
    (0..3).for_each(|tag| send(&from, &to, tag));
    net.until(10, "three unexpected messages", |_| to.unexpected() == 3);
    let theirs = list(&net, 1);
    assert_eq!(theirs.endpoints.len(), 1 + others.len());
    let (address, of, session) = theirs.endpoints[0];
    assert_eq!((address, session), (to.address(), Some(b.key.0)));
    assert_eq!((of.is_open, of.peers), (true, 1));
    assert_eq!((of.sends, of.receives, of.unexpected), (0, 1, 3));
    assert!(theirs.endpoints[1..].iter().all(|(_, of, _)| of.job.is_none() && of.receives == 0));
    let has_answers = |net: &mut Net| list(net, 0).endpoints[0].1.sends == 0;
    net.until(10, "an answer", has_answers);
    // The first one after it is under both epochs.
    send(&from, &to, 3);
    net.until(10, "an answer", has_answers);
    let mut verified = 0;
    for (host, other) in [(0, &to), (1, &from)] {
        let all = list(&net, host);
        let [(ours, theirs, of)] = all.associations[..] else { panic!("one association") };
        assert_eq!((ours.ip(), theirs.ip()), (net.hosts[host].address, other.address().ip()));
        assert_eq!(ours.port(), theirs.port());
        assert_eq!((of.sends, of.in_flight), (0, 0));
        verified += u32::from(of.is_verified);
        assert_eq!(Some(of.job), all.endpoints[0].1.job);
    }
    assert!(verified > 0, "a host that has had an answer knows the other's epoch");
    to.close();
    net.until(10, "its end", |net| list(net, 1).endpoints.len() == others.len());
}
