//! Faults as written by a user: `loss:1%+reorder:2%+delay:5ms`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::SpecError;

/// A probability in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts(pub u32);

impl Parts {
    /// A million parts per million: always.
    pub const WHOLE: u32 = 1_000_000;

    /// `percent` of all, at most 100.
    pub fn percent(percent: f64) -> Self {
        // The cast saturates; the bounds make it exact.
        Self((percent.clamp(0.0, 100.0) * 10_000.0).round() as u32)
    }
}

/// The direction on which the faults act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// Frames received and frames sent.
    #[default]
    Both,
    /// Frames received.
    Receive,
    /// Frames sent.
    Send,
}

/// Faults injected by the [`impair`](crate::impair) wrapper, in each direction alike.
///
/// Written as parts joined by `+`: `loss:1%`, `dup:0.5%`, `corrupt:0.1%`, `reorder:2%`,
/// `delay:5ms` (also `us`, `s`), `jitter:1ms`, `rate:100mbit` (also `kbit`, `gbit`),
/// `dir:rx` or `dir:tx` to leave the other direction alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Impairment {
    /// Frames that are lost.
    pub loss: Parts,
    /// Frames that are duplicated.
    pub duplicate: Parts,
    /// Frames with a bit flipped. Only IP frames: others have no checksum above that of the link.
    pub corrupt: Parts,
    /// Frames that overtake earlier ones (with a delay) or fall behind (without).
    pub reorder: Parts,
    /// Delay of every frame.
    pub delay_ns: u64,
    /// Additional delay, uniform from 0 to this; frames keep their order.
    pub jitter_ns: u64,
    /// Bits per second, 0 for no limit.
    pub rate_bits: u64,
    /// The direction to which they apply.
    pub direction: Direction,
}

const PARTS: &str = "loss:1%, dup:1%, corrupt:1%, reorder:1%, delay:5ms, jitter:1ms, rate:100mbit \
                     and dir:rx or dir:tx";

impl FromStr for Impairment {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut impairment = Impairment::default();
        for part in text.split('+') {
            let (key, value) = part.split_once(':').ok_or_else(|| {
                SpecError(format!("\"{part}\" has no value; faults are {PARTS}, joined by +"))
            })?;
            match key {
                "loss" => impairment.loss = parse_percent(key, value)?,
                "dup" | "duplicate" => impairment.duplicate = parse_percent(key, value)?,
                "corrupt" => impairment.corrupt = parse_percent(key, value)?,
                "reorder" => impairment.reorder = parse_percent(key, value)?,
                "delay" => impairment.delay_ns = parse_duration(key, value)?,
                "jitter" => impairment.jitter_ns = parse_duration(key, value)?,
                "rate" => impairment.rate_bits = parse_rate(value)?,
                "dir" => {
                    impairment.direction = match value {
                        "both" => Direction::Both,
                        "rx" => Direction::Receive,
                        "tx" => Direction::Send,
                        _ => return Err(SpecError("write dir:rx, dir:tx or dir:both".to_owned())),
                    }
                }
                _ => {
                    return Err(SpecError(format!(
                        "there is no fault \"{key}\"; faults are {PARTS}, joined by +"
                    )));
                }
            }
        }
        Ok(impairment)
    }
}

impl fmt::Display for Impairment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        let mut part = |f: &mut fmt::Formatter<'_>, text: String| {
            let written = write!(f, "{between}{text}");
            between = "+";
            written
        };
        for (key, parts) in [
            ("loss", self.loss),
            ("dup", self.duplicate),
            ("corrupt", self.corrupt),
            ("reorder", self.reorder),
        ] {
            if parts.0 > 0 {
                part(f, format!("{key}:{}%", f64::from(parts.0) / 10_000.0))?;
            }
        }
        for (key, ns) in [("delay", self.delay_ns), ("jitter", self.jitter_ns)] {
            if ns > 0 {
                part(f, format!("{key}:{ns}ns"))?;
            }
        }
        if self.rate_bits > 0 {
            part(f, format!("rate:{}bit", self.rate_bits))?;
        }
        match self.direction {
            Direction::Both => Ok(()),
            Direction::Receive => part(f, "dir:rx".to_owned()),
            Direction::Send => part(f, "dir:tx".to_owned()),
        }
    }
}

fn parse_percent(key: &str, value: &str) -> Result<Parts, SpecError> {
    let number = value.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    match number {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(Parts::percent(percent)),
        _ => Err(SpecError(format!("{key} is a percentage from 0% to 100%, e.g. {key}:1%"))),
    }
}

/// Splits a number from the unit after it.
fn split_unit(value: &str) -> Option<(f64, &str)> {
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = value.split_at_checked(end)?;
    Some((number.parse().ok()?, unit))
}

fn parse_duration(key: &str, value: &str) -> Result<u64, SpecError> {
    let scale = |unit| match unit {
        "ns" => Some(1.0),
        "us" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    };
    split_unit(value)
        .and_then(|(number, unit)| Some(number * scale(unit)?))
        // A minute is far beyond any link; more would only fill the queue.
        .filter(|ns| *ns <= 60e9)
        .map(|ns| ns.round() as u64)
        .ok_or_else(|| {
            SpecError(format!("{key} is a time up to 60s, e.g. {key}:5ms or {key}:80us"))
        })
}

pub(super) fn parse_rate(value: &str) -> Result<u64, SpecError> {
    let scale = |unit| match unit {
        "bit" => Some(1.0),
        "kbit" => Some(1e3),
        "mbit" => Some(1e6),
        "gbit" => Some(1e9),
        _ => None,
    };
    split_unit(value)
        .and_then(|(number, unit)| Some(number * scale(unit)?))
        .filter(|rate| (8_000.0..=1e12).contains(rate))
        .map(|rate| rate.round() as u64)
        .ok_or_else(|| {
            SpecError(
                "rate is bits per second from 8kbit to 1000gbit, e.g. rate:100mbit".to_owned(),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_understood_and_written_back() {
        let text = "loss:1%+dup:0.5%+corrupt:0.01%+reorder:2%+delay:5ms+jitter:80us+rate:1.5mbit";
        let faults: Impairment = text.parse().unwrap();
        assert_eq!(faults.loss, Parts(10_000));
        assert_eq!(faults.corrupt, Parts(100));
        assert_eq!((faults.delay_ns, faults.jitter_ns), (5_000_000, 80_000));
        assert_eq!(faults.rate_bits, 1_500_000);
        assert_eq!(faults.to_string().parse::<Impairment>().unwrap(), faults);
    }

    #[test]
    fn unknown_faults_and_units_are_refused_with_what_to_write() {
        for (text, expected) in [
            ("lose:1%", "loss:1%"),
            ("loss", "no value"),
            ("loss:101%", "percentage"),
            ("delay:5", "delay:5ms"),
            ("delay:2min", "delay:5ms"),
            ("rate:10", "rate:100mbit"),
            ("dir:up", "dir:rx"),
        ] {
            let why = text.parse::<Impairment>().unwrap_err().0;
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
