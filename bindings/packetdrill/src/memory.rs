//! C's memory: errno, buffers and addresses.

use std::ffi::{c_int, c_void};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use client::sockets::Errno;
use libc::{iovec, sockaddr, socklen_t};
use script::address_bytes;

/// The return value of a C function: the value, or -1 and errno.
pub fn answer<T: From<i8>>(outcome: Result<T, Errno>) -> T {
    match outcome {
        Ok(value) => value,
        Err(error) => {
            // SAFETY: the C library returns a valid pointer for the calling thread.
            unsafe { *libc::__errno_location() = error.raw_os_error() };
            T::from(-1)
        }
    }
}

/// A copy of the memory at `from`; EFAULT for null, as from the kernel.
///
/// # Safety
/// `from` is null or points to `len` readable bytes.
pub unsafe fn read(from: *const c_void, len: usize) -> Result<Vec<u8>, Errno> {
    if len == 0 {
        return Ok(Vec::new());
    }
    if from.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: by the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) }.to_vec())
}

/// Copies bytes to `to`, as many as there is room for.
///
/// # Safety
/// `to` is null or points to `room` writable bytes.
pub unsafe fn write(bytes: &[u8], to: *mut c_void, room: usize) -> Result<(), Errno> {
    let len = bytes.len().min(room);
    if len == 0 {
        return Ok(());
    }
    if to.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: by the caller's promise; `bytes` is memory of ours.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), len) };
    Ok(())
}

/// The pieces of a vector; EINVAL for an invalid number.
///
/// # Safety
/// `pieces` points to `count` of them.
pub unsafe fn pieces<'a>(pieces: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    if count == 0 {
        return Ok(&[]);
    }
    if pieces.is_null() {
        return Err(Errno::FAULT);
    }
    if count > 1024 {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pieces, count) })
}

/// The bytes of each piece of a vector.
///
/// # Safety
/// Each piece is null or readable.
pub unsafe fn gather(pieces: &[iovec]) -> Result<Vec<Vec<u8>>, Errno> {
    // SAFETY: by the caller's promise.
    pieces.iter().map(|piece| unsafe { read(piece.iov_base, piece.iov_len) }).collect()
}

/// Spreads bytes over a vector.
///
/// # Safety
/// Each piece is null or writable.
pub unsafe fn scatter(mut bytes: &[u8], pieces: &[iovec]) -> Result<(), Errno> {
    for piece in pieces {
        let (first, rest) = bytes.split_at(piece.iov_len.min(bytes.len()));
        // SAFETY: by the caller's promise.
        unsafe { write(first, piece.iov_base, piece.iov_len) }?;
        bytes = rest;
    }
    Ok(())
}

/// An address in C's form; `None` for AF_UNSPEC.
pub fn address_from(bytes: &[u8]) -> Result<Option<SocketAddr>, Errno> {
    let (family, rest) = bytes.split_first_chunk().ok_or(Errno::INVAL)?;
    let family = c_int::from(u16::from_ne_bytes(*family));
    if family == libc::AF_UNSPEC {
        return Ok(None);
    }
    let (port, rest) = rest.split_first_chunk().ok_or(Errno::INVAL)?;
    let port = u16::from_be_bytes(*port);
    if family == libc::AF_INET {
        let ip: [u8; 4] = *rest.first_chunk().ok_or(Errno::INVAL)?;
        return Ok(Some(SocketAddr::from((ip, port))));
    }
    if family != libc::AF_INET6 {
        return Err(Errno::AFNOSUPPORT);
    }
    let (flow, rest) = rest.split_first_chunk().ok_or(Errno::INVAL)?;
    let (ip, rest) = rest.split_first_chunk::<16>().ok_or(Errno::INVAL)?;
    let scope = rest.first_chunk().copied().unwrap_or_default();
    let (flow, scope) = (u32::from_be_bytes(*flow), u32::from_ne_bytes(scope));
    Ok(Some(SocketAddrV6::new(Ipv6Addr::from(*ip), port, flow, scope).into()))
}

/// An address of the caller; `None` for a null pointer or AF_UNSPEC.
///
/// # Safety
/// `address` is null or points to `len` readable bytes.
pub unsafe fn address(
    address: *const sockaddr,
    len: socklen_t,
) -> Result<Option<SocketAddr>, Errno> {
    if address.is_null() {
        return Ok(None);
    }
    // SAFETY: by the caller's promise.
    address_from(&unsafe { read(address.cast(), len as usize) }?)
}

/// Writes an address to the caller, truncated to its room, and its full length.
///
/// # Safety
/// `len` points to the room at `to`; either may be null.
pub unsafe fn tell_address(
    address: SocketAddr,
    to: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    if to.is_null() || len.is_null() {
        return Ok(());
    }
    let bytes = address_bytes(address);
    // SAFETY: by the caller's promise.
    unsafe {
        write(&bytes, to.cast(), len.read() as usize)?;
        len.write(bytes.len() as socklen_t);
    }
    Ok(())
}
