use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, Shutdown, SocketType, bind, connect_unspec, listen, shutdown, socket, sockopt,
};

use super::*;
use crate::control::authority;

const OWN: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn open() -> Rights {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
    Rights::open(port::netns::cookie(socket.as_fd()).unwrap()).unwrap()
}

/// What the engine sees of a socket.
fn seen(socket: impl AsFd, purpose: Purpose) -> Shown {
    let namespace = port::netns::cookie(socket.as_fd()).unwrap();
    authority::check(socket.as_fd(), purpose, namespace, &[OWN.into()]).unwrap()
}

/// Shows a socket for its use.
fn show(rights: &mut Rights, socket: impl AsFd, purpose: Purpose) -> SocketKey {
    let shown = seen(&socket, purpose);
    let Neighbors { is_contested, .. } = rights.neighbors(&shown, purpose);
    assert!(!is_contested);
    rights.begin_use(&shown, purpose, socket.as_fd());
    shown.key
}

/// One whole look.
fn look(rights: &mut Rights) -> Vec<SocketKey> {
    rights.next_look = Instant::now();
    let mut keys = rights.take().keys;
    while rights.stage.is_some() {
        keys.extend(rights.take().keys);
    }
    keys
}

/// Waits for news, and takes it.
fn news(rights: &mut Rights) -> Vec<SocketKey> {
    // No look is to find it instead.
    rights.next_look = Instant::now() + Duration::from_secs(3600);
    let mut keys = Vec::new();
    while keys.is_empty() {
        poll(&mut [PollFd::new(&rights.fd(), PollFlags::IN)], None).unwrap();
        keys = rights.take().keys;
    }
    keys
}

/// A TCP socket with options of SOL_SOCKET, at a port, which may be 0.
fn bound(reuse_address: bool, reuse_port: bool, port: u16) -> OwnedFd {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseaddr(&socket, reuse_address).unwrap();
    sockopt::set_socket_reuseport(&socket, reuse_port).unwrap();
    bind(&socket, &SocketAddrV4::new(OWN, port)).unwrap();
    socket
}

fn listening(reuse_address: bool, reuse_port: bool, port: u16) -> OwnedFd {
    let socket = bound(reuse_address, reuse_port, port);
    listen(&socket, 8).unwrap();
    socket
}

fn port_of(socket: impl AsFd) -> u16 {
    SocketAddr::try_from(rustix::net::getsockname(socket).unwrap()).unwrap().port()
}

