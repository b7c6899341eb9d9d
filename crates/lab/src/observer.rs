//! A control connection that only asks: counters, sockets, captures.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use shm::control::{
    CONTRACT_VERSION, ControlError, FromEngine, ProgramCensus, Role, Socket, SocketInfo, ToEngine,
    Wait,
};

use crate::failure::{Explain, Failure, Result};

/// Longest wait for an answer of the engine.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to an engine's control socket, as an observer.
#[derive(Debug)]
pub struct Observer {
    socket: Socket,
    path: PathBuf,
}

/// The engine's counters by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// In the order in which the engine keeps them.
    pub counters: Vec<(String, u64)>,
}

impl Stats {
    /// The counter `name`; zero when there is none.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
    }

    /// Seconds in which the workers had work.
    pub fn busy_seconds(&self) -> f64 {
        self.counter("busy_ns") as f64 / 1e9
    }

    /// The counters as a sorted map, for JSON.
    pub fn map(&self) -> BTreeMap<&str, u64> {
        self.counters.iter().map(|(name, value)| (name.as_str(), *value)).collect()
    }
}

impl Observer {
    /// Connects to the engine at `path`.
    ///
    /// # Errors
    /// When none answers there, or it refuses us.
    pub fn connect(path: &Path) -> Result<Self> {
        let mut observer = Self::reach(path)?;
        observer.greet()?;
        Ok(observer)
    }

    /// Connects to whatever listens at `path`.
    ///
    /// # Errors
    /// When nothing does.
    pub fn reach(path: &Path) -> Result<Self> {
        let shown = path.display();
        let socket = Socket::connect_within(path, Some(PATIENCE)).explain(
            format!("no engine answers at {shown}"),
            "start one (outboard engine --port PORT) or name its socket with --socket",
        )?;
        socket.wait_at_most(PATIENCE).explain("cannot limit the waiting time", "report this")?;
        Ok(Self { socket, path: path.to_path_buf() })
    }

    /// Becomes an observer.
    ///
    /// # Errors
    /// When what listens is an engine that refuses, or no engine.
    pub fn greet(&mut self) -> Result<()> {
        let shown = self.path.display().to_string();
        let hello = ToEngine::Hello {
            contract: CONTRACT_VERSION,
            role: Role::Observer,
            program: "outboard".into(),
        };
        match self.ask(&hello, None)? {
            FromEngine::Observing => Ok(()),
            FromEngine::Refused { contract, reason } => Err(Failure::new(
                format!("the engine at {shown} (contract version {contract}) refused: {reason}"),
                "use the executable with which the engine was started",
            )),
            _ => Err(self.confused()),
        }
    }

    /// The counters.
    ///
    /// # Errors
    /// When the engine ends, or answers something else.
    pub fn stats(&mut self) -> Result<Stats> {
        match self.ask(&ToEngine::Stats, None)? {
            FromEngine::Stats { counters } => Ok(Stats { counters }),
            _ => Err(self.confused()),
        }
    }

    /// The engine's sockets.
    ///
    /// # Errors
    /// As [`Observer::stats`].
    pub fn sockets(&mut self) -> Result<Vec<SocketInfo>> {
        let mut all = Vec::new();
        let mut answer = self.ask(&ToEngine::Sockets, None)?;
        loop {
            let FromEngine::Sockets { sockets, more } = answer else {
                return Err(self.confused());
            };
            all.extend(sockets);
            if !more {
                return Ok(all);
            }
            answer = self.receive()?;
        }
    }

    /// What attached programs have left to the kernel.
    ///
    /// # Errors
    /// As [`Observer::stats`].
    pub fn census(&mut self) -> Result<Vec<ProgramCensus>> {
        let mut all = Vec::new();
        let mut next = Some(0);
        while let Some(after) = next {
            let FromEngine::Census { programs, next: more } =
                self.ask(&ToEngine::Census { after }, None)?
            else {
                return Err(self.confused());
            };
            all.extend(programs);
            next = more;
        }
        Ok(all)
    }

    /// Has frames of `port` (the engine's only one when empty) that `filter` keeps written to
    /// `output` as pcapng, at most `snap_bytes` of each, until this connection closes.
    ///
    /// # Errors
    /// When the engine refuses, and as [`Observer::stats`].
    pub fn capture(
        &mut self,
        port: &str,
        snap_bytes: u32,
        filter: &str,
        output: BorrowedFd<'_>,
    ) -> Result<()> {
        let question = ToEngine::Capture { port: port.into(), snap_bytes, filter: filter.into() };
        match self.ask(&question, Some(output))? {
            FromEngine::Capturing { refused: None } => Ok(()),
            FromEngine::Capturing { refused: Some(reason) } => Err(Failure::new(
                format!("the engine refused the capture: {reason}"),
                "list its ports with `outboard stats`, and check that --output can be written",
            )),
            _ => Err(self.confused()),
        }
    }

