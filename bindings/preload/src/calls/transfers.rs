//! Reading and writing.

use std::ffi::{c_int, c_uint, c_void};
use std::io::{IoSlice, IoSliceMut};

use client::sockets::{Errno, Received, Sockets, Verdict};
use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

use super::waiting::from_timespec;
use crate::boundary::{asks, serve_point};
use crate::kernel::call;
use crate::{addresses, real};

/// Most parts of one vectored call (IOV_MAX).
const PARTS_MAX: usize = 1024;

/// Whether nothing of the program's can lie at an address: the first page (null, and members of
/// what null points to) and the last one (-1 and other failures taken for addresses). The kernel
/// finds out every bad address when it copies; here only these are found, as one comparison.
fn is_impossible(address: usize) -> bool {
    const PAGE: usize = 4096;
    address.wrapping_add(PAGE) < 2 * PAGE
}

/// EFAULT when one of `count` iovecs, or their array, cannot be; EINVAL when they are too many or too long.
///
/// # Safety
/// `count` iovecs at `iov`, unless that is an impossible address.
unsafe fn checked(iov: *const iovec, count: usize) -> Result<(), Errno> {
    if count > PARTS_MAX {
        return Err(Errno::INVAL);
    }
    if count == 0 {
        return Ok(());
    }
    if is_impossible(iov.addr()) {
        return Err(Errno::FAULT);
    }
    // SAFETY: by the caller's promise.
    let iov = unsafe { std::slice::from_raw_parts(iov, count) };
    total(iov)?;
    match iov.iter().any(|part| part.iov_len > 0 && is_impossible(part.iov_base.addr())) {
        true => Err(Errno::FAULT),
        false => Ok(()),
    }
}

/// How long parts are together. No memory is as long as what the kernel refuses here.
fn total(iov: &[iovec]) -> Result<usize, Errno> {
    let sum = iov.iter().try_fold(0_isize, |sum, part| {
        isize::try_from(part.iov_len).ok().and_then(|len| sum.checked_add(len))
    });
    sum.map(isize::cast_unsigned).ok_or(Errno::INVAL)
}

/// EMSGSIZE when a message has more parts than a call takes.
fn in_number(message: &msghdr) -> Result<(), Errno> {
    if message.msg_iovlen > PARTS_MAX { Err(Errno::MSGSIZE) } else { Ok(()) }
}

/// Whether such a receive gives no bytes of a stream.
fn discards(flags: c_int) -> bool {
    flags & (libc::MSG_TRUNC | libc::MSG_OOB | libc::MSG_ERRQUEUE) == libc::MSG_TRUNC
}

/// A receive that takes a stream's bytes without giving them, and needs no place for them (MSG_TRUNC); `None`
/// where this is none.
#[inline]
fn discard(fd: c_int, len: size_t, flags: c_int) -> Option<ssize_t> {
    if !discards(flags) {
        return None;
    }
    serve_point(fd, |sockets| sockets.discard(fd, len, flags).map(|taken| taken as ssize_t))
}

/// # Safety
/// `len` writable bytes at `buf`.
unsafe fn room<'a>(buf: *mut c_void, len: size_t) -> Result<IoSliceMut<'a>, Errno> {
    if is_impossible(buf.addr()) {
        return if len == 0 { Ok(IoSliceMut::new(&mut [])) } else { Err(Errno::FAULT) };
    }
    let len = len.min(isize::MAX as usize);
    // SAFETY: by the caller's promise; the bytes are only written.
    Ok(IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), len) }))
}

/// # Safety
/// `len` readable bytes at `buf`.
unsafe fn bytes<'a>(buf: *const c_void, len: size_t) -> Result<IoSlice<'a>, Errno> {
    if is_impossible(buf.addr()) {
        return if len == 0 { Ok(IoSlice::new(&[])) } else { Err(Errno::FAULT) };
    }
    let len = len.min(isize::MAX as usize);
    // SAFETY: by the caller's promise.
    Ok(IoSlice::new(unsafe { std::slice::from_raw_parts(buf.cast::<u8>(), len) }))
}

