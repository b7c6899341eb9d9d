//! Two hosts with engines, in the arrangements in which programs are tested.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use lab::failure::{Explain, Failure, Result};
use lab::observer::Observer;
use lab::{Lab, Link, Program, Side, Task, listens, serves};

use crate::joined::PATIENCE;

/// Which hosts are on Outboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// The servers, on a TAP; the clients on the kernel.
    TapServers,
    /// The clients, on a packet port; the servers on the kernel.
    PacketClients,
    /// Both, on packet ports.
    PacketBoth,
    /// The servers, on their kernel's interface and address; the clients on the kernel.
    XdpServers,
    /// Both, on their kernels' interfaces and addresses.
    XdpBoth,
    /// Both, joined by shared memory: A is its server, B its client.
    MemifBoth,
}

impl Arrangement {
    /// All whose hosts are joined by a link of the kernel's.
    pub const ALL: [Self; 5] =
        [Self::TapServers, Self::PacketClients, Self::PacketBoth, Self::XdpServers, Self::XdpBoth];

    /// Whether programs on host `side` are accelerated.
    pub fn accelerates(self, side: Side) -> bool {
        match self {
            Self::TapServers | Self::XdpServers => side == Side::B,
            Self::PacketClients => side == Side::A,
            Self::PacketBoth | Self::XdpBoth | Self::MemifBoth => true,
        }
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::TapServers => "servers on Outboard (tap), clients on the kernel",
            Self::PacketClients => "clients on Outboard (packet), servers on the kernel",
            Self::PacketBoth => "both on Outboard (packet)",
            Self::XdpServers => "servers on Outboard (xdp), clients on the kernel",
            Self::XdpBoth => "both on Outboard (xdp)",
            Self::MemifBoth => "both on Outboard (memif)",
        }
    }
}

/// Address of the clients' host.
pub const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// Address of the servers' host.
pub const SERVERS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
/// Address of the servers' kernel, whatever the arrangement.
pub const SERVERS_KERNEL: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
/// Address of the clients' kernel on the same link.
pub const CLIENTS_KERNEL: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);

/// Two hosts and their engines.
#[derive(Debug)]
pub struct World {
    /// The hosts.
    pub lab: Lab,
    arrangement: Arrangement,
    impair: Option<&'static str>,
    /// The engines' settings.
    settings: &'static str,
    executable: PathBuf,
    packet: Link,
    _kernel: Link,
    engines: [Option<Program>; 2],
}

impl World {
    /// Hosts with engines as `arrangement` says, their ports with faults `impair`.
    pub fn new(arrangement: Arrangement, impair: Option<&'static str>) -> Result<Self> {
        Self::configured(arrangement, impair, "")
    }

    /// The same as [`new`](Self::new), with engines that have `settings` in their configuration.
    pub fn configured(
        arrangement: Arrangement,
        impair: Option<&'static str>,
        settings: &'static str,
    ) -> Result<Self> {
        let lab = Lab::new()?;
        let beside_kernel = matches!(arrangement, Arrangement::XdpServers | Arrangement::XdpBoth);
        let packet = lab.join(beside_kernel.then_some([CLIENTS, SERVERS]))?;
        let kernel = lab.join(Some([CLIENTS_KERNEL, SERVERS_KERNEL]))?;
        let executable = executable()?;
        let engines = [None, None];
        let mut world = Self {
            lab,
            arrangement,
            impair,
            settings,
            executable,
            packet,
            _kernel: kernel,
            engines,
        };
        for side in Side::BOTH {
            if arrangement.accelerates(side) {
                world.start_engine(side)?;
            }
        }
        if arrangement == Arrangement::PacketClients {
            world.lab.adopt(Side::B, &world.packet.end(Side::B), SERVERS)?;
        }
        Ok(world)
    }

