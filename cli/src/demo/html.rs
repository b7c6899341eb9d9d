//! The report as one page without anything from outside: bars for kernel and Outboard in each
//! row, with the extremes as whiskers.

use std::fmt::Write;

use lab::figures::figure;

use super::bench::Column;
use super::report::{DemoReport, Row};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;\
padding:0 1em;color:#1b1f24}table{border-collapse:collapse;width:100%}\
th,td{padding:.35em .6em;text-align:right;border-bottom:1px solid #ddd;vertical-align:middle}\
th:first-child,td:first-child{text-align:left}.better{color:#116329}.worse{color:#a40e26}\
small{color:#666}.key span{display:inline-block;width:1em;height:.8em;margin:0 .3em 0 1em}";

const KERNEL_COLOUR: &str = "#9aa5b1";
const OUTBOARD_COLOUR: &str = "#1f6feb";

/// Width of the plots in pixels.
const WIDTH: f64 = 260.0;

/// The page.
pub fn page(report: &DemoReport) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Outboard beside the \
         kernel</title>\n<style>{STYLE}</style>\n<h1>Outboard beside the kernel</h1>\n\
         <p>Two hosts, one core each; medians of {} rounds, whiskers from the smallest to the \
         largest value. CPU is that of the server's host; the engine's idle polling is left \
         out.</p>\n<p class=\"key\"><span style=\"background:{KERNEL_COLOUR}\"></span>kernel\
         <span style=\"background:{OUTBOARD_COLOUR}\"></span>Outboard</p>\n",
        report.rounds
    );
    let mut arrangement = "";
    for row in &report.rows {
        if row.arrangement != arrangement {
            if !arrangement.is_empty() {
                html.push_str("</table>\n");
            }
            arrangement = row.arrangement;
            let about = Column::ALL.into_iter().find(|column| column.name() == arrangement);
            let about = about.map_or(arrangement, Column::description);
            let _ = write!(
                html,
                "<h2>{}</h2>\n<table><tr><th>work</th><th>kernel</th><th>Outboard</th>\
                 <th>ratio</th><th></th></tr>\n",
                escaped(about)
            );
        }
        table_row(&mut html, row);
    }
    if !arrangement.is_empty() {
        html.push_str("</table>\n");
    }
    html.push_str("</html>\n");
    html
}

fn table_row(html: &mut String, row: &Row) {
    let shown = |value: Option<f64>| value.map_or_else(|| "failed".into(), figure);
    let class = match row.is_better() {
        Some(true) => "better",
        Some(false) => "worse",
        None => "",
    };
    let ratio = row.ratio.map_or_else(|| "&ndash;".into(), |ratio| format!("{ratio:.2}"));
    let failure = row.failure.as_deref().map_or_else(String::new, |failure| {
        format!("<br><small class=\"worse\">{}</small>", escaped(failure))
    });
    let _ = writeln!(
        html,
        "<tr><td>{}<br><small>{}, {} is better</small>{failure}</td><td>{}</td><td>{}</td>\
         <td class=\"{class}\">{ratio}</td><td>{}</td></tr>",
        escaped(row.name),
        row.unit,
        row.better,
        shown(row.kernel),
        shown(row.outboard),
        plot(row)
    );
}

/// Two bars with whiskers, on a scale that begins at zero.
fn plot(row: &Row) -> String {
    let bars = [
        (KERNEL_COLOUR, row.kernel, row.kernel_min, row.kernel_max),
        (OUTBOARD_COLOUR, row.outboard, row.outboard_min, row.outboard_max),
    ];
    let largest = bars.iter().filter_map(|bar| bar.3).fold(0.0, f64::max);
    let mut svg = format!(
        "<svg width=\"{WIDTH}\" height=\"38\" role=\"img\" aria-label=\"{}\">",
        escaped(row.name)
    );
    for (index, (colour, median, least, most)) in bars.into_iter().enumerate() {
        let (Some(median), Some(least), Some(most)) = (median, least, most) else { continue };
        if largest <= 0.0 {
            continue;
        }
        let x = |value: f64| value.max(0.0) / largest * (WIDTH - 2.0);
        let top = 3 + index * 18;
        let _ = write!(
            svg,
            "<rect x=\"0\" y=\"{top}\" width=\"{:.1}\" height=\"14\" fill=\"{colour}\"/>\
             <path d=\"M{:.1} {}H{:.1}M{:.1} {}v6M{:.1} {}v6\" stroke=\"#1b1f24\" fill=\"none\"/>",
            x(median),
            x(least),
            top + 7,
            x(most),
            x(least),
            top + 4,
            x(most),
            top + 4
        );
    }
    svg.push_str("</svg>");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::work::Metric;

    #[test]
    fn every_row_has_its_two_bars_and_text_is_escaped() {
        let good = Row::new(Metric::GetRate, Column::TapServer, &[1.0, 2.0], &[3.0], None);
        let failed = Row::new(Metric::SetRate, Column::TapServer, &[1.0], &[], Some("<hung>"));
        let html = page(&DemoReport { rows: vec![good, failed], rounds: 2 });
        assert_eq!(html.matches("<rect").count(), 3);
        assert_eq!(html.matches("<table>").count(), html.matches("</table>").count());
        assert!(html.contains("&lt;hung&gt;"));
    }
}
