//! SYN cookies (RFC 4987 section 3.6), as Linux has them: when a listener's SYN queue is full, what a
//! SYN said is kept in the answer's sequence number and timestamp, and nowhere else.
//!
//! The number is a keyed hash of the two ends, to which the peer's number, a count of minutes, a keyed
//! hash of all this and a place in a table of segment sizes are added. Linux's second hash is not of the peer's
//! number, which there is only added: an answer whose number is higher by a few bytes passes for one to a
//! smaller segment size, and a connection whose first bytes were dropped begins without them. Window scale,
//! SACK and ECN are the low bits of the timestamp, where the connection has timestamps, and are lost where it
//! has not.

use std::net::SocketAddr;

use wire::tcp::{SeqNumber, TcpOptions as WireOptions, Timestamps};

use super::isn::TcpKeys;
use super::rtt::{MILLISECOND, SECOND};
use crate::api::Instant;

/// After this long a cookie counts as one older.
const PERIOD_NS: u64 = 60 * SECOND;
/// Cookies of this and the last period are believed.
const PERIODS: u32 = 2;
/// How long after a cookie was sent an acknowledgement may be one's answer.
pub const LIFE_NS: u64 = PERIODS as u64 * PERIOD_NS;
/// The count of periods lies above the segment size.
const COUNT_SHIFT: u32 = 24;
const DATA_MASK: u32 = (1 << COUNT_SHIFT) - 1;
/// Segment sizes that a cookie can stand for.
const MSS_V4: [u16; 4] = [536, 1300, 1440, 1460];
const MSS_V6: [u16; 4] = [1280 - 60, 1480 - 60, 1500 - 60, 9000 - 60];

/// Low bits of the timestamp: a window scale (15: none), whether there are SACK and ECN.
const TIMESTAMP_BITS: u32 = 0x3f;
const SCALE_BITS: u32 = 0xf;
const SACK_BIT: u32 = 1 << 4;
const ECN_BIT: u32 = 1 << 5;

/// Two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// Our address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
}

fn sizes(remote: SocketAddr) -> &'static [u16; 4] {
    if remote.is_ipv4() { &MSS_V4 } else { &MSS_V6 }
}

impl TcpKeys {
    /// The initial sequence number that answers a SYN with the number `irs` from a peer that takes
    /// segments of `mss` bytes.
    pub fn cookie(&self, now: Instant, ends: Ends, irs: SeqNumber, mss: u16) -> SeqNumber {
        let count = (now.0 / PERIOD_NS) as u32;
        let place = sizes(ends.remote).iter().rposition(|&size| mss >= size).unwrap_or(0) as u32;
        let data = self.cookie_hash_of_syn(ends, irs.0, count).wrapping_add(place) & DATA_MASK;
        SeqNumber(
            self.cookie_hash_of_ends(ends)
                .wrapping_add(irs.0)
                .wrapping_add(count << COUNT_SHIFT)
                .wrapping_add(data),
        )
    }

    /// The segment size that a cookie stands for, if it is one of ours and not too old.
    pub fn check_cookie(
        &self,
        now: Instant,
        ends: Ends,
        irs: SeqNumber,
        cookie: SeqNumber,
    ) -> Option<u16> {
        let rest = cookie.0.wrapping_sub(self.cookie_hash_of_ends(ends)).wrapping_sub(irs.0);
        let count = (now.0 / PERIOD_NS) as u32;
        let age = count.wrapping_sub(rest >> COUNT_SHIFT) & (u32::MAX >> COUNT_SHIFT);
        if age >= PERIODS {
            return None;
        }
        let hash = self.cookie_hash_of_syn(ends, irs.0, count.wrapping_sub(age));
        let place = rest.wrapping_sub(hash) & DATA_MASK;
        sizes(ends.remote).get(place as usize).copied()
    }
}

/// The timestamp of a cookie's SYN and ACK, `offset` being where the clock of these two addresses
/// starts: a bit in the past, so that later ones are newer.
pub fn timestamp(now: Instant, offset: u32, offer: &WireOptions, ecn: bool) -> u32 {
    let clock = (now.0 / MILLISECOND) as u32;
    let scale = offer.window_scale.map_or(SCALE_BITS, u32::from);
    let bit = |on, bit| if on { bit } else { 0 };
    let bits = scale | bit(offer.sack_permitted, SACK_BIT) | bit(ecn, ECN_BIT);
    let told = clock & !TIMESTAMP_BITS | bits;
    let told = if told > clock { told.wrapping_sub(TIMESTAMP_BITS + 1) } else { told };
    offset.wrapping_add(told)
}

