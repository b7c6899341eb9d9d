//! Rule of signatures: a library's public functions return errors of a type, not sentences, so that
//! a caller can tell causes apart and reach the values.

use std::path::Path;

use super::{SourceFile, Tree};

/// The libraries.
const LIBRARIES: [&str; 8] = [
    "crates/wire/",
    "crates/shm/",
    "crates/stack/",
    "crates/port/",
    "crates/engine/",
    "crates/client/",
    "crates/sim/",
    "crates/script/",
];

/// How a return type ends whose error is a sentence.
const SENTENCE: &str = ", String>";

/// A sentence for every public function of a library that returns a `String` as its error.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for file in tree.with_extension(".rs") {
        if LIBRARIES.iter().any(|library| file.path.starts_with(library)) && is_public(tree, file) {
            faults.extend(
                public_functions(&file.text).filter(|(_, signature)| says(signature)).map(
                    |(number, _)| {
                        format!(
                            "{}:{number}: a public function returns a String as its error",
                            file.path
                        )
                    },
                ),
            );
        }
    }
    faults
}

/// Whether other crates see a file: all modules above it are public, or something of them is used
/// publicly.
fn is_public(tree: &Tree, file: &SourceFile) -> bool {
    let Some((krate, module)) = file.path.split_once("/src/") else { return false };
    let mut module = Path::new(module).with_extension("");
    loop {
        let Some(name) = module.file_name().and_then(|name| name.to_str()) else { return true };
        if name == "lib" {
            return true;
        }
        let parent = match module.parent() {
            Some(parent) if parent != Path::new("") => {
                format!("{krate}/src/{}.rs", parent.display())
            }
            _ => format!("{krate}/src/lib.rs"),
        };
        let names = [format!("pub mod {name};"), format!("pub use {name}::")];
        let is_named = tree.files.iter().any(|file| {
            file.path == parent && names.iter().any(|named| file.text.contains(named.as_str()))
        });
        if !is_named {
            return false;
        }
        if !module.pop() {
            return true;
        }
    }
}

/// Line and signature of each public function.
fn public_functions(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let starts = text.match_indices("pub fn ");
    starts.filter_map(|(at, _)| {
        let (before, rest) = text.split_at(at);
        let end = rest.find(['{', ';'])?;
        let is_code = !before.lines().next_back().unwrap_or_default().contains("//");
        is_code.then(|| (before.matches('\n').count() + 1, rest.split_at(end).0))
    })
}

/// Whether a signature's error is a sentence.
fn says(signature: &str) -> bool {
    let Some((_, returned)) = signature.split_once("->") else { return false };
    returned.contains("Result<") && returned.contains(SENTENCE)
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

    const LIB: (&str, &str) =
        ("crates/port/src/lib.rs", "pub mod a;\nmod b;\nmod c;\npub use c::X;");
    const FUNCTION: &str = "\npub fn open(\n    name: &str,\n) -> Result<u8, String> {";

    #[test]
    fn a_public_function_whose_error_is_a_sentence_is_a_fault() {
        let faults = faults_of(&[LIB, ("crates/port/src/a.rs", FUNCTION)]);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].starts_with("crates/port/src/a.rs:2:"), "{faults:?}");
        assert_eq!(faults_of(&[LIB, ("crates/port/src/c.rs", FUNCTION)]).len(), 1);
        assert_eq!(faults_of(&[("crates/port/src/lib.rs", FUNCTION)]).len(), 1);
        let nested =
            [LIB, ("crates/port/src/a.rs", "pub mod d;"), ("crates/port/src/a/d.rs", FUNCTION)];
        assert_eq!(faults_of(&nested).len(), 1);
    }

    #[test]
    fn what_nobody_else_sees_may_return_sentences() {
        for other in [
            ("crates/port/src/b.rs", FUNCTION),
            ("crates/port/src/b/d.rs", FUNCTION),
            ("crates/port/tests/a.rs", FUNCTION),
            ("cli/src/a.rs", FUNCTION),
            ("crates/port/src/a.rs", "fn open() -> Result<u8, String> {"),
            ("crates/port/src/a.rs", "pub(crate) fn open() -> Result<u8, String> {"),
            ("crates/port/src/a.rs", "pub fn open(of: Result<u8, String>) -> bool {"),
            ("crates/port/src/a.rs", "pub fn open() -> Result<String, OpenError> {"),
        ] {
            assert_eq!(faults_of(&[LIB, other]), [""; 0], "{other:?}");
        }
    }
}
