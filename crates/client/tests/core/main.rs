//! The client core against a mini engine.

mod children;
mod mini;
mod native;

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use mini::Mini;
use outboard_client::{ConnectOptions, Endpoint, Errno, How, Kind, OptionName, Readiness, Session};
use rustix::event::{PollFd, PollFlags};
use shm::control::{CONTRACT_VERSION, FromEngine, Role, Socket, ToEngine, Wait};

fn peer() -> SocketAddr {
    "10.9.0.1:7".parse().unwrap()
}

fn connected(session: &Arc<Session>) -> Endpoint {
    session.connect(peer(), None, &ConnectOptions::default()).unwrap()
}

/// Sleeps as a program would until `endpoint` has one of `wanted`.
fn wait_for(session: &Session, endpoint: &Endpoint, wanted: Readiness) -> Readiness {
    let mut events = Vec::new();
    loop {
        session.take_events(&mut events);
        let readiness = endpoint.readiness();
        if readiness.intersects(wanted | Readiness::ERR | Readiness::HUP) {
            return readiness;
        }
        if session.arm() {
            if !endpoint.readiness().intersects(wanted) {
                let mut fds: Vec<PollFd<'_>> = session
                    .wake_fds()
                    .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                    .collect();
                rustix::event::poll(&mut fds, None).unwrap();
            }
            session.disarm();
        }
    }
}

#[test]
fn options_that_need_no_answer_are_set_without_waiting_for_the_engine() {
    let (mini, session) = Mini::start(true);
    let endpoint = Arc::new(connected(&session));
    let paused = mini.pause();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn({
        let endpoint = endpoint.clone();
        move || {
            let set = |option, value| endpoint.set_option(option, value);
            let refused = set(OptionName::Keepcnt, 128);
            let taken = [(OptionName::Nodelay, 1), (OptionName::Keepidle, 77)];
            let _ = tell.send((refused, taken.map(|(option, value)| set(option, value))));
        }
    });
    let answers = told.recv_timeout(Duration::from_secs(20));
    drop(paused);
    let (refused, taken) = answers.expect("an option waits for an engine that takes no turn");
    assert_eq!((refused, taken), (Err(Errno::INVAL), [Ok(()); 2]));
    // They hold for every later call.
    assert_eq!(endpoint.option(OptionName::Keepidle), Ok(77));
    assert_eq!(endpoint.option(OptionName::Nodelay), Ok(1));
}

#[test]
fn an_answer_to_a_question_that_was_given_up_is_not_taken_for_another_ones() {
    let (_mini, session) = Mini::start(true);
    // The engine's addresses change with it.
    let _endpoint = connected(&session);
    assert!(session.owns("10.9.0.4".parse().unwrap()));
    assert!(!session.owns("10.9.0.3".parse().unwrap()));
}

fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2654435761).max(1);
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}

fn echo_all(session: &Session, endpoint: &Endpoint, total: usize, seed: u32) {
    let sent = pattern(total, seed);
    let (mut written, mut read) = (0, 0);
    let mut buffer = vec![0; 10_000];
    while read < total {
        let mut idle = true;
        if written < total {
            let chunk = 1 + (written * 7919 + 13) % 30_000;
            let end = total.min(written + chunk);
            let middle = written + (end - written) / 3;
            let parts = [IoSlice::new(&sent[written..middle]), IoSlice::new(&sent[middle..end])];
            match endpoint.write_vectored(&parts) {
                Ok(done) => (written, idle) = (written + done, false),
                Err(Errno::AGAIN) => {}
                Err(errno) => panic!("{errno}"),
            }
        }
        let (low, high) = buffer.split_at_mut(777);
        match endpoint.read_vectored(&mut [IoSliceMut::new(low), IoSliceMut::new(high)]) {
            Ok(done) => {
                assert!(buffer[..done] == sent[read..read + done], "at {read}");
                (read, idle) = (read + done, false);
            }
            Err(Errno::AGAIN) => {}
            Err(errno) => panic!("{errno}"),
        }
        if idle {
            let wanted =
                if written < total { Readiness::IN | Readiness::OUT } else { Readiness::IN };
            wait_for(session, endpoint, wanted);
        }
    }
}

#[test]
fn a_stream_brings_every_byte_in_order_through_small_rings() {
    for busy in [true, false] {
        let (mini, session) = Mini::start(busy);
        let endpoint = connected(&session);
        assert_eq!(endpoint.remote(), Some(peer()));
        echo_all(&session, &endpoint, 2_000_000, 1);
        drop(endpoint);
        drop(mini);
    }
}

