//! A session in a forked child, where its region is not mapped.

use outboard_client::{Endpoint, Errno, OptionName, Readiness, Session};
use shm::fork::status_of_child;

use crate::connected;
use crate::mini::Mini;

/// Everything that a child may ask of its parent's session; the number of the first answer that is wrong.
fn first_wrong(session: &Session, endpoint: &Endpoint) -> u8 {
    let known = "10.9.0.4".parse().unwrap();
    let _ = (session.owns(known), session.reaches(known), session.way_to(known));
    let _ = (session.why_not_reached(known), session.first_own(false), session.mtu_of(1));
    if session.reach() != 0 {
        return 1;
    }
    if session.engine_shares_cpu() {
        return 2;
    }
    if session.wait_until(None, || false) != Err(Errno::NOTSUP) {
        return 3;
    }
    if session.arm() {
        return 4;
    }
    session.disarm();
    u8::from(endpoint.option(OptionName::Nodelay).is_ok()) * 5
}

/// A child ended with SIGSEGV where it asked for addresses or waited, and by dropping the session unmapped
/// what it had mapped in the region's place.
#[test]
fn a_child_can_ask_and_drop_its_parents_session() {
    let (_mini, session) = Mini::start(true);
    let endpoint = connected(&session);
    let mut held = Some((session, endpoint));
    let status = status_of_child(|| {
        let Some((session, endpoint)) = held.take() else { return u8::MAX };
        let wrong = first_wrong(&session, &endpoint);
        // The last of both in the child.
        drop((endpoint, session));
        wrong
    })
    .unwrap();
    assert_eq!(status, 0, "signal {}, wrong answer {}", status & 127, status >> 8);
    let (session, endpoint) = held.unwrap();
    // The parent's is as it was.
    assert!(session.is_mine() && session.owns("10.9.0.4".parse().unwrap()));
    assert!(!endpoint.readiness().contains(Readiness::ERR));
}
