//! Links of the documents to files of the tree, and the files that CONTRIBUTING.md names.

use std::path::Path;

use super::Tree;

/// A sentence for every link to a file that is not there.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for file in tree.with_extension(".md") {
        let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
        for target in targets(&file.text) {
            if !tree.root.join(folder).join(target).exists() {
                faults.push(format!("{}: the link to {target} leads nowhere", file.path));
            }
        }
    }
    for file in tree.with_extension("CONTRIBUTING.md") {
        for path in paths(&file.text).filter(|path| !tree.root.join(path).exists()) {
            faults.push(format!("{}: names {path}, which does not exist", file.path));
        }
    }
    faults
}

/// Folders at the top of the tree in which named files lie.
const FOLDERS: [&str; 8] =
    ["bindings/", "cli/", "crates/", "docs/", "fuzz/", "scripts/", "tests/", "xtask/"];

/// Files and folders of the tree in `code`, from its root. A name in capitals stands for others.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|code| {
        FOLDERS.iter().any(|folder| code.starts_with(folder))
            && !code.contains(|c: char| c.is_whitespace() || c.is_ascii_uppercase())
    })
}

/// Targets of `[text](target)` that are files, without their anchors. Fenced code has none.
fn targets(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (number, part) in text.split("```").enumerate() {
        if number % 2 == 1 {
            continue;
        }
        for tail in part.split("](").skip(1) {
            let Some((target, _)) = tail.split_once(')') else { continue };
            let target = target.split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push(target);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_files_are_found_and_placeholders_left_out() {
        let text = "`make test` `crates/a.rs` `NAME` `foo/tests.rs` `docs/NAME.md` `cli/src/`";
        assert_eq!(paths(text).collect::<Vec<_>>(), ["crates/a.rs", "cli/src/"]);
    }

    #[test]
    fn links_to_files_are_found_and_others_left_out() {
        let text = "[a](docs/a.md#part) [b](https://b) [c](#here)\n```\n[d](d.md)\n```\n[e](../e)";
        assert_eq!(targets(text), ["docs/a.md", "../e"]);
    }
}
