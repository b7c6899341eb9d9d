//! Messages between native endpoints of two engines, and of one.

#[path = "messages_common/mod.rs"]
mod common;

use std::io::IoSlice;

use client::Errno;
use client::message::{Buffers, Completion, EAGER_MAX, Endpoint, Outcome, Pattern, Send};
use common::{KEY, Net, errno, pattern, peer};

fn tagged(tag: u64) -> Send {
    Send { tag: Some(tag), ..Send::default() }
}

fn any(tag: u64) -> Pattern {
    Pattern { source: None, tag: Some((tag, 0)) }
}

/// Sends `length` bytes to a receive that is posted before or after, and looks at what came.
fn exchange(net: &mut Net, from: &Endpoint, to: &Endpoint, length: usize, posted_first: bool) {
    let (mut sender, mut receiver) = (Buffers::default(), Buffers::default());
    let bytes = pattern(length as u64, length);
    sender.add(1, bytes.clone());
    receiver.add(2, vec![0; length + 1]);
    let send = Send { tag: Some(77), immediate: Some(9), delivery: length % 2 == 1 };
    if posted_first {
        to.post_recv(&any(77), length as u64 + 1, 2).unwrap();
        net.turn();
    }
    from.send(peer(from, to), &send, &[IoSlice::new(&bytes)], 1).unwrap();
    if !posted_first {
        (0..50).for_each(|_| net.turn());
        to.post_recv(&any(77), length as u64 + 1, 2).unwrap();
    }
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    net.run(&mut [(from, &mut sender, &mut sent, 1), (to, &mut receiver, &mut received, 1)]);
    assert_eq!(sent[0].outcome, Outcome::Sent, "{length} bytes");
    let Outcome::Received(message) = received[0].outcome else { panic!("{:?}", received[0]) };
    assert_eq!(message.length, length as u64);
    assert_eq!((message.tag, message.immediate), (Some(77), Some(9)));
    assert_eq!(to.peer_address(message.source), Some(from.address()));
    let mut came = receiver.take(2).unwrap();
    assert_eq!(came.pop(), Some(0), "{length} bytes: the byte behind");
    assert!(came == bytes, "{length} bytes differ");
}

fn to_oneself(net: &mut Net, own: &Endpoint, length: usize) {
    let mut memory = Buffers::default();
    let bytes = pattern(3, length);
    memory.add(1, bytes.clone());
    memory.add(2, vec![0; length]);
    own.post_recv(&any(1), length as u64, 2).unwrap();
    own.send(peer(own, own), &tagged(1), &[IoSlice::new(&bytes)], 1).unwrap();
    let mut done = Vec::new();
    net.run(&mut [(own, &mut memory, &mut done, 2)]);
    assert!(memory.take(2).unwrap() == bytes, "{length} bytes differ");
}

const LENGTHS: [usize; 14] =
    [0, 1, 64, 128, 129, 1400, 1500, 2048, 4096, 4097, 16383, 16384, 16385, 300_000];

#[test]
fn messages_of_every_length_arrive_whole() {
    let mut net = Net::new(1500);
    let (a, b) = (net.program(0), net.program(1));
    let (from, to) = (net.open(&a, 5000, KEY), net.open(&b, 5001, KEY));
    for length in LENGTHS {
        exchange(&mut net, &from, &to, length, true);
        exchange(&mut net, &to, &from, length, false);
    }
    assert!(net.counter(0, "messages_tx_frames") > 0);
    assert_eq!(net.counter(0, "messages_sends") + net.counter(1, "messages_receives"), 0);
}

#[test]
fn messages_between_programs_of_one_engine_need_no_frames_and_no_key() {
    let mut net = Net::new(1500);
    let (a, b) = (net.program(0), net.program(0));
    let (from, to) = (net.open(&a, 5000, None), net.open(&b, 5001, None));
    for length in LENGTHS {
        exchange(&mut net, &from, &to, length, true);
        exchange(&mut net, &to, &from, length, false);
        to_oneself(&mut net, &from, length);
    }
    assert_eq!(net.counter(0, "messages_tx_frames"), 0);
}

