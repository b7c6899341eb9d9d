//! Outboard's command line, as a library shared with the tests.
//!
//! `main` parses the command line and calls the module of the command. What the demo and the
//! tests share, two hosts on one machine, is [`lab`]. Nothing here touches a region, nor a frame but
//! for [`relay`]: the command line starts engines, asks them questions and shows the answers.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// Writes a line to standard output. A reader that has gone away is no error; println! would panic.
macro_rules! tell {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

pub mod commands;
pub mod config;
pub mod cubic;
pub mod demo;
pub mod failure;
pub mod firewall;
pub mod kernel_sockets;
pub mod lab;
pub mod lists;
pub mod loss;
pub mod observer;
pub mod privileges;
pub mod relay;
pub mod relayed;
pub mod scale;
pub mod systemd;
pub mod users;