#[test]
fn the_last_close_of_a_shown_socket_is_told() {
    let mut rights = open();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let copy = listener.try_clone().unwrap();
    let mut expected = vec![
        show(&mut rights, &listener, Purpose::Listen),
        show(&mut rights, &datagrams, Purpose::Udp),
    ];
    drop(listener);
    assert_eq!(look(&mut rights), []);
    drop((copy, datagrams));
    let mut found = Vec::new();
    while found.len() < 2 {
        found.extend(news(&mut rights));
    }
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_listener_that_is_shut_down_or_disconnected_loses_its_right_at_once() {
    type End = fn(&OwnedFd) -> rustix::io::Result<()>;
    let ends: [End; 3] = [
        |socket| shutdown(socket, Shutdown::Both),
        |socket| shutdown(socket, Shutdown::Read),
        |socket| connect_unspec(socket),
    ];
    for end in ends {
        let mut rights = open();
        let listener = listening(false, false, 0);
        let key = show(&mut rights, &listener, Purpose::Listen);
        end(&listener).unwrap();
        assert_eq!(news(&mut rights), [key]);
        assert_eq!(rights.due(), None, "nothing is left to look for");
        // It may listen again, and is another's then as for the first time.
        listen(&listener, 8).unwrap();
        assert_eq!(show(&mut rights, &listener, Purpose::Listen), key);
        assert_eq!(look(&mut rights), []);
        end(&listener).unwrap();
        assert_eq!(look(&mut rights), [key]);
    }
}

#[test]
fn sockets_that_live_with_their_port_keep_their_right() {
    let mut rights = open();
    let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
    let kept = (
        TcpListener::bind("127.0.0.1:0").unwrap(),
        TcpListener::bind("[::]:0").unwrap(),
        UdpSocket::bind("0.0.0.0:0").unwrap(),
        bound(true, false, 0),
    );
    show(&mut rights, &kept.0, Purpose::Listen);
    show(&mut rights, &kept.1, Purpose::Listen);
    show(&mut rights, &kept.2, Purpose::Udp);
    show(&mut rights, &kept.3, Purpose::Connect);
    show(&mut rights, &connected, Purpose::Udp);
    kept.2.connect(connected.local_addr().unwrap()).unwrap();
    connected.connect(kept.2.local_addr().unwrap()).unwrap();
    for _ in 0..3 {
        assert_eq!(look(&mut rights), []);
    }
}

#[test]
fn a_socket_that_has_given_its_port_back_loses_its_right_to_it() {
    let mut rights = open();
    let loosened = UdpSocket::bind("127.0.0.1:0").unwrap();
    let moved = UdpSocket::bind("127.0.0.1:0").unwrap();
    let narrowed = UdpSocket::bind("127.0.0.1:0").unwrap();
    let relisting = listening(false, false, 0);
    let uses = [
        show(&mut rights, &loosened, Purpose::Udp),
        show(&mut rights, &moved, Purpose::Udp),
        show(&mut rights, &narrowed, Purpose::Udp),
        show(&mut rights, &relisting, Purpose::Listen),
    ];
    assert_eq!(look(&mut rights), []);
    connect_unspec(&loosened).unwrap();
    let port = port_of(&moved);
    connect_unspec(&moved).unwrap();
    let _other = UdpSocket::bind((OWN, port)).unwrap();
    bind(&moved, &SocketAddrV4::new(OWN, 0)).unwrap();
    let port = port_of(&relisting);
    shutdown(&relisting, Shutdown::Both).unwrap();
    let _next = listening(false, false, port);
    listen(&relisting, 8).unwrap();
    let (level, name) = (1, 62); // SOL_SOCKET, SO_BINDTOIFINDEX
    port::sockets::set_option(narrowed.as_fd(), level, name, &1_i32.to_ne_bytes()).unwrap();
    let mut ended = look(&mut rights);
    ended.sort();
    let mut expected = uses.to_vec();
    expected.sort();
    assert_eq!(ended, expected);
}

#[test]
fn a_bound_socket_that_begins_to_listen_or_connects_is_no_leave_to_connect() {
    let mut rights = open();
    let listener = bound(true, false, 0);
    let client = bound(true, false, 0);
    let keys = [&listener, &client].map(|one| show(&mut rights, one, Purpose::Connect));
    assert_eq!(look(&mut rights), []);
    listen(&listener, 8).unwrap();
    rustix::net::connect(&client, &SocketAddrV4::new(OWN, port_of(&listener))).unwrap();
    let mut ended = look(&mut rights);
    ended.sort();
    // Before Linux 6.8 the end of such a socket is all that the kernel tells.
    let expected = if rights.lists_bound { keys.to_vec() } else { Vec::new() };
    assert_eq!(ended, expected);
}

#[test]
fn what_stays_of_a_stranger_at_a_port_ends_before_somebody_else_is_granted_it() {
    let mut rights = open();
    let before = listening(true, false, 0);
    let old = show(&mut rights, &before, Purpose::Listen);
    shutdown(&before, Shutdown::Both).unwrap();
    let after = listening(true, false, port_of(&before));
    let shown = seen(&after, Purpose::Listen);
    let found = rights.neighbors(&shown, Purpose::Listen);
    assert_eq!((found.ended.keys, found.ended.kept), (vec![old], 1));
    assert_eq!(found.beside, []);
    rights.begin_use(&shown, Purpose::Listen, after.as_fd());
    // The stranger's uses end later, without touching those of the new owner.
    rights.end_use(old);
    assert_eq!(rights.all.len(), 1);
    assert_eq!(look(&mut rights), []);
}

#[test]
fn sockets_that_share_a_port_by_the_kernels_leave_are_beside_each_other() {
    let mut rights = open();
    let first = listening(false, true, 0);
    let second = listening(false, true, port_of(&first));
    let key = show(&mut rights, &first, Purpose::Listen);
    let shown = seen(&second, Purpose::Listen);
    let found = rights.neighbors(&shown, Purpose::Listen);
    assert_eq!((found.ended.keys, found.beside), (vec![], vec![key]));
}

#[test]
fn a_socket_is_watched_until_its_last_use_ends_and_no_longer() {
    let mut rights = open();
    let listener = listening(false, false, 0);
    let key = show(&mut rights, &listener, Purpose::Listen);
    assert_eq!(show(&mut rights, &listener, Purpose::Listen), key);
    rights.end_use(key);
    assert!(rights.due().is_some());
    rights.end_use(key);
    rights.end_use(key);
    assert_eq!((rights.due(), rights.all.len(), rights.places.len()), (None, 0, 0));
}

#[test]
fn a_use_under_way_when_a_right_ends_is_not_taken_for_one_of_the_next() {
    let mut rights = open();
    let listener = listening(false, false, 0);
    let key = show(&mut rights, &listener, Purpose::Listen);
    shutdown(&listener, Shutdown::Both).unwrap();
    assert_eq!(look(&mut rights), [key]);
    listen(&listener, 8).unwrap();
    show(&mut rights, &listener, Purpose::Listen);
    // The worker's word on the first.
    rights.end_use(key);
    shutdown(&listener, Shutdown::Both).unwrap();
    assert_eq!(look(&mut rights), [key]);
}

#[test]
fn a_udp_port_that_another_user_has_too_is_the_kernels_to_give() {
    let right = |local: &str, v6_only| Right {
        purpose: Purpose::Udp,
        local: local.parse().unwrap(),
        v6_only,
        uid: 0,
        uses: 1,
        is_over: false,
        found: true,
    };
    let stranger = |ip: &str, v6_only| Stranger { uid: 7, ip: ip.parse().unwrap(), v6_only };
    for (own, own_only, other, other_only, expected) in [
        ("10.0.0.1:53", false, "10.0.0.1", false, true),
        ("10.0.0.1:53", false, "10.0.0.2", false, false),
        ("0.0.0.0:53", false, "10.0.0.2", false, true),
        ("10.0.0.1:53", false, "0.0.0.0", false, true),
        ("10.0.0.1:53", false, "::", false, true),
        ("10.0.0.1:53", false, "::", true, false),
        ("[::]:53", false, "10.0.0.1", false, true),
        ("[::]:53", true, "10.0.0.1", false, false),
        ("[::]:53", true, "fd00::1", false, true),
        ("[::ffff:10.0.0.1]:53", false, "10.0.0.1", false, true),
        ("0.0.0.0:53", false, "127.0.0.53", false, false),
        ("0.0.0.0:5353", false, "224.0.0.251", false, false),
        ("224.0.0.251:5353", false, "0.0.0.0", false, false),
        ("0.0.0.0:53", false, "fd00::1", false, false),
    ] {
        let other = stranger(other, other_only);
        let found = right(own, own_only).is_contested(&other);
        assert_eq!(found, expected, "{own} and {other:?}");
    }
    let mine = Stranger { uid: 0, ..stranger("10.0.0.1", false) };
    assert!(!right("10.0.0.1:53", false).is_contested(&mine), "a user decides about his own");
}

#[test]
fn a_right_is_backed_by_the_socket_as_it_is_now() {
    let row = |state, local: &str| Row {
        state,
        local: local.parse().unwrap(),
        device: 0,
        cookie: 1,
        uid: 0,
        v6_only: false,
    };
    let right = |purpose, local: &str| Right {
        purpose,
        local: local.parse().unwrap(),
        v6_only: false,
        uid: 0,
        uses: 1,
        is_over: false,
        found: true,
    };
    const CLOSE: u8 = 7;
    for (purpose, shown, state, now, expected) in [
        (Purpose::Listen, "0.0.0.0:80", LISTEN, "0.0.0.0:80", true),
        (Purpose::Listen, "0.0.0.0:80", CLOSE, "0.0.0.0:80", false),
        (Purpose::Listen, "0.0.0.0:80", LISTEN, "10.0.0.1:80", false),
        (Purpose::Listen, "0.0.0.0:80", LISTEN, "0.0.0.0:81", false),
        (Purpose::Udp, "0.0.0.0:80", CLOSE, "0.0.0.0:80", true),
        (Purpose::Udp, "0.0.0.0:80", CLOSE, "10.0.0.1:80", false),
        (Purpose::Udp, "0.0.0.0:80", ESTABLISHED, "10.0.0.1:80", true),
        (Purpose::Udp, "10.0.0.2:80", ESTABLISHED, "10.0.0.1:80", false),
        (Purpose::Udp, "10.0.0.2:80", CLOSE, "0.0.0.0:80", true),
        (Purpose::Udp, "10.0.0.2:80", CLOSE, "[::]:80", false),
        (Purpose::Udp, "0.0.0.0:80", CLOSE, "0.0.0.0:0", false),
    ] {
        let found = right(purpose, shown).is_backed(&row(state, now));
        assert_eq!(found, expected, "{purpose:?} {shown}: {now} in state {state}");
        let bound = Row { device: 2, ..row(state, now) };
        assert!(!right(purpose, shown).is_backed(&bound));
    }
}

#[test]
fn many_sockets_at_other_addresses_of_a_port_contest_nothing() {
    let row = |ip: Ipv4Addr| Row {
        state: 7,
        local: SocketAddrV4::new(ip, 5000).into(),
        device: 0,
        cookie: 9,
        uid: 7,
        v6_only: false,
    };
    let right = Right {
        purpose: Purpose::Udp,
        local: "10.0.0.1:5000".parse().unwrap(),
        v6_only: false,
        uid: 1,
        uses: 1,
        is_over: false,
        found: true,
    };
    let mut strangers = Strangers::default();
    (1..100).for_each(|last| strangers.add(&row(Ipv4Addr::new(127, 0, 0, last))));
    assert!(strangers.0.is_empty(), "loopback is remembered");
    (2..100).for_each(|last| strangers.add(&row(Ipv4Addr::new(10, 0, 0, last))));
    assert!(!strangers.contest(&right));
    strangers.add(&row(Ipv4Addr::new(10, 0, 0, 1)));
    assert!(strangers.contest(&right));
}
