//! What is measured: cells of the experiments' grids, and the figures that come out of each.

use lab::Placement;

use super::load::{MESSAGE_BYTES, Outcome, Service};
use super::profile;
use super::system::System;

/// An experiment, named like its subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Experiment {
    /// 64-byte requests in a closed loop.
    Rpc,
    /// Transfers of growing size in both directions.
    Eta,
    /// Short connections.
    Connect,
    /// 64-byte requests in an open loop.
    Latency,
    /// Where the time of 1 KiB transmits goes.
    Profile,
}

impl Experiment {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Rpc, Self::Eta, Self::Connect, Self::Latency, Self::Profile];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rpc => "rpc",
            Self::Eta => "eta",
            Self::Connect => "connect",
            Self::Latency => "latency",
            Self::Profile => "profile",
        }
    }

    /// One line for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Rpc => "64-byte requests and replies, closed loop",
            Self::Eta => "transfers of 64 B to 64 KiB with the idle share of the host's core",
            Self::Connect => "short connections: connect, one 64-byte request, the server closes",
            Self::Latency => "64-byte requests and replies, open loop, from the time each is due",
            Self::Profile => "where the core's time goes in 1 KiB transmits, at the kernel's rate",
        }
    }

    /// The cells of its grid.
    pub fn cells(self, grid: Grid) -> Vec<GridCell> {
        match self {
            Self::Rpc => rpc(grid),
            Self::Eta => eta(grid),
            Self::Connect => connect(grid),
            Self::Latency => latency(grid),
            Self::Profile => vec![GridCell {
                group: "transmit, 1 flow".to_owned(),
                point: "1 KiB".to_owned(),
                work: Workload::Profile,
            }],
        }
    }

    /// The systems that it compares.
    pub fn systems(self) -> Vec<System> {
        let mut systems: Vec<System> = Placement::ALL.map(System::Kernel).to_vec();
        systems.extend(match self {
            Self::Rpc | Self::Eta | Self::Latency => {
                vec![System::XdpServer, System::TapServer, System::PacketBoth]
            }
            // Accepting, connecting, both.
            Self::Connect => {
                vec![System::XdpServer, System::TapServer, System::XdpClient, System::PacketBoth]
            }
            Self::Profile => vec![System::XdpServer, System::TapServer],
        });
        if self == Self::Profile {
            // A profile is that of one host's core.
            systems.retain(|system| system.splits_work());
        }
        systems
    }
}

/// How many cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Grid {
    /// What shows that everything works.
    Smoke,
    /// What `make bench` runs.
    #[default]
    Reduced,
    /// Everything.
    Full,
}

impl Grid {
    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Reduced => "reduced",
            Self::Full => "full",
        }
    }
}

/// Which way a transfer goes, as the host of the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The server's host sends.
    Transmit,
    /// The server's host receives.
    Receive,
}

/// What is done in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Requests in a closed loop.
    Rpc {
        /// Connections.
        connections: u32,
        /// Requests under way on each.
        outstanding: u32,
    },
    /// Bulk in one direction.
    Transfer {
        /// Which.
        direction: Direction,
        /// Bytes of each call.
        bytes: u32,
        /// Connections.
        flows: u32,
    },
    /// Short connections.
    Connect {
        /// At a time.
        concurrency: u32,
    },
    /// Requests in an open loop.
    Open(Offered),
    /// 1 KiB transmits on one connection, with the time of the host's core by component.
    Profile,
}

/// How many requests an open loop offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Percent of what the system has done in a closed loop just before.
    Percent(u32),
    /// So many a second, whatever the system can do.
    Rate(u32),
}

/// A cell of a grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridCell {
    /// Cells of one group are points of one plot.
    pub group: String,
    /// The point in it.
    pub point: String,
    /// What is done.
    pub work: Workload,
}

/// What the socket buffers of a few bulk connections may hold.
const BUFFERED_BYTES: u64 = 32 << 20;

/// Bytes of each call in `profile`.
const PROFILED_BYTES: u32 = 1024;
/// Connections of an open loop, and of the closed loop that its shares are of.
const OPEN_CONNECTIONS: u32 = 16;
/// What a system's capacity is measured with. One request is outstanding on each connection, since
/// an open loop sends its requests one by one: several that share a segment are several times as
/// many.
pub const CALIBRATION: Workload = Workload::Rpc { connections: OPEN_CONNECTIONS, outstanding: 1 };
/// Samples on which a 99.9th percentile rests at least.
const TAIL_SAMPLES_MIN: u64 = 100_000;

/// A figure of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Its name in the JSON.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// What was measured.
    pub value: f64,
}

