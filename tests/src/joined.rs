//! Two hosts on a link with kernel addresses, the servers' with an engine on it: an `xdp` port
//! beside the kernel.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use outboard::demo::bench::{listens, serves, start_engine};
use outboard::lab::{Finished, Lab, Link, Program, Side, Task};
use outboard::observer::Observer;

use crate::world::{PYTHON, executable};

/// Longest wait for anything that has to happen.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Address of the clients' host.
pub const CLIENT: &str = "10.78.0.1";
/// Address of the servers' host.
pub const SERVER: &str = "10.78.0.2";

/// The hosts and the engine.
#[derive(Debug)]
pub struct Joined {
    /// The hosts.
    pub lab: Lab,
    /// What joins them.
    pub link: Link,
    /// The `outboard` executable.
    pub executable: PathBuf,
    /// The engine's control socket.
    pub socket: PathBuf,
    /// The engine while it runs; dropped, it is killed.
    pub engine: Option<Program>,
}

impl Joined {
    /// Hosts with an engine.
    pub fn start() -> Self {
        let mut joined = Self::without_engine();
        joined.start_engine();
        joined
    }

    /// Hosts where no engine has been started yet.
    pub fn without_engine() -> Self {
        let lab = Lab::new().expect("a laboratory");
        let addresses = [CLIENT, SERVER].map(|address| address.parse().expect("an address"));
        let link = lab.join(Some(addresses)).expect("a link");
        // In a directory of the engine's making, where it may write whoever it is.
        let socket = lab.scratch().join("engine/b.sock");
        let executable = executable().expect("built");
        Self { lab, link, executable, socket, engine: None }
    }

    /// Starts the engine on the link's end of host B.
    pub fn start_engine(&mut self) {
        self.start_engine_with(&[]);
    }

    /// The same with more arguments.
    pub fn start_engine_with(&mut self, more: &[&str]) {
        let port = format!("xdp:{},ports=64", self.link.end(Side::B));
        let arguments = [&["--port", &port, "--poll", "adaptive"], more].concat();
        let engine = Task::new(&self.executable);
        let started = start_engine(&self.lab, engine, Side::B, &self.socket, &arguments);
        self.engine = Some(started.expect("an engine"));
    }

    /// The running engine.
    pub fn engine(&self) -> &Program {
        self.engine.as_ref().expect("the engine runs")
    }

    /// Waits until the engine has said `words`.
    pub fn engine_says(&mut self, words: &str) {
        let engine = self.engine.as_mut().expect("the engine runs");
        engine.until(PATIENCE, |engine| engine.errors().contains(words)).expect(words);
    }

    /// `task` with the library.
    pub fn accelerated(&self, task: Task) -> Task {
        task.accelerated(&self.executable, &self.socket)
    }

    /// Starts a server on host B and waits until it listens.
    pub fn serve(&self, task: Task, port: u16) -> Program {
        self.start_ready(Side::B, task, |server| listens(server.pid(), port))
    }

    /// The same with the library; where the engine runs, it listens, too.
    pub fn serve_accelerated(&self, task: Task, port: u16) -> Program {
        self.start_ready(Side::B, self.accelerated(task), |server| {
            listens(server.pid(), port) && (self.engine.is_none() || self.is_accelerated(port))
        })
    }

    /// Starts a program and waits until it is `ready`.
    pub fn start_ready(
        &self,
        side: Side,
        task: Task,
        ready: impl FnMut(&Program) -> bool,
    ) -> Program {
        let mut program = self.lab.start(side, task).expect("a program");
        program.until(PATIENCE, ready).expect("it gets ready");
        program
    }

    /// A redis server with the library, on all addresses of host B.
    pub fn redis(&self) -> Program {
        self.serve_accelerated(redis(), 6379)
    }

    /// A server of the tests' own (`tests/programs`), with the library.
    pub fn python(&self, program: &str, arguments: &[&str], port: u16) -> Program {
        let task = Task::new(PYTHON).arg(crate::world::script(&self.lab, program));
        self.serve_accelerated(task.args(arguments), port)
    }

    /// Runs a program to its end.
    pub fn run(&self, side: Side, task: Task) -> Finished {
        self.lab.start(side, task).and_then(|one| one.wait(PATIENCE)).expect("it ends")
    }

    /// What a command says on a host's kernel.
    pub fn says(&self, side: Side, line: &str) -> String {
        let finished = self.lab.start(side, Task::words(line)).and_then(|one| one.wait(PATIENCE));
        finished.map_or_else(|failure| failure.to_string(), |one| one.output)
    }

