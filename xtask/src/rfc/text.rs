//! The text of an RFC as the RFC Editor publishes it: without what pages add, cut into sections and
//! sentences, of which those that demand something are its clauses.

/// A sentence that demands something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Where it stands.
    pub section: String,
    /// As it stands there, on one line.
    pub words: String,
}

/// Single spaces, and words that a line break has cut at their hyphen made whole.
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        let before = line.strip_suffix('-').and_then(|line| line.chars().last());
        let is_cut = before.is_some_and(char::is_alphanumeric);
        if !line.is_empty() && !is_cut {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// For comparisons: one line, small letters, no space behind a hyphen.
pub fn squeezed(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace("- ", "-").to_lowercase()
}

/// What pages add, the marks of a change at the margin, and bars at quotations are gone.
pub fn without_pages<'a>(number: &str, text: &'a str) -> Vec<&'a str> {
    let heading = format!("RFC {number} ");
    let mut lines: Vec<&str> = Vec::new();
    let mut was_page = false;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let line = line.trim_start_matches('\u{c}').trim_end();
        let is_footer = line.ends_with(']') && line.contains("[Page ");
        let is_heading = line.starts_with(&heading)
            || (line.starts_with("RFC") && line.contains(number) && line.len() > 60);
        if is_footer || is_heading {
            while lines.last().is_some_and(|line| line.is_empty()) {
                lines.pop();
            }
            was_page = true;
            continue;
        }
        if was_page && line.is_empty() {
            continue;
        }
        if was_page {
            was_page = false;
            // A paragraph that a page has cut goes on without a gap.
            let ended = lines.last().is_none_or(|last| last.ends_with(['.', ':', ')', ';']));
            let goes_on = line.trim_start().starts_with(|c: char| c.is_ascii_lowercase());
            if ended && !goes_on || heading_of(number, line).is_some() {
                lines.push("");
            }
        }
        lines.push(match line.trim().strip_prefix('|') {
            Some(quoted) => quoted.trim_end_matches('|'),
            None => line,
        });
    }
    lines
}

/// `3.7.1` or `A.2` where a line is the heading of a section.
fn heading_of(number: &str, line: &str) -> Option<String> {
    let is_indented = line.starts_with(' ');
    // RFC 1122 indents its headings.
    if is_indented && number != "1122" || line.contains("....") || line.contains(". . .") {
        return None;
    }
    let line = line.trim_start().strip_prefix("Appendix ").unwrap_or(line.trim_start());
    let (label, title) = line.split_once(' ')?;
    let label = label.trim_end_matches([':', '.']);
    let mut parts = label.split('.');
    let first = parts.next()?;
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_letter = first.len() == 1 && first.bytes().all(|b| b.is_ascii_uppercase());
    let is_titled = title.trim_start().starts_with(|c: char| c.is_ascii_uppercase() || c == '"');
    let ends = ["References", "Acknowledg", "Full Copyright", "Authors", "Author's"];
    if !is_titled || !(is_number(first) || is_letter) || !parts.clone().all(is_number) {
        return None;
    }
    if is_indented && parts.next().is_none() {
        return None;
    }
    if ends.iter().any(|end| title.trim_start().starts_with(end)) {
        return Some(String::new());
    }
    Some(label.to_owned())
}

/// Whether a paragraph begins with this line although no gap is before it.
fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let marks = ["o  ", "*  ", "-  ", "+  ", "•  "];
    marks.iter().any(|mark| line.starts_with(mark))
}

