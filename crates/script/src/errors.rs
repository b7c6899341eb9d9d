//! Why a script cannot be read or did not go as written.

use std::fmt;

/// A script that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there, and what to write.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for ParseError {}

/// A host that cannot be made as the script asks for it: the setting, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub String);

impl From<String> for Unsupported {
    fn from(sentence: String) -> Self {
        Self(sentence)
    }
}

impl From<&str> for Unsupported {
    fn from(sentence: &str) -> Self {
        Self(sentence.to_owned())
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// A script that did not go as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// There is no such host.
    Unsupported(Unsupported),
    /// The host did something else than a line says.
    Mismatch {
        /// The line, from 1.
        line: usize,
        /// What was expected, and what happened.
        what: String,
    },
    /// Something came out that no line expects, or a call did not return by the end.
    Leftover {
        /// What it was.
        what: String,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(unsupported) => unsupported.fmt(f),
            Self::Mismatch { line, what } => write!(f, "line {line}: {what}"),
            Self::Leftover { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for RunError {}

impl From<Unsupported> for RunError {
    fn from(unsupported: Unsupported) -> Self {
        Self::Unsupported(unsupported)
    }
}

/// A frame that looks like one of a script's conversation and is not well-formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameError(pub(crate) String);

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FrameError {}
