//! Outboard's command line.
//!
//! `main` parses the command line and calls the module of the command. Nothing here touches a region
//! or a frame: the command line starts engines, asks them questions and shows the answers. Commands
//! that measure do so between the two hosts of [`lab`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// Writes a line to standard output. A reader that has gone away is no error; println! would panic.
macro_rules! tell {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

pub mod bench;
pub mod bridges;
pub mod commands;
pub mod config;
pub mod demo;
pub mod firewall;
pub mod kernel_interfaces;
pub mod kernel_sockets;
pub mod lists;
pub mod loss;
pub mod privileges;
pub mod program;
pub mod raw;
pub mod relay;
pub mod relayed;
pub mod scale;
pub mod systemd;
pub mod users;
