//! The protocol core, sans-IO: frames, requests and time go in; frames, payload and events come out.
//!
//! It has no threads, clocks, system calls or randomness of its own, and nothing on the path of a
//! packet allocates. It works on headers and byte ranges: payload of streams lies with the caller
//! (the engine), who stores received bytes through [`Sink`](api::Sink) and gathers sent bytes for a
//! [`Transmit`](api::Transmit) itself, fusing copies with checksums. Every object is plain data
//! that can be exported and imported.
//!
//! What it does not do: it never copies payload of streams, never waits, and never decides what a
//! program may listen on (the engine checks that).
//!
//! Start reading at [`Stack`].
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

pub mod api;
mod arena;
mod autoconf;
pub mod drops;
pub mod flow;
mod groups;
mod in_order;
mod ip_options;
mod limits;
pub mod message;
mod neighbor;
mod path_mtu;
mod reassembly;
pub mod route;
mod stack;
pub mod tcp;
pub mod timer;
mod udp;

pub use limits::Limits;
pub use stack::{Config, HEADER_MAX, ImportError, Keys, SocketInfo, Stack, UdpInfo, UdpLevels};
