//! The machine's kernel as the host under test, in real time: its sockets, and a TAP device as
//! the wire. It must run in a network namespace of its own, which it changes.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use client::sockets::Queue;
use port::{Gso, GsoKind, Port, PortSpec, RxBurst, RxChecksum, TxMeta, sockets};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketType};
use wire::{MacAddr, ethernet};

use crate::errors::Unsupported;
use crate::frame;
use crate::system::{Answer, LOCAL, LOCAL_MAC, LOCAL6, Outcome, System, SystemCall};

/// Timers of the kernel count in ticks of up to 10 ms, and a busy machine adds to it.
const TOLERANCE_NS: u64 = 25_000_000;
/// Name of the device.
const DEVICE: &str = "script0";

/// The kernel, with the thread of one program.
pub struct Linux {
    port: Box<dyn Port>,
    burst: RxBurst,
    mac: MacAddr,
    origin: Instant,
    frames: Vec<(u64, Vec<u8>)>,
    calls: Sender<SystemCall>,
    outcomes: Receiver<(Instant, Outcome)>,
    outcome: Option<(u64, Outcome)>,
    ended: OwnedFd,
}

/// How a namespace is made into a host under test: settings that keep scripts apart from the
/// machine's history, then those of the script.
const SETTINGS: &[(&str, &str)] = &[
    ("net.ipv4.tcp_no_metrics_save", "1"),
    ("net.ipv4.icmp_ratelimit", "0"),
    ("net.ipv4.tcp_congestion_control", "cubic"),
    // Kernels differ in the largest window, from which the window scale follows.
    ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
];
/// The same where a script is about IPv4 alone.
const WITHOUT_IPV6: &[(&str, &str)] = &[("net.ipv6.conf.all.disable_ipv6", "1")];
/// The same where it is about IPv6: addresses are one's own at once.
const WITH_IPV6: &[(&str, &str)] = &[
    ("net.ipv6.icmp.ratelimit", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.default.dad_transmits", "0"),
    // What it tells of its own groups at the start is soon said.
    ("net.ipv6.conf.default.mldv2_unsolicited_report_interval", "1"),
];
/// The time between reports of a change, in milliseconds, as it comes.
const REPORT_INTERVAL_MS: &str = "1000";
/// A kernel that has said nothing for so long has said everything of its own groups.
const QUIET_NS: u64 = 50_000_000;

impl Linux {
    /// Makes this process's network namespace the host under test.
    pub fn new(mtu: u16, v6: bool, settings: &[(String, String)]) -> Result<Self, Unsupported> {
        let of_family = if v6 { WITH_IPV6 } else { WITHOUT_IPV6 };
        for (name, value) in SETTINGS.iter().chain(of_family) {
            set(name, value)?;
        }
        for (name, value) in settings {
            set(name, value)?;
        }
        // Faults that never happen keep the device from handing over coalesced segments. They are not
        // put around the port, which then sends what is coalesced.
        let spec: PortSpec = format!("tap:{DEVICE},mtu={mtu},impair=loss:0%")
            .parse()
            .map_err(|why| format!("{why}"))?;
        let mut fds = port::open(&spec).map_err(|why| why.to_string())?;
        fds.description.impairment = None;
        let port = port::from_fds(fds).map_err(|why| why.to_string())?;
        let mut ip = Command::new("ip")
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|why| format!("ip(8) does not start: {why}"))?;
        let mut batch = format!("link set lo up\naddress add {LOCAL}/24 dev {DEVICE}\n");
        if v6 {
            // The link-local address follows from it, and is ours, too.
            batch.insert_str(0, &format!("link set {DEVICE} down\n"));
            batch.push_str(&format!("link set {DEVICE} address {LOCAL_MAC}\n"));
            batch.push_str(&format!("link set {DEVICE} up\n"));
            batch.push_str(&format!("address add {LOCAL6}/64 dev {DEVICE} nodad\n"));
        }
        ip.stdin
            .take()
            .ok_or("ip(8) has no input")?
            .write_all(batch.as_bytes())
            .map_err(|why| format!("ip(8): {why}"))?;
        let status = ip.wait().map_err(|why| format!("ip(8): {why}"))?;
        if !status.success() {
            return Err(format!("ip(8) refuses to set up the device: {status}").into());
        }
        let (calls, called) = channel::<SystemCall>();
        let (ending, outcomes) = channel();
        let event = || {
            let flags =
                rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
            rustix::event::eventfd(0, flags).map_err(|why| why.to_string())
        };
        let ended = event()?;
        let bell = ended.try_clone().map_err(|why| why.to_string())?;
        std::thread::spawn(move || {
            let mut program = Program::default();
            for call in called {
                let outcome = program.call(call);
                if ending.send((Instant::now(), outcome)).is_err() {
                    return;
                }
                // It can only fail when nobody has looked for 2^64 calls.
                let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
            }
        });
        let mut linux = Self {
            port,
            burst: RxBurst::new(),
            mac: MacAddr::BROADCAST,
            origin: Instant::now(),
            frames: Vec::new(),
            calls,
            outcomes,
            outcome: None,
            ended,
        };
        linux.get_to_know()?;
        if v6 {
            linux.hear_out();
            let name = format!("net.ipv6.conf.{DEVICE}.mldv2_unsolicited_report_interval");
            set(&name, REPORT_INTERVAL_MS)?;
        }
        Ok(linux)
    }

    /// Has the kernel learn the peer's link address, and learns its.
    fn get_to_know(&mut self) -> Result<(), String> {
        let limit = self.now() + 5_000_000_000;
        while self.mac == MacAddr::BROADCAST {
            if self.now() > limit {
                return Err("the kernel does not answer ARP on its TAP device".into());
            }
            self.inject(frame::arp_question());
            let soon = self.now() + 20_000_000;
            self.pass(soon);
        }
        self.frames.clear();
        Ok(())
    }

    /// Waits until the kernel has told of its own groups, lest scripts see it among what they expect.
    fn hear_out(&mut self) {
        let mut last = self.now();
        while self.now() < last + QUIET_NS {
            self.pass(last + QUIET_NS);
            if !self.frames.is_empty() {
                self.frames.clear();
                last = self.now();
            }
        }
    }

    fn receive(&mut self) {
        loop {
            self.port.receive(&mut self.burst);
            if self.burst.handles.is_empty() {
                return;
            }
            let now = self.now();
            for &handle in &self.burst.handles {
                let received = self.port.frame(handle);
                let mut bytes = received.bytes.to_vec();
                if let RxChecksum::Partial { start, offset } = received.meta.checksum {
                    // What the kernel names outside of its frame stays a wrong checksum.
                    let _ = wire::checksum::complete(&mut bytes, start.into(), offset.into());
                }
                if let Ok((header, _)) = ethernet::parse(&bytes)
                    && header.ethertype == ethernet::EtherType::ARP
                {
                    self.mac = header.src;
                }
                self.frames.push((now, bytes));
            }
            self.port.release(&mut self.burst);
            let answers: Vec<Vec<u8>> =
                self.frames.iter().filter_map(|(_, bytes)| frame::peer_answer(bytes)).collect();
            if !answers.is_empty() {
                self.frames.retain(|(_, bytes)| frame::peer_answer(bytes).is_none());
            }
            for answer in answers {
                self.inject(answer);
            }
        }
    }

    fn look(&mut self) {
        self.receive();
        if self.outcome.is_none()
            && let Ok((at, outcome)) = self.outcomes.try_recv()
        {
            let _ = rustix::io::read(&self.ended, &mut [0u8; 8]);
            let time = at.saturating_duration_since(self.origin).as_nanos() as u64;
            self.outcome = Some((time, outcome));
        }
    }
}

