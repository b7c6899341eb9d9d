//! splice(2) between pipes and accelerated connections: through a pipe of our own, so that nothing is
//! taken from one side that the other has not taken.

use std::ffi::{c_int, c_uint};
use std::io::{IoSlice, IoSliceMut};

use client::sockets::{Errno, Sockets, Verdict};
use libc::{off_t, size_t, ssize_t};

use super::transfers::sent;
use crate::boundary::{errno, serve};
use crate::real;

/// What a pipe holds unless it was told otherwise, bytes.
const PIPE_BYTES: usize = 65536;

/// The C call's count, or why it failed.
fn checked(count: ssize_t) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| Errno::from_raw_os_error(errno()))
}

/// A pipe of our own for one call.
struct Between {
    read: c_int,
    write: c_int,
}

impl Between {
    /// One that neither side waits for, or one by which `tee` waits for the other pipe alone.
    fn new(waits: bool) -> Result<Self, Errno> {
        let mut ends = [0; 2];
        let flags = if waits { libc::O_CLOEXEC } else { libc::O_CLOEXEC | libc::O_NONBLOCK };
        // SAFETY: room for two descriptors.
        checked(unsafe { libc::pipe2(ends.as_mut_ptr(), flags) } as ssize_t)?;
        Ok(Self { read: ends[0], write: ends[1] })
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        // SAFETY: both are this call's own.
        unsafe {
            real::close(self.read);
            real::close(self.write);
        }
    }
}

/// Reads all of `bytes` from a pipe that is known to hold them.
fn take(pipe: c_int, bytes: &mut [u8]) -> Result<(), Errno> {
    let mut filled = 0;
    while let Some(room) = bytes.get_mut(filled..).filter(|room| !room.is_empty()) {
        // SAFETY: so many writable bytes.
        let got = checked(unsafe { real::read(pipe, room.as_mut_ptr().cast(), room.len()) })?;
        if got == 0 {
            return Err(Errno::PIPE);
        }
        filled += got;
    }
    Ok(())
}

/// Whether a pipe has no room.
fn is_full(pipe: c_int) -> Result<bool, Errno> {
    let mut asked = libc::pollfd { fd: pipe, events: libc::POLLOUT, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one entry and a time; no mask.
    let ready = unsafe { real::ppoll(&raw mut asked, 1, &raw const now, std::ptr::null()) };
    checked(ready as ssize_t).map(|ready| ready == 0)
}

/// From a connection to a pipe: what fits there is taken, and no more.
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
    // For bytes it waits as the socket's own flag says, whatever this call's say.
    let room = &mut [IoSliceMut::new(&mut bytes)];
    let seen = match sockets.receive(from, room, &mut [], libc::MSG_PEEK) {
        Verdict::Done(got) => got?.len,
        Verdict::Kernel => return Err(Errno::NOTCONN),
    };
    if seen == 0 {
        return Ok(0);
    }
    let between = Between::new(false)?;
    // SAFETY: so many readable bytes; what does not fit an empty pipe stays where it is.
    let put = checked(unsafe { real::write(between.write, bytes.as_ptr().cast(), seen) })?;
    let null = std::ptr::null_mut();
    // SAFETY: two pipes and no offsets.
    let moved = unsafe { real::splice(between.read, null, pipe, null, put, flags) };
    let moved = checked(moved)?;
    let taken = bytes.get_mut(..moved).unwrap_or_default();
    match sockets.receive(from, &mut [IoSliceMut::new(taken)], &mut [], libc::MSG_DONTWAIT) {
        Verdict::Done(got) => got.map(|_| moved),
        Verdict::Kernel => Err(Errno::NOTCONN),
    }
}

/// From a pipe to a connection: what it takes is taken from the pipe.
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
        let between = Between::new(true)?;
        // Only what is there when it begins is waited for.
        let wait =
            if total > 0 { libc::SPLICE_F_NONBLOCK } else { flags & libc::SPLICE_F_NONBLOCK };
        let most = (len - total).min(PIPE_BYTES);
        // SAFETY: two pipes.
        let seen = match checked(unsafe { libc::tee(pipe, between.write, most, wait) }) {
            Ok(0) => break,
            Ok(seen) => seen,
            Err(_) if total > 0 => break,
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
pub unsafe extern "C" fn splice(
    input: c_int,
    in_offset: *mut off_t,
    out: c_int,
    out_offset: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    let ours = |fd: c_int| crate::sockets().is_some_and(|sockets| sockets.accelerated(fd));
    let moved = match (ours(input), ours(out)) {
        (false, false) => None,
        (takes, gives) => serve(if takes { input } else { out }, |sockets| {
            if takes && gives {
                return Verdict::Done(Err(Errno::INVAL));
            }
            // Pipes have no place, and sockets cannot be read or written at one.
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
