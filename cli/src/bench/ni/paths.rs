//! The same message protocol in two programs, over different paths between two hosts (table III of the
//! paper, whose CLF is the engine's protocol here).

use std::path::PathBuf;
use std::time::Duration;

use lab::failure::{Explain, Failure, Result};
use lab::observer::Observer;
use lab::{Lab, Link, Program, Side, Task};

use super::NiWork;
use crate::bench::cell::Sample;
use crate::bench::emp::pattern::{ExchangeResult, Pattern};
use crate::bench::load::{ExchangeCarrier, OPENED};
use crate::bench::planned::Series;

/// Addresses of the hosts on the kernels' link and on the engines'.
const KERNEL: [&str; 2] = ["10.85.2.1", "10.85.2.2"];
const ENGINES: [&str; 2] = ["10.85.3.1", "10.85.3.2"];
/// Ports of the programs.
const PORTS: [u16; 2] = [7201, 7202];
/// What a run may take beside its windows.
const MARGIN: Duration = Duration::from_secs(120);

/// What is between the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePath {
    /// UDP of the kernels.
    Kernel,
    /// UDP of the kernels through engines that share their ports (`nic`).
    Nic,
    /// Raw frames of engines.
    Frames,
    /// UDP of engines.
    Engine,
}

impl MessagePath {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Nic, Self::Frames, Self::Engine];

    /// Its place in the report.
    pub fn series(self) -> Series {
        let (name, about) = match self {
            Self::Kernel => ("udp-kernel", "the protocol in the program, UDP of the kernels"),
            Self::Nic => ("udp-nic", "the protocol in the program, UDP of the kernels through nic"),
            Self::Frames => ("frames", "the protocol in the program, raw frames of the engines"),
            Self::Engine => ("udp-engine", "the protocol in the program, UDP of the engines"),
        };
        Series { name, about, is_counterpart: self == Self::Kernel }
    }

    fn carrier(self) -> ExchangeCarrier {
        match self {
            Self::Frames => ExchangeCarrier::Frames,
            Self::Kernel | Self::Nic | Self::Engine => ExchangeCarrier::Datagrams,
        }
    }
}

/// Two hosts with two links.
pub struct MessageHosts {
    lab: Lab,
    engines: Link,
    executable: PathBuf,
    window: Duration,
}

impl MessageHosts {
    /// Makes them.
    ///
    /// # Errors
    /// When not root, or namespaces cannot be made.
    pub fn new(window: Duration) -> Result<Self> {
        let executable =
            std::env::current_exe().explain("cannot find the own executable", "mount /proc")?;
        let lab = Lab::new()?;
        let parsed = |text: &str| text.parse().explain("no address", "report this");
        let [a, b] = KERNEL;
        lab.join(Some([parsed(a)?, parsed(b)?]))?;
        let engines = lab.join(None)?;
        Ok(Self { lab, engines, executable, window })
    }

    /// Makes all exchanges of one path.
    ///
    /// # Errors
    /// When a program fails, or the messages went another way.
    pub fn run(&self, path: MessagePath, works: &[NiWork]) -> Result<Vec<Vec<Sample>>> {
        let patterns: Vec<Pattern> = works
            .iter()
            .filter_map(|work| match work {
                NiWork::Messages(_, pattern) => Some(*pattern),
                _ => None,
            })
            .collect();
        let engines: Vec<Program> = match path {
            MessagePath::Kernel => Vec::new(),
            _ => {
                Side::BOTH.map(|side| self.engine(path, side)).into_iter().collect::<Result<_>>()?
            }
        };
        let output = self.exchange(path, &patterns)?;
        if !engines.is_empty() {
            for side in Side::BOTH {
                self.check(path, side, patterns.len() as u64)?;
            }
        }
        let of = |pattern: &Pattern| {
            let measured = ExchangeResult::of(*pattern, &output).ok_or_else(|| {
                let cause = format!("the program has not printed {pattern}");
                Failure::new(cause, "run it by hand to see what it prints")
            })?;
            Ok(pattern.samples(&measured))
        };
        patterns.iter().map(of).collect()
    }

