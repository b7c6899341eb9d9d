//! Why something was refused or has ended.

use std::fmt;
use std::net::SocketAddr;

use client::{AttachError, Errno, RequestError};
use engine::TooManyPorts;
use engine::session::Breach;
use shm::region::RegionError;

/// Why an inline engine could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// No port was given.
    NoPort,
    /// The port, by its label, shares its interface with the kernel.
    Shared(String),
    /// The port, by its label, has no address of its own.
    NoAddress(String),
    /// A port cannot be opened.
    Port(port::OpenError),
    /// There are more ports than the stack can number.
    TooManyPorts(TooManyPorts),
    /// There is no memory for the session.
    Region(RegionError),
    /// The program cannot be attached.
    Attach(AttachError),
    /// The kernel refused something else.
    System(Errno),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPort => f.write_str(
                "an inline engine needs a port; give one, e.g. tap:ob0,addr=10.0.0.2/24",
            ),
            Self::Shared(label) => write!(
                f,
                "{label}: an xdp port shares the kernel's interface, and a program that holds it could \
                 take any port of that interface; give a tap, packet or memif port with an address \
                 of its own, or use `outboard engine`"
            ),
            Self::NoAddress(label) => write!(
                f,
                "{label}: the port has no address of its own; give one, e.g. addr=10.0.0.2/24"
            ),
            Self::Port(error) => error.fmt(f),
            Self::TooManyPorts(error) => error.fmt(f),
            Self::Region(error) => error.fmt(f),
            Self::Attach(error) => error.fmt(f),
            Self::System(errno) => {
                write!(f, "the kernel refused what an inline engine needs: {errno}")
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl From<port::OpenError> for OpenError {
    fn from(error: port::OpenError) -> Self {
        Self::Port(error)
    }
}

/// Why an address was not bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindError {
    /// The address is not one of this engine's.
    ForeignAddress(SocketAddr),
    /// A socket of this engine has it.
    InUse(SocketAddr),
    /// No ephemeral port is free at the address.
    NoPortLeft(SocketAddr),
    /// The worker refused.
    Refused {
        /// What was to be bound.
        local: SocketAddr,
        /// Nearest errno.
        errno: Errno,
        /// Why, as a sentence.
        reason: String,
    },
}

impl BindError {
    /// The errno of bind(2) that is nearest.
    pub fn errno(&self) -> Errno {
        match self {
            Self::ForeignAddress(_) => Errno::ADDRNOTAVAIL,
            Self::InUse(_) | Self::NoPortLeft(_) => Errno::ADDRINUSE,
            Self::Refused { errno, .. } => *errno,
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignAddress(local) => write!(
                f,
                "{local}: no port of this engine has the address; bind one of those given with addr=, \
                 or the unspecified one"
            ),
            Self::InUse(local) => {
                write!(
                    f,
                    "{local}: another socket of this engine has it; close that or choose another \
                     port"
                )
            }
            Self::NoPortLeft(local) => {
                write!(f, "{local}: no ephemeral port is free; close sockets or name a port")
            }
            Self::Refused { local, reason, .. } => write!(f, "{local}: {reason}"),
        }
    }
}

impl std::error::Error for BindError {}

impl From<BindError> for std::io::Error {
    fn from(error: BindError) -> Self {
        Self::from(error.errno())
    }
}

impl BindError {
    pub(crate) fn of_request(local: SocketAddr, error: RequestError) -> Self {
        Self::Refused { local, errno: error.errno, reason: error.reason }
    }
}

/// Why an inline engine does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunError {
    /// This process is a forked child of the one that opened it. Its parent goes on.
    Forked,
    /// The interfaces of all ports have been removed.
    PortsLost,
    /// The session's memory holds what the contract does not allow: somebody wrote over it.
    Breached(Breach),
    /// The ports cannot be waited for.
    System(Errno),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forked => f.write_str(
                "a forked child cannot run its parent's inline engine; open another one with ports of its \
                 own",
            ),
            Self::PortsLost => f.write_str(
                "the interfaces of all ports have been removed; open the engine again once they \
                 are back",
            ),
            Self::Breached(breach) => {
                write!(f, "the session's memory is damaged ({breach}); open the engine again")
            }
            Self::System(errno) => write!(f, "waiting for the ports failed: {errno}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<RunError> for std::io::Error {
    fn from(error: RunError) -> Self {
        match error {
            RunError::System(errno) => Self::from(errno),
            _ => Self::other(error),
        }
    }
}
