//! Tests that cannot run on a machine.
//!
//! Every test that needs something a machine may lack calls [`skip`] and returns. The skip is printed,
//! and appended to the file that `$OUTBOARD_SKIPPED` names, because the test harness hides what a
//! passing test prints; `make test` shows that file at its end. Under CI (`CI=true`), as root, a
//! skip fails the test unless `lacking.txt` lists what is missing.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::io::Write as _;

/// What the kernel of the continuous integration is known to lack.
const LACKING: &str = include_str!("../lacking.txt");

/// Notes that `test` is skipped because this machine lacks `what`, a single word; `why` says more.
///
/// # Panics
/// Under CI, as root, unless `lacking.txt` lists `what`.
#[track_caller]
pub fn skip(test: &str, what: &str, why: &str) {
    let line = format!("{test}: {what}: {why}");
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let must_run = is_ci && rustix::process::geteuid().is_root();
    assert!(
        !must_run || is_listed(LACKING, what),
        "{line}; a test may not be skipped here: install or enable it, or, if the kernel cannot have it, \
         list {what} in crates/skips/lacking.txt"
    );
    eprintln!("SKIPPED {line}");
    if let Some(path) = std::env::var_os("OUTBOARD_SKIPPED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let noted = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        noted.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// [`skip`] unless this is root, which `test` needs; `true`: the test can run.
#[track_caller]
pub fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(test, "root", "it makes network namespaces and loads BPF");
    }
    is_root
}

fn is_listed(list: &str, what: &str) -> bool {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_whitespace().next()).any(|name| name == what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_names_count_as_listed() {
        let list = "# vlan\nbridge  no interfaces of type vlan\n";
        assert!(is_listed(list, "bridge"));
        assert!(!is_listed(list, "vlan"));
        assert!(!is_listed(list, "#"));
    }

    #[test]
    fn what_this_kernel_lacks_is_listed_with_a_reason() {
        for line in LACKING.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.split_whitespace().count() > 1, "{line}");
        }
    }

    /// Skips, when it is started by the tests below.
    #[test]
    #[ignore = "started by other tests"]
    fn skipping() {
        let what = std::env::var("OUTBOARD_SKIPS_WHAT").expect("the caller says what");
        skip("skipping", &what, "it is not there");
    }

    /// Whether a test that skips for `what` passes, and what it noted.
    fn skipped(what: &str, ci: &str) -> (bool, String) {
        let name = format!("outboard-skips-{what}-{ci}-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let output = Command::new(std::env::current_exe().expect("a test"))
            .args(["--ignored", "--exact", "tests::skipping"])
            .env("OUTBOARD_SKIPS_WHAT", what)
            .env("OUTBOARD_SKIPPED", &file)
            .env("CI", ci)
            .output()
            .expect("it runs");
        let noted = std::fs::read_to_string(&file).unwrap_or_default();
        let _there = std::fs::remove_file(&file);
        (output.status.success(), noted)
    }

    #[test]
    fn skips_are_noted_and_fail_under_ci_unless_listed() {
        let note = |what: &str| format!("skipping: {what}: it is not there\n");
        assert_eq!(skipped("sloth", "false"), (true, note("sloth")));
        assert_eq!(skipped("vlan", "true"), (true, note("vlan")));
        let must_run = rustix::process::geteuid().is_root();
        let expected = if must_run { (false, String::new()) } else { (true, note("sloth")) };
        assert_eq!(skipped("sloth", "true"), expected);
    }
}
