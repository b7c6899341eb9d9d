//! MPI jobs with their ranks on two hosts.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use lab::failure::{Explain, Result};
use lab::{Side, Task};

use crate::world::World;

/// What carries a job's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The engines: `outboard mpi`.
    Outboard,
    /// The kernel's TCP: Open MPI's pml ob1.
    Tcp,
}

/// Starts jobs on the hosts of a world, whose arrangement has an engine on both.
#[derive(Debug)]
pub struct Jobs<'a> {
    world: &'a World,
    agent: PathBuf,
}

impl<'a> Jobs<'a> {
    /// Writes what mpirun takes for ssh: it starts the daemon of host B in B's namespaces, beside B's engine.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(world: &'a World) -> Result<Self> {
        let agent = world.lab.scratch().join("agent.sh");
        let text = format!(
            "#!/bin/sh\nshift\n\
             exec ip netns exec {} env OUTBOARD_SOCKET={} unshare --uts \
             sh -c 'hostname b; exec sh -c \"$0\"' \"$*\"\n",
            world.lab.host(Side::B).namespace(),
            world.socket(Side::B).display(),
        );
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::write(&agent, text)
            .and_then(|()| std::fs::set_permissions(&agent, executable))
            .explain("cannot write mpirun's agent", "make room")?;
        Ok(Self { world, agent })
    }

    /// A job of so many ranks, half of them on each host; its program and arguments are to be added.
    pub fn task(&self, transport: Transport, ranks: u32) -> Task {
        let (here, there) = (ranks.div_ceil(2), ranks / 2);
        let hosts = match there {
            0 => format!("localhost:{here}"),
            _ => format!("localhost:{here},b:{there}"),
        };
        let task = match transport {
            Transport::Outboard => Task::new(self.world.executable()).args(["mpi", "--", "mpirun"]),
            Transport::Tcp => Task::words("mpirun --mca pml ob1 --mca btl tcp,self"),
        };
        // Ranks give way to each other and to the engine: a host has one core.
        task.args("--allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1".split(' '))
            .args(["-np", &ranks.to_string(), "-H", &hosts, "--mca", "plm_rsh_agent"])
            .arg(&self.agent)
            .env("OUTBOARD_SOCKET", self.world.socket(Side::A))
    }
}
