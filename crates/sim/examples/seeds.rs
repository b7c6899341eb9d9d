//! Runs seeds: `seeds FIRST LAST [trace]`.

use outboard_sim::{Settings, runner};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(1);
    let settings = Settings { trace: arguments.len() > 3, ..Settings::default() };
    let began = std::time::Instant::now();
    let summary = runner::range(number(1)..=number(2), settings, 1000, |_, _| {});
    for failure in &summary.failures {
        println!("{failure}");
    }
    println!("{}", summary.table);
    println!(
        "{} failures, {} frames, {} virtual seconds, {:?}",
        summary.failures.len(),
        summary.frames,
        summary.virtual_s,
        began.elapsed()
    );
}
