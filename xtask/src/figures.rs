//! Figures that a program has printed, and their place in a document that says more.

use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- figures -->\n";
const END: &str = "<!-- end of figures -->\n";

/// Puts the text of one file between the marks of another: `DOCUMENT FIGURES`.
pub fn run(root: &Path, arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let arguments: Vec<String> = arguments.collect();
    let [document, figures] = &arguments[..] else {
        return Err("give a document and a file of figures: docs/loss.md target/loss.md".to_owned());
    };
    let read = |name: &str| {
        let path = root.join(name);
        fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let (before, figures) = (read(document)?, read(figures)?);
    if figures.is_empty() {
        return Err(format!("there are no figures for {document}: what was to print them failed"));
    }
    let after = replaced(&before, &figures)
        .ok_or_else(|| format!("{document} has no place for figures; write {BEGIN}{END}"))?;
    let path = root.join(document);
    fs::write(&path, after).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// `text` with what lies between its marks replaced; `None` where it has no marks.
fn replaced(text: &str, figures: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{figures}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_take_the_place_of_those_before_them() {
        let text = format!("Text.\n\n{BEGIN}old\n{END}More.\n");
        let new = replaced(&text, "new\n").unwrap();
        assert_eq!(new, format!("Text.\n\n{BEGIN}new\n\n{END}More.\n"));
        assert_eq!(replaced("no marks", "new"), None);
    }
}
