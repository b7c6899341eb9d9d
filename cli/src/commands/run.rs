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
use shm::control::SocketInfo;

use crate::config;
use crate::kernel_sockets;
use crate::program::{self, Starter};

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
    /// Have the program report its sockets.
    pub explain: Option<ExplainTarget>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// How and where a program reports its sockets at its end.
#[derive(Clone, Debug)]
pub struct ExplainTarget {
    /// As JSON.
    pub json: bool,
    /// To this file instead of standard error.
    pub file: Option<PathBuf>,
}

impl ExplainTarget {
    /// As the library takes it from its environment.
    fn words(&self) -> Result<OsString> {
        let mut words = OsString::from(if self.json { "json" } else { "text" });
        if let Some(file) = &self.file {
            // Programs change their directory. Whether it can be written is told now.
            let shown = file.display();
            std::fs::OpenOptions::new().append(true).create(true).open(file).explain(
                format!("cannot write {shown}"),
                "name another file with --explain=FILE",
            )?;
            let path = std::path::absolute(file)
                .explain(format!("cannot find {shown}"), "give its absolute path")?;
            words.push(":");
            words.push(path);
        }
        Ok(words)
    }
}

/// Runs the program; returns only on failure.
///
/// # Errors
/// When the library or the program is missing, when no engine answers, or a private one fails.
pub fn run(run: &Run) -> Result<ExitCode> {
    let Some((program, arguments)) = run.command.split_first() else {
        return Err(Failure::new("no program is given", "write it after --"));
    };
    let library = library()?;
    let path = find_program(program)?;
    if let Some((file, why)) = program::bypass(&path, Starter::own()) {
        eprintln!("outboard: {} {why}; its sockets use the kernel", file.display());
    }
    for inherited in inherited_sockets() {
        eprintln!("outboard: {inherited}");
    }
    let socket = if run.ports.is_empty() {
        let socket = run.socket.clone().unwrap_or_else(config::default_socket);
        await_start(&socket, START);
        // Without an engine the program waits for another day; with one that cannot serve it, it is
        // served by the kernel, as it will be when an engine is replaced under it.
        if let Err(failure) = Observer::reach(&socket)?.greet() {
            eprintln!("outboard: {failure} The program's sockets use the kernel.");
        }
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
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", preload).env("OUTBOARD_SOCKET", &socket);
    if let Some(explain) = &run.explain {
        command.env("OUTBOARD_EXPLAIN", explain.words()?);
    }
    let error = command.exec();
    let shown = program.to_string_lossy();
    Err(Failure::new(format!("cannot run {shown}: {error}"), "check that it is executable"))
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
        std::env::current_exe().explain("cannot find this executable", "mount /proc")?;
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

/// A sentence about each TCP and UDP socket that the program inherits and that the library will not
/// accelerate: all but listeners, which it follows unless they are at a loopback address.
fn inherited_sockets() -> Vec<String> {
    let sentence = |(fd, socket): (i32, SocketInfo)| {
        let what = match (socket.state.as_str(), socket.remote) {
            ("LISTEN", _) => format!("a TCP listener at {}", socket.local),
            (_, Some(peer)) => format!("a {} connection to {peer}", socket.protocol.to_uppercase()),
            (_, None) => format!("a {} socket at {}", socket.protocol.to_uppercase(), socket.local),
        };
        format!("descriptor {fd} is {what} that the program inherits; the kernel serves it")
    };
    let is_kernels = |(_, socket): &(i32, SocketInfo)| {
        socket.state != "LISTEN" || socket.local.ip().is_loopback()
    };
    kernel_sockets::own().into_iter().filter(is_kernels).map(sentence).collect()
}

fn find_program(program: &OsStr) -> Result<PathBuf> {
    let direct = Path::new(program);
    if direct.components().count() > 1 {
        return Ok(direct.to_path_buf());
    }
    lab::find(&program.to_string_lossy()).ok_or_else(|| {
        let shown = program.to_string_lossy();
        Failure::new(
            format!("there is no program {shown}"),
            "install it, or give its absolute path",
        )
    })
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
        std::env::current_exe().explain("cannot find this executable", "mount /proc")?;
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
        std::env::current_exe().explain("cannot find this executable", "mount /proc")?;
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
