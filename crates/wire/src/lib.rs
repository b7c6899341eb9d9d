//! Bytes to headers and back. `no_std`, no `unsafe`, no allocation.
//!
//! Every protocol has a module with plain structs in host order, a `parse` that works by the
//! shape of the slice, and an `emit` that writes to a slice. Nothing here can panic, whatever
//! the bytes are: that is what the fuzz targets and property tests prove.
//!
//! What it does not do: keep state, decide what to answer, verify layer-4 checksums by itself
//! (the port may have done it; see [`checksum`]).
//!
//! Start reading at [`ethernet`], then [`tcp`]; [`text`] shows a frame as one line.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod groups;
pub mod icmp;
pub mod icmpv6;
pub mod igmp;
pub mod ipv4;
pub mod ipv6;
pub mod message;
pub mod mld;
pub mod ndp;
pub mod tcp;
pub mod text;
pub mod udp;
pub mod vnet;

pub use ethernet::MacAddr;

/// Why bytes are not the header that they should be. Each is counted by whoever parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The bytes end before the header does.
    Short,
    /// The version field is another protocol's.
    Version,
    /// A length field contradicts the header's own size or the bytes that are there.
    Length,
    /// The checksum over the header (or the ICMP message) is wrong.
    Checksum,
    /// A field has a value that this protocol does not know, and the rest cannot be read
    /// without it (hardware types of ARP).
    Unsupported,
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Malformed::Short => "the bytes end before the header does",
            Malformed::Version => "the version field is another protocol's",
            Malformed::Length => "a length field contradicts the bytes",
            Malformed::Checksum => "the checksum is wrong",
            Malformed::Unsupported => "a field has a value that cannot be read further",
        })
    }
}

impl core::error::Error for Malformed {}

/// The slice given to an `emit` is too small for the header; nothing useful was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl core::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the buffer is too small for the header")
    }
}

impl core::error::Error for NoRoom {}

/// Writes `bytes` to the start of `out`, and gives what is left of it.
#[inline]
fn put<'a, const N: usize>(out: &'a mut [u8], bytes: &[u8; N]) -> Result<&'a mut [u8], NoRoom> {
    let (head, rest) = out.split_first_chunk_mut::<N>().ok_or(NoRoom)?;
    *head = *bytes;
    Ok(rest)
}

/// The same for a slice.
#[inline]
fn put_slice<'a>(out: &'a mut [u8], bytes: &[u8]) -> Result<&'a mut [u8], NoRoom> {
    let (head, rest) = out.split_at_mut_checked(bytes.len()).ok_or(NoRoom)?;
    head.copy_from_slice(bytes);
    Ok(rest)
}
