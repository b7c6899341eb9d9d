//! An engine in this process with ports in memory, and a raw endpoint over all of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use client::Session;
use client::raw::{Raw, RawReceiver, RawSender, RawSpec};
use engine::config::{EngineConfig, Poll, PortSetup};
use engine::service::Engine;
use engine::service::raw::rights::{RawRights, RawRule};
use engine::stats::Counters;
use lab::failure::{Explain, Result};
use port::Port;

use super::failed;
use crate::bench::cores::Cores;

/// The engine and its only program.
pub struct Rig {
    /// What the program receives.
    pub receiver: RawReceiver,
    /// What it sends.
    pub sender: RawSender,
    engine: Option<Engine>,
    directory: PathBuf,
}

impl Rig {
    /// Starts an engine with these ports on its core, and opens a raw endpoint over all of them that
    /// takes every frame.
    ///
    /// # Errors
    /// When the engine or the endpoint is refused.
    pub fn start(ports: Vec<Box<dyn Port>>, cores: Cores) -> Result<Self> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("outboard-ni-{}-{serial}", std::process::id()));
        std::fs::create_dir_all(&directory)
            .explain(format!("cannot make {}", directory.display()), "make room in TMPDIR")?;
        let mut config = EngineConfig::new(directory.join("engine.sock"));
        config.core = Some(cores.engine);
        config.poll = Poll::Busy;
        let rights = RawRights { receive: true, send: true, take: true, spoof: true };
        let user = rustix::process::geteuid().as_raw();
        config.raw = vec![RawRule { users: vec![user], rights, ..RawRule::default() }];
        let socket = config.socket.clone();
        let names: Vec<String> = ports.iter().map(|port| port.info().name.clone()).collect();
        let setup = |port| PortSetup {
            port,
            addresses: Vec::new(),
            gateway: None,
            routes: Vec::new(),
            ipv6: engine::config::Ipv6Mode::Off,
        };
        let engine = Engine::start(config, ports.into_iter().map(setup).collect())
            .map_err(|error| failed("the engine does not start", error))?;
        let session = Session::attach(&socket, "bench")
            .map_err(|error| failed("the engine refuses the program", error))?;
        let spec = RawSpec::ports(names.iter().map(String::as_str)).take().by_rules_alone();
        let raw = Raw::open(&session, spec)
            .map_err(|error| failed("the engine refuses the raw endpoint", error))?;
        let (receiver, sender) = raw.split();
        Ok(Self { receiver, sender, engine: Some(engine), directory })
    }

    /// The engine's counters.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let counters: Option<&Arc<Counters>> = self.engine.as_ref().map(Engine::counters);
        counters.map(|counters| counters.read()).unwrap_or_default()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.stop_handle().stop();
            // What its threads say, the run has noticed itself.
            let _ = engine.join();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
