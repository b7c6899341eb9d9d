//! splice(2) between pipes and accelerated connections: through a pipe of the library, so that no
//! data is taken from one side without being taken by the other.

use std::ffi::{c_int, c_long, c_uint};
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use client::sockets::{Errno, Kernel, PollFd, Sockets, Verdict};
use libc::{off_t, size_t, ssize_t};

use super::transfers::sent;
use crate::boundary::{errno, is_accelerated, serve_point};
use crate::kernel::{Raw, call};
use crate::real;

/// Default size of a pipe, bytes.
const PIPE_BYTES: usize = 65536;

/// The C call's count, or its error.
fn checked(count: c_long) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| Errno::from_raw_os_error(errno()))
}

/// A pipe for one call.
struct Between {
    read: c_int,
    write: c_int,
}

impl Between {
    /// A non-blocking pipe.
    fn new() -> Result<Self, Errno> {
        let mut ends = [0; 2];
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: room for two descriptors.
        checked(unsafe { real::pipe2(ends.as_mut_ptr(), flags) }.into())?;
        Ok(Self { read: ends[0], write: ends[1] })
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        // SAFETY: both are this call's own.
        unsafe {
            call(libc::SYS_close, [self.read as usize, 0, 0, 0, 0, 0]);
            call(libc::SYS_close, [self.write as usize, 0, 0, 0, 0, 0]);
        }
    }
}

/// Reads all of `bytes` from a pipe that is known to have them.
fn take(pipe: c_int, bytes: &mut [u8]) -> Result<(), Errno> {
    let mut filled = 0;
    while let Some(room) = bytes.get_mut(filled..).filter(|room| !room.is_empty()) {
        let (at, len) = (room.as_mut_ptr().expose_provenance(), room.len());
        // SAFETY: so many writable bytes.
        let got = checked(unsafe { call(libc::SYS_read, [pipe as usize, at, len, 0, 0, 0]) })?;
        if got == 0 {
            return Err(Errno::PIPE);
        }
        filled += got;
    }
    Ok(())
}

/// Whether a call with these flags waits for a pipe of the program.
fn waits_for(pipe: c_int, flags: c_uint) -> bool {
    let is_nonblocking = Raw.status_flags(pipe).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0);
    flags & libc::SPLICE_F_NONBLOCK == 0 && !is_nonblocking
}

/// Waits until a pipe has bytes, or room.
fn wait(sockets: &'static Sockets, pipe: c_int, events: i16) -> Result<(), Errno> {
    loop {
        let mut asked = [PollFd { fd: pipe, events, revents: 0 }];
        match sockets.poll(&mut asked, None, None) {
            Err(Errno::INTR) if Raw.restarts_after_signal() => (),
            outcome => return outcome.map(drop),
        }
    }
}

/// Whether a pipe has no room.
fn is_full(pipe: c_int) -> Result<bool, Errno> {
    let mut asked = [PollFd { fd: pipe, events: libc::POLLOUT, revents: 0 }];
    Raw.poll(&mut asked, Some(Duration::ZERO), None).map(|ready| ready == 0)
}

/// From a connection to a pipe: as much as fits is taken.
fn to_pipe(
    sockets: &'static Sockets,
    from: c_int,
    pipe: c_int,
    len: usize,
    flags: c_uint,
) -> Result<usize, Errno> {
    let mut bytes = vec![0; len.min(PIPE_BYTES)];
    if flags & libc::SPLICE_F_NONBLOCK != 0 && is_full(pipe)? {
        return Err(Errno::AGAIN);
    }
    // Whether it waits for bytes depends on the socket's own flag, not on this call's.
    let room = &mut [IoSliceMut::new(&mut bytes)];
    let seen = match sockets.receive(from, room, &mut [], libc::MSG_PEEK) {
        Verdict::Done(got) => got?.len,
        Verdict::Kernel => return Err(Errno::NOTCONN),
    };
    if seen == 0 {
        return Ok(0);
    }
    let between = Between::new()?;
    let write = [between.write as usize, bytes.as_ptr().expose_provenance(), seen, 0, 0, 0];
    // SAFETY: so many readable bytes; what does not fit an empty pipe stays where it is.
    let put = checked(unsafe { call(libc::SYS_write, write) })?;
    let splice = [between.read as usize, 0, pipe as usize, 0, put, flags as usize];
    let moved = loop {
        // SAFETY: two pipes and no offsets.
        match checked(unsafe { call(libc::SYS_splice, splice) }) {
            Err(Errno::AGAIN) if waits_for(pipe, flags) => wait(sockets, pipe, libc::POLLOUT)?,
            outcome => break outcome?,
        }
    };
    let taken = bytes.get_mut(..moved).unwrap_or_default();
    match sockets.receive(from, &mut [IoSliceMut::new(taken)], &mut [], libc::MSG_DONTWAIT) {
        Verdict::Done(got) => got.map(|_| moved),
        Verdict::Kernel => Err(Errno::NOTCONN),
    }
}