/// # Safety
/// `count` iovecs of writable memory at `iov`.
unsafe fn rooms<'a>(iov: *const iovec, count: usize) -> Result<&'a mut [IoSliceMut<'a>], Errno> {
    // SAFETY: by the caller's promise.
    unsafe { checked(iov, count) }?;
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: IoSliceMut has iovec's layout; the array is only read by the layers below, which
    // take no advantage of its mutability; by the caller's promise it is valid.
    Ok(unsafe { std::slice::from_raw_parts_mut(iov.cast_mut().cast::<IoSliceMut<'a>>(), count) })
}

/// # Safety
/// `count` iovecs of readable memory at `iov`.
unsafe fn parts<'a>(iov: *const iovec, count: usize) -> Result<&'a [IoSlice<'a>], Errno> {
    // SAFETY: by the caller's promise.
    unsafe { checked(iov, count) }?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: IoSlice has iovec's layout; by the caller's promise the array is valid.
    Ok(unsafe { std::slice::from_raw_parts(iov.cast::<IoSlice<'a>>(), count) })
}

/// What a call that writes to `fd` returns. A stream that cannot be written has its program told by
/// SIGPIPE; a UDP socket has not.
pub(super) fn sent(
    sockets: &Sockets,
    fd: c_int,
    outcome: Verdict<usize>,
    flags: c_int,
) -> Verdict<ssize_t> {
    if let Verdict::Done(Err(Errno::PIPE)) = outcome
        && flags & libc::MSG_NOSIGNAL == 0
        && sockets.accelerated(fd)
    {
        // SAFETY: raises the signal that write(2) promises, in this thread.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    outcome.map(|len| len as ssize_t)
}

/// # Safety
/// `len` writable bytes at `buf`.
#[inline]
unsafe fn receive(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> Option<ssize_t> {
    discard(fd, len, flags).or_else(|| {
        serve_point(fd, |sockets| {
            // SAFETY: by the caller's promise.
            match unsafe { room(buf, len) } {
                Ok(room) => {
                    sockets.receive(fd, &mut [room], &mut [], flags).map(|got| got.len as ssize_t)
                }
                Err(error) => Verdict::Done(Err(error)),
            }
        })
    })
}

/// # Safety
/// `len` readable bytes at `buf`.
#[inline]
unsafe fn transmit(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> Option<ssize_t> {
    serve_point(fd, |sockets| {
        // SAFETY: by the caller's promise.
        match unsafe { bytes(buf, len) } {
            Ok(bytes) => sent(sockets, fd, sockets.send(fd, &[bytes], flags, None), flags),
            Err(error) => Verdict::Done(Err(error)),
        }
    })
}

/// read(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the program's promise about `buf`.
    unsafe { receive(fd, buf, len, 0) }
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::read(fd, buf, len) })
}

/// write(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the program's promise about `buf`.
    unsafe { transmit(fd, buf, len, 0) }
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::write(fd, buf, len) })
}

/// recv(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recv(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's promise about `buf`.
    unsafe { receive(fd, buf, len, flags) }
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::recv(fd, buf, len, flags) })
}

/// send(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn send(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's promise about `buf`.
    unsafe { transmit(fd, buf, len, flags) }
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::send(fd, buf, len, flags) })
}

/// readv(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    serve_point(fd, |sockets| {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        // SAFETY: the program's promise about `iov`.
        match unsafe { rooms(iov, count) } {
            Ok(rooms) => sockets.receive(fd, rooms, &mut [], 0).map(|got| got.len as ssize_t),
            Err(error) => Verdict::Done(Err(error)),
        }
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::readv(fd, iov, count) })
}

