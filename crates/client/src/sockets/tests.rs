//! The layer over a kernel that only takes notes, without an engine.

mod forking;

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use shm::control::{Geometry, InterfaceInfo};
use shm::region::Region;

use super::heritage::Inherited;
use super::socket::{Datagram, Socket, held};
use super::table::{Entry, Table};
use super::waiter::Waiter;
use super::{
    About, Config, EpollEvent, Errno, Kernel, Owner, PollFd, Received, SigMask, Sockets, Verdict,
};
use crate::Session;
use crate::endpoint::Kind;

/// The number of every thread.
const THREAD: usize = 7;

/// Notes what it is asked; numbers of new descriptors count up from 50.
#[derive(Default)]
pub(super) struct Notebook {
    calls: Mutex<Vec<String>>,
    next: AtomicI32,
    /// What bind says first.
    bind_fails: Mutex<Option<Errno>>,
    /// Connections that wait in the kernel.
    waiting: AtomicI32,
    /// Polls that a signal interrupts; a connection comes with the last.
    interruptions: AtomicI32,
    /// What happens in the first of them.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Polls that last a second and tell of a connection which another thread then takes first.
    taken_first: AtomicU64,
    /// What these have lasted.
    lasted_ns: AtomicU64,
    /// Whether every handler was installed with SA_RESTART.
    restarts: AtomicBool,
    /// Whether threads let themselves be cancelled.
    lets_cancel: AtomicBool,
    /// How often signals were held back.
    holds: AtomicU32,
    /// What is lent for any number.
    pub(super) lent: Mutex<Option<OwnedFd>>,
}

