//! Quotations of RFCs in the sources and the packet scripts.

use super::text::squeezed;
use crate::tidy::Tree;

/// A quotation at code or a test.
pub struct Citation {
    /// File and line.
    pub place: String,
    /// Number of the RFC.
    pub rfc: String,
    /// Its section.
    pub section: String,
    /// It stands at a test.
    pub is_test: bool,
    /// The words, for comparisons.
    pub words: String,
}

/// Every citation of the tree.
pub fn of(tree: &Tree) -> Vec<Citation> {
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
