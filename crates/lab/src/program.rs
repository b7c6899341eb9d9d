//! Programs that a lab runs: started, waited for with a limit, and ended by their own ids.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::cpu;
use crate::failure::{Explain, Failure, Result};

/// A program to be started.
#[derive(Clone, Debug)]
pub struct Task {
    program: OsString,
    arguments: Vec<OsString>,
    environment: BTreeMap<OsString, OsString>,
    /// Of the scheduling group; see [`Program::raise`].
    niceness: &'static str,
}

impl Task {
    /// `program` without arguments.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            niceness: "-10",
        }
    }

    /// It has its core before all others, as the kernel's own network stack would.
    pub fn foremost(self) -> Self {
        Self { niceness: "-20", ..self }
    }

    /// A task from words: a program and its arguments, separated by spaces.
    pub fn words(line: &str) -> Self {
        let mut words = line.split_whitespace();
        Self::new(words.next().unwrap_or_default()).args(words)
    }

    /// Adds one argument.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// The same task under `outboard run`: `executable run --socket socket -- task`.
    pub fn accelerated(self, executable: &Path, socket: &Path) -> Self {
        let Self { program, arguments, environment, .. } = self;
        let mut task = Self::new(executable).args(["run", "--socket"]).arg(socket).arg("--");
        task = task.arg(program).args(arguments);
        task.environment = environment;
        task
    }

    /// Starts the task from the calling thread's namespace and affinity; output goes to files in
    /// `scratch`.
    pub(crate) fn spawn(self, scratch: &Path) -> Result<Program> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = Path::new(&self.program)
            .file_name()
            .map_or_else(|| "program".into(), |name| name.to_string_lossy().into_owned());
        let [stdout, stderr] =
            ["out", "err"].map(|stream| scratch.join(format!("{serial}-{name}.{stream}")));
        let file = |path: &Path| {
            fs::File::create(path)
                .explain(format!("cannot create {}", path.display()), "make room in TMPDIR")
        };
        // A session of its own, and an end together with the thread that started it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "setsid"]).arg(&self.program).args(&self.arguments);
        let child = command
            .envs(&self.environment)
            .stdin(Stdio::null())
            .stdout(file(&stdout)?)
            .stderr(file(&stderr)?)
            .spawn()
            .explain("cannot run setpriv", "install the package util-linux")?;
        let pid = Pid::from_child(&child);
        let ended = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .explain(format!("cannot watch {name}"), "use Linux 5.3 or newer")?;
        let mut program = Program { name, child, ended, stdout, stderr, status: None };
        program.raise(self.niceness);
        Ok(program)
    }
}

/// A program that was started. It ends, with all that it forked in its session, when dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    ended: OwnedFd,
    stdout: PathBuf,
    stderr: PathBuf,
    status: Option<ExitStatus>,
}

/// A program that ended by itself.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub output: String,
    /// What it printed as errors.
    pub errors: String,
    name: String,
}

impl Finished {
    /// Itself if the program succeeded.
    ///
    /// # Errors
    /// With the program's last words otherwise.
    pub fn success(self) -> Result<Self> {
        if self.status.success() {
            return Ok(self);
        }
        let said = last_words(&format!("{}\n{}", self.output, self.errors));
        Err(Failure::new(
            format!("{} ended with {}: {said}", self.name, self.status),
            "run it by hand to see why",
        ))
    }
}

fn last_words(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(8)..].join(" | ")
}

impl Program {
    /// The process id, which is also its session's.
    pub fn pid(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_pid()
    }

    /// Processor time so far of the program and what it forked.
    pub fn cpu_time(&self) -> Duration {
        cpu::session_time(self.pid())
    }

    /// What it printed so far.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// What it printed as errors so far.
    pub fn errors(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.is_none()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it runs longer than `limit`; it is then killed.
    pub fn wait(mut self, limit: Duration) -> Result<Finished> {
        let deadline = Instant::now() + limit;
        while self.is_running() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let said = last_words(&format!("{}\n{}", self.output(), self.errors()));
                let cause = format!("{} did not end within {limit:.1?}: {said}", self.name);
                return Err(Failure::new(cause, "look for a connection that hangs"));
            }
            let mut watched = [PollFd::new(&self.ended, PollFlags::IN)];
            let left = Timespec::try_from(left).ok();
            let _ = rustix::event::poll(&mut watched, left.as_ref());
        }
        let status = self.status.expect("the loop ends when there is one");
        let (output, errors) = (self.output(), self.errors());
        Ok(Finished { status, output, errors, name: self.name.clone() })
    }

    /// Waits until `ready` says so.
    ///
    /// # Errors
    /// When the program ends first or `limit` passes.
    pub fn until(&mut self, limit: Duration, mut ready: impl FnMut(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            if ready(self) {
                return Ok(());
            }
            let alive = self.is_running();
            if !alive || Instant::now() > deadline {
                let what = if alive { "is not ready" } else { "ended at once" };
                let said = last_words(&format!("{}\n{}", self.output(), self.errors()));
                return Err(Failure::new(
                    format!("{} {what} (limit {limit:.1?}): {said}", self.name),
                    "run it by hand to see why",
                ));
            }
            let mut watched = [PollFd::new(&self.ended, PollFlags::IN)];
            let pause = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let _ = rustix::event::poll(&mut watched, Some(&pause));
        }
    }

    /// Sends a signal to the program alone.
    pub fn signal(&self, signal: Signal) {
        let _ = rustix::process::pidfd_send_signal(self.ended.as_fd(), signal);
    }

    /// Ends the program and what it forked: politely, and by force after a second.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let mut watched = [PollFd::new(&self.ended, PollFlags::IN)];
        let patience = Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = rustix::event::poll(&mut watched, Some(&patience));
        self.end();
    }

    fn end(&mut self) {
        // Until setsid has run there is no such group; the pidfd then names the only process.
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        if self.status.is_none() {
            self.signal(Signal::KILL);
            self.status = self.child.wait().ok();
        }
    }

    /// Raises the weight of the program's scheduling group (see sched(7), autogroup), once its
    /// session exists. Where the kernel has no such groups there is nothing to do.
    fn raise(&mut self, niceness: &str) {
        let pid = self.pid();
        // From /proc, because getsid(2) answers 0 for the session of a process namespace outside
        // this one, which rustix takes for impossible.
        let own_session = |_: &Self| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = stat.rsplit(')').next().unwrap_or_default();
            after_name.split_whitespace().nth(3) == Some(&pid.to_string())
        };
        if self.until(Duration::from_secs(2), own_session).is_ok() {
            let _ = fs::write(format!("/proc/{pid}/autogroup"), niceness);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}
