//! The host of `bench nic`, and one run on it: an interface, and a program that receives or sends.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::failure::{Explain, Failure, Result};
use lab::observer::Observer;
use lab::{Lab, Program, READY, Side, Task};

use crate::bench::load::{self, DatagramAction, Outcome};
use crate::bench::planned::some;
use crate::bench::usage::Sources;

/// The other end of the link, and the addresses of the kernel's interface and of the engine.
const STATION: Ipv4Addr = Ipv4Addr::new(10, 84, 8, 9);
const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 84, 8, 1);
const ENGINE: Ipv4Addr = Ipv4Addr::new(10, 84, 8, 2);
/// Port of both ends.
const PORT: u16 = 5001;
/// Link address of the host.
const MAC: &str = "02:00:00:00:03:01";
/// Largest packet.
const MTU: u16 = 9000;
/// Bytes of Ethernet's, IPv4's and UDP's headers.
const HEADER_BYTES: usize = 42;
/// Longest wait for a card.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the program may take beyond its own times.
const MARGIN: Duration = Duration::from_secs(60);
/// Windows of what is repeated because nothing came.
const WINDOWS_LONGER: [u32; 2] = [4, 16];
/// Load before a window.
const WARM_UP: Duration = Duration::from_millis(100);

/// What the program's host has for the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// A byte ring with a signal for each frame; a driver on the host copies, the kernel does the rest.
    Emulated,
    /// An engine with a `nic`, by which the kernel receives and sends.
    Softnic,
    /// UDP in an engine.
    Onloader,
}

/// What is measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicRun {
    /// Through what.
    pub interface: Interface,
    /// What the program does.
    pub action: DatagramAction,
    /// Payload of each datagram.
    pub bytes: usize,
}

impl NicRun {
    fn sends(&self) -> bool {
        self.action == DatagramAction::Send
    }

    /// The port at the other end of the link: it makes datagrams, or takes them.
    fn station(&self) -> String {
        if self.sends() {
            return format!("sink:card,mtu={MTU},mac={MAC}");
        }
        let (to, size) = (self.host(), self.bytes + HEADER_BYTES);
        format!("gen:card,mtu={MTU},mac={MAC},size={size},from={STATION}:{PORT},to={to}:{PORT}")
    }

    /// The address of the program's host.
    fn host(&self) -> Ipv4Addr {
        match self.interface {
            Interface::Onloader => ENGINE,
            Interface::Emulated | Interface::Softnic => KERNEL,
        }
    }

    /// The engine's counter of what has passed.
    pub fn carried(&self) -> &'static str {
        match (self.sends(), self.interface) {
            (false, Interface::Softnic) => "port_kernel_rx_frames{port=gen:card}",
            (false, _) => "port_rx_frames{port=gen:card}",
            (true, _) => "port_tx_frames{port=sink:card}",
        }
    }
}

/// The host on the first core, and the second core for what stands for a card.
pub struct Bed {
    lab: Lab,
    executable: PathBuf,
    window: Duration,
}

impl Bed {
    /// Makes the host.
    ///
    /// # Errors
    /// When not root, or namespaces cannot be made.
    pub fn new(window: Duration) -> Result<Self> {
        let executable =
            std::env::current_exe().explain("cannot find the own executable", "mount /proc")?;
        Ok(Self { lab: Lab::new()?, executable, window })
    }

    /// Measures. Where others use the cores, a short window may pass without a datagram.
    ///
    /// # Errors
    /// When something fails, or the datagrams went another way.
    pub fn run(&self, run: &NicRun) -> Result<Outcome> {
        let mut outcome = self.once(run, self.window)?;
        for longer in WINDOWS_LONGER {
            if outcome.operations > 0 {
                break;
            }
            outcome = self.once(run, self.window * longer)?;
        }
        some(outcome.operations, "datagrams")?;
        Ok(outcome)
    }

