//! docs/operations.md names a test for every event; here it is seen that each exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// All functions marked as tests in the Rust files below `directory`.
fn tests_below(directory: &Path, found: &mut BTreeSet<String>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            tests_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            for after in text.split("#[test]\n").skip(1) {
                let name =
                    after.trim_start().strip_prefix("fn ").and_then(|fun| fun.split('(').next());
                found.extend(name.map(str::to_owned));
            }
        }
    }
}

#[test]
fn every_test_named_in_operations_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/operations.md")).expect("docs/operations.md");
    let mut tests = BTreeSet::new();
    for directory in ["tests/tests", "crates"] {
        tests_below(&root.join(directory), &mut tests);
    }
    let mut events = 0;
    for line in text.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let [event, outcome, named] = cells[..] else { panic!("not three cells: {line}") };
        assert!(!outcome.trim().is_empty(), "no outcome of {event}");
        let names: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test of {event}");
        for name in names {
            assert!(tests.contains(name), "{event}: there is no test {name}");
        }
        events += 1;
    }
    assert!(events >= 20, "{events} events");
}
