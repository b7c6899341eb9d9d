//! One program, four ports, a switch between them: figures 4 and 5, table I and the headroom.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lab::failure::{Failure, Result};
use port::Port;

use super::instrument::{Instrument, Instrumented, Labour, Stamps};
use super::rig::Rig;
use super::switch::{SwitchConfig, SwitchPort, WIRE_BYTES, mac_of, switch};
use super::{Sample, failed};
use crate::bench::cell::Grid;
use crate::bench::cores::{Cores, Waiting, as_program};
use crate::bench::planned::some;

/// Ports of the switch.
const PORTS: u8 = 4;
/// EtherType of the frames: IEEE 802 local experimental.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Where a frame's number lies: behind the Ethernet header.
const NUMBER_AT: usize = 14;
/// Bytes of frames under way at most, so that no ring runs full.
const UNDER_WAY_BYTES: usize = 256 << 10;
/// Frames pushed before they are shown.
const BATCH: usize = 32;
/// Load before a window.
const WARM_UP: Duration = Duration::from_millis(50);
/// Longest wait for a frame.
const PATIENCE: Duration = Duration::from_secs(30);
/// Workers show their cycles ten times a second.
const PROFILE_WINDOW_MIN: Duration = Duration::from_millis(400);
/// Round trips of figure 5.
const ROUND_TRIPS: usize = 10_000;
/// Where a rate counts as fallen.
const FALLEN: f64 = 0.99;
/// Operations for each eight bytes, growing until the rate falls.
const LADDER: [u32; 17] = [4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256, 384, 512];
/// Components of an engine: the worker's counter and what it is called.
const COMPONENTS: [(&str, &str); 5] = [
    ("cycles_port_rx", "engine: ports, receiving"),
    ("cycles_stack", "engine: rings to the program, and stack"),
    ("cycles_host", "engine: rings from the program, and ports, sending"),
    ("cycles_tx", "engine: stack, sending"),
    ("cycles_timers", "engine: timers"),
];

/// Frames from each port to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Bytes of each frame.
    pub bytes: usize,
    /// Bits a second of each link; 0 sets no bound.
    pub rate_bits: u64,
}

impl Exchange {
    fn switch(&self) -> Vec<SwitchPort> {
        let mtu = self.bytes.max(1514) - 14;
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        switch(&SwitchConfig {
            ports: PORTS,
            mtu,
            rate_bits: self.rate_bits,
            ..SwitchConfig::default()
        })
    }
}

/// What the links allow.
pub fn limit(exchange: &Exchange) -> Vec<Sample> {
    let share = exchange.bytes as f64 / (exchange.bytes as f64 + WIRE_BYTES as f64);
    let bits = exchange.rate_bits as f64 * f64::from(PORTS) * share;
    vec![higher("throughput", "Mbit/s", bits / 1e6)]
}

fn higher(name: &'static str, unit: &'static str, value: f64) -> Sample {
    Sample { name, unit, higher_is_better: true, value }
}

fn lower(name: &'static str, unit: &'static str, value: f64) -> Sample {
    Sample { name, unit, higher_is_better: false, value }
}

/// A program that sends from every port to the next one and checks what comes.
struct Exchanger {
    rig: Rig,
    /// The next frame from each port.
    frames: Vec<Vec<u8>>,
    /// What comes from each port next.
    expected: Vec<Vec<u8>>,
    sent: u64,
    came: u64,
    most: u64,
    seen: Vec<u8>,
}

fn count_up(frame: &mut [u8]) {
    if let Some(number) = frame.get_mut(NUMBER_AT..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        *number = u32::from_le_bytes(*number).wrapping_add(1).to_le_bytes();
    }
}

impl Exchanger {
    fn new(rig: Rig, bytes: usize) -> Self {
        let frame = |from: u8| {
            let to = (from + 1) % PORTS;
            let mut frame = [mac_of(to).0, mac_of(from).0].concat();
            frame.extend_from_slice(&ETHERTYPE);
            frame.extend_from_slice(&[0; 4]);
            let pattern = (frame.len()..bytes).map(|at| (at as u8).wrapping_mul(7) ^ from);
            frame.extend(pattern);
            frame
        };
        let frames: Vec<Vec<u8>> = (0..PORTS).map(frame).collect();
        let most = (UNDER_WAY_BYTES / (bytes + 72).next_multiple_of(64)) as u64;
        let expected = frames.clone();
        Self { rig, frames, expected, sent: 0, came: 0, most, seen: vec![0; bytes] }
    }