#[test]
fn long_messages_take_turns_in_the_memory_of_their_session() {
    let mut net = Net::new(9000);
    let (a, b) = (net.program(0), net.program(1));
    let (from, to) = (net.open(&a, 5000, KEY), net.open(&b, 5001, KEY));
    // Half of the buffers.
    let most = from.message_max() as usize;
    assert_eq!(most, 1 << 20);
    let (mut sender, mut receiver) = (Buffers::default(), Buffers::default());
    let bytes = pattern(5, most);
    for context in 0..5 {
        sender.add(context, bytes.clone());
        receiver.add(context, vec![0; most]);
        to.post_recv(&any(context), most as u64, context).unwrap();
    }
    for context in 0..5 {
        let to = peer(&from, &to);
        from.send(to, &tagged(context), &[IoSlice::new(&bytes)], context).unwrap();
    }
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    net.run(&mut [(&from, &mut sender, &mut sent, 5), (&to, &mut receiver, &mut received, 5)]);
    for context in 0..5 {
        assert!(receiver.take(context).unwrap() == bytes, "message {context} differs");
    }
    let longer = vec![0; most + 1];
    let refused = from.send(peer(&from, &to), &tagged(1), &[IoSlice::new(&longer)], 9);
    assert_eq!(refused, Err(Errno::MSGSIZE));
}

#[test]
fn a_pattern_picks_by_source_and_the_bits_of_the_tag_that_count() {
    let mut net = Net::new(1500);
    let (a, b, c) = (net.program(0), net.program(1), net.program(1));
    let to = net.open(&a, 5000, KEY);
    let (first, second) = (net.open(&b, 5001, KEY), net.open(&c, 5002, KEY));
    let mut memory = Buffers::default();
    (0..4).for_each(|context| memory.add(context, vec![0; 8]));
    let from_second = Some(peer(&to, &second));
    to.post_recv(&Pattern { source: from_second, tag: Some((0, u64::MAX)) }, 8, 0).unwrap();
    to.post_recv(&Pattern { source: None, tag: Some((0xff00, 0x00ff)) }, 8, 1).unwrap();
    to.post_recv(&Pattern { source: None, tag: None }, 8, 2).unwrap();
    to.post_recv(&Pattern { source: None, tag: Some((0, u64::MAX)) }, 8, 3).unwrap();
    net.turn();
    for (tag, bytes) in [(Some(1), b"other"), (None, b"plain"), (Some(0xff42), b"mask!")] {
        let send = Send { tag, ..Send::default() };
        first.inject(peer(&first, &to), &send, bytes).unwrap();
    }
    second.inject(peer(&second, &to), &tagged(5), b"other").unwrap();
    let mut done = Vec::new();
    net.run(&mut [(&to, &mut memory, &mut done, 4)]);
    let bytes = |context| memory_of(&mut memory, context);
    let all: Vec<_> = (0..4).map(bytes).collect();
    assert_eq!(all, [&b"other"[..], b"mask!", b"plain", b"other"]);
    let tag_of = |context| {
        let found = done.iter().find(|one: &&Completion| one.context == context).unwrap();
        match found.outcome {
            Outcome::Received(message) => message.tag,
            _ => panic!("{found:?}"),
        }
    };
    assert_eq!((0..4).map(tag_of).collect::<Vec<_>>(), [Some(5), Some(0xff42), None, Some(1)]);
}

fn memory_of(memory: &mut Buffers, context: u64) -> Vec<u8> {
    memory.take(context).unwrap()[..5].to_vec()
}

