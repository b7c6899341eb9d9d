//! The clauses of an RFC, in `docs/rfc/rfcNNNN.txt`:
//!
//! ```text
//! # RFC 7323: TCP Extensions for High Performance
//! section 5.8 not ours: why nothing of section 5.8 and below is cited
//! 2.2-1 2.2 the clause, on one line: label, section, words
//!   shown otherwise, test: why no test cites it
//! ```
//!
//! A reason is for `code`, `test` or both sides (`otherwise: …`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::citations::Citation;
use super::text::{Demand, demands, labels, level, squeezed};

/// Fewer letters than these could be found in many clauses.
const QUOTED_MIN: usize = 16;

/// Why a clause is not cited; the later one weighs more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    NotOurs,
    ShownOtherwise,
    Otherwise,
    Open,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::NotOurs, Kind::ShownOtherwise, Kind::Otherwise, Kind::Open];

    pub fn name(self) -> &'static str {
        match self {
            Kind::NotOurs => "not ours",
            Kind::ShownOtherwise => "shown otherwise",
            Kind::Otherwise => "otherwise",
            Kind::Open => "open",
        }
    }
}

/// A reason as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub kind: Kind,
    /// `code`, `test`, or nothing for both.
    side: String,
    why: String,
}

impl Reason {
    /// `open, test: why`.
    fn parse(text: &str) -> Option<Self> {
        let (named, why) = text.split_once(':')?;
        let (kind, side) = named.split_once(", ").unwrap_or((named, ""));
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind)?;
        let why = why.trim();
        let known = ["", "code", "test"].contains(&side) && !why.is_empty();
        known.then(|| Self { kind, side: side.to_owned(), why: why.to_owned() })
    }

    fn render(&self) -> String {
        let comma = if self.side.is_empty() { "" } else { ", " };
        format!("{}{comma}{}: {}", self.kind.name(), self.side, self.why)
    }
}

/// A clause with the reasons why it is not cited.
pub struct Clause {
    pub label: String,
    pub section: String,
    /// As in the RFC.
    pub words: String,
    pub is_must: bool,
    reasons: Vec<Reason>,
    squeezed: String,
}

impl Clause {
    fn new(label: &str, section: &str, words: &str) -> Self {
        let is_must = match label.split_once('-') {
            Some(("MUST", _)) => true,
            Some(("SHLD", _)) => false,
            _ => level(words, true).or_else(|| level(words, false)) == Some("MUST"),
        };
        let [label, section, words] = [label, section, words].map(str::to_owned);
        let squeezed = squeezed(&words);
        Self { label, section, words, is_must, reasons: Vec::new(), squeezed }
    }

    /// Why it is not cited at a side.
    pub fn reason(&self, side: &str) -> Option<&Reason> {
        self.reasons.iter().find(|reason| reason.side == side || reason.side.is_empty())
    }

    /// A quotation is a part of it, has its label, or has all of it. Where a sentence has several
    /// labels, one that names some of them speaks of those alone.
    pub fn is_cited_by(&self, citation: &Citation) -> bool {
        let label = format!("({})", self.label.to_lowercase());
        let names = |label: &str| citation.words.contains(label);
        let is_of_others = self.squeezed.contains(&label)
            && !names(&label)
            && (names("(must-") || names("(shld-"));
        self.section == citation.section
            && !is_of_others
            && (citation.words.contains(&label)
                || citation.words.contains(&self.squeezed)
                || citation.words.len() >= QUOTED_MIN && self.squeezed.contains(&citation.words))
    }
}

/// The clauses of an RFC.
pub struct List {
    pub number: String,
    pub title: String,
    pub clauses: Vec<Clause>,
    sections: Vec<(String, Reason)>,
}

/// The lists in a folder, by number.
pub fn all(folder: &Path) -> Result<Vec<List>, String> {
    let entries = fs::read_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut lists = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let number = name.strip_prefix("rfc").and_then(|name| name.strip_suffix(".txt"));
        let Some(number) = number else { continue };
        let text = fs::read_to_string(&path).map_err(|why| format!("{name}: {why}"))?;
        lists.push(List::parse(number, &text)?);
    }
    lists.sort_by_key(|list| list.number.parse::<u32>().unwrap_or(u32::MAX));
    Ok(lists)
}