/// writev(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    serve_point(fd, |sockets| {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        // SAFETY: the program's promise about `iov`.
        match unsafe { parts(iov, count) } {
            Ok(parts) => sent(sockets, fd, sockets.send(fd, parts, 0, None), 0),
            Err(error) => Verdict::Done(Err(error)),
        }
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::writev(fd, iov, count) })
}

/// recvfrom(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    if let Some(taken) = discard(fd, len, flags) {
        if taken >= 0 {
            // SAFETY: the program's promise about `addr` and `addr_len`.
            unsafe { give_name(&Received::default(), addr, addr_len) };
        }
        return taken;
    }
    serve_point(fd, |sockets| {
        // SAFETY: the program's promise about `buf`.
        let room = match unsafe { room(buf, len) } {
            Ok(room) => room,
            Err(error) => return Verdict::Done(Err(error)),
        };
        sockets.receive(fd, &mut [room], &mut [], flags).map(|got| {
            // SAFETY: the program's promise about `addr` and `addr_len`.
            unsafe { give_name(&got, addr, addr_len) };
            got.len as ssize_t
        })
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::recvfrom(fd, buf, len, flags, addr, addr_len) })
}

/// # Safety
/// `addr` and `len` as recvfrom(2) demands.
unsafe fn give_name(got: &Received, addr: *mut sockaddr, len: *mut socklen_t) {
    match got.from {
        // SAFETY: by the caller's promise.
        Some(from) => unsafe { addresses::write(from, addr, len) },
        None if !len.is_null() && !addr.is_null() => {
            // SAFETY: by the caller's promise. A stream tells no sender.
            unsafe { *len = 0 };
        }
        None => (),
    }
}

/// sendto(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    serve_point(fd, |sockets| {
        // SAFETY: the program's promises about `addr` and `buf`.
        let outcome = unsafe { addresses::read(addr, addr_len) }
            // SAFETY: as above.
            .and_then(|to| Ok((to, unsafe { bytes(buf, len) }?)));
        match outcome {
            Ok((to, bytes)) => sent(sockets, fd, sockets.send(fd, &[bytes], flags, to), flags),
            Err(error) => Verdict::Done(Err(error)),
        }
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::sendto(fd, buf, len, flags, addr, addr_len) })
}

/// # Safety
/// `message` as recvmsg(2) demands.
unsafe fn receive_message(
    sockets: &'static Sockets,
    fd: c_int,
    message: &mut msghdr,
    flags: c_int,
) -> Verdict<ssize_t> {
    // SAFETY: by the caller's promise.
    let rooms = unsafe { rooms(message.msg_iov, message.msg_iovlen) };
    let rooms = match in_number(message).and(rooms) {
        Ok(rooms) => rooms,
        Err(Errno::FAULT) if discards(flags) && !is_impossible(message.msg_iov.addr()) => {
            // SAFETY: by the caller's promise.
            let iov = unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) };
            let taken = match total(iov).map(|len| sockets.discard(fd, len, flags)) {
                Ok(Verdict::Done(taken)) => taken,
                Ok(Verdict::Kernel) => Err(Errno::FAULT),
                Err(error) => Err(error),
            };
            if taken.is_ok() {
                (message.msg_namelen, message.msg_controllen, message.msg_flags) = (0, 0, 0);
            }
            return Verdict::Done(taken.map(|taken| taken as ssize_t));
        }
        Err(error) => return Verdict::Done(Err(error)),
    };
    // As the kernel has it: control messages for a bad address are lost, and nothing fails.
    let is_lost = is_impossible(message.msg_control.addr());
    let asked = if is_lost { 0 } else { message.msg_controllen };
    // SAFETY: by the caller's promise.
    let mut control = match unsafe { room(message.msg_control, asked) } {
        Ok(control) => control,
        Err(error) => return Verdict::Done(Err(error)),
    };
    sockets.receive(fd, rooms, &mut control, flags).map(|got| {
        if !message.msg_name.is_null() {
            // SAFETY: by the caller's promise.
            unsafe { give_name(&got, message.msg_name.cast(), &raw mut message.msg_namelen) };
        }
        message.msg_controllen = got.control_len;
        message.msg_flags = match is_lost && !message.msg_control.is_null() {
            true => got.flags & !libc::MSG_CTRUNC,
            false => got.flags,
        };
        got.len as ssize_t
    })
}