#[test]
fn messages_of_one_sender_match_in_order() {
    let mut net = Net::new(1500);
    let (a, b) = (net.program(0), net.program(1));
    let (from, to) = (net.open(&a, 5000, KEY), net.open(&b, 5001, KEY));
    let mut memory = Buffers::default();
    let count = 300u64;
    let mut done = Vec::new();
    for number in 0..count {
        memory.add(number, vec![0; 8]);
        while to.post_recv(&any(1), 8, number).is_err() {
            net.turn();
        }
        let bytes = number.to_le_bytes();
        while from.inject(peer(&from, &to), &tagged(1), &bytes) == Err(Errno::AGAIN) {
            net.turn();
            while let Some(completion) = to.poll_completion(&mut memory).unwrap() {
                done.push(completion);
            }
        }
    }
    net.run(&mut [(&to, &mut memory, &mut done, count as usize)]);
    for number in 0..count {
        assert_eq!(memory.take(number).unwrap(), number.to_le_bytes());
    }
}

#[test]
fn a_message_that_is_too_long_fills_the_room_and_says_so() {
    let mut net = Net::new(1500);
    let (a, b) = (net.program(0), net.program(1));
    let (from, to) = (net.open(&a, 5000, KEY), net.open(&b, 5001, KEY));
    for (length, capacity) in [(100, 10), (100, 0), (5000, 4999), (100_000, 70_000)] {
        let bytes = pattern(1, length);
        let (mut sender, mut memory) = (Buffers::default(), Buffers::default());
        sender.add(1, bytes.clone());
        memory.add(2, vec![0; capacity]);
        to.post_recv(&any(3), capacity as u64, 2).unwrap();
        from.send(peer(&from, &to), &tagged(3), &[IoSlice::new(&bytes)], 1).unwrap();
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        net.run(&mut [(&from, &mut sender, &mut sent, 1), (&to, &mut memory, &mut received, 1)]);
        let Outcome::Failed { errno: Errno::MSGSIZE, message: Some(message) } = received[0].outcome
        else {
            panic!("{:?}", received[0])
        };
        assert_eq!((message.length, message.copied), (length as u64, capacity as u64));
        assert!(memory.take(2).unwrap() == bytes[..capacity], "{capacity} of {length} bytes");
    }
}

#[test]
fn an_unexpected_message_is_seen_claimed_received_and_dropped() {
    let mut net = Net::new(1500);
    let (a, b) = (net.program(0), net.program(1));
    let (from, to) = (net.open(&a, 5000, KEY), net.open(&b, 5001, KEY));
    let mut memory = Buffers::default();
    to.peek(&any(4), 0).unwrap();
    assert_eq!(errno(&net.completion(&to, &mut memory)), Some(Errno::NOMSG));
    let before = to.unexpected();
    for number in 0..3u8 {
        from.inject(peer(&from, &to), &tagged(4), &[number; 600]).unwrap();
    }
    net.until(5, "three messages", |_| to.unexpected() >= before + 3);
    to.peek(&any(4), 0).unwrap();
    let seen = net.completion(&to, &mut memory);
    assert!(matches!(seen.outcome, Outcome::Peeked(message) if message.length == 600), "{seen:?}");
    to.claim(&any(4), 1).unwrap();
    let first = net.completion(&to, &mut memory);
    assert!(matches!(first.outcome, Outcome::Claimed(_)), "{first:?}");
    to.claim(&any(4), 2).unwrap();
    let second = net.completion(&to, &mut memory);
    let third = to.post_recv(&any(4), 600, 3).unwrap();
    memory.add(3, vec![0; 600]);
    let received = net.completion(&to, &mut memory);
    assert_eq!(received.ticket, Some(third));
    assert_eq!(memory.take(3).unwrap(), [2; 600]);
    memory.add(4, vec![0; 600]);
    to.receive_claimed(first.ticket.unwrap(), 600, 4).unwrap();
    let received = net.completion(&to, &mut memory);
    assert!(matches!(received.outcome, Outcome::Received(_)), "{received:?}");
    assert_eq!(memory.take(4).unwrap(), [0; 600]);
    to.discard_claimed(second.ticket.unwrap(), 5).unwrap();
    assert_eq!(net.completion(&to, &mut memory).outcome, Outcome::Discarded);
    assert_eq!(to.discard_claimed(second.ticket.unwrap(), 6), Err(Errno::INVAL));
    assert_eq!(net.counter(1, "messages_buffered"), 0);
}