fn is_within(section: &str, of: &str) -> bool {
    section.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl List {
    /// Reads a list; a sentence for a line that is none.
    pub fn parse(number: &str, text: &str) -> Result<Self, String> {
        let mut list = List {
            number: number.to_owned(),
            title: String::new(),
            clauses: Vec::new(),
            sections: Vec::new(),
        };
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let fault =
                || format!("docs/rfc/rfc{number}.txt: `{line}` is neither clause nor reason");
            if let Some(comment) = line.strip_prefix("# ") {
                if let Some(title) = comment.strip_prefix(&format!("RFC {number}: ")) {
                    list.title = title.to_owned();
                }
            } else if let Some(reason) = line.strip_prefix("  ") {
                let clause = list.clauses.last_mut().ok_or_else(fault)?;
                clause.reasons.push(Reason::parse(reason).ok_or_else(fault)?);
            } else if let Some(section) = line.strip_prefix("section ") {
                let (section, reason) = section.split_once(' ').ok_or_else(fault)?;
                let reason = Reason::parse(reason).ok_or_else(fault)?;
                list.sections.push((section.to_owned(), reason));
            } else {
                let mut parts = line.splitn(3, ' ');
                let (Some(label), Some(section), Some(words)) =
                    (parts.next(), parts.next(), parts.next())
                else {
                    return Err(fault());
                };
                list.clauses.push(Clause::new(label, section, words));
            }
        }
        Ok(list)
    }

    /// Whether a quotation is a part of a clause.
    pub fn has(&self, quotation: &str) -> bool {
        self.clauses.iter().any(|clause| clause.squeezed.contains(quotation))
    }

    /// Why nothing of a section is cited.
    pub fn reason_of_section(&self, section: &str) -> Option<&Reason> {
        let (_, reason) = self.sections.iter().find(|(of, _)| is_within(section, of))?;
        Some(reason)
    }

    /// A sentence for every reason of a section that has no clauses.
    pub fn idle_sections(&self) -> impl Iterator<Item = String> {
        let idle = self
            .sections
            .iter()
            .filter(|(of, _)| !self.clauses.iter().any(|clause| is_within(&clause.section, of)));
        idle.map(|(of, _)| format!("RFC {}: section {of} has a reason and no clause", self.number))
    }

    /// A sentence if it does not have what the RFC's text demands.
    pub fn differs_from(&self, text: &str) -> Option<String> {
        let found = clauses(&self.number, text);
        let ours = self.clauses.iter().map(|c| (&c.label, &c.section, &c.words));
        let differs = !ours.eq(found.iter().map(|c| (&c.label, &c.section, &c.words)));
        differs.then(|| {
            let number = &self.number;
            format!("docs/rfc/rfc{number}.txt is not what the RFC says: --extract {number}")
        })
    }

    /// Has what the RFC's text demands from now on; reasons stay with their words.
    pub fn take_from(&mut self, text: &str) {
        let before = std::mem::replace(&mut self.clauses, clauses(&self.number, text));
        for clause in &mut self.clauses {
            let known = before.iter().find(|old| {
                old.squeezed == clause.squeezed
                    && old.is_must == clause.is_must
                    && (old.label == clause.label || !old.label.contains("MUST"))
            });
            clause.reasons = known.map(|old| old.reasons.clone()).unwrap_or_default();
        }
    }

    /// The file.
    pub fn render(&self) -> String {
        let mut text = format!("# RFC {}: {}\n", self.number, self.title);
        for (section, reason) in &self.sections {
            text.push_str(&format!("section {section} {}\n", reason.render()));
        }
        for clause in &self.clauses {
            text.push_str(&format!("{} {} {}\n", clause.label, clause.section, clause.words));
            for reason in &clause.reasons {
                text.push_str(&format!("  {}\n", reason.render()));
            }
        }
        text
    }
}

/// The clauses that a text has, named: as the RFC does it, or by their place among the others of
/// their section.
fn clauses(number: &str, text: &str) -> Vec<Clause> {
    let mut demands = demands(number, text);
    // Appendices explain or repeat.
    demands.retain(|demand| demand.section.starts_with(|c: char| c.is_ascii_digit()));
    let mut all: Vec<Clause> = Vec::new();
    let mut before = BTreeMap::new();
    for Demand { section, words } in &demands {
        if labels(words).next().is_none() {
            let count: &mut u32 = before.entry(section).or_default();
            *count += 1;
            all.push(Clause::new(&format!("{section}-{count}"), section, words));
        }
        for label in labels(words) {
            // Some refer to the demand of another sentence.
            let is_reference = words.contains(&format!("part of {label} "));
            if !is_reference && !all.iter().any(|clause| clause.label == label) {
                all.push(Clause::new(label, section, words));
            }
        }
    }
    all
}
