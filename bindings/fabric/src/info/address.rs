//! The addresses of an answer: names and services resolved, sources chosen.

use std::ffi::{CStr, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

use client::Session;

use super::hints::Hints;
use crate::abi::constants::*;

/// The endpoint's address and that of the first peer, as far as the program gives them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    pub source: Option<SocketAddr>,
    pub destination: Option<SocketAddr>,
}

/// What a program names an endpoint by: the arguments of `fi_getinfo`.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub node: Option<&'a CStr>,
    pub service: Option<&'a CStr>,
    pub flags: u64,
}

impl Ends {
    /// The format of the addresses.
    pub fn format(&self) -> u32 {
        match self.source.or(self.destination) {
            Some(SocketAddr::V6(_)) => FI_SOCKADDR_IN6,
            _ => FI_SOCKADDR_IN,
        }
    }

    /// Resolves the program's names.
    ///
    /// # Errors
    /// A sentence if a name is unknown, or an address is not the engine's.
    pub fn find(
        named: Named<'_>,
        hints: &Hints,
        session: &Session,
        own: &[IpAddr],
    ) -> Result<Self, String> {
        let Named { node, service, flags } = named;
        let named = if node.is_some() || service.is_some() {
            Some(resolve(node, service, flags, hints.addr_format)?)
        } else {
            None
        };
        let is_source = flags & FI_SOURCE != 0;
        let destination = if is_source { hints.destination } else { named.or(hints.destination) };
        // A service without a name is a server's address, as in getaddrinfo(3).
        let (destination, listens_at) = match destination {
            Some(address) if address.ip().is_unspecified() => (None, Some(address)),
            other => (other, None),
        };
        let asked = if is_source { named } else { listens_at.or(hints.source) };
        let family = destination.map(|address| address.is_ipv6()).or(match hints.addr_format {
            FI_SOCKADDR_IN => Some(false),
            FI_SOCKADDR_IN6 => Some(true),
            _ => None,
        });
        let source = match asked {
            Some(address) if !address.ip().is_unspecified() => {
                if !own.contains(&address.ip().to_canonical()) {
                    return Err(format!("{} is not an address of the engine", address.ip()));
                }
                address
            }
            _ => {
                let port = asked.map_or(0, |address| address.port());
                let towards = destination.and_then(|to| session.source_for(to.ip()));
                let mut fitting = own
                    .iter()
                    .copied()
                    .filter(|own| family.is_none_or(|is_v6| own.is_ipv6() == is_v6));
                let first_v4 = own.iter().copied().find(|own| own.is_ipv4());
                let first = first_v4
                    .filter(|_| family != Some(true))
                    .or_else(|| fitting.next())
                    .ok_or("the engine has no address of that family")?;
                SocketAddr::new(towards.unwrap_or(first), port)
            }
        };
        if let Some(to) = destination
            && session.way_to(to.ip()).is_none()
        {
            return Err(format!("the engine has no route to {}", to.ip()));
        }
        Ok(Self { source: Some(source), destination })
    }
}

/// The first address of a name and service.
fn resolve(
    node: Option<&CStr>,
    service: Option<&CStr>,
    flags: u64,
    format: u32,
) -> Result<SocketAddr, String> {
    let family = match format {
        FI_SOCKADDR_IN => libc::AF_INET,
        FI_SOCKADDR_IN6 => libc::AF_INET6,
        _ if node.is_none() => libc::AF_INET,
        _ => libc::AF_UNSPEC,
    };
    let pointer = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    let mut found = ptr::null_mut();
    // SAFETY: an addrinfo may be zero; the strings and the place for the result live.
    let (status, address) = unsafe {
        let mut wanted: libc::addrinfo = std::mem::zeroed();
        wanted.ai_family = family;
        wanted.ai_socktype = libc::SOCK_DGRAM;
        wanted.ai_flags = if node.is_none() { libc::AI_PASSIVE } else { 0 };
        if flags & FI_NUMERICHOST != 0 {
            wanted.ai_flags |= libc::AI_NUMERICHOST;
        }
        let status = libc::getaddrinfo(pointer(node), pointer(service), &wanted, &mut found);
        let first = if status == 0 { found.as_ref() } else { None };
        let address = first.and_then(|one| from_raw(one.ai_addr.cast(), one.ai_addrlen as usize));
        if !found.is_null() {
            libc::freeaddrinfo(found);
        }
        (status, address)
    };
    address.ok_or_else(|| {
        let name = node.or(service).map_or("".into(), CStr::to_string_lossy);
        format!("{name} cannot be resolved (getaddrinfo: {status})")
    })
}

/// The address of a peer named by a program; `None` if it cannot be resolved.
pub fn resolve_for_peer(node: &CStr, service: &CStr, is_v6: bool) -> Option<SocketAddr> {
    let format = if is_v6 { FI_SOCKADDR_IN6 } else { FI_SOCKADDR_IN };
    resolve(Some(node), Some(service), 0, format).ok()
}

/// The address in a program's `struct sockaddr_in` or `sockaddr_in6`.
///
/// # Safety
/// `len` bytes at `raw` are readable, or `raw` is null.
pub unsafe fn from_raw(raw: *const c_void, len: usize) -> Option<SocketAddr> {
    if raw.is_null() || len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the caller's promise, with the lengths checked.
    unsafe {
        match i32::from(raw.cast::<libc::sa_family_t>().read_unaligned()) {
            libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
                let raw = raw.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
            }
            libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
                let raw = raw.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
                let port = u16::from_be(raw.sin6_port);
                Some(SocketAddrV6::new(ip, port, 0, raw.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Bytes of an address of a family.
pub fn size_of_family(is_v6: bool) -> usize {
    if is_v6 { size_of::<libc::sockaddr_in6>() } else { size_of::<libc::sockaddr_in>() }
}

/// An address as a `struct sockaddr_in` or `sockaddr_in6`, and its length.
pub fn to_raw(address: SocketAddr) -> ([u8; size_of::<libc::sockaddr_in6>()], usize) {
    let mut raw = [0; size_of::<libc::sockaddr_in6>()];
    raw[2..4].copy_from_slice(&address.port().to_be_bytes());
    let family = match address {
        SocketAddr::V4(v4) => {
            raw[4..8].copy_from_slice(&v4.ip().octets());
            libc::AF_INET
        }
        SocketAddr::V6(v6) => {
            raw[8..24].copy_from_slice(&v6.ip().octets());
            raw[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            libc::AF_INET6
        }
    };
    raw[..2].copy_from_slice(&(family as libc::sa_family_t).to_ne_bytes());
    (raw, size_of_family(address.is_ipv6()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_through_c() {
        for text in ["10.1.2.3:4567", "[2001:db8::1]:80"] {
            let address: SocketAddr = text.parse().expect("an address");
            let (raw, len) = to_raw(address);
            // SAFETY: `len` bytes of `raw` are readable.
            assert_eq!(unsafe { from_raw(raw.as_ptr().cast(), len) }, Some(address));
            // SAFETY: as above.
            assert_eq!(unsafe { from_raw(raw.as_ptr().cast(), len - 1) }, None);
        }
    }
}
