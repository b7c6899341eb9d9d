//! Socket behaviour, compared: the same program prints what it sees on kernel sockets and under the
//! library, and must print the same.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lab::{Lab, Program, Side, Task, listens};
use outboard_tests::turn;
use outboard_tests::world::{Arrangement, CLIENTS, CLIENTS_KERNEL, SERVERS, SERVERS_KERNEL, World};

const PATIENCE: Duration = Duration::from_secs(60);
const PORT: u16 = 15001;

/// Compiles a C program of `tests/posix` into the lab's scratch directory.
fn compiled(lab: &Lab, name: &str) -> PathBuf {
    let source = format!("{}/posix/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let program = lab.scratch().join(name);
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-Wno-unused-result", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .output()
        .expect("cc runs: install gcc");
    assert!(compiled.status.success(), "{source}: {}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// What a probe prints until it ends.
fn told(probe: Program) -> String {
    let finished = probe.wait(PATIENCE).expect("the probe ends");
    let (output, errors) = (&finished.output, &finished.errors);
    assert!(finished.status.success(), "{}: {output}{errors}", finished.status);
    finished.output
}

/// The peer of a probe on host `side`.
fn with_peer(world: &World, side: Side) -> Program {
    let peer = Task::new(compiled(&world.lab, "peer")).arg(PORT.to_string());
    let mut peer = world.lab.start(side.other(), peer).expect("the peer starts");
    peer.until(PATIENCE, |peer| listens(peer.pid(), PORT)).expect("the peer listens");
    peer
}

/// Counters that grow where the engine carries what a probe does.
fn carried_by(program: &str) -> &'static [&'static str] {
    const STREAM: [&str; 2] = ["stream_rx_bytes", "stream_tx_bytes"];
    match program {
        "ancillary" => &["datagrams_rx", "datagrams_tx"],
        "connects" => &["tcp_active_opens"],
        "handing" => {
            &["stream_rx_bytes", "stream_tx_bytes", "accepts", "heirs_total", "passed_total"]
        }
        "probe" => {
            &["stream_rx_bytes", "stream_tx_bytes", "datagrams_rx", "datagrams_tx", "accepts"]
        }
        _ => &STREAM,
    }
}

/// Runs a program twice on the accelerated host, on the engine and on the kernel.
fn compare(test: &str, program: &str, arrangement: Arrangement) {
    let Some(_turn) = turn(test) else { return };
    // The other host has an address for either.
    let (side, on_engine, on_kernel) = match arrangement.accelerates(Side::A) {
        true => (Side::A, SERVERS, SERVERS_KERNEL),
        false => (Side::B, CLIENTS, CLIENTS_KERNEL),
    };
    let world = match program {
        "handing" => World::with_relay(arrangement),
        _ => World::new(arrangement, None),
    };
    let world = world.expect("a world");
    let _peer = with_peer(&world, side);
    let probe = compiled(&world.lab, program);
    let to = |peer: Ipv4Addr| Task::new(&probe).args([peer.to_string(), PORT.to_string()]);
    // Side by side, as most of what they do is waiting; each has an address of its own.
    let kernel = world.lab.start(side, to(on_kernel)).expect("a probe");
    let engine = world.start(side, to(on_engine)).expect("a probe");
    let (kernel, engine) = (told(kernel), told(engine));
    let stats = world.observe(side).and_then(|mut observer| observer.stats());
    let stats = stats.expect("the engine answers");
    for name in carried_by(program) {
        assert!(stats.counter(name) > 0, "{program} went past the engine: {name} is 0");
    }
    let differences: Vec<String> = kernel
        .lines()
        .zip(engine.lines())
        .filter(|(kernel, engine)| kernel != engine)
        .map(|(kernel, engine)| format!("kernel   {kernel}\noutboard {engine}"))
        .collect();
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
    assert_eq!(kernel.lines().count(), engine.lines().count());
}

#[test]
fn sockets_behave_as_the_kernels_on_a_packet_port() {
    compare("sockets_behave_as_the_kernels_on_a_packet_port", "probe", Arrangement::PacketClients);
}

#[test]
fn sockets_behave_as_the_kernels_on_a_tap() {
    compare("sockets_behave_as_the_kernels_on_a_tap", "probe", Arrangement::TapServers);
}

#[test]
fn streams_say_what_the_kernels_say_on_a_packet_port() {
    compare(
        "streams_say_what_the_kernels_say_on_a_packet_port",
        "streams",
        Arrangement::PacketClients,
    );
}

#[test]
fn streams_say_what_the_kernels_say_on_a_tap() {
    compare("streams_say_what_the_kernels_say_on_a_tap", "streams", Arrangement::TapServers);
}

#[test]
fn connections_are_opened_and_given_up_as_the_kernels_on_a_packet_port() {
    compare(
        "connections_are_opened_and_given_up_as_the_kernels_on_a_packet_port",
        "connects",
        Arrangement::PacketClients,
    );
}

#[test]
fn connections_are_opened_and_given_up_as_the_kernels_on_a_tap() {
    compare(
        "connections_are_opened_and_given_up_as_the_kernels_on_a_tap",
        "connects",
        Arrangement::TapServers,
    );
}

#[test]
fn options_are_taken_and_told_as_the_kernels_on_a_packet_port() {
    compare(
        "options_are_taken_and_told_as_the_kernels_on_a_packet_port",
        "options",
        Arrangement::PacketClients,
    );
}

#[test]
fn tcp_info_tells_what_the_kernels_tells_on_a_packet_port() {
    compare(
        "tcp_info_tells_what_the_kernels_tells_on_a_packet_port",
        "numbers",
        Arrangement::PacketClients,
    );
}

#[test]
fn signals_tell_what_the_kernels_tell_on_a_packet_port() {
    compare(
        "signals_tell_what_the_kernels_tell_on_a_packet_port",
        "signals",
        Arrangement::PacketClients,
    );
}

#[test]
fn datagrams_say_what_the_kernels_say_on_a_packet_port() {
    compare(
        "datagrams_say_what_the_kernels_say_on_a_packet_port",
        "ancillary",
        Arrangement::PacketClients,
    );
}

#[test]
fn datagrams_say_what_the_kernels_say_on_a_tap() {
    compare("datagrams_say_what_the_kernels_say_on_a_tap", "ancillary", Arrangement::TapServers);
}

#[test]
fn datagrams_say_what_the_kernels_say_on_a_shared_interface() {
    compare(
        "datagrams_say_what_the_kernels_say_on_a_shared_interface",
        "ancillary",
        Arrangement::XdpServers,
    );
}

#[test]
fn times_are_told_as_the_kernels_on_a_packet_port() {
    compare("times_are_told_as_the_kernels_on_a_packet_port", "times", Arrangement::PacketClients);
}

#[test]
fn times_are_told_as_the_kernels_on_a_shared_interface() {
    compare(
        "times_are_told_as_the_kernels_on_a_shared_interface",
        "times",
        Arrangement::XdpServers,
    );
}

#[test]
fn threads_are_cancelled_as_over_the_kernels_on_a_packet_port() {
    compare(
        "threads_are_cancelled_as_over_the_kernels_on_a_packet_port",
        "cancelling",
        Arrangement::PacketClients,
    );
}

#[test]
fn threads_are_cancelled_as_over_the_kernels_on_a_tap() {
    compare(
        "threads_are_cancelled_as_over_the_kernels_on_a_tap",
        "cancelling",
        Arrangement::TapServers,
    );
}

#[test]
fn calls_outlive_their_descriptors_as_over_the_kernels_on_a_packet_port() {
    compare(
        "calls_outlive_their_descriptors_as_over_the_kernels_on_a_packet_port",
        "threads",
        Arrangement::PacketClients,
    );
}

#[test]
fn calls_outlive_their_descriptors_as_over_the_kernels_on_a_shared_interface() {
    compare(
        "calls_outlive_their_descriptors_as_over_the_kernels_on_a_shared_interface",
        "threads",
        Arrangement::XdpServers,
    );
}

#[test]
fn inherited_sets_tell_what_the_kernels_tell_on_a_packet_port() {
    compare(
        "inherited_sets_tell_what_the_kernels_tell_on_a_packet_port",
        "forking",
        Arrangement::PacketClients,
    );
}

#[test]
fn inherited_sets_tell_what_the_kernels_tell_on_a_tap() {
    compare(
        "inherited_sets_tell_what_the_kernels_tell_on_a_tap",
        "forking",
        Arrangement::TapServers,
    );
}

/// PostgreSQL, sshd, rsync, inetd and Node pass their connections on in these ways.
#[test]
fn connections_are_shared_and_passed_as_the_kernels_on_a_packet_port() {
    compare(
        "connections_are_shared_and_passed_as_the_kernels_on_a_packet_port",
        "handing",
        Arrangement::PacketClients,
    );
}

#[test]
fn connections_are_shared_and_passed_as_the_kernels_on_a_tap() {
    compare(
        "connections_are_shared_and_passed_as_the_kernels_on_a_tap",
        "handing",
        Arrangement::TapServers,
    );
}

/// libuv closes by number: the next file under it was read and written over the network.
#[test]
fn calls_by_number_do_what_the_kernels_do_on_a_packet_port() {
    compare(
        "calls_by_number_do_what_the_kernels_do_on_a_packet_port",
        "raw",
        Arrangement::PacketClients,
    );
}

/// Bad addresses in messages ended programs, also those on the kernel's own sockets.
#[test]
fn bad_addresses_fail_as_the_kernels_on_a_packet_port() {
    compare(
        "bad_addresses_fail_as_the_kernels_on_a_packet_port",
        "faults",
        Arrangement::PacketClients,
    );
}

/// The address is the engine's alone, so that nothing is reached without it.
#[test]
fn a_relative_socket_is_found_after_a_change_of_directory() {
    let name = "a_relative_socket_is_found_after_a_change_of_directory";
    let Some(_turn) = turn(name) else { return };
    let world = World::new(Arrangement::PacketClients, None).expect("a world");
    let _peer = with_peer(&world, Side::A);
    let probe = compiled(&world.lab, "numbers");
    let (scratch, executable) = (world.lab.scratch().display(), world.executable().display());
    let probe = format!("cd / && exec {} {SERVERS} {PORT}", probe.display());
    let line = format!("cd {scratch} && exec {executable} run --socket a.sock sh -c '{probe}'");
    let probe = world.lab.start(Side::A, Task::new("sh").args(["-c", &line])).expect("a probe");
    assert!(told(probe).contains("exchange: "));
}

#[test]
fn without_a_relay_a_connection_is_not_passed_on() {
    let Some(_turn) = turn("without_a_relay_a_connection_is_not_passed_on") else { return };
    let world = World::new(Arrangement::PacketClients, None).expect("a world");
    let _peer = with_peer(&world, Side::A);
    let probe =
        Task::new(compiled(&world.lab, "passing")).args([SERVERS.to_string(), PORT.to_string()]);
    let output = told(world.start(Side::A, probe).expect("a probe"));
    let expected = "passed: alone EOPNOTSUPP\n\
                    passed: among others 1\n\
                    passed: first of several EOPNOTSUPP\n\
                    passed: came 1 then EAGAIN\n\
                    passed: goes on 1 1\n";
    assert_eq!(output, expected);
}
