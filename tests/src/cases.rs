//! The programs and the loads under which they must hold.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use lab::failure::{Explain, Failure, Result};
use lab::nginx;
use lab::{Finished, Program, Side, Task, parse};

use crate::joined::PATIENCE;
use crate::world::{Arrangement, PYTHON, SERVERS, World, scripted};

/// Port of the sockperf server that speaks UDP, which no listing of listeners shows.
const SOCKPERF_UDP: u16 = 11112;

/// A server, a client that loads it, and how to judge the client's output.
struct Case {
    name: &'static str,
    /// TCP port on which the server listens once it is ready.
    ready: u16,
    server: Task,
    client: Task,
    judge: fn(&Finished) -> Result<String>,
    /// Whether it makes sense on a network that loses frames.
    bears_loss: bool,
}

/// How a case went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The case.
    pub name: &'static str,
    /// What it belongs to: cases with the same heading that follow each other make one table.
    pub heading: String,
    /// What was achieved, or what went wrong.
    pub result: Result<String>,
}

/// Size of the file that is fetched and compared.
const FILE_BYTES: usize = 8 << 20;

/// What a load of a few seconds brings at least, beside all others and faults. A machine that is busy
/// otherwise brings a hundred times as much.
const MIN_REQUESTS: u64 = 100;
const MIN_BYTES: u64 = 1_000_000;
const MIN_ROUND_TRIPS: u64 = 100;
/// UDP's loss, percent: what a receiver that shares its core with all other cases has no time to take.
const MAX_LOST_PERCENT: f64 = 60.0;

fn at_least(what: &str, found: u64, least: u64) -> Result<String> {
    if found < least {
        return Err(Failure::new(
            format!("{found} {what}, and {least} are the least"),
            "capture the port (outboard pcap)",
        ));
    }
    Ok(format!("{found} {what}"))
}

/// What a script of the tests says at its end.
pub fn last_line(finished: &Finished) -> Result<String> {
    Ok(finished.output.lines().last().unwrap_or_default().to_string())
}

fn judge_wrk(finished: &Finished) -> Result<String> {
    let result = parse::wrk(&finished.output)?;
    match result.errors {
        0 => at_least("requests", result.requests, MIN_REQUESTS),
        errors => {
            Err(Failure::new(format!("wrk counted {errors} errors"), "look into nginx's error log"))
        }
    }
}

fn judge_iperf(finished: &Finished) -> Result<String> {
    let result = parse::iperf3(&finished.output)?;
    at_least("bytes", result.bytes, MIN_BYTES)?;
    if let Some(lost) = result.lost_percent.filter(|lost| *lost > MAX_LOST_PERCENT) {
        return Err(Failure::new(
            format!("{lost:.2}% of the datagrams were lost, and {MAX_LOST_PERCENT}% are the most"),
            "look for the counter of what was dropped (outboard stats)",
        ));
    }
    let lost = result.lost_percent.map_or(String::new(), |lost| format!(", {lost:.2}% lost"));
    Ok(format!("{:.2} GB{lost}", result.bytes as f64 / 1e9))
}

fn judge_sockperf(finished: &Finished) -> Result<String> {
    let result = parse::sockperf(&finished.output)?;
    match result.dropped + result.disorders {
        0 => at_least("round trips", result.received, MIN_ROUND_TRIPS),
        errors => Err(Failure::new(
            format!("sockperf counted {errors} messages lost, repeated or out of order"),
            "capture the port (outboard pcap)",
        )),
    }
}

/// Datagrams may be lost, but arrive once and in order on a network that does not shuffle them. How many
/// there is time for is the machine's matter; that hardly any come back is not.
fn judge_datagrams(finished: &Finished) -> Result<String> {
    let result = parse::sockperf(&finished.output)?;
    if result.disorders > 0 || result.received < result.dropped / 9 {
        return Err(Failure::new(
            format!(
                "sockperf received {} datagrams, missed {} and counted {} repeated or out of order",
                result.received, result.dropped, result.disorders
            ),
            "capture the port (outboard pcap)",
        ));
    }
    Ok(format!("{} round trips, {} lost", result.received, result.dropped))
}

