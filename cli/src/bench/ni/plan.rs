//! The runs, and the paper's figures beside them.

use std::time::Duration;

use super::NiWork;
use super::paths::MessagePath;
use super::rings::{Blocks, Carrier, Moment, Publishing};
use super::switched::Exchange;
use crate::bench::cell::Grid;
use crate::bench::emp::pattern::Pattern;
use crate::bench::planned::{Planned, Series};

const RINGS: Series = Series {
    name: "outboard",
    about: "byte rings of raw endpoints, and an engine with ports in memory",
    is_counterpart: false,
};
const DOWN: Series =
    Series { name: "down", about: "the ring from program to engine", is_counterpart: false };
const UP: Series =
    Series { name: "up", about: "the ring from engine to program", is_counterpart: false };
const BARE: Series = Series {
    name: "bare-ring",
    about: "a ring between two threads in C, without headers, checks and counters",
    is_counterpart: true,
};
const MEMCPY: Series =
    Series { name: "memcpy", about: "copies on one core, no ring", is_counterpart: false };
const LIMIT: Series = Series {
    name: "ethernet-limit",
    about: "what four links carry with 24 bytes beside each frame",
    is_counterpart: true,
};
const EACH_FRAME: Series =
    Series { name: "each-frame", about: "every frame is shown for itself", is_counterpart: true };
const EACH_BURST: Series = Series {
    name: "each-burst",
    about: "the frames of a burst are shown together, which the engine does",
    is_counterpart: false,
};
const EACH_200_US: Series = Series {
    name: "each-200-us",
    about: "frames are shown every 200 us, as the paper does under load",
    is_counterpart: false,
};
const SEPARATE: Series =
    Series { name: "separate", about: "each frame is a message", is_counterpart: true };
const COMBINED: Series = Series {
    name: "combined",
    about: "small frames of a burst share messages, which the engine does",
    is_counterpart: false,
};

/// Bits a second of the paper's links.
const HUNDRED: u64 = 100_000_000;
/// A quarter of a gigabit, so that four ports have one: the paper gives its headroom for that.
const QUARTER: u64 = 250_000_000;
/// What the paper showed under load.
const PERIOD: Duration = Duration::from_micros(200);

fn of<W>(group: &str, point: String, series: Series, work: W) -> Planned<W> {
    Planned { group: group.to_owned(), point, series, work, paper: Vec::new() }
}

fn bytes(bytes: usize) -> String {
    format!("{bytes} B")
}

/// All runs of a grid.
pub fn plan(grid: Grid) -> Vec<Planned<NiWork>> {
    let mut plan = Vec::new();
    blocks(grid, &mut plan);
    exchanges(grid, &mut plan);
    round_trips(grid, &mut plan);
    headroom(grid, &mut plan);
    ablations(grid, &mut plan);
    messages(grid, &mut plan);
    plan
}

/// Figure 3. The paper's 204 and 198 MB/s are those of its largest blocks; half of the former is
/// reached at 200 bytes.
fn blocks(grid: Grid, plan: &mut Vec<Planned<NiWork>>) {
    let sizes: &[usize] = match grid {
        Grid::Smoke => &[64, 9000],
        Grid::Reduced => &[64, 128, 256, 512, 1024, 1514, 4096, 9000],
        Grid::Full => &[64, 96, 128, 192, 200, 256, 384, 512, 768, 1024, 1514, 2048, 4096, 9000],
    };
    let carriers = [
        (UP, Carrier::Up, 204.0),
        (DOWN, Carrier::Down, 198.0),
        (BARE, Carrier::Bare, 0.0),
        (MEMCPY, Carrier::Memcpy, 0.0),
    ];
    for &size in sizes {
        for (series, carrier, paper) in carriers {
            let work = NiWork::Blocks(Blocks { carrier, bytes: size });
            let mut run = of("bandwidth of a ring (figure 3)", bytes(size), series, work);
            if Some(&size) == sizes.last() && paper > 0.0 {
                run.paper.push(("bandwidth", paper));
            }
            plan.push(run);
        }
    }
    let group = "half of the bandwidth of 9,000 B (figure 3)";
    for (series, carrier, _) in carriers {
        let mut run = of(group, "block".to_owned(), series, NiWork::HalfBlock(carrier));
        if carrier == Carrier::Up {
            run.paper.push(("half of the bandwidth at", 200.0));
        }
        plan.push(run);
    }
}

