//! Programs over libfabric: through the provider, on two hosts with an engine each.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lab::{Finished, Side, Task, listens};
use outboard_tests::held::{counter, holds_nothing};
use outboard_tests::mpi::{Jobs, Transport};
use outboard_tests::turn;
use outboard_tests::world::{Arrangement, SERVERS, World};
use rustix::process::{Pid, Signal, kill_process};

/// Longest time for a program, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// Where fi_pingpong's server listens for its client, over TCP.
const PINGPONG_PORT: u16 = 47592;
/// A job's key.
const KEY: &str = "00112233445566778899aabbccddeeff";

/// Two hosts with an engine each, on addresses that they share with the kernel.
fn world() -> World {
    World::new(Arrangement::XdpBoth, None).expect("two hosts")
}

/// A directory with the provider in it, as libfabric wants it.
fn provider(world: &World) -> PathBuf {
    let directory = world.lab.scratch().join("fabric");
    let built = world.executable().with_file_name("liboutboard_fi.so");
    assert!(built.is_file(), "{} is missing: make build", built.display());
    std::fs::create_dir(&directory).expect("a directory");
    std::os::unix::fs::symlink(built, directory.join("liboutboard-fi.so")).expect("a link");
    directory
}

/// A libfabric program with the provider and its host's engine.
fn over_fabric(world: &World, side: Side, line: &str, directory: &Path) -> Task {
    Task::words(line)
        .env("FI_PROVIDER_PATH", directory)
        .env("FI_OUTBOARD_KEY", KEY)
        .env("OUTBOARD_SOCKET", world.socket(side))
}

/// Frames of messages that a host's engine has received from other hosts.
fn received(world: &World, side: Side) -> u64 {
    counter(world, side, "messages_rx_frames")
}

fn succeeded(finished: lab::failure::Result<Finished>) -> String {
    let finished = finished.and_then(Finished::success).expect("it succeeds");
    finished.output
}

#[test]
fn the_provider_is_listed_where_an_engine_answers_and_nowhere_else() {
    let Some(_turn) = turn("the_provider_is_listed_where_an_engine_answers") else { return };
    let world = world();
    let directory = provider(&world);
    let task = over_fabric(&world, Side::A, "fi_info -p outboard", &directory);
    let listed = succeeded(world.lab.start(Side::A, task).expect("fi_info").wait(PATIENCE));
    assert!(listed.contains("provider: outboard"), "{listed}");
    assert!(listed.contains("FI_EP_RDM"), "{listed}");
    let without = over_fabric(&world, Side::A, "fi_info -p outboard", &directory)
        .env("OUTBOARD_SOCKET", world.lab.scratch().join("nothing.sock"))
        .env("FI_LOG_LEVEL", "info");
    let finished = world.lab.start(Side::A, without).expect("fi_info").wait(PATIENCE);
    let finished = finished.expect("it ends");
    assert!(!finished.status.success(), "no engine, no provider");
    let said = finished.output + &finished.errors;
    assert!(said.contains("no engine answers"), "{said}");
}

#[test]
fn fi_pingpong_goes_through_both_engines() {
    let Some(_turn) = turn("fi_pingpong_goes_through_both_engines") else { return };
    let world = world();
    let directory = provider(&world);
    let line = "fi_pingpong -p outboard -e rdm -I 100";
    let before = Side::BOTH.map(|side| received(&world, side));
    let task = over_fabric(&world, Side::B, line, &directory);
    let mut server = world.lab.start(Side::B, task).expect("a server");
    server.until(PATIENCE, |server| listens(server.pid(), PINGPONG_PORT)).expect("it listens");
    let line = format!("{line} {SERVERS}");
    let task = over_fabric(&world, Side::A, &line, &directory);
    let shown = succeeded(world.lab.start(Side::A, task).expect("a client").wait(PATIENCE));
    // Its sizes: 64 bytes to a mebibyte.
    assert!(shown.lines().any(|line| line.starts_with("1m")), "{shown}");
    succeeded(server.wait(PATIENCE));
    for (side, before) in Side::BOTH.into_iter().zip(before) {
        let more = received(&world, side) - before;
        assert!(more >= 600, "{side:?}: {more} frames through the engine");
    }
}