/// Writes a file of some megabytes and gives its checksum.
pub fn file_to_fetch(path: &Path) -> Result<String> {
    let content: Vec<u8> = (0..FILE_BYTES as u32).map(|n| (n ^ (n >> 9)) as u8).collect();
    std::fs::write(path, content)
        .explain("cannot write the file to fetch", "make room in TMPDIR")?;
    let sum = std::process::Command::new("sha256sum")
        .arg(path)
        .output()
        .explain("cannot run sha256sum", "install coreutils")?;
    let sum = String::from_utf8_lossy(&sum.stdout);
    Ok(sum.split(' ').next().unwrap_or_default().to_owned())
}

/// All cases, with `seconds` of load each.
fn cases(world: &World, seconds: u32, least_bytes: u64) -> Result<Vec<Case>> {
    let lab = &world.lab;
    let address = SERVERS.to_string();
    let nginx = nginx::configure(&address, 8080, lab.scratch())?;
    let directory = lab.scratch().join("nginx");
    let sum = file_to_fetch(&directory.join("file"))?;
    let fetch = |port: u16| {
        let url = format!("http://{address}:{port}/file");
        scripted(lab, "fetch.sh").args([&url, &seconds.to_string(), &sum])
    };
    let iperf = |name, port: u16, options: &str| {
        let client = format!("--client {address} --port {port} --time {seconds} --json {options}");
        Case {
            name,
            ready: port,
            server: Task::words(&format!("iperf3 --server --bind {address} --port {port}")),
            client: if options.contains("--udp") {
                scripted(lab, "iperf_udp.sh").args(client.split_whitespace())
            } else {
                Task::new("iperf3").args(client.split_whitespace())
            },
            judge: judge_iperf,
            bears_loss: true,
        }
    };
    let serving =
        |name, port: u16| scripted(lab, name).args(["server", &address]).arg(port.to_string());
    let clients = |name, port: u16| scripted(lab, name).arg(&address).arg(port.to_string());
    Ok(vec![
        Case {
            name: "redis-server, redis-benchmark",
            ready: 6379,
            server: Task::new("redis-server")
                .args(["--bind", &address, "--protected-mode", "no", "--save", "", "--dir"])
                .arg(lab.scratch()),
            client: clients("redis.sh", 6379).arg(seconds.to_string()).arg("4000"),
            judge: last_line,
            bears_loss: true,
        },
        Case {
            name: "nginx, wrk",
            ready: 8080,
            server: Task::new("nginx").arg("-c").arg(nginx),
            client: Task::words(&format!(
                "wrk -t 1 -c 50 --timeout 30s -d {seconds}s http://{address}:8080/index.html"
            )),
            judge: judge_wrk,
            bears_loss: true,
        },
        Case {
            name: "python3 http.server, curl",
            ready: 8000,
            server: Task::new(PYTHON)
                .args(["-m", "http.server", "8000", "--bind", &address, "--directory"])
                .arg(&directory),
            client: fetch(8000),
            judge: last_line,
            bears_loss: true,
        },
        Case {
            name: "nginx, curl",
            ready: 8080,
            server: Task::new("true"),
            client: fetch(8080),
            judge: last_line,
            bears_loss: true,
        },
        Case {
            name: "memcached, sets and gets compared",
            ready: 11211,
            server: Task::words(&format!("memcached -u root -l {address} -p 11211 -U 0 -m 256")),
            client: clients("memcache.py", 11211).arg(seconds.to_string()),
            judge: last_line,
            bears_loss: true,
        },
        Case {
            name: "transfers compared by checksum",
            ready: 9000,
            server: serving("transfer.py", 9000),
            client: scripted(lab, "transfer.py")
                .args(["client", &address, "9000", &seconds.to_string()])
                .args([least_bytes.to_string(), "4".into()]),
            judge: last_line,
            bears_loss: true,
        },
        iperf("iperf3 TCP, client to server", 5201, ""),
        iperf("iperf3 TCP, server to client", 5202, "--reverse"),
        iperf("iperf3 UDP, client to server", 5203, "--udp --bitrate 100M"),
        iperf("iperf3 UDP, server to client", 5204, "--udp --bitrate 100M --reverse"),
        Case {
            name: "sockperf TCP ping-pong",
            ready: 11111,
            server: Task::words(&format!("sockperf server --tcp -i {address} -p 11111")),
            client: Task::words(&format!(
                "sockperf ping-pong --tcp -i {address} -p 11111 -m 64 -t {seconds}"
            )),
            judge: judge_sockperf,
            bears_loss: true,
        },
        Case {
            // At a rate of its own: a ping-pong ends for good with the first datagram that a full
            // queue drops, and a machine as busy as this one drops some on the kernel, too.
            name: "sockperf UDP under load",
            ready: 0,
            server: Task::words(&format!("sockperf server -i {address} -p {SOCKPERF_UDP}")),
            client: Task::words(&format!(
                "sockperf under-load -i {address} -p {SOCKPERF_UDP} -m 64 --mps 2000 --reply-every 1 -t {seconds}"
            )),
            judge: judge_datagrams,
            bears_loss: false,
        },
    ])
}

