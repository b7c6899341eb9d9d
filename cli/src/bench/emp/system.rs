//! Whose messages are compared.

use lab::Placement;

use crate::bench::load::ExchangeCarrier;
use crate::bench::planned::Series;

/// Whose messages, and under which programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageSystem {
    /// The engines', under our own program.
    Native {
        /// Whether they are from and to registered memory.
        is_registered: bool,
    },
    /// A TCP connection of the kernels, under our own program.
    Tcp(Placement),
    /// Open MPI over libfabric over the engines.
    MpiOutboard,
    /// Open MPI over libfabric's messages over TCP connections of the kernels.
    MpiRxm,
    /// Open MPI over TCP connections of the kernels, without libfabric.
    MpiTcp {
        /// Where the kernels' receive work is.
        placement: Placement,
        /// Whether ranks without work give up their core.
        yields: bool,
    },
}

impl MessageSystem {
    /// Those under our own program, or those under the MPI program.
    pub fn all(is_mpi: bool) -> Vec<Self> {
        if !is_mpi {
            let native = [false, true].map(|is_registered| Self::Native { is_registered });
            return native.into_iter().chain(Placement::ALL.map(Self::Tcp)).collect();
        }
        let tcp = |yields| Placement::ALL.map(|placement| Self::MpiTcp { placement, yields });
        let all = [Self::MpiOutboard, Self::MpiRxm].into_iter();
        all.chain(tcp(true)).chain(tcp(false)).collect()
    }

    /// Its name in reports.
    pub fn series(self) -> Series {
        use Placement::{Sender, Steered, Threaded};
        let (name, about) = match self {
            Self::Native { is_registered: false } => {
                ("native-copied", "messages of the engines, from and to the program's memory")
            }
            Self::Native { is_registered: true } => {
                ("native-registered", "messages of the engines, from and to registered memory")
            }
            Self::Tcp(Sender) => ("tcp-sender", "TCP, receive work on the sender's core"),
            Self::Tcp(Steered) => ("tcp-steered", "TCP, receive work steered to the receiver"),
            Self::Tcp(Threaded) => ("tcp-threaded", "TCP, receive work in a thread"),
            Self::MpiOutboard => ("mpi-outboard", "Open MPI, cm and ofi over the engines"),
            Self::MpiRxm => ("mpi-rxm", "Open MPI, cm and ofi over tcp;ofi_rxm"),
            Self::MpiTcp { placement, yields } => match (placement, yields) {
                (Sender, true) => ("mpi-tcp-sender", "Open MPI, ob1 and tcp, sender's core"),
                (Steered, true) => ("mpi-tcp-steered", "Open MPI, ob1 and tcp, steered"),
                (Threaded, true) => ("mpi-tcp-threaded", "Open MPI, ob1 and tcp, in a thread"),
                (Sender, false) => {
                    ("mpi-tcp-sender-spin", "as mpi-tcp-sender, idle ranks keep their core")
                }
                (Steered, false) => {
                    ("mpi-tcp-steered-spin", "as mpi-tcp-steered, idle ranks keep their core")
                }
                (Threaded, false) => {
                    ("mpi-tcp-threaded-spin", "as mpi-tcp-threaded, idle ranks keep their core")
                }
            },
        };
        let is_counterpart = matches!(self, Self::Tcp(_) | Self::MpiTcp { .. });
        Series { name, about, is_counterpart }
    }

    /// Whether engines carry it.
    pub fn is_accelerated(self) -> bool {
        matches!(self, Self::Native { .. } | Self::MpiOutboard)
    }

    /// What carries it under our own program; none under the MPI program.
    pub fn carrier(self) -> Option<ExchangeCarrier> {
        match self {
            Self::Native { is_registered: false } => Some(ExchangeCarrier::Copied),
            Self::Native { is_registered: true } => Some(ExchangeCarrier::Registered),
            Self::Tcp(_) => Some(ExchangeCarrier::Tcp),
            Self::MpiOutboard | Self::MpiRxm | Self::MpiTcp { .. } => None,
        }
    }

    /// Where the kernels' receive work is to be.
    pub fn placement(self) -> Placement {
        match self {
            Self::Tcp(placement) | Self::MpiTcp { placement, .. } => placement,
            _ => Placement::Steered,
        }
    }
}
