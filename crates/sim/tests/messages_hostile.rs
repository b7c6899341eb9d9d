//! Clients that break the contract of messages lose their session, and nobody else anything.

#[path = "messages_common/mod.rs"]
mod common;

use client::message::{Buffers, Pattern, Send};
use common::{KEY, Net, Program, peer};
use shm::client_side::{ClientEndpoint, ClientLane, Direction};
use shm::descriptor::{DescriptorFlags, DescriptorKind, Span};
use shm::lock::Tag;
use shm::message::{CommandKind, EAGER_MAX, Entry, Flags, NO_TICKET, OPERATIONS_MAX};

/// Pushes bytes as a command, as a client could that has its own ideas.
fn push(of: &Program, bytes: &[u8], cut: Option<usize>) {
    let lane = ClientLane::new(of.region.clone(), 0, 0);
    let view = ClientEndpoint::new(of.region.clone(), 0).unwrap();
    let tag = Tag::new(1, 1);
    let mut send = view.lock_send(tag).unwrap();
    let mut guard = lane.lock(tag).unwrap();
    let mut rest = bytes;
    while !rest.is_empty() {
        let most = cut.unwrap_or(rest.len()).min(rest.len());
        let carved = guard.carve(most as u32, most.min(1024) as u32).unwrap();
        let (now, later) = rest.split_at(carved.span.len as usize);
        of.region.write_buffer(carved.span, now);
        rest = later;
        let mut flags = DescriptorFlags::empty();
        flags.set(DescriptorFlags::LAST, carved.last);
        flags.set(DescriptorFlags::MORE, !rest.is_empty() && carved.span.len > 0);
        send.push(DescriptorKind::Datagram, flags, carved.span);
    }
    drop(guard);
    let _ = lane.ring(0, Direction::Send);
}

fn entry(kind: CommandKind) -> Entry {
    Entry { ticket: 0, peer: "10.0.0.2:5001".parse().unwrap(), ..Entry::new(kind as u8) }
}

/// What breaks the contract, and by what.
fn breaches() -> Vec<(&'static str, Vec<u8>)> {
    let whole = |entry: Entry| entry.encode().to_vec();
    let with = |entry: Entry, bytes: usize| {
        let mut all = whole(entry);
        all.resize(64 + bytes, 1);
        all
    };
    use CommandKind::*;
    vec![
        ("no kind", whole(Entry { kind: 0, ..entry(Send) })),
        ("an unknown kind", whole(Entry { kind: 99, ..entry(Send) })),
        ("a short entry", vec![1; 63]),
        ("a ticket out of range", whole(Entry { ticket: OPERATIONS_MAX.into(), ..entry(Receive) })),
        ("no ticket", whole(Entry { ticket: NO_TICKET, ..entry(Receive) })),
        ("a payload that is missing", whole(Entry { length: 10, ..entry(Send) })),
        ("a payload that is too long", with(Entry { length: 10, ..entry(Send) }, 11)),
        (
            "an announced message with payload",
            with(Entry { length: u64::from(EAGER_MAX) + 1, ..entry(Send) }, 1),
        ),
        ("a message that is too long", whole(Entry { length: 1 << 32, ..entry(Send) })),
        ("room that is too much", whole(Entry { length: 1 << 32, ..entry(Receive) })),
        ("a receive with payload", with(entry(Receive), 1)),
        (
            "an injected message that is too long",
            with(Entry { length: 5000, flags: Flags::INJECT, ..entry(Send) }, 5000),
        ),
    ]
}

#[test]
fn a_malformed_command_ends_its_session_alone() {
    for (what, bytes) in breaches() {
        let mut net = Net::new(1500);
        let (a, b, c) = (net.program(0), net.program(1), net.program(0));
        let (bad, good) = (net.open(&a, 5000, KEY), net.open(&c, 5002, KEY));
        let to = net.open(&b, 5001, KEY);
        push(&a, &bytes, None);
        net.until(5, what, |net| net.hosts[0].breached.contains(&a.key));
        let mut memory = Buffers::default();
        memory.add(0, vec![0; 4]);
        to.post_recv(&Pattern::default(), 4, 0).unwrap();
        good.inject(peer(&good, &to), &Send::default(), b"fine").unwrap();
        net.completion(&to, &mut memory);
        assert_eq!(memory.take(0).unwrap(), b"fine", "{what}");
        net.until(10, what, |net| net.hosts[0].gone.contains(&a.key));
        drop(bad);
    }
}

