//! Opening a port, which needs privileges, and building the running port, which needs none.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use wire::MacAddr;

use crate::impair::Impaired;
use crate::interface::{Offloads, Port, PortInfo, Shared};
use crate::memif::{self, MemifFacts, MemifPort};
use crate::spec::{Impairment, PortKind, PortSpec};
use crate::station::{self, StationFacts, StationPort};
use crate::trunk::{self, TrunkPort};
use crate::xdp::{self, Rings, XdpFacts};
use crate::{packet, tap};

/// An opened port: descriptors and the data to run on them. Both can be passed to another process,
/// except for those of an `xdp` port on Linux 6.1.
#[derive(Debug)]
pub struct PortFds {
    /// The kernel's side: the device of a `tap`; the socket of a `packet`, and perhaps the link of
    /// its guard; for an `xdp` see [`XdpFacts`].
    pub fds: Vec<OwnedFd>,
    /// The rest, as plain data.
    pub description: PortDescription,
    /// Rings that are already mapped.
    pub(crate) rings: Vec<Rings>,
    /// The links of a trunk, whose own descriptor gets the kernel's link notifications.
    pub(crate) links: Vec<PortFds>,
}

/// Data found by [`open`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortDescription {
    /// Its kind.
    pub kind: PortKind,
    /// The user's name for it, e.g. `tap:ob0`.
    pub label: String,
    /// Link address that the engine uses.
    pub mac: MacAddr,
    /// Largest IP packet.
    pub mtu: u16,
    /// Offloads of the kernel for sending, and possible ones for receiving.
    pub offloads: PortOffloads,
    /// The interface's index in its namespace.
    pub interface_index: u32,
    /// Faults to inject.
    pub impairment: Option<Impairment>,
    /// Seed of the faults.
    pub seed: u64,
    /// The mode obtained, if kernel and driver offer several.
    pub mode: Option<String>,
    /// Data of an `xdp` port.
    pub xdp: Option<XdpFacts>,
    /// Data of a `memif` port.
    pub memif: Option<MemifFacts>,
    /// Data of a `gen` or `sink` port.
    pub station: Option<StationFacts>,
    /// Notes for the user about a port that works: sentences to log.
    pub notes: Vec<String>,
}

/// [`Offloads`] in a serializable form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortOffloads {
    /// TCP is segmented by the kernel.
    pub tso: bool,
    /// UDP is segmented by the kernel.
    pub uso: bool,
}

impl PortDescription {
    /// The data for the stack.
    pub(crate) fn info(&self) -> PortInfo {
        PortInfo {
            name: self.label.clone(),
            mac: self.mac,
            mtu: self.mtu,
            kernel_index: self.interface_index,
            offloads: Offloads {
                tx_checksum: true,
                tso4: self.offloads.tso,
                tso6: self.offloads.tso,
                uso: self.offloads.uso,
                rx_coalesce: true,
            },
            shared: self.xdp.as_ref().map(|facts| Shared {
                interface_index: self.interface_index,
                connect_ports: facts.connect_ports,
                is_divided: false,
            }),
        }
    }
}

/// Why a port could not be opened, by what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// A capability is missing, or a device file is not accessible to this user.
    Privilege,
    /// The interface, the namespace or the device file does not exist.
    NotFound,
    /// It is in use, or its configuration is not suitable for a port.
    InUse,
    /// The kernel lacks a feature that the port needs.
    Unsupported,
    /// Any other error of the kernel.
    System,
}

/// Why a port could not be opened, in a sentence that says what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    /// For programs.
    pub kind: OpenErrorKind,
    /// For people.
    pub sentence: String,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    pub(crate) fn new(kind: OpenErrorKind, sentence: String) -> Self {
        Self { kind, sentence }
    }

    /// Descriptors were lost or mixed up on their way.
    pub(crate) fn of_descriptors(label: &str) -> Self {
        let sentence = format!(
            "{label} came with a number of descriptors that its kind never has; open the port anew"
        );
        Self::new(OpenErrorKind::System, sentence)
    }

    /// From a failed system call: `doing` is what was tried, e.g. "create the TAP device", and
    /// `capability` what the kernel asks for it.
    pub(crate) fn system(label: &str, doing: &str, capability: &str, why: &io::Error) -> Self {
        match why.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::new(
                OpenErrorKind::Privilege,
                format!(
                    "cannot {doing} for {label}: {capability} is missing ({why}); run as root or \
                     give the program the capability (setcap, or --cap-add for a container)"
                ),
            ),
            Some(libc::ENOBUFS) => Self::new(
                OpenErrorKind::Privilege,
                format!(
                    "cannot {doing} for {label}: the limit of locked memory is too small ({why}); \
                     raise it (ulimit -l, or LimitMEMLOCK=infinity in a unit), or give the program \
                     CAP_IPC_LOCK"
                ),
            ),
            Some(libc::EMFILE | libc::ENFILE) => Self::new(
                OpenErrorKind::System,
                format!(
                    "cannot {doing} for {label}: out of descriptors ({why}); raise the limit \
                     (ulimit -n, or LimitNOFILE= in a unit), or give fewer ports="
                ),
            ),
            Some(libc::ENODEV | libc::ENXIO) => Self::new(
                OpenErrorKind::NotFound,
                format!(
                    "cannot {doing} for {label}: there is no such interface here; \"ip link\" \
                     lists those of this network namespace (use `ip netns exec`, or netns= for tap \
                     and packet ports, to reach others)"
                ),
            ),
            _ => Self::new(
                OpenErrorKind::System,
                format!(
                    "cannot {doing} for {label}: {why}; \"outboard doctor\" checks this machine"
                ),
            ),
        }
    }
}