/// The options of the SYN that a cookie has answered, by the timestamps that came back.
pub fn offer(mss: u16, timestamps: Option<Timestamps>, offset: u32) -> WireOptions {
    let Some(timestamps) = timestamps else {
        return WireOptions { mss: Some(mss), ..WireOptions::NONE };
    };
    let told = timestamps.echo.wrapping_sub(offset);
    let scale = told & SCALE_BITS;
    WireOptions {
        mss: Some(mss),
        window_scale: (scale != SCALE_BITS).then_some(scale as u8),
        sack_permitted: told & SACK_BIT != 0,
        timestamps: Some(timestamps),
        ..WireOptions::NONE
    }
}

/// Whether ECN was agreed to with the SYN that a cookie has answered, by the timestamps that came
/// back.
pub fn agreed_on_ecn(timestamps: Option<Timestamps>, offset: u32) -> bool {
    timestamps.is_some_and(|came| came.echo.wrapping_sub(offset) & ECN_BIT != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tcp::tests::keys;

    fn ends(port: u16) -> Ends {
        Ends {
            local: SocketAddr::from(([10, 0, 0, 1], 80)),
            remote: SocketAddr::from(([10, 0, 0, 2], port)),
        }
    }

    proptest! {
        #[test]
        fn a_cookie_tells_the_segment_size_for_a_minute_at_least(
            at: u32, later in 0..60_000_000_000_u64, irs: u32, mss: u16, port: u16
        ) {
            let keys = TcpKeys::new(&keys(1));
            let (at, irs) = (Instant(u64::from(at) * 1_000_000), SeqNumber(irs));
            let cookie = keys.cookie(at, ends(port), irs, mss);
            let told = keys.check_cookie(Instant(at.0 + later), ends(port), irs, cookie);
            let size = MSS_V4.iter().rev().find(|&&size| mss >= size).unwrap_or(&536);
            prop_assert_eq!(told, Some(*size));
            prop_assert_eq!(keys.check_cookie(Instant(at.0 + LIFE_NS), ends(port), irs, cookie), None);
        }

        #[test]
        fn a_timestamp_tells_the_options_and_is_not_of_the_future(
            at: u64, offset: u32, scale in prop::option::of(0..15_u8), sack_permitted: bool,
            ecn: bool,
        ) {
            let said = WireOptions { window_scale: scale, sack_permitted, ..WireOptions::NONE };
            let value = timestamp(Instant(at), offset, &said, ecn);
            let clock = offset.wrapping_add((at / MILLISECOND) as u32);
            prop_assert!(clock.wrapping_sub(value) < 128);
            let timestamps = Timestamps { value: 7, echo: value };
            prop_assert_eq!(agreed_on_ecn(Some(timestamps), offset), ecn);
            let found = offer(536, Some(timestamps), offset);
            prop_assert_eq!(found.window_scale, scale);
            prop_assert_eq!(found.sack_permitted, sack_permitted);
        }
    }

    #[test]
    fn a_guessed_number_is_no_cookie() {
        let keys = TcpKeys::new(&keys(1));
        let (now, irs) = (Instant(0), SeqNumber(5));
        let believed = (0..1_000_000_u32)
            .map(|guess| SeqNumber(guess.wrapping_mul(0x9e37_79b9)))
            .filter(|guess| keys.check_cookie(now, ends(9), irs, *guess).is_some())
            .count();
        // Two of 256 counts, and four of 2^24 data.
        assert!(believed <= 1, "{believed}");
        let cookie = keys.cookie(now, ends(9), irs, 1460);
        assert_eq!(keys.check_cookie(now, ends(10), irs, cookie), None);
        // Of 100 bytes, and of one: as if the peer's first byte had not been sent.
        assert_eq!(keys.check_cookie(now, ends(9), irs + 100, cookie), None);
        assert_eq!(keys.check_cookie(now, ends(9), irs + 1, cookie), None);
    }
}
