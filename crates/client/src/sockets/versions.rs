//! Which versions of IP a socket of IPv6 speaks. The kernel answers by the address that the socket has: a
//! mapped one keeps it from IPv6, any other from IPv4.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};

use super::Errno;

const BOTH: u8 = 0;
/// Bound to a mapped address.
const V4: u8 = 1;
/// Bound to an address of IPv6.
const V6: u8 = 2;
/// Not bound to an address, and connected to a mapped one.
const V4_WHILE_CONNECTED: u8 = 3;

/// The versions of one socket. A socket of IPv4 never restricts them here.
#[derive(Debug, Default)]
pub(super) struct Versions(AtomicU8);

impl Versions {
    /// bind(2) gave the socket this address, as the program wrote it.
    pub fn on_bind(&self, address: IpAddr) {
        match address {
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => self.0.store(V4, Ordering::Relaxed),
            IpAddr::V6(v6) if !v6.is_unspecified() => self.0.store(V6, Ordering::Relaxed),
            _ => (),
        }
    }

    /// A UDP socket of IPv6 was connected to this address without its mapped form.
    pub fn on_connect(&self, to: IpAddr) {
        if to.is_ipv4() && self.0.load(Ordering::Relaxed) == BOTH {
            self.0.store(V4_WHILE_CONNECTED, Ordering::Relaxed);
        }
    }

    /// As another socket's.
    pub fn follow(&self, other: &Self) {
        self.0.store(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// It was disconnected.
    pub fn on_disconnect(&self) {
        if self.0.load(Ordering::Relaxed) == V4_WHILE_CONNECTED {
            self.0.store(BOTH, Ordering::Relaxed);
        }
    }

    /// What the kernel says of a destination (without its mapped form) that the socket does not speak to.
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