/// Compiles a program of the tests.
fn compiled(world: &World, compiler: &str, name: &str, libraries: &[&str]) -> PathBuf {
    let program = world.lab.scratch().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("programs/{name}.c"));
    let mut command = Command::new(compiler);
    command.args(["-O1", "-Wall", "-o"]).arg(&program).arg(source).args(libraries);
    let output = command.output().expect("a compiler: scripts/setup programs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

#[test]
fn injected_messages_are_counted_when_they_are_delivered() {
    let Some(_turn) = turn("injected_messages_are_counted_when_they_are_delivered") else { return };
    let world = world();
    let directory = provider(&world);
    let program = compiled(&world, "cc", "inject", &["-lfabric"]);
    let task = |side, words: &str| {
        let line = format!("{} {words}", program.display());
        over_fabric(&world, side, &line, &directory)
    };
    // From another host, and on one.
    for side in Side::BOTH {
        let mut server = world.lab.start(Side::B, task(Side::B, "serve")).expect("a server");
        server.until(PATIENCE, |server| server.output().contains('\n')).expect("an address");
        let line = format!("send {}", server.output());
        let client = world.lab.start(side, task(side, &line)).expect("a client");
        let said = client.wait(PATIENCE).expect("it ends");
        assert!(said.status.success(), "{side:?}: {}", said.errors);
        succeeded(server.wait(PATIENCE));
    }
}

#[test]
fn an_mpi_program_runs_on_the_engines_of_two_hosts() {
    let Some(_turn) = turn("an_mpi_program_runs_on_the_engines_of_two_hosts") else { return };
    let world = world();
    let program = compiled(&world, "mpicc", "mpi", &[]);
    let before = Side::BOTH.map(|side| received(&world, side));
    let jobs = Jobs::new(&world).expect("an agent for mpirun");
    let task = jobs.task(Transport::Outboard, 4).arg(&program);
    let mpi = world.lab.start(Side::A, task).expect("mpirun");
    let said = succeeded(mpi.wait(PATIENCE));
    for rank in 0..4 {
        assert!(said.contains(&format!("rank {rank} of 4 is right")), "{said}");
    }
    for (side, before) in Side::BOTH.into_iter().zip(before) {
        let more = received(&world, side) - before;
        assert!(more >= 200, "{side:?}: {more} frames through the engine");
    }
}

/// The processes of a job's ranks, by rank.
fn ranks(said: &str) -> Vec<Option<i32>> {
    let pid = |rank: usize| {
        let mark = format!("rank {rank} is process ");
        let line = said.lines().find_map(|line| line.strip_prefix(&mark))?;
        line.trim().parse().ok()
    };
    (0..4).map(pid).collect()
}

#[test]
fn a_job_ends_with_a_rank_that_is_killed_and_leaves_nothing() {
    let Some(_turn) = turn("a_job_ends_with_a_rank_that_is_killed") else { return };
    let world = world();
    let program = compiled(&world, "mpicc", "mpi", &[]);
    let jobs = Jobs::new(&world).expect("an agent for mpirun");
    let task = jobs.task(Transport::Outboard, 4).arg(&program).arg("forever");
    let mut mpi = world.lab.start(Side::A, task).expect("mpirun");
    mpi.until(PATIENCE, |mpi| ranks(&mpi.output()).iter().all(Option::is_some)).expect("ranks");
    for side in Side::BOTH {
        let before = received(&world, side);
        mpi.until(PATIENCE, |_| received(&world, side) > before + 100).expect("messages");
        let executable = world.executable().to_str().expect("a path").to_owned();
        let socket = world.socket(side).to_str().expect("a path").to_owned();
        let words = [executable.as_str(), "ss", "--json", "--socket", socket.as_str()];
        let shown = world.lab.inside(side, &words).expect("ss");
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        let endpoints = shown["message_endpoints"].as_array().expect("a list");
        let of_job = |one: &&serde_json::Value| one["job"] == shown["associations"][0]["job"];
        assert_eq!(endpoints.iter().filter(of_job).count(), 2, "{shown}");
    }
    let last = ranks(&mpi.output())[3].and_then(Pid::from_raw).expect("a process");
    kill_process(last, Signal::KILL).expect("a rank");
    let finished = mpi.wait(PATIENCE).expect("the job ends");
    assert!(!finished.status.success(), "{}", finished.output);
    Side::BOTH.into_iter().for_each(|side| holds_nothing(&world, side));
}

#[test]
fn outboard_mpi_names_the_host_that_lacks_an_engine_and_starts_no_rank() {
    let Some(_turn) = turn("outboard_mpi_names_the_host_that_lacks_an_engine") else { return };
    let mut world = world();
    world.kill_engine(Side::B);
    let jobs = Jobs::new(&world).expect("an agent for mpirun");
    let task = jobs.task(Transport::Outboard, 4).args(["echo", "started"]);
    let finished = world.lab.start(Side::A, task).expect("mpirun").wait(PATIENCE).expect("an end");
    assert!(!finished.status.success(), "{}", finished.output);
    let socket = world.socket(Side::B).display().to_string();
    let mut lines = finished.errors.lines();
    let named = lines.any(|line| line.contains("host b:") && line.contains(&socket));
    assert!(named, "{}", finished.errors);
    assert!(!finished.output.contains("started"), "{}", finished.output);
}

#[test]
fn outboard_mpi_tells_before_mpirun_starts_that_no_engine_answers() {
    let executable = outboard_tests::world::executable().expect("built");
    let output = Command::new(executable)
        .args(["mpi", "--socket", "/nonexistent/engine.sock", "--", "mpirun", "true"])
        .output()
        .expect("outboard");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("/nonexistent/engine.sock"), "{said}");
}
