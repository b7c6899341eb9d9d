//! Two inline engines in one thread, joined in memory: connections, datagrams, losses, addresses.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use outboard_inline::{
    BindError, Cidr, How, Inline, Ipv6Mode, OpenError, Options, PortSetup, PortSpec, Readiness,
    Stream,
};
use port::Port;
use port::impair::Impaired;
use port::pair::{PairConfig, pair};

/// How long a condition may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn inline(port: Box<dyn Port>, address: &str) -> Inline {
    let setup = PortSetup {
        port,
        addresses: vec![Cidr { address: address.parse().unwrap(), prefix: 24 }],
        gateway: None,
        routes: Vec::new(),
        ipv6: Ipv6Mode::Off,
    };
    Inline::from_ports(vec![setup], &Options::default()).unwrap()
}

/// A client and a server, the client's port with the faults.
fn joined(faults: Option<&str>) -> [Inline; 2] {
    let (a, b, _link) = pair(&PairConfig::default());
    let a: Box<dyn Port> = match faults {
        Some(faults) => Box::new(Impaired::new(a, faults.parse().unwrap(), 1)),
        None => Box::new(a),
    };
    [inline(a, "10.0.0.1"), inline(Box::new(b), "10.0.0.2")]
}

/// Runs both until `done`.
fn run(hosts: &[Inline; 2], what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not come");
        for host in hosts {
            host.poll().unwrap();
        }
    }
}

/// A connection from the first to the second.
fn connected(hosts: &[Inline; 2]) -> [Stream; 2] {
    let listener = hosts[1].listen("10.0.0.2:0".parse().unwrap(), 8).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let client = hosts[0].connect(listener.local()).unwrap();
    let mut served = None;
    run(hosts, "a connection", || {
        served = served.take().or_else(|| listener.accept().ok());
        served.is_some() && client.is_connected()
    });
    let (server, peer) = served.unwrap();
    assert_eq!(peer, client.local());
    [client, server]
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// `0` where the call would block.
fn moved(result: std::io::Result<usize>) -> usize {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        done => done.unwrap(),
    }
}

/// Sends `bytes` from the client, has the server echo them, and closes both ways.
fn echo(hosts: &[Inline; 2], [client, server]: [Stream; 2], bytes: &[u8]) {
    let (mut sent, mut returned, mut page) = (0, Vec::new(), vec![0; 32 << 10]);
    let (mut at_server, mut echoed) = (Vec::new(), 0);
    run(hosts, "the echo", || {
        sent += moved((&client).write(&bytes[sent..]));
        let came = moved((&server).read(&mut page));
        at_server.extend_from_slice(&page[..came]);
        echoed += moved((&server).write(&at_server[echoed..]));
        let came = moved((&client).read(&mut page));
        returned.extend_from_slice(&page[..came]);
        returned.len() == bytes.len()
    });
    assert!(returned == bytes, "what came back differs");
    client.shutdown(How::Write).unwrap();
    run(hosts, "the client's end", || matches!((&server).read(&mut page), Ok(0)));
    // The other direction is still open.
    (&server).write_all(b"bye").unwrap();
    server.shutdown(How::Write).unwrap();
    let mut rest = Vec::new();
    run(hosts, "the server's end", || match (&client).read(&mut page) {
        Ok(0) => true,
        other => {
            let came = moved(other);
            rest.extend_from_slice(&page[..came]);
            false
        }
    });
    assert_eq!(rest, b"bye");
    assert!(client.take_error().is_none() && server.take_error().is_none());
}

#[test]
fn a_megabyte_comes_back_whole_and_both_sides_close() {
    let hosts = joined(None);
    let streams = connected(&hosts);
    echo(&hosts, streams, &pattern(1 << 20));
    assert_eq!(hosts[1].counter("accepts"), Some(1));
    assert_eq!(hosts[0].counter("tcp_resets_received"), Some(0));
    assert_eq!(hosts[0].counter("no such counter"), None);
}

#[test]
fn what_a_port_loses_is_sent_again_when_its_timer_is_due() {
    let hosts = joined(Some("loss:5%"));
    let streams = connected(&hosts);
    echo(&hosts, streams, &pattern(200_000));
    let again: u64 =
        hosts.iter().map(|host| host.counter("tcp_retransmits").expect("the counter")).sum();
    assert!(again > 0, "nothing was lost");
}

