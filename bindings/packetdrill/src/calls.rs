//! The functions of the table: conversion from C's arguments to the program's calls and back.

use std::ffi::{c_int, c_long, c_longlong, c_uint, c_ulong, c_void};
use std::net::SocketAddr;

use client::sockets::{EpollEvent, Errno, Queue};
use libc::{
    epoll_event, iovec, loff_t, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t,
    timeval,
};
use script::ours::Message;
use script::system::{Answer, SystemCall};

use crate::interface::{PacketdrillInterface, Userdata};
use crate::machine::Machine;
use crate::memory;

/// Bytes that are spliced or sent from a file at once, as much as a pipe holds.
const PIPE_BYTES: usize = 65536;

/// The table for a machine.
pub fn table(userdata: Userdata) -> PacketdrillInterface {
    PacketdrillInterface {
        userdata,
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl,
        ioctl,
        close,
        shutdown,
        getsockopt,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        usleep,
        gettimeofday,
        epoll_create,
        epoll_ctl,
        epoll_wait,
        pipe,
        splice,
    }
}

/// The machine behind packetdrill's pointer.
fn machine(userdata: Userdata) -> &'static Machine {
    // SAFETY: packetdrill hands back what `packetdrill_interface_init` gave it, which is a machine
    // that lives as long as the process.
    unsafe { &*userdata.cast_const().cast::<Machine>() }
}

/// A system call supported by the script crate.
fn system_call(userdata: Userdata, call: SystemCall) -> Result<Answer, Errno> {
    machine(userdata).call(move |program| program.call(call))
}

fn number(answer: Answer) -> Result<c_int, Errno> {
    c_int::try_from(answer.value).map_err(|_| Errno::OVERFLOW)
}

fn plain(userdata: Userdata, call: SystemCall) -> c_int {
    memory::answer(system_call(userdata, call).and_then(number))
}

/// The machine lives as long as the process, which ends now.
unsafe extern "C" fn free(_: Userdata) {}

unsafe extern "C" fn socket(u: Userdata, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    plain(u, SystemCall::Socket { domain, kind, protocol })
}

/// An address that must be present.
///
/// # Safety
/// `address` is null or points to `len` readable bytes.
unsafe fn needed(address: *const sockaddr, len: socklen_t) -> Result<SocketAddr, Errno> {
    // SAFETY: by the caller's promise.
    unsafe { memory::address(address, len) }?.ok_or(Errno::AFNOSUPPORT)
}

unsafe extern "C" fn bind(u: Userdata, fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: packetdrill's address is as bind(2) demands.
    let address = unsafe { needed(to, len) };
    let bound = address.and_then(|address| system_call(u, SystemCall::Bind { fd, address }));
    memory::answer(bound.and_then(number))
}

unsafe extern "C" fn listen(u: Userdata, fd: c_int, backlog: c_int) -> c_int {
    plain(u, SystemCall::Listen { fd, backlog })
}

unsafe extern "C" fn accept(
    u: Userdata,
    fd: c_int,
    peer: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    memory::answer(system_call(u, SystemCall::Accept { fd, flags: 0 }).and_then(|accepted| {
        if let Some(address) = accepted.address {
            // SAFETY: packetdrill's room is as accept(2) demands.
            unsafe { memory::tell_address(address, peer, len) }?;
        }
        number(accepted)
    }))
}

unsafe extern "C" fn connect(u: Userdata, fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: packetdrill's address is as connect(2) demands.
    let connected = match unsafe { memory::address(to, len) } {
        Ok(Some(address)) => system_call(u, SystemCall::Connect { fd, address }).and_then(number),
        Ok(None) => system_call(u, SystemCall::Disconnect { fd }).and_then(number),
        Err(error) => Err(error),
    };
    memory::answer(connected)
}

fn receive(
    u: Userdata,
    fd: c_int,
    (len, control): (usize, usize),
    flags: c_int,
) -> Result<Message, Errno> {
    machine(u).call(move |program| program.receive_message(fd, &[len], control, flags))
}

