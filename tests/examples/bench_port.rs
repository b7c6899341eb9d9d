//! Raw sending and receiving through an xdp port beside DPDK's testpmd, on the same veth pair in
//! the same run: `bench_port LOAD [WINDOWS]`, where LOAD is the example `load` of the crate port,
//! built. `make bench-port` builds and runs both.
//!
//! Windows of the two alternate, in an order that changes; shown are medians with the extremes.
//! The frames to be received come from one sender throughout, an AF_XDP socket on the other host.
//! testpmd runs without huge pages, with native XDP and copies, as the port does on veth.

use std::path::PathBuf;
use std::time::Duration;

use outboard::demo::report::{figure, median};
use outboard::failure::{Failure, Result};
use outboard::lab::{Lab, Link, Program, Side, Task, Traffic, require_programs};
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
    let usage = || Failure::new("bench_port LOAD [WINDOWS]", "run it by \"make bench-port\"");
    let load: PathBuf = arguments.next().ok_or_else(usage)?.into();
    let windows = arguments.next().map_or(Ok(5), |text| text.parse().map_err(|_| usage()))?;
    require_programs(&["dpdk-testpmd"])?;
    let lab = Lab::new()?;
    // Each for one kind of receiving: the kernel does not forget that it had a thread.
    let [threaded, soft] = [lab.join(None)?, lab.join(None)?];
    lab.suit(&threaded, Traffic::Requests)?;
    let bench = Bench { lab, threaded, soft, load };
    println!("frames/s, medians of {windows} windows (smallest to largest)");
    println!("{:<52} {:>30} {:>30} {:>6} {:>11}", "", "Outboard", "testpmd", "ratio", "offered");
    for row in ROWS {
        bench.row(row, windows)?;
    }
    Ok(())
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
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for window in 0..windows {
            if window % 2 == 0 {
                ours.push(self.outboard(row)?);
                theirs.push(self.testpmd(row)?);
            } else {
                theirs.push(self.testpmd(row)?);
                ours.push(self.outboard(row)?);
            }
        }
        let offered = sender.map(|sender| of_outboard(&sender.output()));
        let offered = offered.and_then(|all| median(&all)).map_or("".into(), figure);
        let middle = |values: &[f64]| median(values).unwrap_or(f64::NAN);
        println!(
            "{:<52} {:>30} {:>30} {:>6.2} {offered:>11}",
            row.name(),
            spread(&ours),
            spread(&theirs),
            middle(&ours) / middle(&theirs)
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
        let port = format!("xdp:{},ports=4", self.link(row).end(side));
        let task = Task::new(&self.load).arg(port);
        match to {
            None => task.arg("receive"),
            Some(to) => task.args(["send", &row.bytes.to_string(), to]),
        }
    }

    fn outboard(&self, row: Row) -> Result<f64> {
        // A station that does not exist, as testpmd's frames are for.
        let nobody = (row.direction == Direction::Send).then_some("02:00:00:00:00:00");
        self.window(self.task(row, Side::B, nobody), of_outboard, 4)
    }

    fn testpmd(&self, row: Row) -> Result<f64> {
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
        self.window(task, |output| of_testpmd(output, counter), 3)
    }

    /// Runs a task until it has shown so many figures; the median of all but the first.
    fn window(&self, task: Task, read: impl Fn(&str) -> Vec<f64>, count: usize) -> Result<f64> {
        let mut program = self.lab.start(Side::B, task)?;
        program.until(PATIENCE, |program| read(&program.output()).len() >= count)?;
        let figures = read(&program.output());
        // It takes its XDP program away with it, if it is given the time.
        program.signal(Signal::TERM);
        program.wait(PATIENCE)?;
        median(figures.get(1..).unwrap_or_default())
            .ok_or_else(|| Failure::new("there was no figure", "run it again"))
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