    /// Goes on for `length`; frames that came meanwhile, and the seconds that it took.
    fn run(&mut self, length: Duration) -> Result<(u64, f64)> {
        let (begin, came) = (Instant::now(), self.came);
        let (mut waiting, mut silent_since) = (Waiting::default(), begin);
        // Where others use the cores, a short window may pass without a frame.
        while begin.elapsed() < length || self.came == came {
            let before = self.came;
            let is_sent = self.send()?;
            self.receive()?;
            if self.came > before {
                silent_since = Instant::now();
            } else if !is_sent {
                waiting.more();
                if silent_since.elapsed() > PATIENCE {
                    return Err(self.missing());
                }
            }
        }
        Ok((self.came - came, begin.elapsed().as_secs_f64()))
    }

    /// Sends as much as may be under way; whether that was anything.
    fn send(&mut self) -> Result<bool> {
        let sender = &mut self.rig.sender;
        let mut pushed = 0;
        while pushed < BATCH && self.sent - self.came < self.most {
            let port = (self.sent % u64::from(PORTS)) as usize;
            let Some(frame) = self.frames.get_mut(port) else { break };
            let Ok(room) = sender.reserve(frame.len(), port) else { break };
            room.copy_from(frame);
            count_up(frame);
            self.sent += 1;
            pushed += 1;
        }
        sender.commit().map_err(|errno| failed("sending", errno))?;
        Ok(pushed > 0)
    }

    /// Until all that was sent has come.
    fn settle(&mut self) -> Result<()> {
        let (begin, mut waiting) = (Instant::now(), Waiting::default());
        while self.came < self.sent {
            self.receive()?;
            waiting.more();
            if begin.elapsed() > PATIENCE {
                return Err(self.missing());
            }
        }
        Ok(())
    }

    fn missing(&self) -> Failure {
        let cause = format!("{} frames of {} have not come", self.sent - self.came, self.sent);
        Failure::new(cause, "see what the engine counts (raw_tx_dropped, raw_rx_dropped)")
    }

    fn receive(&mut self) -> Result<()> {
        let burst = self.rig.receiver.burst().map_err(|errno| failed("receiving", errno))?;
        for frame in burst {
            let from = (frame.port + usize::from(PORTS) - 1) % usize::from(PORTS);
            let copied = frame.bytes.copy_to(&mut self.seen);
            let Some(expected) = self.expected.get_mut(from) else { continue };
            if copied != expected.len() || self.seen != *expected {
                return Err(Failure::new(
                    format!("a frame from port {from} is another than the one that was sent"),
                    "see what the engine counts (raw_tx_dropped, raw_rx_dropped)",
                ));
            }
            count_up(expected);
            self.came += 1;
        }
        Ok(())
    }
}

fn boxed(ports: Vec<SwitchPort>) -> Vec<Box<dyn Port>> {
    ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect()
}

fn instrumented<I: Instrument + Clone + 'static>(
    ports: Vec<SwitchPort>,
    instrument: &I,
) -> Vec<Box<dyn Port>> {
    let with = |port| Box::new(Instrumented::new(port, instrument.clone())) as Box<dyn Port>;
    ports.into_iter().map(with).collect()
}

/// Throughput of an exchange, and how the engine's cycles divide meanwhile.
///
/// # Errors
/// When a frame is lost or changed.
pub fn exchange(exchange: &Exchange, cores: Cores, window: Duration) -> Result<Vec<Sample>> {
    let rig = Rig::start(boxed(exchange.switch()), cores)?;
    let window = window.max(PROFILE_WINDOW_MIN);
    as_program(cores, move || {
        let mut exchanger = Exchanger::new(rig, exchange.bytes);
        exchanger.run(WARM_UP)?;
        let before = exchanger.rig.counters();
        let (frames, seconds) = exchanger.run(window)?;
        let after = exchanger.rig.counters();
        some(frames, "frames")?;
        let rate = frames as f64 / seconds;
        let bits = rate * exchange.bytes as f64 * 8.0;
        let mut samples =
            vec![higher("throughput", "Mbit/s", bits / 1e6), higher("frames", "k/s", rate / 1e3)];
        if let [limit] = limit(exchange).as_slice()
            && limit.value > 0.0
        {
            samples.push(higher("share of the limit", "%", bits / 1e4 / limit.value));
        }
        samples.extend(shares(&before, &after));
        // From the ring to the port, and from the port to the ring.
        let copied = 2.0 * rate * exchange.bytes as f64;
        samples.push(lower("copied by the engine", "MB/s", copied / 1e6));
        Ok(samples)
    })
}

