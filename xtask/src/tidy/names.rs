//! Rule of names: a public type's name is unique in its crate, so that a name in a sentence, an
//! error or a search means one thing.

use std::collections::BTreeMap;

use super::{SourceFile, Tree};

/// What declares a type.
const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// A sentence for every public type whose name another one of its crate has.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut declared: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for file in tree.with_extension(".rs") {
        let Some(krate) = crate_of(file) else { continue };
        for (number, name) in public_types(&file.text) {
            let at = format!("{}:{number}", file.path);
            declared.entry((krate, name)).or_default().push(at);
        }
    }
    let shared = declared.iter().filter(|(_, places)| places.len() > 1);
    shared
        .map(|((krate, name), places)| {
            format!(
                "{krate}: {} public types have the name {name}, at {}: rename all but one",
                places.len(),
                places.join(", ")
            )
        })
        .collect()
}

/// The crate that a file is compiled into, by its folder. Tests are not: each of their files is a
/// crate of its own.
fn crate_of(file: &SourceFile) -> Option<&str> {
    let (krate, module) = file.path.split_once("/src/")?;
    let is_test = module.contains("tests/") || module.ends_with("tests.rs");
    (!is_test).then_some(krate)
}

/// Where a file's own tests begin, which stand at its end.
const TESTS: &str = "\n#[cfg(test)]\nmod tests {";

/// Line and name of each public type that is declared before a file's own tests.
fn public_types(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = text.split_once(TESTS).map_or(text, |(code, _)| code);
    code.lines().enumerate().filter_map(|(index, line)| Some((index + 1, public_type(line)?)))
}

/// The name of the public type that a line declares.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let rest = rest.strip_prefix(concat!("uns", "afe ")).unwrap_or(rest);
    let (keyword, rest) = rest.split_once(' ')?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
    KEYWORDS.contains(&keyword).then(|| rest.split_at(end).0)
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

    #[test]
    fn two_public_types_of_a_name_in_a_crate_are_a_fault() {
        let faults =
            faults_of(&[("c/src/a.rs", "pub struct Way;"), ("c/src/b.rs", "\npub enum Way<T> {")]);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].contains("c/src/a.rs:1, c/src/b.rs:2"), "{faults:?}");
        for other in ["pub type Way = u8;", "pub trait Way: Sync {", "pub union Way {"] {
            let files = [("c/src/a.rs", "pub struct Way;"), ("c/src/b.rs", other)];
            assert_eq!(faults_of(&files).len(), 1, "{other}");
        }
        let inner = "mod a {\n    pub struct Way;\n}\npub struct Way;\n";
        assert_eq!(faults_of(&[("c/src/lib.rs", inner)]).len(), 1);
    }

    #[test]
    fn the_same_name_elsewhere_is_none() {
        let declared = "pub struct Way;";
        for other in [
            ("d/src/b.rs", declared),
            ("c/tests/b.rs", declared),
            ("c/src/b/tests/pair.rs", declared),
            ("c/src/b/tests.rs", declared),
            ("c/src/b.rs", "pub(crate) struct Way;"),
            ("c/src/b.rs", "struct Way;"),
            ("c/src/b.rs", "pub struct Wayward;"),
            ("c/src/b.rs", "pub fn way() -> Way {"),
            ("c/src/b.rs", "\n#[cfg(test)]\nmod tests {\n    pub struct Way;\n}\n"),
        ] {
            assert_eq!(faults_of(&[("c/src/a.rs", declared), other]), [""; 0], "{other:?}");
        }
    }
}
