//! Rules of source files: length, `unsafe`, words that mean unfinished work, tests that sleep,
//! files that no module names.

use std::path::Path;

use super::{SourceFile, Tree};

/// Longest file in lines; one past about 800 is split by subject.
const LINES_MAX: usize = 900;

/// The rooms that may use `unsafe`.
const UNSAFE_ROOMS: [&str; 4] = ["crates/arch/", "crates/shm/", "crates/port/", "bindings/"];

/// What unfinished or forgotten work looks like. Written in halves, so that this file has none.
const BANNED: [&str; 6] = [
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
    concat!("db", "g!("),
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
];

/// What makes a test wait for time to pass.
const SLEEP: &str = concat!("thread::", "sleep");

/// A sentence for every place where a rule is broken.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for file in tree.with_extension(".rs") {
        check_length(file, &mut faults);
        check_words(file, &mut faults);
        check_unsafe(file, &mut faults);
        check_reached(tree, file, &mut faults);
    }
    faults
}

fn check_length(file: &SourceFile, faults: &mut Vec<String>) {
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        faults.push(format!(
            "{} has {lines} lines, more than {LINES_MAX}: split it by subject",
            file.path
        ));
    }
}

fn check_words(file: &SourceFile, faults: &mut Vec<String>) {
    // Real programs are waited for in tests/, where their readiness shows itself only from
    // outside; there a pause between two looks is allowed, in one place.
    let mut in_tests = file.path.contains("/tests/") && !file.path.starts_with("tests/");
    for (number, line) in file.text.lines().enumerate() {
        let place = || format!("{}:{}", file.path, number + 1);
        for word in BANNED.iter().filter(|word| line.contains(*word)) {
            faults.push(format!("{}: {word} is unfinished work", place()));
        }
        in_tests |= line.contains("#[cfg(test)]");
        if in_tests && line.contains(SLEEP) {
            faults.push(format!("{}: a test that sleeps; wait for what it waits for", place()));
        }
    }
}

fn check_unsafe(file: &SourceFile, faults: &mut Vec<String>) {
    if UNSAFE_ROOMS.iter().any(|room| file.path.starts_with(room)) {
        return;
    }
    for (number, line) in file.text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let is_word = |at: usize| {
            let before = code.get(..at).and_then(|before| before.chars().next_back());
            !before.is_some_and(|last| last.is_alphanumeric() || "_\"#[(".contains(last))
        };
        let forms = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait"];
        if forms.iter().any(|form| code.find(form).is_some_and(is_word)) {
            faults.push(format!(
                "{}:{}: unsafe is for {} only",
                file.path,
                number + 1,
                UNSAFE_ROOMS.join(", ")
            ));
        }
    }
    let is_root = file.path.ends_with("/src/lib.rs") || file.path.ends_with("/src/main.rs");
    if is_root && !file.text.contains("#![forbid(unsafe_code)]") {
        faults.push(format!("{}: #![forbid(unsafe_code)] is missing", file.path));
    }
}

/// A module's file must be named by its parent, or it is dead.
fn check_reached(tree: &Tree, file: &SourceFile, faults: &mut Vec<String>) {
    let path = Path::new(&file.path);
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem().and_then(|s| s.to_str()))
    else {
        return;
    };
    let in_source = path.components().any(|part| part.as_os_str() == "src");
    let in_binaries = folder.ends_with("src/bin");
    if !in_source || in_binaries || ["lib", "main", "mod"].contains(&stem) {
        return;
    }
    let parents = if folder.ends_with("src") {
        vec![folder.join("lib.rs"), folder.join("main.rs")]
    } else {
        vec![folder.with_extension("rs"), folder.join("mod.rs")]
    };
    let named = format!("mod {stem};");
    let reached = parents.iter().any(|parent| {
        let parent = parent.display().to_string();
        tree.has(&parent)
            && tree.files.iter().any(|file| file.path == parent && file.text.contains(&named))
    });
    // Or by its path, where two files stand in for each other.
    let by_path = format!("/{stem}.rs\"]");
    let reached = reached
        || tree
            .with_extension(".rs")
            .any(|other| other.text.contains("#[path = ") && other.text.contains(&by_path));
    if !reached {
        faults.push(format!("{}: no module names this file, so it is dead", file.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(files: &[(&str, &str)]) -> Vec<String> {
        let files = files
            .iter()
            .map(|(path, text)| SourceFile { path: (*path).into(), text: (*text).into() })
            .collect();
        check(&Tree { root: Default::default(), files })
    }

    const ROOT: &str = "#![forbid(unsafe_code)]\n";

    #[test]
    fn a_clean_file_has_no_fault() {
        assert!(faults_of(&[("a/src/lib.rs", ROOT)]).is_empty());
    }

    #[test]
    fn unfinished_work_is_a_fault() {
        let text = format!("{ROOT}fn f() {{ {}) }}", concat!("to", "do!("));
        assert_eq!(faults_of(&[("a/src/lib.rs", &text)]).len(), 1);
    }

    #[test]
    fn a_long_file_is_a_fault() {
        let text = format!("{ROOT}{}", "\n".repeat(LINES_MAX));
        assert_eq!(faults_of(&[("a/src/lib.rs", &text)]).len(), 1);
    }

    #[test]
    fn unsafe_is_a_fault_outside_its_rooms() {
        let text = format!("{ROOT}fn f() {{ {} {{}} }}", "unsafe");
        assert_eq!(faults_of(&[("crates/wire/src/lib.rs", &text)]).len(), 1);
        assert!(faults_of(&[("crates/arch/src/lib.rs", &text)]).is_empty());
    }

    #[test]
    fn a_sleeping_test_is_a_fault_and_a_sleeping_program_is_not() {
        let sleep = format!("std::{SLEEP}(d);\n");
        let program = format!("{ROOT}{sleep}");
        assert!(faults_of(&[("a/src/lib.rs", &program)]).is_empty());
        let test = format!("{ROOT}#[cfg(test)]\n{sleep}");
        assert_eq!(faults_of(&[("a/src/lib.rs", &test)]).len(), 1);
        assert_eq!(faults_of(&[("crates/a/tests/b.rs", &sleep)]).len(), 1);
    }

    #[test]
    fn a_file_that_no_module_names_is_a_fault() {
        let lib = format!("{ROOT}mod a;\n");
        let named =
            [("c/src/lib.rs", lib.as_str()), ("c/src/a.rs", "mod b;"), ("c/src/a/b.rs", "")];
        assert!(faults_of(&named).is_empty());
        let dead = [("c/src/lib.rs", lib.as_str()), ("c/src/a.rs", ""), ("c/src/a/b.rs", "")];
        assert_eq!(faults_of(&dead).len(), 1);
    }
}
