//! Two hosts, a path between them, and an engine under one of them.

use std::net::Ipv4Addr;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use lab::failure::Result;
use lab::observer::{Observer, Stats};
use lab::relay::{Frame, Path};
use lab::{Lab, Program, Side, Task, listens, serves};
use sim::congestion::Line;

use super::Arrangement;

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module; dropped, all of it ends.
#[derive(Debug)]
pub struct Stage<'a> {
    lab: &'a Lab,
    executable: &'a FilePath,
    // Ends before the path that it lives on.
    engine: Option<(Side, Program, PathBuf)>,
    path: Path,
}

impl<'a> Stage<'a> {
    /// Sets it up.
    ///
    /// # Errors
    /// When devices cannot be made, or the engine does not start.
    pub fn new(
        lab: &'a Lab,
        executable: &'a FilePath,
        arrangement: Arrangement,
        lines: [Line<Frame>; 2],
    ) -> Result<Self> {
        let path = Path::new(lab, lines)?;
        let mut stage = Self { lab, executable, engine: None, path };
        if let Some(side) = arrangement.accelerated() {
            let device = stage.path.device(side);
            let socket = lab.scratch().join(format!("{device}.sock"));
            let _ = std::fs::remove_file(&socket);
            // The same interface and address as the kernel's.
            let port = format!("xdp:{device},ports=16");
            let core = lab.host(side).core.to_string();
            let arguments = ["--port", &port, "--core", &core, "--poll", "adaptive"];
            let engine = lab.start_engine(Task::new(executable), side, &socket, &arguments)?;
            stage.engine = Some((side, engine, socket));
        }
        Ok(stage)
    }

    /// A host's address on the path.
    pub fn address(&self, side: Side) -> Ipv4Addr {
        self.path.address(side)
    }

    /// Starts a program on a host, accelerated where an engine is.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, side: Side, task: Task) -> Result<Program> {
        match &self.engine {
            Some((at, _, socket)) if *at == side => {
                self.lab.start(side, task.accelerated(self.executable, socket))
            }
            _ => self.lab.start(side, task),
        }
    }

    /// Starts a server on host B and waits until it listens, with the engine, too.
    ///
    /// # Errors
    /// When it does not come to that.
    pub fn serve(&self, task: Task, port: u16) -> Result<Program> {
        let mut server = self.start(Side::B, task)?;
        let is_served = || match &self.engine {
            Some((Side::B, _, socket)) => serves(socket, port),
            _ => true,
        };
        server.until(PATIENCE, |server| listens(server.pid(), port) && is_served())?;
        Ok(server)
    }

    /// The engine's counters, where there is one.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub fn stats(&self) -> Result<Option<Stats>> {
        let Some((_, _, socket)) = &self.engine else { return Ok(None) };
        Ok(Some(Observer::connect(socket)?.stats()?))
    }

    /// Ends all and tells how many segments the path has lost.
    pub fn end(self) -> u64 {
        let Self { engine, path, .. } = self;
        drop(engine);
        path.end().map_or(0, |[there, back]| there.lost + back.lost)
    }
}
