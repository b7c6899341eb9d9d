//! The engine: ports, stack and shared-memory endpoints in one polling loop, and the control
//! thread that lets programs attach.
//!
//! It does what no client may be trusted with: every descriptor is copied once and checked,
//! buffer ownership is kept in private memory, the right to a port is checked with the kernel. It
//! knows nothing of the programs' sockets (that is `client`'s) and nothing of protocols (that is
//! `stack`'s).
//!
//! Start reading at [`worker::Worker::turn`], then [`control`], then [`service`].
#![forbid(unsafe_code)]

pub mod account;
mod check;
mod claims;
mod closing;
pub mod config;
pub mod control;
mod datagram;
pub mod diag;
mod due;
pub mod ending;
mod endpoint;
mod errno;
mod errors;
mod events;
mod info;
pub mod kernel;
mod lane;
mod linger;
mod listener;
mod occupancy;
mod pages;
pub mod passing;
mod pool;
pub mod privileges;
mod promises;
mod receive;
mod registered;
mod requests;
mod room;
pub mod rules;
mod send;
pub mod service;
pub mod session;
mod sessions;
pub mod share;
mod shown;
mod signing;
mod sleep;
mod spans;
pub mod ss;
mod stalled;
pub mod stats;
mod transmit;
pub mod trial;
mod unattended;
pub mod worker;

pub use stack::api::{Cidr, Destination, Ipv6Mode, Metrics};

pub use config::{Accelerated, EngineConfig, Limits, Poll, PortSetup, TcpSettings};
pub use errors::{ConservationError, EngineError, TooManyPorts, TrialOver};
pub use service::{Engine, StartError, StopHandle, check_core};
pub use wire::message::VERSION as MESSAGE_PROTOCOL;
pub use worker::{Activity, Worker, WorkerConfig};
