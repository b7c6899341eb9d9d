//! The messages' protocol in the program itself, over datagrams or raw frames.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use lab::failure::{Explain, Failure, Result};
use stack::message::{
    Address, Core, CoreConfig, EndpointId, EndpointOptions, Host, Memory, MessageEvent, Packet,
    PathAddresses, PayloadPlace, ReceiveRequest, Selector, SendRequest, Status, Unexpected,
};

use super::carriers::{DatagramCarrier, FrameCarrier, PacketCarrier};
use super::{ExchangeArguments, ExchangeCarrier, OPENED, PATIENCE, Transport};

const ADVICE: &str = "look at the other side";
/// Tag of all messages.
const TAG: u64 = 1;
/// The job's key.
const KEY: [u8; 16] = *b"outboard bench..";
/// Bytes of a packet behind UDP's header in an Ethernet frame.
const ROOM: u16 = 1472;
/// Messages and operations under way at most.
const OPERATIONS_MAX: u32 = 256;
/// Turns without anything before the program waits.
const IDLE_TURNS: u32 = 64;
/// How long the last acknowledgements may take.
const LINGER: Duration = Duration::from_millis(50);

/// The protocol, and what carries its packets.
pub(super) struct Protocol {
    core: Core,
    endpoint: EndpointId,
    host: Host,
    /// Side B learns it with the first message.
    peer: Option<Address>,
    memory: Slots,
    carrier: Box<dyn PacketCarrier>,
    /// The last packet, which found no room, with the buffer it lies in.
    held: Option<Packet>,
    header: [u8; ROOM as usize],
    begin: Instant,
    open: usize,
}

/// The program's memory.
#[derive(Default)]
struct Slots {
    out: Vec<u8>,
    slots: Vec<Vec<u8>>,
    /// Messages that came before their receives.
    buffers: HashMap<u64, Vec<u8>>,
    next: u64,
}

impl Slots {
    fn place(&mut self, place: PayloadPlace) -> &mut [u8] {
        let found = match place {
            PayloadPlace::Send(_) => Some(&mut self.out),
            PayloadPlace::Receive(slot) => self.slots.get_mut(slot as usize),
            PayloadPlace::Buffer(buffer) => self.buffers.get_mut(&buffer),
        };
        found.map(Vec::as_mut_slice).unwrap_or_default()
    }

    fn piece(&mut self, place: PayloadPlace, offset: u32, len: usize) -> &mut [u8] {
        let start = offset as usize;
        self.place(place).get_mut(start..start.saturating_add(len)).unwrap_or_default()
    }
}

/// Copies as much as both have.
fn copy(to: &mut [u8], from: &[u8]) {
    let len = to.len().min(from.len());
    if let (Some(to), Some(from)) = (to.get_mut(..len), from.get(..len)) {
        to.copy_from_slice(from);
    }
}

impl Memory for Slots {
    fn read(&mut self, from: PayloadPlace, offset: u32, out: &mut [u8]) {
        copy(out, self.piece(from, offset, out.len()));
    }

    fn write(&mut self, to: PayloadPlace, offset: u32, bytes: &[u8]) {
        copy(self.piece(to, offset, bytes.len()), bytes);
    }

    fn copy(&mut self, from: PayloadPlace, to: PayloadPlace, offset: u32, length: u32) {
        let bytes = self.piece(from, offset, length as usize).to_vec();
        self.write(to, offset, &bytes);
    }

    fn reserve(&mut self, _: EndpointId, length: u32) -> Option<u64> {
        self.next += 1;
        self.buffers.insert(self.next, vec![0; length as usize]);
        Some(self.next)
    }

    fn release(&mut self, buffer: u64) {
        self.buffers.remove(&buffer);
    }
}

impl Protocol {
    pub fn open(arguments: &ExchangeArguments) -> Result<Self> {
        let carrier: Box<dyn PacketCarrier> = match arguments.carrier {
            ExchangeCarrier::Frames => Box::new(FrameCarrier::open(arguments)?),
            _ => Box::new(DatagramCarrier::open(arguments)?),
        };
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
        let incarnation = now.map_or(1, |since| since.as_micros() as u64);
        let mut core =
            Core::new(CoreConfig { incarnation, hosts: 2, seed: [incarnation, !incarnation] });
        let refused = "the protocol refuses an endpoint";
        let [mut a, mut b] = [[0; 16]; 2];
        (a[15], b[15]) = (1, 2);
        let (local, remote) = if arguments.serve { (b, a) } else { (a, b) };
        let host =
            core.add_host(PathAddresses { local, remote }, ROOM).explain(refused, "report this")?;
        let options = EndpointOptions {
            port: arguments.local.port(),
            key: Some(KEY),
            unexpected: Unexpected::Buffer,
            envelopes: OPERATIONS_MAX,
            operations: OPERATIONS_MAX,
        };
        let endpoint = core.open(1, options).explain(refused, "report this")?;
        let port = arguments.address.port();
        let peer = (!arguments.serve).then_some(Address { host, port });
        if arguments.serve {
            tell!("{OPENED}");
        }
        Ok(Self {
            core,
            endpoint,
            host,
            peer,
            memory: Slots::default(),
            carrier,
            held: None,
            header: [0; ROOM as usize],
            begin: Instant::now(),
            open: 0,
        })
    }

