//! The systems that are compared: the kernel in three placements of its receive work, and Outboard
//! in its arrangements.

use lab::failure::{Failure, Result};
use lab::{Placement, Side};

/// Whose network stacks do the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum System {
    /// The kernel on both hosts, its receive work placed.
    Kernel(Placement),
    /// Outboard under the server on the kernel's interface and address, the kernel under the client.
    XdpServer,
    /// Outboard under the server on a TAP, the kernel under the client.
    TapServer,
    /// Outboard under the client on the kernel's interface and address, the kernel under the server.
    XdpClient,
    /// Outboard on both hosts, on packet ports.
    PacketBoth,
}

impl System {
    /// All of them, the kernel first.
    pub const ALL: [Self; 7] = [
        Self::Kernel(Placement::Sender),
        Self::Kernel(Placement::Steered),
        Self::Kernel(Placement::Threaded),
        Self::XdpServer,
        Self::TapServer,
        Self::XdpClient,
        Self::PacketBoth,
    ];

    /// Its name in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel(Placement::Sender) => "kernel-sender",
            Self::Kernel(Placement::Steered) => "kernel-steered",
            Self::Kernel(Placement::Threaded) => "kernel-threaded",
            Self::XdpServer => "xdp-server",
            Self::TapServer => "tap-server",
            Self::XdpClient => "xdp-client",
            Self::PacketBoth => "packet-both",
        }
    }

    /// What it is, for people.
    pub fn description(self) -> &'static str {
        match self {
            Self::Kernel(Placement::Sender) => {
                "kernel on both hosts, receive work on the sender's core"
            }
            Self::Kernel(Placement::Steered) => {
                "kernel on both hosts, receive work steered to the receiver's core (RPS)"
            }
            Self::Kernel(Placement::Threaded) => {
                "kernel on both hosts, receive work in a thread on the receiver's core"
            }
            Self::XdpServer => "Outboard under the server (xdp on veth), kernel under the client",
            Self::TapServer => "Outboard under the server (tap), kernel under the client",
            Self::XdpClient => "Outboard under the client (xdp on veth), kernel under the server",
            Self::PacketBoth => "Outboard on both hosts (packet ports on veth)",
        }
    }

    /// Whether it is what Outboard is compared with.
    pub fn is_kernel(self) -> bool {
        matches!(self, Self::Kernel(_))
    }

    /// Whether an engine serves the programs of a host.
    pub fn accelerates(self, side: Side) -> bool {
        match self {
            Self::Kernel(_) => false,
            Self::XdpServer | Self::TapServer => side == Side::B,
            Self::XdpClient => side == Side::A,
            Self::PacketBoth => true,
        }
    }

    /// Whether each core does the work of its own host alone, so that processor time can be given by
    /// host. A packet port receives in the sender's system call.
    pub fn splits_work(self) -> bool {
        match self {
            Self::Kernel(placement) => placement.is_on_receiver(),
            Self::XdpServer | Self::TapServer | Self::XdpClient => true,
            Self::PacketBoth => false,
        }
    }

    /// The system called `name`.
    ///
    /// # Errors
    /// When there is none; the names are given.
    pub fn named(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|system| system.name() == name).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|system| system.name()).collect();
            let advice = format!("choose from {}", known.join(", "));
            Failure::new(format!("there is no system {name:?}"), advice)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_is_found_by_its_name() {
        for system in System::ALL {
            assert_eq!(System::named(system.name()), Ok(system));
        }
        assert!(System::named("kernel").is_err());
    }
}