    fn once(&self, run: &NicRun, window: Duration) -> Result<Outcome> {
        let socket = self.lab.scratch().join("nic.sock");
        let _ = std::fs::remove_file(&socket);
        let mut device = match run.interface {
            Interface::Emulated => self.card(run)?,
            Interface::Softnic | Interface::Onloader => self.engine(run, &socket)?,
        };
        let has_engine = run.interface != Interface::Emulated;
        let sources = Sources {
            cores: Side::BOTH.map(|side| self.lab.host(side).core).to_vec(),
            engine_a: has_engine.then(|| socket.clone()),
            ..Sources::default()
        };
        let address = if run.sends() { STATION } else { run.host() };
        let program = Task::new(&self.executable)
            .args(["bench", "load", "datagrams", &format!("{address}:{PORT}")])
            .args(["--action", run.action.word(), "--bytes", &run.bytes.to_string()])
            .args(["--warm-up".to_owned(), WARM_UP.as_millis().to_string()])
            .args(["--milliseconds".to_owned(), window.as_millis().to_string()])
            .args(sources.arguments());
        let program = match run.sends() && run.interface != Interface::Onloader {
            true => program.args(["--interface", &self.tap()]),
            false => program,
        };
        let program = match run.interface {
            Interface::Onloader => program.accelerated(&self.executable, &socket),
            Interface::Emulated | Interface::Softnic => program,
        };
        let program = self.lab.start(Side::A, program)?;
        let finished = program.wait(WARM_UP + window + MARGIN)?.success()?;
        let mut outcome = load::read(&finished.output)?;
        if !device.is_running() {
            let cause = format!("the interface has ended: {}", device.errors());
            return Err(Failure::new(cause, "run it by hand to see why"));
        }
        if outcome.errors > 0 {
            return Err(Failure::new("datagrams have come with other lengths", "report this"));
        }
        if run.action == DatagramAction::Ignore {
            outcome.operations = outcome.usage.counter(0, run.carried());
        }
        if has_engine {
            self.check(run, &socket, outcome.operations)?;
        }
        Ok(outcome)
    }

    /// The kernel's interface.
    fn tap(&self) -> String {
        format!("{}n", self.lab.stem())
    }

    /// Whether the engine has carried so many datagrams, or has as many still.
    fn check(&self, run: &NicRun, socket: &Path, wanted: u64) -> Result<()> {
        /// Datagrams that programs and queues hold at most.
        const UNDER_WAY_MAX: u64 = 4096;
        let stats = Observer::connect(socket)?.stats()?;
        if stats.counter(run.carried()) + UNDER_WAY_MAX >= wanted {
            return Ok(());
        }
        Err(Failure::new(
            "the engine has not carried the datagrams",
            "look why the program is left to the kernel (outboard run --explain)",
        ))
    }

    /// An emulated card, whose driver runs beside the program.
    fn card(&self, run: &NicRun) -> Result<Program> {
        let cores = Side::BOTH.map(|side| self.lab.host(side).core.to_string());
        let tap = self.tap();
        let namespace = self.lab.host(Side::A).namespace();
        let task = Task::new(&self.executable)
            .args(["bench", "load", "card", "--station", &run.station()])
            .args(["--tap", &format!("tap:{tap},mtu={MTU},netns={namespace}")])
            .args(["--cores", &cores.join(",")]);
        let mut card = self.lab.start(Side::B, task)?;
        card.until(PATIENCE, |card| card.output().contains(READY))?;
        self.lab.inside(Side::A, &["ip", "link", "set", &tap, "address", MAC])?;
        let offloads = ["ethtool", "-K", &tap, "tx", "off", "tso", "off", "gso", "off"];
        self.lab.inside(Side::A, &offloads)?;
        self.lab.adopt(Side::A, &tap, KERNEL)?;
        Ok(card)
    }

    /// An engine on the second core, with UDP of its own or with an interface for the kernel.
    fn engine(&self, run: &NicRun, socket: &Path) -> Result<Program> {
        let core = self.lab.host(Side::B).core.to_string();
        let mut port = run.station();
        let mut words = vec!["--core".to_owned(), core, "--poll".to_owned(), "busy".to_owned()];
        let nic = self.tap();
        if run.interface == Interface::Onloader {
            port.push_str(&format!(",addr={ENGINE}/24,ipv6=off"));
        } else {
            let settings = self.lab.scratch().join("nic.toml");
            let text = format!("[[kernel]]\nname = \"{nic}\"\nport = \"card\"\nmode = \"nic\"\n");
            std::fs::write(&settings, text)
                .explain(format!("cannot write {}", settings.display()), "make room in TMPDIR")?;
            words.extend(["--config".to_owned(), settings.display().to_string()]);
        }
        words.extend(["--port".to_owned(), port]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let task = Task::new(&self.executable);
        // An engine and its programs are of one network namespace.
        let engine = self.lab.start_engine(task, Side::A, socket, &words)?;
        if run.interface == Interface::Softnic {
            self.lab.adopt(Side::A, &nic, KERNEL)?;
        }
        Ok(engine)
    }
}
