//! Reading and writing.

use std::ffi::{c_int, c_uint, c_void};
use std::io::{IoSlice, IoSliceMut};

use client::sockets::{Errno, Received, SendMessage, Sockets, Verdict};
use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

use super::opening::appeared;
use super::waiting::from_timespec;
use crate::boundary::{asks, serve_point, set_errno, tell};
use crate::kernel::call;
use crate::{addresses, memory, real};

/// Maximum parts of one vectored call (IOV_MAX).
const PARTS_MAX: usize = 1024;
/// More than all control messages of one receive need.
const CONTROL_ROOM: usize = 1 << 16;

/// Whether no memory of the program can be at an address: the first page (null, and members of a
/// null struct) and the last one (-1 and other error values used as addresses). Such buffers fail
/// at once; other invalid ones when copying reaches them, as in the kernel.
fn is_impossible(address: usize) -> bool {
    const PAGE: usize = 4096;
    address.wrapping_add(PAGE) < 2 * PAGE
}

/// EFAULT if one of `count` iovecs, or their array, is impossible; EINVAL if there are too many or
/// they are too long.
fn checked(iov: *const iovec, count: usize) -> Result<(), Errno> {
    if count > PARTS_MAX {
        return Err(Errno::INVAL);
    }
    if count == 0 {
        return Ok(());
    }
    if !memory::is_readable(iov, count) {
        return Err(Errno::FAULT);
    }
    // SAFETY: so many can be read, and any bytes are one.
    let iov = unsafe { std::slice::from_raw_parts(iov, count) };
    total(iov)?;
    match iov.iter().any(|part| part.iov_len > 0 && is_impossible(part.iov_base.addr())) {
        true => Err(Errno::FAULT),
        false => Ok(()),
    }
}

/// Total length of the parts. No memory is as long as the length that the kernel refuses here.
fn total(iov: &[iovec]) -> Result<usize, Errno> {
    let sum = iov.iter().try_fold(0_isize, |sum, part| {
        isize::try_from(part.iov_len).ok().and_then(|len| sum.checked_add(len))
    });
    sum.map(isize::cast_unsigned).ok_or(Errno::INVAL)
}

/// EMSGSIZE if a message has more parts than permitted.
fn in_number(message: &msghdr) -> Result<(), Errno> {
    if message.msg_iovlen > PARTS_MAX { Err(Errno::MSGSIZE) } else { Ok(()) }
}

/// Whether such a receive discards a stream's bytes.
fn discards(flags: c_int) -> bool {
    flags & (libc::MSG_TRUNC | libc::MSG_OOB | libc::MSG_ERRQUEUE) == libc::MSG_TRUNC
}

/// A receive that discards a stream's bytes, and needs no buffer (MSG_TRUNC); `None` if it is not
/// one.
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
    checked(iov, count)?;
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
    checked(iov, count)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: IoSlice has iovec's layout; by the caller's promise the array is valid.
    Ok(unsafe { std::slice::from_raw_parts(iov.cast::<IoSlice<'a>>(), count) })
}

/// The result of a call that writes to `fd`. A stream that cannot be written raises SIGPIPE; a UDP
/// socket does not.
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
        let told =
            if taken >= 0 { give_name(&Received::default(), addr, addr_len) } else { Ok(()) };
        if let Err(error) = told {
            set_errno(error.raw_os_error());
            return -1;
        }
        return taken;
    }
    serve_point(fd, |sockets| {
        // SAFETY: the program's promise about `buf`.
        let room = match unsafe { room(buf, len) } {
            Ok(room) => room,
            Err(error) => return Verdict::Done(Err(error)),
        };
        match sockets.receive(fd, &mut [room], &mut [], flags) {
            Verdict::Done(got) => Verdict::Done(got.and_then(|got| {
                give_name(&got, addr, addr_len)?;
                Ok(got.len as ssize_t)
            })),
            Verdict::Kernel => Verdict::Kernel,
        }
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::recvfrom(fd, buf, len, flags, addr, addr_len) })
}

