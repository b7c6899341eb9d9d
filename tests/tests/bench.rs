//! `outboard bench` on its smallest grids: every row is there, every figure is one, and the engines'
//! counters say who carried the load. Nothing here judges a speed.

use std::path::Path;
use std::process::Command;

use outboard::bench::cell::{Experiment, Grid};
use outboard::bench::planned::Planned;
use outboard::bench::report::Report;
use outboard::bench::system::System;
use outboard::bench::{emp, markdown, ni, nic};
use outboard_tests::turn;
use outboard_tests::world::executable;

/// Milliseconds of each window.
const WINDOW: &str = "100";

/// Measures the smallest grid of `experiment` in one round and reads the report.
fn measured(experiment: Experiment) -> Report {
    measured_as(experiment.name())
}

fn measured_as(name: &str) -> Report {
    let output = std::env::temp_dir().join(format!("outboard-bench-{name}-{}", std::process::id()));
    let finished = Command::new(executable().expect("built"))
        .args(["bench", name, "--grid", "smoke", "--rounds", "1", "--window", WINDOW, "--output"])
        .arg(&output)
        .output()
        .expect("the executable runs");
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert!(finished.status.success(), "bench {name}: {said}");
    let report = Report::read(&output.join(format!("{name}.json"))).expect("a report");
    check_page(&output.join(format!("{name}.html")), &report);
    std::fs::remove_dir_all(&output).expect("the reports are there");
    report
}

fn check_page(path: &Path, report: &Report) {
    let page = std::fs::read_to_string(path).expect("a page");
    assert!(page.ends_with("</html>\n"), "the page is not whole");
    for row in &report.rows {
        assert!(page.contains(&row.point), "{} is not on the page", row.point);
    }
    assert!(page.matches("<circle").count() >= report.rows.len(), "points are missing");
}

/// Every cell on every system, each with figures that are numbers and work that was carried.
fn check(experiment: Experiment, report: &Report) {
    let cells = experiment.cells(Grid::Smoke);
    let systems = experiment.systems();
    assert_eq!(report.rows.len(), cells.len() * systems.len(), "rows are missing");
    for cell in &cells {
        for &system in &systems {
            let row = report.rows.iter().find(|row| {
                (&row.group, &row.point) == (&cell.group, &cell.point)
                    && row.system == system.name()
            });
            let row = row.unwrap_or_else(|| panic!("no row of {cell:?} on {}", system.name()));
            assert_eq!(row.failure, None, "{cell:?} on {}", system.name());
            assert!(row.order.len() >= 2, "{cell:?} on {}: {:?}", system.name(), row.order);
            for (name, figure) in &row.figures {
                let values = format!("{name} of {cell:?} on {}: {figure:?}", system.name());
                assert!(figure.values.len() == 1 && figure.values[0].is_finite(), "{values}");
                assert!(figure.values[0] >= 0.0, "{values}");
            }
            let main = &row.figures[&row.order[0]];
            assert!(main.median > 0.0, "{cell:?} on {}: {main:?}", system.name());
            check_carriers(system, row.outcome.as_ref().expect("an outcome"));
        }
    }
    let outboard = systems.iter().filter(|system| !system.is_kernel()).count();
    for cell in &cells {
        let of_cell = |one: &&outboard::bench::report::Comparison| {
            (&one.group, &one.point) == (&cell.group, &cell.point)
        };
        let found = report.comparisons.iter().filter(of_cell).count();
        assert!(found >= outboard, "{cell:?} is compared {found} times");
    }
}

/// An engine where the system has one, which has carried the bytes, and none elsewhere.
fn check_carriers(system: System, outcome: &outboard::bench::load::Outcome) {
    for (host, side) in lab::Side::BOTH.into_iter().enumerate() {
        let engine = &outcome.usage.engines[host];
        assert_eq!(engine.is_some(), system.accelerates(side), "{} on {side:?}", system.name());
        let Some(counters) = engine else { continue };
        let count = |name: &str| counters.get(name).copied().unwrap_or(0);
        let bytes = count("stream_rx_bytes") + count("stream_tx_bytes");
        let shown = format!("{} on {side:?}: {counters:?}", system.name());
        assert!(bytes * 2 >= outcome.bytes && count("turns_with_work") > 0, "{shown}");
    }
}

#[test]
fn rpc_measures_every_cell_on_every_system() {
    let Some(_turn) = turn("rpc_measures_every_cell_on_every_system") else { return };
    check(Experiment::Rpc, &measured(Experiment::Rpc));
}

#[test]
fn eta_measures_both_directions_on_every_system() {
    let Some(_turn) = turn("eta_measures_both_directions_on_every_system") else { return };
    check(Experiment::Eta, &measured(Experiment::Eta));
}

