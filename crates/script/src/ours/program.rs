//! The program: system calls through the client's POSIX sockets, or past them where those say so,
//! as the preload library does it.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use client::sockets::{EpollEvent, Errno, Kernel, PollFd, SendMessage, Sockets, Verdict};

use super::kernel::InMemory;
use crate::system::{Answer, Outcome, SystemCall};

/// A program's view of its sockets.
#[derive(Clone, Copy)]
pub struct Program {
    sockets: &'static Sockets,
    kernel: &'static InMemory,
}

/// What recvmsg(2) brought.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// What the call returned: for MSG_TRUNC the length of the whole datagram.
    pub len: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Control messages, as the kernel lays them out.
    pub control: Vec<u8>,
    /// What `msg_flags` says.
    pub flags: i32,
    /// The sender of a datagram.
    pub from: Option<SocketAddr>,
}

/// The verdict's answer, or what the kernel says.
fn or_kernel<T>(
    verdict: Verdict<T>,
    kernel: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match verdict {
        Verdict::Kernel => kernel(),
        Verdict::Done(outcome) => outcome,
    }
}

/// An option's int; those of IP may have a single byte.
fn first_int(level: i32, bytes: &[u8]) -> Result<i32, Errno> {
    match (bytes.first_chunk(), bytes.first()) {
        (Some(word), _) => Ok(i32::from_ne_bytes(*word)),
        (None, Some(byte)) if level == libc::IPPROTO_IP => Ok(i32::from(*byte)),
        _ => Err(Errno::INVAL),
    }
}

impl Program {
    pub(super) fn new(sockets: &'static Sockets, kernel: &'static InMemory) -> Self {
        Self { sockets, kernel }
    }

    /// Makes a call. It may sleep, and then must be on the program's own thread.
    pub fn call(&self, call: SystemCall) -> Outcome {
        let done = |outcome: Result<(), Errno>| outcome.map(|()| Answer::of(0));
        let (sockets, kernel) = (self.sockets, self.kernel);
        match call {
            SystemCall::Socket { domain, kind, protocol } => {
                let fd = kernel.socket(domain, kind, protocol)?;
                sockets.created(fd, domain, kind, protocol);
                Ok(Answer::of(fd.into()))
            }
            SystemCall::Bind { fd, address } => {
                done(or_kernel(sockets.bind(fd, address), || kernel.bind(fd, address)))
            }
            SystemCall::Listen { fd, backlog } => {
                done(or_kernel(sockets.listen(fd, backlog), || kernel.listen(fd, backlog)))
            }
            SystemCall::Accept { fd, flags } => {
                let (accepted, peer) =
                    or_kernel(sockets.accept(fd, flags), || kernel.accept(fd, flags))?;
                Ok(Answer { address: Some(peer), ..Answer::of(accepted.into()) })
            }
            SystemCall::Connect { fd, address } => {
                done(or_kernel(sockets.connect(fd, Some(address)), || kernel.connect(fd, address)))
            }
            SystemCall::Disconnect { fd } => {
                done(or_kernel(sockets.connect(fd, None), || kernel.disconnect(fd)))
            }
            SystemCall::Receive { fd, room, control_len, flags } => {
                self.receive(fd, &room, control_len, flags)
            }
            SystemCall::Send { fd, parts, control, flags, to } => {
                Ok(Answer::of(self.send(fd, (&parts, &control), flags, to)? as i64))
            }
            SystemCall::Close { fd } => {
                if !kernel.is_open(fd) {
                    return Err(Errno::BADF);
                }
                done(or_kernel(sockets.closing(fd), || {
                    kernel.close(fd);
                    Ok(())
                }))
            }
            SystemCall::Shutdown { fd, how } => {
                done(or_kernel(sockets.shutdown(fd, how), || kernel.shutdown(fd, how)))
            }
            SystemCall::StatusFlags { fd } => {
                let flags = or_kernel(sockets.status_flags(fd), || kernel.status_flags(fd))?;
                Ok(Answer::of(flags.into()))
            }
            SystemCall::SetStatusFlags { fd, flags } => {
                done(or_kernel(sockets.set_status_flags(fd, flags), || {
                    kernel.set_status_flags(fd, flags)
                }))
            }
            SystemCall::Queued { fd, queue } => {
                let count = or_kernel(sockets.queued(fd, queue), || {
                    if kernel.is_open(fd) { Ok(0) } else { Err(Errno::BADF) }
                })?;
                let bytes = (count as i32).to_ne_bytes().to_vec();
                Ok(Answer { value: 0, bytes, ..Answer::default() })
            }
            SystemCall::AtMark { fd } => {
                let at_mark = or_kernel(sockets.at_mark(fd), || Err(Errno::INVAL))?;
                let bytes = i32::from(at_mark).to_ne_bytes().to_vec();
                Ok(Answer { value: 0, bytes, ..Answer::default() })
            }
            SystemCall::Option { fd, level, name, len } => self.option(fd, level, name, len),
            SystemCall::SetOption { fd, level, name, bytes } => {
                done(or_kernel(sockets.set_option(fd, level, name, &bytes), || {
                    if matches!((level, name), (libc::IPPROTO_TCP, libc::TCP_CONGESTION)) {
                        let known =
                            [&b"cubic"[..], b"reno", b"dctcp", b"bbr"].contains(&&bytes[..]);
                        return if known { Ok(()) } else { Err(Errno::NOENT) };
                    }
                    kernel.set_option(fd, level, name, first_int(level, &bytes)?)
                }))
            }
            SystemCall::Poll { fds, timeout_ms } => self.poll(&fds, timeout_ms),
            SystemCall::Name { fd, of_peer } => {
                Ok(Answer { address: Some(self.name(fd, of_peer)?), ..Answer::default() })
            }
        }
    }

