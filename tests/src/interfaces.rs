//! Two hosts on a link, the second with an engine whose port has an interface of the kernel's beside it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::observer::Observer;
use lab::{Lab, Link, Program, Side, Task};

use crate::joined::PATIENCE;
use crate::world::{CLIENTS, SERVERS, executable};

/// IPv6 addresses of the hosts, where the kernel has the port ([`Interfaces::nic`]).
pub const CLIENTS_V6: &str = "fd78::1";
/// The same of the servers' host.
pub const SERVERS_V6: &str = "fd78::2";

/// The hosts, and the interface.
#[derive(Debug)]
pub struct Interfaces {
    /// The hosts.
    pub lab: Lab,
    /// What joins them.
    pub link: Link,
    /// The engine's control socket.
    pub socket: PathBuf,
    /// The name of the kernel's interface.
    pub name: String,
    /// The engine's port.
    port: String,
    engine: Program,
}

impl Interfaces {
    /// The kernel's interface uses the port, with addresses of both families.
    pub fn nic(poll: &str) -> Self {
        let hosts = Self::start("nic", "", poll);
        hosts.lab.adopt(Side::B, &hosts.name, SERVERS).expect("an address");
        for (side, interface, address) in [
            (Side::A, hosts.link.end(Side::A), CLIENTS_V6),
            (Side::B, hosts.name.clone(), SERVERS_V6),
        ] {
            let enabled = format!("net.ipv6.conf.{interface}.disable_ipv6=0");
            hosts.lab.inside(side, &["sysctl", "-qw", &enabled]).expect("IPv6");
            let address = format!("{address}/64");
            let words = ["ip", "addr", "add", &address, "dev", &interface, "nodad"];
            hosts.lab.inside(side, &words).expect("an address");
        }
        hosts
    }

    /// The kernel's interface shows what the port receives and sends.
    pub fn mirror() -> Self {
        Self::start("mirror", &format!(",addr={SERVERS}/24,ipv6=off"), "adaptive")
    }

    fn start(mode: &str, options: &str, poll: &str) -> Self {
        let lab = Lab::new().expect("a laboratory");
        let link = lab.join(None).expect("a link");
        let [a, b] = Side::BOTH.map(|side| link.end(side));
        let name = format!("{}k", lab.stem());
        let socket = lab.scratch().join("engine/b.sock");
        let settings = lab.scratch().join("kernel.toml");
        let text = format!("[[kernel]]\nname = \"{name}\"\nport = \"{b}\"\nmode = \"{mode}\"\n");
        std::fs::write(&settings, text).expect("a file");
        let port = format!("packet:{b}");
        let core = lab.host(Side::B).core.to_string();
        let opened = format!("{port}{options}");
        let words = ["--config", settings.to_str().expect("a path in UTF-8")];
        let words = [&words[..], &["--port", &opened, "--poll", poll, "--core", &core]].concat();
        let task = Task::new(executable().expect("built"));
        let engine = lab.start_engine(task, Side::B, &socket, &words).expect("an engine");
        lab.adopt(Side::A, &a, CLIENTS).expect("an address");
        Self { lab, link, socket, name, port, engine }
    }

    /// A counter of the engine.
    pub fn counter(&self, name: &str) -> u64 {
        let mut observer = Observer::connect(&self.socket).expect("an engine");
        observer.stats().expect("counters").counter(name)
    }

    /// A counter of the engine's port.
    pub fn of_port(&self, what: &str) -> u64 {
        self.counter(&format!("port_{what}{{port={}}}", self.port))
    }

    /// Frames that the engine's own sockets have sent.
    pub fn sent_by_engine(&self) -> u64 {
        self.of_port("tx_frames") - self.of_port("kernel_tx_frames")
    }

    /// A counter of the mirror.
    pub fn of_mirror(&self, what: &str) -> u64 {
        self.counter(&format!("mirror_{what}{{interface={}}}", self.name))
    }

    /// Starts a program of host B on the engine.
    pub fn start_accelerated(&self, task: Task) -> Program {
        let task = task.accelerated(&executable().expect("built"), &self.socket);
        self.lab.start(Side::B, task).expect("it starts")
    }

    /// What a command prints that succeeds.
    pub fn output(&self, side: Side, words: &str) -> String {
        self.finish(side, Task::words(words))
    }

    /// What a shell's commands print that succeed.
    pub fn shell(&self, side: Side, commands: &str) -> String {
        self.finish(side, Task::new("sh").args(["-ec", commands]))
    }

    fn finish(&self, side: Side, task: Task) -> String {
        let ended = self.lab.start(side, task).and_then(|one| one.wait(PATIENCE));
        let ended = ended.expect("it ends");
        assert!(
            ended.status.success(),
            "{}{}\nthe engine: {}",
            ended.output,
            ended.errors,
            self.engine.errors()
        );
        ended.output
    }
}

/// Waits until something is so.
///
/// # Panics
/// When it is not after a while, with what was seen.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool, seen: impl Fn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: {}", seen());
        std::thread::sleep(Duration::from_millis(50));
    }
}
