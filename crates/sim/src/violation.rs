//! What an onlooker found to be wrong.

use std::fmt;

/// Something that must hold did not: in a sentence that names the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(String);

impl From<String> for Violation {
    fn from(sentence: String) -> Self {
        Self(sentence)
    }
}

impl From<&str> for Violation {
    fn from(sentence: &str) -> Self {
        Self(sentence.to_owned())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}
