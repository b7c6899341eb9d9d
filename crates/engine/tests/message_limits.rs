//! What one command of a client's can cost the engine: memory and time have bounds.

mod common;

use std::sync::Arc;

use common::{B, Net, Program, at, small};
use outboard_engine::control::exchange::{Command, Shown};
use shm::client_side::Direction;
use shm::descriptor::{DescriptorFlags, DescriptorKind, Span};
use shm::memory::{PIECES_MAX, Registered, encode_piece, place};
use shm::message::{CommandKind, Entry, Flags};

fn bind(net: &mut Net, program: &Program, port: u16) -> u32 {
    let command = Command::BindMessages {
        session: program.key,
        serial: 1,
        context: 0,
        shown: Shown::alone(at(B, port), u64::from(port)),
        key: None,
        incarnation: 1,
    };
    let now = net.now;
    net.b.command(command, now).expect("an endpoint")
}

fn turns(net: &mut Net, count: u32) {
    for _ in 0..count {
        net.turn();
    }
}

fn register(net: &mut Net, program: &Program, number: u16, bytes: u64) -> Arc<Registered> {
    let memory = Arc::new(Registered::private(bytes).unwrap());
    let (session, given) = (program.key, Arc::clone(&memory));
    let command = Command::Register { session, serial: 1, number, memory: given };
    net.b.worker.on_command(command, stack::api::Instant(net.now));
    memory
}

/// Pushes bytes of a command; `more`: others follow.
fn push(program: &mut Program, endpoint: u32, bytes: &[u8], more: bool) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let len = rest.len() as u32;
        let carved = program.lane.lock(program.tag).unwrap().carve(len, len.min(64));
        let carved = carved.expect("a buffer");
        let (now, later) = rest.split_at(carved.span.len as usize);
        program.region.write_buffer(carved.span, now);
        let mut flags = DescriptorFlags::empty();
        flags.set(DescriptorFlags::LAST, carved.last);
        flags.set(DescriptorFlags::MORE, more || !later.is_empty());
        program.push(endpoint, DescriptorKind::Datagram, flags, carved.span);
        rest = later;
    }
    let _ = program.lane.ring(endpoint, Direction::Send);
}

fn placed(kind: CommandKind, ticket: u64, length: u64) -> Entry {
    let mut entry = Entry::new(kind as u8);
    entry.flags = Flags::REGISTERED;
    (entry.ticket, entry.length) = (ticket, length);
    entry.peer = at(B, 5000);
    entry
}

fn command(program: &mut Program, endpoint: u32, entry: &Entry, pieces: &[Span]) {
    let mut bytes = entry.encode().to_vec();
    pieces.iter().for_each(|piece| bytes.extend_from_slice(&encode_piece(*piece)));
    push(program, endpoint, &bytes, false);
}

#[test]
fn a_command_that_lies_in_registered_memory_is_a_breach() {
    const BYTES: u32 = 256 << 20;
    // So many that the sum of their bytes wraps around to nothing, and one.
    for count in [16, 1] {
        let limits = small();
        let mut net = Net::new(limits);
        let mut bad = net.b.attach(&limits);
        let endpoint = bind(&mut net, &bad, 5000);
        let _memory = register(&mut net, &bad, 1, u64::from(BYTES));
        net.turn();
        push(&mut bad, endpoint, &placed(CommandKind::Receive, 1, 0).encode(), true);
        let span = Span { offset: place(1, 0), len: BYTES };
        for number in 1..=count {
            let mut flags = DescriptorFlags::empty();
            flags.set(DescriptorFlags::MORE, number < count);
            bad.push(endpoint, DescriptorKind::Datagram, flags, span);
        }
        turns(&mut net, 4);
        assert_eq!(net.b.breached, [bad.key], "{count} spans");
    }
}

#[test]
fn a_long_local_message_is_copied_in_many_turns() {
    const LENGTH: u32 = 8 << 20;
    let limits = small();
    let mut net = Net::new(limits);
    let mut own = net.b.attach(&limits);
    let endpoint = bind(&mut net, &own, 5000);
    let source = register(&mut net, &own, 1, u64::from(LENGTH));
    let target = register(&mut net, &own, 2, u64::from(LENGTH));
    for at in 0..u64::from(LENGTH >> 16) {
        source.write(at << 16, &[7; 1 << 16]);
    }
    net.turn();
    let span = |number| [Span { offset: place(number, 0), len: LENGTH }];
    let length = u64::from(LENGTH);
    command(&mut own, endpoint, &placed(CommandKind::Receive, 1, length), &span(2));
    command(&mut own, endpoint, &placed(CommandKind::Send, 2, length), &span(1));
    let (mut before, mut longest, mut count) = (0, 0, 0);
    let mut bytes = vec![0; LENGTH as usize];
    while before < LENGTH as usize {
        net.turn();
        target.read(0, &mut bytes);
        let copied = bytes.partition_point(|byte| *byte == 7);
        longest = longest.max(copied - before);
        before = copied;
        count += 1;
        assert!(count < 1000, "{copied} of {LENGTH} bytes were copied");
    }
    assert!(longest <= 1 << 20, "{longest} bytes were copied in one turn");
    turns(&mut net, 4);
    assert_eq!(net.b.counter("messages_sends") + net.b.counter("messages_receives"), 0);
}

#[test]
fn pieces_of_a_session_have_a_bound() {
    let limits = outboard_engine::Limits { send_slots: 256, receive_slots: 512, ..small() };
    let mut net = Net::new(limits);
    let mut bad = net.b.attach(&limits);
    let endpoint = bind(&mut net, &bad, 5000);
    let _memory = register(&mut net, &bad, 1, 4096);
    let pieces = [Span { offset: place(1, 0), len: 1 }; PIECES_MAX];
    for ticket in 0..300 {
        net.turn();
        let entry = placed(CommandKind::Receive, ticket, PIECES_MAX as u64);
        command(&mut bad, endpoint, &entry, &pieces);
        turns(&mut net, 3);
    }
    assert_eq!(net.b.breached, []);
    let (held, refused) =
        (net.b.counter("messages_receives"), net.b.counter("messages_pieces_refused"));
    assert_eq!(held + refused, 300);
    assert!(held * PIECES_MAX as u64 <= 1 << 18 && refused > 0, "{held} held, {refused} refused");
}
