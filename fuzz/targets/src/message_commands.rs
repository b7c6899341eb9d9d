//! A client that pushes arbitrary commands of messages to its engine. Its session may end for that;
//! another one on the same engine goes on, and buffers are conserved.

#[path = "../../../crates/sim/tests/messages_common/mod.rs"]
mod net;

use client::message::{Buffers, Pattern, Send};
use shm::client_side::{ClientEndpoint, ClientLane, Direction};
use shm::descriptor::{DescriptorFlags, DescriptorKind};
use shm::lock::Tag;
use shm::message::{EAGER_MAX, Entry, Flags, NO_TICKET, OPERATIONS_MAX};

use net::{KEY, Net, Program, peer};

/// Commands of one input: it needs no more to find an order that hurts.
const COMMANDS_MAX: usize = 64;
/// Payload of one command.
const PAYLOAD_MAX: usize = 4096;

/// Reads operations and their operands; nought when they end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number near one of the bounds.
    fn number(&mut self) -> u64 {
        let near = [0, 4, 16, 128, 4096, u64::from(EAGER_MAX), 1 << 20, 1 << 32, NO_TICKET];
        let (shape, low) = (self.byte(), self.byte());
        near[usize::from(shape) % near.len()].wrapping_add(u64::from(low % 8)).wrapping_sub(4)
    }

    fn ticket(&mut self) -> u64 {
        match self.byte() {
            known @ 0..=223 => u64::from(known % 8),
            224..=239 => u64::from(OPERATIONS_MAX),
            _ => self.number(),
        }
    }

    fn command(&mut self) -> Vec<u8> {
        let shape = self.byte();
        let kind = if shape < 224 { shape % 9 } else { shape };
        let peers =
            ["10.0.0.2:5001", "10.0.0.1:5000", "10.0.0.1:5002", "10.9.9.9:1", "[fd00::1]:7"];
        let peer = peers[usize::from(self.byte()) % peers.len()];
        let mut entry = Entry::new(kind);
        entry.flags = Flags::from_bits_truncate(self.byte());
        entry.tag = u64::from(self.byte() % 4);
        entry.other = self.ticket();
        entry.ticket = self.ticket();
        entry.length = self.number();
        entry.offset = self.number();
        entry.peer = peer.parse().unwrap_or(entry.peer);
        let mut bytes = entry.encode().to_vec();
        let payload = match self.byte() {
            0..=127 => usize::try_from(entry.length).unwrap_or(0),
            other => usize::from(other % 16),
        };
        bytes.resize(bytes.len() + payload.min(PAYLOAD_MAX), shape);
        let cut = usize::from(self.byte());
        if cut > 250 {
            bytes.truncate(cut - 250);
        }
        bytes
    }
}

/// Pushes bytes as a command in pieces of `most`; what finds no room is not sent.
fn push(of: &Program, bytes: &[u8], most: usize) -> Option<()> {
    let lane = ClientLane::new(of.region.clone(), 0, 0);
    let view = ClientEndpoint::new(of.region.clone(), 0)?;
    let tag = Tag::new(1, 1);
    let mut send = view.lock_send(tag).ok()?;
    let mut guard = lane.lock(tag).ok()?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let carved = guard.carve(most.min(rest.len()) as u32, most.min(1024) as u32)?;
        let (now, later) = rest.split_at_checked(carved.span.len as usize)?;
        of.region.write_buffer(carved.span, now);
        rest = later;
        let mut flags = DescriptorFlags::empty();
        flags.set(DescriptorFlags::LAST, carved.last);
        flags.set(DescriptorFlags::MORE, !rest.is_empty());
        if send.room() > 0 {
            send.push(DescriptorKind::Datagram, flags, carved.span);
        }
    }
    drop(guard);
    let _ = lane.ring(0, Direction::Send);
    Some(())
}

/// One input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut net = Net::new(1500);
    let (a, b, c) = (net.program(0), net.program(1), net.program(0));
    let (_hostile, honest) = (net.open(&a, 5000, KEY), net.open(&c, 5002, KEY));
    let to = net.open(&b, 5001, KEY);
    for _ in 0..COMMANDS_MAX {
        if input.0.is_empty() || net.hosts[0].breached.contains(&a.key) {
            break;
        }
        let command = input.command();
        let shape = input.byte();
        let _ = push(&a, &command, if shape < 32 { 64 } else { 2048 });
        (0..shape % 4).for_each(|_| net.turn());
    }
    let mut memory = Buffers::default();
    memory.add(0, vec![0; 4]);
    let tag = 99;
    let pattern = Pattern { source: Some(peer(&to, &honest)), tag: Some((tag, 0)) };
    to.post_recv(&pattern, 4, 0).expect("the honest receiver has room");
    let message = Send { tag: Some(tag), ..Send::default() };
    honest.inject(peer(&honest, &to), &message, b"fine").expect("the honest sender has room");
    net.completion(&to, &mut memory);
    assert_eq!(memory.take(0).expect("given back"), b"fine");
    // Each turn checks that no buffer is lost.
    net.kill(a);
    (0..20).for_each(|_| net.turn());
}