    /// Tells an engine on trial that it is to stay.
    ///
    /// # Errors
    /// When the engine refuses, and as [`Observer::stats`].
    pub fn confirm(&mut self) -> Result<()> {
        match self.ask(&ToEngine::Confirm, None)? {
            FromEngine::Confirmed { refused: None } => Ok(()),
            FromEngine::Confirmed { refused: Some(reason) } => Err(Failure::new(
                format!("nothing was confirmed: {reason}"),
                "check how the engine was started",
            )),
            _ => Err(self.confused()),
        }
    }

    /// Ends the capture and waits until all of it is written.
    ///
    /// # Errors
    /// When the output could not be written, or the engine does not come to the end.
    pub fn end_capture(&mut self) -> Result<()> {
        // The engine may have hung up already.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
        loop {
            match self.receive_or_end()? {
                None => return Ok(()),
                Some(FromEngine::Capturing { refused: Some(reason) }) => {
                    return Err(Failure::new(
                        format!("the capture is incomplete: {reason}"),
                        "make room, or choose another --output",
                    ));
                }
                Some(_) => (),
            }
        }
    }

    /// Names of the interfaces that the engine shares with a kernel.
    ///
    /// # Errors
    /// As [`Observer::stats`].
    pub fn shared_interfaces(&mut self) -> Result<Vec<String>> {
        let name = |(counter, _): (String, u64)| {
            let label = counter.strip_prefix("port_rx_frames{port=")?.strip_suffix('}')?;
            label.strip_prefix("xdp:").map(str::to_owned)
        };
        Ok(self.stats()?.counters.into_iter().filter_map(name).collect())
    }

    /// Process of the engine, as this process sees it; 0 when it does not.
    pub fn pid(&self) -> i32 {
        let peer = rustix::net::sockopt::socket_peercred(&self.socket);
        peer.map_or(0, |peer| peer.pid.as_raw_nonzero().get())
    }

    /// Runs `work` in the engine's network namespace, on a thread of its own if that is another
    /// than ours.
    ///
    /// # Errors
    /// When the namespace cannot be entered, or `work` fails.
    pub fn in_namespace<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let path = format!("/proc/{}/ns/net", self.pid());
        let own = std::fs::read_link("/proc/self/ns/net");
        if let (Ok(own), Ok(theirs)) = (own, std::fs::read_link(&path))
            && own == theirs
        {
            return work();
        }
        let advice = "run this as root, or in the engine's own namespaces";
        let namespace = std::fs::File::open(&path)
            .explain(format!("cannot enter the engine's network namespace ({path})"), advice)?;
        std::thread::scope(|scope| {
            let entered = scope.spawn(move || {
                rustix::thread::move_into_link_name_space(
                    namespace.as_fd(),
                    Some(rustix::thread::LinkNameSpaceType::Network),
                )
                .explain("cannot enter the engine's network namespace", advice)?;
                work()
            });
            entered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The connection, to wait for its end.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn ask(
        &mut self,
        question: &ToEngine,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<FromEngine> {
        match self.socket.send(question, descriptor.as_slice(), Wait::Yes) {
            // An engine that hangs up at once has said why.
            Ok(()) | Err(ControlError::Closed) => self.receive(),
            Err(error) => Err(error).explain(
                format!("cannot query the engine at {}", self.path.display()),
                "check that the engine still runs",
            ),
        }
    }

    fn receive(&mut self) -> Result<FromEngine> {
        self.receive_or_end()?.ok_or_else(|| {
            Failure::new(format!("the engine at {} ended", self.path.display()), "start it again")
        })
    }

    /// The next message; `None` when the engine has hung up.
    fn receive_or_end(&mut self) -> Result<Option<FromEngine>> {
        match self.socket.receive(Wait::Yes) {
            Ok((message, _)) => Ok(Some(message)),
            Err(ControlError::Closed) => Ok(None),
            Err(ControlError::Malformed) => Err(Failure::new(
                "the engine's answer is malformed",
                "use the engine's own executable",
            )),
            Err(error) => Err(error).explain(
                format!("the engine at {} does not answer", self.path.display()),
                "check that it still runs",
            ),
        }
    }

    fn confused(&self) -> Failure {
        Failure::new(
            format!("the engine at {} answered another question", self.path.display()),
            "use the executable with which the engine was started",
        )
    }
}