    /// Starts the engine of host `side`, or starts it again.
    pub fn start_engine(&mut self, side: Side) -> Result<()> {
        let impair = self.impair.map_or(String::new(), |faults| format!(",impair={faults},seed=1"));
        let tap = format!("{}t", self.lab.stem());
        let port = match self.arrangement {
            Arrangement::TapServers => {
                let clients = self.lab.host(Side::A).namespace();
                format!("tap:{tap},addr={SERVERS}/24,netns={clients}{impair}")
            }
            Arrangement::XdpServers | Arrangement::XdpBoth => {
                format!("xdp:{},ports=512{impair}", self.packet.end(side))
            }
            Arrangement::PacketClients | Arrangement::PacketBoth => {
                let address = if side == Side::A { CLIENTS } else { SERVERS };
                format!("packet:{},addr={address}/24{impair}", self.packet.end(side))
            }
            Arrangement::MemifBoth => {
                let path = self.lab.scratch().join("m.sock").display().to_string();
                match side {
                    Side::A => format!("memif:{path},addr={CLIENTS}/24{impair}"),
                    Side::B => format!("memif:{path},role=client,addr={SERVERS}/24{impair}"),
                }
            }
        };
        let core = self.lab.host(side).core.to_string();
        let file = self.lab.scratch().join("engine.toml");
        std::fs::write(&file, self.settings)
            .explain("cannot write a file", "make room in TMPDIR")?;
        let file = file.display().to_string();
        let arguments = ["--config", &file, "--port", &port, "--core", &core, "--poll", "adaptive"];
        // A dozen programs share its core.
        let engine = Task::new(&self.executable).foremost();
        let engine = self.lab.start_engine(engine, side, &self.socket(side), &arguments)?;
        self.engines[usize::from(side == Side::B)] = Some(engine);
        if self.arrangement == Arrangement::TapServers {
            self.lab.adopt(Side::A, &tap, CLIENTS)?;
        }
        Ok(())
    }

    /// Engines that are started from now on have these settings in their configuration.
    pub fn set_settings(&mut self, settings: &'static str) {
        self.settings = settings;
    }

    /// The interface of host `side` that its engine's port is on.
    pub fn link(&self, side: Side) -> String {
        self.packet.end(side)
    }

    /// The engine of host `side`; panics when the arrangement has none there.
    pub fn engine(&self, side: Side) -> &Program {
        let engine = self.engines[usize::from(side == Side::B)].as_ref();
        engine.expect("the arrangement has an engine there")
    }

    /// Kills the engine of host `side` with SIGKILL.
    pub fn kill_engine(&mut self, side: Side) {
        self.engines[usize::from(side == Side::B)] = None;
    }

    /// A question to the engine of host `side`.
    pub fn observe(&self, side: Side) -> Result<Observer> {
        Observer::connect(&self.socket(side))
    }

    /// Control socket of the engine of host `side`.
    pub fn socket(&self, side: Side) -> PathBuf {
        self.lab.scratch().join(if side == Side::A { "a.sock" } else { "b.sock" })
    }

    /// The `outboard` executable.
    pub fn executable(&self) -> &Path {
        &self.executable
    }

    /// Starts `task` on host `side`, under `outboard run` where the host has an engine.
    pub fn start(&self, side: Side, task: Task) -> Result<Program> {
        if self.arrangement.accelerates(side) {
            self.lab.start(side, task.accelerated(&self.executable, &self.socket(side)))
        } else {
            self.lab.start(side, task)
        }
    }

    /// Starts a server on host B and waits until it listens on TCP port `port`, with the engine, too,
    /// where there is one.
    pub fn serve(&self, task: Task, port: u16) -> Result<Program> {
        let mut server = self.start(Side::B, task)?;
        server.until(PATIENCE, |server| listens(server.pid(), port) && self.serves(port))?;
        Ok(server)
    }

    /// Whether the engine of host B has a socket at `port`, if there is an engine.
    pub fn serves(&self, port: u16) -> bool {
        let engine = &self.engines[usize::from(true)];
        engine.is_none() || serves(&self.socket(Side::B), port)
    }
}

/// The executable under test: `$OUTBOARD_EXECUTABLE`, or the release build.
pub fn executable() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("OUTBOARD_EXECUTABLE") {
        return Ok(path.into());
    }
    let own = std::env::current_exe().map_err(|error| {
        Failure::new(format!("cannot find the own executable: {error}"), "mount /proc")
    })?;
    // target/PROFILE/deps/TEST
    let built = own.ancestors().nth(3).map(|target| target.join("release/outboard"));
    built.filter(|path| path.is_file()).ok_or_else(|| {
        Failure::new(
            "the executable under test is not built",
            "run `make test`, or cargo build --release --workspace first",
        )
    })
}

/// An example that is built with the tests.
///
/// # Panics
/// When it is not.
pub fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    // target/PROFILE/deps/TEST
    let built = own.ancestors().nth(2).expect("a directory").join("examples").join(name);
    assert!(built.is_file(), "{} is not built: cargo build --examples", built.display());
    built
}