/// Receives into one buffer.
///
/// # Safety
/// `to` is null or points to `len` writable bytes.
unsafe fn receive_into(
    u: Userdata,
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    flags: c_int,
) -> Result<Message, Errno> {
    // Data that cannot be written to the caller stays in the socket.
    let look = if to.is_null() { libc::MSG_PEEK } else { 0 };
    let message = receive(u, fd, (len, 0), flags | look)?;
    // SAFETY: by the caller's promise.
    unsafe { memory::write(&message.bytes, to, len) }?;
    Ok(message)
}

fn count(outcome: Result<usize, Errno>) -> ssize_t {
    memory::answer(outcome.and_then(|len| ssize_t::try_from(len).map_err(|_| Errno::OVERFLOW)))
}

unsafe extern "C" fn read(u: Userdata, fd: c_int, to: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the same promise.
    unsafe { recv(u, fd, to, len, 0) }
}

unsafe extern "C" fn readv(u: Userdata, fd: c_int, to: *const iovec, pieces: c_int) -> ssize_t {
    let header = header(to.cast_mut(), pieces);
    count(header.and_then(|mut header| {
        // SAFETY: the header has packetdrill's pieces and nothing else.
        unsafe { receive_message(u, fd, &mut header, 0) }
    }))
}

unsafe extern "C" fn recv(
    u: Userdata,
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's buffer is as recv(2) demands.
    count(unsafe { receive_into(u, fd, to, len, flags) }.map(|message| message.len))
}

unsafe extern "C" fn recvfrom(
    u: Userdata,
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    flags: c_int,
    peer: *mut sockaddr,
    peer_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: packetdrill's buffer and room are as recvfrom(2) demands.
    count(unsafe { receive_into(u, fd, to, len, flags) }.and_then(|message| {
        if let Some(from) = message.from {
            // SAFETY: as above.
            unsafe { memory::tell_address(from, peer, peer_len) }?;
        }
        Ok(message.len)
    }))
}

/// A message header around a vector, as readv(2) and writev(2) need none.
fn header(pieces: *mut iovec, count: c_int) -> Result<msghdr, Errno> {
    // SAFETY: all zero is a header without anything.
    let mut header: msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = pieces;
    header.msg_iovlen = usize::try_from(count).map_err(|_| Errno::INVAL)?;
    Ok(header)
}

/// Receives what a header describes.
///
/// # Safety
/// Its pointers are as recvmsg(2) demands.
unsafe fn receive_message(
    u: Userdata,
    fd: c_int,
    header: &mut msghdr,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: by the caller's promise.
    let pieces = unsafe { memory::pieces(header.msg_iov, header.msg_iovlen) }?;
    let len = pieces.iter().map(|piece| piece.iov_len).sum();
    let room = if header.msg_control.is_null() { 0 } else { header.msg_controllen };
    let message = receive(u, fd, (len, room), flags)?;
    // SAFETY: by the caller's promise.
    unsafe {
        memory::scatter(&message.bytes, pieces)?;
        memory::write(&message.control, header.msg_control, room)?;
        if let Some(from) = message.from {
            memory::tell_address(from, header.msg_name.cast(), &raw mut header.msg_namelen)?;
        } else {
            header.msg_namelen = 0;
        }
    }
    header.msg_controllen = message.control.len();
    header.msg_flags = message.flags;
    Ok(message.len)
}

unsafe extern "C" fn recvmsg(u: Userdata, fd: c_int, header: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: packetdrill's header is as recvmsg(2) demands.
    count(unsafe { header.as_mut() }.ok_or(Errno::FAULT).and_then(|header| {
        // SAFETY: as above.
        unsafe { receive_message(u, fd, header, flags) }
    }))
}

fn send_parts(
    u: Userdata,
    fd: c_int,
    message: Result<(Vec<Vec<u8>>, Vec<u8>), Errno>,
    flags: c_int,
    to: Result<Option<SocketAddr>, Errno>,
) -> ssize_t {
    count(message.and_then(|(parts, control)| {
        let to = to?;
        machine(u).call(move |program| program.send(fd, (&parts, &control), flags, to))
    }))
}

/// One buffer.
fn send_bytes(
    u: Userdata,
    fd: c_int,
    bytes: Result<Vec<u8>, Errno>,
    flags: c_int,
    to: Result<Option<SocketAddr>, Errno>,
) -> ssize_t {
    send_parts(u, fd, bytes.map(|bytes| (vec![bytes], Vec::new())), flags, to)
}

