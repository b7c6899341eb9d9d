//! `outboard run`: a program with its sockets on an engine.
//!
//! The program takes the place of this process, so that its exit status and every signal are its
//! own. A private engine is a process of its own, started through a launcher so that it is no
//! child of the program, and it ends when the program's process does.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use lab::failure::{Explain, Failure, Result};
use lab::observer::Observer;

use crate::config;

/// File name of the preload library.
const LIBRARY: &str = "liboutboard_preload.so";

/// How long an engine is waited for that is not there: whoever starts both at once means both.
const START: Duration = Duration::from_secs(3);

/// What to run and on which engine.
#[derive(Clone, Debug)]
pub struct Run {
    /// Socket of a running engine.
    pub socket: Option<PathBuf>,
    /// PORTs of a private engine.
    pub ports: Vec<String>,
    /// More arguments for a private engine.
    pub engine_arguments: Vec<OsString>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// Runs the program; returns only on failure.
///
/// # Errors
/// When the library or the program is missing, when no engine answers, or a private one fails.
pub fn run(run: &Run) -> Result<ExitCode> {
    let Some((program, arguments)) = run.command.split_first() else {
        return Err(Failure::new("no program is named", "write it after --"));
    };
    let library = library()?;
    let path = find_program(program)?;
    if let Some(warning) = not_preloadable(&path) {
        eprintln!("outboard: {warning}");
    }
    let socket = if run.ports.is_empty() {
        let socket = run.socket.clone().unwrap_or_else(config::default_socket);
        await_start(&socket, START);
        Observer::connect(&socket)?;
        socket
    } else {
        // Mistakes in a PORT are told before anything starts.
        for port in &run.ports {
            config::port(port)?;
        }
        start_private_engine(run)?
    };
    let mut preload = OsString::from(&library);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let error = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", preload)
        .env("OUTBOARD_SOCKET", &socket)
        .exec();
    let shown = program.to_string_lossy();
    Err(Failure::new(format!("cannot run {shown}: {error}"), "see that it is executable"))
}

/// Waits until there is a control socket, `limit` at most; without it nothing answers there.
fn await_start(socket: &Path, limit: Duration) {
    const PAUSE: Duration = Duration::from_millis(50);
    let begun = Instant::now();
    while !socket.exists() && begun.elapsed() < limit {
        std::thread::sleep(PAUSE.min(limit));
    }
}

/// The preload library: beside the executable, or in ../lib/outboard.
///
/// # Errors
/// When it is in neither place.
pub fn library() -> Result<PathBuf> {
    let executable =
        std::env::current_exe().explain("cannot find the own executable", "mount /proc")?;
    let beside = executable.with_file_name(LIBRARY);
    let installed = executable
        .parent()
        .and_then(Path::parent)
        .map(|prefix| prefix.join("lib/outboard").join(LIBRARY));
    let found = [Some(beside.clone()), installed].into_iter().flatten().find(|path| path.is_file());
    found.ok_or_else(|| {
        Failure::new(
            format!("the library {} is missing", beside.display()),
            "build it with `make build` and keep it beside the executable",
        )
    })
}

fn find_program(program: &OsStr) -> Result<PathBuf> {
    let direct = Path::new(program);
    if direct.components().count() > 1 {
        return Ok(direct.to_path_buf());
    }
    lab::find(&program.to_string_lossy()).ok_or_else(|| {
        let shown = program.to_string_lossy();
        Failure::new(format!("there is no program {shown}"), "install it, or write its whole path")
    })
}

/// Why the loader would not load the library into the program at `path`, if so.
fn not_preloadable(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let bytes = std::fs::read(path).ok()?;
    let shown = path.display();
    let mode = std::fs::metadata(path).ok()?.mode();
    if mode & 0o6000 != 0 && !rustix::process::geteuid().is_root() {
        return Some(format!("{shown} is setuid: it will use the kernel. Run it as its own user."));
    }
    (is_static(&bytes) == Some(true)).then(|| {
        format!("{shown} is statically linked: it will use the kernel. Use a dynamic build of it.")
    })
}

/// Whether `file` is an ELF executable of this machine's class without an interpreter; `None`
/// when it is none.
fn is_static(file: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    let header = file.get(..64).filter(|header| header.starts_with(b"\x7fELF\x02\x01"))?;
    let number = |at: usize| Some(u16::from_le_bytes(header.get(at..at + 2)?.try_into().ok()?));
    let table = u64::from_le_bytes(header.get(32..40)?.try_into().ok()?);
    let (size, count) = (u64::from(number(54)?), u64::from(number(56)?));
    for index in 0..count {
        let at = usize::try_from(table.checked_add(index * size)?).ok()?;
        let kind = file.get(at..at.checked_add(4)?)?;
        if u32::from_le_bytes(kind.try_into().ok()?) == PT_INTERP {
            return Some(false);
        }
    }
    Some(true)
}

/// Starts an engine that ends with this process, and waits until programs can attach.
fn start_private_engine(run: &Run) -> Result<PathBuf> {
    let own = std::process::id();
    let directory = match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
        Some(directory) => PathBuf::from(directory),
        None => std::env::temp_dir(),
    };
    let socket =
        run.socket.clone().unwrap_or_else(|| directory.join(format!("outboard-{own}.sock")));
    let executable =
        std::env::current_exe().explain("cannot find the own executable", "mount /proc")?;
    let status = Command::new(executable)
        .arg("launch-engine")
        .arg("--")
        .args(["--owner", &own.to_string(), "--socket"])
        .arg(&socket)
        .args(run.ports.iter().flat_map(|port| ["--port", port]))
        .args(&run.engine_arguments)
        .stdin(Stdio::null())
        .status()
        .explain("cannot start a private engine", "see the limit of processes (ulimit -u)")?;
    if status.success() {
        return Ok(socket);
    }
    Err(Failure::new("the private engine did not start", "see its message above"))
}

/// `outboard launch-engine`: starts `outboard engine` with `arguments`, waits until it is ready
/// and ends, so that the engine becomes a child of init.
///
/// # Errors
/// When the engine does not start.
pub fn launch_engine(arguments: &[OsString]) -> Result<ExitCode> {
    let executable =
        std::env::current_exe().explain("cannot find the own executable", "mount /proc")?;
    let mut engine = Command::new(executable)
        .arg("engine")
        .args(arguments)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .explain("cannot start a private engine", "see the limit of processes (ulimit -u)")?;
    let lines = engine.stdout.take().map(|output| BufReader::new(output).lines());
    let ready =
        lines.into_iter().flatten().map_while(|line| line.ok()).any(|line| line == lab::READY);
    if ready {
        return Ok(ExitCode::SUCCESS);
    }
    let _ = engine.wait();
    Ok(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_executable_has_an_interpreter_and_a_script_is_none() {
        let own = std::fs::read(std::env::current_exe().expect("known")).expect("readable");
        assert_eq!(is_static(&own), Some(false));
        assert_eq!(is_static(b"#!/bin/sh\n"), None);
        assert_eq!(is_static(&own[..70]), None, "a truncated file is none");
    }

    #[test]
    fn an_engine_that_is_being_started_is_waited_for() {
        let path = std::env::temp_dir().join(format!("outboard-start-{}", std::process::id()));
        await_start(&path, Duration::ZERO);
        let starting = std::thread::spawn({
            let path = path.clone();
            move || std::fs::write(path, "")
        });
        // It would wait for longer than any test may take.
        await_start(&path, Duration::MAX);
        starting.join().expect("a thread").expect("a file");
        std::fs::remove_file(&path).expect("the file");
    }
}
