//! Peers of a memif that lie: clients of the engine's server, who bring memory and go on writing to it,
//! and servers of its client. Whatever they say and write, the engine answers, disconnects them or drops
//! a frame, and never leaves the memory that it was shown.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use port::memif::client::{ClientHandshake, ClientRings, ClientStep};
use port::memif::server::{ServerHandshake, ServerStep};
use port::memif::{AddRing, Came, Hello, MESSAGE_BYTES, MemifMessage, MemifRings};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// Bytes of the memory that a client brings.
const MEMORY_BYTES: u64 = 16 << 10;
/// Longest frame that the engine takes.
const FRAME_BYTES: usize = 1518;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn short(&mut self) -> u16 {
        u16::from(self.byte()) << 8 | u16::from(self.byte())
    }

    fn word(&mut self) -> u32 {
        match self.byte() % 4 {
            0 => u32::from(self.short()) << 16 | u32::from(self.short()),
            1 => u32::MAX - u32::from(self.byte()),
            2 => MEMORY_BYTES as u32 - u32::from(self.byte()),
            _ => u32::from(self.short()) % MEMORY_BYTES as u32,
        }
    }

    /// A message of any kind, well-formed or not.
    fn message(&mut self) -> [u8; MESSAGE_BYTES] {
        let message = match self.byte() % 12 {
            0 => MemifMessage::Ack,
            1 => MemifMessage::Hello(Hello {
                oldest: self.short(),
                newest: self.short(),
                last_region: self.short(),
                last_rings: [self.short(), self.short()],
                log2_slots: self.byte(),
            }),
            2 => MemifMessage::Init {
                version: if self.byte().is_multiple_of(8) { self.short() } else { 0x200 },
                id: u32::from(self.byte() % 2),
                mode: self.byte() / 128,
                secret: [0; 24],
            },
            3 | 4 => MemifMessage::AddRegion {
                index: u16::from(self.byte() % 4),
                bytes: match self.byte() % 4 {
                    0 => u64::from(self.word()) << 16,
                    1 => self.word().into(),
                    _ => MEMORY_BYTES,
                },
            },
            5..=8 => MemifMessage::AddRing(AddRing {
                to_server: self.byte().is_multiple_of(2),
                index: u16::from(self.byte() / 250),
                region: u16::from(self.byte() % 3),
                offset: match self.byte() % 4 {
                    0 => self.word(),
                    _ => u32::from(self.byte() % 4) * 1024,
                },
                log2_slots: self.byte() % 8,
                private_bytes: u16::from(self.byte() / 250),
            }),
            9 => MemifMessage::Connect,
            10 => MemifMessage::Connected,
            _ => MemifMessage::Disconnect("fuzz".into()),
        };
        let mut bytes = message.encode();
        if self.byte().is_multiple_of(8) {
            let at = usize::from(self.byte()) % bytes.len();
            bytes[at] = self.byte();
        }
        bytes
    }
}

thread_local! {
    /// Memory that is sealed, and memory that is not.
    static MEMORY: RefCell<Option<[File; 2]>> = const { RefCell::new(None) };
}

/// The files that clients bring, with rings at every KiB and nothing else in them.
fn memory() -> [File; 2] {
    MEMORY.with_borrow_mut(|kept| {
        let files = kept.get_or_insert_with(|| {
            [true, false].map(|is_sealed| {
                let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
                let file = File::from(memfd_create("fuzz", flags).expect("a memfd"));
                file.set_len(MEMORY_BYTES).expect("its size");
                if is_sealed {
                    fcntl_add_seals(&file, SealFlags::SHRINK).expect("a seal");
                }
                file
            })
        });
        let mut blank = vec![0; MEMORY_BYTES as usize];
        for ring in blank.chunks_mut(1024) {
            ring[..4].copy_from_slice(&0x3e3_1f20u32.to_ne_bytes());
        }
        files[0].write_all_at(&blank, 0).expect("its bytes");
        files.each_ref().map(|file| file.try_clone().expect("a descriptor"))
    })
}

/// Changes some of what a peer has mapped: a position, a descriptor, or anything.
fn scribble(file: &File, rings_at: &[u64], input: &mut Input<'_>) {
    let ring = rings_at[usize::from(input.byte()) % rings_at.len()];
    let (at, value) = match input.byte() % 8 {
        0 | 1 => (ring + 6, u32::from(input.short() % 300)),
        2 => (ring + 64, u32::from(input.short() % 300)),
        3 => (u64::from(input.word()), input.word()),
        4 => (ring + 128 + u64::from(input.byte()) * 16, input.word() & 0x2_0003),
        5 => (ring + 132 + u64::from(input.byte()) * 16, u32::from(input.short() % 2048)),
        _ => (ring + 136 + u64::from(input.byte()) * 16, input.word()),
    };
    let bytes = value.to_ne_bytes();
    // Positions are two bytes.
    let len = if at == ring + 6 || at == ring + 64 { 2 } else { 4 };
    if at + len as u64 <= file.metadata().expect("its size").len() {
        file.write_all_at(&bytes[..len], at).expect("its bytes");
    }
}