#[test]
fn a_cancelled_receive_takes_nothing() {
    let mut net = Net::new(1500);
    let (a, b) = (net.program(0), net.program(1));
    let (from, to) = (net.open(&a, 5000, KEY), net.open(&b, 5001, KEY));
    let mut memory = Buffers::default();
    memory.add(1, vec![0; 5]);
    let ticket = to.post_recv(&any(1), 5, 1).unwrap();
    net.turn();
    to.cancel(ticket).unwrap();
    let cancelled = net.completion(&to, &mut memory);
    assert_eq!((errno(&cancelled), cancelled.context), (Some(Errno::CANCELED), 1));
    to.cancel(ticket).unwrap();
    from.inject(peer(&from, &to), &tagged(1), b"later").unwrap();
    to.post_recv(&any(1), 5, 1).unwrap();
    let received = net.completion(&to, &mut memory);
    assert!(matches!(received.outcome, Outcome::Received(_)), "{received:?}");
    assert_eq!(memory.take(1).unwrap(), b"later");
}

#[test]
fn a_message_to_nobody_fails() {
    let mut net = Net::new(1500);
    let (a, b) = (net.program(0), net.program(1));
    let (from, other) = (net.open(&a, 5000, KEY), net.open(&b, 5001, KEY));
    let mut memory = Buffers::default();
    for address in ["10.0.0.2:999", "10.0.0.1:999"] {
        let nobody = from.add_peer(address.parse().unwrap()).unwrap();
        from.send(nobody, &tagged(1), &[IoSlice::new(b"x")], 1).unwrap();
        assert_eq!(errno(&net.completion(&from, &mut memory)), Some(Errno::CONNREFUSED));
    }
    // A job of one's own reaches no host.
    let alone = net.open(&a, 5003, None);
    alone.send(peer(&alone, &other), &tagged(1), &[IoSlice::new(b"x")], 1).unwrap();
    assert_eq!(errno(&net.completion(&alone, &mut memory)), Some(Errno::NOKEY));
}

#[test]
fn what_was_injected_arrives_although_the_endpoint_closes_and_the_program_ends() {
    for ends in [false, true] {
        let mut net = Net::new(1500);
        let (a, b) = (net.program(0), net.program(1));
        let (from, to) = (net.open(&a, 5000, KEY), net.open(&b, 5001, KEY));
        let mut memory = Buffers::default();
        for number in 0..20 {
            from.inject(peer(&from, &to), &tagged(number), &[number as u8; 1000]).unwrap();
        }
        from.close();
        drop(from);
        let key = a.key;
        if ends {
            net.kill(a);
        }
        for number in 0..20u64 {
            memory.add(number, vec![0; 1000]);
            to.post_recv(&any(number), 1000, number).unwrap();
        }
        let mut done = Vec::new();
        net.run(&mut [(&to, &mut memory, &mut done, 20)]);
        for number in 0..20u64 {
            assert_eq!(memory.take(number).unwrap(), [number as u8; 1000]);
        }
        net.until(10, "the end of the sends", |net| net.counter(0, "messages_sends") == 0);
        if ends {
            net.until(10, "the end of the session", |net| net.hosts[0].gone.contains(&key));
        }
    }
}

#[test]
fn a_program_that_is_killed_fails_what_is_sent_to_it() {
    let mut net = Net::new(1500);
    let (a, b) = (net.program(0), net.program(1));
    let (from, to) = (net.open(&a, 5000, KEY), net.open(&b, 5001, KEY));
    exchange(&mut net, &from, &to, 100, true);
    let mut memory = Buffers::default();
    memory.add(1, pattern(1, 200_000));
    // Long enough that it needs the receiver.
    let bytes = pattern(1, 200_000);
    from.send(peer(&from, &to), &tagged(1), &[IoSlice::new(&bytes)], 1).unwrap();
    (0..20).for_each(|_| net.turn());
    net.kill(b);
    let failed = net.completion(&from, &mut memory);
    assert_eq!(errno(&failed), Some(Errno::CONNREFUSED), "{failed:?}");
    from.send(peer(&from, &to), &tagged(1), &[IoSlice::new(b"x")], 2).unwrap();
    assert_eq!(errno(&net.completion(&from, &mut memory)), Some(Errno::CONNREFUSED));
}