/// Figure 4 and table I.
fn exchanges(grid: Grid, plan: &mut Vec<Planned<NiWork>>) {
    let sizes: &[usize] = match grid {
        Grid::Smoke => &[64],
        Grid::Reduced => &[64, 256, 512, 1024, 1514],
        Grid::Full => &[64, 128, 256, 512, 768, 1024, 1280, 1514],
    };
    let group = "four ports of 100 Mbit/s to each other (figure 4, table I)";
    for &size in sizes {
        let exchange = Exchange { bytes: size, rate_bits: HUNDRED };
        plan.push(of(group, bytes(size), LIMIT, NiWork::Limit(exchange)));
        let mut run = of(group, bytes(size), RINGS, NiWork::Exchange(exchange));
        match size {
            64 => run.paper.push(("throughput", 196.0)),
            1514 => run.paper.push(("throughput", 373.0)),
            _ => {}
        }
        plan.push(run);
    }
    for &size in sizes {
        let exchange = Exchange { bytes: size, rate_bits: 0 };
        let group = "four ports to each other as fast as the engine can";
        plan.push(of(group, bytes(size), RINGS, NiWork::Exchange(exchange)));
    }
}

/// Figure 5 and table II. The paper's stages of 64 bytes: HOSTINGRESS 0.9 and ETHEREGRESS 2.4 us, MACs
/// and switch 17.7, ETHERINGRESS 2.6 and HOSTEGRESS 3.4, and 1.7 of the host in both directions, which
/// stand with those of receiving here. They add up to 28.7; the paper prints 28.3.
fn round_trips(grid: Grid, plan: &mut Vec<Planned<NiWork>>) {
    let sizes: &[usize] = match grid {
        Grid::Smoke => &[64],
        Grid::Reduced => &[64, 512, 1514],
        Grid::Full => &[64, 128, 256, 512, 1024, 1514],
    };
    for &size in sizes {
        let group = "10,000 frames to itself (figure 5, table II)";
        let mut run = of(group, bytes(size), RINGS, NiWork::RoundTrips(size));
        if size == 64 {
            run.paper.extend([
                ("round trip, mean", 28.3),
                ("program to port", 3.3),
                ("port, switch, port", 17.7),
                ("port to program", 7.7),
            ]);
        }
        plan.push(run);
    }
}

/// "About three 32-bit operations a byte when moving data unidirectionally at gigabit speed."
fn headroom(grid: Grid, plan: &mut Vec<Planned<NiWork>>) {
    let sizes: &[usize] = match grid {
        Grid::Smoke => &[1514],
        Grid::Reduced | Grid::Full => &[64, 1514],
    };
    for &size in sizes {
        let work = NiWork::Headroom(Exchange { bytes: size, rate_bits: QUARTER });
        let mut run = of("what the engine has left at 1 Gbit/s", bytes(size), RINGS, work);
        run.paper.push(("operations for each byte", 3.0));
        plan.push(run);
    }
}

/// Rows D3 and D4.
fn ablations(grid: Grid, plan: &mut Vec<Planned<NiWork>>) {
    let sizes: &[usize] = match grid {
        Grid::Smoke => &[60],
        Grid::Reduced => &[60, 1514],
        Grid::Full => &[60, 256, 1514],
    };
    let moments = [
        (EACH_FRAME, Moment::Frame),
        (EACH_BURST, Moment::Burst),
        (EACH_200_US, Moment::Every(PERIOD)),
    ];
    for &size in sizes {
        for (series, moment) in moments {
            let work = NiWork::Publishing(Publishing { moment, combines: false, bytes: size });
            plan.push(of("when frames are shown (D3)", bytes(size), series, work));
        }
    }
    let small = sizes.iter().filter(|size| **size <= 256);
    for &size in small {
        for (series, combines) in [(SEPARATE, false), (COMBINED, true)] {
            let work =
                NiWork::Publishing(Publishing { moment: Moment::Burst, combines, bytes: size });
            plan.push(of("small frames in one message (D4)", bytes(size), series, work));
        }
    }
}

/// Table III with figures 6 and 7. The paper's bandwidths have a bug that it admits.
fn messages(grid: Grid, plan: &mut Vec<Planned<NiWork>>) {
    let (small, large): (&[usize], &[usize]) = match grid {
        Grid::Smoke => (&[4], &[1024]),
        Grid::Reduced => (&[4, 1024], &[64, 1024, 4096]),
        Grid::Full => (&[4, 64, 256, 1024, 4096, 8192], &[64, 256, 1024, 1400, 4096, 8192]),
    };
    for &size in small {
        for path in MessagePath::ALL {
            let work = NiWork::Messages(path, Pattern::PingPong { bytes: size });
            let group = "half a round trip of messages (figure 6, table III)";
            let mut run = of(group, bytes(size), path.series(), work);
            if size == 4 && path == MessagePath::Frames {
                run.paper.push(("half round trip", 38.6));
            }
            plan.push(run);
        }
    }
    for &size in large {
        for path in MessagePath::ALL {
            let work = NiWork::Messages(path, Pattern::Stream { bytes: size, depth: 32 });
            let group = "bandwidth of messages (figure 7, table III)";
            plan.push(of(group, bytes(size), path.series(), work));
        }
    }
}
