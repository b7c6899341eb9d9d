//! A program that receives or sends datagrams, one in each call, as iperf does.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use lab::failure::{Explain, Failure, Result};
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};

use super::{Outcome, POLL_LIMIT, Phase, Progress, Window, lost};
use crate::bench::usage::Meter;

/// Calls before the clock is looked at.
const TURN: usize = 64;

/// What is done with datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DatagramAction {
    /// They are received.
    Receive,
    /// They are received into a byte, so that the copy to the program is left out.
    Discard,
    /// The socket is there, and nobody receives.
    Ignore,
    /// They are sent.
    Send,
}

impl DatagramAction {
    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Discard => "discard",
            Self::Ignore => "ignore",
            Self::Send => "send",
        }
    }
}

/// Arguments of `bench load datagrams`.
#[derive(Clone, Debug, clap::Args)]
pub struct Datagrams {
    /// Where they come, or go
    address: SocketAddr,
    /// What is done with them
    #[arg(long, default_value = "receive")]
    action: DatagramAction,
    /// Payload of each
    #[arg(long)]
    bytes: usize,
    /// The kernel's TAP by which they leave: its frames are counted, because it drops what it has no room
    /// for and the socket does not hear of it
    #[arg(long)]
    interface: Option<String>,
    /// Times
    #[command(flatten)]
    window: Window,
}

/// Frames that have left by an interface of this network namespace.
fn frames_sent(interface: &str) -> Result<u64> {
    let path = "/proc/thread-self/net/dev";
    let table =
        std::fs::read_to_string(path).explain(format!("cannot read {path}"), "mount /proc")?;
    let mut lines = table.lines().filter_map(|line| line.trim().split_once(':'));
    let found = lines.find(|(name, _)| *name == interface);
    // Eight columns of what was received, then bytes and packets that were sent.
    let count = found.and_then(|(_, numbers)| numbers.split_whitespace().nth(9)?.parse().ok());
    count.ok_or_else(|| Failure::new(format!("{path} lacks {interface}"), "report this"))
}

/// Runs the load. Each operation is a datagram of the said length.
pub fn run(load: &Datagrams) -> Result<Outcome> {
    let meter = Meter::open(&load.window.sources)?;
    let mut poll = Poll::new().explain("cannot poll", "report this")?;
    let sends = load.action == DatagramAction::Send;
    let local = match sends {
        true => (Ipv4Addr::UNSPECIFIED, 0).into(),
        false => load.address,
    };
    let mut socket = UdpSocket::bind(local)
        .explain(format!("cannot bind {local}"), "choose an address of this host")?;
    if sends {
        let advice = "see whether there is a route";
        socket
            .connect(load.address)
            .explain(format!("cannot connect to {}", load.address), advice)?;
    }
    let interest = if sends { Interest::WRITABLE } else { Interest::READABLE };
    poll.registry()
        .register(&mut socket, Token(0), interest)
        .explain("cannot watch the socket", "report this")?;
    let mut events = Events::with_capacity(16);
    // A longer datagram than was said would be seen.
    let mut room = vec![0x5a; load.bytes + 1];
    let mut outcome = Outcome::default();
    let mut progress = Progress::begin(meter, &load.window);
    let mut left = None;
    loop {
        let phase = progress.at(Instant::now())?;
        if phase == Phase::Over {
            break;
        }
        if let (Phase::Window, None, Some(interface)) = (phase, left, &load.interface) {
            left = Some(frames_sent(interface)?);
        }
        let mut must_wait = false;
        for _ in 0..TURN {
            let (done, expected) = match load.action {
                DatagramAction::Receive => (socket.recv(&mut room), load.bytes),
                DatagramAction::Discard => (socket.recv(&mut room[..1]), 1),
                DatagramAction::Send => (socket.send(&room[..load.bytes]), load.bytes),
                DatagramAction::Ignore => (Err(ErrorKind::WouldBlock.into()), 0),
            };
            match done {
                Ok(bytes) if phase == Phase::Window && bytes == expected => {
                    outcome.bytes += load.bytes as u64;
                    outcome.operations += 1;
                }
                Ok(bytes) => outcome.errors += u64::from(bytes != expected),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    must_wait = true;
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&error)),
            }
        }
        if must_wait {
            match poll.poll(&mut events, Some(POLL_LIMIT)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                polled => polled.explain("cannot poll", "report this")?,
            }
        }
    }
    if let (Some(begun), Some(interface)) = (left, &load.interface) {
        outcome.operations = frames_sent(interface)?.saturating_sub(begun);
        outcome.bytes = outcome.operations * load.bytes as u64;
    }
    outcome.usage = progress.usage()?;
    Ok(outcome)
}