fn rpc(grid: Grid) -> Vec<GridCell> {
    let pairs: &[(u32, u32)] = match grid {
        Grid::Smoke => &[(4, 8)],
        Grid::Reduced => &[(1, 1), (1, 16), (16, 1), (16, 8), (256, 1), (1000, 1)],
        Grid::Full => &[
            (1, 1),
            (1, 8),
            (1, 64),
            (16, 1),
            (16, 8),
            (16, 64),
            (64, 1),
            (64, 8),
            (64, 64),
            (256, 1),
            (256, 8),
            (1000, 1),
            (1000, 8),
            (10_000, 1),
        ],
    };
    let cell = |&(connections, outstanding): &(u32, u32)| GridCell {
        group: format!("{outstanding} outstanding"),
        point: plural(connections, "connection"),
        work: Workload::Rpc { connections, outstanding },
    };
    let mut cells: Vec<GridCell> = pairs.iter().map(cell).collect();
    // Points of a group follow each other.
    cells.sort_by_key(|cell| match cell.work {
        Workload::Rpc { connections, outstanding } => (outstanding, connections),
        _ => (0, 0),
    });
    cells
}

fn eta(grid: Grid) -> Vec<GridCell> {
    let (sizes, flows): (&[u32], &[u32]) = match grid {
        Grid::Smoke => (&[1024], &[1]),
        Grid::Reduced => (&[64, 256, 1024, 4096, 16384, 65536], &[1]),
        Grid::Full => {
            (&[64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536], &[1, 5, 16])
        }
    };
    let mut cells = Vec::new();
    for direction in [Direction::Transmit, Direction::Receive] {
        for &flows in flows {
            cells.extend(sizes.iter().map(|&bytes| transfer(direction, bytes, flows)));
        }
        if grid == Grid::Reduced {
            cells.extend([1024, 65536].map(|bytes| transfer(direction, bytes, 5)));
        }
    }
    cells
}

fn connect(grid: Grid) -> Vec<GridCell> {
    let concurrencies: &[u32] = match grid {
        Grid::Smoke => &[4],
        Grid::Reduced => &[1, 16, 64],
        Grid::Full => &[1, 4, 16, 64, 256],
    };
    let cell = |&concurrency: &u32| GridCell {
        group: "short connections".to_owned(),
        point: format!("{concurrency} at a time"),
        work: Workload::Connect { concurrency },
    };
    concurrencies.iter().map(cell).collect()
}

fn latency(grid: Grid) -> Vec<GridCell> {
    let (percents, rates): (&[u32], &[u32]) = match grid {
        Grid::Smoke => (&[10], &[1_000]),
        Grid::Reduced => (&[10, 50, 80], &[10_000, 50_000]),
        Grid::Full => (&[10, 50, 80], &[5_000, 10_000, 20_000, 50_000, 100_000, 200_000]),
    };
    let share = |&percent: &u32| GridCell {
        group: "at shares of each system's capacity".to_owned(),
        point: format!("{percent}%"),
        work: Workload::Open(Offered::Percent(percent)),
    };
    let rate = |&rate: &u32| GridCell {
        group: "at equal rates".to_owned(),
        point: format!("{rate}/s"),
        work: Workload::Open(Offered::Rate(rate)),
    };
    percents.iter().map(share).chain(rates.iter().map(rate)).collect()
}

fn transfer(direction: Direction, bytes: u32, flows: u32) -> GridCell {
    let way = match direction {
        Direction::Transmit => "transmit",
        Direction::Receive => "receive",
    };
    let size = if bytes < 1024 { format!("{bytes} B") } else { format!("{} KiB", bytes / 1024) };
    let group = format!("{way}, {}", plural(flows, "flow"));
    GridCell { group, point: size, work: Workload::Transfer { direction, bytes, flows } }
}

