//! The report: rows of medians with their extremes, as a table and as JSON.

use std::fmt::Write;

use lab::figures::{figure, median};
use serde::Serialize;

use super::bench::Column;
use super::work::Metric;

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// `higher` or `lower`.
    pub better: &'static str,
    /// Where Outboard was: see [`Column::name`].
    pub arrangement: &'static str,
    /// Median through the kernel.
    pub kernel: Option<f64>,
    /// Smallest value through the kernel.
    pub kernel_min: Option<f64>,
    /// Largest value through the kernel.
    pub kernel_max: Option<f64>,
    /// Median through Outboard.
    pub outboard: Option<f64>,
    /// Smallest value through Outboard.
    pub outboard_min: Option<f64>,
    /// Largest value through Outboard.
    pub outboard_max: Option<f64>,
    /// Outboard's median divided by the kernel's.
    pub ratio: Option<f64>,
    /// Why a value is missing or rests on fewer rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Row {
    /// A row from the values of all rounds.
    pub fn new(
        metric: Metric,
        column: Column,
        kernel: &[f64],
        outboard: &[f64],
        failure: Option<&str>,
    ) -> Self {
        let (kernel_median, outboard_median) = (median(kernel), median(outboard));
        Self {
            name: metric.name(),
            unit: metric.unit(),
            better: if metric.higher_is_better() { "higher" } else { "lower" },
            arrangement: column.name(),
            kernel: kernel_median,
            kernel_min: kernel.iter().copied().reduce(f64::min),
            kernel_max: kernel.iter().copied().reduce(f64::max),
            outboard: outboard_median,
            outboard_min: outboard.iter().copied().reduce(f64::min),
            outboard_max: outboard.iter().copied().reduce(f64::max),
            ratio: kernel_median
                .zip(outboard_median)
                .map(|(kernel, outboard)| outboard / kernel)
                .filter(|ratio| ratio.is_finite()),
            failure: failure.map(String::from),
        }
    }

    /// Whether Outboard did at least as well as the kernel.
    pub fn is_better(&self) -> Option<bool> {
        self.ratio.map(|ratio| if self.better == "higher" { ratio >= 1.0 } else { ratio <= 1.0 })
    }
}

/// All rows.
#[derive(Clone, Debug, Serialize)]
pub struct DemoReport {
    /// The rows, by arrangement and then in the order of the work.
    pub rows: Vec<Row>,
    /// Rounds that were run.
    pub rounds: usize,
}

impl DemoReport {
    /// The report as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The report as a table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut arrangement = "";
        for row in &self.rows {
            if row.arrangement != arrangement {
                arrangement = row.arrangement;
                let about = Column::ALL.into_iter().find(|column| column.name() == arrangement);
                let about = about.map_or(arrangement, Column::description);
                let _ = write!(
                    text,
                    "\n{about}\n  {:<40} {:<11} {:>13} {:>13} {:>7}\n",
                    "", "", "kernel", "Outboard", "ratio"
                );
            }
            let shown = |value: Option<f64>| value.map_or_else(|| "failed".into(), figure);
            let ratio = row.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
            let mark = match row.is_better() {
                Some(true) => "",
                Some(false) => "  worse",
                None => "",
            };
            let _ = writeln!(
                text,
                "  {:<40} {:<11} {:>13} {:>13} {:>7}{mark}",
                row.name,
                row.unit,
                shown(row.kernel),
                shown(row.outboard),
                ratio
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_medians_extremes_and_their_ratio() {
        let row =
            Row::new(Metric::GetRate, Column::TapServer, &[10.0, 30.0, 20.0], &[40.0, 20.0], None);
        assert_eq!(
            (row.kernel, row.kernel_min, row.kernel_max),
            (Some(20.0), Some(10.0), Some(30.0))
        );
        assert_eq!((row.outboard, row.ratio), (Some(30.0), Some(1.5)));
        assert_eq!(row.is_better(), Some(true));
        let json = serde_json::to_value(&row).expect("serializes");
        assert_eq!(json["better"], "higher");
        assert!(json.get("failure").is_none());
    }

    #[test]
    fn a_column_without_values_has_no_ratio() {
        let row = Row::new(Metric::PingP50, Column::PacketBoth, &[5.0], &[], Some("hung"));
        assert_eq!((row.outboard, row.ratio, row.is_better()), (None, None, None));
        let report = DemoReport { rows: vec![row], rounds: 1 };
        assert!(report.table().contains("failed"));
    }
}
