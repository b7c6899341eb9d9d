//! Two hosts on a link with kernel addresses, the servers' with an engine on it: an `xdp` port
//! beside the kernel.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::observer::Observer;
use lab::{Finished, Lab, Link, Program, Side, Task, listens, parse, serves};

use crate::world::{PYTHON, executable};

/// Longest wait for anything that has to happen.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Address of the clients' host.
pub const CLIENT: &str = "10.78.0.1";
/// Address of the servers' host.
pub const SERVER: &str = "10.78.0.2";

/// The version of IP that a test's connections use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Between [`CLIENT`] and [`SERVER`].
    V4,
    /// Between addresses that the hosts have besides.
    V6,
}

impl Family {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// Of IPv4 or IPv6.
    fn either<T>(self, v4: T, v6: T) -> T {
        match self {
            Self::V4 => v4,
            Self::V6 => v6,
        }
    }
}

/// The hosts and the engine.
#[derive(Debug)]
pub struct Joined {
    /// What the tests' connections use.
    pub family: Family,
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

    /// Hosts with an engine, once for each version of IP, one after the other.
    pub fn over_each_family() -> impl Iterator<Item = Self> {
        Family::BOTH.into_iter().map(|family| {
            eprintln!("over {family:?}");
            let mut joined = Self::without_engine_over(family);
            joined.start_engine();
            joined
        })
    }

    /// Hosts where no engine has been started yet.
    pub fn without_engine() -> Self {
        Self::without_engine_over(Family::V4)
    }

    /// The same with addresses of a family.
    pub fn without_engine_over(family: Family) -> Self {
        let lab = Lab::new().expect("a laboratory");
        let addresses = [CLIENT, SERVER].map(|address| address.parse().expect("an address"));
        let link = lab.join(Some(addresses)).expect("a link");
        // In a directory of the engine's making, where it may write whoever it is.
        let socket = lab.scratch().join("engine/b.sock");
        let executable = executable().expect("built");
        let joined = Self { family, lab, link, executable, socket, engine: None };
        if family == Family::V6 {
            for (side, address) in [(Side::A, joined.client()), (Side::B, joined.server())] {
                joined.allow_ipv6(side);
                joined.add_address(side, address);
            }
        }
        joined
    }

