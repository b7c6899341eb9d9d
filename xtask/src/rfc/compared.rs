//! What has been compared with the RFCs' texts, in `docs/rfc/compared`, for where these are not at
//! hand: a hash of each list's clauses, and one of each quotation that is not a part of a clause (what
//! is, is true where the list is).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::citations::Citation;
use super::list::List;

const FILE: &str = "docs/rfc/compared";

const HEAD: &str = "\
# What has been compared with the texts of the RFCs, for where these are not at hand: the clauses of the
# lists, and quotations that are not parts of clauses. `cargo xtask rfc TEXTS --report` writes it.
";

/// Each line of the file, and where what it stands for is.
pub struct Compared(BTreeMap<String, String>);

/// What a tree has that is to be compared.
pub fn of(lists: &[List], citations: &[Citation]) -> Compared {
    let mut lines = BTreeMap::new();
    for list in lists {
        let clauses =
            list.clauses.iter().map(|c| format!("{} {} {}\n", c.label, c.section, c.words));
        let line =
            format!("rfc{} clauses {:016x}", list.number, hash(&clauses.collect::<String>()));
        lines.insert(line, format!("docs/rfc/rfc{}.txt", list.number));
    }
    for citation in citations {
        let list = lists.iter().find(|list| list.number == citation.rfc);
        if !list.is_some_and(|list| list.has(&citation.words)) {
            let line = format!("rfc{} quotation {:016x}", citation.rfc, hash(&citation.words));
            lines.insert(line, citation.place.clone());
        }
    }
    Compared(lines)
}

impl Compared {
    /// Everything of the tree has been compared.
    pub fn write(&self, root: &Path) -> Result<(), String> {
        let lines: String = self.0.keys().map(|line| format!("{line}\n")).collect();
        fs::write(root.join(FILE), format!("{HEAD}{lines}")).map_err(|why| format!("{FILE}: {why}"))
    }

    /// A sentence for everything that has not been compared.
    pub fn differ_from_those_of(&self, root: &Path) -> Vec<String> {
        self.unknown_in(&fs::read_to_string(root.join(FILE)).unwrap_or_default())
    }

    fn unknown_in(&self, file: &str) -> Vec<String> {
        let known: Vec<&str> = file.lines().collect();
        let unknown = self.0.iter().filter(|(line, _)| !known.contains(&line.as_str()));
        let tell = |(_, place): (_, &String)| {
            format!("{place}: not compared with the RFC's text: cargo xtask rfc TEXTS --report")
        };
        unknown.map(tell).collect()
    }
}

/// FNV-1a: it finds mistakes, not malice.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(clause: &str, words: &str) -> Compared {
        let list = List::parse("77", &format!("1-1 1 {clause}\n")).unwrap();
        let (place, rfc, section) = ("a.rs:1".into(), "77".into(), "1".into());
        of(&[list], &[Citation { place, rfc, section, is_test: false, words: words.into() }])
    }

    #[test]
    fn what_has_not_been_compared_is_told() {
        let clause = "A sender MUST do this.";
        let before = compared(clause, "it is good so");
        let file: String = before.0.keys().map(|line| format!("{line}\n")).collect();
        assert_eq!((before.0.len(), before.unknown_in(&file).len()), (2, 0));
        assert_eq!(compared(clause, "must do this").unknown_in(&file).len(), 0, "of the clause");
        assert_eq!(
            compared(clause, "it is bad so").unknown_in(&file),
            ["a.rs:1: not compared with \
            the RFC's text: cargo xtask rfc TEXTS --report"]
        );
        assert_eq!(compared("A sender MUST do that.", "it is good so").unknown_in(&file).len(), 1);
    }
}
