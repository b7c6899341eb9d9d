//! Reading and writing.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::ancillary::stamps_anew;
use super::calls::{Call, SocketCall};
use super::link::Deadline;
use super::poll::WaitEnds;
use super::socket::{Connection, Datagram, OUT_BITS, Socket, timeout};
use super::streams::{receive_report, said_with};
use super::table::Entry;
use super::{Era, Errno, Received, Sockets, Verdict};
use crate::memory::{self, Access};
use crate::{Readiness, Wish};

/// Maximum bytes counted at once.
const COUNTED_MAX: usize = 1 << 24;

/// The queues of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Received, unread bytes.
    Unread,
    /// Written, unacknowledged bytes.
    Unacknowledged,
    /// Written, unsent bytes.
    Unsent,
}

impl Queue {
    /// linux/sockios.h; not in the libc crate.
    pub const SIOCOUTQNSD: u64 = 0x894b;

    /// The queue of an ioctl(2) request; TIOCINQ and TIOCOUTQ are SIOCINQ and SIOCOUTQ.
    pub fn asked_by(request: u64) -> Option<Self> {
        match request {
            libc::FIONREAD => Some(Self::Unread),
            libc::TIOCOUTQ => Some(Self::Unacknowledged),
            Self::SIOCOUTQNSD => Some(Self::Unsent),
            _ => None,
        }
    }
}

/// What sendmsg(2) is given.
#[derive(Clone, Copy, Debug)]
pub struct SendMessage<'a> {
    /// The bytes.
    pub bufs: &'a [IoSlice<'a>],
    /// Control messages.
    pub control: &'a [u8],
    /// MSG_DONTWAIT and the like.
    pub flags: i32,
    /// The destination; `None` for the socket's peer.
    pub to: Option<SocketAddr>,
}

/// What a stream is written.
#[derive(Clone, Copy)]
struct StreamWrite<'a> {
    bufs: &'a [IoSlice<'a>],
    flags: i32,
    /// Times at which the sender wants to be told (`SOF_TIMESTAMPING_TX_*` as the engine has them).
    stamps: u8,
}

/// What is wanted of a stream.
struct StreamRead<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
    /// Bytes: the room in `bufs`, or more where none are given.
    want: usize,
    flags: i32,
}

