//! Keyed choices: initial sequence numbers, ephemeral ports, timestamp offsets.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use crate::api::Instant;

/// Secret keys; each purpose has one of its own, so that none tells about another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TcpKeys {
    isn: [u64; 2],
    port: [u64; 2],
    timestamp: [u64; 2],
}

impl TcpKeys {
    /// Derives the keys from one secret.
    pub fn new(secret: [u8; 32]) -> Self {
        let derive = |purpose: u8| {
            let half = |part: u8| {
                let mut hasher = SipHasher13::new();
                (secret, purpose, part).hash(&mut hasher);
                hasher.finish()
            };
            [half(0), half(1)]
        };
        Self { isn: derive(1), port: derive(2), timestamp: derive(3) }
    }

    /// The initial sequence number of a connection.
    //= https://www.rfc-editor.org/rfc/rfc6528#section-3
    //# ISN = M + F(localip, localport, remoteip, remoteport, secretkey)
    pub fn isn(&self, now: Instant, local: SocketAddr, remote: SocketAddr) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.isn[0], self.isn[1]);
        local.hash(&mut hasher);
        remote.hash(&mut hasher);
        // Linux's clock: 64 ns a tick, once around in 274 s.
        (hasher.finish() as u32).wrapping_add((now.0 >> 6) as u32)
    }

    /// Where a connection's timestamp clock starts: the same for a pair of addresses, so that
    /// successive connections between them do not go back in time (RFC 7323 section 5.4).
    pub fn timestamp_offset(&self, local: IpAddr, remote: IpAddr) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.timestamp[0], self.timestamp[1]);
        local.hash(&mut hasher);
        remote.hash(&mut hasher);
        hasher.finish() as u32
    }

    /// Where the search for an ephemeral port starts: algorithm 3 of RFC 6056 (a keyed hash of
    /// the destination), to which the caller adds its counter.
    pub fn port_offset(&self, local: IpAddr, remote: SocketAddr) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.port[0], self.port[1]);
        local.hash(&mut hasher);
        remote.hash(&mut hasher);
        hasher.finish() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    //= https://www.rfc-editor.org/rfc/rfc6528#section-3
    //= type=test
    //# ISN = M + F(localip, localport, remoteip, remoteport, secretkey)
    #[test]
    fn isns_of_one_connection_advance_with_time_and_of_others_are_unrelated() {
        let keys = TcpKeys::new([7; 32]);
        let first = keys.isn(Instant(0), address(1), address(2));
        let later = keys.isn(Instant(64_000), address(1), address(2));
        assert_eq!(later.wrapping_sub(first), 1000);
        let other = keys.isn(Instant(0), address(1), address(3));
        assert_ne!(other.wrapping_sub(first) & 0xffff_0000, 0);
        assert_ne!(TcpKeys::new([8; 32]).isn(Instant(0), address(1), address(2)), first);
    }
}
