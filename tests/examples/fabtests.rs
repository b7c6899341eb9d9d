//! libfabric's own tests through the provider, its quick list: `fabtests SOURCE BUILT [NAMES]`, where
//! SOURCE is the folder fabtests of libfabric's source, BUILT holds its programs as
//! scripts/fabtests builds them, and NAMES is a part of the tests' names. `make fabtests` runs both.
//!
//! Server and client run on two hosts with an engine each: over UDP, over Ethernet, and, of the list of
//! functional tests, over UDP with one packet in a hundred lost by each host's port. A test that ends with "no data" or "not
//! implemented" on both is not applicable, as for runfabtests.sh; shown is what the provider lacks.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use lab::failure::{Explain, Failure, Result};
use lab::{Finished, Side, Task, listens, require_root};
use outboard_tests::world::{Arrangement, CLIENTS, SERVERS, World};

/// Longest time for a test, as for runfabtests.sh.
const LIMIT: Duration = Duration::from_secs(120);
/// Longest time until a server waits for its client.
const START: Duration = Duration::from_secs(2);
/// Where fabtests' servers listen when they do over TCP.
const PORT: u16 = 9228;
/// Statuses of a program whose provider lacks something: ENODATA, ENOSYS.
const LACKING: [i32; 2] = [61, 38];

/// How a list's tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One program.
    Unit,
    /// One program, which must find no provider.
    Negative,
    /// A server and a client.
    Pair,
}

/// The lists of runfabtests.sh that "quick" names, in its order.
const LISTS: [(&str, Kind); 4] = [
    ("unit_tests", Kind::Unit),
    ("neg_unit_tests", Kind::Negative),
    ("functional_tests", Kind::Pair),
    ("short_tests", Kind::Pair),
];

/// What the hosts exchange messages by.
struct Network {
    name: &'static str,
    settings: &'static str,
    impair: Option<&'static str>,
    /// The lists that run over it; empty: all.
    lists: &'static [&'static str],
}

const NETWORKS: [Network; 3] = [
    Network { name: "UDP", settings: "", impair: None, lists: &[] },
    Network {
        name: "Ethernet",
        settings: "[messages]\nencapsulation = \"ethernet\"\n",
        impair: None,
        lists: &[],
    },
    Network {
        name: "UDP with loss",
        settings: "",
        impair: Some("loss:1%"),
        lists: &["functional_tests"],
    },
];

#[derive(Debug)]
enum Outcome {
    Pass,
    /// With what is lacking.
    NotApplicable(String),
    /// With what was said.
    Fail(String),
}