/// The destination; a connection needs an address.
fn destination(
    to: Result<Option<SocketAddr>, Errno>,
    len: socklen_t,
    flags: c_int,
) -> Result<Option<SocketAddr>, Errno> {
    match to {
        Ok(None) if len > 0 && flags & libc::MSG_FASTOPEN != 0 => Err(Errno::OPNOTSUPP),
        to => to,
    }
}

unsafe extern "C" fn write(u: Userdata, fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the same promise.
    unsafe { send(u, fd, from, len, 0) }
}

unsafe extern "C" fn writev(u: Userdata, fd: c_int, from: *const iovec, pieces: c_int) -> ssize_t {
    let header = header(from.cast_mut(), pieces);
    match header {
        // SAFETY: the header has packetdrill's pieces and nothing else.
        Ok(header) => unsafe { sendmsg(u, fd, &raw const header, 0) },
        Err(error) => memory::answer(Err(error)),
    }
}

unsafe extern "C" fn send(
    u: Userdata,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's buffer is as send(2) demands.
    send_bytes(u, fd, unsafe { memory::read(from, len) }, flags, Ok(None))
}

unsafe extern "C" fn sendto(
    u: Userdata,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    // SAFETY: packetdrill's buffer and address are as sendto(2) demands.
    let (bytes, to) = unsafe { (memory::read(from, len), memory::address(to, to_len)) };
    send_bytes(u, fd, bytes, flags, destination(to, to_len, flags))
}

unsafe extern "C" fn sendmsg(
    u: Userdata,
    fd: c_int,
    header: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's header is as sendmsg(2) demands.
    let Some(header) = (unsafe { header.as_ref() }) else {
        return memory::answer(Err(Errno::FAULT));
    };
    // SAFETY: as above.
    let (parts, control, to) = unsafe {
        let pieces = memory::pieces(header.msg_iov, header.msg_iovlen);
        let parts = pieces.and_then(|pieces| memory::gather(pieces));
        let control = memory::read(header.msg_control.cast_const(), header.msg_controllen);
        (parts, control, memory::address(header.msg_name.cast_const().cast(), header.msg_namelen))
    };
    send_parts(u, fd, parts.and_then(|parts| Ok((parts, control?))), flags, to)
}

unsafe extern "C" fn fcntl(u: Userdata, fd: c_int, command: c_int, argument: c_long) -> c_int {
    match command {
        libc::F_GETFL => plain(u, SystemCall::StatusFlags { fd }),
        // The argument is an int; the upper half of the register is undefined.
        libc::F_SETFL => plain(u, SystemCall::SetStatusFlags { fd, flags: argument as c_int }),
        // Descriptor flags matter only for exec, which no script calls.
        libc::F_GETFD | libc::F_SETFD => 0,
        _ => memory::answer(Err(Errno::INVAL)),
    }
}

unsafe extern "C" fn ioctl(u: Userdata, fd: c_int, request: c_ulong, out: *mut c_void) -> c_int {
    let outcome = match (request, Queue::asked_by(request)) {
        (_, Some(queue)) => system_call(u, SystemCall::Queued { fd, queue }).and_then(|answer| {
            // SAFETY: packetdrill gives room for an int.
            unsafe { memory::write(&answer.bytes, out, size_of::<c_int>()) }
        }),
        // It reads what the others write.
        (libc::FIONBIO, None) => {
            // SAFETY: packetdrill gives an int.
            let wanted = unsafe { memory::read(out, size_of::<c_int>()) };
            wanted.and_then(|wanted| {
                let on = wanted.iter().any(|byte| *byte != 0);
                let flags = if on { libc::O_NONBLOCK } else { 0 };
                system_call(u, SystemCall::SetStatusFlags { fd, flags }).map(drop)
            })
        }
        _ => Err(Errno::NOTTY),
    };
    memory::answer(outcome.map(|()| 0))
}

unsafe extern "C" fn close(u: Userdata, fd: c_int) -> c_int {
    plain(u, SystemCall::Close { fd })
}

unsafe extern "C" fn shutdown(u: Userdata, fd: c_int, how: c_int) -> c_int {
    plain(u, SystemCall::Shutdown { fd, how })
}

