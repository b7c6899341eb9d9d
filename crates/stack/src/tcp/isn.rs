//! Keyed choices: initial sequence numbers, ephemeral ports, timestamp offsets.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use super::cookies::Ends;
use super::fast_open::FastOpenKeys;
use crate::api::Instant;
use crate::stack::Keys;

/// Secret keys; each purpose has one of its own, so that none tells about another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TcpKeys {
    isn: [u64; 2],
    port: [u64; 2],
    timestamp: [u64; 2],
    cookies: [[u64; 2]; 2],
    /// Fast Open's, of listeners that have none of their own.
    pub fast_open: FastOpenKeys,
}

impl TcpKeys {
    /// The stack's keys in the form in which they are used.
    pub fn new(keys: &Keys) -> Self {
        let timestamp = halves(keys.other);
        Self {
            isn: halves(keys.isn),
            port: halves(keys.port),
            timestamp,
            fast_open: FastOpenKeys {
                primary: bytes(derived(timestamp, b"fastopen")),
                backup: None,
            },
            cookies: [derived(timestamp, b"cookie 0"), derived(timestamp, b"cookie 1")],
        }
    }

    /// The initial sequence number of a connection.
    //= https://www.rfc-editor.org/rfc/rfc6528#section-3
    //# ISN = M + F(localip, localport, remoteip, remoteport, secretkey)
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //# A TCP implementation MUST use the above type of "clock" for clock-driven selection of
    //# initial sequence numbers (MUST-8), and SHOULD generate its initial sequence numbers with
    //# the expression:
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //# F() MUST NOT be computable from the outside (MUST-9), or an attacker could still guess at
    //# sequence numbers from the ISN used for some other connection.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //# F() is a pseudorandom function (PRF) of the connection's identifying parameters ("localip,
    //# localport, remoteip, remoteport") and a secret key ("secretkey")
    //= https://www.rfc-editor.org/rfc/rfc6528#section-3
    //# TCP SHOULD generate its Initial Sequence Numbers with the expression:
    //= https://www.rfc-editor.org/rfc/rfc6528#section-3
    //# F() MUST NOT be computable from the outside, or an attacker could still guess at sequence
    //# numbers from the ISN used for some other connection.
    pub fn isn(&self, now: Instant, local: SocketAddr, remote: SocketAddr) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.isn[0], self.isn[1]);
        local.hash(&mut hasher);
        remote.hash(&mut hasher);
        // Linux's clock: 64 ns a tick, once around in 274 s.
        (hasher.finish() as u32).wrapping_add((now.0 >> 6) as u32)
    }

    /// Where a connection's timestamp clock starts: the same for a pair of addresses, so that
    /// successive connections between them do not go back in time (RFC 7323 section 5.4).
    //= https://www.rfc-editor.org/rfc/rfc7323#section-7
    //# It is therefore RECOMMENDED to generate a random, per-connection offset to be used with the
    //# clock source when generating the Timestamps option value (see Section 5.4).
    //= https://www.rfc-editor.org/rfc/rfc7323#section-7.1
    //# It is therefore RECOMMENDED to generate a random, per-connection offset to be used with the
    //# clock source when generating the Timestamps option value (see Section 5.4).
    pub fn timestamp_offset(&self, local: IpAddr, remote: IpAddr) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.timestamp[0], self.timestamp[1]);
        local.hash(&mut hasher);
        remote.hash(&mut hasher);
        hasher.finish() as u32
    }

    /// The hash of a SYN cookie that is the same for all connections of two ends.
    pub fn cookie_hash_of_ends(&self, ends: Ends) -> u32 {
        let [key, _] = self.cookies;
        cookie_hash(key, ends, None)
    }

    /// The hash of a SYN cookie that answers a SYN with the number `irs`, in the period `count`.
    pub fn cookie_hash_of_syn(&self, ends: Ends, irs: u32, count: u32) -> u32 {
        let [_, key] = self.cookies;
        cookie_hash(key, ends, Some((irs, count)))
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

fn cookie_hash([a, b]: [u64; 2], Ends { local, remote }: Ends, of: Option<(u32, u32)>) -> u32 {
    let mut hasher = SipHasher13::new_with_keys(a, b);
    local.hash(&mut hasher);
    remote.hash(&mut hasher);
    of.hash(&mut hasher);
    hasher.finish() as u32
}

/// A key for another purpose, which tells nothing about the one that it is made from.
fn derived([a, b]: [u64; 2], purpose: &[u8; 8]) -> [u64; 2] {
    [0u8, 1].map(|half| {
        let mut hasher = SipHasher13::new_with_keys(a, b);
        (purpose, half).hash(&mut hasher);
        hasher.finish()
    })
}

fn bytes([low, high]: [u64; 2]) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

/// A 128-bit key as SipHash takes it.
pub fn halves(key: [u8; 16]) -> [u64; 2] {
    let bits = u128::from_le_bytes(key);
    [bits as u64, (bits >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(secret: u8) -> TcpKeys {
        let key = [secret; 16];
        let ports = (49152, 65535);
        TcpKeys::new(&Keys { isn: key, port: key, flow: key, other: key, ephemeral_ports: ports })
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    //= https://www.rfc-editor.org/rfc/rfc6528#section-3
    //= type=test
    //# ISN = M + F(localip, localport, remoteip, remoteport, secretkey)
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //= type=test
    //# F() is a pseudorandom function (PRF) of the connection's identifying parameters ("localip,
    //# localport, remoteip, remoteport") and a secret key ("secretkey")
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //= type=test
    //# A TCP implementation MUST use the above type of "clock" for clock-driven selection of
    //# initial sequence numbers (MUST-8)
    //= https://www.rfc-editor.org/rfc/rfc6528#section-3
    //= type=test
    //# TCP SHOULD generate its Initial Sequence Numbers with the expression:
    #[test]
    fn isns_of_one_connection_advance_with_time_and_of_others_are_unrelated() {
        let seven = keys(7);
        let first = seven.isn(Instant(0), address(1), address(2));
        let later = seven.isn(Instant(64_000), address(1), address(2));
        assert_eq!(later.wrapping_sub(first), 1000);
        let other = seven.isn(Instant(0), address(1), address(3));
        assert_ne!(other.wrapping_sub(first) & 0xffff_0000, 0);
        assert_ne!(keys(8).isn(Instant(0), address(1), address(2)), first);
    }

    //= https://www.rfc-editor.org/rfc/rfc7323#section-7
    //= type=test
    //# It is therefore RECOMMENDED to generate a random, per-connection offset to be used with the
    //# clock source when generating the Timestamps option value (see Section 5.4).
    //= https://www.rfc-editor.org/rfc/rfc7323#section-7.1
    //= type=test
    //# It is therefore RECOMMENDED to generate a random, per-connection offset to be used with the
    //# clock source when generating the Timestamps option value (see Section 5.4).
    #[test]
    fn timestamp_clocks_start_anywhere() {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        let starts: Vec<u32> = (2..6).map(|at| keys(7).timestamp_offset(ip(1), ip(at))).collect();
        for (at, start) in starts.iter().enumerate() {
            let far = |other: &u32| start.abs_diff(*other) > 1 << 16;
            assert!(starts.iter().skip(at + 1).all(far), "{starts:?}");
        }
    }
}
