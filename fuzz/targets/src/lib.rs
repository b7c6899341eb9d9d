//! The bodies of the fuzz targets, as plain functions: the fuzzer's binaries in `fuzz/` call
//! them, and so does the test that replays the corpora with the stable compiler.
//!
//! To add a target: a module here with `pub fn run(data: &[u8])`, a line in [`TARGETS`], a file
//! in `fuzz/fuzz_targets`, a `[[bin]]` in `fuzz/Cargo.toml`, a few small inputs in
//! `fuzz/corpus/NAME`. A target panics when what it promises does not hold.
#![forbid(unsafe_code)]

pub mod control_messages;
pub mod hostile_client;
pub mod hostile_region;
pub mod memif_peers;
pub mod message_commands;
pub mod message_frames;
pub mod packet_filters;
pub mod raw_rings;
pub mod stack_frames;
pub mod texts;
pub mod wire_parsers;

/// A target's body.
pub type Run = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: &[(&str, Run)] = &[
    ("control_messages", control_messages::run),
    ("hostile_client", hostile_client::run),
    ("hostile_region", hostile_region::run),
    ("memif_peers", memif_peers::run),
    ("message_commands", message_commands::run),
    ("message_frames", message_frames::run),
    ("packet_filters", packet_filters::run),
    ("raw_rings", raw_rings::run),
    ("stack_frames", stack_frames::run),
    ("texts", texts::run),
    ("wire_parsers", wire_parsers::run),
];