/// Writes the sender's address, if the program requests it.
fn give_name(got: &Received, addr: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
    match got.from {
        Some(from) => addresses::write(from, addr, len),
        // A stream has no sender.
        None if !addr.is_null() => memory::store(len, 0),
        None => Ok(()),
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
        let outcome = addresses::read(addr, addr_len)
            // SAFETY: the program's promise about `buf`.
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
        Err(Errno::FAULT)
            if discards(flags) && memory::is_readable(message.msg_iov, message.msg_iovlen) =>
        {
            // SAFETY: so many can be read, and any bytes are one.
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
    // As in the kernel: control messages for a bad address are lost without an error, and a length
    // that overstates the room costs only the messages that do not fit.
    let claimed = message.msg_controllen.min(CONTROL_ROOM);
    let asked = memory::writable(message.msg_control.cast::<u8>(), claimed);
    let is_lost = asked < claimed;
    // SAFETY: by the caller's promise.
    let mut control = match unsafe { room(message.msg_control, asked) } {
        Ok(control) => control,
        Err(error) => return Verdict::Done(Err(error)),
    };
    match sockets.receive(fd, rooms, &mut control, flags) {
        Verdict::Done(got) => Verdict::Done(got.and_then(|got| {
            give_name(&got, message.msg_name.cast(), &raw mut message.msg_namelen)?;
            message.msg_controllen = got.control_len;
            message.msg_flags = match is_lost && !message.msg_control.is_null() {
                true => got.flags & !libc::MSG_CTRUNC,
                false => got.flags,
            };
            Ok(got.len as ssize_t)
        })),
        Verdict::Kernel => Verdict::Kernel,
    }
}

/// # Safety
/// `message` as sendmsg(2) demands.
unsafe fn send_message(
    sockets: &'static Sockets,
    fd: c_int,
    message: &msghdr,
    flags: c_int,
) -> Verdict<ssize_t> {
    let outcome = addresses::read(message.msg_name.cast(), message.msg_namelen).and_then(|to| {
        in_number(message)?;
        // SAFETY: by the caller's promise.
        Ok((to, unsafe { parts(message.msg_iov, message.msg_iovlen) }?))
    });
    if message.msg_controllen > 0 {
        sockets.notice_control_messages(fd);
    }
    let control_at = message.msg_control.cast::<u8>();
    let control = match memory::is_readable(control_at, message.msg_controllen) {
        // SAFETY: so many bytes can be read.
        true => unsafe { bytes(message.msg_control, message.msg_controllen) },
        false => Err(Errno::FAULT),
    };
    match outcome.and_then(|outcome| Ok((outcome, control?))) {
        Ok(((to, bufs), control)) => {
            let message = SendMessage { bufs, control: &control, flags, to };
            sent(sockets, fd, sockets.send_with(fd, &message), flags)
        }
        Err(error) => Verdict::Done(Err(error)),
    }
}

/// Calls `each` with every descriptor in a message (SCM_RIGHTS), until it returns true.
fn any_right(message: &msghdr, mut each: impl FnMut(c_int) -> bool) -> bool {
    let control_at = message.msg_control.cast::<u8>();
    // The kernel accepts no control data as long as this.
    const CONTROL_MAX: usize = 1 << 20;
    if !(1..=CONTROL_MAX).contains(&message.msg_controllen)
        || !memory::is_readable(control_at, message.msg_controllen)
    {
        return false;
    }
    // SAFETY: the control data can be read, and the macros stay within it.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = at.as_ref() {
            if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
                let room = header.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let fds = libc::CMSG_DATA(header).cast::<c_int>();
                for index in 0..room / size_of::<c_int>() {
                    if each(fds.add(index).read_unaligned()) {
                        return true;
                    }
                }
            }
            at = libc::CMSG_NXTHDR(message, header);
        }
    }
    false
}

/// A message may pass descriptors to another process. Returns whether that is impossible, because
/// the engine has no relay.
fn cannot_pass(message: &msghdr) -> bool {
    asks(|sockets| any_right(message, |fd| sockets.tracks(fd) && sockets.hand_over(fd).is_err()))
}

