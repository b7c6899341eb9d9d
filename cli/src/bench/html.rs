//! The report as one page without anything from outside: for each group and figure a plot of all
//! systems over the group's points, with the spread as whiskers.

use std::fmt::Write as _;

use lab::figures::figure;

use super::report::{Comparison, Report, SystemRow};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;\
padding:0 1em;color:#1b1f24}table{border-collapse:collapse}\
th,td{padding:.25em .6em;text-align:right;border-bottom:1px solid #ddd}\
th:first-child,td:first-child,td.name{text-align:left}.better{color:#116329}.worse{color:#a40e26}\
figure{display:inline-block;margin:0 1em 1em 0}figcaption{font-weight:600}\
.key span{display:inline-block;width:1em;height:.8em;margin:0 .3em 0 1em}";

/// Greys for the kernel, colours for Outboard.
const KERNEL_COLOURS: [&str; 3] = ["#57606a", "#8c959f", "#afb8c1"];
const COLOURS: [&str; 6] = ["#1f6feb", "#cf222e", "#1a7f37", "#9a6700", "#8250df", "#bf3989"];

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 240.0;
/// Room for labels on the left and below.
const LEFT: f64 = 70.0;
const BELOW: f64 = 40.0;

/// The page.
pub fn page(report: &Report) -> String {
    let title = escaped(&format!("{}: {}", report.experiment, report.title));
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n<p>{}.</p>\n<p class=\"key\">",
        escaped(&report.circumstances())
    );
    let systems = distinct(report.rows.iter().map(|row| row.system.as_str()));
    for system in &systems {
        let about = report.systems.get(*system).map_or("", String::as_str);
        let _ = write!(
            html,
            "<span style=\"background:{}\"></span>{} <small>{}</small><br>",
            colour(report, &systems, system),
            escaped(system),
            escaped(about)
        );
    }
    html.push_str("</p>\n");
    for group in distinct(report.rows.iter().map(|row| row.group.as_str())) {
        let _ = writeln!(html, "<h2>{}</h2>", escaped(group));
        let rows: Vec<&SystemRow> = report.rows.iter().filter(|row| row.group == group).collect();
        let names = distinct(rows.iter().flat_map(|row| row.order.iter().map(String::as_str)));
        for name in names {
            html.push_str(&plot(report, &systems, &rows, name));
        }
        html.push_str(&table(report, group));
    }
    for row in report.rows.iter().filter(|row| row.failure.is_some()) {
        let reason = row.failure.as_deref().unwrap_or_default();
        let line = format!("{}, {}, {}: {reason}", row.group, row.point, row.system);
        let _ = writeln!(html, "<p class=\"worse\">failed: {}</p>", escaped(&line));
    }
    html.push_str("</html>\n");
    html
}

/// Each value once, in the order of first appearance.
fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all = Vec::new();
    values.for_each(|value| {
        if !all.contains(&value) {
            all.push(value);
        }
    });
    all
}

fn colour(report: &Report, systems: &[&str], system: &str) -> &'static str {
    let is_kernel = |name: &str| report.rows.iter().any(|row| row.system == name && row.is_kernel);
    let kind = is_kernel(system);
    let position =
        systems.iter().filter(|name| is_kernel(name) == kind).position(|name| *name == system);
    let colours: &[&'static str] = if kind { &KERNEL_COLOURS } else { &COLOURS };
    colours[position.unwrap_or(0) % colours.len()]
}

/// One figure of a group: points from left to right, a line for each system, from zero up.
fn plot(report: &Report, systems: &[&str], rows: &[&SystemRow], name: &str) -> String {
    let points = distinct(rows.iter().map(|row| row.point.as_str()));
    let figures = || rows.iter().filter_map(|row| row.figures.get(name));
    let largest = figures().map(|figure| figure.max).fold(0.0, f64::max);
    let unit = figures().next().map_or("", |figure| figure.unit.as_str());
    let x =
        |point: usize| LEFT + (point as f64 + 0.5) * (WIDTH - LEFT) / points.len().max(1) as f64;
    let y = |value: f64| match largest > 0.0 {
        true => (HEIGHT - BELOW) * (1.0 - 0.95 * value.max(0.0) / largest),
        false => HEIGHT - BELOW,
    };
    let label = escaped(&format!("{name}, {unit}"));
    let mut svg = format!(
        "<figure><figcaption>{label}</figcaption><svg width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\" aria-label=\"{label}\" font-size=\"11\">"
    );
    for tick in 0..=4 {
        let value = largest * f64::from(tick) / 4.0;
        let _ = write!(
            svg,
            "<path d=\"M{LEFT} {:.1}H{WIDTH}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            y(value),
            LEFT - 6.0,
            y(value) + 4.0,
            figure(value)
        );
    }
    for (index, point) in points.iter().enumerate() {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(index),
            HEIGHT - BELOW + 18.0,
            escaped(point)
        );
    }
    for (number, system) in systems.iter().enumerate() {
        let stroke = colour(report, systems, system);
        // Side by side, so that whiskers do not hide each other.
        let shift = (number as f64 - systems.len() as f64 / 2.0) * 3.0;
        let mut line = String::new();
        for (index, point) in points.iter().enumerate() {
            let row = rows.iter().find(|row| row.point == *point && row.system == *system);
            let Some(found) = row.and_then(|row| row.figures.get(name)) else { continue };
            let at = x(index) + shift;
            let _ = write!(
                svg,
                "<path d=\"M{at:.1} {:.1}V{:.1}\" stroke=\"{stroke}\"/>\
                 <circle cx=\"{at:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{stroke}\"/>",
                y(found.min),
                y(found.max),
                y(found.median)
            );
            let _ = write!(line, "{at:.1},{:.1} ", y(found.median));
        }
        let _ = write!(svg, "<polyline points=\"{line}\" stroke=\"{stroke}\" fill=\"none\"/>");
    }
    svg.push_str("</svg></figure>\n");
    svg
}

fn table(report: &Report, group: &str) -> String {
    let paper = if report.has_paper() { "<th>paper</th>" } else { "" };
    let mut html = format!(
        "<table><tr><th></th><th>figure</th><th>counterpart, best</th><th></th><th>system</th>\
         <th>Outboard</th><th>ratio</th>{paper}</tr>\n"
    );
    for line in report.lines().iter().filter(|line| line.row.group == group) {
        let class = match line.comparison.and_then(Comparison::is_better) {
            Some(true) => "better",
            Some(false) => "worse",
            None => "",
        };
        let [counterpart, theirs, ratio] = line.beside();
        let _ = write!(
            html,
            "<tr><td>{}</td><td class=\"name\">{}, {}</td><td>{theirs}</td><td class=\"name\">{}</td>\
             <td class=\"name\">{}</td><td>{}</td><td class=\"{class}\">{ratio}</td>",
            escaped(&line.row.point),
            escaped(line.name),
            escaped(&line.figure.unit),
            escaped(&counterpart),
            escaped(&line.row.system),
            figure(line.figure.median),
        );
        if report.has_paper() {
            let _ = write!(html, "<td>{}</td>", line.figure.paper.map(figure).unwrap_or_default());
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
    html
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
