//! Whether servers and engines of a laboratory are ready: nothing here waits longer than it must.

use std::path::Path;
use std::time::Duration;

use crate::failure::Result;
use crate::observer::Observer;
use crate::{Lab, Program, Side, Task};

/// The line that an engine prints once programs can attach.
pub const READY: &str = "outboard engine: ready";

/// Longest wait for an engine, whose IPv6 addresses are first asked for.
const PATIENCE: Duration = Duration::from_secs(60);

impl Lab {
    /// Starts `executable` as an engine on host `side` and waits until it is ready.
    ///
    /// # Errors
    /// When it ends instead, with its last words.
    pub fn start_engine(
        &self,
        executable: Task,
        side: Side,
        socket: &Path,
        arguments: &[&str],
    ) -> Result<Program> {
        let task = executable.arg("engine").arg("--socket").arg(socket).args(arguments);
        let mut engine = self.start(side, task)?;
        engine.until(PATIENCE, |engine| engine.output().contains(READY))?;
        Ok(engine)
    }
}

/// Whether some socket in the network namespace of process `pid` listens on TCP port `port`, of
/// either version of IP.
pub fn listens(pid: i32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}"));
        has_listener(&table.unwrap_or_default(), port)
    })
}

fn has_listener(table: &str, port: u16) -> bool {
    /// TCP_LISTEN of the kernel's states.
    const LISTEN: &str = "0A";
    let local = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|address| address.ends_with(&local))
            && fields.nth(1) == Some(LISTEN)
    })
}

/// Whether the engine at `socket` has a listener or a datagram socket at `port`. A program's is the
/// kernel's first and the engine's a moment later.
pub fn serves(socket: &Path, port: u16) -> bool {
    let sockets = Observer::connect(socket).and_then(|mut observer| observer.sockets());
    let is_served = |all: Vec<shm::control::SocketInfo>| {
        all.iter().any(|one| one.local.port() == port && one.remote.is_none())
    };
    sockets.is_ok_and(is_served)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_told_from_connections_at_its_port() {
        let line = |local: &str, state: &str| {
            format!("   0: {local} 0100007F:0016 {state} 00000000:00000000 00:00000000 00000000\n")
        };
        let table = line("0100007F:1F40", "01") + &line("00000000:1F41", "0A");
        assert!(!has_listener(&table, 0x1f40) && has_listener(&table, 0x1f41));
        assert!(!has_listener(&table, 0x16));
    }
}