/// What it demands, in order. RFCs that write their key words with small letters (RFC 8200, 8201)
/// are read so, too.
pub fn demands(number: &str, text: &str) -> Vec<Demand> {
    let lines = without_pages(number, text);
    let is_loud = lines.iter().any(|line| level(line, true).is_some());
    let mut all = Vec::new();
    let (mut section, mut paragraph) = (String::new(), String::new());
    for line in lines.iter().chain(&[""]) {
        let heading = heading_of(number, line);
        if heading.is_some() || line.is_empty() || is_item(line) {
            let whole = one_line(&paragraph);
            let found = sentences(&whole).into_iter().filter(|words| {
                let demands = level(words, is_loud).is_some() || labels(words).next().is_some();
                !section.is_empty() && demands && !is_boilerplate(words)
            });
            all.extend(
                found.map(|words| Demand { section: section.clone(), words: words.to_owned() }),
            );
            paragraph.clear();
        }
        match heading {
            Some(heading) => section = heading,
            None => {
                paragraph.push_str(line);
                paragraph.push('\n');
            }
        }
    }
    all
}

/// What explains the key words.
fn is_boilerplate(words: &str) -> bool {
    words.contains("key words")
        || words.contains("keywords")
        || words.contains("\"MUST\"")
        || words.contains("\"SHOULD\"")
}

/// Names that the RFC itself gives its demands (RFC 9293: `MUST-1`, `SHLD-1`).
pub fn labels(words: &str) -> impl Iterator<Item = &str> {
    words.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| {
        let number = word.strip_prefix("MUST-").or_else(|| word.strip_prefix("SHLD-"));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    })
}

/// How strongly a sentence demands: `MUST` or `SHOULD`.
pub fn level(words: &str, is_loud: bool) -> Option<&'static str> {
    let has = |wanted: &[&str]| {
        words.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| {
            if is_loud {
                wanted.contains(&word)
            } else {
                wanted.contains(&word.to_ascii_uppercase().as_str())
            }
        })
    };
    if has(&["MUST", "SHALL", "REQUIRED"]) {
        return Some("MUST");
    }
    has(&["SHOULD", "RECOMMENDED"]).then_some("SHOULD")
}

/// Cuts a paragraph behind full stops, but for those of abbreviations.
fn sentences(paragraph: &str) -> Vec<&str> {
    const ABBREVIATED: [&str; 9] =
        ["e.g.", "i.e.", "etc.", "cf.", "vs.", "Fig.", "Sec.", "al.", "viz."];
    let mut all = Vec::new();
    let mut start = 0;
    for (at, _) in paragraph.match_indices(' ') {
        let (before, after) = (&paragraph[start..at], &paragraph[at + 1..]);
        let last = before.rsplit(' ').next().unwrap_or_default();
        let bare = last.trim_end_matches([')', ']', '"', '\'']);
        let ends = bare.ends_with(['.', '?', '!'])
            && !ABBREVIATED.iter().any(|short| bare.trim_start_matches('(').ends_with(short))
            // The number of an item.
            && !(before == last && bare.len() <= 4);
        let begins = after.starts_with(|c: char| c.is_ascii_uppercase() || "(\"[*'".contains(c));
        if ends && begins {
            all.push(before);
            start = at + 1;
        }
    }
    all.push(&paragraph[start..]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
1.  Introduction

   The key words \"MUST\" and \"SHOULD\" are explained
   here.

3.1.  Header

   A sender MUST do this (e.g. Nagle).  It is good.  A receiver SHOULD half-
   close, and

Somebody                     Standards Track                    [Page 4]
RFC 77                        Something                     January 1999


   go on.
   o  Items MUST NOT be
      joined.

4.  References

   A reference MUST NOT count.
";

    #[test]
    fn clauses_are_sentences_that_demand_something() {
        let found = demands("77", TEXT);
        let words: Vec<&str> = found.iter().map(|demand| demand.words.as_str()).collect();
        assert_eq!(
            words,
            [
                "A sender MUST do this (e.g. Nagle).",
                "A receiver SHOULD half-close, and go on.",
                "o Items MUST NOT be joined."
            ]
        );
        assert!(found.iter().all(|demand| demand.section == "3.1"));
    }

    #[test]
    fn small_letters_count_where_nothing_else_does() {
        let small = TEXT.replace("MUST", "must").replace("SHOULD", "should");
        assert_eq!(demands("77", &small).len(), 3);
        assert_eq!(level("what must be", true), None);
        assert_eq!(level("what must be", false), Some("MUST"));
    }
}