/// Writes a setting of this namespace.
fn set(name: &str, value: &str) -> Result<(), String> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::write(&path, value).map_err(|why| format!("cannot set {name} to {value}: {why}"))
}

impl System for Linux {
    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    fn pass(&mut self, until: u64) {
        loop {
            self.look();
            let now = self.now();
            if !self.frames.is_empty() || self.outcome.is_some() || now >= until {
                return;
            }
            let left = Duration::from_nanos(until - now);
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let Some(wire) = self.port.wait_fd() else { return };
            let mut fds = [
                PollFd::from_borrowed_fd(wire, PollFlags::IN),
                PollFd::new(&self.ended, PollFlags::IN),
            ];
            // Interrupted or not: the loop looks again.
            let _ = rustix::event::poll(&mut fds, Some(&left));
        }
    }

    fn take_frames(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.look();
        std::mem::take(&mut self.frames)
    }

    fn inject(&mut self, mut frame: Vec<u8>) {
        frame::address_if_open(&mut frame, self.mac);
        let meta = TxMeta::default();
        // A frame that the device has no room for is lost, which the script then tells.
        let _ = self.port.send(&meta, &frame, &[]);
        self.port.flush();
    }

    fn inject_datagrams(&mut self, mut frame: Vec<u8>, segment_bytes: u16) {
        frame::address_if_open(&mut frame, self.mac);
        let start = frame::transport_start(&frame);
        let meta = TxMeta {
            checksum: Some((start, frame::UDP_CHECKSUM)),
            gso: Some(Gso { size: segment_bytes, kind: GsoKind::Udp }),
            header_bytes: start + 8,
        };
        // As above.
        let _ = self.port.send(&meta, &frame, &[]);
        self.port.flush();
    }

