//! Packet scripts: what a program calls and what is on the wire, line by line, with times. A
//! script runs against our stack under virtual time, through the same socket layer that programs
//! use, and against the kernel of the machine in real time, so that what it expects is known to
//! be what Linux does.
//!
//! The language is a subset of packetdrill's; [docs/scripts.md](../../../docs/scripts.md)
//! describes it. It does not run other people's packetdrill scripts to the letter; that is what
//! the adapter in `bindings/packetdrill` is for.
//!
//! Start reading at [`script::Script`], then [`run::run`].
#![forbid(unsafe_code)]

mod calls;
mod compare;
mod control;
mod errors;
pub mod frame;
mod layers;
pub mod linux;
pub mod many;
mod messages;
mod names;
pub mod ours;
mod parse;
pub mod run;
pub mod script;
pub mod system;

pub use control::address_bytes;
pub use errors::{FrameError, ParseError, RunError, Unsupported};