    /// Whether redis answers a client of host A.
    pub fn answers(&self, address: &str) -> bool {
        self.says(Side::A, &format!("redis-cli -h {address} ping")).trim() == "PONG"
    }

    /// A counter of the engine, which has to answer.
    pub fn counter(&self, name: &str) -> u64 {
        let stats = Observer::connect(&self.socket).and_then(|mut observer| observer.stats());
        stats.expect("the engine answers").counter(name)
    }

    /// Whether the engine has a socket at `port`.
    pub fn is_accelerated(&self, port: u16) -> bool {
        serves(&self.socket, port)
    }

    /// Runs `ip` in a host's namespace.
    pub fn ip(&self, side: Side, words: &str) -> String {
        let command: Vec<&str> = ["ip"].into_iter().chain(words.split(' ')).collect();
        self.lab.inside(side, &command).expect(words)
    }
}

/// A redis server on all addresses, which keeps nothing.
pub fn redis() -> Task {
    redis_at("0.0.0.0")
}

/// The same at an address.
pub fn redis_at(address: &str) -> Task {
    let task = Task::new("redis-server").args(["--bind", address, "--protected-mode", "no"]);
    task.args(["--save", "", "--appendonly", "no", "--dir", "/tmp"])
}

/// A client that holds connections (`tests/programs/keeper.py`).
#[derive(Debug)]
pub struct Keeper {
    program: Program,
    directory: PathBuf,
    steps: u32,
}

impl Keeper {
    /// Starts one on a host, with the library if `accelerated`.
    pub fn start(joined: &Joined, side: Side, accelerated: bool) -> Self {
        let directory = tempdir(&joined.lab);
        let task = crate::world::scripted(&joined.lab, "keeper.py").arg(&directory);
        let task = if accelerated { joined.accelerated(task) } else { task };
        let program = joined.lab.start(side, task).expect("a keeper");
        Self { program, directory, steps: 0 }
    }

    /// Starts one on host A, on the kernel, that holds and has used the connection "held" to
    /// redis.
    pub fn of_redis(joined: &Joined) -> Self {
        let mut keeper = Self::start(joined, Side::A, false);
        assert_eq!(keeper.open("held", SERVER, 6379), "ok");
        assert_eq!(keeper.ask("held", 0), "ok");
        keeper
    }

    /// Begins a step; [`Keeper::outcome`] tells how it went.
    pub fn begin(&mut self, kind: &str, words: &str) -> u32 {
        let number = self.steps;
        self.steps += 1;
        let path = |name: &str| self.directory.join(format!("{number}.{name}"));
        // Whole when it appears.
        std::fs::write(path("new"), words).expect("a file");
        std::fs::rename(path("new"), path(kind)).expect("a file");
        number
    }

    /// Waits for the end of a step: `ok`, or an errno's name.
    pub fn outcome(&mut self, number: u32) -> String {
        let of = format!("{number} ");
        let mut found = None;
        let waited = self.program.until(PATIENCE * 2, |program| {
            let output = program.output();
            let line = output.lines().find_map(|line| line.strip_prefix(&of));
            found = line.map(str::to_owned);
            found.is_some()
        });
        waited.expect("the step ends");
        found.unwrap_or_default()
    }

    fn step(&mut self, kind: &str, words: &str) -> String {
        let number = self.begin(kind, words);
        self.outcome(number)
    }

    /// Opens a connection called `name`.
    pub fn open(&mut self, name: &str, address: &str, port: u16) -> String {
        self.step("open", &format!("{name} {address} {port}"))
    }

    /// Has `bytes` bytes echoed, or redis pinged with 0.
    pub fn ask(&mut self, name: &str, bytes: usize) -> String {
        self.step("use", &format!("{name} {bytes}"))
    }

    /// Closes a connection.
    pub fn end(&mut self, name: &str) -> String {
        self.step("end", name)
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

/// A fresh directory in the lab's scratch directory.
fn tempdir(lab: &Lab) -> PathBuf {
    let fresh = (0..).map(|number| lab.scratch().join(format!("keeper-{number}")));
    fresh.into_iter().find(|path| std::fs::create_dir(path).is_ok()).expect("one is free")
}

/// Waits until `condition`.
///
/// # Panics
/// When it does not come within [`PATIENCE`].
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "{what} did not happen");
        // Not to take the core from what it waits for.
        std::thread::sleep(Duration::from_millis(10));
    }
}