fn plural(count: u32, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

impl Workload {
    /// The server's part.
    pub fn service(self) -> Service {
        match self {
            Self::Rpc { .. } | Self::Open(_) => Service::Echo,
            Self::Connect { .. } => Service::Brief,
            Self::Transfer { direction: Direction::Transmit, .. } | Self::Profile => {
                Service::Source
            }
            Self::Transfer { direction: Direction::Receive, .. } => Service::Sink,
        }
    }

    /// Arguments of the server beside its address and service.
    pub fn server_arguments(self) -> Vec<String> {
        match self {
            Self::Rpc { .. } | Self::Open(_) | Self::Connect { .. } => Vec::new(),
            Self::Profile => vec!["--bytes".into(), PROFILED_BYTES.to_string()],
            Self::Transfer { bytes, .. } => vec!["--bytes".into(), bytes.to_string()],
        }
    }

    /// Arguments of the client for the server at `address`, on a system that does `capacity` requests
    /// a second.
    pub fn client_arguments(self, address: &str, capacity: f64) -> Vec<String> {
        let line = match self {
            Self::Rpc { connections, outstanding } => {
                format!("closed {address} --connections {connections} --outstanding {outstanding}")
            }
            Self::Transfer { direction, bytes, flows } => {
                let send = if direction == Direction::Receive { " --send" } else { "" };
                format!("bulk {address} --bytes {bytes} --flows {flows}{send}")
            }
            Self::Connect { concurrency } => format!("brief {address} --concurrency {concurrency}"),
            Self::Open(offered) => {
                let rate = match offered {
                    Offered::Percent(percent) => capacity * f64::from(percent) / 100.0,
                    Offered::Rate(rate) => f64::from(rate),
                };
                let rate = rate.max(1.0) as u64;
                format!("open {address} --connections {OPEN_CONNECTIONS} --rate {rate}")
            }
            Self::Profile => format!("bulk {address} --bytes {PROFILED_BYTES} --flows 1"),
        };
        line.split(' ').map(str::to_owned).collect()
    }

    /// Whether the links are to carry large frames.
    pub fn is_bulk(self) -> bool {
        matches!(self, Self::Transfer { .. } | Self::Profile)
    }

    /// The figures of an outcome, the main one first.
    pub fn metrics(self, system: System, outcome: &Outcome) -> Vec<Sample> {
        let usage = &outcome.usage;
        let mut metrics = Vec::new();
        let mut add = |name, unit, higher_is_better, value: f64| {
            metrics.push(Sample { name, unit, higher_is_better, value });
        };
        let operations = outcome.operations as f64;
        match self {
            Self::Rpc { .. } | Self::Open(_) | Self::Connect { .. } => {
                let [per_second, each] = match self {
                    Self::Connect { .. } => ["connections/s", "us/connection"],
                    _ => ["requests/s", "us/request"],
                };
                let rate = operations / usage.seconds;
                // In an open loop the rate is given; that it was reached is checked.
                if !matches!(self, Self::Open(_)) {
                    add("rate", per_second, true, rate);
                }
                if let Some(latency) = outcome.latency {
                    add("p50", "us", false, latency.p50);
                    add("p90", "us", false, latency.p90);
                    add("p99", "us", false, latency.p99);
                    if latency.samples >= TAIL_SAMPLES_MIN {
                        add("p99.9", "us", false, latency.p999);
                    }
                }
                if matches!(self, Self::Open(_)) {
                    add("rate reached", per_second, true, rate);
                }
                let per_operation = |seconds: f64| seconds / operations * 1e6;
                add("server program CPU", each, false, per_operation(usage.server));
                for (host, name) in ["client host CPU", "server host CPU"].into_iter().enumerate() {
                    if system.splits_work() {
                        add(name, each, false, per_operation(usage.work(host)));
                    }
                }
                let both = usage.work(0) + usage.work(1);
                add("both hosts' CPU", each, false, per_operation(both));
            }
            Self::Profile => return profile::samples(system, outcome),
            Self::Transfer { .. } => {
                let bits = outcome.bytes as f64 * 8.0;
                add("throughput", "Gbit/s", true, bits / usage.seconds / 1e9);
                if system.splits_work() {
                    add("idle share of the host's core", "%", true, usage.idle_share(1) * 100.0);
                }
                let both = (usage.work(0) + usage.work(1)) / outcome.bytes as f64 * 1e12;
                add("both hosts' CPU", "ms/GB", false, both);
            }
        }
        metrics
    }

    /// Bytes of streams that an engine on a host must have received and sent for an outcome, at
    /// least: half of what the client counted, less what the socket buffers in between hold.
    pub fn carried(self, outcome: &Outcome, host: usize) -> [u64; 2] {
        let half = (outcome.bytes / 2).saturating_sub(BUFFERED_BYTES).max(1);
        let receives_on_b = match self {
            Self::Rpc { .. } | Self::Open(_) | Self::Connect { .. } => {
                return [outcome.operations * MESSAGE_BYTES as u64 / 2; 2];
            }
            Self::Profile => false,
            Self::Transfer { direction, .. } => direction == Direction::Receive,
        };
        if receives_on_b == (host == 1) { [half, 0] } else { [0, half] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::usage::{Core, Usage};

    #[test]
    fn grids_grow_and_their_points_are_all_different() {
        for experiment in Experiment::ALL {
            let counts = [Grid::Smoke, Grid::Reduced, Grid::Full].map(|grid| {
                let cells = experiment.cells(grid);
                for (index, cell) in cells.iter().enumerate() {
                    let same = |other: &GridCell| {
                        (&other.group, &other.point) == (&cell.group, &cell.point)
                    };
                    assert_eq!(cells.iter().position(same), Some(index), "{cell:?}");
                }
                cells.len()
            });
            assert!(counts.is_sorted() && counts[0] >= 1, "{counts:?}");
        }
    }

    #[test]
    fn processor_time_is_given_by_host_only_where_it_is_the_hosts_own() {
        let cores =
            vec![Core { busy: 0.5, ..Core::default() }, Core { busy: 0.25, ..Core::default() }];
        let usage = Usage { seconds: 1.0, cores, ..Usage::default() };
        let outcome = Outcome { operations: 1000, bytes: 64_000, usage, ..Outcome::default() };
        let work = Workload::Rpc { connections: 1, outstanding: 1 };
        let value = |placement, name| {
            let metrics = work.metrics(System::Kernel(placement), &outcome);
            metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
        };
        assert_eq!(value(Placement::Steered, "server host CPU"), Some(250.0));
        assert_eq!(value(Placement::Sender, "server host CPU"), None);
        assert_eq!(value(Placement::Sender, "both hosts' CPU"), Some(750.0));
        assert_eq!(value(Placement::Sender, "rate"), Some(1000.0));
    }
}