/// From a pipe to a connection: as much as the connection accepts is taken from the pipe.
fn from_pipe(
    sockets: &'static Sockets,
    pipe: c_int,
    to: c_int,
    len: usize,
    flags: c_uint,
) -> Result<usize, Errno> {
    let mut total = 0;
    let mut bytes = vec![0; len.min(PIPE_BYTES)];
    while total < len {
        let between = Between::new()?;
        let most = (len - total).min(PIPE_BYTES);
        let tee = [pipe as usize, between.write as usize, most, 0, 0, 0];
        // SAFETY: two pipes, one of which does not wait.
        let seen = match checked(unsafe { call(libc::SYS_tee, tee) }) {
            Ok(0) => break,
            Ok(seen) => seen,
            Err(_) if total > 0 => break,
            // It waits only for data that is there at the start.
            Err(Errno::AGAIN) if waits_for(pipe, flags) => {
                wait(sockets, pipe, libc::POLLIN)?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let part = bytes.get_mut(..seen).unwrap_or_default();
        take(between.read, part)?;
        let more = if flags & libc::SPLICE_F_MORE != 0 { libc::MSG_MORE } else { 0 };
        let outcome = sockets.send(to, &[IoSlice::new(part)], libc::MSG_NOSIGNAL | more, None);
        let gone = match outcome {
            Verdict::Done(Ok(gone)) => gone,
            Verdict::Done(Err(_)) if total > 0 => break,
            Verdict::Done(Err(error)) => return Err(error),
            Verdict::Kernel => return Err(Errno::NOTCONN),
        };
        take(pipe, bytes.get_mut(..gone).unwrap_or_default())?;
        total += gone;
        if gone < seen {
            break;
        }
    }
    Ok(total)
}

/// splice(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn splice(
    input: c_int,
    in_offset: *mut off_t,
    out: c_int,
    out_offset: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    let moved = match (is_accelerated(input), is_accelerated(out)) {
        (false, false) => None,
        (takes, gives) => serve_point(if takes { input } else { out }, |sockets| {
            if takes && gives {
                return Verdict::Done(Err(Errno::INVAL));
            }
            // Pipes have no offset, and sockets cannot be read or written at one.
            let (of_pipe, of_socket) =
                if takes { (out_offset, in_offset) } else { (in_offset, out_offset) };
            if !of_pipe.is_null() {
                return Verdict::Done(Err(Errno::SPIPE));
            }
            if !of_socket.is_null() {
                return Verdict::Done(Err(Errno::INVAL));
            }
            match (len, takes) {
                (0, _) => Verdict::Done(Ok(0)),
                (_, true) => {
                    let moved = to_pipe(sockets, input, out, len, flags);
                    Verdict::Done(moved.map(|moved| moved as ssize_t))
                }
                (_, false) => {
                    sent(sockets, out, Verdict::Done(from_pipe(sockets, input, out, len, flags)), 0)
                }
            }
        }),
    };
    // SAFETY: arguments passed through.
    moved.unwrap_or_else(|| unsafe { real::splice(input, in_offset, out, out_offset, len, flags) })
}