/// What getsockopt(2) names an option by.
#[derive(Clone, Copy)]
pub struct SocketOption {
    /// SOL_SOCKET, or a protocol.
    pub level: c_int,
    /// The option of that level.
    pub name: c_int,
}

/// getsockopt(2), also while another call blocks.
///
/// # Safety
/// The pointers are as getsockopt(2) demands.
pub unsafe fn option(
    machine: &Machine,
    fd: c_int,
    SocketOption { level, name }: SocketOption,
    value: *mut c_void,
    room: *mut socklen_t,
) -> Result<c_int, Errno> {
    if room.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: by the caller's promise.
    let len = unsafe { room.read() } as usize;
    let call = SystemCall::Option { fd, level, name, len };
    let answer = machine.ask(|program| program.call(call))?;
    // SAFETY: by the caller's promise.
    unsafe {
        memory::write(&answer.bytes, value, len)?;
        room.write(answer.bytes.len() as socklen_t);
    }
    Ok(0)
}

unsafe extern "C" fn getsockopt(
    u: Userdata,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let named = SocketOption { level, name };
    // SAFETY: packetdrill's pointers are as getsockopt(2) demands.
    memory::answer(unsafe { option(machine(u), fd, named, value, len) })
}

unsafe extern "C" fn setsockopt(
    u: Userdata,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill's pointer is as setsockopt(2) demands.
    let set = unsafe { memory::read(value, len as usize) }
        .and_then(|bytes| system_call(u, SystemCall::SetOption { fd, level, name, bytes }));
    memory::answer(set.and_then(number))
}

unsafe extern "C" fn poll(u: Userdata, fds: *mut pollfd, wanted: nfds_t, timeout: c_int) -> c_int {
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    if fds.is_null() || wanted > 1024 {
        return memory::answer(Err(Errno::FAULT));
    }
    // SAFETY: packetdrill's array has so many entries.
    let entries = unsafe { std::slice::from_raw_parts_mut(fds, wanted) };
    let asked = entries.iter().map(|entry| (entry.fd, entry.events)).collect();
    let polled = system_call(u, SystemCall::Poll { fds: asked, timeout_ms: timeout });
    memory::answer(polled.and_then(|answer| {
        for (entry, revents) in entries.iter_mut().zip(&answer.revents) {
            entry.revents = *revents;
        }
        number(answer)
    }))
}

unsafe extern "C" fn netdev_send(u: Userdata, packet: *const c_void, len: size_t) -> c_int {
    // SAFETY: packetdrill's packet has so many bytes.
    let bytes = unsafe { memory::read(packet, len) };
    memory::answer(bytes.and_then(|bytes| machine(u).arrive(&bytes)).map(|()| 0))
}

unsafe extern "C" fn netdev_receive(
    u: Userdata,
    out: *mut c_void,
    len: *mut size_t,
    time_us: *mut c_longlong,
) -> c_int {
    // For packetdrill an empty packet ends the script; -1 makes it retry.
    let (time_ns, packet) = machine(u).next_packet().unwrap_or_default();
    // SAFETY: packetdrill's buffer has the room that it says, and the other two are its own.
    let outcome = unsafe {
        let room = len.read();
        len.write(packet.len().min(room));
        time_us.write((time_ns / 1000).cast_signed());
        memory::write(&packet, out, room)
    };
    memory::answer(outcome.map(|()| 0))
}

unsafe extern "C" fn usleep(u: Userdata, microseconds: c_uint) -> c_int {
    machine(u).sleep(u64::from(microseconds) * 1000);
    0
}

unsafe extern "C" fn gettimeofday(u: Userdata, out: *mut timeval, _: *mut c_void) -> c_int {
    let now = machine(u).look_at_clock();
    let time = timeval {
        tv_sec: (now / 1_000_000_000).cast_signed(),
        tv_usec: (now % 1_000_000_000 / 1000).cast_signed(),
    };
    // SAFETY: packetdrill gives room for one.
    unsafe { out.write(time) };
    0
}

unsafe extern "C" fn epoll_create(u: Userdata, _: c_int) -> c_int {
    memory::answer(machine(u).call(|program| program.epoll_create()))
}

