//! Who used the processors: cores from /proc/stat, programs from their tasks' run times, and the
//! time that went to neither of the measured hosts.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::Duration;

/// Kernel clock ticks per second in /proc (USER_HZ, fixed on Linux).
const TICKS_PER_SECOND: f64 = 100.0;

/// Times of one core since boot, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreTimes {
    /// In programs, niced ones included.
    pub user: f64,
    /// In the kernel for programs and kernel threads.
    pub system: f64,
    /// In interrupt handlers, hard and soft.
    pub interrupts: f64,
    /// Idle, waiting for disks included.
    pub idle: f64,
    /// Taken away by the hypervisor.
    pub stolen: f64,
}

impl CoreTimes {
    /// The times of core `core` now; `None` when there is no such core.
    pub fn now(core: usize) -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?, core)
    }

    fn parse(stat: &str, core: usize) -> Option<Self> {
        let name = format!("cpu{core}");
        let line = stat.lines().find(|line| line.split(' ').next() == Some(&name))?;
        let ticks: Vec<f64> =
            line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
        let seconds = |index: usize| ticks.get(index).copied().unwrap_or(0.0) / TICKS_PER_SECOND;
        Some(Self {
            user: seconds(0) + seconds(1),
            system: seconds(2),
            interrupts: seconds(5) + seconds(6),
            idle: seconds(3) + seconds(4),
            stolen: seconds(7),
        })
    }

    /// What was used since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user - earlier.user,
            system: self.system - earlier.system,
            interrupts: self.interrupts - earlier.interrupts,
            idle: self.idle - earlier.idle,
            stolen: self.stolen - earlier.stolen,
        }
    }

    /// Seconds in which the core worked.
    pub fn busy(&self) -> f64 {
        self.user + self.system + self.interrupts
    }
}

/// One line of /proc/PID/stat, as far as it is needed here.
#[derive(Clone, Debug, PartialEq)]
struct ProcessLine {
    pid: i32,
    parent: i32,
    session: i32,
    /// Ticks of the process and of its children that have been waited for.
    ticks: u64,
}

fn parse_process(stat: &str) -> Option<ProcessLine> {
    // The name, in parentheses, may contain anything: the last parenthesis ends it.
    let (pid, rest) = stat.split_once(" (")?;
    let fields: Vec<&str> = rest.rsplit_once(") ")?.1.split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<i64>().ok();
    Some(ProcessLine {
        pid: pid.parse().ok()?,
        parent: i32::try_from(number(1)?).ok()?,
        session: i32::try_from(number(3)?).ok()?,
        ticks: u64::try_from(number(11)? + number(12)? + number(13)? + number(14)?).ok()?,
    })
}

/// How often the list of processes is read until nobody came or went meanwhile.
const READINGS: usize = 16;

/// All processes. One that ends while the list is read may be missing from it after its parent,
/// which has waited for it since, was read without its time; so the list is read until two
/// readings show the same processes. On a machine where that never happens the last reading
/// counts.
fn processes() -> Vec<ProcessLine> {
    let pids = |list: &[ProcessLine]| list.iter().map(|process| process.pid).collect::<Vec<_>>();
    let mut last = read_processes();
    for _ in 1..READINGS {
        let next = read_processes();
        let stable = pids(&next) == pids(&last);
        last = next;
        if stable {
            break;
        }
    }
    last
}

fn read_processes() -> Vec<ProcessLine> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .filter_map(|entry| parse_process(&fs::read_to_string(entry.path().join("stat")).ok()?))
        .collect()
}

/// Processor time so far of all processes of session `session` (a program started by the lab and
/// whatever it forked), from their tasks' run times, which are exact to the nanosecond.
pub fn session_time(session: i32) -> Duration {
    let members = processes().into_iter().filter(|process| process.session == session);
    members.map(|process| process_time(process.pid)).sum()
}

/// Processor time so far of the tasks of process `pid` that are alive.
pub fn process_time(pid: i32) -> Duration {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let run_time = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok().map(Duration::from_nanos)
    };
    tasks.flatten().filter_map(run_time).sum()
}

/// Processor time of everybody but this process, its descendants and the kernel's threads, which
/// work for whoever causes it; to be compared with a later one.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    ticks: u64,
}

impl Foreign {
    /// The foreign time so far.
    pub fn now() -> Self {
        let all = processes();
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for process in &all {
            children.entry(process.parent).or_default().push(process.pid);
        }
        let mut ours = HashSet::new();
        let mut open = vec![own, 2]; // 2 is kthreadd, the parent of the kernel's threads
        while let Some(pid) = open.pop() {
            if ours.insert(pid) {
                open.extend(children.get(&pid).into_iter().flatten());
            }
        }
        // A process that ends hands its ticks to the parent that waits for it, so the sum over
        // all others loses nothing.
        let ticks = all.iter().filter(|process| !ours.contains(&process.pid)).map(|p| p.ticks);
        Self { ticks: ticks.sum() }
    }

    /// Seconds of foreign time since `earlier`.
    pub fn since(&self, earlier: &Self) -> f64 {
        self.ticks.saturating_sub(earlier.ticks) as f64 / TICKS_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_core_are_found_by_its_whole_name() {
        let stat = "cpu  9 9 9 9\ncpu1 100 20 300 4000 5 6 70 8 0 0\ncpu10 1 1 1 1 1 1 1 1 0 0\n";
        let times = CoreTimes::parse(stat, 1).expect("cpu1 is there");
        assert_eq!(times.user, 1.2);
        assert_eq!(times.interrupts, 0.76);
        assert_eq!(times.idle, 40.05);
        assert_eq!(CoreTimes::parse(stat, 2), None);
    }

    #[test]
    fn a_process_name_may_contain_parentheses_and_spaces() {
        let line = "42 (a) (b c) S 7 42 43 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0";
        let process = parse_process(line).expect("parses");
        assert_eq!((process.pid, process.parent, process.session), (42, 7, 43));
        assert_eq!(process.ticks, 100);
    }

    #[test]
    fn own_time_is_not_foreign() {
        assert!(process_time(std::process::id() as i32) > Duration::ZERO);
        assert_eq!(process_time(-5), Duration::ZERO);
    }
}
