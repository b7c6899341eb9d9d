//! Socket addresses between C's memory and Rust's types.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use client::sockets::Errno;
use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::memory;

/// The family of an address; `None` if there is no address, or it is too short for one.
pub fn family(addr: *const sockaddr, len: socklen_t) -> Option<i32> {
    let is_whole = !addr.is_null() && len as usize >= size_of::<libc::sa_family_t>();
    // SAFETY: any bytes are a family, which comes first.
    let family = is_whole.then(|| unsafe { memory::load(addr.cast::<libc::sa_family_t>()) });
    family?.ok().map(i32::from)
}

/// Reads an address; `None` for a family other than IPv4 and IPv6 (AF_UNSPEC among them).
pub fn read(addr: *const sockaddr, len: socklen_t) -> Result<Option<SocketAddr>, Errno> {
    let len = len as usize;
    // The kernel copies all of it first, unless it is longer than any address.
    if !addr.is_null()
        && len <= size_of::<libc::sockaddr_storage>()
        && !memory::is_readable(addr.cast::<u8>(), len)
    {
        return Err(Errno::FAULT);
    }
    let Some(family) = family(addr, len as socklen_t) else { return Ok(None) };
    match family {
        libc::AF_INET if len >= size_of::<sockaddr_in>() => {
            // SAFETY: enough readable bytes; any bit pattern is a sockaddr_in.
            let v4 = unsafe { std::ptr::read_unaligned(addr.cast::<sockaddr_in>()) };
            Ok(Some(SocketAddr::V4(SocketAddrV4::new(
                Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)),
                u16::from_be(v4.sin_port),
            ))))
        }
        // RFC 2133's shorter sockaddr_in6 has no scope and is still accepted by Linux (24 bytes).
        libc::AF_INET6 if len >= 24 => {
            // SAFETY: all zero is a valid sockaddr_in6.
            let mut v6: sockaddr_in6 = unsafe { std::mem::zeroed() };
            let count = len.min(size_of::<sockaddr_in6>());
            // SAFETY: `count` bytes are readable there and fit here.
            unsafe {
                std::ptr::copy_nonoverlapping(addr.cast::<u8>(), (&raw mut v6).cast::<u8>(), count);
            }
            Ok(Some(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(v6.sin6_addr.s6_addr),
                u16::from_be(v6.sin6_port),
                u32::from_be(v6.sin6_flowinfo),
                v6.sin6_scope_id,
            ))))
        }
        libc::AF_INET | libc::AF_INET6 => Err(Errno::INVAL),
        _ => Ok(None),
    }
}

/// An address in C's layout.
#[derive(Clone, Copy)]
#[repr(C)]
pub union Packed {
    v4: sockaddr_in,
    v6: sockaddr_in6,
}

impl Packed {
    /// Converts; returns it with its length.
    pub fn new(addr: SocketAddr) -> (Self, socklen_t) {
        match addr {
            SocketAddr::V4(v4) => {
                let packed = sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                (Packed { v4: packed }, size_of::<sockaddr_in>() as socklen_t)
            }
            SocketAddr::V6(v6) => {
                let packed = sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo().to_be(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                (Packed { v6: packed }, size_of::<sockaddr_in6>() as socklen_t)
            }
        }
    }

    /// For a C function.
    pub fn as_ptr(&self) -> *const sockaddr {
        (&raw const *self).cast()
    }
}

/// Writes an address to the program, truncated to its room, and the full length; nothing if the
/// program does not request it.
pub fn write(value: SocketAddr, addr: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
    if addr.is_null() { Ok(()) } else { write_always(value, addr, len) }
}

/// The same for calls in which the program always requests it (getsockname).
pub fn write_always(
    value: SocketAddr,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    // SAFETY: any bytes are a length.
    let asked = unsafe { memory::load(len) }?;
    if asked.cast_signed() < 0 {
        return Err(Errno::INVAL);
    }
    let (packed, full) = Packed::new(value);
    let room = asked.min(full) as usize;
    if !memory::is_writable(addr.cast::<u8>(), room) {
        return Err(Errno::FAULT);
    }
    // SAFETY: so many bytes are writable there, and no more than an address has.
    unsafe { std::ptr::copy_nonoverlapping(packed.as_ptr().cast::<u8>(), addr.cast::<u8>(), room) };
    memory::store(len, full)
}