/// # Safety
/// `message` as sendmsg(2) demands.
unsafe fn send_message(
    sockets: &'static Sockets,
    fd: c_int,
    message: &msghdr,
    flags: c_int,
) -> Verdict<ssize_t> {
    // SAFETY: by the caller's promise.
    let outcome = unsafe { addresses::read(message.msg_name.cast(), message.msg_namelen) }
        .and_then(|to| {
            in_number(message)?;
            // SAFETY: as above.
            Ok((to, unsafe { parts(message.msg_iov, message.msg_iovlen) }?))
        });
    if message.msg_controllen > 0 {
        sockets.notice_control_messages(fd);
    }
    // SAFETY: by the caller's promise.
    let control = unsafe { bytes(message.msg_control, message.msg_controllen) };
    match outcome.and_then(|outcome| Ok((outcome, control?))) {
        Ok(((to, parts), control)) => {
            sent(sockets, fd, sockets.send_with(fd, parts, &control, flags, to), flags)
        }
        Err(error) => Verdict::Done(Err(error)),
    }
}

/// Whether a message hands an accelerated connection to another process, which is logged.
///
/// # Safety
/// `message` as sendmsg(2) demands.
unsafe fn passes_connection(message: &msghdr) -> bool {
    if message.msg_controllen == 0 || message.msg_control.is_null() {
        return false;
    }
    // SAFETY: the control data is valid by the caller's promise; the macros stay within it.
    asks(|sockets| unsafe {
        let mut at = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = at.as_ref() {
            if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
                let room = header.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let fds = libc::CMSG_DATA(header).cast::<c_int>();
                for index in 0..room / size_of::<c_int>() {
                    let fd = fds.add(index).read_unaligned();
                    if sockets.accelerated(fd) {
                        sockets.notice_passed(fd);
                        return true;
                    }
                }
            }
            at = libc::CMSG_NXTHDR(message, header);
        }
        false
    })
}

/// recvmsg(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    serve_point(fd, |sockets| {
        // SAFETY: the program's promise about `message`.
        match unsafe { message.as_mut() } {
            // SAFETY: as above.
            Some(message) => unsafe { receive_message(sockets, fd, message, flags) },
            None => Verdict::Done(Err(Errno::FAULT)),
        }
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::recvmsg(fd, message, flags) })
}

/// sendmsg(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    serve_point(fd, |sockets| {
        // SAFETY: the program's promise about `message`.
        match unsafe { message.as_ref() } {
            // SAFETY: as above.
            Some(message) => unsafe { send_message(sockets, fd, message, flags) },
            None => Verdict::Done(Err(Errno::FAULT)),
        }
    })
    .unwrap_or_else(|| {
        // SAFETY: the program's promise about `message`.
        let asked = unsafe { message.as_ref() };
        // SAFETY: as above.
        if asked.is_some_and(|message| unsafe { passes_connection(message) }) {
            crate::boundary::set_errno(libc::EOPNOTSUPP);
            return -1;
        }
        // SAFETY: arguments passed through.
        unsafe { real::sendmsg(fd, message, flags) }
    })
}

