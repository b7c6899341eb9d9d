//! Ports: the network attachments of the engine.
//!
//! A port is a burst interface over one network attachment ([`Port`]). Adapters: [`pair`] (in
//! memory, for simulation), [`station`] (in memory, makes or takes frames),
//! [`tap`] (a TAP device given to the engine), [`packet`] (AF_PACKET on an
//! interface whose kernel side has no address) and [`xdp`] (AF_XDP on the kernel's own interface
//! and addresses, where the engine takes only what it claims). [`trunk`] makes one port of several. Wrappers around any port: [`impair`] (loss,
//! delay, reordering, duplication, corruption, rate) and [`pcap`] (a capture that can be switched
//! on and off while the port runs). Every one of them passes the suite in
//! `tests/conformance.rs`.
//!
//! Opening and running are separate: [`open`] (privileged) returns [`PortFds`], from which
//! [`from_fds`] builds the running port, so that a broker or a successor engine can pass
//! descriptors. The addresses of a port are for the stack; they are not configured in the kernel.
//!
//! Start reading at [`Port`], then [`spec::PortSpec`], which is what a user writes.
#![warn(missing_docs)]

mod bpf;
mod copy;
mod forward;
pub mod impair;
mod interface;
pub mod kernel;
mod layers;
mod link;
pub mod memif;
pub mod netns;
pub mod open;
pub mod packet;
pub mod pair;
pub mod pcap;
pub mod sockets;
pub mod spec;
pub mod station;
mod survey;
pub mod tap;
pub mod trunk;
mod wrapper;
pub mod xdp;

pub use forward::{Forwarder, Reach};
pub use interface::*;
pub use open::{OpenError, PortFds, from_fds, open};
pub use spec::{PortSpec, SpecError};
pub use survey::{Survey, link_state, survey};
pub use wrapper::PortWrapper;
