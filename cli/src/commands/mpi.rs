//! `outboard mpi`: an MPI program with its messages on the engines of its hosts.
//!
//! Nothing of the program or of Open MPI is changed: parameters in the environment have it send
//! through libfabric (pml cm, mtl ofi) and libfabric through the provider alone. Debian's
//! openmpi-mca-params.conf excludes mtl ofi; what the environment says comes before that file.
//! Open MPI hands parameters of its own to ranks on other hosts; the rest is named with -x. Other hosts are
//! checked as mpirun reaches them ([`host`]).

pub mod host;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use lab::failure::{Explain, Failure, Result};

use crate::config;

/// File name of the provider; libfabric loads what ends like this.
const PROVIDER: &str = "liboutboard-fi.so";

/// Parameters of Open MPI's, as its environment has them.
const PARAMETERS: [(&str, &str); 3] = [
    ("OMPI_MCA_pml", "cm"),
    ("OMPI_MCA_mtl", "ofi"),
    ("OMPI_MCA_mtl_ofi_provider_include", "outboard"),
];

/// Where libfabric looks for providers.
const PROVIDER_PATH: &str = "FI_PROVIDER_PATH";
/// Where programs look for an engine.
const SOCKET: &str = "OUTBOARD_SOCKET";

/// Launchers that take -x.
const LAUNCHERS: [&str; 3] = ["mpirun", "mpiexec", "orterun"];

/// What to run.
#[derive(Clone, Debug)]
pub struct Mpi {
    /// Socket of the engine on each host; the usual place if left out.
    pub socket: Option<PathBuf>,
    /// mpirun, or the program alone, and its arguments.
    pub command: Vec<OsString>,
}

/// Runs the command; returns only on failure.
///
/// # Errors
/// When the provider or the command is missing, or this host's engine does not answer or has no
/// messages.
pub fn run(mpi: &Mpi) -> Result<ExitCode> {
    let Some((program, arguments)) = mpi.command.split_first() else {
        return Err(Failure::new("no program is given", "write mpirun and its arguments after --"));
    };
    let executable = executable()?;
    let provider = provider_beside(&executable)?;
    let directory = provider.parent().unwrap_or(Path::new("/"));
    let advice = "give its whole path";
    let socket = (mpi.socket.as_ref().map(std::path::absolute).transpose())
        .explain("the socket's path cannot be made absolute", advice)?;
    check_engine(&socket.clone().unwrap_or_else(config::default_socket))?;
    let mut command = Command::new(program);
    command.envs(PARAMETERS).env(PROVIDER_PATH, directory);
    let mut handed_on = vec![PROVIDER_PATH];
    if let Some(socket) = &socket {
        command.env(SOCKET, socket);
        handed_on.push(SOCKET);
    }
    if is_launcher(program) {
        command.args(handed_on.iter().flat_map(|name| ["-x", name]));
        let users = std::env::var(host::LAUNCH_AGENT).ok();
        let agent = host::launch_agent(&executable, directory, socket.as_deref(), users)?;
        command.env(host::LAUNCH_AGENT, agent);
    }
    let error = command.args(arguments).exec();
    let shown = program.to_string_lossy();
    Err(Failure::new(
        format!("cannot run {shown}: {error}"),
        "install openmpi-bin, or check the path",
    ))
}

/// Whether a command is one of Open MPI's launchers.
fn is_launcher(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    LAUNCHERS.iter().any(|launcher| name == *launcher || name == format!("{launcher}.openmpi"))
}

/// Whether the engine at `socket` answers and has messages.
///
/// # Errors
/// When it does not.
pub fn check_engine(socket: &Path) -> Result<()> {
    let session = client::Session::attach_messages(socket, "outboard mpi");
    session.map(drop).explain(
        format!("no messages through the engine at {}", socket.display()),
        "start one there (outboard engine), or name another socket with --socket",
    )
}

/// The provider: in `fabric` beside the executable, as built, or in ../lib/outboard, as installed.
///
/// # Errors
/// When it is in neither place.
pub fn provider() -> Result<PathBuf> {
    provider_beside(&executable()?)
}

fn executable() -> Result<PathBuf> {
    std::env::current_exe().explain("cannot find the own executable", "mount /proc")
}

fn provider_beside(executable: &Path) -> Result<PathBuf> {
    let built = executable.with_file_name("fabric").join(PROVIDER);
    let prefix = executable.parent().and_then(Path::parent);
    let installed = prefix.map(|prefix| prefix.join("lib/outboard").join(PROVIDER));
    let found = [Some(built.clone()), installed].into_iter().flatten().find(|path| path.is_file());
    found.ok_or_else(|| {
        Failure::new(
            format!("the libfabric provider {} is missing", built.display()),
            "build it with `make build`",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_their_names() {
        for name in ["mpirun", "/usr/bin/mpiexec", "mpirun.openmpi", "orterun"] {
            assert!(is_launcher(OsStr::new(name)), "{name}");
        }
        for name in ["./ring", "mpirun.sh", "srun"] {
            assert!(!is_launcher(OsStr::new(name)), "{name}");
        }
    }
}
