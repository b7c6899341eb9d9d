//! Which clauses of RFCs are cited at code and at tests, in duvet's form:
//!
//! ```text
//! //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//! //= type=test
//! //# the clause, word for word
//! ```
//!
//! `docs/rfc/rfcNNNN.txt` has the clauses ([`list`]): every sentence of the RFC that demands
//! something. One that is cited nowhere, or only at one side, needs the reason behind it; a reason
//! that is not needed any more is a fault, too. Where the RFCs' texts are at hand (in `shared/rfc`
//! in the tree or beside one of the folders that it is in, or where the command says), a quotation that is not in its RFC is a
//! fault, and so is a list that is not what its RFC says. Where they are not, [`compared`] knows what
//! was compared with them.

mod citations;
mod compared;
mod list;
mod text;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::tidy::Tree;
use citations::Citation;
use list::{Kind, List};

/// What `--report` writes.
const REPORT: &str = "docs/rfc/README.md";

const REPORT_HEAD: &str = "\
# Clauses of RFCs, cited at code and at tests

Written by `cargo xtask rfc --report`; `make lint` checks it. A clause is a sentence of an RFC that
demands something: MUST when it says MUST, SHALL or REQUIRED, otherwise SHOULD. `rfcNNNN.txt` has
those of an RFC. It is cited when its words stand at the code that does it and at a test that shows
it, in [duvet](https://github.com/awslabs/duvet)'s form. Lists and quotations are compared with the
RFCs' texts where these are in `shared/rfc`; `compared` knows what was, for where they are not. Whatever is not has its reason in the list:

- *not ours*: it speaks of something that a host, TCP or this engine is not or does not have;
- *shown otherwise*: it is done, and the side without citation cannot cite it, for the reason given;
- *otherwise*: we do something else on purpose, mostly what Linux does;
- *open*: it ought to be done, and is not.

RFCs that demand nothing in these words (768, 791, 792, 826, 1337, 4987, 6937) have no list.

";

/// How the clauses of one level stand.
#[derive(Clone, Copy, Default)]
struct Tally {
    all: usize,
    cited: usize,
    kinds: [usize; 4],
}

/// How the clauses of an RFC stand: MUST, then SHOULD.
struct Outcome {
    number: String,
    title: String,
    tallies: [Tally; 2],
}

/// What `cargo xtask rfc` was asked for.
#[derive(Default)]
struct Request {
    texts: Option<String>,
    report: bool,
    extract: Option<String>,
    show: Option<String>,
}

/// Prints the report; a sentence for every fault.
pub fn run(root: &Path, arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let mut arguments = arguments;
    let mut request = Request::default();
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().ok_or(format!("{argument} wants an RFC's number"));
        match argument.as_str() {
            "--report" => request.report = true,
            "--extract" => request.extract = Some(number()?),
            "--missing" => request.show = Some(number()?),
            _ => request.texts = Some(argument),
        }
    }
    let mut usual = root.ancestors().map(|folder| folder.join("shared/rfc"));
    let given = request.texts.as_ref().map(PathBuf::from);
    let texts = given.or_else(|| usual.find(|folder| folder.is_dir()));
    let texts = texts.as_deref();
    if let Some(number) = &request.extract {
        let texts =
            texts.ok_or("--extract needs the folder of RFC texts: cargo xtask rfc TEXTS")?;
        return extract(root, number, texts);
    }
    let tree = Tree::of(root)?;
    let citations = citations::of(&tree);
    let mut faults = Vec::new();
    let mut outcomes = Vec::new();
    let lists = list::all(&root.join("docs/rfc"))?;
    for list in &lists {
        let (outcome, found) = compare(list, &citations);
        if request.show.as_ref().is_none_or(|number| *number == list.number) {
            faults.extend(found);
        }
        outcomes.push(outcome);
        if let Some(text) = texts.and_then(|texts| text_of(texts, &list.number)) {
            faults.extend(list.differs_from(&text));
        }
    }
    let compared = compared::of(&lists, &citations);
    if let Some(texts) = texts {
        faults.extend(misquoted(&citations, texts));
        if request.report && faults.is_empty() {
            compared.write(root)?;
        }
    }
    faults.extend(compared.differ_from_those_of(root));
    print!("{}", table(&outcomes));
    let report = format!("{REPORT_HEAD}{}", table(&outcomes));
    if request.report {
        fs::write(root.join(REPORT), report).map_err(|why| format!("{REPORT}: {why}"))?;
    } else if fs::read_to_string(root.join(REPORT)).ok() != Some(report) {
        faults.push(format!("{REPORT} is not what was found: cargo xtask rfc --report"));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

fn text_of(texts: &Path, number: &str) -> Option<String> {
    fs::read_to_string(texts.join(format!("rfc{number}.txt"))).ok()
}

/// Writes the list of an RFC anew from its text; reasons that are there are kept.
fn extract(root: &Path, number: &str, texts: &Path) -> Result<(), String> {
    let text = text_of(texts, number).ok_or(format!("there is no text of RFC {number}"))?;
    let path = root.join(format!("docs/rfc/rfc{number}.txt"));
    let before = fs::read_to_string(&path).unwrap_or_default();
    let mut list = List::parse(number, &before)?;
    list.take_from(&text);
    fs::write(&path, list.render()).map_err(|why| format!("{}: {why}", path.display()))
}

/// How a list's clauses stand, and what is wrong.
fn compare(list: &List, citations: &[Citation]) -> (Outcome, Vec<String>) {
    let mut faults = Vec::new();
    let mut tallies = [Tally::default(); 2];
    let cited: Vec<&Citation> = citations.iter().filter(|c| c.rfc == list.number).collect();
    for clause in &list.clauses {
        let tally = &mut tallies[usize::from(!clause.is_must)];
        tally.all += 1;
        let mut kind = None;
        for (side, is_test) in [("code", false), ("test", true)] {
            let is_cited = cited.iter().any(|c| c.is_test == is_test && clause.is_cited_by(c));
            let own = clause.reason(side);
            match (is_cited, own.or_else(|| list.reason_of_section(&clause.section))) {
                (true, Some(_)) if own.is_some() => faults.push(format!(
                    "RFC {} {} is cited by {side}, so that its reason is needed no more",
                    list.number, clause.label
                )),
                (true, _) => {}
                (false, Some(reason)) => kind = kind.max(Some(reason.kind)),
                (false, None) => faults.push(format!(
                    "RFC {} {} (section {}) is cited by no {side}: `{}`",
                    list.number, clause.label, clause.section, clause.words
                )),
            }
        }
        match kind {
            None => tally.cited += 1,
            Some(kind) => tally.kinds[kind as usize] += 1,
        }
    }
    faults.extend(list.idle_sections());
    (Outcome { number: list.number.clone(), title: list.title.clone(), tallies }, faults)
}

/// The table of the report.
fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from("| RFC | clauses | cited |");
    for kind in Kind::ALL {
        let _ = write!(text, " {} |", kind.name());
    }
    text.push_str("\n|---|--:|--:|--:|--:|--:|--:|\n");
    let mut sums = [Tally::default(); 2];
    let mut line = |name: &str, level: &str, tally: &Tally| {
        let _ = write!(text, "| {name} {level} | {} | {} |", tally.all, tally.cited);
        for count in tally.kinds {
            let _ = write!(text, " {count} |");
        }
        text.push('\n');
    };
    for outcome in outcomes {
        let name = format!("{} {}", outcome.number, outcome.title);
        for ((tally, sum), level) in outcome.tallies.iter().zip(&mut sums).zip(["MUST", "SHOULD"]) {
            sum.all += tally.all;
            sum.cited += tally.cited;
            sum.kinds.iter_mut().zip(tally.kinds).for_each(|(sum, count)| *sum += count);
            if tally.all > 0 {
                line(&name, level, tally);
            }
        }
    }
    line("all", "MUST", &sums[0]);
    line("all", "SHOULD", &sums[1]);
    text
}

/// Quotations that are not in their RFC's text, for RFCs whose text is there.
fn misquoted(citations: &[Citation], texts: &Path) -> Vec<String> {
    let mut read = BTreeMap::new();
    let mut faults = Vec::new();
    for citation in citations {
        let text = read.entry(citation.rfc.clone()).or_insert_with(|| {
            let text = text_of(texts, &citation.rfc)?;
            Some(text::squeezed(&text::without_pages(&citation.rfc, &text).join("\n")))
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
            rfc: "9293".into(),
            section: "3.1".into(),
            is_test,
            words: text::squeezed(words),
        }
    }

    fn faults(text: &str, citations: &[Citation]) -> Vec<String> {
        compare(&List::parse("9293", text).unwrap(), citations).1
    }

    #[test]
    fn a_clause_needs_both_sides_or_a_reason() {
        let clause = "MUST-2 3.1 The sender MUST half-close its side of it\n";
        let both = [
            citation(false, "The sender MUST half-close"),
            citation(true, "The sender\n MUST half- close its side"),
        ];
        assert!(faults(clause, &both).is_empty());
        assert_eq!(faults(clause, &both[..1]).len(), 1);
        let excepted = format!("{clause}  not ours, test: seen by no test\n");
        assert!(faults(&excepted, &both[..1]).is_empty());
        assert_eq!(faults(&excepted, &both).len(), 1, "a stale exception");
        assert!(List::parse("9293", &format!("{clause}  nobody, test: x\n")).is_err());
        assert!(List::parse("9293", &format!("{clause}  open, test:\n")).is_err());
    }

    #[test]
    fn a_quotation_that_names_one_label_of_a_sentence_is_not_of_the_others() {
        let words = "3.1 A sender MUST NOT abort (MUST-1), and it SHOULD tell of it (SHLD-2).";
        let text = format!("MUST-1 {words}\nSHLD-2 {words}\n");
        let of = |words: &str| [false, true].map(|is_test| citation(is_test, words));
        assert_eq!(faults(&text, &of("and it SHOULD tell of it (SHLD-2)")).len(), 2);
        assert!(faults(&text, &of(words.trim_start_matches("3.1 "))).is_empty());
    }

    #[test]
    fn a_section_can_have_a_reason_for_all_that_is_not_cited() {
        let text = "section 3 not ours: we are no router\nMUST-2 3.1 A router MUST route packets\n";
        assert!(faults(text, &[]).is_empty());
        assert!(faults(text, &[citation(false, "A router MUST route packets")]).is_empty());
        let idle = text.replace("section 3 ", "section 4 ");
        assert_eq!(faults(&idle, &[]).len(), 2 + 1, "both sides, and a reason for nothing");
    }
}
