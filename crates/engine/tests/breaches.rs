//! Clients that break the contract lose their session; nobody else notices.

mod common;

use common::{Net, Program, pattern, small};
use shm::Status;
use shm::descriptor::{DescriptorFlags, DescriptorKind, Span};
use shm::request::Request;

struct Case {
    net: Net,
    honest: [Program; 2],
    honest_ends: (u32, u32),
    bad: Program,
    /// A connection of the bad program with `a`'s honest one.
    bad_end: u32,
    peer_end: u32,
}

fn case() -> Case {
    let limits = small();
    let mut net = Net::new(limits);
    let a = net.a.attach(&limits);
    let (b, bad) = (net.b.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let bad_listener = net.listen(&bad, 666);
    let honest_ends = net.connected(&a, &b, listener, 80);
    let (peer_end, bad_end) = net.connected(&a, &bad, bad_listener, 666);
    Case { net, honest: [a, b], honest_ends, bad, bad_end, peer_end }
}

impl Case {
    /// The bad program's session has ended, its peer was told, its memory is back, and the honest
    /// connection still works.
    #[track_caller]
    fn ends_the_bad_session_alone(mut self) {
        self.net.settle();
        assert_eq!(self.net.b.breached, [self.bad.key]);
        assert_eq!(self.net.b.counters.breaches.read(), 1);
        self.net.settle();
        assert_eq!(self.net.b.gone, [self.bad.key]);
        let [a, b] = &self.honest;
        assert!(a.levels(self.peer_end).status.contains(Status::HANGUP));
        let (near, far) = self.honest_ends;
        let bytes = pattern(0, 3000);
        assert_eq!(a.write(near, &bytes), 3000);
        self.net.settle();
        assert_eq!(b.read(far, usize::MAX), bytes);
        assert_eq!(self.net.b.worker.session_count(), 1);
    }
}

const DATA: DescriptorKind = DescriptorKind::Data;

#[test]
fn a_span_outside_the_buffers_is_a_breach() {
    let case = case();
    let span = Span { offset: 0, len: 64 };
    case.bad.push(case.bad_end, DATA, DescriptorFlags::empty(), span);
    case.ends_the_bad_session_alone();
}

#[test]
fn a_span_over_the_border_of_two_buffers_is_a_breach() {
    let case = case();
    let buffer = case.bad.region.buffer(3).unwrap();
    let span = Span { offset: buffer.offset + 1024, len: 2048 };
    case.bad.push(case.bad_end, DATA, DescriptorFlags::empty(), span);
    case.ends_the_bad_session_alone();
}

#[test]
fn a_buffer_that_was_not_granted_is_a_breach() {
    let case = case();
    let span = case.bad.region.buffer(255).unwrap().part(0, 64);
    case.bad.push(case.bad_end, DATA, DescriptorFlags::empty(), span);
    case.ends_the_bad_session_alone();
}

#[test]
fn data_after_the_end_of_the_stream_is_a_breach() {
    let case = case();
    case.bad.finish(case.bad_end);
    assert_eq!(case.bad.write(case.bad_end, b"more"), 4);
    case.ends_the_bad_session_alone();
}

#[test]
fn a_datagram_on_a_stream_is_a_breach() {
    let case = case();
    case.bad.send_to(case.bad_end, common::at(common::A, 9), b"what");
    case.ends_the_bad_session_alone();
}

#[test]
fn a_page_as_a_send_descriptor_is_a_breach() {
    let case = case();
    let span = case.bad.region.buffer(0).unwrap();
    case.bad.push(case.bad_end, DescriptorKind::Page, DescriptorFlags::empty(), span);
    case.ends_the_bad_session_alone();
}

#[test]
fn reading_beyond_what_is_readable_is_a_breach() {
    let case = case();
    let endpoint = case.bad.endpoint(case.bad_end);
    let _ = endpoint.lock_receive(case.bad.tag).unwrap().advance(1);
    let _ = case.bad.lane.ring(case.bad_end, shm::client_side::Direction::Receive);
    case.ends_the_bad_session_alone();
}

#[test]
fn reading_backwards_is_a_breach() {
    let mut case = case();
    assert_eq!(case.honest[0].write(case.peer_end, &pattern(0, 100)), 100);
    case.net.settle();
    assert_eq!(case.bad.read(case.bad_end, 100).len(), 100);
    case.net.pass(2_000_000);
    let endpoint = case.bad.endpoint(case.bad_end);
    let _ = endpoint.lock_receive(case.bad.tag).unwrap().advance(50);
    let _ = case.bad.lane.ring(case.bad_end, shm::client_side::Direction::Receive);
    case.ends_the_bad_session_alone();
}

/// Where the rings of the first lane lie with the limits of these tests: behind the header page
/// and the lane's three lines, the doorbells (256 slots of 8 bytes), events (128), stock (64) and
/// requests (64 bytes each).
const DOORBELLS: u64 = 4096 + 192;
const REQUESTS: u64 = DOORBELLS + (256 + 128 + 64) * 8;

/// The bad program has made one request so far, so these are the next slots of its first lap.
const NEXT_DOORBELL: u64 = DOORBELLS + 8;
const NEXT_REQUEST: u64 = REQUESTS + 64;

#[test]
fn a_doorbell_beyond_the_capacity_is_a_breach() {
    let case = case();
    assert!(case.bad.region.scribble(NEXT_DOORBELL, 1 << 32 | 0x00ff_ffff));
    case.ends_the_bad_session_alone();
}

#[test]
fn a_request_of_no_kind_is_a_breach() {
    let case = case();
    case.bad.post(Request::Accept { listener: 0 });
    assert!(case.bad.region.scribble(NEXT_REQUEST + 56, 1 << 32 | 1 << 8 | 0xff));
    case.ends_the_bad_session_alone();
}

#[test]
fn naming_endpoints_that_were_never_granted_gets_errors_and_no_more() {
    let mut case = case();
    for endpoint in [7, 63, 64, u32::MAX] {
        for request in [
            Request::Close { endpoint },
            Request::Abort { endpoint },
            Request::Accept { listener: endpoint },
            Request::Info { endpoint },
            Request::StopReceiving { endpoint },
        ] {
            let errno = rustix::io::Errno::BADF.raw_os_error() as u32;
            let reply = case.net.ask(true, &case.bad, request);
            assert_eq!(reply, shm::request::Reply::Failed { errno }, "{request:?}");
        }
    }
    assert_eq!(case.net.b.counters.breaches.read(), 0);
}

#[test]
fn a_doorbell_that_is_lost_loses_nothing_that_the_next_one_does_not_bring() {
    let mut case = case();
    let (near, far) = case.honest_ends;
    let [a, b] = &case.honest;
    // Bytes pushed without a doorbell wait; any later doorbell of the endpoint finds them.
    {
        let endpoint = a.endpoint(near);
        let mut send = endpoint.lock_send(a.tag).unwrap();
        let carved = a.lane.lock(a.tag).unwrap().carve(5, 1).unwrap();
        a.region.write_buffer(carved.span, b"quiet");
        send.push(DATA, DescriptorFlags::empty(), carved.span);
    }
    case.net.settle();
    assert_eq!(b.levels(far).readable, 0);
    assert_eq!(a.write(near, b"loud"), 4);
    case.net.settle();
    assert_eq!(b.read(far, 100), b"quietloud");
}

#[test]
fn a_killed_program_resets_what_it_has_not_read_and_finishes_the_rest() {
    let mut case = case();
    let [a, b] = &case.honest;
    let (near, far) = case.honest_ends;
    // One connection with unread bytes, one whose bytes are still to be delivered.
    assert_eq!(a.write(near, b"unread"), 6);
    assert_eq!(case.bad.write(case.bad_end, &pattern(0, 30_000)), 30_000);
    case.net.b.worker.detach(case.bad.key);
    case.net.settle();
    assert_eq!(a.read(case.peer_end, usize::MAX), pattern(0, 30_000));
    assert!(a.levels(case.peer_end).status.contains(Status::PEER_CLOSED));
    assert!(b.levels(far).readable > 0);
    case.net.b.worker.detach(b.key);
    case.net.settle();
    let levels = a.levels(near);
    assert_eq!(i32::from(levels.errno), rustix::io::Errno::CONNRESET.raw_os_error());
    let close = Request::Close { endpoint: case.peer_end };
    case.net.ask(false, a, close);
    case.net.pass(5_000_000_000);
    assert_eq!(case.net.b.worker.session_count(), 0);
    assert_eq!(case.net.b.gone.len(), 2);
}

#[test]
fn a_killed_programs_connections_all_end_though_the_first_ends_at_once() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let ends: Vec<(u32, u32)> = (0..5).map(|_| net.connected(&a, &b, listener, 80)).collect();
    for (near, _) in &ends {
        assert_eq!(a.write(*near, b"unread"), 6);
    }
    net.settle();
    net.b.worker.detach(b.key);
    net.settle();
    assert_eq!(net.b.gone, [b.key]);
    net.b.worker.copy_counters();
    assert_eq!(net.b.counters.endpoints.read(), 0);
    assert_eq!(net.b.worker.stack().sockets().count(), 0);
    for (near, _) in &ends {
        let errno = i32::from(a.levels(*near).errno);
        assert_eq!(errno, rustix::io::Errno::CONNRESET.raw_os_error());
    }
}