#[test]
fn the_second_use_of_a_ticket_is_a_breach() {
    let mut net = Net::new(1500);
    let a = net.program(0);
    let _bad = net.open(&a, 5000, KEY);
    push(&a, &entry(CommandKind::Receive).encode(), None);
    net.turn();
    assert!(net.hosts[0].breached.is_empty());
    push(&a, &entry(CommandKind::Receive).encode(), None);
    net.until(5, "the breach", |net| net.hosts[0].breached.contains(&a.key));
}

#[test]
fn what_names_no_operation_changes_nothing() {
    let mut net = Net::new(1500);
    let (a, b) = (net.program(0), net.program(1));
    let (_own, to) = (net.open(&a, 5000, KEY), net.open(&b, 5001, KEY));
    let _ = to;
    for other in [0, 7, 1 << 32, NO_TICKET, u64::from(u32::MAX)] {
        push(&a, &Entry { other, ..entry(CommandKind::Cancel) }.encode(), None);
        let claim = Entry { other, ..entry(CommandKind::DiscardClaimed) };
        push(&a, &claim.encode(), None);
        let mut feed =
            Entry { ticket: other, length: 4, ..entry(CommandKind::Feed) }.encode().to_vec();
        feed.extend([0; 4]);
        push(&a, &feed, None);
        (0..10).for_each(|_| net.turn());
    }
    assert!(net.hosts[0].breached.is_empty());
}

#[test]
fn a_command_in_many_pieces_and_one_that_never_ends() {
    let mut net = Net::new(1500);
    let (a, b) = (net.program(0), net.program(1));
    let (_own, to) = (net.open(&a, 5000, KEY), net.open(&b, 5001, KEY));
    let mut memory = Buffers::default();
    memory.add(0, vec![0; 640]);
    to.post_recv(&Pattern::default(), 640, 0).unwrap();
    let mut all = Entry { length: 640, ..entry(CommandKind::Send) }.encode().to_vec();
    all.extend([5; 640]);
    push(&a, &all, Some(64));
    net.completion(&to, &mut memory);
    assert_eq!(memory.take(0).unwrap(), [5; 640]);
    // More pieces than a command can have.
    let endless = vec![1; 64 * 64];
    push(&a, &endless, Some(64));
    net.until(5, "the breach", |net| net.hosts[0].breached.contains(&a.key));
}

#[test]
fn spans_of_others_buffers_and_foreign_kinds_are_breaches() {
    let spans = [
        (DescriptorKind::Datagram, Span { offset: 0, len: 64 }),
        (DescriptorKind::Datagram, Span { offset: u64::MAX >> 20, len: 64 }),
        (DescriptorKind::Data, Span { offset: 0, len: 0 }),
        (DescriptorKind::Fin, Span::default()),
    ];
    for (kind, span) in spans {
        let mut net = Net::new(1500);
        let a = net.program(0);
        let _own = net.open(&a, 5000, KEY);
        let mut span = span;
        if span.offset == 0 {
            // A buffer that is the engine's.
            span.offset = a.region.buffer(400).unwrap().offset;
        }
        let view = ClientEndpoint::new(a.region.clone(), 0).unwrap();
        view.lock_send(Tag::new(1, 1)).unwrap().push(kind, DescriptorFlags::empty(), span);
        let _ = ClientLane::new(a.region.clone(), 0, 0).ring(0, Direction::Send);
        net.until(5, "the breach", |net| net.hosts[0].breached.contains(&a.key));
    }
}

#[test]
fn reading_more_than_there_is_is_a_breach() {
    let mut net = Net::new(1500);
    let (a, b) = (net.program(0), net.program(1));
    let (own, to) = (net.open(&a, 5000, KEY), net.open(&b, 5001, KEY));
    let view = ClientEndpoint::new(a.region.clone(), 0).unwrap();
    let _ = view.lock_receive(Tag::new(1, 1)).unwrap().advance(1 << 40);
    // Enough of them that the engine has to look.
    for _ in 0..2000 {
        if own.peek(&Pattern::default(), 0).is_err() {
            net.turn();
        }
    }
    let _ = to;
    net.until(5, "the breach", |net| net.hosts[0].breached.contains(&a.key));
}
