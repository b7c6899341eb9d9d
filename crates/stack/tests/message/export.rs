//! A core goes on as what it was exported as. The simulator does the same at random moments.

use outboard_stack::ImportError;
use outboard_stack::message::*;

use crate::net::{Fate, Net, selector};

#[test]
fn an_import_goes_on_in_the_middle_of_messages() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let to = net.address(0, 1, 9);
    let mut count = 0;
    net.judge = Box::new(move |_, _| {
        count += 1;
        if count % 7 == 0 { Fate::Lost } else { Fate::Arrives }
    });
    let sends: Vec<u64> = (0..10).map(|at| net.send(a, to, 5, at * 10_000)).collect();
    for (at, send) in sends.iter().enumerate() {
        let length = at as u32 * 10_000;
        let (_, receive) = net.receive(b, selector(None, 5, 0), length);
        for _ in 0..5 {
            net.step();
            for node in &mut net.nodes {
                let bytes = node.core.export();
                node.core = Core::import(&bytes).unwrap();
                assert!(bytes == node.core.export(), "the second export differs");
            }
        }
        net.expect(1, receive, *send, length);
        assert_eq!(net.sent(0, *send), Status::Ok);
    }
    assert_eq!(net.nodes[0].core.counters().opened, 1);
    net.assert_clean();
}

#[test]
fn exports_that_are_not_whole_are_refused() {
    let mut net = Net::new(2);
    let a = net.open(0, 7);
    let to = net.address(0, 1, 9);
    net.send(a, to, 5, 100_000);
    net.run(100_000);
    let bytes = net.nodes[0].core.export();
    assert!(Core::import(&bytes).is_ok());
    assert_eq!(Core::import(b"OBst").err(), Some(ImportError::Foreign));
    let mut newer = bytes.clone();
    newer[4] += 1;
    let found = u32::from(newer[4]);
    assert_eq!(Core::import(&newer).err(), Some(ImportError::Version { found, known: found - 1 }));
    for at in (8..bytes.len()).step_by(bytes.len() / 50) {
        assert_eq!(Core::import(&bytes[..at]).err(), Some(ImportError::Damaged), "cut at {at}");
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        assert_eq!(Core::import(&damaged).err(), Some(ImportError::Damaged), "damaged at {at}");
    }
}
