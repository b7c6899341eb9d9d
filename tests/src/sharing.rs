//! Programs whose processes share connections: they fork to serve one, start programs that inherit it, or
//! pass it to each other. Each is started with its distribution's settings, put under load from a host on the
//! kernel, and compares what it moves.

use std::fs;
use std::time::{Duration, Instant};

use lab::failure::{Explain, Failure, Result};
use lab::{Finished, Program, Side, Task};

use crate::cases::Outcome;
use crate::joined::{Joined, PATIENCE};

mod databases;
mod files;
mod shells;
mod switches;

/// What the engine counts of a program whose connections its children use.
#[derive(Clone, Copy, Debug)]
struct Counts {
    accepts: u64,
    opens: u64,
    passed: u64,
}

/// How a program shares its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shares {
    /// Those that it accepts.
    Accepted,
    /// Those that it opens.
    Opened,
}

/// A program and its load.
#[derive(Clone, Copy, Debug)]
pub struct Sharer {
    /// Its name.
    pub name: &'static str,
    shares: Shares,
    load: fn(&Joined, u32) -> Result<String>,
}

/// All of them.
pub const ALL: &[Sharer] = &[
    Sharer { name: "PostgreSQL", shares: Shares::Accepted, load: databases::postgresql },
    Sharer { name: "sshd with scp", shares: Shares::Accepted, load: shells::sshd },
    Sharer { name: "ssh -f", shares: Shares::Opened, load: shells::ssh_background },
    Sharer { name: "rsync daemon", shares: Shares::Accepted, load: files::rsync_daemon },
    Sharer { name: "rsync client", shares: Shares::Opened, load: files::rsync_client },
    Sharer { name: "vsftpd", shares: Shares::Accepted, load: files::vsftpd },
    Sharer { name: "socat", shares: Shares::Accepted, load: switches::socat },
    Sharer { name: "inetd nowait", shares: Shares::Accepted, load: switches::inetd },
    Sharer {
        name: "Python's forking socketserver",
        shares: Shares::Accepted,
        load: switches::python,
    },
];

impl Counts {
    fn now(joined: &Joined) -> Self {
        let [accepts, opens, passed] =
            ["accepts", "tcp_active_opens", "passed_total"].map(|name| joined.counter(name));
        Self { accepts, opens, passed }
    }
}

/// Two hosts, the second with an engine that has a relay.
pub fn hosts() -> Joined {
    let mut joined = Joined::without_engine();
    joined.restart_engine_with("relay = true\n");
    joined
}

impl Sharer {
    /// The program of a name.
    ///
    /// # Panics
    /// When there is none.
    pub fn named(name: &str) -> Self {
        let found = ALL.iter().find(|sharer| sharer.name == name);
        *found.unwrap_or_else(|| panic!("there is no program {name}"))
    }

    /// Runs the program under load for `seconds`, then looks that the engine has carried its connections and
    /// holds nothing any more.
    pub fn run(&self, joined: &Joined, seconds: u32) -> Outcome {
        let result = self.judged(joined, seconds);
        Outcome { name: self.name, heading: "Programs that share connections".into(), result }
    }

    fn judged(&self, joined: &Joined, seconds: u32) -> Result<String> {
        let (descriptors, before) = (engine_descriptors(joined), Counts::now(joined));
        let failed = ["listeners_left", "tickets_failed", "passes_failed", "breaches"];
        let failures = failed.map(|name| joined.counter(name));
        let said = (self.load)(joined, seconds)?;
        let after = Counts::now(joined);
        let (carried, passed) = match self.shares {
            Shares::Accepted => (after.accepts - before.accepts, after.passed - before.passed),
            Shares::Opened => (after.opens - before.opens, after.passed - before.passed),
        };
        if carried == 0 || passed == 0 {
            let cause =
                format!("{said}, but the engine had {carried} connections, {passed} passed");
            return Err(Failure::new(cause, "see `outboard run --explain`"));
        }
        for (name, before) in failed.iter().zip(failures) {
            let now = joined.counter(name);
            if now != before {
                let cause = format!("{said}, but {name} has grown by {}", now - before);
                return Err(Failure::new(cause, "see the engine's log"));
            }
        }
        nothing_is_left(joined, descriptors)?;
        Ok(format!("{said}; {carried} connections by the engine, {passed} passed on"))
    }
}

