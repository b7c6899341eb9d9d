//! Commands that ask a running engine: `stats`, `ss` and `pcap`.

mod messages;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::failure::{Explain, Failure, Result};
use lab::observer::Observer;
use port::pcap::Filter;
use rustix::event::{PollFd, PollFlags, Timespec};
use shm::census::CensusLine;
use shm::control::{ProgramCensus, SocketInfo};

use crate::kernel_sockets;
use messages::Messages;

/// `outboard stats`: every counter, one a line, or as one JSON object.
///
/// # Errors
/// When no engine answers.
pub fn stats(socket: &Path, json: bool) -> Result<()> {
    let stats = Observer::connect(socket)?.stats()?;
    if json {
        tell!("{}", serde_json::to_string_pretty(&stats.map()).unwrap_or_default());
    } else {
        let width = stats.counters.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in &stats.counters {
            tell!("{name:<width$} {value}");
        }
    }
    Ok(())
}

/// Who serves a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The engine alone.
    Outboard,
    /// The kernel alone.
    Kernel,
    /// Both: what comes to the engine's ports is the engine's, the rest the kernel's.
    Both,
}

impl Owner {
    fn word(self) -> &'static str {
        match self {
            Owner::Outboard => "outboard",
            Owner::Kernel => "kernel",
            Owner::Both => "both",
        }
    }
}

/// `outboard ss`: the engine's sockets and those of the kernel beside it, in the manner of ss(8), its message
/// endpoints and associations, and what attached programs have left to the kernel.
///
/// # Errors
/// When no engine answers.
pub fn sockets(socket: &Path, json: bool, details: bool) -> Result<()> {
    let mut observer = Observer::connect(socket)?;
    let mut engines = observer.sockets()?;
    let messages = Messages::take_from(&mut engines);
    let mut kernels = kernel_sockets::beside(&mut observer, true).unwrap_or_else(|failure| {
        eprintln!("outboard: the kernel's sockets are not shown: {failure}");
        Vec::new()
    });
    kernels.retain(|socket| !messages.has_kernel_socket(socket));
    let sockets = side_by_side(engines, kernels);
    let left = observer.census()?;
    if json {
        let list: Vec<_> = sockets.iter().map(|(owner, one)| socket_json(*owner, one)).collect();
        let left: Vec<_> = left.iter().map(census_json).collect();
        let all = serde_json::json!({
            "sockets": list,
            "message_endpoints": messages.endpoints_json(),
            "associations": messages.associations_json(),
            "left_to_kernel": left,
        });
        tell!("{}", serde_json::to_string_pretty(&all).unwrap_or_default());
    } else {
        tell!("{}", socket_table(&sockets, details).trim_end());
        tell!("{}{}", messages.text(), census_text(&left).trim_end());
    }
    Ok(())
}

/// The engine's sockets, then the kernel's. One that both have is told once.
fn side_by_side(engines: Vec<SocketInfo>, kernels: Vec<SocketInfo>) -> Vec<(Owner, SocketInfo)> {
    let mut left = kernels;
    let mut all: Vec<(Owner, SocketInfo)> = Vec::new();
    for one in engines {
        let before = left.len();
        if one.remote.is_none() {
            left.retain(|other| {
                (&other.protocol, other.local, other.remote) != (&one.protocol, one.local, None)
            });
        }
        let owner = if left.len() < before { Owner::Both } else { Owner::Outboard };
        all.push((owner, one));
    }
    all.extend(left.into_iter().map(|one| (Owner::Kernel, one)));
    all
}

fn socket_json(owner: Owner, socket: &SocketInfo) -> serde_json::Value {
    let details: BTreeMap<&str, &str> =
        socket.details.iter().filter_map(|detail| detail.split_once(':')).collect();
    serde_json::json!({
        "owner": owner.word(),
        "protocol": socket.protocol,
        "state": socket.state,
        "local": socket.local.to_string(),
        "remote": socket.remote.map(|remote| remote.to_string()),
        "receive_queue": socket.receive_queue,
        "send_queue": socket.send_queue,
        "program": socket.program,
        "pid": socket.pid,
        "uid": socket.uid,
        "details": details,
    })
}

fn census_json(of: &ProgramCensus) -> serde_json::Value {
    let line = |line: CensusLine| {
        let CensusLine { subject, count } = line;
        serde_json::json!({
            "kind": subject.kind.word(),
            "count": count,
            "address": subject.address.map(|address| address.to_string()),
            "reason": subject.reason.map(|reason| reason.word()),
            "explanation": subject.reason.map(|reason| reason.to_string()),
        })
    };
    serde_json::json!({
        "program": of.program,
        "pid": of.pid,
        "uid": of.uid,
        "sockets": of.read().map(line).collect::<Vec<_>>(),
    })
}