#[test]
fn small_writes_share_buffers_and_all_buffers_come_back() {
    let (mini, session) = Mini::start(false);
    for round in 0..50 {
        let endpoints: Vec<_> = (0..3).map(|_| connected(&session)).collect();
        for (at, endpoint) in endpoints.iter().enumerate() {
            for size in [1, 5, 63, 64, 65, 700] {
                echo_all(&session, endpoint, size, (round * 3 + at as u32) * 31 + size as u32);
            }
        }
    }
    // A request that waits for its answer comes after all the closing.
    let last = connected(&session);
    last.set_option(OptionName::Nodelay, 1).unwrap();
    assert_eq!(last.option(OptionName::Nodelay), Ok(1));
    echo_all(&session, &last, 10, 0);
    // All but the open buffer, and what the last endpoint may hold.
    while mini.free_buffers() < 128 - 3 {
        std::thread::yield_now();
    }
}

#[test]
fn the_end_of_a_stream_comes_after_its_last_byte() {
    let (_mini, session) = Mini::start(false);
    let endpoint = connected(&session);
    assert_eq!(endpoint.write(b"last words"), Ok(10));
    endpoint.shutdown(How::Write).unwrap();
    assert_eq!(endpoint.write(b"more"), Err(Errno::PIPE));
    let mut heard = Vec::new();
    let mut bytes = [0; 4];
    loop {
        wait_for(&session, &endpoint, Readiness::IN);
        match endpoint.read(&mut bytes) {
            Ok(0) => break,
            Ok(len) => heard.extend_from_slice(&bytes[..len]),
            Err(errno) => assert_eq!(errno, Errno::AGAIN),
        }
    }
    assert_eq!(heard, b"last words");
    let readiness = endpoint.readiness();
    assert!(readiness.contains(Readiness::IN | Readiness::RDHUP | Readiness::HUP));
}

#[test]
fn peeking_leaves_the_bytes_where_they_are() {
    let (_mini, session) = Mini::start(true);
    let endpoint = connected(&session);
    endpoint.write(b"twice").unwrap();
    while endpoint.readable_bytes() < 5 {
        std::thread::yield_now();
    }
    let mut bytes = [0; 3];
    assert_eq!(endpoint.peek_vectored(&mut [IoSliceMut::new(&mut bytes)]), Ok(3));
    assert_eq!(&bytes, b"twi");
    let mut all = [0; 9];
    assert_eq!(endpoint.read(&mut all), Ok(5));
    assert_eq!(&all[..5], b"twice");
    assert_eq!(endpoint.read(&mut all), Err(Errno::AGAIN));
}

#[test]
fn a_refused_connection_says_so_once() {
    let (_mini, session) = Mini::start(false);
    let remote = "10.9.0.1:1".parse().unwrap();
    let endpoint = session.connect(remote, None, &ConnectOptions::default()).unwrap();
    let readiness = wait_for(&session, &endpoint, Readiness::OUT);
    assert!(readiness.contains(Readiness::OUT | Readiness::ERR | Readiness::HUP));
    assert_eq!(endpoint.take_error(), Some(Errno::CONNREFUSED));
    assert_eq!(endpoint.take_error(), None);
    assert_eq!(endpoint.write(b"x"), Err(Errno::PIPE));
    assert_eq!(endpoint.read(&mut [0]), Ok(0));
}

#[test]
fn a_listener_hands_out_each_connection_once() {
    let (mini, session) = Mini::start(false);
    let kernel = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = session.listen(kernel.as_fd(), 16).unwrap();
    assert_eq!((listener.kind(), listener.local()), (Kind::Listener, mini.local));
    assert_eq!(listener.accept().unwrap_err(), Errno::AGAIN);
    let mut accepted = Vec::new();
    for _ in 0..4 {
        mini.knock();
        wait_for(&session, &listener, Readiness::IN);
        accepted.push(listener.accept().unwrap());
    }
    assert_eq!(listener.accept().unwrap_err(), Errno::AGAIN);
    for (at, accepted) in accepted.iter().enumerate() {
        assert_eq!(accepted.remote, "10.9.0.1:50000".parse().unwrap());
        echo_all(&session, &accepted.endpoint, 5_000, at as u32);
    }
}

