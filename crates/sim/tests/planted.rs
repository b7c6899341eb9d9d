//! Each bug that is put into the message core is found by the seeds that are known to find it.

use outboard_sim::messages::{self, MessageSettings, Planted};

/// The first seed that finds each.
const FOUND_BY: [(Planted, u64); 12] = [
    (Planted::NoResend, 1),
    (Planted::MatchOnArrival, 7),
    (Planted::EarlyAcknowledgement, 1),
    (Planted::AnsweredIgnored, 1),
    (Planted::ResumeIgnored, 1),
    (Planted::NoReservation, 20),
    (Planted::AttemptIgnored, 14),
    (Planted::LifeNotRaised, 34),
    (Planted::EpochForgotten, 46),
    (Planted::AbortUnanswered, 8),
    (Planted::GrantLeak, 1),
    (Planted::KeyIgnored, 1),
];

#[test]
fn every_planted_bug_is_found_and_only_with_the_bug() {
    for (name, bug) in Planted::ALL {
        let known = FOUND_BY.iter().find(|(found, _)| *found == bug);
        let seed = known.unwrap_or_else(|| panic!("no seed finds {name}")).1;
        let planted = Some(bug);
        let settings = MessageSettings { planted, ..MessageSettings::default() };
        assert!(messages::run(seed, settings).is_err(), "seed {seed} does not find {name}");
        messages::run(seed, MessageSettings::default()).unwrap_or_else(|fault| panic!("{fault}"));
    }
}
