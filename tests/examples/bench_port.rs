//! Raw sending and receiving through an xdp port beside DPDK's testpmd, on the same veth pair in
//! the same run: `bench_port LOAD [WINDOWS [ROWS]]`, where LOAD is the example `load` of the crate
//! port, built, and ROWS a part of the rows' names. `make bench-port` builds and runs both.
//!
//! Windows of the two alternate, in an order that changes; shown are medians with the extremes.
//! The frames to be received come from one sender throughout, an AF_XDP socket on the other host,
//! whose rate is shown. Of frames sent, a veth peer drops those that find its ring full, and the
//! sender is not told: shown is what became of each one's frames.
//! testpmd runs without huge pages, with native XDP and copies, as the port does on veth.

use std::path::PathBuf;
use std::time::Duration;

use lab::failure::{Failure, Result};
use lab::figures::{figure, median};
use lab::{Lab, Link, Program, Side, Task, Traffic, require_programs};
use rustix::process::Signal;

/// Longest time for a program to show a figure.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Send,
    Receive,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
struct Row {
    direction: Direction,
    bytes: usize,
    /// Who does the kernel's share of receiving: a thread on the receiver's core, or the sender.
    traffic: Traffic,
}

const ROWS: [Row; 6] = [
    Row { direction: Direction::Send, bytes: 64, traffic: Traffic::Requests },
    Row { direction: Direction::Send, bytes: 1500, traffic: Traffic::Requests },
    Row { direction: Direction::Receive, bytes: 64, traffic: Traffic::Frames },
    Row { direction: Direction::Receive, bytes: 1500, traffic: Traffic::Frames },
    Row { direction: Direction::Receive, bytes: 64, traffic: Traffic::Requests },
    Row { direction: Direction::Receive, bytes: 1500, traffic: Traffic::Requests },
];

impl Row {
    fn name(&self) -> String {
        let what = match (self.direction, self.traffic) {
            (Direction::Send, _) => "send",
            (Direction::Receive, Traffic::Requests) => "receive, one core for it all",
            (Direction::Receive, _) => "receive, soft interrupt on the sender's core",
        };
        format!("{what}, {} B", self.bytes)
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage =
        || Failure::new("bench_port LOAD [WINDOWS [ROWS]]", "run it by \"make bench-port\"");
    let load: PathBuf = arguments.next().ok_or_else(usage)?.into();
    let windows = arguments.next().map_or(Ok(5), |text| text.parse().map_err(|_| usage()))?;
    let rows = arguments.next().unwrap_or_default();
    require_programs(&["dpdk-testpmd"])?;
    let lab = Lab::new()?;
    // Each for one kind of receiving: the kernel does not forget that it had a thread.
    let [threaded, soft] = [lab.join(None)?, lab.join(None)?];
    lab.suit(&threaded, Traffic::Requests)?;
    let bench = Bench { lab, threaded, soft, load };
    println!("frames/s, medians of {windows} windows (smallest to largest)");
    println!("{:<52} {:>30} {:>30} {:>6}", "", "Outboard", "testpmd", "ratio");
    for row in ROWS.into_iter().filter(|row| row.name().contains(&rows)) {
        bench.row(row, windows)?;
    }
    Ok(())
}

/// A program that shows figures until it is stopped.
struct Load<Read> {
    task: Task,
    /// The figures in its output.
    read: Read,
    /// How many are waited for.
    count: usize,
}

struct Bench {
    lab: Lab,
    threaded: Link,
    soft: Link,
    load: PathBuf,
}

impl Bench {
    fn row(&self, row: Row, windows: usize) -> Result<()> {
        let sender = match row.direction {
            Direction::Send => None,
            Direction::Receive => Some(self.sender(row)?),
        };
        let (mut ours, mut theirs) = (Windows::default(), Windows::default());
        for window in 0..windows {
            if window % 2 == 0 {
                self.outboard(row, &mut ours)?;
                self.testpmd(row, &mut theirs)?;
            } else {
                self.testpmd(row, &mut theirs)?;
                self.outboard(row, &mut ours)?;
            }
        }
        let middle = |values: &[f64]| median(values).unwrap_or(f64::NAN);
        let aside = match sender {
            Some(sender) => format!("offered {}", figure(middle(&of_outboard(&sender.output())))),
            None => format!("arrived {} / {}", ours.arrived(), theirs.arrived()),
        };
        println!(
            "{:<52} {:>30} {:>30} {:>6.2}  {aside}",
            row.name(),
            spread(&ours.rates),
            spread(&theirs.rates),
            middle(&ours.rates) / middle(&theirs.rates)
        );
        Ok(())
    }

    /// The sender of what is received, once it sends.
    fn sender(&self, row: Row) -> Result<Program> {
        let path = format!("/sys/class/net/{}/address", self.link(row).end(Side::B));
        let to = self.lab.inside(Side::B, &["cat", &path])?;
        let task = self.task(row, Side::A, Some(to.trim()));
        let mut sender = self.lab.start(Side::A, task)?;
        sender.until(PATIENCE, |sender| !of_outboard(&sender.output()).is_empty())?;
        Ok(sender)
    }