/// How the cycles of an engine divided between two readings of its counters.
fn shares(before: &[(String, u64)], after: &[(String, u64)]) -> Vec<Sample> {
    let value = |all: &[(String, u64)], name: &str| {
        all.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
    };
    let grown = |name: &str| value(after, name).saturating_sub(value(before, name)) as f64;
    let idle = grown("cycles_idle");
    let all: f64 = COMPONENTS.iter().map(|(counter, _)| grown(counter)).sum::<f64>() + idle;
    if all <= 0.0 {
        return Vec::new();
    }
    let share =
        |(counter, name): &(&str, &'static str)| lower(name, "%", grown(counter) / all * 100.0);
    let mut samples: Vec<Sample> = COMPONENTS.iter().map(share).collect();
    samples.push(lower("engine: busy", "%", (all - idle) / all * 100.0));
    samples
}

/// Mean and quantiles of a frame's way from the program by one port and the switch to another port and
/// the program, and the stages of that way, which add up to the mean.
///
/// # Errors
/// When a frame does not come back.
pub fn round_trips(bytes: usize, grid: Grid, cores: Cores) -> Result<Vec<Sample>> {
    let count = if grid == Grid::Smoke { ROUND_TRIPS / 100 } else { ROUND_TRIPS };
    let stamps = Stamps::new();
    let ports = instrumented(Exchange { bytes, rate_bits: 0 }.switch(), &stamps);
    let rig = Rig::start(ports, cores)?;
    as_program(cores, move || {
        let mut exchanger = Exchanger::new(rig, bytes);
        exchanger.most = 1;
        // Three significant digits are within the histogram's range.
        let mut times: Histogram<u64> =
            Histogram::new(3).map_err(|error| failed("no histogram", format!("{error:?}")))?;
        exchanger.run(WARM_UP)?;
        exchanger.settle()?;
        let mut stages = [0; 3];
        for _ in 0..count {
            let sent_ns = stamps.now_ns();
            exchanger.send()?;
            exchanger.settle()?;
            let read_ns = stamps.now_ns();
            let [given_ns, came_ns] = stamps.last_ns();
            let passed = [sent_ns, given_ns, came_ns, read_ns];
            for (stage, pair) in stages.iter_mut().zip(passed.windows(2)) {
                *stage += pair[1].saturating_sub(pair[0]);
            }
            let _ = times.record(read_ns - sent_ns);
        }
        let each = |ns: u64| ns as f64 / count as f64 / 1e3;
        let at = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
        Ok(vec![
            lower("round trip, mean", "us", each(stages.iter().sum())),
            lower("round trip, p50", "us", at(0.5)),
            lower("round trip, p99", "us", at(0.99)),
            lower("program to port", "us", each(stages[0])),
            lower("port, switch, port", "us", each(stages[1])),
            lower("port to program", "us", each(stages[2])),
        ])
    })
}

/// How many 32-bit operations for each byte the engine has time for until an exchange at the rate of
/// its links falls by 1%.
///
/// # Errors
/// When a frame is lost or changed.
pub fn headroom(exchange: &Exchange, cores: Cores, window: Duration) -> Result<Vec<Sample>> {
    let labour = Labour::default();
    let rig = Rig::start(instrumented(exchange.switch(), &labour), cores)?;
    as_program(cores, move || {
        let mut exchanger = Exchanger::new(rig, exchange.bytes);
        let mut rate = |operations: u32| {
            labour.set(operations);
            exchanger.run(WARM_UP)?;
            let (frames, seconds) = exchanger.run(window)?;
            Ok::<f64, Failure>(frames as f64 / seconds)
        };
        let idle = rate(0)?;
        let mut most = 0;
        for step in LADDER {
            if rate(step)? < FALLEN * idle {
                break;
            }
            most = step;
        }
        let bits = idle * exchange.bytes as f64 * 8.0;
        Ok(vec![
            higher("throughput without operations", "Mbit/s", bits / 1e6),
            higher("operations for each byte", "", f64::from(most) / 8.0),
        ])
    })
}
