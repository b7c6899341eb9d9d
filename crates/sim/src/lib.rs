//! Whole systems in one thread under virtual time: engines with their stacks, the shared-memory
//! contract, the client core and programs on top, a link that loses, repeats, reorders and
//! corrupts, an adversary, and onlookers who check from outside.
//!
//! Everything follows from a seed, also which features a run has at all: [`swarm::Swarm`].
//! A run has two phases: with faults (nothing wrong may happen) and without (everything open
//! must end). It does not simulate time spent computing, sleeping and waking (loom's), or the
//! kernel's side of ports (theirs).
//!
//! Start reading at [`Sim::run`], then [`program::Program::step`].
#![forbid(unsafe_code)]

pub mod adversary;
pub mod congestion;
pub mod connections;
pub mod contexts;
pub mod coverage;
pub mod digest;
pub mod frames;
pub mod hashes;
pub mod host;
pub mod messages;
pub mod network;
pub mod pattern;
pub mod port;
pub mod program;
pub mod random;
pub mod runner;
pub mod scale;
mod seen;
mod sim;
pub mod swarm;
mod violation;
pub mod witness;

pub use runner::{Failure, check, range, run};
pub use sim::{Break, Report, Settings, Sim};
pub use violation::Violation;