impl Notebook {
    pub(super) fn leaked() -> &'static Self {
        let notebook = Self { next: AtomicI32::new(50), ..Self::default() };
        Box::leak(Box::new(notebook))
    }

    fn note(&self, call: String) {
        held(self.calls.lock()).push(call);
    }

    pub(super) fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *held(self.calls.lock()))
    }

    fn fresh(&self) -> RawFd {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

impl Kernel for Notebook {
    fn thread(&self) -> usize {
        THREAD
    }
    fn lets_cancel(&self) -> bool {
        self.lets_cancel.load(Ordering::Relaxed)
    }
    fn hold_signals(&self) {
        self.holds.fetch_add(1, Ordering::Relaxed);
    }
    fn poll(
        &self,
        fds: &mut [PollFd],
        _: Option<Duration>,
        _: Option<SigMask>,
    ) -> Result<usize, Errno> {
        if self.taken_first.load(Ordering::Relaxed) > 0 {
            self.taken_first.fetch_sub(1, Ordering::Relaxed);
            self.lasted_ns.fetch_add(1_000_000_000, Ordering::Relaxed);
            fds.iter_mut().for_each(|entry| entry.revents = entry.events);
            return Ok(fds.len());
        }
        match self.interruptions.fetch_sub(1, Ordering::Relaxed) {
            left if left > 0 => {
                self.waiting.store(i32::from(left == 1), Ordering::Relaxed);
                if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
                    meanwhile();
                }
                Err(Errno::INTR)
            }
            _ => {
                if self.waiting.load(Ordering::Relaxed) > 0 {
                    fds.iter_mut().for_each(|entry| entry.revents = entry.events);
                }
                Ok(0)
            }
        }
    }
    fn epoll_ctl(&self, epoll: RawFd, op: i32, fd: RawFd, _: EpollEvent) -> Result<(), Errno> {
        self.note(format!("epoll_ctl {epoll} {op} {fd}"));
        Ok(())
    }
    fn epoll_wait(
        &self,
        _: RawFd,
        _: &mut [EpollEvent],
        _: Option<Duration>,
        _: Option<SigMask>,
    ) -> Result<usize, Errno> {
        Ok(0)
    }
    fn accept(&self, fd: RawFd, _: i32) -> Result<(RawFd, SocketAddr), Errno> {
        self.note(format!("accept {fd}"));
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting == 0 {
            return Err(Errno::AGAIN);
        }
        self.waiting.store(waiting - 1, Ordering::Relaxed);
        Ok((self.fresh(), SocketAddr::from(([192, 0, 2, 1], 7))))
    }
    fn bind(&self, fd: RawFd, addr: SocketAddr) -> Result<(), Errno> {
        self.note(format!("bind {fd} {addr}"));
        held(self.bind_fails.lock()).take().map_or(Ok(()), Err)
    }
    fn listen(&self, fd: RawFd, backlog: i32) -> Result<(), Errno> {
        self.note(format!("listen {fd} {backlog}"));
        Ok(())
    }
    fn connect(&self, fd: RawFd, addr: SocketAddr) -> Result<(), Errno> {
        self.note(format!("connect {fd} {addr}"));
        Ok(())
    }
    fn disconnect(&self, fd: RawFd) -> Result<(), Errno> {
        self.note(format!("disconnect {fd}"));
        Ok(())
    }
    fn local(&self, _: RawFd) -> Result<SocketAddr, Errno> {
        Ok(SocketAddr::from(([0, 0, 0, 0], 80)))
    }
    fn receive(
        &self,
        fd: RawFd,
        _: &mut [IoSliceMut<'_>],
        _: &mut [u8],
        _: i32,
    ) -> Result<Received, Errno> {
        self.note(format!("receive {fd}"));
        Err(Errno::AGAIN)
    }
    fn send(
        &self,
        _: RawFd,
        _: &[IoSlice<'_>],
        _: i32,
        _: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        Err(Errno::AGAIN)
    }
    fn option(&self, _: RawFd, _: i32, _: i32) -> Result<i32, Errno> {
        Ok(0)
    }
    fn set_option(&self, fd: RawFd, level: i32, name: i32, value: i32) -> Result<(), Errno> {
        self.note(format!("set_option {fd} {level} {name} {value}"));
        Ok(())
    }
    fn status_flags(&self, _: RawFd) -> Result<i32, Errno> {
        Ok(libc::O_RDWR | libc::O_NONBLOCK)
    }
    fn duplicate(&self, _: RawFd, at_least: RawFd, _: bool) -> Result<RawFd, Errno> {
        Ok(at_least + self.fresh())
    }
    fn close(&self, fd: RawFd) {
        self.note(format!("close {fd}"));
    }
    fn replace(&self, from: RawFd, at: RawFd) -> Result<(), Errno> {
        self.note(format!("replace {from} {at}"));
        Ok(())
    }
    fn event_fd(&self) -> Result<RawFd, Errno> {
        Ok(self.fresh())
    }
    fn signal_event(&self, fd: RawFd) {
        self.note(format!("signal {fd}"));
    }
    fn drain_event(&self, fd: RawFd) {
        self.note(format!("drain {fd}"));
    }
    fn inert(&self, _: bool) -> Result<RawFd, Errno> {
        Ok(self.fresh())
    }
    fn lend(&self, _: RawFd, body: &mut dyn FnMut(BorrowedFd<'_>)) {
        if let Some(lent) = &*held(self.lent.lock()) {
            body(lent.as_fd());
        }
    }
    fn restarts_after_signal(&self) -> bool {
        self.restarts.load(Ordering::Relaxed)
    }
    fn signal(&self, _: Owner, _: i32, _: Option<About>) -> Result<(), Errno> {
        Err(Errno::SRCH)
    }
    fn set_owner(&self, fd: RawFd, owner: Owner, signal: i32) -> Result<(), Errno> {
        self.note(format!("set_owner {fd} {owner:?} {signal}"));
        Ok(())
    }

    fn start_thread(&self, _: Box<dyn FnOnce() + Send>) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn log(&self, line: &str) {
        self.note(format!("log {line}"));
    }

    fn now_ns(&self) -> u64 {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        let now = u64::try_from(BEGAN.elapsed().as_nanos()).unwrap();
        now + self.lasted_ns.load(Ordering::Relaxed)
    }
}

/// A layer that finds no engine.
pub(super) fn layer() -> (&'static Sockets, &'static Notebook) {
    layer_at(PathBuf::from("/nonexistent/outboard.sock"))
}

/// A layer whose engine's control socket is at a path.
pub(super) fn layer_at(socket: PathBuf) -> (&'static Sockets, &'static Notebook) {
    let kernel = Notebook::leaked();
    let config = Config { socket, program: "test".into(), spin_ns: 0, quiet: false, report: None };
    (Box::leak(Box::new(Sockets::new(config, kernel))), kernel)
}

fn stream(sockets: &Sockets, fd: RawFd) {
    sockets.created(fd, libc::AF_INET, libc::SOCK_STREAM, 0);
}

#[test]
fn a_number_stands_for_something_from_put_to_take() {
    let table = Table::new();
    assert!(!table.tracks(5) && !table.tracks(-1));
    assert!(table.put(5, Entry::Foreign(Inherited::default()), 0).is_ok());
    assert!(table.put(3000, Entry::Internal, 0).is_ok());
    assert!(table.put(-1, Entry::Foreign(Inherited::default()), 0).is_err());
    assert!(table.put(1 << 20, Entry::Foreign(Inherited::default()), 0).is_err());
    assert!(table.tracks(5) && !table.is_internal(5) && table.is_internal(3000));
    assert_eq!(table.occupied(0, u32::MAX), [5, 3000]);
    assert_eq!(table.occupied(6, 2999), []);
    assert!(table.take(5).is_some() && table.take(5).is_none());
    assert!(!table.tracks(5));
}

/// A disconnect went by a list of numbers made before, one of which another thread had closed and made
/// something else of.
#[test]
fn a_number_is_exchanged_only_while_it_stands_for_what_it_did() {
    let table = Table::new();
    let [old, other, fresh] = [(); 3].map(|()| Arc::new(Socket::new(false, true, false)));
    for (number, socket) in [(3, &old), (4, &other)] {
        assert!(table.put(number, Entry::Socket(socket.clone()), 0).is_ok());
    }
    let is = |entry: &Entry, socket: &Arc<Socket>| matches!(entry, Entry::Socket(one) if Arc::ptr_eq(one, socket));
    let exchange = |number: RawFd| {
        let with = || Ok((Entry::Socket(fresh.clone()), 0));
        table.exchange(number, |entry| is(entry, &old), with).unwrap().is_some()
    };
    assert_eq!([3, 4, 5].map(exchange), [true, false, false]);
    let stands_for = |number, socket| table.with(number, |entry| is(entry, socket));
    assert_eq!(stands_for(3, &fresh), Some(true));
    assert_eq!(stands_for(4, &other), Some(true));
    assert_eq!(stands_for(5, &fresh), None);
}

/// F_SETFL on a listener ended with the library's own O_NONBLOCK, and O_ASYNC never reached the kernel,
/// which tells of what comes to its side.
#[test]
fn the_kernels_side_of_a_listener_gets_the_flags_and_stays_non_blocking() {
    let (sockets, kernel) = layer();
    stream(sockets, 3);
    assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
    let real = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let copy = real.try_clone().unwrap();
    *held(kernel.lent.lock()) = Some(copy.into());
    for (flags, expected) in [
        (libc::O_ASYNC, libc::O_ASYNC | libc::O_NONBLOCK),
        (0, libc::O_NONBLOCK),
        (libc::O_ASYNC | libc::O_NONBLOCK, libc::O_ASYNC | libc::O_NONBLOCK),
    ] {
        assert_eq!(sockets.set_status_flags(3, flags), Verdict::Done(Ok(())));
        let told = rustix::fs::fcntl_getfl(&real).unwrap().bits().cast_signed();
        assert_eq!(told & (libc::O_ASYNC | libc::O_NONBLOCK), expected);
    }
}

#[test]
fn only_stream_and_datagram_sockets_of_ip_are_followed() {
    let (sockets, _) = layer();
    sockets.created(3, libc::AF_UNIX, libc::SOCK_STREAM, 0);
    sockets.created(4, libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_TCP);
    sockets.created(5, libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
    sockets.created(6, libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0);
    assert_eq!([3, 4, 5, 6].map(|fd| sockets.tracks(fd)), [false, false, true, true]);
}

/// A ping socket was shown to the engine as one of UDP, and an SCTP socket opened a TCP connection.
#[test]
fn of_stream_and_datagram_sockets_only_those_of_tcp_and_udp_are_followed() {
    for (kind, protocol, is_followed) in [
        (libc::SOCK_STREAM, libc::IPPROTO_TCP, true),
        (libc::SOCK_STREAM, libc::IPPROTO_SCTP, false),
        (libc::SOCK_STREAM, libc::IPPROTO_MPTCP, false),
        (libc::SOCK_DGRAM, libc::IPPROTO_UDP, true),
        (libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE, false),
        (libc::SOCK_DGRAM, libc::IPPROTO_ICMP, false),
        (libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6, false),
    ] {
        let (sockets, _) = layer();
        sockets.created(3, libc::AF_INET6, kind, protocol);
        assert_eq!(sockets.tracks(3), is_followed, "{kind} {protocol}");
    }
}

#[test]
fn a_socket_whose_peer_is_the_kernels_is_forgotten_under_all_its_numbers() {
    let (sockets, _) = layer();
    stream(sockets, 3);
    sockets.duplicated(3, 4);
    assert!(sockets.tracks(4));
    let loopback = SocketAddr::from(([127, 0, 0, 1], 80));
    assert_eq!(sockets.connect(3, Some(loopback)), Verdict::Kernel);
    assert!(!sockets.tracks(3) && !sockets.tracks(4));
}

#[test]
fn without_an_engine_the_kernel_serves_and_the_program_is_told_once() {
    let (sockets, kernel) = layer();
    stream(sockets, 3);
    let far = SocketAddr::from(([192, 0, 2, 9], 80));
    assert_eq!(sockets.connect(3, Some(far)), Verdict::Kernel);
    stream(sockets, 3);
    assert_eq!(sockets.connect(3, Some(far)), Verdict::Kernel);
    let said = kernel.taken();
    assert_eq!(said.iter().filter(|line| line.starts_with("log outboard: no engine")).count(), 1);
}

#[test]
fn a_listener_hands_out_the_kernels_connections_and_never_blocks_there() {
    let (sockets, kernel) = layer();
    stream(sockets, 3);
    assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
    assert!(kernel.taken().contains(&"listen 3 16".to_string()));
    // The kernel's side is non-blocking, which the program does not see.
    assert_eq!(sockets.status_flags(3), Verdict::Done(Ok(libc::O_RDWR)));
    assert_eq!(sockets.set_nonblocking(3, true), Verdict::Done(Ok(())));
    assert_eq!(sockets.accept(3, 0), Verdict::Done(Err(Errno::AGAIN)));
    kernel.waiting.store(1, Ordering::Relaxed);
    let peer = SocketAddr::from(([192, 0, 2, 1], 7));
    assert!(matches!(sockets.accept(3, 0), Verdict::Done(Ok((_, from))) if from == peer));
}

/// O_NONBLOCK belongs to all processes that share a listener. A forked child that became another program
/// cleared it, and its parent's accept blocked in the kernel while connections waited in the engine.
#[test]
fn a_shared_listener_is_polled_and_made_non_blocking_before_the_kernel_accepts() {
    let (sockets, kernel) = layer();
    stream(sockets, 3);
    let real = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    *held(kernel.lent.lock()) = Some(real.try_clone().unwrap().into());
    assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
    sockets.has_forked();
    real.set_nonblocking(false).unwrap();
    let listener = sockets.socket(3).unwrap();
    listener.receive_timeout_ns.store(1, Ordering::Relaxed);
    kernel.taken();
    assert_eq!(sockets.accept(3, 0), Verdict::Done(Err(Errno::AGAIN)));
    let is_accept = |call: &String| call.starts_with("accept");
    assert!(!kernel.taken().iter().any(is_accept), "there was nothing to take");
    kernel.waiting.store(1, Ordering::Relaxed);
    assert!(matches!(sockets.accept(3, 0), Verdict::Done(Ok(_))));
    assert!(kernel.taken().iter().any(is_accept));
    let flags = rustix::fs::fcntl_getfl(&real).unwrap();
    assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
}

/// What the engine could not be told is told at the next occasion.
#[test]
fn a_listener_counts_as_left_only_once_the_engine_was_told() {
    let (sockets, _) = layer();
    stream(sockets, 3);
    assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
    let listener = sockets.socket(3).unwrap();
    sockets.pass_listener(3, &listener, false);
    assert!(!listener.is_left.load(Ordering::Relaxed));
}

#[test]
fn an_interrupted_call_waits_on_where_handlers_ask_for_it_and_no_timeout_is_set() {
    let accept = |restarts: bool, timeout: Duration| {
        let (sockets, kernel) = layer();
        stream(sockets, 3);
        assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
        let era = sockets.era().unwrap();
        let socket = era.table.with(3, |entry| match entry {
            Entry::Socket(socket) => Some(socket.clone()),
            _ => None,
        });
        let ns = u64::try_from(timeout.as_nanos()).unwrap();
        socket.flatten().unwrap().receive_timeout_ns.store(ns, Ordering::Relaxed);
        kernel.restarts.store(restarts, Ordering::Relaxed);
        kernel.interruptions.store(3, Ordering::Relaxed);
        sockets.accept(3, 0)
    };
    let hour = Duration::from_secs(3600);
    assert!(matches!(accept(true, Duration::ZERO), Verdict::Done(Ok(_))));
    assert_eq!(accept(false, Duration::ZERO), Verdict::Done(Err(Errno::INTR)));
    assert_eq!(accept(true, hour), Verdict::Done(Err(Errno::INTR)));
}

#[test]
fn an_accept_that_comes_too_late_again_and_again_ends_with_its_time() {
    let (sockets, kernel) = layer();
    stream(sockets, 3);
    assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
    let time = [2_i64, 500_000].map(i64::to_ne_bytes);
    let set = sockets.set_option(3, libc::SOL_SOCKET, libc::SO_RCVTIMEO, time.as_flattened());
    assert_eq!(set, Verdict::Kernel);
    kernel.taken_first.store(1000, Ordering::Relaxed);
    assert_eq!(sockets.accept(3, 0), Verdict::Done(Err(Errno::AGAIN)));
    assert_eq!(kernel.taken_first.load(Ordering::Relaxed), 997);
}

/// The kernel would keep a thread that waits there, and what the engine brings once another thread
/// has sent would never reach it.
#[test]
fn a_blocked_receive_is_not_left_to_the_kernel_before_the_engine_knows_the_socket() {
    let (sockets, kernel) = layer();
    sockets.created(3, libc::AF_INET, libc::SOCK_DGRAM, 0);
    kernel.interruptions.store(2, Ordering::Relaxed);
    let outcome = sockets.receive(3, &mut [], &mut [], 0);
    assert_eq!(outcome.map(|got| got.len), Verdict::Done(Err(Errno::INTR)));
    assert_eq!(kernel.taken().first().map(String::as_str), Some("receive 3"));
    // What does not wait is the kernel's as long as the engine has no part in the socket.
    for flags in [libc::MSG_DONTWAIT, libc::MSG_ERRQUEUE] {
        assert_eq!(sockets.receive(3, &mut [], &mut [], flags), Verdict::Kernel);
    }
}

/// What comes by the engine passes no filter of the kernel's.
#[test]
fn a_socket_that_keeps_something_out_is_the_kernels_also_when_it_listens_already() {
    let options = [
        (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
        (libc::SOL_SOCKET, libc::SO_ATTACH_BPF),
        (libc::IPPROTO_IP, libc::IP_MINTTL),
        (libc::IPPROTO_IPV6, 73),
    ];
    for (level, name) in options {
        let (sockets, kernel) = layer();
        stream(sockets, 3);
        sockets.created(4, libc::AF_INET, libc::SOCK_DGRAM, 0);
        assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
        for fd in [3, 4] {
            let set = |value: u32| sockets.set_option(fd, level, name, &value.to_ne_bytes());
            // A filter's program may have descriptor 0.
            let value = if level == libc::SOL_SOCKET { 0 } else { 255 };
            if value != 0 {
                assert_eq!(set(0), Verdict::Kernel);
                assert!(sockets.tracks(fd), "no hops keep out nothing");
            }
            kernel.taken();
            assert_eq!(set(value), Verdict::Done(Ok(())));
            assert!(!sockets.tracks(fd));
            assert!(kernel.taken().contains(&format!("set_option {fd} {level} {name} {value}")));
        }
    }
}

/// A session whose engine does nothing; it ends when the descriptor is closed.
pub(super) fn idle_session() -> (Arc<Session>, OwnedFd) {
    let interface = InterfaceInfo {
        name: "test".into(),
        addresses: vec![([192, 0, 2, 2].into(), 24)],
        has_gateway: false,
        mtu: 1500,
        routes: Vec::new(),
        shared: true,
        kernel_index: 1,
    };
    let geometry = Geometry {
        region_bytes: 0,
        context_count: 1,
        worker_count: 1,
        request_slots: 16,
        stock_slots: 16,
        endpoint_capacity: 4,
        send_slots: 4,
        receive_slots: 4,
        buffer_bytes: 2048,
        buffer_count: 8,
    };
    let region = Arc::new(Region::private(geometry).unwrap());
    Session::in_process(region, 0, vec![interface], Arc::new(|| ())).unwrap()
}

/// A layer whose session has an engine that does nothing, and its datagram socket 3.
struct Faced {
    sockets: &'static Sockets,
    kernel: &'static Notebook,
    session: Arc<Session>,
    socket: Arc<Socket>,
    face: Datagram,
    _engine: OwnedFd,
}

const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7);

impl Faced {
    fn new() -> Self {
        let (sockets, kernel) = layer();
        sockets.created(3, libc::AF_INET, libc::SOCK_DGRAM, 0);
        let (session, _engine) = idle_session();
        sockets.use_session(session.clone());
        let era = sockets.era().unwrap();
        let local = SocketAddr::from(([192, 0, 2, 2], 80));
        let endpoint = Arc::new(session.adopt(Kind::Datagram, 0, local).unwrap());
        let socket = era.table.with(3, |entry| match entry {
            Entry::Socket(socket) => Some(socket.clone()),
            _ => None,
        });
        let socket = socket.flatten().unwrap();
        let face = Datagram {
            endpoint,
            attachment: era.link.current().unwrap(),
            v6_only: false,
            peer: None,
        };
        Self { sockets, kernel, session, socket, face, _engine }
    }

    /// Gives the socket its face, with a peer there and one in the kernel.
    fn connect(&self, peer: Option<SocketAddr>, kernels: Option<SocketAddr>) {
        *held(self.socket.datagram.write()) = Some(Datagram { peer, ..self.face.clone() });
        *held(self.socket.peer.lock()) = kernels;
    }

    fn receive(&self) -> Verdict<usize> {
        self.sockets.receive(3, &mut [], &mut [], libc::MSG_DONTWAIT).map(|got| got.len)
    }
}

/// A server whose receive met the end between its notice and the socket's being told had ECONNRESET,
/// which no server expects of a socket without a peer.
#[test]
fn the_engines_end_does_not_show_at_a_datagram_socket_that_has_yet_to_be_told() {
    let faced = Faced::new();
    faced.session.note_death();
    // The socket's peer in the engine and in the kernel, and whether the kernel's side goes on.
    for (ours, kernels, goes_on) in
        [(None, None, true), (Some(PEER), Some(PEER), true), (Some(PEER), None, false)]
    {
        faced.connect(ours, kernels);
        let received = faced.receive();
        let to = Some(PEER).filter(|_| ours.is_none());
        let sent = faced.sockets.send(3, &[IoSlice::new(b"answer")], 0, to);
        let lost = Verdict::Done(Err(Errno::CONNRESET));
        let expected = if goes_on { Verdict::Kernel } else { lost };
        assert_eq!((received, sent), (expected, expected));
        assert_eq!(faced.socket.polled_bits(u32::MAX) == 0, goes_on);
    }
}

/// What an engine's absence had left in the kernel's queue stayed there, and poll told of it for ever.
#[test]
fn what_came_to_the_kernels_side_is_received_where_it_has_the_peer() {
    let faced = Faced::new();
    for (ours, kernels, is_asked) in
        [(None, None, true), (Some(PEER), Some(PEER), true), (Some(PEER), None, false)]
    {
        faced.connect(ours, kernels);
        faced.kernel.taken();
        assert_eq!(faced.receive(), Verdict::Done(Err(Errno::AGAIN)));
        assert_eq!(faced.kernel.taken().contains(&"receive 3".to_string()), is_asked);
    }
}

#[test]
fn the_layers_own_numbers_survive_a_program_that_closes_everything() {
    let (sockets, _) = layer();
    stream(sockets, 3);
    let era = sockets.era().unwrap();
    sockets.hide(era, 10);
    sockets.hide(era, 12);
    assert_eq!(sockets.closing(10), Verdict::Done(Err(Errno::BADF)));
    let mut closed = Vec::new();
    sockets.closing_range(2, 20, &mut |first, last| closed.push((first, last)));
    assert_eq!(closed, [(2, 9), (11, 11), (13, 20)]);
    assert!(!sockets.tracks(3) && sockets.tracks(10));
}

#[test]
fn an_early_interest_is_the_kernels_too_and_ends_with_the_number() {
    let (sockets, kernel) = layer();
    stream(sockets, 3);
    sockets.epoll_created(4);
    let event = EpollEvent { events: libc::EPOLLIN as u32, data: 1 };
    assert_eq!(sockets.epoll_ctl(4, libc::EPOLL_CTL_ADD, 3, event), Verdict::Done(Ok(())));
    assert_eq!(
        sockets.epoll_ctl(4, libc::EPOLL_CTL_ADD, 3, event),
        Verdict::Done(Err(Errno::EXIST))
    );
    assert!(kernel.taken().contains(&format!("epoll_ctl 4 {} 3", libc::EPOLL_CTL_ADD)));
    assert_eq!(sockets.closing(3), Verdict::Kernel);
    assert!(kernel.taken().contains(&format!("epoll_ctl 4 {} 3", libc::EPOLL_CTL_DEL)));
    assert_eq!(sockets.epoll_ctl(4, libc::EPOLL_CTL_DEL, 3, event), Verdict::Kernel);
}

#[test]
fn an_interest_lives_as_long_as_its_socket_has_a_number() {
    let (sockets, kernel) = layer();
    stream(sockets, 3);
    sockets.duplicated(3, 4);
    sockets.epoll_created(5);
    let event = EpollEvent { events: libc::EPOLLIN as u32, data: 1 };
    let (add, del) = (libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_DEL);
    let control = |operation, fd| sockets.epoll_ctl(5, operation, fd, event);
    assert_eq!(control(add, 3), Verdict::Done(Ok(())));
    kernel.taken();
    assert_eq!(sockets.closing(3), Verdict::Kernel);
    let calls = kernel.taken();
    let moved = format!("epoll_ctl 5 {add} ");
    let hidden = calls.iter().find_map(|call| call.strip_prefix(&moved)).expect("moved");
    assert!(calls.contains(&format!("epoll_ctl 5 {del} 3")), "{calls:?}");
    // The number is another socket's now, of which the same set is told, too.
    stream(sockets, 3);
    assert_eq!(control(add, 3), Verdict::Done(Ok(())));
    assert_eq!(control(add, 3), Verdict::Done(Err(Errno::EXIST)));
    kernel.taken();
    assert_eq!(sockets.closing(4), Verdict::Kernel);
    let calls = kernel.taken();
    assert!(calls.contains(&format!("epoll_ctl 5 {del} {hidden}")), "{calls:?}");
    assert!(calls.contains(&format!("close {hidden}")), "{calls:?}");
    assert!(!sockets.tracks(hidden.parse().unwrap()));
    assert_eq!(control(libc::EPOLL_CTL_MOD, 3), Verdict::Done(Ok(())));
    assert_eq!(control(del, 3), Verdict::Done(Ok(())));
}

#[test]
fn news_before_falling_asleep_keeps_one_awake_and_only_sleepers_are_rung() {
    let kernel = Notebook::leaked();
    let waiter = Waiter::new(9);
    waiter.wake(kernel);
    assert_eq!(waiter.fall_asleep(kernel), None);
    assert_eq!(kernel.taken(), Vec::<String>::new());
    waiter.clear();
    let round = waiter.fall_asleep(kernel).unwrap();
    waiter.wake(kernel);
    waiter.wake(kernel);
    assert_eq!(kernel.taken(), ["signal 9"]);
    waiter.awake(round, kernel);
    assert_eq!(kernel.taken(), ["drain 9"]);
}

/// The one that the kernel woke emptied the eventfd, and whoever was meant slept on.
#[test]
fn who_is_roused_keeps_the_eventfd_readable_until_all_who_slept_have_woken() {
    let kernel = Notebook::leaked();
    let waiter = Waiter::new(9);
    let [first, second] = [(); 2].map(|()| waiter.fall_asleep(kernel).unwrap());
    waiter.rouse(kernel);
    assert_eq!(kernel.taken(), ["signal 9"]);
    waiter.awake(first, kernel);
    waiter.drain(kernel);
    waiter.clear();
    let third = waiter.fall_asleep(kernel).unwrap();
    waiter.awake(third, kernel);
    assert_eq!(kernel.taken(), Vec::<String>::new());
    waiter.awake(second, kernel);
    assert_eq!(kernel.taken(), ["drain 9"]);
}

/// A handler's wait in the middle of its thread's own cleared the news of that, which then slept on.
#[test]
fn a_wait_in_a_handler_leaves_the_wait_that_it_interrupted_with_news() {
    let kernel = Notebook::leaked();
    let waiter = Waiter::new(9);
    waiter.begin();
    waiter.clear();
    waiter.wake(kernel);
    // The handler.
    waiter.begin();
    waiter.clear();
    waiter.end(kernel);
    assert_eq!(waiter.fall_asleep(kernel), None, "it looks again");
    waiter.clear();
    let round = waiter.fall_asleep(kernel).unwrap();
    waiter.begin();
    waiter.wake(kernel);
    waiter.end(kernel);
    assert_eq!(kernel.taken(), ["signal 9", "signal 9"], "it is rung, whatever the handler took");
    waiter.awake(round, kernel);
    waiter.end(kernel);
    assert!(waiter.is_signalled());
}

#[test]
fn a_cancelled_thread_comes_back_from_its_wait_unless_it_puts_that_off() {
    for lets_cancel in [true, false] {
        let (sockets, kernel) = layer();
        stream(sockets, 3);
        assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
        kernel.restarts.store(true, Ordering::Relaxed);
        kernel.lets_cancel.store(lets_cancel, Ordering::Relaxed);
        let accept = || {
            // A connection comes while it waits.
            kernel.interruptions.store(1, Ordering::Relaxed);
            sockets.accept(3, 0).map(drop)
        };
        assert_eq!(sockets.cancel(THREAD + 1, || 5), 5);
        assert_eq!(accept(), Verdict::Done(Ok(())), "another one is");
        assert_eq!(sockets.cancel(THREAD, || 0), 0);
        let expected = if lets_cancel { Err(Errno::CANCELED) } else { Ok(()) };
        assert_eq!(accept(), Verdict::Done(expected));
        // It has not ended with this call, so it ends: what it does until then is done.
        sockets.calls();
        assert_eq!(accept(), Verdict::Done(Ok(())));
    }
}

/// It was told of a signal, which it does not know.
#[test]
fn a_thread_that_is_cancelled_by_a_signal_in_its_wait_is_not_told_of_that() {
    let (sockets, kernel) = layer();
    stream(sockets, 3);
    assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
    kernel.lets_cancel.store(true, Ordering::Relaxed);
    kernel.interruptions.store(1, Ordering::Relaxed);
    *kernel.meanwhile.lock().unwrap() = Some(Box::new(|| {
        sockets.cancel(THREAD, || 0);
    }));
    assert_eq!(sockets.accept(3, 0).map(drop), Verdict::Done(Err(Errno::CANCELED)));
}

/// Each call of every thread took a lock and held signals back from then on.
#[test]
fn a_thread_that_is_cancelled_and_makes_no_call_costs_others_one_look() {
    let (sockets, kernel) = layer();
    assert_eq!(sockets.cancel(THREAD + 1, || 0), 0);
    let held = || kernel.holds.swap(0, Ordering::Relaxed);
    held();
    sockets.calls();
    assert_eq!(held(), 1);
    for _ in 0..3 {
        sockets.calls();
        assert!(!sockets.is_cancelled(sockets.era().unwrap()));
    }
    assert_eq!(held(), 0);
}

/// A daemon's listener took connections without a signature from peers whose key it had been told.
#[test]
fn a_forked_childs_sockets_have_the_keys_and_timeouts_of_their_parents() {
    let (sockets, _) = layer();
    stream(sockets, 3);
    let mut key = [0_u8; 216];
    key[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    key[4..8].copy_from_slice(&[192, 0, 2, 1]);
    (key[130], key[136]) = (1, b'k');
    let set = |level, name, bytes: &[u8]| {
        assert_eq!(sockets.set_option(3, level, name, bytes), Verdict::Kernel);
    };
    set(libc::IPPROTO_TCP, super::signing::TCP_MD5SIG, &key);
    set(libc::IPPROTO_TCP, super::options::TCP_FASTOPEN_KEY, &[7; 16]);
    let second = [1_i64.to_ne_bytes(), 0_i64.to_ne_bytes()];
    set(libc::SOL_SOCKET, libc::SO_SNDTIMEO, second.as_flattened());
    assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
    stream(sockets, 4);
    let parents = [3, 4].map(|fd| sockets.socket(fd).unwrap());
    // A thread of the parent's, which the child has not, is telling of a key.
    let telling = held(parents[1].keys.lock());
    sockets.forked();
    drop(telling);
    let listener = sockets.socket(3).unwrap();
    assert_eq!(held(listener.keys.lock()).first().map(|key| key.key.to_vec()), Some(vec![b'k']));
    assert!(held(listener.fast_open_keys.lock()).is_some());
    assert_eq!(listener.send_timeout_ns.load(Ordering::Relaxed), 1_000_000_000);
    assert!(!sockets.tracks(4), "without its keys known it is the kernel's");
}

#[test]
fn each_socket_is_counted_with_what_became_of_it() {
    let (sockets, _) = layer();
    let said = || sockets.census().map(|line| line.to_string()).collect::<Vec<_>>();
    sockets.created(3, libc::AF_UNIX, libc::SOCK_STREAM, 0);
    sockets.created(3, libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_MPTCP);
    let loopback = SocketAddr::from(([127, 0, 0, 1], 80));
    for _ in 0..2 {
        stream(sockets, 3);
        assert_eq!(sockets.connect(3, Some(loopback)), Verdict::Kernel);
    }
    stream(sockets, 4);
    let far = SocketAddr::from(([192, 0, 2, 9], 80));
    assert_eq!(sockets.connect(4, Some(far)), Verdict::Kernel);
    stream(sockets, 5);
    let mark = 7_i32.to_ne_bytes();
    assert_eq!(sockets.set_option(5, libc::SOL_SOCKET, libc::SO_MARK, &mark), Verdict::Kernel);
    sockets.created(6, libc::AF_INET, libc::SOCK_DGRAM, 0);
    let sent = sockets.send(6, &[std::io::IoSlice::new(b"x")], 0, Some(loopback));
    assert_eq!(sent, Verdict::Kernel);
    assert_eq!(
        said(),
        [
            "1 socket: kernel, family AF_UNIX, not IPv4 or IPv6",
            "1 socket: kernel, protocol 262, neither TCP nor UDP",
            "2 connections to 127.0.0.1:80: kernel, loopback",
            "1 connection to 192.0.2.9:80: kernel, no engine answered",
            "1 TCP socket: kernel, SO_MARK is implemented only by the kernel",
            "1 UDP socket sending to 127.0.0.1:80: kernel, loopback",
        ]
    );
}

#[test]
fn an_option_without_effect_is_named_and_one_that_has_none_in_the_kernel_is_not() {
    let (sockets, kernel) = layer();
    let program = libc::SO_ATTACH_REUSEPORT_CBPF;
    for (level, option) in [(libc::SOL_SOCKET, program), (9999, 8)] {
        sockets.name_option(level, option, "is accepted without effect");
    }
    assert_eq!(
        kernel.taken(),
        [
            "log outboard: socket option SO_ATTACH_REUSEPORT_CBPF is accepted without effect on \
             accelerated sockets",
            "log outboard: socket option 8 of level 9999 is accepted without effect on accelerated \
             sockets",
        ]
    );
    assert!(super::option_kinds::is_silent(libc::IPPROTO_IP, libc::IP_PKTINFO));
    assert!(!super::option_kinds::is_silent(libc::IPPROTO_IP, libc::IP_RECVERR));
}
