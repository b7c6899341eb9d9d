//! A program that receives datagrams, one in each call, as iperf does.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Instant;

use lab::failure::{Explain, Result};
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};

use super::{Outcome, POLL_LIMIT, Phase, Progress, Window, lost};
use crate::bench::usage::Meter;

/// Calls before the clock is looked at.
const TURN: usize = 64;
/// Largest datagram.
const BYTES_MAX: usize = 65_536;

/// Runs the load.
pub fn run(address: SocketAddr, window: &Window) -> Result<Outcome> {
    let meter = Meter::open(&window.sources)?;
    let mut poll = Poll::new().explain("cannot poll", "report this")?;
    let mut socket = UdpSocket::bind(address)
        .explain(format!("cannot bind {address}"), "choose an address of this host")?;
    poll.registry()
        .register(&mut socket, Token(0), Interest::READABLE)
        .explain("cannot watch the socket", "report this")?;
    let mut events = Events::with_capacity(16);
    let mut room = vec![0; BYTES_MAX];
    let mut outcome = Outcome::default();
    let mut progress = Progress::begin(meter, window);
    loop {
        let phase = progress.at(Instant::now())?;
        if phase == Phase::Over {
            break;
        }
        let mut is_empty = false;
        for _ in 0..TURN {
            match socket.recv(&mut room) {
                Ok(bytes) if phase == Phase::Window => {
                    outcome.bytes += bytes as u64;
                    outcome.operations += 1;
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    is_empty = true;
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&error)),
            }
        }
        if is_empty {
            match poll.poll(&mut events, Some(POLL_LIMIT)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                polled => polled.explain("cannot poll", "report this")?,
            }
        }
    }
    outcome.usage = progress.usage()?;
    Ok(outcome)
}
