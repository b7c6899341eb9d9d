//! What a script is run against: a host under test, with one program in it and a wire to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use client::sockets::Queue;
use rustix::io::Errno;
use wire::MacAddr;

/// Address of the host under test.
pub const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Address of the script's peer, on the same link.
pub const REMOTE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The same of IPv6.
pub const LOCAL6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
/// The peer's of IPv6.
pub const REMOTE6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// Address of the host under test of a family.
pub fn local(v6: bool) -> IpAddr {
    if v6 { LOCAL6.into() } else { LOCAL.into() }
}

/// Address of its peer.
pub fn remote(v6: bool) -> IpAddr {
    if v6 { REMOTE6.into() } else { REMOTE.into() }
}

/// Link address of the host, where it can be chosen.
pub const LOCAL_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// Link address of the peer.
pub const REMOTE_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// A system call with live descriptors.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is the system call of its name")]
pub enum SystemCall {
    Socket { domain: i32, kind: i32, protocol: i32 },
    Bind { fd: i32, address: SocketAddr },
    Listen { fd: i32, backlog: i32 },
    Accept { fd: i32, flags: i32 },
    Connect { fd: i32, address: SocketAddr },
    Disconnect { fd: i32 },
    Receive { fd: i32, room: Vec<usize>, control_len: usize, flags: i32 },
    Send { fd: i32, parts: Vec<Vec<u8>>, control: Vec<u8>, flags: i32, to: Option<SocketAddr> },
    Close { fd: i32 },
    Shutdown { fd: i32, how: i32 },
    StatusFlags { fd: i32 },
    SetStatusFlags { fd: i32, flags: i32 },
    Queued { fd: i32, queue: Queue },
    AtMark { fd: i32 },
    Option { fd: i32, level: i32, name: i32, len: usize },
    SetOption { fd: i32, level: i32, name: i32, bytes: Vec<u8> },
    Poll { fds: Vec<(i32, i16)>, timeout_ms: i32 },
    Name { fd: i32, of_peer: bool },
}

/// What a call gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What it returned.
    pub value: i64,
    /// Bytes that it wrote: data, or an option's value.
    pub bytes: Vec<u8>,
    /// What poll saw.
    pub revents: Vec<i16>,
    /// An address: who sent, who was accepted, or what a socket is called.
    pub address: Option<SocketAddr>,
    /// Control messages, as the kernel lays them out.
    pub control: Vec<u8>,
    /// What `msg_flags` says.
    pub flags: i32,
}

impl Answer {
    /// A call that returns only a number.
    pub fn of(value: i64) -> Self {
        Self { value, ..Self::default() }
    }
}

/// What a call came to.
pub type Outcome = Result<Answer, Errno>;

/// A host under test.
pub trait System {
    /// Nanoseconds since some moment before the script.
    fn now(&self) -> u64;

    /// Lets time pass until `until`; returns sooner when a frame came out or the call ended.
    fn pass(&mut self, until: u64);

    /// Frames that came out since the last look, each with its time.
    fn take_frames(&mut self) -> Vec<(u64, Vec<u8>)>;

    /// A frame arrives now, from the Ethernet header on. The host's link address is filled in.
    fn inject(&mut self, frame: Vec<u8>);

    /// Datagrams of so many bytes arrive as one, as a link hands them over that has put them
    /// together: the UDP checksum is that of the pseudo-header alone.
    fn inject_datagrams(&mut self, frame: Vec<u8>, segment_bytes: u16);

    /// The program begins a call. Only when the one before has ended.
    fn start(&mut self, call: SystemCall);

    /// The call's outcome and time, once, when it has ended.
    fn take_outcome(&mut self) -> Option<(u64, Outcome)>;

    /// The time of day now, nanoseconds since 1970.
    fn calendar_ns(&self) -> u64;

    /// How far off the expected time something may be when the script does not say.
    fn tolerance_ns(&self) -> u64;
}