/// Serves each message in turn until one fails; `late` is told of a failure after the first success.
///
/// # Safety
/// `count` messages at `messages`, as the C function demands.
unsafe fn each(
    messages: *mut mmsghdr,
    count: c_uint,
    mut one: impl FnMut(&mut msghdr, c_uint) -> Verdict<ssize_t>,
    late: impl FnOnce(Errno),
) -> Verdict<c_int> {
    let mut done: c_uint = 0;
    while done < count.min(PARTS_MAX as c_uint) {
        // SAFETY: within the array, by the caller's promise.
        let entry = unsafe { &mut *messages.add(done as usize) };
        match one(&mut entry.msg_hdr, done) {
            Verdict::Done(Ok(len)) => entry.msg_len = len as c_uint,
            Verdict::Done(Err(error)) if done == 0 => return Verdict::Done(Err(error)),
            Verdict::Done(Err(error)) => {
                late(error);
                break;
            }
            // Became the kernel's in the middle; the program asks again for the rest.
            Verdict::Kernel if done == 0 => return Verdict::Kernel,
            Verdict::Kernel => break,
        }
        done += 1;
    }
    Verdict::Done(Ok(done as c_int))
}

/// recvmmsg(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    serve_point(fd, |sockets| {
        let began = std::time::Instant::now();
        // SAFETY: the program's promise about `timeout`.
        let limit = match unsafe { from_timespec(timeout) } {
            Ok(limit) => limit,
            Err(error) => return Verdict::Done(Err(error)),
        };
        // SAFETY: the program's promise about `messages`.
        let outcome = unsafe {
            let next = |message: &mut msghdr, index: c_uint| {
                if index > 0 && limit.is_some_and(|limit| began.elapsed() >= limit) {
                    return Verdict::Done(Err(Errno::AGAIN));
                }
                let mut own = flags & !libc::MSG_WAITFORONE;
                if index > 0 && flags & libc::MSG_WAITFORONE != 0 {
                    own |= libc::MSG_DONTWAIT;
                }
                receive_message(sockets, fd, message, own)
            };
            each(messages, count, next, |error| sockets.keep_error(fd, error))
        };
        if let (Some(limit), Verdict::Done(Ok(1..))) = (limit, &outcome) {
            // What is left of it is told, as by the kernel.
            let left = limit.saturating_sub(began.elapsed());
            // SAFETY: the program's promise about `timeout`, which is not null.
            unsafe {
                (*timeout).tv_sec = left.as_secs() as libc::time_t;
                (*timeout).tv_nsec = left.subsec_nanos().into();
            }
        }
        outcome
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::recvmmsg(fd, messages, count, flags, timeout) })
}

/// sendmmsg(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    serve_point(fd, |sockets| {
        // SAFETY: the program's promise about `messages`.
        unsafe {
            let next = |message: &mut msghdr, _: c_uint| send_message(sockets, fd, message, flags);
            // As the kernel does, which tells nobody.
            each(messages, count, next, |_| ())
        }
    })
    .unwrap_or_else(|| {
        // SAFETY: the program's promise about `messages`.
        let (count, passes) = unsafe { before_passing(messages, count) };
        if passes && count == 0 {
            crate::boundary::set_errno(libc::EOPNOTSUPP);
            return -1;
        }
        // SAFETY: arguments passed through, or fewer of them.
        unsafe { real::sendmmsg(fd, messages, count, flags) }
    })
}

/// How many messages come before the first that hands on a connection of the engine, and whether there is
/// one.
///
/// # Safety
/// `count` messages at `messages`, as sendmmsg(2) demands.
unsafe fn before_passing(messages: *const mmsghdr, count: c_uint) -> (c_uint, bool) {
    if is_impossible(messages.addr()) {
        return (count, false);
    }
    let passes = |&index: &c_uint| {
        // SAFETY: within the array, by the caller's promise.
        unsafe { passes_connection(&(*messages.add(index as usize)).msg_hdr) }
    };
    match (0..count.min(PARTS_MAX as c_uint)).find(passes) {
        Some(first) => (first, true),
        None => (count, false),
    }
}

