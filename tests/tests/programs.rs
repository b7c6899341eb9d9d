//! Unmodified programs under load on Outboard, against kernel peers and against each other.

use outboard_tests::cases::{self, Outcome};
use outboard_tests::world::Arrangement;
use outboard_tests::{load_seconds, soak_seconds, turn};

/// Faults under which everything must arrive whole.
const FAULTS: &str = "loss:1%+reorder:1%+dup:0.5%";

fn holds(test: &str, arrangement: Arrangement, impair: Option<&'static str>) {
    let Some(_turn) = turn(test) else { return };
    let only = std::env::var("OUTBOARD_TEST_ONLY").ok();
    // The load itself is held without faults; what they do shows in half of the time.
    let seconds = if impair.is_some() { load_seconds().div_ceil(2) } else { load_seconds() };
    match cases::run(arrangement, impair, seconds, 0, only.as_deref()) {
        Ok(outcomes) => cases::judge(&outcomes),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn servers_on_outboard_hold_the_load_of_kernel_clients() {
    holds("servers_on_outboard_hold_the_load_of_kernel_clients", Arrangement::TapServers, None);
}

#[test]
fn clients_on_outboard_load_kernel_servers() {
    holds("clients_on_outboard_load_kernel_servers", Arrangement::PacketClients, None);
}

#[test]
fn programs_on_outboard_hold_each_others_load() {
    holds("programs_on_outboard_hold_each_others_load", Arrangement::PacketBoth, None);
}

#[test]
fn servers_on_outboard_stay_whole_when_frames_are_lost() {
    let test = "servers_on_outboard_stay_whole_when_frames_are_lost";
    holds(test, Arrangement::TapServers, Some(FAULTS));
}

#[test]
fn programs_on_outboard_stay_whole_when_frames_are_lost() {
    let test = "programs_on_outboard_stay_whole_when_frames_are_lost";
    holds(test, Arrangement::PacketBoth, Some(FAULTS));
}

#[test]
fn servers_on_outboard_beside_the_kernel_hold_the_load_of_kernel_clients() {
    let test = "servers_on_outboard_beside_the_kernel_hold_the_load_of_kernel_clients";
    holds(test, Arrangement::XdpServers, None);
}

#[test]
fn programs_on_outboard_beside_the_kernel_stay_whole_when_frames_are_lost() {
    let test = "programs_on_outboard_beside_the_kernel_stay_whole_when_frames_are_lost";
    holds(test, Arrangement::XdpBoth, Some(FAULTS));
}

/// Ten minutes of everything and 10 GB compared under faults; writes docs/soak.md.
#[test]
#[ignore = "takes more than half an hour: make soak"]
fn soak() {
    let Some(_turn) = turn("soak") else { return };
    let seconds = soak_seconds();
    let mut outcomes: Vec<Outcome> = Vec::new();
    for arrangement in Arrangement::ALL {
        // With and without faults side by side, or it would take twice the time.
        let halves = std::thread::scope(|scope| {
            [(None, 0), (Some(FAULTS), 10_000_000_000 / 3)]
                .map(|(impair, least)| {
                    scope.spawn(move || cases::run(arrangement, impair, seconds, least, None))
                })
                .map(|half| half.join().expect("a half of the soak panicked"))
        });
        for half in halves {
            match half {
                Ok(more) => outcomes.extend(more),
                Err(failure) => panic!("{failure}"),
            }
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/soak.md");
    let head = format!(
        "# Soak\n\nWritten by `make soak`: every program for {seconds} s, all side by side, with \
         and without faults at once, each on two hosts of one core.\n"
    );
    std::fs::write(path, head + &cases::table(&outcomes)).expect("docs/soak.md is writable");
    cases::judge(&outcomes);
}
