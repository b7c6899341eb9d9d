//! Programs whose processes share connections: they fork to serve one, start programs that inherit it, or
//! pass it to each other. Each is started with its distribution's settings, put under load from a host on the
//! kernel, and compares what it moves.

use std::fs;
use std::time::{Duration, Instant};

use lab::failure::{Explain, Failure, Result};
use lab::observer::Observer;
use lab::{Finished, Program, Side, Task};

use crate::cases::Outcome;
use crate::joined::{Joined, PATIENCE};

mod databases;
mod files;
mod nodes;
mod pages;
mod shells;
mod switches;
mod webs;

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
    /// None, but what it listens with.
    Listeners,
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
    Sharer {
        name: "Node cluster by turns",
        shares: Shares::Accepted,
        load: nodes::cluster_by_turns,
    },
    Sharer {
        name: "Node cluster of listeners",
        shares: Shares::Listeners,
        load: nodes::cluster_of_listeners,
    },
    Sharer { name: "Node child_process", shares: Shares::Accepted, load: nodes::handles },
    Sharer { name: "nginx", shares: Shares::Listeners, load: webs::nginx },
    Sharer { name: "HAProxy", shares: Shares::Listeners, load: webs::haproxy },
    Sharer { name: "Apache prefork", shares: Shares::Listeners, load: webs::apache },
    Sharer { name: "php-fpm", shares: Shares::Listeners, load: webs::php_fpm },
    Sharer { name: "gunicorn", shares: Shares::Listeners, load: webs::gunicorn },
    Sharer { name: "pgbouncer", shares: Shares::Accepted, load: databases::pgbouncer },
];

impl Counts {
    fn now(joined: &Joined) -> Self {
        let [accepts, opens, passed] =
            ["accepts", "tcp_active_opens", "passed_total"].map(|name| joined.counter(name));
        Self { accepts, opens, passed }
    }
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
        let (held, before) = (Held::before(joined), Counts::now(joined));
        let failed = ["listeners_left", "tickets_failed", "passes_failed", "breaches"];
        let failures = failed.map(|name| joined.counter(name));
        let said = (self.load)(joined, seconds)?;
        let after = Counts::now(joined);
        let passed = after.passed - before.passed;
        let (carried, is_shared) = match self.shares {
            Shares::Accepted => (after.accepts - before.accepts, passed > 0),
            Shares::Opened => (after.opens - before.opens, passed > 0),
            Shares::Listeners => (after.accepts - before.accepts, true),
        };
        if carried == 0 || !is_shared {
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
        held.is_given_back(joined)?;
        Ok(format!("{said}; {carried} connections by the engine, {passed} passed on"))
    }
}

/// What an engine holds: nothing of it may be left once a program has ended.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    counters: [u64; 6],
    /// Descriptors of its process, but for those that keep a port in use after its connections.
    descriptors: u64,
}

impl Held {
    const COUNTERS: [&str; 6] =
        ["sessions", "sessions_dying", "endpoints", "heirs", "tickets", "discards_waiting"];

    fn now(joined: &Joined) -> Self {
        // One observer looks, and is a descriptor itself.
        let mut observer = Observer::connect(&joined.socket).expect("the engine answers");
        let stats = observer.stats().expect("the engine answers");
        let ports = stats.counter("ports_held") + stats.counter("ports_awaited");
        let path = format!("/proc/{}/fd", joined.engine().pid());
        let descriptors = fs::read_dir(path).map_or(0, Iterator::count) as u64;
        let counters = Self::COUNTERS.map(|name| stats.counter(name));
        Self { counters, descriptors: descriptors.saturating_sub(ports) }
    }

    /// What it holds before a program starts, without the descriptors of observers that have just gone.
    ///
    /// # Panics
    /// When the engine does not answer.
    pub fn before(joined: &Joined) -> Self {
        let seen = std::iter::repeat_with(|| Self::now(joined)).take(5);
        seen.min_by_key(|held| held.descriptors).expect("five looks")
    }

    /// Waits until it holds no more than that.
    ///
    /// # Errors
    /// When it does not come to that: what it has.
    ///
    /// # Panics
    /// When the engine does not answer.
    pub fn is_given_back(&self, joined: &Joined) -> Result<()> {
        let begin = Instant::now();
        loop {
            let now = Self::now(joined);
            if now.counters == self.counters && now.descriptors <= self.descriptors {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                let cause = format!(
                    "the engine has {:?}: {:?} and {} descriptors, {:?} and {} before: {}",
                    Self::COUNTERS,
                    now.counters,
                    now.descriptors,
                    self.counters,
                    self.descriptors,
                    kinds_of_descriptors(joined)
                );
                return Err(Failure::new(cause, "look for what was not closed"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
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
