//! IP versions usable on an IPv6 socket. The kernel decides by the socket's address: an IPv4-mapped
//! one excludes IPv6, any other excludes IPv4.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};

use super::Errno;

const BOTH: u8 = 0;
/// Bound to a mapped address.
const V4: u8 = 1;
/// Bound to an IPv6 address.
const V6: u8 = 2;
/// Not bound to an address, and connected to an IPv4-mapped one.
const V4_WHILE_CONNECTED: u8 = 3;

/// The versions of one socket. An IPv4 socket is never restricted here.
#[derive(Debug, Default)]
pub(super) struct Versions(AtomicU8);

impl Versions {
    /// bind(2) gave the socket this address, in the program's form.
    pub fn on_bind(&self, address: IpAddr) {
        match address {
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => self.0.store(V4, Ordering::Relaxed),
            IpAddr::V6(v6) if !v6.is_unspecified() => self.0.store(V6, Ordering::Relaxed),
            _ => (),
        }
    }

    /// An IPv6 UDP socket was connected to this address, given without its IPv4-mapped form.
    pub fn on_connect(&self, to: IpAddr) {
        if to.is_ipv4() && self.0.load(Ordering::Relaxed) == BOTH {
            self.0.store(V4_WHILE_CONNECTED, Ordering::Relaxed);
        }
    }

    /// Copies those of another socket.
    pub fn follow(&self, other: &Self) {
        self.0.store(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// It was disconnected.
    pub fn on_disconnect(&self) {
        if self.0.load(Ordering::Relaxed) == V4_WHILE_CONNECTED {
            self.0.store(BOTH, Ordering::Relaxed);
        }
    }

    /// The kernel's error for a destination (without its IPv4-mapped form) that the socket cannot
    /// use.
    #[inline]
    pub fn refusal(&self, to: IpAddr) -> Option<Errno> {
        match (self.0.load(Ordering::Relaxed), to) {
            (V4 | V4_WHILE_CONNECTED, IpAddr::V6(_)) => Some(Errno::AFNOSUPPORT),
            (V6, IpAddr::V4(_)) => Some(Errno::NETUNREACH),
            _ => None,
        }
    }
}

impl Clone for Versions {
    fn clone(&self) -> Self {
        let copy = Self::default();
        copy.follow(self);
        copy
    }
}