    /// Time of the core, which begins at 1.
    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64 + 1
    }

    /// Takes what came, does what is due, sends what is to be sent. Whether anything was done.
    fn turn(&mut self) -> Result<bool> {
        let now = self.now();
        let Self { core, host, memory, carrier, .. } = self;
        if core.next_deadline().is_some_and(|deadline| deadline <= now) {
            core.on_timers(now, memory);
        }
        let mut is_busy =
            carrier.receive(&mut |packet| core.on_frame(now, *host, packet, memory))?;
        loop {
            let next = match self.held.take() {
                Some(packet) => Some(packet),
                None => self.core.poll_transmit(now, &mut self.header, &mut self.memory),
            };
            let Some(packet) = next else { break };
            let header = self.header.get(..packet.len).unwrap_or_default();
            let payload = match packet.payload {
                Some(range) => {
                    let place = PayloadPlace::Send(range.cookie);
                    &*self.memory.piece(place, range.offset, range.len)
                }
                None => &[],
            };
            if !self.carrier.send(header, payload)? {
                self.held = Some(packet);
                break;
            }
            is_busy = true;
        }
        self.carrier.flush()?;
        while let Some(event) = self.core.poll_event() {
            is_busy = true;
            match event {
                MessageEvent::Sent { status: Status::Ok, .. } => self.open -= 1,
                MessageEvent::Received { status: Status::Ok, envelope, .. } => {
                    self.open -= 1;
                    self.peer = self.peer.or(envelope.map(|it| it.source));
                }
                MessageEvent::Sent { .. } | MessageEvent::Received { .. } => {
                    return Err(Failure::new(format!("{event:?}"), ADVICE));
                }
                MessageEvent::Arrived { .. }
                | MessageEvent::Part { .. }
                | MessageEvent::Wanted { .. }
                | MessageEvent::Closed { .. } => {}
            }
        }
        Ok(is_busy)
    }

    /// Turns until something has ended.
    fn await_one(&mut self) -> Result<()> {
        let (open, deadline) = (self.open, Instant::now() + PATIENCE);
        let mut idle = 0;
        while self.open == open {
            if self.turn()? {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle < IDLE_TURNS || self.held.is_some() {
                std::hint::spin_loop();
                continue;
            }
            if Instant::now() >= deadline {
                return Err(Failure::new(format!("nothing came within {PATIENCE:?}"), ADVICE));
            }
            let due = self.core.next_deadline().map(|at| at.saturating_sub(self.now()));
            self.carrier.wait(due.map_or(PATIENCE, Duration::from_nanos).min(PATIENCE))?;
        }
        Ok(())
    }
}

impl Transport for Protocol {
    fn prepare(&mut self, slots: usize, bytes: usize) -> Result<()> {
        self.memory.out = vec![0; bytes];
        self.memory.slots = vec![vec![0; bytes]; slots];
        Ok(())
    }

    fn fill(&mut self, bytes: &[u8]) {
        copy(&mut self.memory.out, bytes);
    }

    fn receive(&mut self, slot: usize, bytes: usize) -> Result<()> {
        let selector = Selector { source: None, tag: Some(TAG), ignore: 0 };
        let (capacity, cookie) = (bytes as u32, slot as u64);
        let request = ReceiveRequest { selector, capacity, window: capacity, cookie };
        let now = self.now();
        self.core
            .receive(now, self.endpoint, request, &mut self.memory)
            .explain("cannot receive", ADVICE)?;
        self.open += 1;
        Ok(())
    }

    fn send(&mut self, bytes: usize) -> Result<()> {
        let Some(to) = self.peer else {
            return Err(Failure::new("the other side is not known yet", "report this"));
        };
        let length = bytes as u32;
        let request = SendRequest {
            to,
            tag: Some(TAG),
            immediate: None,
            length,
            available: length,
            delivery: false,
            cookie: 0,
        };
        let now = self.now();
        self.core
            .send(now, self.endpoint, request, &mut self.memory)
            .explain("cannot send", ADVICE)?;
        self.open += 1;
        // It leaves at once.
        self.turn().map(|_| ())
    }

    fn finish(&mut self) -> Result<()> {
        while self.open > 0 {
            self.await_one()?;
        }
        Ok(())
    }

    fn received(&self, slot: usize, bytes: usize) -> Vec<u8> {
        let whole = self.memory.slots.get(slot).map_or(&[][..], Vec::as_slice);
        whole.get(..bytes).unwrap_or_default().to_vec()
    }

    /// The other side may still wait for an acknowledgement.
    fn linger(&mut self) -> Result<()> {
        let end = Instant::now() + LINGER;
        while Instant::now() < end {
            if !self.turn()? {
                self.carrier.wait(LINGER / 10)?;
            }
        }
        Ok(())
    }
}