    fn receive(&self, fd: RawFd, room: &[usize], control_len: usize, flags: i32) -> Outcome {
        let Message { len, bytes, control, flags, from } =
            self.receive_message(fd, room, control_len, flags)?;
        Ok(Answer { value: len as i64, bytes, address: from, control, flags, ..Answer::default() })
    }

    /// sendmsg(2) of several pieces, with control messages.
    pub fn send(
        &self,
        fd: RawFd,
        (parts, control): (&[Vec<u8>], &[u8]),
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let sent = self.sockets.send_with(fd, &SendMessage { bufs: &parts, control, flags, to });
        or_kernel(sent, || self.kernel.send(fd, &parts, flags, to))
    }

    /// recvmsg(2) with pieces of room for so many bytes each, and for so many of control messages.
    pub fn receive_message(
        &self,
        fd: RawFd,
        room: &[usize],
        control_len: usize,
        flags: i32,
    ) -> Result<Message, Errno> {
        let mut pieces: Vec<Vec<u8>> = room.iter().map(|len| vec![0; *len]).collect();
        let mut control = vec![0; control_len];
        let parts: &mut [IoSliceMut<'_>] =
            &mut pieces.iter_mut().map(|piece| IoSliceMut::new(piece)).collect::<Vec<_>>();
        let got = self.sockets.receive(fd, parts, &mut control, flags);
        let got = or_kernel(got, || self.kernel.receive(fd, parts, &mut control, flags))?;
        let mut bytes = pieces.concat();
        bytes.truncate(got.len);
        control.truncate(got.control_len);
        Ok(Message { len: got.len, bytes, control, flags: got.flags, from: got.from })
    }

    /// The time of day, nanoseconds since 1970.
    pub(super) fn calendar_ns(&self) -> u64 {
        self.kernel.calendar_ns()
    }

    /// Time began at that time of day.
    pub(super) fn set_calendar(&self, at_ns: u64) {
        self.kernel.set_calendar(at_ns);
    }

    /// The kernel takes other settings.
    pub(super) fn follow(&self, sysctls: &super::sysctls::Sysctls) {
        self.kernel.follow(sysctls);
    }

    /// Where a socket is, or where its peer is.
    pub fn name(&self, fd: RawFd, of_peer: bool) -> Result<SocketAddr, Errno> {
        if of_peer {
            return or_kernel(self.sockets.remote(fd), || Err(Errno::NOTCONN));
        }
        or_kernel(self.sockets.local(fd), || self.kernel.local(fd))
    }

    /// epoll_create(2).
    pub fn epoll_create(&self) -> Result<RawFd, Errno> {
        let epoll = self.kernel.epoll()?;
        self.sockets.epoll_created(epoll);
        Ok(epoll)
    }

    /// epoll_ctl(2).
    pub fn epoll_control(
        &self,
        epoll: RawFd,
        operation: i32,
        fd: RawFd,
        event: EpollEvent,
    ) -> Result<(), Errno> {
        or_kernel(self.sockets.epoll_ctl(epoll, operation, fd, event), || {
            self.kernel.epoll_ctl(epoll, operation, fd, event)
        })
    }

    /// epoll_wait(2).
    pub fn epoll_wait(
        &self,
        epoll: RawFd,
        room: usize,
        timeout_ms: i32,
    ) -> Result<Vec<EpollEvent>, Errno> {
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let mut events = vec![EpollEvent::default(); room];
        let count = or_kernel(self.sockets.epoll_wait(epoll, &mut events, timeout, None), || {
            self.kernel.epoll_wait(epoll, &mut events, timeout, None)
        })?;
        events.truncate(count);
        Ok(events)
    }

    fn option(&self, fd: RawFd, level: i32, name: i32, len: usize) -> Outcome {
        let mut bytes = vec![0; len];
        let told = self.sockets.option(fd, level, name, &mut bytes);
        let length = or_kernel(told, || self.kernel.raw_option(fd, level, name, &mut bytes))?;
        bytes.truncate(length);
        Ok(Answer { value: 0, bytes, ..Answer::default() })
    }

    fn poll(&self, wanted: &[(RawFd, i16)], timeout_ms: i32) -> Outcome {
        let mut fds: Vec<PollFd> =
            wanted.iter().map(|&(fd, events)| PollFd { fd, events, revents: 0 }).collect();
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let ready = self.sockets.poll(&mut fds, timeout, None)?;
        let revents = fds.iter().map(|entry| entry.revents).collect();
        Ok(Answer { value: ready as i64, revents, ..Answer::default() })
    }
}