fn main() -> Result<ExitCode> {
    require_root("fabtests")?;
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let usage = || Failure::new("fabtests SOURCE BUILT [NAMES]", "run it by \"make fabtests\"");
    let source = arguments.next().ok_or_else(usage)?;
    let built = arguments.next().ok_or_else(usage)?;
    let part = arguments.next().unwrap_or_default();
    let script = source.join("scripts/runfabtests.sh");
    let script = std::fs::read_to_string(&script)
        .explain(format!("cannot read {}", script.display()), "name libfabric's folder fabtests")?;
    let part = part.to_string_lossy();
    let mut all_failed = 0;
    for network in &NETWORKS {
        println!("-- {}", network.name);
        all_failed += run_over(network, &script, &built, &part)?;
    }
    Ok(if all_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the tests whose names have `part` over one network, and gives how many failed.
fn run_over(network: &Network, script: &str, built: &Path, part: &str) -> Result<u32> {
    let bench = Bench::new(network, built)?;
    let (mut passed, mut lacking, mut failed) = (0, 0, 0);
    let is_run = |list: &str| network.lists.is_empty() || network.lists.contains(&list);
    for (list, kind) in LISTS.into_iter().filter(|(list, _)| is_run(list)) {
        for test in tests_of(script, list).filter(|test| test.contains(part)) {
            match bench.run(test, kind)? {
                Outcome::Pass => {
                    passed += 1;
                    println!("pass            {test}");
                }
                Outcome::NotApplicable(what) => {
                    lacking += 1;
                    println!("not applicable  {test}: {what}");
                }
                Outcome::Fail(said) => {
                    failed += 1;
                    println!("FAIL            {test}\n{said}");
                }
            }
        }
    }
    println!("{}: {passed} passed, {failed} failed, {lacking} not applicable", network.name);
    bench.check(network)?;
    Ok(failed)
}

/// The tests of one list of the script.
fn tests_of<'a>(script: &'a str, list: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!("\n{list}=(\n");
    let body = script.split_once(&begin).and_then(|(_, rest)| rest.split_once("\n)"));
    let body = body.map_or("", |(body, _)| body);
    body.lines().map(|line| line.trim().trim_matches('"'))
}

/// The hosts and what runs on them.
struct Bench {
    world: World,
    built: PathBuf,
    providers: PathBuf,
}

impl Bench {
    fn new(network: &Network, built: &Path) -> Result<Self> {
        let world = World::configured(Arrangement::XdpBoth, network.impair, network.settings)?;
        let providers = world.executable().with_file_name("fabric");
        if !providers.join("liboutboard-fi.so").exists() {
            let missing = format!("{} has no provider", providers.display());
            return Err(Failure::new(missing, "build it with `make build`"));
        }
        Ok(Self { world, built: built.to_owned(), providers })
    }

    /// Says what carried the messages, and fails if it was not what the network is.
    fn check(&self, network: &Network) -> Result<()> {
        let stats = self.world.observe(Side::B)?.stats()?;
        let all = stats.counter("messages_rx_frames");
        let frames = stats.counter("messages_rx_ethernet");
        println!("{}: {all} packets received, {frames} in Ethernet frames", network.name);
        if (frames > all / 2) != (network.name == "Ethernet") {
            let cause = format!("{frames} of {all} packets came in Ethernet frames");
            return Err(Failure::new(cause, "see [messages] in docs/configuration.md"));
        }
        Ok(())
    }

    fn task(&self, side: Side, test: &str) -> Task {
        let mut words = test.split_whitespace();
        let program = self.built.join(words.next().unwrap_or_default());
        Task::new(program)
            .args(words)
            .args(["-p", "outboard"])
            .env("FI_PROVIDER_PATH", &self.providers)
            .env("FI_LOG_LEVEL", "info")
            .env("FI_LOG_PROV", "outboard")
            .env("FI_OUTBOARD_KEY", "00112233445566778899aabbccddeeff")
            .env("OUTBOARD_SOCKET", self.world.socket(side))
    }

    fn run(&self, test: &str, kind: Kind) -> Result<Outcome> {
        if kind != Kind::Pair {
            let server = SERVERS.to_string();
            let line = test.replace("GOOD_ADDR", &server).replace("SERVER_ADDR", &server);
            let finished = self.world.lab.start(Side::B, self.task(Side::B, &line))?;
            let finished = match finished.wait(LIMIT) {
                Ok(finished) => finished,
                Err(failure) => return Ok(Outcome::Fail(failure.to_string())),
            };
            if kind == Kind::Negative {
                return Ok(match finished.status.code() {
                    Some(code) if code == LACKING[0] => Outcome::Pass,
                    _ => Outcome::Fail(said(&finished)),
                });
            }
            return Ok(judge(&[finished]));
        }
        let task = self.task(Side::B, test).args(["-s", &SERVERS.to_string()]);
        let mut server = self.world.lab.start(Side::B, task)?;
        // Servers that need no TCP just wait; the client asks until they are there.
        let _ = server.until(START, |server| listens(server.pid(), PORT));
        let task =
            self.task(Side::A, test).args(["-s", &CLIENTS.to_string(), &SERVERS.to_string()]);
        let client = match self.world.lab.start(Side::A, task)?.wait(LIMIT) {
            Ok(client) => client,
            // The server ends as it is dropped.
            Err(failure) => return Ok(Outcome::Fail(failure.to_string())),
        };
        let limit = if client.status.success() { LIMIT } else { START };
        Ok(match server.wait(limit) {
            Ok(server) => judge(&[client, server]),
            Err(failure) if client.status.success() => Outcome::Fail(failure.to_string()),
            Err(_) => judge(&[client]),
        })
    }
}

fn judge(ends: &[Finished]) -> Outcome {
    let is_lacking = |end: &Finished| end.status.code().is_some_and(|code| LACKING.contains(&code));
    if ends.iter().all(|end| end.status.success()) {
        Outcome::Pass
    } else if ends.iter().all(is_lacking) {
        Outcome::NotApplicable(reason(&ends[0]))
    } else {
        Outcome::Fail(ends.iter().map(said).collect())
    }
}

/// What the provider said of what it lacks, or the test of what failed.
fn reason(end: &Finished) -> String {
    let all = format!("{}\n{}", end.output, end.errors);
    let mut from_provider = all.lines().filter_map(|line| line.split_once("<info> "));
    let mine = from_provider.rfind(|(place, _)| place.contains(":outboard:"));
    let otherwise = all.lines().rev().find(|line| !line.trim().is_empty());
    mine.map(|(_, reason)| reason).or(otherwise).unwrap_or("nothing said").to_owned()
}

/// The last lines of a program.
fn said(end: &Finished) -> String {
    let all = format!("{}\n{}", end.output, end.errors);
    let lines: Vec<&str> = all.lines().collect();
    let last = lines[lines.len().saturating_sub(15)..].join("\n    ");
    format!("  {}\n    {last}\n", end.status)
}
