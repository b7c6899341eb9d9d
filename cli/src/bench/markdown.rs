//! A report as Markdown: a table for each group, a row for each figure of a point, a column for each
//! system.

use std::fmt::Write as _;

use lab::figures::figure;

use super::report::{Line, Report, ratio};

/// Outboard's figures of one name at one point.
struct Row<'a> {
    point: &'a str,
    name: &'a str,
    lines: Vec<Line<'a>>,
}

/// A section of Markdown.
pub fn section(report: &Report) -> String {
    let mut text =
        format!("### {}: {}\n\n{}.\n", report.experiment, report.title, report.circumstances());
    let mut lines = report.lines().into_iter().peekable();
    while let Some(first) = lines.peek() {
        let group = first.row.group.as_str();
        let mut of_group = Vec::new();
        while let Some(line) = lines.next_if(|line| line.row.group == group) {
            of_group.push(line);
        }
        table(&mut text, group, of_group, report.has_paper());
    }
    text
}

fn table(text: &mut String, group: &str, lines: Vec<Line<'_>>, has_paper: bool) {
    let mut systems: Vec<&str> = Vec::new();
    let mut rows: Vec<Row<'_>> = Vec::new();
    for line in lines {
        let (point, name) = (line.row.point.as_str(), line.name);
        if !systems.contains(&line.row.system.as_str()) {
            systems.push(&line.row.system);
        }
        match rows.iter_mut().find(|row| row.point == point && row.name == name) {
            Some(row) => row.lines.push(line),
            None => rows.push(Row { point, name, lines: vec![line] }),
        }
    }
    let _ = write!(text, "\n{group}:\n\n| | figure | counterpart, best |");
    systems.iter().for_each(|system| text.extend([" ", system, " |"]));
    text.push_str(if has_paper { " paper |\n" } else { "\n" });
    text.push_str("|---|---|---:|");
    let columns = systems.len() + usize::from(has_paper);
    text.extend(std::iter::repeat_n("---:|", columns));
    text.push('\n');
    for row in &rows {
        write_row(text, row, &systems, has_paper);
    }
}

fn write_row(text: &mut String, row: &Row<'_>, systems: &[&str], has_paper: bool) {
    let Some(first) = row.lines.first() else { return };
    let [counterpart, theirs, _] = first.beside();
    let _ = write!(text, "| {} | {}, {} |", row.point, row.name, first.figure.unit);
    let _ = match counterpart.is_empty() {
        true => write!(text, " |"),
        false => write!(text, " {theirs} {counterpart} |"),
    };
    for system in systems {
        let own = row.lines.iter().find(|line| line.row.system == *system);
        let shown = own.map(|line| {
            let compared = line.comparison.map(|one| format!(" ({})", ratio(one.ratio)));
            figure(line.figure.median) + &compared.unwrap_or_default()
        });
        let _ = write!(text, " {} |", shown.unwrap_or_default());
    }
    if has_paper {
        let paper = row.lines.iter().find_map(|line| line.figure.paper);
        let _ = write!(text, " {} |", paper.map(figure).unwrap_or_default());
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use lab::Placement;

    use super::super::cell::Grid;
    use super::super::report::Heading;
    use super::super::report::tests::row;
    use super::super::system::System;
    use super::*;

    #[test]
    fn a_figure_has_one_row_with_its_counterpart_and_a_column_for_each_system() {
        let heading = Heading {
            experiment: "rpc",
            title: "requests",
            grid: Grid::Smoke,
            rounds: 3,
            window: Duration::from_secs(1),
            systems: BTreeMap::new(),
        };
        let rows = vec![
            row(System::Kernel(Placement::Steered), &[200.0; 3], &[9.0; 3]),
            row(System::TapServer, &[400.0; 3], &[10.0; 3]),
            row(System::XdpServer, &[100.0; 3], &[18.0; 3]),
        ];
        let text = section(&Report::new(heading, rows));
        for line in [
            "| | figure | counterpart, best | tap-server | xdp-server |",
            "| p | rate, 1/s | 200 kernel-steered | 400 (2.00) | 100 (0.50) |",
            "| p | p50, us | 9.00 kernel-steered | 10.00 (1.11) | 18.00 (2.00) |",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }
}