    fn calendar_ns(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn start(&mut self, call: SystemCall) {
        self.calls.send(call).expect("the program's thread lives as long as this");
    }

    fn take_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.look();
        self.outcome.take()
    }

    fn tolerance_ns(&self) -> u64 {
        TOLERANCE_NS
    }
}

/// The program: real system calls.
#[derive(Default)]
struct Program {
    files: BTreeMap<i32, OwnedFd>,
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl Program {
    fn file(&self, fd: i32) -> Result<BorrowedFd<'_>, Errno> {
        self.files.get(&fd).map(OwnedFd::as_fd).ok_or(Errno::BADF)
    }

    fn keep(&mut self, file: OwnedFd) -> Answer {
        let fd = file.as_raw_fd();
        self.files.insert(fd, file);
        Answer::of(fd.into())
    }

    fn call(&mut self, call: SystemCall) -> Outcome {
        match call {
            SystemCall::Socket { domain, kind, protocol } => {
                let family = AddressFamily::from_raw(domain as u16);
                let protocol = u32::try_from(protocol).ok().and_then(std::num::NonZero::new);
                let protocol = protocol.map(net::Protocol::from_raw);
                let kind = SocketType::from_raw(kind.cast_unsigned());
                Ok(self.keep(net::socket(family, kind, protocol)?))
            }
            SystemCall::Bind { fd, address } => {
                net::bind(self.file(fd)?, &address).map(|()| Answer::of(0))
            }
            SystemCall::Listen { fd, backlog } => {
                net::listen(self.file(fd)?, backlog).map(|()| Answer::of(0))
            }
            SystemCall::Accept { fd, flags } => {
                let flags = net::SocketFlags::from_bits_retain(flags.cast_unsigned());
                let (accepted, peer) = net::acceptfrom_with(self.file(fd)?, flags)?;
                let address = peer.and_then(|peer| peer.try_into().ok());
                Ok(Answer { address, ..self.keep(accepted) })
            }
            SystemCall::Connect { fd, address } => {
                net::connect(self.file(fd)?, &address).map(|()| Answer::of(0))
            }
            SystemCall::Disconnect { fd } => {
                net::connect_unspec(self.file(fd)?).map(|()| Answer::of(0))
            }
            SystemCall::Receive { fd, room, control_len, flags } => {
                self.receive(fd, &room, control_len, flags)
            }
            SystemCall::Send { fd, parts, control, flags, to } => {
                let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
                let flags = flags | libc::MSG_NOSIGNAL;
                let sent = sockets::send_message(self.file(fd)?, &parts, &control, flags, to);
                sent.map(|sent| Answer::of(sent as i64)).map_err(errno)
            }
            SystemCall::Close { fd } => {
                self.files.remove(&fd).map(|_| Answer::of(0)).ok_or(Errno::BADF)
            }
            SystemCall::Shutdown { fd, how } => {
                let how = match how {
                    libc::SHUT_RD => net::Shutdown::Read,
                    libc::SHUT_WR => net::Shutdown::Write,
                    libc::SHUT_RDWR => net::Shutdown::Both,
                    _ => return Err(Errno::INVAL),
                };
                net::shutdown(self.file(fd)?, how).map(|()| Answer::of(0))
            }
            SystemCall::StatusFlags { fd } => {
                let flags = rustix::fs::fcntl_getfl(self.file(fd)?)?;
                Ok(Answer::of(i64::from(flags.bits())))
            }
            SystemCall::SetStatusFlags { fd, flags } => {
                let flags = rustix::fs::OFlags::from_bits_retain(flags.cast_unsigned());
                rustix::fs::fcntl_setfl(self.file(fd)?, flags).map(|()| Answer::of(0))
            }
            SystemCall::Queued { fd, queue } => {
                let file = self.file(fd)?;
                let count = match queue {
                    Queue::Unread => rustix::io::ioctl_fionread(file)? as i32,
                    Queue::Unacknowledged => sockets::unacknowledged(file).map_err(errno)? as i32,
                    Queue::Unsent => sockets::unsent(file).map_err(errno)? as i32,
                };
                let bytes = count.to_ne_bytes().to_vec();
                Ok(Answer { value: 0, bytes, ..Answer::default() })
            }
            SystemCall::AtMark { fd } => {
                let at_mark = sockets::is_at_mark(self.file(fd)?).map_err(errno)?;
                let bytes = i32::from(at_mark).to_ne_bytes().to_vec();
                Ok(Answer { value: 0, bytes, ..Answer::default() })
            }
            SystemCall::Option { fd, level, name, len } => {
                let mut bytes = vec![0; len];
                let len =
                    sockets::option(self.file(fd)?, level, name, &mut bytes).map_err(errno)?;
                bytes.truncate(len);
                Ok(Answer { value: 0, bytes, ..Answer::default() })
            }
            SystemCall::SetOption { fd, level, name, bytes } => {
                sockets::set_option(self.file(fd)?, level, name, &bytes).map_err(errno)?;
                Ok(Answer::of(0))
            }
            SystemCall::Poll { fds, timeout_ms } => self.poll(&fds, timeout_ms),
            SystemCall::Name { fd, of_peer } => {
                let file = self.file(fd)?;
                let name =
                    if of_peer { net::getpeername(file)? } else { Some(net::getsockname(file)?) };
                let address = name.and_then(|name| name.try_into().ok());
                Ok(Answer { address, ..Answer::default() })
            }
        }
    }