    /// The client's address.
    pub fn client(&self) -> &'static str {
        self.family.either(CLIENT, "fd78::1")
    }

    /// The server's address.
    pub fn server(&self) -> &'static str {
        self.family.either(SERVER, "fd78::2")
    }

    /// An address on the same link that nobody has.
    pub fn spare_address(&self) -> &'static str {
        self.family.either("10.78.0.3", "fd78::3")
    }

    /// All addresses of a host.
    pub fn anywhere(&self) -> &'static str {
        self.family.either("0.0.0.0", "::")
    }

    /// An address and a network beyond the clients' host.
    pub fn beyond(&self) -> (&'static str, &'static str) {
        self.family.either(("192.0.2.1", "192.0.2.0/24"), ("2001:db8::1", "2001:db8::/64"))
    }

    /// An address as it stands in a URL.
    pub fn in_url(&self, address: &str) -> String {
        self.family.either(address.to_owned(), format!("[{address}]"))
    }

    /// Lets a host's end of the link have IPv6 addresses, and keep them while the link is down as it
    /// keeps those of IPv4.
    pub fn allow_ipv6(&self, side: Side) {
        let of = format!("net.ipv6.conf.{}", self.link.end(side));
        for setting in ["disable_ipv6=0", "keep_addr_on_down=1"] {
            let words = ["sysctl", "-qw", &format!("{of}.{setting}")];
            self.lab.inside(side, &words).expect("a setting");
        }
    }

    /// Gives a host's end of the link an address, at once: nobody is asked whether others have it.
    pub fn add_address(&self, side: Side, address: &str) {
        self.ip(side, &format!("addr add {} dev {}", self.on_link(address), self.link.end(side)));
    }

    /// Takes an address from a host's end of the link.
    pub fn remove_address(&self, side: Side, address: &str) {
        let address = format!("{address}/{}", self.family.either(24, 64));
        self.ip(side, &format!("addr del {address} dev {}", self.link.end(side)));
    }

    fn on_link(&self, address: &str) -> String {
        self.family.either(format!("{address}/24"), format!("{address}/64 nodad"))
    }

    /// Starts the engine on the link's end of host B.
    pub fn start_engine(&mut self) {
        self.start_engine_with(&[]);
    }

    /// The same with more arguments.
    pub fn start_engine_with(&mut self, more: &[&str]) {
        self.start_engine_on("ports=64", &[&["--poll", "adaptive"], more].concat());
    }

    /// The same with options of its port and all arguments else.
    pub fn start_engine_on(&mut self, options: &str, more: &[&str]) {
        let port = format!("xdp:{},{options}", self.link.end(Side::B));
        let arguments = [&["--port", &port], more].concat();
        let engine = Task::new(&self.executable);
        let started = self.lab.start_engine(engine, Side::B, &self.socket, &arguments);
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
        let listeners = self.family.either(1, 2);
        self.start_ready(Side::B, self.accelerated(self.redis_task()), |redis| {
            let is_served = || self.sockets_at(6379).len() == listeners;
            listens(redis.pid(), 6379) && (self.engine.is_none() || is_served())
        })
    }

    /// The same, not yet started and without the library.
    pub fn redis_task(&self) -> Task {
        redis_at(self.family.either("0.0.0.0", "0.0.0.0 ::*"))
    }

    /// Starts an engine with `settings` in its file, in the place of the one that runs.
    pub fn restart_engine_with(&mut self, settings: &str) {
        self.engine = None;
        let file = self.lab.scratch().join("engine.toml");
        std::fs::write(&file, settings).expect("a file");
        self.start_engine_with(&["--config", &file.display().to_string()]);
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

    /// Protocols of the engine's listeners and datagram sockets at `port`.
    pub fn sockets_at(&self, port: u16) -> Vec<String> {
        let sockets = Observer::connect(&self.socket).and_then(|mut observer| observer.sockets());
        let all = sockets.expect("the engine answers").into_iter();
        let here = all.filter(|one| one.local.port() == port && one.remote.is_none());
        let mut protocols: Vec<String> = here.map(|one| one.protocol).collect();
        protocols.sort();
        protocols
    }

    /// Datagrams that a host's kernel has given to its sockets, of either version of IP.
    pub fn udp_received(&self, side: Side) -> u64 {
        let tables = self.says(side, "cat /proc/net/snmp /proc/net/snmp6");
        let of = |line: &str| {
            let mut words = line.split_whitespace();
            let is_it = matches!(words.next()?, "Udp:" | "Udp6InDatagrams");
            // The other line of this name has words.
            words.next().filter(|_| is_it)?.parse::<u64>().ok()
        };
        tables.lines().filter_map(of).sum()
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

/// The same at addresses, with spaces between them.
pub fn redis_at(address: &str) -> Task {
    let task = Task::new("redis-server").arg("--bind").args(address.split(' '));
    let task = task.args(["--protected-mode", "no"]);
    task.args(["--save", "", "--appendonly", "no", "--dir", "/tmp"])
}

/// A third host behind one of the two, which is its router.
#[derive(Debug)]
pub struct Behind {
    holder: Program,
    side: Side,
}

impl Behind {
    /// Joins a host to the one on `side` by interfaces called `inner` (the router's) and `outer`, with
    /// these addresses of one network, and lets the router forward.
    pub fn start(joined: &Joined, side: Side, [router, host]: [&str; 2]) -> Self {
        let holder = Task::words("unshare --net sh -c").arg("echo ready; exec sleep infinity");
        let holder = joined.start_ready(side, holder, |one| one.output().contains("ready"));
        let behind = Self { holder, side };
        let peer = format!("peer name outer netns {}", behind.holder.pid());
        joined.ip(side, &format!("link add inner type veth {peer}"));
        joined.ip(side, &format!("addr add {router}/24 dev inner"));
        joined.ip(side, "link set inner up");
        joined.lab.inside(side, &["sysctl", "-qw", "net.ipv4.ip_forward=1"]).expect("sysctl");
        for words in [
            format!("addr add {host}/24 dev outer"),
            "link set outer up".into(),
            format!("route add default via {router}"),
        ] {
            assert_eq!(behind.says(joined, &format!("ip {words}")), "", "{words}");
        }
        behind
    }

    /// A task that runs there; it is to be started on the router's side.
    pub fn task(&self, task: &str) -> Task {
        let inside = format!("nsenter --net=/proc/{}/ns/net {task}", self.holder.pid());
        Task::words(&inside)
    }

    /// What a command says there.
    pub fn says(&self, joined: &Joined, line: &str) -> String {
        let finished = joined.run(self.side, self.task(line));
        finished.output + &finished.errors
    }
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
        assert_eq!(keeper.open("held", joined.server(), 6379), "ok");
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

/// What an iperf3 client measured. `says` runs it; it is run again while the server has not ended the test
/// before.
///
/// # Panics
/// When that takes longer than [`PATIENCE`], or the client's words cannot be read.
pub fn iperf3_measures(mut says: impl FnMut() -> String) -> parse::Iperf {
    let mut said = String::new();
    eventually("the end of the test before", || {
        said = says();
        !said.contains("the server is busy running a test")
    });
    parse::iperf3(&said).unwrap_or_else(|failure| panic!("{failure}: {said}"))
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
