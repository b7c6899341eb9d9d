//! Which clauses of an RFC are cited at code and at tests, in duvet's form:
//!
//! ```text
//! //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//! //= type=test
//! //# the clause, word for word
//! ```
//!
//! `docs/rfc/rfc9293.txt` has the clauses. One that is cited nowhere, or only at one side, needs
//! a line in `docs/rfc/exceptions.txt` with the reason; one that is not needed any more is a
//! fault, too. A quotation that is not in the RFC is a fault where its text is at hand.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::tidy::Tree;

/// The RFC whose clauses are followed to the end.
const NUMBER: &str = "9293";

/// A clause.
struct Clause {
    label: String,
    section: String,
    words: String,
}

/// A quotation at code or a test.
struct Citation {
    place: String,
    rfc: String,
    section: String,
    is_test: bool,
    words: String,
}

/// What is missing for a clause, with the reason why that is right.
struct Exception {
    label: String,
    side: String,
    reason: String,
}

/// Single spaces, and words that a line break has cut at their hyphen made whole.
fn squeezed(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace("- ", "-").to_lowercase()
}

/// Prints the report; a sentence for every fault.
pub fn run(root: &Path, texts: Option<&Path>) -> Result<(), String> {
    let tree = Tree::of(root)?;
    let citations = citations(&tree);
    let clauses = clauses(&read(&root.join(format!("docs/rfc/rfc{NUMBER}.txt")))?)?;
    let exceptions = exceptions(&read(&root.join("docs/rfc/exceptions.txt"))?)?;
    let mut faults = compare(&clauses, &citations, &exceptions);
    if let Some(texts) = texts {
        faults.extend(misquoted(&citations, texts));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|why| format!("cannot read {}: {why}", path.display()))
}

fn clauses(text: &str) -> Result<Vec<Clause>, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut parts = line.splitn(3, ' ').map(str::to_owned);
            let fault = || format!("`{line}`: label, section and words are needed");
            Ok(Clause {
                label: parts.next().ok_or_else(fault)?,
                section: parts.next().ok_or_else(fault)?,
                words: squeezed(&parts.next().ok_or_else(fault)?),
            })
        })
        .collect()
}

/// `MUST-9 code: reason`, where the side is `code`, `test` or `both`.
fn exceptions(text: &str) -> Result<Vec<Exception>, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let fault = || format!("`{line}`: the form is `MUST-9 code: reason`");
            let (named, reason) = line.split_once(": ").ok_or_else(fault)?;
            let (label, side) = named.split_once(' ').ok_or_else(fault)?;
            if !["code", "test", "both"].contains(&side) || reason.trim().is_empty() {
                return Err(fault());
            }
            let [label, side, reason] = [label, side, reason].map(str::to_owned);
            Ok(Exception { label, side, reason })
        })
        .collect()
}

/// Every citation of the sources and the packet scripts.
fn citations(tree: &Tree) -> Vec<Citation> {
    let mut all = Vec::new();
    for file in tree.with_extension(".rs").chain(tree.with_extension(".pkt")) {
        let mut open: Option<Citation> = None;
        for (number, line) in file.text.lines().enumerate() {
            let line = line.trim();
            if let Some(url) = line.strip_prefix("//= https://www.rfc-editor.org/rfc/rfc") {
                all.extend(open.take());
                let (rfc, section) = url.split_once("#section-").unwrap_or((url, ""));
                open = Some(Citation {
                    place: format!("{}:{}", file.path, number + 1),
                    rfc: rfc.to_owned(),
                    section: section.to_owned(),
                    is_test: false,
                    words: String::new(),
                });
            } else if let (Some(citation), "//= type=test") = (&mut open, line) {
                citation.is_test = true;
            } else if let (Some(citation), Some(words)) = (&mut open, line.strip_prefix("//#")) {
                citation.words.push_str(words);
                citation.words.push(' ');
            } else {
                all.extend(open.take());
            }
        }
        all.extend(open);
    }
    for citation in &mut all {
        citation.words = squeezed(&citation.words);
    }
    all
}

