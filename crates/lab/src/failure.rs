//! Errors for people: what went wrong and what to do next.

use std::fmt;

/// A failure as the user reads it: one sentence, of what went wrong and what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    cause: String,
    advice: String,
}

/// Result of everything the command line does.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// A failure with its `cause` and the `advice` what to do next; both are without the full stop.
    pub fn new(cause: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { cause: cause.into(), advice: advice.into() }
    }

    /// A failure whose `sentence` says what to do next itself.
    pub fn whole(sentence: impl Into<String>) -> Self {
        Self::new(sentence, "")
    }

    /// What went wrong.
    pub fn cause(&self) -> &str {
        &self.cause
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.cause, &self.advice].map(|part| part.trim_end_matches('.'));
        match parts {
            [whole, ""] => write!(f, "{whole}."),
            [cause, advice] => write!(f, "{cause}; {advice}."),
        }
    }
}

impl std::error::Error for Failure {}

/// Adds cause and advice to errors of the operating system.
pub trait Explain<T> {
    /// Turns an error into a [`Failure`]: `cause` followed by the error's own words, then `advice`.
    fn explain(self, cause: impl fmt::Display, advice: impl Into<String>) -> Result<T>;
}

impl<T, E: fmt::Display> Explain<T> for std::result::Result<T, E> {
    fn explain(self, cause: impl fmt::Display, advice: impl Into<String>) -> Result<T> {
        self.map_err(|error| Failure::new(format!("{cause}: {error}"), advice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reads_as_one_sentence_with_the_next_step() {
        let missing: std::result::Result<(), _> = Err(std::io::Error::from_raw_os_error(2));
        let failure = missing.explain("cannot open /x", "create it").unwrap_err();
        assert_eq!(
            failure.to_string(),
            "cannot open /x: No such file or directory (os error 2); create it."
        );
        assert_eq!(
            Failure::whole("there is none: make one.").to_string(),
            "there is none: make one."
        );
    }
}
