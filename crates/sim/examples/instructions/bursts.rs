//! Messages between two message cores that hand each other their packets: the protocol and the
//! matching, without sessions, ports and packet headers.

use stack::message::{
    Address, Core, CoreConfig, EndpointId, EndpointOptions, Host, Memory, MessageEvent,
    PathAddresses, PayloadPlace, ReceiveRequest, Selector, SendRequest, Unexpected,
};

/// Messages of a burst; they share packets and an acknowledgement.
pub const BURST: u32 = 16;
/// Bytes of a packet behind UDP.
const ROOM: u16 = 1472;
/// Time of a step, nanoseconds.
const STEP_NS: u64 = 2_000;
/// Steps that a burst may take.
const STEPS_MAX: u32 = 1_000;

/// The same few bytes for every operation.
struct Bytes([u8; 128]);

impl Memory for Bytes {
    fn read(&mut self, _: PayloadPlace, offset: u32, out: &mut [u8]) {
        out.copy_from_slice(&self.0[offset as usize..][..out.len()]);
    }

    fn write(&mut self, _: PayloadPlace, offset: u32, bytes: &[u8]) {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn copy(&mut self, _: PayloadPlace, _: PayloadPlace, _: u32, _: u32) {
        unreachable!("every receive is posted before its message");
    }

    fn reserve(&mut self, _: EndpointId, _: u32) -> Option<u64> {
        unreachable!("every receive is posted before its message")
    }

    fn release(&mut self, _: u64) {}
}

struct End {
    core: Core,
    endpoint: EndpointId,
    /// The other end.
    peer: Address,
    /// Operations that have ended.
    ended: u32,
}

impl End {
    fn new(number: u8) -> Self {
        let incarnation = 1_000 + u64::from(number);
        let mut core = Core::new(CoreConfig { incarnation, hosts: 1, seed: [5, 6] });
        let addresses = PathAddresses { local: [number; 16], remote: [1 - number; 16] };
        let host: Host = core.add_host(addresses, ROOM).expect("there is room for one host");
        let options = EndpointOptions {
            port: 7,
            key: Some(*b"key of the count"),
            unexpected: Unexpected::Buffer,
            envelopes: BURST,
            operations: BURST,
        };
        let endpoint = core.open(1, options).expect("the port is free");
        Self { core, endpoint, peer: Address { host, port: 7 }, ended: 0 }
    }
}

struct Pair {
    now: u64,
    ends: [End; 2],
    memory: Bytes,
    packet: [u8; ROOM as usize],
}

impl Pair {
    /// Carries packets until there are none.
    fn settle(&mut self) {
        let (now, memory) = (self.now, &mut self.memory);
        let [mut from, mut to] = self.ends.each_mut();
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for _ in 0..2 {
                while let Some(packet) = from.core.poll_transmit(now, &mut self.packet, memory) {
                    to.core.on_frame(now, to.peer.host, &self.packet[..packet.len], memory);
                    moved = true;
                }
                std::mem::swap(&mut from, &mut to);
            }
        }
        for end in &mut self.ends {
            while let Some(event) = end.core.poll_event() {
                let ended =
                    matches!(event, MessageEvent::Sent { .. } | MessageEvent::Received { .. });
                end.ended += u32::from(ended);
            }
        }
    }

    fn burst(&mut self, len: u32) {
        let [sender, receiver] = &mut self.ends;
        for at in 0..BURST {
            let cookie = u64::from(at);
            let source = Some(receiver.peer);
            let selector = Selector { source, tag: Some(cookie), ignore: 0 };
            let request = ReceiveRequest { selector, capacity: len, window: len, cookie };
            let posted =
                receiver.core.receive(self.now, receiver.endpoint, request, &mut self.memory);
            posted.expect("as many as the endpoint may have");
        }
        for at in 0..BURST {
            let cookie = u64::from(at);
            let request = SendRequest {
                to: sender.peer,
                tag: Some(cookie),
                immediate: None,
                length: len,
                available: len,
                delivery: false,
                cookie,
            };
            let sent = sender.core.send(self.now, sender.endpoint, request, &mut self.memory);
            sent.expect("as many as the endpoint may have");
        }
        for _ in 0..STEPS_MAX {
            self.settle();
            if self.ends.iter().all(|end| end.ended == BURST) {
                self.ends.iter_mut().for_each(|end| end.ended = 0);
                return;
            }
            self.now += STEP_NS;
            for end in &mut self.ends {
                end.core.on_timers(self.now, &mut self.memory);
            }
        }
        panic!("the burst has not ended");
    }
}

/// Bursts of messages of `len` bytes to receives that wait for their tags.
pub fn between_cores(len: u32) -> impl FnMut() {
    let ends = [End::new(0), End::new(1)];
    let mut pair =
        Pair { now: 1_000_000, ends, memory: Bytes([7; 128]), packet: [0; ROOM as usize] };
    move || pair.burst(len)
}