/// Runs every case side by side for `seconds`, at least `least_bytes` of compared transfers;
/// `only` names a part of the cases to run.
pub fn run(
    arrangement: Arrangement,
    impair: Option<&'static str>,
    seconds: u32,
    least_bytes: u64,
    only: Option<&str>,
) -> Result<Vec<Outcome>> {
    let world = World::new(arrangement, impair)?;
    let mut servers: Vec<Program> = Vec::new();
    let mut clients = Vec::new();
    for case in cases(&world, seconds, least_bytes)? {
        let skipped = impair.is_some() && !case.bears_loss
            || only.is_some_and(|only| !case.name.contains(only));
        if skipped {
            continue;
        }
        let client = start(&world, case.server, case.ready, &mut servers)
            .and_then(|()| world.start(Side::A, case.client));
        clients.push((case.name, case.judge, client));
    }
    let limit = Duration::from_secs(u64::from(seconds) * 3 + 60)
        + Duration::from_secs(least_bytes / 5_000_000);
    let deadline = Instant::now() + limit;
    let mut outcomes = Vec::new();
    for (name, judge, client) in clients {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        let result = client
            .and_then(|client| client.wait(left))
            .and_then(Finished::success)
            .and_then(|finished| judge(&finished));
        let heading = format!("{}; faults: {}", arrangement.name(), impair.unwrap_or("none"));
        outcomes.push(Outcome { name, heading, result });
    }
    for side in Side::BOTH {
        if arrangement.accelerates(side) {
            eprintln!("engine of host {side:?}:\n{}", world.engine(side).errors());
            // The engine has outlived them all and still answers.
            world.observe(side)?.stats()?;
        }
    }
    Ok(outcomes)
}

fn start(world: &World, server: Task, ready: u16, servers: &mut Vec<Program>) -> Result<()> {
    if ready == 0 {
        let mut server = world.start(Side::B, server)?;
        let begun = |server: &Program| server.output().contains("sockperf: ");
        server.until(PATIENCE, |server| begun(server) && world.serves(SOCKPERF_UDP))?;
        servers.push(server);
    } else if !servers.iter().any(|earlier| lab::listens(earlier.pid(), ready)) {
        servers.push(world.serve(server, ready)?);
    }
    Ok(())
}

/// A table of outcomes, in Markdown.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let mut heading = "";
    for outcome in outcomes {
        if outcome.heading != heading {
            heading = &outcome.heading;
            let _ = write!(text, "\n### {heading}\n\n| programs | result |\n|---|---|\n");
        }
        let result = match &outcome.result {
            Ok(achieved) => achieved.clone(),
            Err(failure) => format!("**failed**: {failure}"),
        };
        let _ = writeln!(text, "| {} | {} |", outcome.name, result.replace('|', "/"));
    }
    text
}

/// Panics with the failed cases, if any, after printing all.
pub fn judge(outcomes: &[Outcome]) {
    eprintln!("{}", table(outcomes));
    let failed: Vec<&str> =
        outcomes.iter().filter(|outcome| outcome.result.is_err()).map(|one| one.name).collect();
    assert!(failed.is_empty(), "failed: {}", failed.join("; "));
}