fn engine_descriptors(joined: &Joined) -> usize {
    let path = format!("/proc/{}/fd", joined.engine().pid());
    fs::read_dir(path).map_or(0, Iterator::count)
}

/// How many descriptors of each kind the engine has.
fn kinds_of_descriptors(joined: &Joined) -> String {
    let mut kinds = std::collections::BTreeMap::<String, usize>::new();
    let links = fs::read_dir(format!("/proc/{}/fd", joined.engine().pid())).into_iter().flatten();
    for link in links.flatten().filter_map(|one| fs::read_link(one.path()).ok()) {
        let name = link.display().to_string();
        let kind = name.split('[').next().unwrap_or_default().to_owned();
        *kinds.entry(kind).or_default() += 1;
    }
    format!("{kinds:?}")
}

/// Waits until the engine has given everything back.
fn nothing_is_left(joined: &Joined, descriptors: usize) -> Result<()> {
    let held = || {
        let counters = ["sessions", "sessions_dying", "endpoints"].map(|name| joined.counter(name));
        (counters, engine_descriptors(joined))
    };
    let begin = Instant::now();
    loop {
        let (counters, now) = held();
        // The question for the counters is a descriptor, too.
        if counters == [0; 3] && now <= descriptors + 1 {
            return Ok(());
        }
        // Addresses of connections in TIME-WAIT are held by a socket each, for a minute.
        if begin.elapsed() > PATIENCE * 2 {
            let [sessions, dying, endpoints] = counters;
            let cause = format!(
                "the engine has {sessions} sessions, {dying} dying, {endpoints} endpoints and {now} \
                 descriptors, {descriptors} before: {}",
                kinds_of_descriptors(joined)
            );
            return Err(Failure::new(cause, "look for what was not closed"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a shell script on a host to its end, which is success.
fn shell(joined: &Joined, side: Side, script: &str) -> Result<Finished> {
    let task = Task::new("bash").args(["-euo", "pipefail", "-c", script]);
    joined.lab.start(side, task)?.wait(PATIENCE * 2)?.success()
}

/// Repeats `round` for some seconds, once at least; how often.
fn repeated(seconds: u32, mut round: impl FnMut() -> Result<()>) -> Result<u32> {
    let begin = Instant::now();
    let mut rounds = 0;
    loop {
        round()?;
        rounds += 1;
        if begin.elapsed() >= Duration::from_secs(seconds.into()) {
            return Ok(rounds);
        }
    }
}

/// Fails with the words of a server when a load does.
fn beside<T>(server: &Program, outcome: Result<T>) -> Result<T> {
    outcome.map_err(|failure| {
        let errors = server.errors();
        let last: Vec<&str> = errors.lines().rev().take(12).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        Failure::new(format!("{}; the server said: {}", failure.cause(), last.join(" | ")), "")
    })
}

/// Writes bytes that differ everywhere to a file of the lab's.
fn file_of(joined: &Joined, name: &str, bytes: usize) -> Result<std::path::PathBuf> {
    let mut state = 0x9e37_79b9_u32;
    let content: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 11) as u8
    })
    .take(bytes)
    .collect();
    let path = joined.lab.scratch().join(name);
    fs::write(&path, content).explain("cannot write a file", "make room in TMPDIR")?;
    Ok(path)
}

/// A directory of the lab's, that belongs to a user.
fn directory(joined: &Joined, name: &str, owner: &str) -> Result<std::path::PathBuf> {
    let path = joined.lab.scratch().join(name);
    let shown = path.display();
    shell(joined, Side::B, &format!("rm -rf {shown}; install -d -m 755 -o {owner} {shown}"))?;
    Ok(path)
}
