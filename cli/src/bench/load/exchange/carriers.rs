//! What carries the packets of the protocol in the program: datagrams of whoever serves the socket, or
//! raw frames of an engine.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use client::Session;
use client::raw::{Raw, RawReceiver, RawSender, RawSpec};
use lab::failure::{Explain, Failure, Result};
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};

use super::ExchangeArguments;

const ADVICE: &str = "look at the other side";
/// Packets taken at a time.
const BURST: usize = 64;
/// Largest packet.
const PACKET_BYTES: usize = 2048;

/// What carries packets from one side to the other.
pub(super) trait PacketCarrier {
    /// Takes a packet in two pieces; `false`: there is no room now.
    fn send(&mut self, header: &[u8], payload: &[u8]) -> Result<bool>;
    /// Gives what came, at most a burst; whether there was anything.
    fn receive(&mut self, packet: &mut dyn FnMut(&[u8])) -> Result<bool>;
    /// Lets go what was taken.
    fn flush(&mut self) -> Result<()>;
    /// Waits for packets, at most so long.
    fn wait(&mut self, at_most: Duration) -> Result<()>;
}

/// A UDP socket. Side B answers whom its first datagram comes from.
pub(super) struct DatagramCarrier {
    socket: UdpSocket,
    poll: Poll,
    events: Events,
    is_connected: bool,
    packet: Vec<u8>,
}

impl DatagramCarrier {
    pub fn open(arguments: &ExchangeArguments) -> Result<Self> {
        let poll = Poll::new().explain("cannot poll", "report this")?;
        let mut socket = UdpSocket::bind(arguments.local).explain(
            format!("cannot bind {}", arguments.local),
            "choose an address of this host",
        )?;
        poll.registry()
            .register(&mut socket, Token(0), Interest::READABLE)
            .explain("cannot watch the socket", "report this")?;
        let is_connected = !arguments.serve;
        if is_connected {
            socket.connect(arguments.address).explain("cannot connect", ADVICE)?;
        }
        let (events, packet) = (Events::with_capacity(4), vec![0; PACKET_BYTES]);
        Ok(Self { socket, poll, events, is_connected, packet })
    }
}

/// Whether there is nothing, or no room, rather than an error.
fn is_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl PacketCarrier for DatagramCarrier {
    fn send(&mut self, header: &[u8], payload: &[u8]) -> Result<bool> {
        let whole = [header, payload].concat();
        match self.socket.send(&whole) {
            Ok(_) => Ok(true),
            Err(error) if is_later(&error) => Ok(false),
            // The other side is not there yet or any more: the protocol sends again.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
            Err(error) => Err(Failure::new(format!("cannot send: {error}"), ADVICE)),
        }
    }

    fn receive(&mut self, packet: &mut dyn FnMut(&[u8])) -> Result<bool> {
        for count in 0..BURST {
            let (bytes, from) = match self.socket.recv_from(&mut self.packet) {
                Ok(received) => received,
                Err(error) if is_later(&error) => return Ok(count > 0),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(Failure::new(format!("cannot receive: {error}"), ADVICE)),
            };
            if !self.is_connected {
                self.socket.connect(from).explain("cannot connect", ADVICE)?;
                self.is_connected = true;
            }
            packet(self.packet.get(..bytes).unwrap_or_default());
        }
        Ok(true)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn wait(&mut self, at_most: Duration) -> Result<()> {
        match self.poll.poll(&mut self.events, Some(at_most)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                Err(Failure::new(format!("cannot poll: {error}"), "report this"))
            }
            _ => Ok(()),
        }
    }
}

/// EtherType of the frames: IEEE 802 local experimental. A length follows, for short frames are padded.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Bytes before a packet.
const HEAD_BYTES: usize = 16;

/// A raw endpoint of an engine's only port. There are two hosts on the link: all goes to all.
pub(super) struct FrameCarrier {
    receiver: RawReceiver,
    sender: RawSender,
    mac: [u8; 6],
    frame: Vec<u8>,
}

impl FrameCarrier {
    pub fn open(arguments: &ExchangeArguments) -> Result<Self> {
        let (Some(engine), Some(port)) = (&arguments.engine, &arguments.port) else {
            return Err(Failure::new("no engine or port is named", "give --engine and --port"));
        };
        let session = Session::attach(engine, "outboard bench")
            .explain("cannot attach", "start an engine there")?;
        let raw = Raw::open(&session, RawSpec::port(port))
            .explain("the engine refuses raw frames", "run this as root, beside the engine")?;
        let (receiver, sender) = raw.split();
        let mac = receiver.ports().first().map(|port| port.mac).unwrap_or_default();
        Ok(Self { receiver, sender, mac, frame: Vec::with_capacity(PACKET_BYTES) })
    }
}

impl PacketCarrier for FrameCarrier {
    fn send(&mut self, header: &[u8], payload: &[u8]) -> Result<bool> {
        let len = header.len() + payload.len();
        self.frame.clear();
        self.frame.extend_from_slice(&[0xff; 6]);
        self.frame.extend_from_slice(&self.mac);
        self.frame.extend_from_slice(&ETHERTYPE);
        self.frame.extend_from_slice(&(len as u16).to_be_bytes());
        self.frame.extend_from_slice(header);
        self.frame.extend_from_slice(payload);
        let Ok(room) = self.sender.reserve(self.frame.len(), 0) else { return Ok(false) };
        room.copy_from(&self.frame);
        Ok(true)
    }

    fn receive(&mut self, packet: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut is_any = false;
        let burst = self.receiver.burst().explain("the engine has gone", ADVICE)?;
        for frame in burst {
            is_any = true;
            self.frame.resize(frame.bytes.len(), 0);
            frame.bytes.copy_to(&mut self.frame);
            let Some((head, rest)) = self.frame.split_first_chunk::<HEAD_BYTES>() else { continue };
            let [.., kind, kind_low, len, len_low] = *head;
            let len = usize::from(u16::from_be_bytes([len, len_low]));
            if [kind, kind_low] == ETHERTYPE
                && let Some(whole) = rest.get(..len)
            {
                packet(whole);
            }
        }
        Ok(is_any)
    }

    fn flush(&mut self) -> Result<()> {
        self.sender.commit().explain("the engine has gone", ADVICE)
    }

    fn wait(&mut self, at_most: Duration) -> Result<()> {
        let deadline = Instant::now() + at_most;
        self.receiver.wait(Some(deadline)).map(|_| ()).explain("the engine has gone", ADVICE)
    }
}