/// Opens the port's descriptors and prepares its interface. A tap port needs CAP_NET_ADMIN, a
/// packet port CAP_NET_RAW and CAP_NET_ADMIN, and another namespace CAP_SYS_ADMIN. A tap device
/// ends with its descriptor, unless it existed before as a persistent one. An xdp port needs
/// CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON, and is opened in the caller's own
/// namespace. Memif, gen and sink ports need none.
///
/// # Errors
/// What is missing, in use or not supported, in a sentence that says what to do.
pub fn open(spec: &PortSpec) -> Result<PortFds, OpenError> {
    match spec.kind {
        PortKind::Tap => tap::open(spec),
        PortKind::Packet => packet::open(spec),
        PortKind::Xdp => xdp::open(spec),
        PortKind::Memif => memif::open(spec),
        PortKind::Trunk => trunk::open(spec),
        PortKind::Generator | PortKind::Sink => station::open(spec),
    }
}

/// Builds the running port, wrapped with the requested faults.
///
/// # Errors
/// If descriptors are missing, or cannot be mapped or watched.
pub fn from_fds(fds: PortFds) -> Result<Box<dyn Port>, OpenError> {
    let PortFds { fds, description, rings, links } = fds;
    if description.kind == PortKind::Trunk {
        let ports = links.into_iter().map(from_fds).collect::<Result<_, _>>()?;
        let PortDescription { label, mac, seed, .. } = &description;
        let mut port = TrunkPort::new(label, *mac, ports, *seed)?;
        if let Some(news) = fds.into_iter().next() {
            port.listen(news);
        }
        return Ok(impaired(Box::new(port), &description));
    }
    let mut fds = fds.into_iter();
    if let Some(facts) = &description.xdp {
        let port = Box::new(xdp::XdpPort::new(fds, rings, facts, &description)?);
        return Ok(impaired(port, &description));
    }
    let (first, second, more) = (fds.next(), fds.next(), fds.next());
    let port: Box<dyn Port> = match (description.kind, first, second, more) {
        (PortKind::Memif, listener, None, None) => {
            Box::new(MemifPort::new(listener, &description)?)
        }
        (PortKind::Generator | PortKind::Sink, None, None, None) => {
            let facts = description.station.clone().unwrap_or_default();
            Box::new(StationPort::new(&facts, &description))
        }
        (PortKind::Tap, Some(fd), None, None) => Box::new(tap::TapPort::new(fd, &description)?),
        (PortKind::Packet, Some(fd), guard, None) => {
            Box::new(packet::PacketPort::new(fd, guard, &description)?)
        }
        _ => return Err(OpenError::of_descriptors(&description.label)),
    };
    Ok(impaired(port, &description))
}

fn impaired(port: Box<dyn Port>, description: &PortDescription) -> Box<dyn Port> {
    match description.impairment {
        Some(faults) => Box::new(Impaired::new(port, faults, description.seed)),
        None => port,
    }
}

/// A locally administered address.
pub(crate) fn random_mac() -> Result<MacAddr, OpenError> {
    let [_, b, c, d, e, f, ..] = random_seed()?.to_ne_bytes();
    Ok(MacAddr([2, b, c, d, e, f]))
}

/// Eight bytes from the system's random source.
pub(crate) fn random_seed() -> Result<u64, OpenError> {
    let mut bytes = [0u8; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(OpenError::new(
            OpenErrorKind::System,
            "the system's random source failed; give mac= and seed= to do without it".to_owned(),
        )),
    }
}
