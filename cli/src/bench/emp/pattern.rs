//! What two programs exchange, and the figures that come out of it.

use std::fmt;
use std::str::FromStr;

use crate::bench::cell::Sample;

/// Messages of a batch of [`Pattern::Overlap`], each way: figure 6 and table 2 of the EMP paper.
pub const BATCH: usize = 5;
/// Most messages under way at a time.
pub const DEPTH_MAX: usize = 64;

/// An exchange, repeated for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A message there and one back (figure 5).
    PingPong {
        /// Bytes of each.
        bytes: usize,
    },
    /// Messages one way and an empty one back.
    Stream {
        /// Bytes of each.
        bytes: usize,
        /// How many before the answer.
        depth: usize,
    },
    /// Both sides post [`BATCH`] receives, start as many sends, compute, and wait for all (figure 6,
    /// table 2).
    Overlap {
        /// Bytes of each message.
        bytes: usize,
        /// Processor time of the computing, microseconds.
        work_us: u32,
    },
}

impl Pattern {
    /// Bytes of a message.
    pub fn bytes(self) -> usize {
        match self {
            Self::PingPong { bytes } | Self::Stream { bytes, .. } | Self::Overlap { bytes, .. } => {
                bytes
            }
        }
    }

    /// Messages that are under way at a time one way.
    pub fn depth(self) -> usize {
        match self {
            Self::PingPong { .. } => 1,
            Self::Stream { depth, .. } => depth,
            Self::Overlap { .. } => BATCH,
        }
    }

    /// The figures of what rank 0 has measured, the main one first.
    pub fn samples(self, measured: &ExchangeResult) -> Vec<Sample> {
        let count = measured.count as f64;
        let sample = |name, unit, higher_is_better, value: f64| Sample {
            name,
            unit,
            higher_is_better,
            value,
        };
        let less = |name, value: f64, per: f64| sample(name, "us", false, value / per * 1e6);
        let bits = |messages: f64| messages * self.bytes() as f64 * 8.0 / measured.seconds / 1e9;
        let ExchangeResult { seconds, cpu, .. } = *measured;
        match self {
            Self::PingPong { .. } => vec![
                less("half round trip", seconds, 2.0 * count),
                less("program CPU per message", cpu, 2.0 * count),
            ],
            Self::Stream { depth, .. } => {
                let messages = count * depth as f64;
                vec![
                    sample("rate", "messages/s", true, messages / seconds),
                    sample("bandwidth", "Gbit/s", true, bits(messages)),
                    less("program CPU per message", cpu, messages),
                ]
            }
            Self::Overlap { work_us, .. } => {
                let (each, work) = (count * BATCH as f64, f64::from(work_us) * 1e-6 * count);
                let share = work / seconds * 100.0;
                vec![
                    sample("payload both ways", "Gbit/s", true, bits(2.0 * each)),
                    sample("share of computing", "%", true, share),
                    less("Isend", measured.send, each),
                    less("Irecv", measured.receive, each),
                    less("Waitall", measured.wait, count),
                    less("program CPU beside computing", (cpu - work).max(0.0), count),
                ]
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PingPong { bytes } => write!(f, "pingpong:{bytes}"),
            Self::Stream { bytes, depth } => write!(f, "stream:{bytes}:{depth}"),
            Self::Overlap { bytes, work_us } => write!(f, "overlap:{bytes}:{work_us}"),
        }
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("there is no pattern {text:?}");
        let mut words = text.split(':');
        let kind = words.next().unwrap_or_default();
        let numbers: Vec<usize> =
            words.map(|word| word.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
        let pattern = match (kind, &numbers[..]) {
            ("pingpong", &[bytes]) => Self::PingPong { bytes },
            ("stream", &[bytes, depth]) if depth <= DEPTH_MAX => Self::Stream { bytes, depth },
            ("overlap", &[bytes, work]) => {
                Self::Overlap { bytes, work_us: u32::try_from(work).map_err(|_| wrong())? }
            }
            _ => return Err(wrong()),
        };
        Ok(pattern)
    }
}

/// What rank 0 has measured in the window; times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExchangeResult {
    /// Repetitions.
    pub count: u64,
    /// Time of all.
    pub seconds: f64,
    /// The program's processor time, system calls included.
    pub cpu: f64,
    /// Time in calls that start sends ([`Pattern::Overlap`] alone, as the next two).
    pub send: f64,
    /// In calls that post receives.
    pub receive: f64,
    /// In waiting for all.
    pub wait: f64,
}

impl ExchangeResult {
    /// The line that a program prints: the pattern, and these figures in their order.
    pub fn line(&self, pattern: Pattern) -> String {
        let Self { count, seconds, cpu, send, receive, wait } = self;
        format!("{pattern} {count} {seconds:.9} {cpu:.9} {send:.9} {receive:.9} {wait:.9}")
    }

    /// What the output of a program says of `pattern`.
    pub fn of(pattern: Pattern, output: &str) -> Option<Self> {
        let name = pattern.to_string();
        let line = output.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))?;
        let (count, rest) = line.split_once(' ')?;
        let times: Vec<f64> = rest.split(' ').map_while(|word| word.trim().parse().ok()).collect();
        let &[seconds, cpu, send, receive, wait] = &times[..] else { return None };
        Some(Self { count: count.parse().ok()?, seconds, cpu, send, receive, wait })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_figures_are_read_as_written() {
        let patterns = [
            Pattern::PingPong { bytes: 4 },
            Pattern::Stream { bytes: 8, depth: 64 },
            Pattern::Overlap { bytes: 10_000, work_us: 100 },
        ];
        for pattern in patterns {
            assert_eq!(pattern.to_string().parse(), Ok(pattern));
            let measured =
                ExchangeResult { count: 7, seconds: 0.5, cpu: 0.25, ..ExchangeResult::default() };
            let output = format!("pingpong:44 1 1 1 1 1 1\n{}\n", measured.line(pattern));
            assert_eq!(ExchangeResult::of(pattern, &output), Some(measured));
        }
        assert_eq!(ExchangeResult::of(patterns[0], "pingpong:4 7 0.5\n"), None);
        assert!("stream:8:65".parse::<Pattern>().is_err());
    }

    #[test]
    fn rates_and_times_are_per_message() {
        let measured =
            ExchangeResult { count: 10, seconds: 1.0, cpu: 0.5, ..ExchangeResult::default() };
        let first = |pattern: Pattern| pattern.samples(&measured)[0].value;
        assert_eq!(first(Pattern::PingPong { bytes: 4 }), 50_000.0);
        assert_eq!(first(Pattern::Stream { bytes: 8, depth: 64 }), 640.0);
        let both = first(Pattern::Overlap { bytes: 10_000, work_us: 0 });
        assert!((both - 0.008).abs() < 1e-9, "{both}");
    }
}
