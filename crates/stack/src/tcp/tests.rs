//! Tests of TCP as a whole: two ends over an imperfect network ([`pair`]), and one end against a
//! scripted peer ([`peer`]).

mod attack;
mod closing;
mod cookies;
mod counting;
mod ecn;
mod handshake;
mod hostile;
mod mtu;
mod options;
mod pair;
mod paths;
mod peer;
mod receiving;
mod recovering;
mod refusing;
mod sending;
mod timing;
mod transfer;
mod user_timeout;

use crate::limits::Limits;
use crate::stack::Keys;

/// Keys that differ by host and never by run.
pub(super) fn keys(host: u8) -> Keys {
    Keys {
        isn: [host; 16],
        port: [host ^ 1; 16],
        flow: [host ^ 2; 16],
        other: [host ^ 3; 16],
        ephemeral_ports: (49152, 65535),
    }
}

fn limits() -> Limits {
    Limits { connections: 256, time_waits: 64, ..Limits::default() }
}
