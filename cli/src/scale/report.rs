//! The figures as Markdown.

use lab::figures::median;

use super::drive::{Measured, ScaleWindow};
use super::{Figures, RATIO_MAX, Simulated};

/// All figures.
pub fn markdown(figures: &Figures) -> String {
    let simulated = figures.simulated.iter().map(of_simulation);
    simulated.chain(figures.measured.iter().map(of_port)).collect()
}

fn of_simulation(of: &Simulated) -> String {
    let Simulated { connections, keepalives, talked, frames, seconds, .. } = of;
    format!(
        "### {connections} connections in simulation\n\n\
         | memory of one connection in one stack | bytes |\n|---|---|\n\
         | all stand | {:.0} |\n| after three hours of keepalives alone | {:.0} |\n\
         | after {talked} of them have talked | {:.0} |\n\n\
         {keepalives} keepalive probes were sent and answered, {frames} frames passed in all, and \
         nothing was left in the end. It took {seconds:.0} s.\n\n",
        of.bytes_established, of.bytes_idle, of.bytes_talked
    )
}

fn of_port(of: &Measured) -> String {
    let mut text = format!(
        "### {} connections through a port\n\n\
         | of one idle connection | bytes |\n|---|---|\n\
         | the engine's memory | {:.0} |\n| the region, beside it | {:.0} |\n\n\
         Buffers that are not in the pool while all are idle: {}, the stock of the program's lane. \
         {:.0} connections a second were opened by one program at both ends.\n\n\
         | active connections | requests/s | frames per request | frames per turn | ns of the engine's \
         core per frame | p50 | p99 |\n|---|---|---|---|---|---|---|\n",
        of.connections, of.engine_bytes, of.region_bytes, of.buffers_idle, of.opened_per_second
    );
    for windows in [&of.few, &of.all] {
        text += &row(windows);
    }
    let (ratio, verdict) = (of.ratio(), if of.ratio() <= RATIO_MAX { "within" } else { "above" });
    text + &format!("\nA frame costs {ratio:.2} times as much, which is {verdict} {RATIO_MAX}.\n\n")
}

fn row(windows: &[ScaleWindow]) -> String {
    let middle = |value: fn(&ScaleWindow) -> f64| {
        median(&windows.iter().map(value).collect::<Vec<f64>>()).unwrap_or(f64::NAN)
    };
    let costs = windows.iter().map(|window| window.ns_per_frame);
    let (least, most) = costs.fold((f64::MAX, 0.0), |(a, b): (f64, f64), c| (a.min(c), b.max(c)));
    format!(
        "| {} | {:.0} | {:.2} | {:.1} | {:.0} ({least:.0} to {most:.0}) | {:.0} us | {:.0} us |\n",
        windows.first().map_or(0, |window| window.active),
        middle(|window| window.requests_per_second),
        middle(|window| window.frames_per_request),
        middle(|window| window.frames_per_turn),
        middle(|window| window.ns_per_frame),
        middle(|window| window.p50_us),
        middle(|window| window.p99_us),
    )
}
