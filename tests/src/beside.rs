//! An engine and a kernel as answerers beside each other, for tests that compare what programs find.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use lab::{Lab, Link, Program, Side, Task, listens, serves};

use crate::joined::PATIENCE;
use crate::world::executable;

/// A host that asks, and one that answers from an engine's address and from its kernel's, each on a
/// link of its own.
#[derive(Debug)]
pub struct Hosts {
    /// The hosts.
    pub lab: Lab,
    /// The link to the engine's interface, and the one to the kernel's.
    pub links: [Link; 2],
    socket: PathBuf,
    executable: PathBuf,
    _engine: Program,
}

/// Who answers, and by what addresses.
#[derive(Clone, Copy, Debug)]
pub struct Answerer {
    /// Its address.
    pub v4: &'static str,
    /// Its address of IPv6.
    pub v6: &'static str,
    /// The asker's addresses on the same link.
    pub own: [&'static str; 2],
    /// Whether it is the engine.
    pub is_engine: bool,
}

/// The kernel.
pub const KERNEL: Answerer =
    Answerer { v4: "10.79.0.2", v6: "fd79::2", own: ["10.79.0.1", "fd79::1"], is_engine: false };
/// The engine.
pub const ENGINE: Answerer =
    Answerer { v4: "10.78.0.2", v6: "fd78::2", own: ["10.78.0.1", "fd78::1"], is_engine: true };

fn ip(text: &str) -> Ipv4Addr {
    text.parse().expect("an address")
}

impl Hosts {
    /// Hosts with an engine.
    pub fn start() -> Self {
        let lab = Lab::new().expect("a laboratory");
        let ours = lab.join(None).expect("a link");
        let kernels = lab.join(Some([ip(KERNEL.own[0]), ip(KERNEL.v4)])).expect("a link");
        lab.adopt(Side::A, &ours.end(Side::A), ip(ENGINE.own[0])).expect("an address");
        for (side, interface, address) in [
            (Side::A, ours.end(Side::A), ENGINE.own[1]),
            (Side::A, kernels.end(Side::A), KERNEL.own[1]),
            (Side::B, kernels.end(Side::B), KERNEL.v6),
        ] {
            for words in [
                format!("sysctl -qw net.ipv6.conf.{interface}.disable_ipv6=0"),
                format!("ip addr add {address}/64 dev {interface} nodad"),
            ] {
                lab.inside(side, &words.split(' ').collect::<Vec<_>>()).expect(&words);
            }
        }
        // A kernel says no more than so often that a port is closed, which is not what is compared.
        lab.inside(Side::B, &["sysctl", "-qw", "net.ipv4.icmp_ratelimit=0"]).expect("a setting");
        lab.inside(Side::B, &["sysctl", "-qw", "net.ipv6.icmp.ratelimit=0"]).expect("a setting");
        let (socket, executable) = (lab.scratch().join("b.sock"), executable().expect("built"));
        let port =
            format!("packet:{},addr={}/24,addr={}/64", ours.end(Side::B), ENGINE.v4, ENGINE.v6);
        let arguments = ["--port", &port, "--poll", "adaptive"];
        let engine = lab.start_engine(Task::new(&executable), Side::B, &socket, &arguments);
        let engine = engine.expect("an engine");
        Self { lab, links: [ours, kernels], socket, executable, _engine: engine }
    }

    /// What a tool on the asker's host says, with errors.
    pub fn says(&self, line: &str) -> String {
        let finished =
            self.lab.start(Side::A, Task::words(line)).and_then(|one| one.wait(PATIENCE));
        match finished {
            Ok(finished) => format!("{}{}", finished.output, finished.errors),
            Err(failure) => failure.to_string(),
        }
    }

    /// Starts a program of an answerer's host, with the library where it is the engine's.
    pub fn serve(&self, who: Answerer, task: Task) -> Program {
        self.serve_until(who, task, |_| true)
    }

    /// The same, and waits until it listens at `port`, where it is the engine's there, too.
    pub fn serve_at(&self, who: Answerer, task: Task, port: u16) -> Program {
        let is_ready = |one: &Program| {
            listens(one.pid(), port) && (!who.is_engine || serves(&self.socket, port))
        };
        self.serve_until(who, task, is_ready)
    }

    /// The same with another sign that it is ready.
    pub fn serve_until(
        &self,
        who: Answerer,
        task: Task,
        ready: impl FnMut(&Program) -> bool,
    ) -> Program {
        let task = match who.is_engine {
            true => task.accelerated(&self.executable, &self.socket),
            false => task,
        };
        let mut server = self.lab.start(Side::B, task).expect("a server");
        server.until(PATIENCE, ready).expect("it gets ready");
        server
    }

    /// The interface of a host on the answerer's link.
    pub fn interface(&self, who: Answerer, side: Side) -> String {
        self.links[usize::from(!who.is_engine)].end(side)
    }
}
