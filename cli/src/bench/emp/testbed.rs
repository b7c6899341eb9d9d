//! Two hosts, an engine on each where a system needs them, and the programs of one run.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lab::failure::{Explain, Failure, Result};
use lab::observer::Observer;
use lab::{Lab, Link, Program, ReceiveWork, Side, Task, Traffic};

use super::pattern::ExchangeResult;
use super::{EmpWork, MessageSystem};
use crate::bench::cell::Sample;
use crate::bench::load;
use crate::commands::mpi;

/// Addresses of the hosts on the kernels' link and on the engines'.
const KERNEL: [&str; 2] = ["10.85.0.1", "10.85.0.2"];
const KERNEL_NETWORK: &str = "10.85.0.0/24";
const ENGINES: [&str; 2] = ["10.85.1.1", "10.85.1.2"];
/// Where the programs of side A and B are.
const PORTS: [u16; 2] = [7101, 7102];
/// What a run may take beside its windows.
const MARGIN: Duration = Duration::from_secs(120);
/// How often a run that failed is tried again.
const RETRIES: usize = 1;
/// Name of host B for mpirun.
const HOST_B: &str = "b";
/// Frames of messages from other hosts.
const FRAMES: &str = "messages_rx_frames";
/// The interface of libfabric's TCP provider.
const INTERFACE: &str = "FI_TCP_IFACE";
/// The MPI program.
const SOURCE: &str = include_str!("exchange.c");

/// The hosts with their links, and what the programs need.
#[derive(Debug)]
pub struct MessageTestbed {
    lab: Lab,
    kernel: Link,
    engines: Link,
    executable: PathBuf,
    /// The MPI program.
    program: PathBuf,
    /// What mpirun takes for ssh.
    agent: PathBuf,
}

impl MessageTestbed {
    /// Makes the hosts and compiles the MPI program.
    ///
    /// # Errors
    /// Without root, two cores, Open MPI or the provider.
    pub fn new() -> Result<Self> {
        lab::require_programs(&["mpirun", "mpicc", "taskset"])?;
        mpi::provider()?;
        let executable =
            std::env::current_exe().explain("cannot find this executable", "mount /proc")?;
        let lab = Lab::new()?;
        if lab.host(Side::A).core == lab.host(Side::B).core {
            return Err(Failure::new(
                "each host needs a core of its own, but this process may use only one",
                "allow it a second one (taskset, cgroup)",
            ));
        }
        let parsed = |pair: [&str; 2]| pair.map(|text| text.parse().expect("an address"));
        let kernel = lab.join(Some(parsed(KERNEL)))?;
        let engines = lab.join(Some(parsed(ENGINES)))?;
        lab.suit(&engines, Traffic::RequestsOverXdp)?;
        let program = compiled(&lab)?;
        let agent = lab.scratch().join("agent.sh");
        let testbed = Self { lab, kernel, engines, executable, program, agent };
        testbed.write_agent()?;
        Ok(testbed)
    }

    /// Runs the patterns of one system, one after the other.
    ///
    /// # Errors
    /// When a program fails twice, or the work was not done by whom it should have been.
    pub fn run(&self, works: &[EmpWork], window: Duration) -> Result<Vec<Vec<Sample>>> {
        let mut tried = self.once(works, window);
        for _ in 0..RETRIES {
            if tried.is_ok() {
                break;
            }
            tried = self.once(works, window);
        }
        tried
    }

    fn once(&self, works: &[EmpWork], window: Duration) -> Result<Vec<Vec<Sample>>> {
        let Some(system) = works.first().map(|work| work.system) else { return Ok(Vec::new()) };
        // What is exchanged in a phase takes as long as its window at least.
        let limit = MARGIN + window * 4 * works.len() as u32;
        self.lab.place(&self.kernel, system.placement())?;
        let engines = match system.is_accelerated() {
            true => Side::BOTH.map(|side| self.engine(side)).into_iter().collect::<Result<_>>()?,
            false => Vec::new(),
        };
        let before = self.frames(&engines)?;
        let placed = ReceiveWork::now(&self.lab, &self.kernel);
        let mut words = vec![window.as_micros().to_string()];
        words.extend(works.iter().map(|work| work.pattern.to_string()));
        let output = match system.carrier() {
            Some(carrier) => self.exchange(system, carrier, &words, limit)?,
            None => self.mpi(system, &words, limit)?,
        };
        if engines.is_empty() {
            ReceiveWork::now(&self.lab, &self.kernel).check(&placed, system.placement())?;
        }
        for (side, (before, after)) in
            Side::BOTH.into_iter().zip(before.into_iter().zip(self.frames(&engines)?))
        {
            if after - before < works.len() as u64 {
                let cause = format!("the engine of {side:?} has {} frames", after - before);
                return Err(Failure::new(cause, "look at `outboard stats` there"));
            }
        }
        drop(engines);
        let of = |work: &EmpWork| {
            let measured = ExchangeResult::of(work.pattern, &output).ok_or_else(|| {
                let cause = format!("the program has not printed {}", work.pattern);
                Failure::new(cause, "run it by hand to see what it prints")
            })?;
            Ok(work.pattern.samples(&measured))
        };
        works.iter().map(of).collect()
    }