#[test]
fn connect_makes_short_connections_in_both_roles() {
    let Some(_turn) = turn("connect_makes_short_connections_in_both_roles") else { return };
    let report = measured(Experiment::Connect);
    check(Experiment::Connect, &report);
    for (system, host) in [("xdp-server", 1), ("tap-server", 1), ("xdp-client", 0)] {
        let row = report.rows.iter().find(|row| row.system == system).expect("a row");
        let usage = &row.outcome.as_ref().expect("an outcome").usage;
        let accepts = usage.counter(host, "accepts");
        assert_eq!(accepts > 0, host == 1, "{system}: {:?}", usage.engines);
    }
}

#[test]
fn latency_offers_shares_of_capacity_and_equal_rates() {
    let Some(_turn) = turn("latency_offers_shares_of_capacity_and_equal_rates") else { return };
    let report = measured(Experiment::Latency);
    check(Experiment::Latency, &report);
    for row in &report.rows {
        assert!(["p50", "p99"].iter().all(|name| row.figures.contains_key(*name)), "{row:?}");
    }
}

#[test]
fn profile_divides_the_time_of_the_core() {
    let Some(_turn) = turn("profile_divides_the_time_of_the_core") else { return };
    let report = measured(Experiment::Profile);
    check(Experiment::Profile, &report);
    for row in report.rows.iter().filter(|row| !row.is_kernel) {
        let parts = row.order.iter().filter(|name| name.starts_with("engine: ")).count();
        assert_eq!(parts, 5, "{}: {:?}", row.system, row.order);
    }
}

#[test]
fn reports_are_compared() {
    let Some(_turn) = turn("reports_are_compared") else { return };
    let report = measured(Experiment::Profile);
    let folder = std::env::temp_dir().join(format!("outboard-bench-pair-{}", std::process::id()));
    report.write(&folder, "before").expect("written");
    report.write(&folder, "after").expect("written");
    let compared = Command::new(executable().expect("built"))
        .args(["bench", "compare"])
        .args(["before.json", "after.json"].map(|name| folder.join(name)))
        .output()
        .expect("the executable runs");
    std::fs::remove_dir_all(&folder).expect("the reports are there");
    let said = String::from_utf8_lossy(&compared.stdout);
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stderr));
    assert!(said.contains("throughput") && !said.contains("WORSE"), "{said}");
}

/// Whether program and engine can have a core each.
fn has_two_cores(test: &str) -> bool {
    let has_two = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    if !has_two {
        skips::skip(test, "cores", "program and engine need a core each");
    }
    has_two
}

/// Every planned run has its row, every figure is one, and the paper's stand where they are known.
fn check_planned<W>(plan: &[Planned<W>], report: &Report) {
    assert_eq!(report.rows.len(), plan.len(), "rows are missing");
    for (run, row) in plan.iter().zip(&report.rows) {
        let named = (&row.group, &row.point, row.system.as_str());
        assert_eq!(named, (&run.group, &run.point, run.series.name));
        assert_eq!(row.failure, None, "{named:?}");
        let main = row.order.first().and_then(|name| row.figures.get(name));
        assert!(main.is_some_and(|figure| figure.median > 0.0), "{named:?}: {main:?}");
        for (name, figure) in &row.figures {
            let is_one = figure.values.len() == 1 && figure.values[0].is_finite();
            assert!(is_one && figure.values[0] >= 0.0, "{name} of {named:?}: {figure:?}");
        }
        for (name, value) in &run.paper {
            assert_eq!(row.figures[*name].paper, Some(*value), "{name} of {named:?}");
        }
    }
    assert!(report.has_paper() && markdown::section(report).contains("| paper |"));
}

#[test]
fn ni_repeats_the_papers_experiments() {
    let test = "ni_repeats_the_papers_experiments";
    let Some(_turn) = turn(test).filter(|_| has_two_cores(test)) else { return };
    check_planned(&ni::plan(Grid::Smoke), &measured_as("ni"));
}

#[test]
fn nic_receives_and_sends_through_every_interface() {
    let test = "nic_receives_and_sends_through_every_interface";
    let Some(_turn) = turn(test).filter(|_| has_two_cores(test)) else { return };
    let report = measured_as("nic");
    check_planned(&nic::plan(Grid::Smoke), &report);
    let row = report.rows.iter().find(|row| row.system == "onloader").expect("a row");
    // A run that the engine has not carried fails.
    assert!(row.figures.contains_key("arrived at the engine"), "{row:?}");
}

#[test]
fn emp_exchanges_messages_on_every_system() {
    let test = "emp_exchanges_messages_on_every_system";
    let Some(_turn) = turn(test).filter(|_| has_two_cores(test)) else { return };
    // A run fails where an engine has not carried its messages, or one differs from what was sent.
    check_planned(&emp::plan(Grid::Smoke), &measured_as("emp"));
}
