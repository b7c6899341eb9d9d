//! The blocking sockets against a mini engine.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use crate::mini::Mini;
use outboard_client::native::{Datagram, Listener, Poller, Stream};
use outboard_client::{How, Readiness};

fn peer() -> SocketAddr {
    "10.9.0.1:7".parse().unwrap()
}

#[test]
fn threads_block_on_streams_of_their_own_and_none_misses_its_wake_up() {
    let (_mini, session) = Mini::start(false);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let session = &session;
            scope.spawn(move || {
                let mut stream = Stream::connect(session, peer()).unwrap();
                let sent = [thread; 300];
                let mut received = [0; 300];
                for _ in 0..300 {
                    stream.write_all(&sent).unwrap();
                    stream.read_exact(&mut received).unwrap();
                    assert_eq!(received, sent);
                }
                stream.shutdown(How::Write).unwrap();
                assert_eq!(stream.read(&mut received).unwrap(), 0);
            });
        }
    });
}

#[test]
fn a_read_ends_with_its_timeout_and_with_the_engine() {
    let (mut mini, session) = Mini::start(false);
    let mut stream = Stream::connect(&session, peer()).unwrap();
    stream.set_timeout(Some(Duration::from_millis(5)));
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    stream.set_timeout(None);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| stream.read(&mut [0]).unwrap_err());
        mini.kill();
        let error = reading.join().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_refused_connection_is_an_error_of_connect() {
    let (_mini, session) = Mini::start(false);
    let error = Stream::connect(&session, "10.9.0.1:1".parse().unwrap()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn listeners_and_datagrams_block_until_something_comes() {
    let (mini, session) = Mini::start(false);
    let listener = Listener::bind(&session, "127.0.0.1:0".parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap().1);
        mini.knock();
        assert_eq!(accepting.join().unwrap(), "10.9.0.1:50000".parse().unwrap());
    });
    let datagram = Datagram::bind(&session, "127.0.0.1:0".parse().unwrap()).unwrap();
    assert_eq!(datagram.send_to(b"ping", peer()).unwrap(), 4);
    let mut bytes = [0; 10];
    assert_eq!(datagram.recv_from(&mut bytes).unwrap().len, 4);
    assert_eq!(&bytes[..4], b"ping");
}

#[test]
fn a_poller_names_what_is_ready() {
    let (_mini, session) = Mini::start(false);
    let streams: Vec<_> = (0..3).map(|_| Stream::connect(&session, peer()).unwrap()).collect();
    let poller = Poller::new(&session);
    for (key, stream) in streams.iter().enumerate() {
        poller.add(key, stream.endpoint(), Readiness::IN);
    }
    let mut ready = Vec::new();
    poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
    assert!(ready.is_empty());
    (&streams[1]).write_all(b"x").unwrap();
    poller.wait(&mut ready, None).unwrap();
    assert_eq!(ready, [(1, Readiness::IN)]);
}