/// Descriptors have arrived with a message of the kernel's, as left by a successful recvmsg(2).
/// Listeners among them are tracked.
fn rights_appeared(message: &msghdr) {
    any_right(message, |fd| {
        appeared(fd);
        tell(|sockets| sockets.follow_passed(fd));
        false
    });
}

/// recvmsg(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    serve_point(fd, |sockets| {
        if !memory::is_writable(message, 1) {
            return Verdict::Done(Err(Errno::FAULT));
        }
        // SAFETY: it can be written, and any bytes are one; the rest is the program's promise.
        unsafe { receive_message(sockets, fd, &mut *message, flags) }
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe {
        let outcome = real::recvmsg(fd, message, flags);
        if outcome >= 0 {
            rights_appeared(&*message);
        }
        outcome
    })
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
        if !memory::is_readable(message, 1) {
            return Verdict::Done(Err(Errno::FAULT));
        }
        // SAFETY: it can be read, and any bytes are one; the rest is the program's promise.
        unsafe { send_message(sockets, fd, &*message, flags) }
    })
    .unwrap_or_else(|| {
        // SAFETY: it can be read, and any bytes are one.
        if memory::is_readable(message, 1) && cannot_pass(unsafe { &*message }) {
            set_errno(libc::EOPNOTSUPP);
            return -1;
        }
        // SAFETY: arguments passed through.
        unsafe { real::sendmsg(fd, message, flags) }
    })
}

/// Serves each message in turn until one fails; `late` is called with a failure after the first
/// success.
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
        let entry = messages.wrapping_add(done as usize);
        let outcome = match memory::is_writable(entry, 1) {
            // SAFETY: it can be written, and any bytes are one.
            true => one(unsafe { &mut (*entry).msg_hdr }, done),
            false => Verdict::Done(Err(Errno::FAULT)),
        };
        match outcome {
            // SAFETY: as above.
            Verdict::Done(Ok(len)) => unsafe { (*entry).msg_len = len as c_uint },
            Verdict::Done(Err(error)) if done == 0 => return Verdict::Done(Err(error)),
            Verdict::Done(Err(error)) => {
                late(error);
                break;
            }
            // The socket became the kernel's meanwhile; the program asks again for the rest.
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
        let limit = match from_timespec(timeout) {
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
            // The remaining time is written back, as by the kernel.
            let left = limit.saturating_sub(began.elapsed());
            let left = timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: left.subsec_nanos().into(),
            };
            if let Err(error) = memory::store(timeout, left) {
                return Verdict::Done(Err(error));
            }
        }
        outcome
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe {
        let outcome = real::recvmmsg(fd, messages, count, flags, timeout);
        for index in 0..usize::try_from(outcome).unwrap_or(0) {
            rights_appeared(&(*messages.add(index)).msg_hdr);
        }
        outcome
    })
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
            // As in the kernel, which does not report it.
            each(messages, count, next, |_| ())
        }
    })
    .unwrap_or_else(|| {
        let (count, passes) = before_passing(messages, count);
        if passes && count == 0 {
            set_errno(libc::EOPNOTSUPP);
            return -1;
        }
        // SAFETY: arguments passed through, or fewer of them.
        unsafe { real::sendmmsg(fd, messages, count, flags) }
    })
}

/// The number of messages before the first that passes a connection of the engine, and whether
/// there is one.
fn before_passing(messages: *const mmsghdr, count: c_uint) -> (c_uint, bool) {
    let passes = |&index: &c_uint| {
        let message = messages.wrapping_add(index as usize);
        // SAFETY: it can be read, and any bytes are one.
        memory::is_readable(message, 1) && cannot_pass(unsafe { &(*message).msg_hdr })
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

/// sendfile to an accelerated connection: read and send.
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
        } else if memory::is_writable(offset, 1) {
            // SAFETY: it can be read.
            unsafe { offset.read_unaligned() }
        } else {
            return Verdict::Done(Err(Errno::FAULT));
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
                // SAFETY: it can be written.
                unsafe { offset.write_unaligned(at) };
            }
            return Verdict::Done(Ok(total as ssize_t));
        }
        sent(sockets, out, Verdict::Done(outcome.map(|()| 0)), 0)
    })
}
