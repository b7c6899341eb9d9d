//! The engine inside a program: ports, stack and sockets in one thread.
//!
//! [`Inline`] opens ports, builds a worker on them and attaches the program to it. There is no other
//! process and no other thread: the protocols run while the program is in [`Inline::poll`],
//! [`Inline::wait`] or a call that asks the worker for something. Sockets never block; where a
//! call has to wait it says [`WouldBlock`](std::io::ErrorKind::WouldBlock).
//!
//! Start reading at [`Inline`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod errors;
mod host;
mod inline;
mod open;
mod sockets;

pub use client::{
    ConnectOptions, ConnectionInfo, EndpointId, How, OptionName, Readiness, ReceivedDatagram,
};
pub use engine::{Cidr, PortSetup};
pub use errors::{BindError, OpenError, RunError};
pub use inline::Inline;
pub use open::Options;
pub use port::PortSpec;
pub use sockets::{Datagram, Listener, Stream};
pub use stack::api::Ipv6Mode;
