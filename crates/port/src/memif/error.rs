//! Why a memif peer is not served, or no longer.

use std::fmt;

use rustix::io::Errno;

use super::messages::REGIONS_MAX;
use super::server::REGION_BYTES_MAX;

/// Why a peer is disconnected. Its first 95 bytes are what the peer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemifError {
    /// A message is not of 128 bytes, or comes with too many descriptors.
    Malformed,
    /// A message of a kind that there is not, or that this side never gets.
    UnknownMessage,
    /// A message comes with more or fewer descriptors than belong to it.
    Descriptors {
        /// That came.
        came: usize,
        /// That belong to it.
        expected: usize,
    },
    /// A message comes before its turn.
    Early,
    /// A message comes after the rings are in use.
    Late,
    /// The peer speaks other versions.
    Version {
        /// The oldest.
        oldest: u16,
        /// The newest.
        newest: u16,
    },
    /// Frames of something else than Ethernet.
    Mode(u8),
    /// The interface that a client asks for is another.
    Interface {
        /// Asked for.
        asked: u32,
        /// Served.
        served: u32,
    },
    /// The secret is another.
    Secret,
    /// Regions are not numbered in order, or there are too many.
    RegionNumber(u16),
    /// The regions are larger together than is taken.
    RegionBytes(u64),
    /// A region is no memfd.
    NoMemfd(Errno),
    /// A region could become smaller.
    NotSealed,
    /// A region is smaller than is said.
    RegionSize {
        /// As said.
        said: u64,
        /// As found.
        actual: u64,
    },
    /// The kernel refuses to map or to look at a region.
    Memory(Errno),
    /// A second ring of a direction, or private headers.
    RingShape {
        /// The ring's number.
        index: u16,
        /// Bytes of a private header.
        private_bytes: u16,
    },
    /// A ring has too few slots or too many, as a power of two.
    RingSlots(u8),
    /// A ring is added again.
    RingTwice,
    /// CONNECT comes with a ring missing.
    RingMissing,
    /// A ring does not lie in its region.
    RingPlace {
        /// The region.
        region: u16,
        /// Where it begins there.
        offset: u32,
    },
    /// A ring does not begin with the cookie.
    Cookie(u32),
    /// A server takes fewer slots than the engine's rings have, as a power of two.
    FewSlots(u8),
    /// The handshake takes too long.
    Slow,
    /// The peer's user may not connect.
    User(u32),
    /// There is a peer already.
    Occupied,
    /// The peer says so.
    Disconnected(String),
    /// The peer is gone.
    HungUp,
    /// A system call failed.
    System(&'static str, Errno),
}

impl fmt::Display for MemifError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => {
                write!(f, "a message is not of 128 bytes, or has too many descriptors")
            }
            Self::UnknownMessage => write!(f, "a message of an unknown kind"),
            Self::Descriptors { came, expected } => {
                write!(f, "a message has {came} descriptors instead of {expected}")
            }
            Self::Early => write!(f, "a message comes before its turn"),
            Self::Late => write!(f, "a message comes after the connection stands"),
            Self::Version { oldest, newest } => {
                write!(f, "the peer speaks versions {oldest:#x} to {newest:#x} instead of 2.0")
            }
            Self::Mode(mode) => write!(f, "mode {mode} is not served, only Ethernet (0)"),
            Self::Interface { asked, served } => {
                write!(f, "there is no interface {asked} here, only {served}; set id=")
            }
            Self::Secret => write!(f, "the secret is another; set secret="),
            Self::RegionNumber(number) => write!(
                f,
                "region {number} is not the next one; they come in order, at most {REGIONS_MAX}"
            ),
            Self::RegionBytes(bytes) => {
                write!(f, "the regions have {bytes} bytes together, more than {REGION_BYTES_MAX}")
            }
            Self::NoMemfd(errno) => write!(f, "a region is no memfd: {errno}"),
            Self::NotSealed => {
                write!(f, "a region is not sealed against shrinking (F_SEAL_SHRINK)")
            }
            Self::RegionSize { said, actual } => {
                write!(f, "a region of {said} bytes is said to be, the memfd has {actual}")
            }
            Self::Memory(errno) => write!(f, "a region cannot be mapped: {errno}"),
            Self::RingShape { index, private_bytes } => write!(
                f,
                "ring {index} with private headers of {private_bytes} bytes is not served, only \
                 ring 0 with none"
            ),
            Self::RingSlots(log2) => write!(f, "a ring has 2^{log2} slots instead of 2 to 16384"),
            Self::RingTwice => write!(f, "a ring comes twice"),
            Self::RingMissing => write!(f, "a ring is missing"),
            Self::RingPlace { region, offset } => {
                write!(f, "a ring at {offset} does not lie in its region {region}")
            }
            Self::Cookie(found) => write!(f, "a ring begins with {found:#x} instead of the cookie"),
            Self::FewSlots(log2) => {
                write!(f, "the server takes rings of 2^{log2} slots at most, which is too few")
            }
            Self::Slow => write!(f, "the handshake takes too long"),
            Self::User(uid) => {
                write!(f, "user {uid} may not connect; add uid={uid} to the port")
            }
            Self::Occupied => write!(f, "the port has a peer already"),
            Self::Disconnected(why) => write!(f, "the peer disconnects: {why:?}"),
            Self::HungUp => write!(f, "the peer hangs up"),
            Self::System(what, errno) => write!(f, "{what}: {errno}"),
        }
    }
}

impl std::error::Error for MemifError {}
