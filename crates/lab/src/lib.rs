//! A laboratory of two hosts on one machine: two network namespaces joined by virtual links, each
//! pinned to a core of its own, so that a core's busy time is the whole cost of its host.
//!
//! Everything made here is removed with the [`Lab`], even when its process is killed: a guard
//! process waits for that and cleans up, and the next laboratory removes what a killed guard has
//! left. Programs run in sessions of their own with a raised scheduling-group weight, so that
//! other work on the machine disturbs them little.
//!
//! Measuring commands and tests share this crate. It knows an engine from outside only: it starts
//! an executable and asks it over its control socket ([`observer`]).
//!
//! Start reading at [`Lab`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cpu;
pub mod cubic;
pub mod failure;
pub mod figures;
mod hosts;
pub mod nginx;
pub mod observer;
mod outside;
pub mod parse;
mod placement;
pub mod program;
pub mod relay;
mod serving;

pub use hosts::{Host, Lab, Link, PROGRAMS, Side, Traffic, find, require_programs, require_root};
pub use placement::{Placement, ReceiveWork};
pub use program::{Finished, Program, Task};
pub use serving::{READY, listens, serves};