#[test]
fn datagrams_come_back_with_their_senders_address() {
    let hosts = joined(None);
    let server = hosts[1].bind("0.0.0.0:5300".parse().unwrap()).unwrap();
    let client = hosts[0].bind("10.0.0.1:0".parse().unwrap()).unwrap();
    assert_ne!(client.local().port(), 0);
    let (to, mut page) = ("10.0.0.2:5300".parse().unwrap(), vec![0; 65536]);
    assert_eq!(client.recv_from(&mut page).unwrap_err().kind(), ErrorKind::WouldBlock);
    for len in [0, 1, 1472, 40_000] {
        let sent = pattern(len);
        assert_eq!(client.send_to(&sent, to).unwrap(), len);
        run(&hosts, "a datagram", || server.readiness().contains(Readiness::IN));
        let received = server.recv_from(&mut page).unwrap();
        assert_eq!(received.remote, client.local());
        server.send_to(&page[..received.len], received.remote).unwrap();
        run(&hosts, "its echo", || client.readiness().contains(Readiness::IN));
        let received = client.recv_from(&mut page).unwrap();
        assert_eq!((received.remote, &page[..received.len]), (to, &sent[..]));
    }
}

#[test]
fn a_port_where_nobody_listens_refuses() {
    let hosts = joined(None);
    let stream = hosts[0].connect("10.0.0.2:9".parse().unwrap()).unwrap();
    let mut error = None;
    run(&hosts, "the refusal", || {
        error = stream.take_error();
        error.is_some()
    });
    assert_eq!(error.unwrap().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn an_address_is_bound_once_and_free_again_after_its_socket() {
    let [host, _] = joined(None);
    let local = "10.0.0.1:80".parse().unwrap();
    let listener = host.listen(local, 8).unwrap();
    assert_eq!(host.listen(local, 8).unwrap_err(), BindError::InUse(local));
    let everywhere = "0.0.0.0:80".parse().unwrap();
    assert_eq!(host.listen(everywhere, 8).unwrap_err(), BindError::InUse(everywhere));
    let datagrams = host.bind(local).unwrap();
    assert_eq!(host.bind(local).unwrap_err(), BindError::InUse(local));
    let foreign = "10.0.0.9:80".parse().unwrap();
    assert_eq!(host.bind(foreign).unwrap_err(), BindError::ForeignAddress(foreign));
    drop((listener, datagrams));
    host.listen(local, 8).unwrap();
    host.bind(local).unwrap();
}

#[test]
fn the_end_delivers_what_was_written() {
    let (a, b, _link) = pair(&PairConfig::default());
    let listens = std::sync::Barrier::new(2);
    let bytes = pattern(20_000);
    let deadline = Some(Instant::now() + PATIENCE);
    std::thread::scope(|scope| {
        // An engine stays in the thread that made it.
        let receiver = scope.spawn(|| {
            let host = inline(Box::new(b), "10.0.0.2");
            let listener = host.listen("10.0.0.2:80".parse().unwrap(), 8).unwrap();
            listens.wait();
            let mut stream = None;
            let accepted = host.wait_until(deadline, || {
                stream = stream.take().or_else(|| listener.accept().ok());
                stream.is_some()
            });
            assert!(accepted.unwrap(), "nobody connected");
            let (stream, _) = stream.unwrap();
            let (mut received, mut page, mut has_ended) = (Vec::new(), vec![0; 32 << 10], false);
            let ended = host.wait_until(deadline, || {
                let read = (&stream).read(&mut page);
                has_ended = matches!(read, Ok(0));
                let came = moved(read);
                received.extend_from_slice(&page[..came]);
                has_ended
            });
            assert!(ended.unwrap(), "the end did not come after {} bytes", received.len());
            drop(stream);
            host.finish(PATIENCE).unwrap();
            received
        });
        let host = inline(Box::new(a), "10.0.0.1");
        listens.wait();
        let stream = host.connect("10.0.0.2:80".parse().unwrap()).unwrap();
        assert!(host.wait_until(deadline, || stream.is_connected()).unwrap(), "no connection");
        (&stream).write_all(&bytes).unwrap();
        assert!(host.finish(PATIENCE).unwrap(), "something was not delivered");
        let late = (&stream).write(&bytes).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::ConnectionReset);
        assert!(receiver.join().unwrap() == bytes, "what came differs");
    });
}

#[test]
fn waiting_ends_at_its_deadline() {
    let [host, _] = joined(None);
    let deadline = Instant::now() + Duration::from_millis(1);
    assert!(!host.wait_until(Some(deadline), || false).unwrap());
    assert!(Instant::now() >= deadline);
}

#[test]
fn ports_that_are_not_a_programs_to_hold_are_refused() {
    let refused = |specs: &[&str]| {
        let specs: Vec<PortSpec> = specs.iter().map(|spec| spec.parse().unwrap()).collect();
        Inline::open(&specs).unwrap_err()
    };
    assert!(matches!(refused(&[]), OpenError::NoPort));
    let shared = refused(&["xdp:eth0"]);
    assert!(matches!(&shared, OpenError::Shared(label) if label == "xdp:eth0"), "{shared}");
    assert!(shared.to_string().contains("any port of that interface"), "{shared}");
    let bare = refused(&["tap:ob0"]);
    assert!(matches!(&bare, OpenError::NoAddress(label) if label == "tap:ob0"), "{bare}");
}