#[test]
fn a_program_that_does_not_read_stops_nobody_else() {
    let mut net = Net::new(1500);
    let (a, b, c) = (net.program(0), net.program(1), net.program(1));
    let from = net.open(&a, 5000, KEY);
    let (idle, busy) = (net.open(&b, 5001, KEY), net.open(&c, 5002, KEY));
    let mut memory = Buffers::default();
    // More than its memory holds.
    let bytes = pattern(3, EAGER_MAX as usize);
    let mut begun = 0;
    for _ in 0..2000 {
        let lane = [IoSlice::new(&bytes)];
        begun += usize::from(from.send(peer(&from, &idle), &tagged(1), &lane, 1).is_ok());
        net.turn();
        if begun == 100 {
            break;
        }
    }
    for number in 0..10 {
        exchange_eventually(&mut net, &from, &busy, number);
    }
    assert!(begun >= 50, "{begun}");
    for number in 0..begun as u64 {
        memory.add(number, vec![0; bytes.len()]);
        while idle.post_recv(&any(1), bytes.len() as u64, number).is_err() {
            net.turn();
        }
    }
    let mut done = Vec::new();
    net.run(&mut [(&idle, &mut memory, &mut done, begun)]);
    for number in 0..begun as u64 {
        assert!(memory.take(number).unwrap() == bytes);
    }
}

fn exchange_eventually(net: &mut Net, from: &Endpoint, to: &Endpoint, number: u8) {
    let mut memory = Buffers::default();
    memory.add(1, vec![0; 3]);
    to.post_recv(&any(9), 3, 1).unwrap();
    net.until(10, "room", |_| {
        while from.poll_completion(&mut Buffers::default()).unwrap().is_some() {}
        from.inject(peer(from, to), &tagged(9), &[number; 3]).is_ok()
    });
    net.completion(to, &mut memory);
    assert_eq!(memory.take(1).unwrap(), [number; 3]);
}

#[test]
fn a_thousand_peers_are_told_apart() {
    let mut net = Net::new(1500);
    let programs: Vec<_> = (0..16).map(|_| net.program(1)).collect();
    let a = net.program(0);
    let to = net.open(&a, 5000, KEY);
    let mut memory = Buffers::default();
    let mut peers = Vec::new();
    for number in 0..960u16 {
        peers.push(net.open(&programs[usize::from(number) / 60], 6000 + number, KEY));
    }
    for (number, from) in peers.iter().enumerate() {
        let context = number as u64;
        memory.add(context, vec![0; 4]);
        let source = Some(peer(&to, from));
        net.until(10, "room", |_| {
            to.post_recv(&Pattern { source, tag: Some((0, u64::MAX)) }, 4, context).is_ok()
        });
    }
    for (number, from) in peers.iter().enumerate().rev() {
        let bytes = (number as u32).to_le_bytes();
        from.inject(peer(from, &to), &tagged(number as u64), &bytes).unwrap();
    }
    let mut done = Vec::new();
    net.run(&mut [(&to, &mut memory, &mut done, 960)]);
    for number in 0..960u32 {
        assert_eq!(memory.take(number.into()).unwrap(), number.to_le_bytes());
    }
}

#[test]
fn a_number_belongs_to_one_endpoint() {
    let mut net = Net::new(1500);
    let a = net.program(0);
    let first = net.open(&a, 5000, KEY);
    let refused = net.try_open(&a, 5000, KEY).unwrap_err();
    assert!(refused.contains("another endpoint has this port"), "{refused}");
    first.close();
    drop(first);
    net.turn();
    net.open(&a, 5000, KEY);
}