/// What the worker does with a connected peer. `false`: the peer broke the protocol.
fn turn(rings: &mut dyn MemifRings, input: &mut Input<'_>) -> bool {
    let mut room = [0xee; FRAME_BYTES + 8];
    for _ in 0..8 {
        match rings.take(&mut room[..FRAME_BYTES]) {
            Ok((Came::Nothing, _)) => break,
            Ok((Came::Unusable, buffers)) => assert!((1..=64).contains(&buffers)),
            Ok((Came::Frame(len), buffers)) => {
                assert!((1..=FRAME_BYTES).contains(&len) && (1..=64).contains(&buffers));
            }
            Err(broken) => {
                assert!(!broken.to_string().is_empty());
                return false;
            }
        }
    }
    assert!(room.ends_with(&[0xee; 8]), "written beyond the room");
    rings.free_taken();
    for _ in 0..input.byte() % 4 {
        let frame = vec![7; usize::from(input.short()) % FRAME_BYTES + 1];
        if rings.put(&frame).is_err() {
            return false;
        }
    }
    rings.publish();
    true
}

/// A client of the engine's server.
fn client(input: &mut Input<'_>) {
    let files = memory();
    let mut server = ServerHandshake::new(0, None);
    let mut rings = None;
    while !input.0.is_empty() {
        if let Some(rings) = &mut rings {
            for _ in 0..input.byte() % 8 {
                scribble(&files[0], &[0, 1024, 2048, 3072], input);
            }
            if !turn(rings, input) {
                return;
            }
            continue;
        }
        let bytes = input.message();
        let Some(message) = MemifMessage::read(&bytes) else { continue };
        if !matches!(message, MemifMessage::Disconnect(_)) {
            assert_eq!(MemifMessage::read(&message.encode()).as_ref(), Some(&message));
        }
        let which = usize::from(input.byte().is_multiple_of(16));
        let shown = OwnedFd::from(files[which].try_clone().expect("a descriptor"));
        let count = message.descriptors();
        match server.hear(message, [shown].into_iter().take(count).collect()) {
            Ok(ServerStep::Connected(connected)) => rings = Some(*connected),
            Ok(ServerStep::Nothing | ServerStep::Acknowledge) => {}
            Err(why) => {
                assert!(!why.to_string().is_empty());
                return;
            }
        }
    }
}

/// A server of the engine's client.
fn server(input: &mut Input<'_>) {
    let mut client = ClientHandshake::new(0, Some("sesame"));
    let mut steps = 0;
    loop {
        if input.0.is_empty() {
            return;
        }
        // Mostly what is due, or nobody would come to the rings.
        let message = match (input.byte(), steps) {
            (0..32, _) => MemifMessage::read(&input.message()),
            (_, 0) => {
                let (oldest, newest) = (0x200, 0x200);
                let log2_slots = 10 + input.byte() % 4;
                Some(MemifMessage::Hello(Hello {
                    oldest,
                    newest,
                    last_region: 0,
                    last_rings: [0; 2],
                    log2_slots,
                }))
            }
            (_, 1..=4) => Some(MemifMessage::Ack),
            _ => Some(MemifMessage::Connected),
        };
        let Some(message) = message else { continue };
        match client.hear(&message) {
            Ok(ClientStep::Say(next)) => {
                assert_eq!(MemifMessage::read(&next.encode()), Some(next));
                steps += 1;
            }
            Ok(ClientStep::Connected) => break,
            Err(why) => {
                assert!(!why.to_string().is_empty());
                return;
            }
        }
    }
    let (mut rings, file) = ClientRings::create().expect("memory");
    let file = File::from(file.as_fd().try_clone_to_owned().expect("a descriptor"));
    rings.offer();
    let rings_at = [0, 128 + 1024 * 16];
    while !input.0.is_empty() {
        for _ in 0..input.byte() % 8 {
            scribble(&file, &rings_at, input);
        }
        if !turn(&mut rings, input) {
            return;
        }
    }
}

/// The first byte says which side the peer is.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() % 4 {
        0 => server(&mut input),
        _ => client(&mut input),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_engine_survives_thousands_of_lying_peers() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..5000usize {
            let data: Vec<u8> = (0..round % 600)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 24) as u8
                })
                .collect();
            super::run(&data);
        }
    }
}