/// What a first, non-blocking try came to.
enum Tried<T> {
    /// The slow path: it would block, has flags, or is not a connection.
    Slow(&'static Era, Call),
    Verdict(Verdict<T>),
}

impl Sockets {
    /// read(2), recv(2), recvfrom(2) and the like. `control` is room for control messages.
    #[inline]
    pub fn receive(
        &'static self,
        fd: RawFd,
        bufs: &mut [IoSliceMut<'_>],
        control: &mut [u8],
        flags: i32,
    ) -> Verdict<Received> {
        let tried =
            self.try_connection(fd, flags, |socket, connection, wait| {
                if wait && connection.endpoint.low_water() > 1 {
                    return None;
                }
                match connection.endpoint.read_vectored(bufs) {
                    Err(Errno::AGAIN) if wait => None,
                    outcome => Some(outcome.map(|len| {
                        said_with(socket, connection, self.kernel, (len, flags), control)
                    })),
                }
            });
        let verdict = match tried {
            Tried::Verdict(verdict) => verdict,
            Tried::Slow(era, socket) => {
                let call = SocketCall { era, socket: &socket, fd };
                self.receive_slowly(call, bufs, control, flags)
            }
        };
        self.where_it_is(fd, verdict)
    }

    /// write(2), send(2), sendto(2) and the like.
    #[inline]
    pub fn send(
        &'static self,
        fd: RawFd,
        bufs: &[IoSlice<'_>],
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Verdict<usize> {
        self.send_with(fd, &SendMessage { bufs, control: &[], flags, to })
    }

    /// sendmsg(2): with control messages, which apply to datagrams.
    #[inline]
    pub fn send_with(&'static self, fd: RawFd, message: &SendMessage<'_>) -> Verdict<usize> {
        let SendMessage { bufs, control, flags, .. } = *message;
        let tried = self.try_connection(fd, flags, |socket, connection, wait| {
            // The first write may open the connection.
            let stands = connection.established.load(Ordering::Relaxed);
            let plain = !wait && control.is_empty();
            let plain = plain && (stands || !connection.endpoint.awaits_data());
            let wish = Wish { stamps: socket.streams.stamps(None), ..wish(flags, false) };
            plain.then(|| write(connection, bufs, flags, wish))
        });
        let verdict = match tried {
            Tried::Verdict(verdict) => verdict,
            Tried::Slow(era, socket) => {
                self.send_slowly(SocketCall { era, socket: &socket, fd }, message)
            }
        };
        self.where_it_is(fd, verdict)
    }

    /// A call on a connection that another process has moved to the kernel meanwhile is repeated
    /// there.
    #[inline]
    pub(super) fn where_it_is<T>(&self, fd: RawFd, verdict: Verdict<T>) -> Verdict<T> {
        match verdict {
            Verdict::Done(Err(Errno::STALE)) => match self.called(fd) {
                Ok(None) => Verdict::Kernel,
                Ok(Some(_)) => Verdict::Done(Err(Errno::CONNRESET)),
                Err(error) => Verdict::Done(Err(error)),
            },
            verdict => verdict,
        }
    }

    /// Attempts a plain transfer on a connection without taking a reference to its socket. `first`
    /// is passed whether the call may wait; if it returns `None`, the slow path is taken.
    #[inline]
    fn try_connection<T>(
        &'static self,
        fd: RawFd,
        flags: i32,
        first: impl FnOnce(&Socket, &Connection, bool) -> Option<Result<T, Errno>>,
    ) -> Tried<T> {
        let Some(era) = self.era() else { return Tried::Verdict(Verdict::Kernel) };
        let tried = era.table.with(fd, |entry| match entry {
            Entry::Socket(socket) => {
                let plain = socket.connection().filter(|_| flags & !QUIET == 0);
                let tried =
                    plain.and_then(|connection| first(socket, connection, may_wait(socket, flags)));
                match tried {
                    Some(outcome) => Some(Tried::Verdict(Verdict::Done(outcome))),
                    None => Some(Tried::Slow(era, self.enter(socket))),
                }
            }
            Entry::Epoll(_) => Some(Tried::Verdict(Verdict::Kernel)),
            // The error is determined after the entry is unlocked.
            Entry::Internal | Entry::Foreign(_) => None,
        });
        match tried {
            None => Tried::Verdict(Verdict::Kernel),
            Some(Some(tried)) => tried,
            Some(None) => {
                // A connection that its holder has just moved to the kernel continues there.
                let error = self.called(fd).err();
                Tried::Verdict(error.map_or(Verdict::Kernel, |error| Verdict::Done(Err(error))))
            }
        }
    }

    fn receive_slowly(
        &'static self,
        call: SocketCall<'_>,
        bufs: &mut [IoSliceMut<'_>],
        control: &mut [u8],
        flags: i32,
    ) -> Verdict<Received> {
        let socket = call.socket;
        if let Some(connection) = socket.connection() {
            if flags & libc::MSG_OOB != 0 {
                return Verdict::Done(receive_urgent(connection, bufs, flags));
            }
            if flags & libc::MSG_ERRQUEUE != 0 {
                return Verdict::Done(receive_report(
                    socket,
                    connection,
                    self.kernel,
                    bufs,
                    control,
                ));
            }
            let want = bufs.iter().map(|buf| buf.len()).sum();
            let read = self.receive_stream(call, connection, StreamRead { bufs, want, flags });
            return Verdict::Done(
                read.map(|len| said_with(socket, connection, self.kernel, (len, flags), control)),
            );
        }
        if socket.stream {
            return Verdict::Kernel;
        }
        self.receive_datagram(call, bufs, control, flags)
    }

    /// recv(2) with MSG_TRUNC, which discards a stream's bytes, or with MSG_PEEK counts them: no
    /// buffer is needed. Other sockets are handled by the kernel, or by [`Self::receive`].
    pub fn discard(&'static self, fd: RawFd, want: usize, flags: i32) -> Verdict<usize> {
        let (era, socket) = match (self.era(), self.entered(fd)) {
            (Some(era), Ok(Some(socket))) => (era, socket),
            (_, Err(error)) => return Verdict::Done(Err(error)),
            _ => return Verdict::Kernel,
        };
        let Some(connection) = socket.connection() else { return Verdict::Kernel };
        let call = SocketCall { era, socket: &socket, fd };
        let outcome = if flags & libc::MSG_PEEK != 0 {
            let want = want.min(COUNTED_MAX);
            let mut scrap = vec![0; want];
            let bufs = &mut [IoSliceMut::new(&mut scrap)];
            self.receive_stream(call, connection, StreamRead { bufs, want, flags })
        } else {
            self.receive_stream(call, connection, StreamRead { bufs: &mut [], want, flags })
        };
        self.where_it_is(fd, Verdict::Done(outcome))
    }

    fn receive_stream(
        &'static self,
        call: SocketCall<'_>,
        connection: &Connection,
        StreamRead { bufs, want, flags }: StreamRead<'_, '_>,
    ) -> Result<usize, Errno> {
        let SocketCall { era, socket, .. } = call;
        let wait = may_wait(socket, flags);
        let peek = flags & libc::MSG_PEEK != 0;
        // The minimum before the call returns, if it may wait.
        let least = match flags & libc::MSG_WAITALL != 0 {
            true => want,
            false => want.min(usize::try_from(connection.endpoint.low_water()).unwrap_or(want)),
        };
        let deadline = Deadline::after(self.kernel, timeout(&socket.receive_timeout_ns));
        let (mut total, mut seen) = (0, 0);
        loop {
            let outcome = if flags & libc::MSG_TRUNC != 0 && !peek {
                discard(connection, want - total)
            } else if peek {
                connection.endpoint.peek_vectored(bufs)
            } else if total == 0 {
                connection.endpoint.read_vectored(bufs)
            } else {
                connection.endpoint.read_vectored(&mut rest_mut(bufs, total))
            };
            match outcome {
                Ok(0) => return Ok(total),
                // Peeked data is seen again: if there is no more of it, the stream has ended.
                Ok(count) if peek && (!wait || count >= least || count <= seen) => {
                    return Ok(count);
                }
                Ok(count) if peek => seen = count,
                Ok(count) => {
                    total += count;
                    if total >= least {
                        return Ok(total);
                    }
                }
                Err(Errno::AGAIN) if wait => (),
                Err(_) if total > 0 => return Ok(total),
                Err(error) => return Err(error),
            }
            if total > 0 && !wait {
                continue;
            }
            let is_ready = || connection.endpoint.is_beyond(seen as u64);
            let _waiting = socket.owner.wait_for_data(connection);
            match self.block_until(era, socket, &is_ready, WaitEnds::within(deadline.left())) {
                Ok(()) => (),
                Err(_) if total.max(seen) > 0 => return Ok(total.max(seen)),
                Err(error) => return Err(error),
            }
        }
    }

    fn send_slowly(
        &'static self,
        call: SocketCall<'_>,
        message: &SendMessage<'_>,
    ) -> Verdict<usize> {
        let SocketCall { era, socket, .. } = call;
        let SendMessage { bufs, control, flags, to } = *message;
        if let Some(connection) = socket.connection() {
            if flags & libc::MSG_FASTOPEN != 0 && !connection.endpoint.awaits_data() {
                // As in the kernel: the first call that finds it established completes the connect.
                let outcome = if connection.established.load(Ordering::Relaxed) {
                    Err(Errno::ISCONN)
                } else if connection.is_opened() {
                    self.end_connect(era, socket, connection)
                } else {
                    Err(Errno::ALREADY)
                };
                if let Err(error) = outcome {
                    return Verdict::Done(Err(error));
                }
            }
            let rest = flags & !libc::MSG_FASTOPEN;
            let sent = stamps_anew(control).and_then(|anew| {
                let stamps = socket.streams.stamps(anew);
                self.send_stream(call, connection, StreamWrite { bufs, flags: rest, stamps })
            });
            return self.reported(socket, flags, Verdict::Done(sent));
        }
        if socket.stream {
            return match to {
                Some(to) if flags & libc::MSG_FASTOPEN != 0 && !socket.is_listening() => {
                    let sent = self.send_fast(call, bufs, flags, to);
                    self.reported(socket, flags, sent)
                }
                _ => Verdict::Kernel,
            };
        }
        match to {
            Some(to) if !socket.suits(to) => Verdict::Kernel,
            _ => self.send_datagram(call, message),
        }
    }

    /// Adds the report of MSG_ZEROCOPY, if it was used.
    fn reported(&self, socket: &Socket, flags: i32, sent: Verdict<usize>) -> Verdict<usize> {
        if flags & libc::MSG_ZEROCOPY != 0
            && matches!(sent, Verdict::Done(Ok(count)) if count > 0)
            && socket.streams.add_zerocopy()
        {
            socket.notify(self.kernel);
        }
        sent
    }

    /// MSG_FASTOPEN: connects; the SYN carries the data if possible.
    fn send_fast(
        &'static self,
        call: SocketCall<'_>,
        bufs: &[IoSlice<'_>],
        flags: i32,
        to: SocketAddr,
    ) -> Verdict<usize> {
        let SocketCall { era, socket, .. } = call;
        match self.open_to(call, to, true) {
            Verdict::Done(Ok(())) => (),
            Verdict::Done(Err(error)) => return Verdict::Done(Err(error)),
            Verdict::Kernel => return Verdict::Kernel,
        }
        let Some(connection) = socket.connection() else { return Verdict::Done(Err(Errno::INVAL)) };
        let wait = may_wait(socket, flags);
        let rest = flags & !libc::MSG_FASTOPEN;
        if connection.endpoint.awaits_data() {
            let stamps = socket.streams.stamps(None);
            let write = StreamWrite { bufs, flags: rest, stamps };
            return Verdict::Done(self.send_stream(call, connection, write));
        }
        if !wait {
            return Verdict::Done(Err(Errno::INPROGRESS));
        }
        let connected = self.finish_connect(era, socket, connection);
        let write = StreamWrite { bufs, flags: rest, stamps: 0 };
        Verdict::Done(connected.and_then(|()| self.send_stream(call, connection, write)))
    }

    fn send_stream(
        &'static self,
        call: SocketCall<'_>,
        connection: &Connection,
        StreamWrite { bufs, flags, stamps }: StreamWrite<'_>,
    ) -> Result<usize, Errno> {
        let SocketCall { era, socket, .. } = call;
        let wait = may_wait(socket, flags);
        let slices = socket.streams.pieces_of_segment(flags);
        let wish = Wish { stamps, slices, ..wish(flags, wait) };
        let want: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut total = 0;
        // A call that may wait returns the result of the handshake, as in the kernel.
        let awaits_data = connection.endpoint.awaits_data();
        let opens = wait && awaits_data;
        if awaits_data && want == 0 {
            connection.endpoint.open_now()?;
            if !wait {
                return Err(Errno::INPROGRESS);
            }
            self.finish_connect(era, socket, connection)?;
            return Ok(0);
        }
        let deadline = Deadline::after(self.kernel, timeout(&socket.send_timeout_ns));
        loop {
            let outcome = if awaits_data && !wait {
                // No more than fits into the SYN, as in the kernel.
                let room = connection.endpoint.opening_room();
                return write(connection, &beginning(bufs, room), flags, wish);
            } else if total == 0 {
                write(connection, bufs, flags, wish)
            } else {
                write(connection, &rest(bufs, total), flags, wish)
            };
            match outcome {
                Ok(count) => {
                    total += count;
                    if opens && total == count {
                        self.finish_connect(era, socket, connection)?;
                    }
                    if total >= want || !wait {
                        return Ok(total);
                    }
                }
                Err(Errno::AGAIN) if wait => {
                    let ends = WaitEnds::within(deadline.left());
                    match self.block(era, socket, OUT_BITS, ends) {
                        Ok(()) => (),
                        Err(_) if total > 0 => return Ok(total),
                        Err(error) => return Err(error),
                    }
                }
                Err(_) if total > 0 => return Ok(total),
                Err(error) => return Err(error),
            }
        }
    }

    /// SIOCATMARK.
    pub fn at_mark(&self, fd: RawFd) -> Verdict<bool> {
        let socket = match self.called(fd) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Verdict::Kernel,
            Err(error) => return Verdict::Done(Err(error)),
        };
        let Some(connection) = socket.connection() else { return Verdict::Kernel };
        Verdict::Done(Ok(connection.endpoint.is_at_mark()))
    }

    /// recvmmsg(2) failed after some messages: the next call on a UDP socket returns the error.
    pub fn keep_error(&self, fd: RawFd, error: Errno) {
        if let Ok(Some(socket)) = self.called(fd)
            && !socket.stream
            && !matches!(error, Errno::AGAIN | Errno::INTR | Errno::CANCELED)
        {
            socket.keep_error(error);
            socket.notify(self.kernel);
        }
    }

    /// FIONREAD (SIOCINQ), SIOCOUTQ and SIOCOUTQNSD. For a UDP socket FIONREAD returns the length
    /// of the datagram that would be read next: the engine's, if it has one.
    pub fn queued(&self, fd: RawFd, queue: Queue) -> Verdict<usize> {
        let socket = match self.called(fd) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Verdict::Kernel,
            Err(error) => return Verdict::Done(Err(error)),
        };
        let Some(connection) = socket.connection() else {
            let has_next = |face: &Datagram| {
                face.endpoint.readiness_among(Readiness::IN).contains(Readiness::IN)
            };
            let face = socket.face().filter(|face| queue == Queue::Unread && has_next(face));
            let next = face.map(|face| face.endpoint.readable_bytes());
            return match next {
                Some(bytes) => Verdict::Done(Ok(usize::try_from(bytes).unwrap_or(usize::MAX))),
                None => Verdict::Kernel,
            };
        };
        let endpoint = &connection.endpoint;
        let count = match queue {
            Queue::Unread => endpoint.readable_bytes(),
            Queue::Unacknowledged => endpoint.unacknowledged_bytes(),
            Queue::Unsent => endpoint.unsent_bytes(),
        };
        Verdict::Done(Ok(usize::try_from(count).unwrap_or(usize::MAX)))
    }
}

/// Flags of a plain transfer: SIGPIPE is the caller's.
const QUIET: i32 = libc::MSG_NOSIGNAL
    | libc::MSG_DONTWAIT
    | libc::MSG_MORE
    | libc::MSG_EOR
    | libc::MSG_CMSG_CLOEXEC;

/// Whether a call may wait, by its flags and its socket's.
pub(super) fn may_wait(socket: &Socket, flags: i32) -> bool {
    flags & libc::MSG_DONTWAIT == 0 && !socket.is_nonblocking()
}

/// Writes with the flags' parameters.
#[inline]
fn write(
    connection: &Connection,
    bufs: &[IoSlice<'_>],
    flags: i32,
    wish: Wish,
) -> Result<usize, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return connection.endpoint.write_urgent(bufs);
    }
    connection.endpoint.write_stamped(bufs, wish)
}

/// The parameters in a call's flags; a call that waits continues until all is taken.
fn wish(flags: i32, waits: bool) -> Wish {
    let (more, ends_record) = (flags & libc::MSG_MORE != 0, flags & libc::MSG_EOR != 0);
    Wish { more, ends_record, stamps_part: !waits, ..Wish::default() }
}

/// MSG_OOB on a stream: never waits.
fn receive_urgent(
    connection: &Connection,
    bufs: &mut [IoSliceMut<'_>],
    flags: i32,
) -> Result<Received, Errno> {
    let Some(byte) = connection.endpoint.read_urgent(flags & libc::MSG_PEEK == 0)? else {
        return Ok(Received::default());
    };
    let Some(place) = bufs.iter_mut().find_map(|buf| buf.first_mut()) else {
        return Ok(Received { flags: libc::MSG_OOB | libc::MSG_TRUNC, ..Received::default() });
    };
    if flags & libc::MSG_TRUNC == 0 {
        if !memory::is_usable(std::ptr::from_ref(place).addr(), 1, Access::Write) {
            return Err(Errno::FAULT);
        }
        *place = byte;
    }
    Ok(Received { len: 1, flags: libc::MSG_OOB, ..Received::default() })
}

/// MSG_TRUNC on a stream: discards the available bytes, up to the urgent mark.
fn discard(connection: &Connection, want: usize) -> Result<usize, Errno> {
    let mut scrap = [0_u8; 4096];
    let there = usize::try_from(connection.endpoint.readable_bytes()).unwrap_or(usize::MAX);
    let most = want.min(if there == 0 { scrap.len() } else { there });
    let mut total = 0;
    loop {
        let room = scrap.get_mut(..(most - total).min(4096)).unwrap_or_default();
        match connection.endpoint.read_vectored(&mut [IoSliceMut::new(room)]) {
            Ok(count) if count > 0 && total + count < most => total += count,
            Ok(count) => return Ok(total + count),
            Err(_) if total > 0 => return Ok(total),
            Err(error) => return Err(error),
        }
    }
}

/// The parts after the first `skip` bytes. The program's own array must not be modified.
fn rest_mut<'a>(bufs: &'a mut [IoSliceMut<'_>], mut skip: usize) -> Vec<IoSliceMut<'a>> {
    let mut parts = Vec::with_capacity(bufs.len());
    for buf in bufs {
        let gone = skip.min(buf.len());
        skip -= gone;
        if let Some(part) = buf.get_mut(gone..).filter(|part| !part.is_empty()) {
            parts.push(IoSliceMut::new(part));
        }
    }
    parts
}

/// The first `most` bytes.
fn beginning<'a>(bufs: &'a [IoSlice<'_>], mut most: usize) -> Vec<IoSlice<'a>> {
    let mut parts = Vec::with_capacity(bufs.len());
    for buf in bufs {
        let part = buf.get(..most.min(buf.len())).unwrap_or_default();
        most -= part.len();
        if !part.is_empty() {
            parts.push(IoSlice::new(part));
        }
    }
    parts
}

fn rest<'a>(bufs: &'a [IoSlice<'_>], mut skip: usize) -> Vec<IoSlice<'a>> {
    let mut parts = Vec::with_capacity(bufs.len());
    for buf in bufs {
        let gone = skip.min(buf.len());
        skip -= gone;
        if let Some(part) = buf.get(gone..).filter(|part| !part.is_empty()) {
            parts.push(IoSlice::new(part));
        }
    }
    parts
}
