//! Licences of everything that is linked in, against the list in deny.toml.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::Metadata;

#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

/// A sentence for every package whose licence is not allowed.
pub fn check(root: &Path, metadata: &Metadata) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(root.join("deny.toml"))
        .map_err(|error| format!("deny.toml cannot be read: {error}"))?;
    let deny: Deny = toml::from_str(&text).map_err(|error| format!("deny.toml: {error}"))?;
    let faults = metadata.packages.iter().filter_map(|package| {
        let (name, version) = (&package.name, &package.version);
        match &package.license {
            None => Some(format!("{name} {version} names no licence")),
            Some(license) if !allows(&deny.licenses.allow, license) => Some(format!(
                "{name} {version} has the licence {license}, which deny.toml does not allow"
            )),
            Some(_) => None,
        }
    });
    Ok(faults.collect())
}

/// Whether an SPDX expression can be satisfied with the allowed licences. `/` is the old way to
/// write OR.
fn allows(allowed: &[String], expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { tokens: &tokens, allowed };
    let result = parser.any_of();
    result && parser.tokens.is_empty()
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    allowed: &'a [String],
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn next_is(&mut self, word: &str) -> bool {
        let is = self.tokens.first() == Some(&word);
        if is {
            self.next();
        }
        is
    }

    fn any_of(&mut self) -> bool {
        let mut result = self.all_of();
        while self.next_is("OR") {
            result |= self.all_of();
        }
        result
    }

    fn all_of(&mut self) -> bool {
        let mut result = self.one();
        while self.next_is("AND") {
            result &= self.one();
        }
        result
    }

    fn one(&mut self) -> bool {
        if self.next_is("(") {
            let result = self.any_of();
            return self.next_is(")") && result;
        }
        let Some(name) = self.next() else { return false };
        let name = if self.next_is("WITH") {
            format!("{name} WITH {}", self.next().unwrap_or_default())
        } else {
            name.to_owned()
        };
        self.allowed.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_satisfied_as_spdx_says() {
        let allowed = ["MIT", "Zlib", "X WITH Y"].map(str::to_owned);
        for good in ["MIT", "GPL-3.0 OR MIT", "GPL/MIT", "(MIT OR GPL) AND Zlib", "X WITH Y"] {
            assert!(allows(&allowed, good), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL", "X", "MIT WITH Y", "(MIT", "MIT Zlib"] {
            assert!(!allows(&allowed, bad), "{bad}");
        }
    }
}