/// What scripts/runtimes has installed.
///
/// # Panics
/// When it has not.
pub fn runtime(name: &str) -> PathBuf {
    let directory = std::env::var_os("OUTBOARD_RUNTIMES").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/runtimes"),
        PathBuf::from,
    );
    let found = directory.join(name);
    assert!(found.exists(), "{} is missing: run scripts/runtimes", found.display());
    found
}

/// A Python script of the tests, written into the lab's scratch directory.
pub fn script(lab: &Lab, name: &str) -> PathBuf {
    let text = match name {
        "transfer.py" => include_str!("../programs/transfer.py"),
        "memcache.py" => include_str!("../programs/memcache.py"),
        "blocked.py" => include_str!("../programs/blocked.py"),
        "bpf.py" => include_str!("../programs/bpf.py"),
        "cut.py" => include_str!("../programs/cut.py"),
        "parked.py" => include_str!("../programs/parked.py"),
        "writers.py" => include_str!("../programs/writers.py"),
        "asking.py" => include_str!("../programs/asking.py"),
        "aside.py" => include_str!("../programs/aside.py"),
        "forking.py" => include_str!("../programs/forking.py"),
        "forked_server.py" => include_str!("../programs/forked_server.py"),
        "forked_client.py" => include_str!("../programs/forked_client.py"),
        "shared_server.py" => include_str!("../programs/shared_server.py"),
        "holders.py" => include_str!("../programs/holders.py"),
        "holders_client.py" => include_str!("../programs/holders_client.py"),
        "pages.py" => include_str!("../programs/pages.py"),
        "page_app.py" => include_str!("../programs/page_app.py"),
        "cluster.js" => include_str!("../programs/cluster.js"),
        "handles.js" => include_str!("../programs/handles.js"),
        "shared_client.py" => include_str!("../programs/shared_client.py"),
        "stranger.py" => include_str!("../programs/stranger.py"),
        "spawned.py" => include_str!("../programs/spawned.py"),
        "waited.py" => include_str!("../programs/waited.py"),
        "own.py" => include_str!("../programs/own.py"),
        "files.js" => include_str!("../programs/files.js"),
        "files.py" => include_str!("../programs/files.py"),
        "fetch_files.py" => include_str!("../programs/fetch_files.py"),
        "hoard.py" => include_str!("../programs/hoard.py"),
        "early.py" => include_str!("../programs/early.py"),
        "ends.py" => include_str!("../programs/ends.py"),
        "versions.py" => include_str!("../programs/versions.py"),
        "explained.py" => include_str!("../programs/explained.py"),
        "urgent.py" => include_str!("../programs/urgent.py"),
        "signed.py" => include_str!("../programs/signed.py"),
        "echo.py" => include_str!("../programs/echo.py"),
        "dialogue.py" => include_str!("../programs/dialogue.py"),
        "keeper.py" => include_str!("../programs/keeper.py"),
        "prober.py" => include_str!("../programs/prober.py"),
        "shown.py" => include_str!("../programs/shown.py"),
        "datagrams.py" => include_str!("../programs/datagrams.py"),
        "crafted.py" => include_str!("../programs/crafted.py"),
        "groups.py" => include_str!("../programs/groups.py"),
        "hostile.py" => include_str!("../programs/hostile.py"),
        "service.py" => include_str!("../programs/service.py"),
        "rebinds.py" => include_str!("../programs/rebinds.py"),
        "ask.py" => include_str!("../programs/ask.py"),
        "tools.py" => include_str!("../programs/tools.py"),
        "captures.py" => include_str!("../programs/captures.py"),
        "sshd.sh" => include_str!("../programs/sshd.sh"),
        "ssh.sh" => include_str!("../programs/ssh.sh"),
        "fetch.sh" => include_str!("../programs/fetch.sh"),
        "iperf_udp.sh" => include_str!("../programs/iperf_udp.sh"),
        "redis.sh" => include_str!("../programs/redis.sh"),
        other => panic!("there is no script {other}"),
    };
    let (path, new) = (lab.scratch().join(name), lab.scratch().join("new script"));
    // Whole at any time: one that was started before may yet have to read it.
    std::fs::write(&new, text).expect("the scratch directory is writable");
    std::fs::rename(&new, &path).expect("the scratch directory is writable");
    path
}

/// The distribution's Python, rather than a wrapper found first in the path.
pub const PYTHON: &str = "/usr/bin/python3";

/// A task that runs a script of the tests.
pub fn scripted(lab: &Lab, name: &str) -> Task {
    let interpreter = if name.ends_with(".py") { PYTHON } else { "bash" };
    Task::new(interpreter).arg(script(lab, name))
}
