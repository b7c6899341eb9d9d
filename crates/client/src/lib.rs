//! The library of programs: a session with the engine, its endpoints, and thin layers on top.
//!
//! The core is poll-shaped: [`Session`] and [`Endpoint`] never wait, except briefly for the
//! engine's answer to a request. Levels are authoritative ([`Endpoint::readiness`]); events only
//! hint at the endpoints to check. [`native`] makes blocking sockets of it, [`sockets`] POSIX ones.
//!
//! It depends only on the contract in `shm`, not on the engine or its protocols. Start reading at
//! [`Session`].
#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]

mod backoff;
mod datagram;
mod driver;
mod endpoint;
mod errors;
mod in_process;
mod keys;
pub mod memory;
pub mod message;
pub mod native;
mod open;
pub mod raw;
mod relay;
mod session;
mod share;
pub mod sockets;
mod stream;
mod wait;

pub use datagram::{Outgoing, ReceivedDatagram};
pub use endpoint::{Accepted, Endpoint, EndpointId, How, Kind, Readiness};
pub use errors::ErrorReceived;
pub use keys::PeerKey;
pub use open::{AttachError, RequestError, Token};
pub use relay::Served;
pub use rustix::io::Errno;
pub use session::{Session, WayOut};
pub use shm::census::{CensusLine, Kind as SocketKind, Reason, Subject};
pub use shm::descriptor::{DatagramFlags, ErrorReport};
pub use shm::request::{
    Addresses, ConnectOptions, ConnectionCounts, ConnectionInfo, ConnectionProgress,
    ConnectionRates, OptionName, Stamp,
};
pub use stream::Wish;
