//! Hashes of runs by seed, kept in a file: what a change that is to change nothing is compared with.

use std::collections::BTreeMap;
use std::fmt;

use crate::sim::Report;

/// What is kept of a run. 32 bits of each hash are enough to see a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    frames: u64,
    frame_hash: u32,
    counters: u32,
    seen: u32,
}

impl Entry {
    /// Of a clean run.
    pub fn of(report: &Report) -> Self {
        let fold = |hash: u64| (hash ^ hash >> 32) as u32;
        Self {
            frames: report.frames,
            frame_hash: fold(report.hash),
            counters: fold(report.counters),
            seen: fold(report.seen),
        }
    }

    fn parse(line: &str) -> Option<(u64, Self)> {
        let mut words = line.split(' ');
        let seed = words.next()?.parse().ok()?;
        let frames = words.next()?.parse().ok()?;
        let mut hash = || u32::from_str_radix(words.next()?, 16).ok();
        let entry = Self { frames, frame_hash: hash()?, counters: hash()?, seen: hash()? };
        words.next().is_none().then_some((seed, entry))
    }

    /// Names of what differs.
    fn differences(&self, other: &Self) -> Vec<&'static str> {
        let parts = [
            ("the number of frames", self.frames == other.frames),
            ("the frames", self.frame_hash == other.frame_hash),
            ("the counters", self.counters == other.counters),
            ("what programs saw", self.seen == other.seen),
        ];
        parts.iter().filter(|(_, same)| !same).map(|(name, _)| *name).collect()
    }
}

/// Entries by seed. As text: a line of explanation, then a line for each seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hashes(BTreeMap<u64, Entry>);

/// How two sets of hashes differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The first seed that differs.
    pub seed: u64,
    /// In what it differs.
    pub parts: Vec<&'static str>,
    /// Seeds that differ in all.
    pub seeds: usize,
}

/// A line that has no hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashesError {
    /// The line.
    pub line: String,
}

impl fmt::Display for HashesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no line of hashes", self.line)
    }
}

impl std::error::Error for HashesError {}

const HEADER: &str = "# seed, frames, and hashes of the frames, the counters and what programs saw";

impl Hashes {
    /// Reads the text that `Display` writes.
    ///
    /// # Errors
    /// With the first line that is none.
    pub fn parse(text: &str) -> Result<Self, HashesError> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let entry =
            |line: &str| Entry::parse(line).ok_or_else(|| HashesError { line: line.to_owned() });
        lines.map(entry).collect::<Result<_, _>>().map(Self)
    }

    /// Notes a run.
    pub fn note(&mut self, seed: u64, report: &Report) {
        self.0.insert(seed, Entry::of(report));
    }

    /// Replaces the entries of all seeds that `newer` has.
    pub fn replace(&mut self, newer: &Self) {
        self.0.extend(&newer.0);
    }

    /// Seeds that both have.
    pub fn common(&self, other: &Self) -> usize {
        self.0.keys().filter(|seed| other.0.contains_key(seed)).count()
    }

    /// How the seeds that both have differ; `None` when they do not.
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        let differing = self.0.iter().filter_map(|(seed, entry)| {
            let parts = entry.differences(other.0.get(seed)?);
            (!parts.is_empty()).then_some((*seed, parts))
        });
        let mut differing = differing.peekable();
        let (seed, parts) = differing.peek()?.clone();
        Some(Difference { seed, parts, seeds: differing.count() })
    }
}

impl fmt::Display for Hashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        for (seed, Entry { frames, frame_hash, counters, seen }) in &self.0 {
            writeln!(f, "{seed} {frames} {frame_hash:08x} {counters:08x} {seen:08x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# seed, frames, and hashes of the frames, the counters and what programs \
                        saw\n1 20 0000abcd 00000001 00000002\n2 30 00000003 00000004 00000005\n";

    #[test]
    fn what_is_written_is_read() {
        let hashes = Hashes::parse(TEXT).unwrap();
        assert_eq!(hashes.to_string(), TEXT);
        assert!(Hashes::parse("1 20 xyz 1 2").unwrap_err().line.contains("xyz"));
        assert!(Hashes::parse("1 20 1 2 3 4").is_err());
    }

    #[test]
    fn the_first_seed_that_differs_is_named_with_what_differs() {
        let known = Hashes::parse(TEXT).unwrap();
        assert_eq!(known.difference(&known), None);
        let now = Hashes::parse("2 30 00000003 00000014 00000015\n3 1 1 1 1\n").unwrap();
        let difference = known.difference(&now).unwrap();
        assert_eq!((difference.seed, difference.seeds), (2, 1));
        assert_eq!(difference.parts, ["the counters", "what programs saw"]);
        assert_eq!(known.common(&now), 1);
        let mut both = known.clone();
        both.replace(&now);
        assert_eq!((both.common(&known), both.difference(&now)), (2, None));
    }
}