    /// Our own program on both sides.
    fn exchange(
        &self,
        system: MessageSystem,
        carrier: load::ExchangeCarrier,
        words: &[String],
        limit: Duration,
    ) -> Result<String> {
        let addresses = if system.is_accelerated() { ENGINES } else { KERNEL };
        let [local_a, local_b] = [0, 1].map(|side| format!("{}:{}", addresses[side], PORTS[side]));
        let (window, patterns) = words.split_first().expect("the window is first");
        let task = |side: Side, local: &str| {
            let mut task = Task::new(&self.executable)
                .args(["bench", "load", "exchange", carrier.word(), &local_b])
                .args(["--local", local, "--window-us", window]);
            if system.is_accelerated() {
                task = task.arg("--engine").arg(self.socket(side));
            }
            if side == Side::B { task.arg("--serve") } else { task }.args(patterns)
        };
        let mut second = self.lab.start(Side::B, task(Side::B, &local_b))?;
        second.until(MARGIN, |second| second.output().contains(load::OPENED))?;
        let first = self.lab.start(Side::A, task(Side::A, &local_a))?;
        let finished = first.wait(limit)?.success()?;
        second.wait(MARGIN)?.success()?;
        Ok(finished.output)
    }

    /// The MPI program, a rank on each host.
    fn mpi(&self, system: MessageSystem, words: &[String], limit: Duration) -> Result<String> {
        let yields = !matches!(system, MessageSystem::MpiTcp { yields: false, .. });
        let mut settings: Vec<(&str, String)> = vec![
            ("mpi_yield_when_idle", u8::from(yields).to_string()),
            ("oob_tcp_if_include", KERNEL_NETWORK.to_owned()),
        ];
        let mut chosen = |pml: &str, rest: &[(&'static str, &str)]| {
            settings.push(("pml", pml.to_owned()));
            settings.extend(rest.iter().map(|&(name, value)| (name, value.to_owned())));
        };
        match system {
            MessageSystem::MpiRxm => {
                chosen("cm", &[("mtl", "ofi"), ("mtl_ofi_provider_include", "tcp;ofi_rxm")])
            }
            MessageSystem::MpiTcp { .. } => {
                chosen("ob1", &[("btl", "tcp,self"), ("btl_tcp_if_include", KERNEL_NETWORK)]);
            }
            _ => {}
        }
        let accelerated = system == MessageSystem::MpiOutboard;
        let mut task = match accelerated {
            true => Task::new(&self.executable).args(["mpi", "--", "mpirun"]),
            false => Task::new("mpirun"),
        };
        task = task
            .args(["--allow-run-as-root", "--bind-to", "none", "--oversubscribe", "-np", "2"])
            .args(["-H", &format!("localhost:1,{HOST_B}:1"), "--mca", "plm_rsh_agent"])
            .arg(&self.agent);
        for (name, value) in settings {
            task = task.args(["--mca", name, &value]);
        }
        task = task.arg(&self.program).args(words);
        if accelerated {
            task = task.env("OUTBOARD_SOCKET", self.socket(Side::A));
        }
        task = task.env(INTERFACE, self.kernel.end(Side::A));
        Ok(self.lab.start(Side::A, task)?.wait(limit)?.success()?.output)
    }

    fn socket(&self, side: Side) -> PathBuf {
        self.lab.scratch().join(if side == Side::A { "a.sock" } else { "b.sock" })
    }

    fn engine(&self, side: Side) -> Result<Program> {
        let socket = self.socket(side);
        let _ = std::fs::remove_file(&socket);
        let core = self.lab.host(side).core.to_string();
        let port = format!("xdp:{},ports=512", self.engines.end(side));
        let arguments = ["--port", &port, "--core", &core, "--poll", "adaptive"];
        self.lab.start_engine(Task::new(&self.executable), side, &socket, &arguments)
    }

    /// Frames of messages that the engines have received.
    fn frames(&self, engines: &[Program]) -> Result<Vec<u64>> {
        let of = |(side, _)| {
            let stats = Observer::connect(&self.socket(side))?.stats()?;
            Ok(stats.counter(FRAMES))
        };
        Side::BOTH.into_iter().zip(engines).map(of).collect()
    }

    /// Starts the daemon of host B in B's namespaces, on its core, beside its engine.
    fn write_agent(&self) -> Result<()> {
        let host = self.lab.host(Side::B);
        let text = format!(
            "#!/bin/sh\nshift\nexec ip netns exec {} env OUTBOARD_SOCKET={} {INTERFACE}={} \
             taskset -c {} unshare --uts sh -c 'hostname {HOST_B}; exec sh -c \"$0\"' \"$*\"\n",
            host.namespace(),
            self.socket(Side::B).display(),
            self.kernel.end(Side::B),
            host.core,
        );
        let advice = "make TMPDIR writable";
        std::fs::write(&self.agent, text).explain("cannot write a script", advice)?;
        let permissions = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&self.agent, permissions)
            .explain("cannot make a script executable", advice)
    }
}

/// Compiles the MPI program.
fn compiled(lab: &Lab) -> Result<PathBuf> {
    let [source, program] = ["exchange.c", "exchange"].map(|name| lab.scratch().join(name));
    std::fs::write(&source, SOURCE).explain("cannot write a source", "make TMPDIR writable")?;
    compile(&source, &program)?;
    Ok(program)
}

fn compile(source: &Path, program: &Path) -> Result<()> {
    let mut compiler = Command::new("mpicc");
    compiler.args(["-O2", "-o"]).arg(program).arg(source);
    let output = compiler.output().explain("cannot run mpicc", "install libopenmpi-dev")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("mpicc failed: {said}"), "report this"))
}