    fn link(&self, row: Row) -> &Link {
        if row.traffic == Traffic::Requests { &self.threaded } else { &self.soft }
    }

    /// The load through our port: frames sent to somebody, or received.
    fn task(&self, row: Row, side: Side, to: Option<&str>) -> Task {
        let port = format!("xdp:{},ports=4,mode=copy", self.link(row).end(side));
        let task = Task::new(&self.load).arg(port);
        match to {
            None => task.arg("receive"),
            Some(to) => task.args(["send", &row.bytes.to_string(), to]),
        }
    }

    fn outboard(&self, row: Row, into: &mut Windows) -> Result<()> {
        // A station that does not exist, as testpmd's frames are for.
        let nobody = (row.direction == Direction::Send).then_some("02:00:00:00:00:00");
        let task = self.task(row, Side::B, nobody);
        self.window(row, Load { task, read: of_outboard, count: 4 }, into)
    }

    fn testpmd(&self, row: Row, into: &mut Windows) -> Result<()> {
        let core = self.lab.host(Side::B).core;
        let interface = self.link(row).end(Side::B);
        let device = format!("net_af_xdp0,iface={interface},start_queue=0,queue_count=1");
        let (mode, counter) = match row.direction {
            Direction::Send => ("txonly", "Tx-pps:"),
            Direction::Receive => ("rxonly", "Rx-pps:"),
        };
        let task = Task::words("dpdk-testpmd --no-huge -m 256 --no-pci --no-shconf --no-telemetry")
            .args(["--lcores", &format!("0@{core},1@{core}"), "--main-lcore", "0"])
            .args(["--vdev", &device, "--", "--auto-start", "--nb-cores=1", "--stats-period=1"])
            .args(["--total-num-mbufs=16384", "--no-lsc-interrupt"])
            .arg(format!("--forward-mode={mode}"))
            .arg(format!("--txpkts={}", row.bytes));
        let read = |output: &str| of_testpmd(output, counter);
        self.window(row, Load { task, read, count: 3 }, into)
    }

    /// Runs a load until it has shown its figures; the median of all but the first counts.
    fn window<Read: Fn(&str) -> Vec<f64>>(
        &self,
        row: Row,
        Load { task, read, count }: Load<Read>,
        into: &mut Windows,
    ) -> Result<()> {
        let before = self.crossed(row)?;
        let mut program = self.lab.start(Side::B, task)?;
        program.until(PATIENCE, |program| read(&program.output()).len() >= count)?;
        let figures = read(&program.output());
        // It takes its XDP program away with it, if it is given the time.
        program.signal(Signal::TERM);
        program.wait(PATIENCE)?;
        let after = self.crossed(row)?;
        let rate = median(figures.get(1..).unwrap_or_default())
            .ok_or_else(|| Failure::new("there was no figure", "run it again"))?;
        into.rates.push(rate);
        into.taken += after[0] - before[0];
        into.dropped += after[1] - before[1];
        Ok(())
    }

    /// Frames from host B that the other end of a row's link has taken so far, and those dropped.
    fn crossed(&self, row: Row) -> Result<[f64; 2]> {
        let count = |side, name| {
            let path = format!("/sys/class/net/{}/statistics/{name}", self.link(row).end(side));
            let text = self.lab.inside(side, &["cat", &path])?;
            text.trim()
                .parse()
                .map_err(|_| Failure::new(format!("{path} holds no number"), "mount /sys"))
        };
        Ok([count(Side::A, "rx_packets")?, count(Side::B, "tx_dropped")?])
    }
}

/// What the windows of a row gave.
#[derive(Debug, Default)]
struct Windows {
    rates: Vec<f64>,
    /// Frames sent that the other end took, and that it had no room for.
    taken: f64,
    dropped: f64,
}

impl Windows {
    /// The share of the frames sent that arrived.
    fn arrived(&self) -> String {
        format!("{:.0}%", self.taken / (self.taken + self.dropped) * 100.0)
    }
}

fn of_outboard(output: &str) -> Vec<f64> {
    output.lines().filter_map(|line| line.strip_prefix("frames/s ")?.parse().ok()).collect()
}

/// Figures of testpmd, without those from before its port was up.
fn of_testpmd(output: &str, counter: &str) -> Vec<f64> {
    let figures = output.lines().filter_map(|line| {
        let (_, after) = line.split_once(counter)?;
        after.split_whitespace().next()?.parse().ok()
    });
    figures.skip_while(|figure| *figure == 0.0).collect()
}

fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    let middle = median(values).unwrap_or(f64::NAN);
    format!("{} ({} to {})", figure(middle), figure(least), figure(most))
}
