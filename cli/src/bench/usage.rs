//! What a window of load used: both hosts' cores, the engines and the programs, read at its
//! beginning and at its end by the client itself, so that set-up counts for nobody.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::cpu::{CoreTimes, process_time};
use lab::failure::Result;
use lab::observer::{Observer, Stats};
use serde::{Deserialize, Serialize};

/// Where a client finds what it is to account.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Sources {
    /// Cores of hosts A and B
    #[arg(long, value_delimiter = ',', default_value = "0,1")]
    pub cores: Vec<usize>,
    /// Control socket of host A's engine
    #[arg(long)]
    pub engine_a: Option<PathBuf>,
    /// Control socket of host B's engine
    #[arg(long)]
    pub engine_b: Option<PathBuf>,
    /// Process id of the server
    #[arg(long)]
    pub server: Option<i32>,
}

impl Sources {
    /// The arguments from which a client reads them again.
    pub fn arguments(&self) -> Vec<String> {
        let cores: Vec<String> = self.cores.iter().map(usize::to_string).collect();
        let mut words = vec!["--cores".to_owned(), cores.join(",")];
        for (flag, engine) in [("--engine-a", &self.engine_a), ("--engine-b", &self.engine_b)] {
            if let Some(socket) = engine {
                words.extend([flag.to_owned(), socket.display().to_string()]);
            }
        }
        if let Some(server) = self.server {
            words.extend(["--server".to_owned(), server.to_string()]);
        }
        words
    }
}

/// Reads [`Sources`]; opened before the load begins.
#[derive(Debug)]
pub struct Meter {
    sources: Sources,
    engines: [Option<Observer>; 2],
}

/// Everything at one moment.
#[derive(Debug)]
pub struct Reading {
    at: Instant,
    cores: Vec<CoreTimes>,
    engines: [Option<Stats>; 2],
    server: Duration,
    client: Duration,
}

/// Workload of one host's core.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Core {
    /// Seconds in which it worked, an engine's idle polling included.
    pub busy: f64,
    /// Seconds of that in interrupts, hard and soft.
    pub interrupts: f64,
    /// Seconds in which it was idle.
    pub idle: f64,
}

/// What a window used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Length of the window.
    pub seconds: f64,
    /// Cores of hosts A and B.
    pub cores: Vec<Core>,
    /// Processor time of the server program, seconds.
    pub server: f64,
    /// Processor time of the client program, seconds.
    pub client: f64,
    /// Counters of the engines of hosts A and B, as far as they grew.
    pub engines: [Option<BTreeMap<String, u64>>; 2],
}

impl Usage {
    /// How much a counter of the engine on host `host` grew; zero without an engine.
    pub fn counter(&self, host: usize, name: &str) -> u64 {
        let engine = self.engines.get(host).and_then(Option::as_ref);
        engine.and_then(|counters| counters.get(name)).copied().unwrap_or(0)
    }

    /// Seconds in which the engine of a host polled without finding anything.
    pub fn idle_polling(&self, host: usize) -> f64 {
        self.counter(host, "idle_ns") as f64 / 1e9
    }

    /// Seconds of a host's core that did something: programs, kernel and the engine's work.
    pub fn work(&self, host: usize) -> f64 {
        let busy = self.cores.get(host).map_or(0.0, |core| core.busy);
        (busy - self.idle_polling(host)).max(0.0)
    }

    /// Share of a host's core that is left for something else.
    pub fn idle_share(&self, host: usize) -> f64 {
        if self.seconds <= 0.0 {
            return 0.0;
        }
        (1.0 - self.work(host) / self.seconds).clamp(0.0, 1.0)
    }
}

impl Meter {
    /// Connects to the engines.
    ///
    /// # Errors
    /// When one does not answer.
    pub fn open(sources: &Sources) -> Result<Self> {
        let connect =
            |socket: &Option<PathBuf>| socket.as_deref().map(Observer::connect).transpose();
        let engines = [connect(&sources.engine_a)?, connect(&sources.engine_b)?];
        Ok(Self { sources: sources.clone(), engines })
    }

    /// Everything now.
    ///
    /// # Errors
    /// When an engine has ended.
    pub fn read(&mut self) -> Result<Reading> {
        let mut engines = [None, None];
        for (observer, stats) in self.engines.iter_mut().zip(&mut engines) {
            *stats = observer.as_mut().map(Observer::stats).transpose()?;
        }
        let core = |&core: &usize| CoreTimes::now(core).unwrap_or_default();
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        Ok(Reading {
            cores: self.sources.cores.iter().map(core).collect(),
            engines,
            server: self.sources.server.map_or(Duration::ZERO, process_time),
            client: process_time(own),
            at: Instant::now(),
        })
    }
}

impl Reading {
    /// When it was taken.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// What was used since `earlier`.
    pub fn since(&self, earlier: &Self) -> Usage {
        let core = |(now, before): (&CoreTimes, &CoreTimes)| {
            let used = now.since(before);
            Core { busy: used.busy(), interrupts: used.interrupts, idle: used.idle }
        };
        let grown = |(now, before): (&Option<Stats>, &Option<Stats>)| {
            let (now, before) = (now.as_ref()?, before.as_ref()?.map());
            let growth = |(name, value): (&str, u64)| {
                let grown = value.saturating_sub(before.get(name).copied().unwrap_or(0));
                (grown > 0).then(|| (name.to_owned(), grown))
            };
            Some(now.map().into_iter().filter_map(growth).collect())
        };
        let mut engines = self.engines.iter().zip(&earlier.engines).map(grown);
        Usage {
            seconds: self.at.duration_since(earlier.at).as_secs_f64(),
            cores: self.cores.iter().zip(&earlier.cores).map(core).collect(),
            server: self.server.saturating_sub(earlier.server).as_secs_f64(),
            client: self.client.saturating_sub(earlier.client).as_secs_f64(),
            engines: [engines.next().flatten(), engines.next().flatten()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: Instant, busy: f64, counters: &[(&str, u64)]) -> Reading {
        let counters = counters.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        Reading {
            at,
            cores: vec![CoreTimes::default(), CoreTimes { user: busy, ..CoreTimes::default() }],
            engines: [None, Some(Stats { counters })],
            server: Duration::ZERO,
            client: Duration::ZERO,
        }
    }

    #[test]
    fn idle_polling_is_no_work_of_the_host() {
        let begin = Instant::now();
        let before = reading(begin, 1.0, &[("idle_ns", 500), ("accepts", 3)]);
        let end = begin + Duration::from_secs(2);
        let after = reading(end, 2.5, &[("idle_ns", 1_000_000_500), ("accepts", 3)]);
        let used = after.since(&before);
        assert_eq!((used.seconds, used.idle_polling(1)), (2.0, 1.0));
        assert_eq!((used.work(1), used.idle_share(1)), (0.5, 0.75));
        assert_eq!((used.counter(1, "accepts"), used.counter(0, "idle_ns")), (0, 0));
        assert!(used.engines[0].is_none());
    }
}
