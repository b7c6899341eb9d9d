//! The committed table: a section for each toolchain, in it the workloads with their files.

use std::fmt;

use super::profile::Profile;

/// Share of a workload's instructions by which it may differ from the table.
const TOLERANCE: f64 = 0.02;
/// Share of a workload's instructions that a file must have to be listed.
const LISTED: f64 = 0.01;
/// Files named for a workload that differs.
const NAMED: usize = 5;

const HEADER: &str = "\
# Instructions per operation of crates/sim/examples/instructions, by source file; those of the C
# library are beside the sum and are not compared. Written by `UPDATE=1 make instructions`.
";

/// Instructions per operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    name: String,
    own: f64,
    libc: f64,
    /// The largest first.
    files: Vec<(String, f64)>,
}

/// What a toolchain's code takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Compiler and architecture.
    pub toolchain: String,
    /// The workloads.
    pub workloads: Vec<Workload>,
}

/// All sections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(Vec<Section>);

/// As the table shows it.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

impl Workload {
    /// From the profile of `times` operations.
    pub fn new(name: &str, profile: &Profile, times: u32) -> Self {
        let each = |count: u64| rounded(count as f64 / f64::from(times));
        let own = each(profile.own());
        let files = profile.files.iter().map(|(file, count)| (file.clone(), each(*count)));
        let mut files: Vec<_> = files.filter(|(_, count)| *count >= LISTED * own).collect();
        files.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Self { name: name.to_owned(), own, libc: each(profile.libc), files }
    }

    /// A sentence if this one's counts are not those of `now`.
    fn fault(&self, now: &Self) -> Option<String> {
        let ratio = now.own / self.own;
        if (ratio - 1.0).abs() <= TOLERANCE {
            return None;
        }
        let of = |workload: &Self, file: &str| {
            let found = workload.files.iter().find(|(name, _)| name == file);
            found.map_or(0.0, |(_, count)| *count)
        };
        let all = self.files.iter().chain(&now.files).map(|(file, _)| file.as_str());
        let mut changes: Vec<_> = all.map(|file| (file, of(now, file) - of(self, file))).collect();
        changes.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then_with(|| a.0.cmp(b.0)));
        changes.dedup();
        let changes = changes.iter().filter(|(_, by)| *by != 0.0).take(NAMED);
        let changes: Vec<_> = changes.map(|(file, by)| format!("{file} {by:+.1}")).collect();
        Some(format!(
            "instructions: {} takes {:.1} instead of {:.1} ({:+.1}%): {}",
            self.name,
            now.own,
            self.own,
            (ratio - 1.0) * 100.0,
            changes.join(", ")
        ))
    }
}

impl Section {
    /// A sentence for each workload that differs by more than is tolerated.
    pub fn faults(&self, now: &Self) -> Vec<String> {
        let fault =
            |now: &Workload| match self.workloads.iter().find(|known| known.name == now.name) {
                Some(known) => known.fault(now),
                None => Some(format!("instructions: the table has no workload {}", now.name)),
            };
        now.workloads.iter().filter_map(fault).collect()
    }
}

impl Table {
    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut table = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            table
                .add(line)
                .ok_or_else(|| format!("the table of instructions has a line `{line}`"))?;
        }
        Ok(table)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        if let Some(toolchain) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            self.0.push(Section { toolchain: toolchain.to_owned(), workloads: Vec::new() });
            return Some(());
        }
        let workloads = &mut self.0.last_mut()?.workloads;
        if let Some(line) = line.strip_prefix("  ") {
            let (count, file) = line.trim_start().split_once(' ')?;
            let files = &mut workloads.last_mut()?.files;
            files.push((file.to_owned(), count.parse().ok()?));
            return Some(());
        }
        let mut words = line.split(' ');
        let name = words.next()?.to_owned();
        let own = words.next()?.parse().ok()?;
        let libc = words.next()?.strip_prefix("libc=")?.parse().ok()?;
        workloads.push(Workload { name, own, libc, files: Vec::new() });
        words.next().is_none().then_some(())
    }

    /// The section of a toolchain.
    pub fn section(&self, toolchain: &str) -> Option<&Section> {
        self.0.iter().find(|section| section.toolchain == toolchain)
    }

    /// Puts a section in the place of the one of the same toolchain, or at the end.
    pub fn replace(&mut self, section: Section) {
        match self.0.iter_mut().find(|known| known.toolchain == section.toolchain) {
            Some(known) => *known = section,
            None => self.0.push(section),
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[{}]", self.toolchain)?;
        for Workload { name, own, libc, files } in &self.workloads {
            writeln!(f, "{name} {own:.1} libc={libc:.1}")?;
            for (file, count) in files {
                writeln!(f, "  {count:>10.1} {file}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HEADER}")?;
        self.0.iter().try_for_each(|section| write!(f, "\n{section}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(counts: [u64; 2]) -> Section {
        let files = ["a.rs", "b.rs"].map(str::to_owned).into_iter().zip(counts).collect();
        let profile = Profile { files, libc: 30 };
        let workloads = vec![Workload::new("echo", &profile, 10)];
        Section { toolchain: "rustc 1 x86_64".to_owned(), workloads }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut table = Table::default();
        table.replace(section([1, 20_000]));
        table.replace(section([10_000, 20_000]));
        assert_eq!(table.0.len(), 1);
        let text = table.to_string();
        assert!(text.contains("echo 3000.0 libc=3.0\n      2000.0 b.rs\n      1000.0 a.rs\n"));
        assert_eq!(Table::parse(&text), Ok(table));
        assert!(Table::parse("echo 1.0 libc=2.0").is_err(), "a workload of no toolchain");
    }

    #[test]
    fn more_than_two_percent_is_a_fault_that_names_the_file() {
        let known = section([10_000, 20_000]);
        assert_eq!(known.faults(&section([10_000, 20_500])), [""; 0]);
        for (counts, said) in [
            ([10_000, 20_700], "3070.0 instead of 3000.0 (+2.3%): b.rs +70.0"),
            ([9_000, 20_000], "2900.0 instead of 3000.0 (-3.3%): a.rs -100.0"),
        ] {
            let faults = known.faults(&section(counts));
            assert!(faults.len() == 1 && faults[0].ends_with(said), "{faults:?}");
        }
    }
}
