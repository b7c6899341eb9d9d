//! The check of another host before mpirun's daemon (orted) starts there: an engine answers and has messages,
//! the provider is where ranks look for it, and both hosts speak the same protocol.
//!
//! mpirun starts its daemons by the words of `orte_launch_agent`, whatever names the hosts (-H, a
//! file, a batch system) and however they are reached (ssh, srun). So the check is put before "orted"
//! there, as Open MPI allows for debuggers. A host that lacks something says so, and the job ends
//! before any rank has started.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use engine::MESSAGE_PROTOCOL;
use lab::failure::{Failure, Result};

use super::{PROVIDER, check_engine};
use crate::config;

/// Open MPI's parameter with the words that start a daemon on another host.
pub const LAUNCH_AGENT: &str = "OMPI_MCA_orte_launch_agent";
/// Its value where nobody sets it.
const DAEMON: &str = "orted";

/// What is checked on a host, and what starts then.
#[derive(Clone, Debug)]
pub struct HostCheck {
    /// Version of the message protocol where mpirun runs.
    pub protocol: u8,
    /// Folder of the provider there, which ranks are given.
    pub provider: PathBuf,
    /// Socket of the engine; this host's usual place if left out.
    pub socket: Option<PathBuf>,
    /// mpirun's daemon and its arguments.
    pub command: Vec<OsString>,
}

/// Checks this host, then becomes the daemon; returns only on failure.
///
/// # Errors
/// When something is missing, with the host's name.
pub fn run(check: &HostCheck) -> Result<ExitCode> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let on_host = |failure: Failure| Failure::whole(format!("host {}: {failure}", name.trim()));
    check_host(check).map_err(on_host)?;
    let Some((program, arguments)) = check.command.split_first() else {
        return Err(Failure::new("no daemon is named", "start it through outboard mpi"));
    };
    let error = Command::new(program).args(arguments).exec();
    let cause = format!("cannot run {}: {error}", program.to_string_lossy());
    Err(on_host(Failure::new(cause, "install openmpi-bin there, or see its path")))
}

fn check_host(check: &HostCheck) -> Result<()> {
    if check.protocol != MESSAGE_PROTOCOL {
        return Err(Failure::new(
            format!(
                "its engine speaks version {MESSAGE_PROTOCOL} of the message protocol, mpirun's host \
                 version {}",
                check.protocol
            ),
            "install the same release on both",
        ));
    }
    let provider = check.provider.join(PROVIDER);
    if !provider.is_file() {
        return Err(Failure::new(
            format!("the libfabric provider {} is missing", provider.display()),
            "install Outboard in the same place on every host",
        ));
    }
    check_engine(&check.socket.clone().unwrap_or_else(config::default_socket))
}

/// The words for [`LAUNCH_AGENT`]: the check, then the daemon as the user's own setting starts it.
///
/// # Errors
/// When a path has a space, at which Open MPI would cut it.
pub fn launch_agent(
    executable: &Path,
    provider: &Path,
    socket: Option<&Path>,
    users: Option<String>,
) -> Result<String> {
    let protocol = MESSAGE_PROTOCOL.to_string();
    let mut words = vec![word(executable)?, "mpi-host", "--protocol", protocol.as_str()];
    words.extend(["--provider", word(provider)?]);
    if let Some(socket) = socket {
        words.extend(["--socket", word(socket)?]);
    }
    let daemon = users.unwrap_or_else(|| DAEMON.to_owned());
    words.extend(["--", daemon.as_str()]);
    Ok(words.join(" "))
}

fn word(path: &Path) -> Result<&str> {
    path.to_str().filter(|path| !path.contains(char::is_whitespace)).ok_or_else(|| {
        let cause = format!("mpirun cannot hand the path {} to other hosts", path.display());
        Failure::new(cause, "use one of Unicode characters without white space")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_stands_before_the_daemon() {
        let agent = |provider: &str, users: Option<&str>| {
            let socket = Some(Path::new("/run/e.sock"));
            let users = users.map(str::to_owned);
            launch_agent(Path::new("/bin/outboard"), Path::new(provider), socket, users)
        };
        let own = agent("/lib/outboard", None).expect("an agent");
        let expected = format!(
            "/bin/outboard mpi-host --protocol {MESSAGE_PROTOCOL} --provider /lib/outboard \
             --socket /run/e.sock -- orted"
        );
        assert_eq!(own, expected);
        let users = agent("/lib/outboard", Some("valgrind -q orted")).expect("an agent");
        assert!(users.ends_with(" -- valgrind -q orted"), "{users}");
        assert!(agent("/my lib", None).is_err());
    }

    #[test]
    fn a_host_without_provider_or_of_another_protocol_is_refused() {
        let check = |protocol, provider: &str| {
            let check = HostCheck {
                protocol,
                provider: provider.into(),
                socket: Some("/nonexistent/engine.sock".into()),
                command: vec!["orted".into()],
            };
            run(&check).expect_err("something is missing").to_string()
        };
        let old = check(MESSAGE_PROTOCOL + 1, "/");
        assert!(old.starts_with("host ") && old.contains("same release"), "{old}");
        let missing = check(MESSAGE_PROTOCOL, "/nonexistent");
        assert!(missing.contains("/nonexistent/liboutboard-fi.so"), "{missing}");
        let folder = std::env::temp_dir().join(format!("outboard-host-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join(PROVIDER), "").expect("a file");
        let alone = check(MESSAGE_PROTOCOL, folder.to_str().expect("Unicode"));
        assert!(alone.contains("/nonexistent/engine.sock"), "{alone}");
        std::fs::remove_dir_all(&folder).expect("it was there");
    }
}