/// What is left to the kernel, in the sentences of `outboard run --explain`.
fn census_text(left: &[ProgramCensus]) -> String {
    let mut text = String::new();
    for of in left {
        text.push_str(&match of.pid {
            0 => format!("\n{}, since it started:\n", of.program),
            pid => format!("\n{} (pid {pid}), since it started:\n", of.program),
        });
        for line in of.read() {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

/// The program behind a socket, as ss(8) writes it.
fn process(socket: &SocketInfo) -> String {
    match socket.pid {
        // In a pid namespace that the engine does not see.
        0 if !socket.program.is_empty() => format!("users:((\"{}\"))", socket.program),
        0 => String::new(),
        pid => format!("users:((\"{}\",pid={pid}))", socket.program),
    }
}

fn socket_table(sockets: &[(Owner, SocketInfo)], details: bool) -> String {
    let mut text = format!(
        "{:<8} {:<5} {:<11} {:>8} {:>8} {:<28} {:<28} Process\n",
        "Owner", "Netid", "State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port"
    );
    for (owner, socket) in sockets {
        let remote = socket.remote.map_or_else(|| "*:*".into(), |remote| remote.to_string());
        let process = process(socket);
        let line = format!(
            "{:<8} {:<5} {:<11} {:>8} {:>8} {:<28} {:<28} {process}",
            owner.word(),
            socket.protocol,
            socket.state,
            socket.receive_queue,
            socket.send_queue,
            socket.local.to_string(),
            remote,
        );
        text.push_str(line.trim_end());
        text.push('\n');
        if details && !socket.details.is_empty() {
            text.push_str(&format!("\t {}\n", socket.details.join(" ")));
        }
    }
    text
}

/// What `outboard pcap` is told.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The port's name; empty for the engine's only one.
    pub port: String,
    /// Bytes kept of each frame.
    pub snap_bytes: u32,
    /// Which frames, in tcpdump's language.
    pub filter: String,
    /// Where to: a file, or standard output for `-`.
    pub output: PathBuf,
    /// End after so many seconds; otherwise when interrupted.
    pub seconds: Option<u64>,
}

/// `outboard pcap`: frames as pcapng, for tcpdump and Wireshark.
///
/// # Errors
/// When no engine answers, the filter or the output is none, or the engine ends the capture.
pub fn capture(socket: &Path, capture: &Capture) -> Result<()> {
    // Mistakes are told before anything starts.
    Filter::compile(&capture.filter)
        .map_err(|error| Failure::new(error.to_string(), "see `outboard pcap --help`"))?;
    let mut observer = Observer::connect(socket)?;
    let output = if capture.output == Path::new("-") {
        let stdout = std::io::stdout();
        if stdout.is_terminal() {
            return Err(Failure::new(
                "a capture is binary and standard output is a terminal",
                "name a file with --output, or pipe it: outboard pcap | tcpdump -r -",
            ));
        }
        stdout
            .as_fd()
            .try_clone_to_owned()
            .explain("cannot copy standard output", "raise ulimit -n")?
    } else {
        let shown = capture.output.display();
        File::create(&capture.output)
            .explain(format!("cannot create {shown}"), "choose a writable path with --output")?
            .into()
    };
    observer.capture(&capture.port, capture.snap_bytes, &capture.filter, output.as_fd())?;
    let deadline = capture.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return observer.end_capture();
        }
        // The engine says when the output fails and hangs up when it ends; a pipe's reader that
        // goes away shows as an error.
        let mut watched = [
            PollFd::from_borrowed_fd(observer.socket(), PollFlags::IN),
            PollFd::new(&output, PollFlags::empty()),
        ];
        let limit = left.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(&mut watched, limit.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) if watched[0].revents().is_empty() => return Ok(()),
            Ok(_) => {
                observer.end_capture()?;
                return Err(Failure::new("the engine ended the capture", "see its messages"));
            }
            Err(error) => return Err(error).explain("cannot wait", "report this"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_shown_in_the_manner_of_ss() {
        let listener = SocketInfo {
            protocol: "tcp".into(),
            state: "LISTEN".into(),
            local: "0.0.0.0:6379".parse().expect("an address"),
            remote: None,
            receive_queue: 0,
            send_queue: 511,
            program: "redis-server".into(),
            pid: 42,
            uid: 0,
            details: vec!["cwnd:10".into()],
        };
        let table = socket_table(&[(Owner::Outboard, listener.clone())], true);
        let lines: Vec<&str> = table.lines().collect();
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(words[..7], ["outboard", "tcp", "LISTEN", "0", "511", "0.0.0.0:6379", "*:*"]);
        assert_eq!(words[7], "users:((\"redis-server\",pid=42))");
        assert_eq!(lines[2].trim(), "cwnd:10");
        let json = socket_json(Owner::Both, &listener);
        assert_eq!((&json["details"]["cwnd"], &json["owner"]), (&"10".into(), &"both".into()));
        // The kernel's halves of the listeners, one at another port, and a connection it accepted.
        let locals = ["0.0.0.0:6379", "[::]:6379", "0.0.0.0:22", "10.0.0.1:6379"];
        let kernels = locals.map(|local| SocketInfo {
            local: local.parse().expect("an address"),
            remote: local.starts_with('1').then(|| "10.0.0.9:5".parse().expect("an address")),
            ..listener.clone()
        });
        // A listener of each version of IP, as redis has them, is one of both owners each.
        let both = side_by_side(vec![listener, kernels[1].clone()], kernels.to_vec());
        let owners: Vec<Owner> = both.iter().map(|(owner, _)| *owner).collect();
        assert_eq!(owners, [Owner::Both, Owner::Both, Owner::Kernel, Owner::Kernel]);
        assert_eq!(both[2].1.local.port(), 22);
    }
}
