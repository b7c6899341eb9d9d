//! A client that puts anything into the queue of its message endpoint, and registers and gives back
//! memory meanwhile: the engine neither panics nor loses a span.

mod common;

use std::sync::Arc;

use common::{B, Net, Program, at, small};
use outboard_engine::control::exchange::{Command, Shown};
use shm::client_side::Direction;
use shm::descriptor::{DescriptorFlags, DescriptorKind, Span};
use shm::memory::{Registered, encode_piece, place};
use shm::message::{Entry, Flags};

/// SplitMix64: any seed gives a good sequence.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A place in registered memory, or nowhere.
    fn place(&mut self) -> u64 {
        let number = self.below(5) as u16;
        match self.below(4) {
            0 => place(number, self.below(8192)),
            1 => place(number, self.below(128) * 64),
            2 => place(number, 8192 - self.below(4)),
            _ => self.next(),
        }
    }
}

fn bind(net: &mut Net, program: &Program, port: u16) -> Option<u32> {
    let command = Command::BindMessages {
        session: program.key,
        serial: 1,
        context: 0,
        shown: Shown::alone(at(B, port), u64::from(port)),
        key: None,
        incarnation: 1,
    };
    let now = net.now;
    net.b.command(command, now).ok()
}

/// A command of numbers that often fit together.
fn command(random: &mut Random, list: &mut Vec<u8>) -> Entry {
    // The commands that may name registered memory, mostly.
    let kind = match random.below(32) {
        0 => random.below(256) as u8,
        1..10 => 1 + random.below(8) as u8,
        _ => [1, 2, 5][random.below(3) as usize],
    };
    let mut entry = Entry::new(kind);
    entry.flags = Flags::from_bits_truncate(random.next() as u8);
    entry.flags.set(Flags::REGISTERED, random.below(32) > 0);
    entry.ticket = random.below(4000) | random.below(3) << 32;
    entry.other = random.below(4000) | random.below(3) << 32;
    entry.tag = random.below(3);
    entry.peer = at(B, 5000 + random.below(3) as u16);
    entry.offset = if random.below(2) == 0 { 0 } else { random.place() };
    for _ in 0..random.below(4) {
        let len = [0, 1, 100, 5000, u64::from(u32::MAX)][random.below(5) as usize] as u32;
        list.extend_from_slice(&encode_piece(Span { offset: random.place(), len }));
        entry.length += u64::from(len);
    }
    if random.below(4) == 0 {
        entry.length = random.below(20_000);
        list.truncate(random.below(40) as usize);
    }
    if ![1, 2, 5].contains(&kind) && random.below(8) > 0 {
        list.clear();
    }
    entry
}

fn attack(seed: u64) -> [u64; 3] {
    let mut random = Random(seed);
    let limits = small();
    let mut net = Net::new(limits);
    let mut bad = net.b.attach(&limits);
    let mut endpoint = bind(&mut net, &bad, 5000);
    let (mut breaches, mut served) = (0, 0);
    for _ in 0..300 {
        for _ in 0..random.below(6) {
            match random.below(8) {
                0 => {
                    let number = random.below(5) as u16;
                    let memory = Arc::new(Registered::private(8192).unwrap());
                    let session = bad.key;
                    let command = Command::Register { session, serial: 1, number, memory };
                    net.b.worker.on_command(command, stack::api::Instant(net.now));
                }
                1 => {
                    let (session, number) = (bad.key, random.below(5) as u16);
                    let command = Command::Unregister { session, number };
                    net.b.worker.on_command(command, stack::api::Instant(net.now));
                }
                // Part of a command that lies in registered memory, whole or not.
                2 if random.below(8) == 0 => {
                    let Some(endpoint) = endpoint else { continue };
                    for _ in 0..=random.below(20) {
                        if bad.endpoint(endpoint).lock_send(bad.tag).unwrap().room() == 0 {
                            break;
                        }
                        let mut flags = DescriptorFlags::empty();
                        flags.set(DescriptorFlags::MORE, random.below(20) > 0);
                        let len = [0, 1, 8192, 1 << 28, u32::MAX][random.below(5) as usize];
                        let span = Span { offset: random.place(), len };
                        bad.push(endpoint, DescriptorKind::Datagram, flags, span);
                    }
                }
                _ => {
                    let Some(endpoint) = endpoint else { continue };
                    let mut list = Vec::new();
                    let mut bytes = command(&mut random, &mut list).encode().to_vec();
                    bytes.extend_from_slice(&list);
                    let len = bytes.len() as u32;
                    if bad.endpoint(endpoint).lock_send(bad.tag).unwrap().room() == 0 {
                        continue;
                    }
                    let carved = bad.lane.lock(bad.tag).unwrap().carve(len, len);
                    let Some(carved) = carved.filter(|carved| carved.span.len == len) else {
                        continue;
                    };
                    bad.region.write_buffer(carved.span, &bytes);
                    let mut flags = DescriptorFlags::empty();
                    flags.set(DescriptorFlags::LAST, carved.last);
                    bad.push(endpoint, DescriptorKind::Datagram, flags, carved.span);
                    let _ = bad.lane.ring(endpoint, Direction::Send);
                    served += 1;
                }
            }
        }
        net.turn();
        if net.b.breached.pop().is_some() {
            breaches += 1;
            bad = net.b.attach(&limits);
            endpoint = bind(&mut net, &bad, 5000 + (breaches % 50_000) as u16);
        }
    }
    let refused = net.b.counter("messages_memory_refused");
    net.b.worker.detach(bad.key);
    net.pass(120_000_000_000);
    assert_eq!(net.b.worker.session_count(), 0, "seed {seed}: a dead session is kept");
    [breaches, served, refused]
}

#[test]
fn no_list_of_pieces_line_or_number_of_a_memory_harms_the_engine() {
    let [mut breaches, mut served, mut refused] = [0; 3];
    for seed in 0..40 {
        let counts = attack(seed);
        breaches += counts[0];
        served += counts[1];
        refused += counts[2];
    }
    assert!(refused > 100, "{refused} of {served} commands named memory that there is not");
    assert!(breaches > 100, "{breaches} breaches of {served} commands");
    assert!(served > 4 * breaches, "{served} commands are too few between {breaches} breaches");
}