/// read(2) as compiled with _FORTIFY_SOURCE.
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    let ours = if len > room {
        None
    } else {
        // SAFETY: the program's promise about `buf`.
        unsafe { receive(fd, buf, len, 0) }
    };
    // SAFETY: arguments passed through.
    ours.unwrap_or_else(|| unsafe { real::__read_chk(fd, buf, len, room) })
}

/// recv(2) as compiled with _FORTIFY_SOURCE.
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    let ours = if len > room {
        None
    } else {
        // SAFETY: the program's promise about `buf`.
        unsafe { receive(fd, buf, len, flags) }
    };
    // SAFETY: arguments passed through.
    ours.unwrap_or_else(|| unsafe { real::__recv_chk(fd, buf, len, room, flags) })
}

/// recvfrom(2) as compiled with _FORTIFY_SOURCE.
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    if len > room {
        // SAFETY: arguments passed through; it ends the program as it should.
        return unsafe { real::__recvfrom_chk(fd, buf, len, room, flags, addr, addr_len) };
    }
    // SAFETY: arguments passed through.
    unsafe { recvfrom(fd, buf, len, flags, addr, addr_len) }
}

/// sendfile(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile(
    out: c_int,
    input: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the program's promise about `offset`.
    unsafe { copy_file(out, input, offset, count) }
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::sendfile(out, input, offset, count) })
}

/// sendfile64(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile64(
    out: c_int,
    input: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: arguments passed through; off_t has 64 bits on the machines served.
    unsafe { sendfile(out, input, offset, count) }
}

/// sendfile towards an accelerated connection: read and send.
///
/// # Safety
/// `offset` is null or points to the position.
unsafe fn copy_file(
    out: c_int,
    input: c_int,
    offset: *mut off_t,
    count: size_t,
) -> Option<ssize_t> {
    if !crate::sockets()?.tracks(out) {
        return None;
    }
    serve_point(out, |sockets| {
        if !sockets.accelerated(out) {
            return Verdict::Kernel;
        }
        let mut at = if offset.is_null() {
            // SAFETY: asks for the position only.
            unsafe { libc::lseek(input, 0, libc::SEEK_CUR) }
        } else {
            // SAFETY: by the caller's promise.
            unsafe { *offset }
        };
        if at < 0 {
            sockets.notice_unseekable();
            return Verdict::Done(Err(Errno::INVAL));
        }
        let mut chunk = vec![0_u8; count.clamp(1, 64 * 1024)];
        let mut total = 0_usize;
        let outcome = loop {
            let want = count.saturating_sub(total).min(chunk.len());
            if want == 0 {
                break Ok(());
            }
            let place = chunk.as_mut_ptr().expose_provenance();
            // SAFETY: `want` writable bytes.
            let got = unsafe {
                call(libc::SYS_pread64, [input as usize, place, want, at as usize, 0, 0])
            };
            if got < 0 {
                break Err(Errno::from_raw_os_error(crate::boundary::errno()));
            }
            if got == 0 {
                break Ok(());
            }
            let filled = chunk.get(..got as usize).unwrap_or_default();
            match sockets.send(out, &[IoSlice::new(filled)], libc::MSG_NOSIGNAL, None) {
                Verdict::Done(Ok(len)) => {
                    total += len;
                    at += len as off_t;
                    if len < filled.len() {
                        break Ok(());
                    }
                }
                Verdict::Done(Err(error)) => break Err(error),
                Verdict::Kernel => break Err(Errno::NOTCONN),
            }
        };
        if total > 0 || outcome.is_ok() {
            if offset.is_null() {
                // SAFETY: moves the position as sendfile does.
                unsafe { libc::lseek(input, at, libc::SEEK_SET) };
            } else {
                // SAFETY: by the caller's promise.
                unsafe { *offset = at };
            }
            return Verdict::Done(Ok(total as ssize_t));
        }
        sent(sockets, out, Verdict::Done(outcome.map(|()| 0)), 0)
    })
}