    fn exchange(&self, path: MessagePath, patterns: &[Pattern]) -> Result<String> {
        let addresses = if path == MessagePath::Kernel { KERNEL } else { ENGINES };
        let [local_a, local_b] = [0, 1].map(|side| format!("{}:{}", addresses[side], PORTS[side]));
        let task = |side: Side, local: &str| {
            let mut task = Task::new(&self.executable)
                .args(["bench", "load", "exchange", path.carrier().word(), &local_b])
                .args(["--local", local, "--window-us", &self.window.as_micros().to_string()]);
            if path == MessagePath::Frames {
                task = task.arg("--engine").arg(self.socket(side));
                task = task.args(["--port", &self.engines.end(side)]);
            }
            if side == Side::B {
                task = task.arg("--serve");
            }
            let task = task.args(patterns.iter().map(Pattern::to_string));
            match path {
                MessagePath::Engine => task.accelerated(&self.executable, &self.socket(side)),
                MessagePath::Kernel | MessagePath::Nic | MessagePath::Frames => task,
            }
        };
        let mut second = self.lab.start(Side::B, task(Side::B, &local_b))?;
        second.until(MARGIN, |second| second.output().contains(OPENED))?;
        let first = self.lab.start(Side::A, task(Side::A, &local_a))?;
        let limit = MARGIN + self.window * 4 * patterns.len() as u32;
        let finished = first.wait(limit)?.success()?;
        second.wait(MARGIN)?.success()?;
        Ok(finished.output)
    }

    fn socket(&self, side: Side) -> PathBuf {
        self.lab.scratch().join(if side == Side::A { "a.sock" } else { "b.sock" })
    }

    fn engine(&self, path: MessagePath, side: Side) -> Result<Program> {
        let socket = self.socket(side);
        let _ = std::fs::remove_file(&socket);
        let core = self.lab.host(side).core.to_string();
        let (end, address) = (self.engines.end(side), ENGINES[usize::from(side == Side::B)]);
        let mut port = format!("packet:{end}");
        let mut words = vec!["--core".to_owned(), core];
        // Of what this host has for the kernel.
        let nic = format!("{end}n");
        if path == MessagePath::Engine {
            port.push_str(&format!(",addr={address}/24,ipv6=off"));
        }
        if path == MessagePath::Nic {
            let settings = self.lab.scratch().join(format!("{nic}.toml"));
            let text = format!("[[kernel]]\nname = \"{nic}\"\nport = \"{end}\"\nmode = \"nic\"\n");
            std::fs::write(&settings, text)
                .explain(format!("cannot write {}", settings.display()), "make room in TMPDIR")?;
            words.extend(["--config".to_owned(), settings.display().to_string()]);
        }
        words.extend(["--port".to_owned(), port]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let engine = self.lab.start_engine(Task::new(&self.executable), side, &socket, &words)?;
        if path == MessagePath::Nic {
            let address = address.parse().explain("no address", "report this")?;
            self.lab.adopt(side, &nic, address)?;
        }
        Ok(engine)
    }

    /// Whether the engine of a host has carried packets as it should.
    fn check(&self, path: MessagePath, side: Side, wanted: u64) -> Result<()> {
        let port = self.engines.end(side);
        let counter = match path {
            MessagePath::Nic => format!("port_kernel_tx_frames{{port=packet:{port}}}"),
            MessagePath::Frames => format!("port_tx_frames{{port=packet:{port}}}"),
            MessagePath::Kernel | MessagePath::Engine => "datagrams_tx".to_owned(),
        };
        let seen = Observer::connect(&self.socket(side))?.stats()?.counter(&counter);
        if seen >= wanted {
            return Ok(());
        }
        let cause = format!("{counter} of the engine of {side:?} is {seen}");
        Err(Failure::new(cause, "look at `outboard stats` there"))
    }
}
