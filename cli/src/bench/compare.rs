//! Two reports of one experiment beside each other, row by row.

use std::fmt::Write as _;

use lab::failure::{Failure, Result};
use lab::figures::figure;

use super::report::{Figure, Report, ratio};

/// A difference counts when it is larger than this, and than both reports' spread.
const NOISE: f64 = 0.03;

/// A figure that two reports have, in the second relative to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Within the noise.
    Same,
    /// Better by more.
    Better,
    /// Worse by more.
    Worse,
}

impl Change {
    /// The change from `before` to `after`.
    pub fn between(before: &Figure, after: &Figure) -> Self {
        let difference = after.median / before.median - 1.0;
        let noise = NOISE.max(spread(before)).max(spread(after));
        if !difference.is_finite() || difference.abs() <= noise {
            return Self::Same;
        }
        if (difference > 0.0) == after.higher_is_better { Self::Better } else { Self::Worse }
    }
}

/// Half the distance between the extremes, as a share of the median.
fn spread(figure: &Figure) -> f64 {
    match figure.median > 0.0 {
        true => (figure.max - figure.min) / 2.0 / figure.median,
        false => 0.0,
    }
}

/// A table of every figure that both reports have, and what only one of them has.
///
/// # Errors
/// When the reports are of different experiments.
pub fn table(before: &Report, after: &Report) -> Result<String> {
    if before.experiment != after.experiment {
        return Err(Failure::new(
            format!("the reports are of {} and {}", before.experiment, after.experiment),
            "compare reports of one experiment",
        ));
    }
    let mut text = format!(
        "{}\nbefore: {}\nafter:  {}\n",
        before.experiment,
        before.circumstances(),
        after.circumstances()
    );
    if before.machine.processor != after.machine.processor {
        text.push_str("The machines differ: so may every figure.\n");
    }
    for row in &before.rows {
        let name = format!("{}, {}, {}", row.group, row.point, row.system);
        let same = after.rows.iter().find(|other| {
            (&other.group, &other.point, &other.system) == (&row.group, &row.point, &row.system)
        });
        let Some(other) = same else {
            let _ = writeln!(text, "\n{name}: only before");
            continue;
        };
        let _ = writeln!(text, "\n{name}");
        for (figure_name, old, new) in row
            .order
            .iter()
            .filter_map(|name| Some((name, row.figures.get(name)?, other.figures.get(name)?)))
        {
            let mark = match Change::between(old, new) {
                Change::Same => "",
                Change::Better => "  better",
                Change::Worse => "  WORSE",
            };
            let _ = writeln!(
                text,
                "  {figure_name:<46} {:<14} {:>12} {:>12} {:>6}{mark}",
                old.unit,
                figure(old.median),
                figure(new.median),
                ratio(Some(new.median / old.median).filter(|ratio| ratio.is_finite()))
            );
        }
    }
    for row in &after.rows {
        let is_known = before.rows.iter().any(|other| {
            (&other.group, &other.point, &other.system) == (&row.group, &row.point, &row.system)
        });
        if !is_known {
            let _ = writeln!(text, "\n{}, {}, {}: only after", row.group, row.point, row.system);
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(values: [f64; 3], higher_is_better: bool) -> Figure {
        let [min, median, max] = values;
        Figure {
            unit: "us".into(),
            higher_is_better,
            median,
            min,
            max,
            values: values.to_vec(),
            paper: None,
        }
    }

    #[test]
    fn a_change_is_larger_than_the_noise_of_both() {
        let calm = measured([99.0, 100.0, 101.0], true);
        let wild = measured([80.0, 100.0, 120.0], true);
        let faster = measured([109.0, 110.0, 111.0], true);
        assert_eq!(Change::between(&calm, &faster), Change::Better);
        assert_eq!(Change::between(&faster, &calm), Change::Worse);
        assert_eq!(Change::between(&wild, &faster), Change::Same);
        let slower = measured([109.0, 110.0, 111.0], false);
        assert_eq!(Change::between(&measured([99.0, 100.0, 101.0], false), &slower), Change::Worse);
        assert_eq!(Change::between(&measured([0.0; 3], true), &calm), Change::Same);
    }
}