    fn receive(&self, fd: i32, room: &[usize], control_len: usize, flags: i32) -> Outcome {
        let mut bytes: Vec<Vec<u8>> = room.iter().map(|len| vec![0; *len]).collect();
        let mut control = vec![0; control_len];
        let mut parts: Vec<IoSliceMut<'_>> =
            bytes.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        let got = sockets::receive_message(self.file(fd)?, &mut parts, &mut control, flags)
            .map_err(errno)?;
        let mut bytes = bytes.concat();
        bytes.truncate(got.len);
        control.truncate(got.control_len);
        Ok(Answer {
            value: got.len as i64,
            bytes,
            address: got.from,
            control,
            flags: got.flags,
            ..Answer::default()
        })
    }

    fn poll(&self, wanted: &[(i32, i16)], timeout_ms: i32) -> Outcome {
        let mut fds = Vec::new();
        for &(fd, events) in wanted {
            let events = PollFlags::from_bits_retain(events.cast_unsigned());
            fds.push(PollFd::from_borrowed_fd(self.file(fd)?, events));
        }
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let timeout = timeout.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        let ready = rustix::event::poll(&mut fds, timeout.as_ref())?;
        let revents = fds.iter().map(|entry| entry.revents().bits().cast_signed()).collect();
        Ok(Answer { value: ready as i64, revents, ..Answer::default() })
    }
}