unsafe extern "C" fn epoll_ctl(
    u: Userdata,
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: packetdrill's event is one, or null.
    let wanted = unsafe { event.as_ref() };
    let event = wanted.map_or(EpollEvent::default(), |event| EpollEvent {
        events: event.events,
        data: event.u64,
    });
    let done = machine(u).call(move |program| program.epoll_control(epoll, operation, fd, event));
    memory::answer(done.map(|()| 0))
}

unsafe extern "C" fn epoll_wait(
    u: Userdata,
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
) -> c_int {
    let Some(room) = usize::try_from(room).ok().filter(|room| (1..=1024).contains(room)) else {
        return memory::answer(Err(Errno::INVAL));
    };
    let waited = machine(u).call(move |program| program.epoll_wait(epoll, room, timeout));
    memory::answer(waited.map(|ready| {
        for (at, event) in ready.iter().enumerate() {
            let event = epoll_event { events: event.events, u64: event.data };
            // SAFETY: packetdrill has room for so many, and there are at most so many.
            unsafe { events.add(at).write_unaligned(event) };
        }
        c_int::try_from(ready.len()).unwrap_or(c_int::MAX)
    }))
}

/// Whether a number is a socket of the machine.
pub fn is_ours(machine: &Machine, fd: c_int) -> bool {
    let asked = machine.ask(|program| program.call(SystemCall::StatusFlags { fd }));
    asked != Err(Errno::BADF)
}

/// A kernel pipe.
unsafe extern "C" fn pipe(_: Userdata, ends: *mut c_int) -> c_int {
    // SAFETY: packetdrill gives room for two.
    unsafe { libc::pipe(ends) }
}

/// From a socket to a pipe, or from a pipe to a socket.
unsafe extern "C" fn splice(
    u: Userdata,
    from: c_int,
    _: *mut loff_t,
    to: c_int,
    _: *mut loff_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    let mut bytes = vec![0_u8; len.min(PIPE_BYTES)];
    if is_ours(machine(u), from) {
        let at_mark = system_call(u, SystemCall::AtMark { fd: from });
        if at_mark.is_ok_and(|answer| answer.bytes.first() == Some(&1)) {
            // The urgent byte is not spliced.
            return 0;
        }
        let wait = if flags & libc::SPLICE_F_NONBLOCK == 0 { 0 } else { libc::MSG_DONTWAIT };
        return count(receive(u, from, (bytes.len(), 0), wait).and_then(|message| {
            let (start, len) = (message.bytes.as_ptr(), message.bytes.len());
            // SAFETY: the bytes are ours, and so many.
            let written = unsafe { libc::write(to, start.cast(), len) };
            usize::try_from(written).map_err(|_| Errno::IO)
        }));
    }
    // SAFETY: the buffer is ours, and has so much room.
    let got = unsafe { libc::read(from, bytes.as_mut_ptr().cast(), bytes.len()) };
    let Ok(got) = usize::try_from(got) else { return -1 };
    bytes.truncate(got);
    let more = if flags & libc::SPLICE_F_MORE == 0 { 0 } else { libc::MSG_MORE };
    send_bytes(u, to, Ok(bytes), more, Ok(None))
}

/// sendfile(2) to a socket of the machine.
///
/// # Safety
/// `offset` is null or points to one.
pub unsafe fn send_file(
    machine: &Machine,
    to: c_int,
    from: c_int,
    offset: *mut libc::off_t,
    len: size_t,
) -> ssize_t {
    let mut bytes = vec![0_u8; len.min(PIPE_BYTES)];
    // SAFETY: the buffer is ours and has so much room; the offset is as sendfile(2) demands.
    let got = unsafe {
        match offset.as_mut() {
            None => libc::read(from, bytes.as_mut_ptr().cast(), bytes.len()),
            Some(at) => {
                let got = libc::pread(from, bytes.as_mut_ptr().cast(), bytes.len(), *at);
                *at += got.max(0) as libc::off_t;
                got
            }
        }
    };
    let Ok(got) = usize::try_from(got) else { return -1 };
    bytes.truncate(got);
    let call =
        SystemCall::Send { fd: to, parts: vec![bytes], control: Vec::new(), flags: 0, to: None };
    let sent = machine.call(move |program| program.call(call));
    count(sent.map(|answer| answer.value.unsigned_abs() as usize))
}