#[test]
fn datagrams_come_back_whole_whatever_their_length() {
    let (_mini, session) = Mini::start(false);
    let kernel = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let endpoint = session.bind_udp(kernel.as_fd()).unwrap();
    assert_eq!(endpoint.send_to(None, None, &[IoSlice::new(b"x")]), Err(Errno::DESTADDRREQ));
    let mut buffer = vec![0; 70_000];
    for len in [0, 1, 47, 1472, 4000, 4048, 4049, 9000, 20_000, 30_000].repeat(5) {
        let sent = pattern(len, len as u32);
        let parts = [IoSlice::new(&sent[..len / 2]), IoSlice::new(&sent[len / 2..])];
        loop {
            match endpoint.send_to(Some(peer()), None, &parts) {
                Ok(done) => break assert_eq!(done, len),
                Err(Errno::AGAIN) => drop(wait_for(&session, &endpoint, Readiness::OUT)),
                Err(errno) => panic!("{errno}"),
            }
        }
        wait_for(&session, &endpoint, Readiness::IN);
        assert_eq!(endpoint.readable_bytes(), len as u64);
        let mut one = [0; 1];
        let peeked = endpoint.peek_from(&mut [IoSliceMut::new(&mut one)]).unwrap();
        assert_eq!((peeked.len, peeked.full_len), (len.min(1), len));
        let received = endpoint.recv_from(&mut [IoSliceMut::new(&mut buffer)]).unwrap();
        assert_eq!((received.len, received.full_len, received.remote), (len, len, peer()));
        assert!(buffer[..len] == sent, "of {len} bytes");
    }
    let too_long = vec![0; 65_508];
    let parts = [IoSlice::new(&too_long)];
    assert_eq!(endpoint.send_to(Some(peer()), None, &parts), Err(Errno::MSGSIZE));
    endpoint.set_peer(Some(peer())).unwrap();
    assert_eq!(endpoint.send_to(None, None, &[IoSlice::new(b"hello")]), Ok(5));
}

#[test]
fn an_engine_of_another_contract_refuses_and_the_reason_reaches_the_program() {
    let (here, there) = Socket::pair().unwrap();
    let other = CONTRACT_VERSION + 1;
    let engine = std::thread::spawn(move || {
        let (hello, _) = here.receive::<ToEngine>(Wait::Yes).unwrap();
        let expected = ToEngine::Hello {
            contract: CONTRACT_VERSION,
            role: Role::Session,
            program: "old".into(),
        };
        assert_eq!(hello, expected);
        let reason = "install both of the same release".into();
        here.send(&FromEngine::Refused { contract: other, reason }, &[], Wait::Yes).unwrap();
    });
    let error = Session::attach_over(there, "old").expect_err("a refusal").to_string();
    assert_eq!(
        error,
        format!("the engine (contract {other}) refused: install both of the same release")
    );
    engine.join().unwrap();
}

#[test]
fn the_death_of_the_engine_ends_every_wait_and_fails_every_call() {
    let (mut mini, session) = Mini::start(false);
    let endpoint = connected(&session);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_for(&session, &endpoint, Readiness::IN));
        mini.kill();
        let readiness = waiter.join().unwrap();
        assert!(readiness.contains(Readiness::ERR | Readiness::HUP));
    });
    assert!(!session.is_alive());
    assert_eq!(endpoint.read(&mut [0]), Err(Errno::CONNRESET));
    assert_eq!(endpoint.write(b"x"), Err(Errno::CONNRESET));
    let failed = session.connect(peer(), None, &ConnectOptions::default()).unwrap_err();
    assert_eq!(failed.errno, Errno::CONNRESET);
}

#[test]
fn a_program_that_only_asks_learns_of_the_engines_death_too() {
    let (mut mini, session) = Mini::start(true);
    let endpoint = connected(&session);
    mini.kill();
    let mut errno = Errno::AGAIN;
    for _ in 0..1000 {
        errno = endpoint.read(&mut [0]).unwrap_err();
        if errno != Errno::AGAIN {
            break;
        }
    }
    assert_eq!(errno, Errno::CONNRESET);
}

#[test]
fn threads_share_a_session_and_close_under_each_others_hands() {
    let (_mini, session) = Mini::start(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let session = &session;
            scope.spawn(move || {
                for round in 0..40 {
                    let endpoint = connected(session);
                    let total = 1 + (thread * 40 + round) * 97 % 3000;
                    let sent = pattern(total, round as u32);
                    let mut written = 0;
                    let mut read = 0;
                    let mut buffer = [0; 512];
                    while read < total {
                        if written < total {
                            written += endpoint.write(&sent[written..]).unwrap_or(0);
                        }
                        match endpoint.read(&mut buffer) {
                            Ok(len) => {
                                assert_eq!(buffer[..len], sent[read..read + len]);
                                read += len;
                            }
                            Err(_) => std::thread::yield_now(),
                        }
                    }
                    let same = endpoint.clone();
                    scope.spawn(move || same.close());
                    let _ = endpoint.read(&mut buffer);
                    endpoint.close();
                    assert_eq!(endpoint.read(&mut buffer), Err(Errno::BADF));
                }
            });
        }
    });
}

#[test]
fn the_engines_reach_is_that_of_its_interfaces() {
    let (_mini, session) = Mini::start(true);
    let ip = |text: &str| text.parse().unwrap();
    assert!(session.reaches(ip("10.9.0.77")));
    assert!(!session.reaches(ip("10.9.0.2")) && session.owns(ip("10.9.0.2")));
    for elsewhere in ["10.8.0.1", "127.0.0.1", "224.0.0.1", "::1", "fe80::1"] {
        assert!(!session.reaches(ip(elsewhere)), "{elsewhere}");
    }
}
