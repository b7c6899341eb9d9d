//! The rows of several demos, and how far versions are apart in each.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// Whose run it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The other commit.
    Base,
    /// The tree.
    Head,
    /// The other commit once more.
    BaseAgain,
}

impl Arm {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Head => "head",
            Self::BaseAgain => "base-again",
        }
    }
}

/// What a demo writes, as far as it is read here.
#[derive(Deserialize)]
struct DemoReport {
    rows: Vec<DemoRow>,
}

#[derive(Deserialize)]
struct DemoRow {
    name: String,
    unit: String,
    better: String,
    arrangement: String,
    outboard: Option<f64>,
}

/// A row with the values of all rounds.
#[derive(Debug)]
struct Row {
    arrangement: String,
    name: String,
    unit: String,
    better: String,
    /// By arm, in the order of [`Arm`].
    values: [Vec<f64>; 3],
}

/// All rows, in the order of the demo.
#[derive(Debug, Default)]
pub struct Rows(Vec<Row>);

/// A row as it is reported.
#[derive(Debug, Serialize, PartialEq)]
struct Compared<'a> {
    arrangement: &'a str,
    name: &'a str,
    unit: &'a str,
    better: &'a str,
    base: Option<Spread>,
    head: Option<Spread>,
    /// Median of head divided by that of base.
    ratio: Option<f64>,
    /// By how much base differs from itself.
    noise: Option<f64>,
    /// The ratio is farther from 1 than the noise.
    beyond_noise: bool,
}

#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&least, &most) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        Some(Self { median, least, most })
    }
}

impl Row {
    fn compared(&self) -> Compared<'_> {
        let [base, head, again] = [0, 1, 2].map(|arm| Spread::of(&self.values[arm]));
        let apart = |one: Option<Spread>, other: Option<Spread>| {
            let ratio = one?.median / other?.median;
            ratio.is_finite().then_some(ratio)
        };
        let all: Vec<f64> = self.values[0].iter().chain(&self.values[2]).copied().collect();
        let ratio = apart(head, Spread::of(&all));
        let noise = apart(again, base).map(|ratio| {
            // Two medians may agree by chance: a round's two runs then differ by more.
            let rounds = self.values[0].iter().zip(&self.values[2]);
            let rounds: Vec<f64> = rounds.map(|(one, other)| (other / one - 1.0).abs()).collect();
            let typical = Spread::of(&rounds).map_or(0.0, |spread| spread.median);
            typical.max((ratio - 1.0).abs())
        });
        let beyond = ratio.zip(noise).is_some_and(|(ratio, noise)| (ratio - 1.0).abs() > noise);
        Compared {
            arrangement: &self.arrangement,
            name: &self.name,
            unit: &self.unit,
            better: &self.better,
            base: Spread::of(&all),
            head,
            ratio,
            noise,
            beyond_noise: beyond,
        }
    }
}

impl Compared<'_> {
    fn mark(&self) -> &'static str {
        match (self.beyond_noise, self.better == "higher", self.ratio) {
            (true, higher, Some(ratio)) if (ratio > 1.0) == higher => "  better",
            (true, ..) => "  worse",
            _ => "",
        }
    }
}

impl Rows {
    /// Adds the report of a demo.
    pub fn add(&mut self, arm: Arm, report: &str) -> Result<(), String> {
        let report: DemoReport = serde_json::from_str(report)
            .map_err(|error| format!("the report of {} cannot be read: {error}", arm.name()))?;
        for DemoRow { name, unit, better, arrangement, outboard } in report.rows {
            let known =
                self.0.iter().position(|row| row.name == name && row.arrangement == arrangement);
            let index = known.unwrap_or_else(|| {
                let values = Default::default();
                self.0.push(Row { arrangement, name, unit, better, values });
                self.0.len() - 1
            });
            self.0[index].values[arm as usize].extend(outboard);
        }
        Ok(())
    }

    /// The rows for people.
    pub fn table(&self, commit: &str) -> String {
        let mut text = String::new();
        let mut arrangement = "";
        for row in self.0.iter().map(Row::compared) {
            if row.arrangement != arrangement {
                arrangement = row.arrangement;
                let _ = writeln!(
                    text,
                    "\n{arrangement}: base is {commit}\n  {:<40} {:<11} {:>30} {:>30} {:>6} {:>6}",
                    "", "", "base", "head", "ratio", "noise"
                );
            }
            let spread = |spread: Option<Spread>| match spread {
                None => "failed".to_owned(),
                Some(Spread { median, least, most }) => {
                    format!("{median:.2} ({least:.2}..{most:.2})")
                }
            };
            let shown = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.3}"));
            let _ = writeln!(
                text,
                "  {:<40} {:<11} {:>30} {:>30} {:>6} {:>6}{}",
                row.name,
                row.unit,
                spread(row.base),
                spread(row.head),
                shown(row.ratio),
                shown(row.noise),
                row.mark()
            );
        }
        text
    }

    /// The rows as JSON.
    pub fn json(&self, commit: &str) -> String {
        let rows: Vec<_> = self.0.iter().map(Row::compared).collect();
        let report = serde_json::json!({ "base": commit, "rows": rows });
        format!("{report:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rate: f64, latency: Option<f64>) -> String {
        let row = |name: &str, better: &str, value: Option<f64>| {
            serde_json::json!({
                "name": name, "unit": "x", "better": better, "arrangement": "tap-server",
                "kernel": null, "outboard": value,
            })
        };
        let rows = [row("rate", "higher", Some(rate)), row("latency", "lower", latency)];
        serde_json::json!({ "rows": rows, "rounds": 1 }).to_string()
    }

    #[test]
    fn what_is_beyond_the_difference_of_base_from_itself_is_marked() {
        let mut rows = Rows::default();
        for (arm, rate, latency) in [
            (Arm::Base, 100.0, Some(10.0)),
            (Arm::Head, 90.0, Some(10.2)),
            (Arm::BaseAgain, 102.0, Some(10.5)),
        ] {
            rows.add(arm, &report(rate, latency)).unwrap();
        }
        let [rate, latency] = [0, 1].map(|row| rows.0[row].compared());
        assert_eq!(rate.mark(), "  worse");
        assert!((rate.noise.unwrap() - 0.02).abs() < 1e-9);
        assert_eq!(rate.base, Some(Spread { median: 101.0, least: 100.0, most: 102.0 }));
        assert_eq!((latency.mark(), latency.beyond_noise), ("", false));
        assert!(rows.table("abc").contains("worse"));
        let json: serde_json::Value = serde_json::from_str(&rows.json("abc")).unwrap();
        assert_eq!(json["rows"][0]["beyond_noise"], true);
    }

    #[test]
    fn a_row_that_failed_has_no_ratio() {
        let mut rows = Rows::default();
        rows.add(Arm::Base, &report(1.0, Some(1.0))).unwrap();
        rows.add(Arm::Head, &report(1.0, None)).unwrap();
        assert_eq!(rows.0[1].compared().ratio, None);
        assert!(rows.table("abc").contains("failed"));
        assert!(rows.add(Arm::Base, "{}").is_err());
    }

    #[test]
    fn medians_that_agree_by_chance_are_no_silence() {
        let mut rows = Rows::default();
        for (one, other) in [(100.0, 120.0), (120.0, 100.0)] {
            rows.add(Arm::Base, &report(one, None)).unwrap();
            rows.add(Arm::BaseAgain, &report(other, None)).unwrap();
        }
        assert!(rows.0[0].compared().noise.unwrap() > 0.15);
    }
}