fn compare(clauses: &[Clause], citations: &[Citation], exceptions: &[Exception]) -> Vec<String> {
    let mut faults = Vec::new();
    let [mut whole, mut excepted] = [0; 2];
    for clause in clauses {
        let label = format!("({})", clause.label.to_lowercase());
        let is_cited = |is_test: bool| {
            citations.iter().any(|citation| {
                citation.rfc == NUMBER
                    && citation.section == clause.section
                    && citation.is_test == is_test
                    && !citation.words.is_empty()
                    && (clause.words.contains(&citation.words) || citation.words.contains(&label))
            })
        };
        let excused = |side: &str| {
            let found =
                |e: &&Exception| e.label == clause.label && (e.side == side || e.side == "both");
            exceptions.iter().find(found)
        };
        let mut missing = false;
        for (side, is_test) in [("code", false), ("test", true)] {
            match (is_cited(is_test), excused(side)) {
                (true, None) => {}
                (false, Some(exception)) => {
                    missing = true;
                    println!("{} {side}: {}", clause.label, exception.reason);
                }
                (false, None) => faults.push(format!(
                    "{} (section {}) is cited by no {side}: `{}`",
                    clause.label, clause.section, clause.words
                )),
                (true, Some(_)) => faults.push(format!(
                    "{} is cited by {side}, so that its exception is needed no more",
                    clause.label
                )),
            }
        }
        if missing { excepted += 1 } else { whole += 1 }
    }
    for exception in exceptions {
        if !clauses.iter().any(|clause| clause.label == exception.label) {
            faults.push(format!("{} is excepted and no clause", exception.label));
        }
    }
    if faults.is_empty() {
        println!(
            "RFC {NUMBER}: {} clauses, {whole} cited by code and test, {excepted} excepted",
            clauses.len()
        );
    }
    faults
}

/// Quotations that are not in their RFC's text, for RFCs whose text is there.
fn misquoted(citations: &[Citation], texts: &Path) -> Vec<String> {
    let mut read = BTreeMap::new();
    let mut faults = Vec::new();
    for citation in citations {
        let text = read.entry(citation.rfc.clone()).or_insert_with(|| {
            let path = texts.join(format!("rfc{}.txt", citation.rfc));
            fs::read_to_string(path).ok().map(|text| {
                // Some RFCs mark what they quote themselves with bars.
                let is_of_page = |line: &&str| line.ends_with(']') && line.contains("[Page ");
                let is_heading = |line: &&str| line.starts_with(&format!("RFC {} ", citation.rfc));
                let lines = text.lines().filter(|line| !is_of_page(line) && !is_heading(line));
                let lines = lines.map(|line| match line.trim().strip_prefix('|') {
                    Some(quoted) => quoted.trim_end_matches('|'),
                    None => line,
                });
                squeezed(&lines.collect::<Vec<_>>().join("\n"))
            })
        });
        let Some(text) = text else { continue };
        if !text.contains(&citation.words) {
            faults.push(format!("{}: this is not in RFC {}", citation.place, citation.rfc));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn citation(is_test: bool, words: &str) -> Citation {
        Citation {
            place: "a.rs:1".into(),
            rfc: NUMBER.into(),
            section: "3.1".into(),
            is_test,
            words: squeezed(words),
        }
    }

    #[test]
    fn a_clause_needs_both_sides_or_a_reason() {
        let clauses =
            clauses("MUST-2 3.1 The sender MUST half-\nclose".replace('\n', " ").as_str());
        let clauses = clauses.unwrap();
        let both = [citation(false, "sender MUST"), citation(true, "The sender\n MUST half-close")];
        assert!(compare(&clauses, &both, &[]).is_empty());
        assert_eq!(compare(&clauses, &both[..1], &[]).len(), 1);
        let reason = exceptions("MUST-2 test: seen by no test").unwrap();
        assert!(compare(&clauses, &both[..1], &reason).is_empty());
        assert_eq!(compare(&clauses, &both, &reason).len(), 1, "a stale exception");
        assert!(exceptions("MUST-2 nobody: x").is_err());
        assert!(exceptions("MUST-2 test:").is_err());
    }
}
