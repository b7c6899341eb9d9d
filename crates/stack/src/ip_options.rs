//! Options of IPv4 (RFC 791, section 3.1): for which of them packets are dropped, and what an echo
//! reply brings back (RFC 1122, section 3.2.2.6), both as Linux has it (net/ipv4/ip_options.c).

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use wire::ipv4::OPTIONS_LEN_MAX;

const END: u8 = 0;
const NOP: u8 = 1;
const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;
const LOOSE_ROUTE: u8 = 131;
const ROUTER_ALERT: u8 = 148;
const STRICT_ROUTE: u8 = 137;
/// Set in the type of an option that every fragment carries.
const COPIED: u8 = 0x80;

/// What is wrong with a packet's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// They do not parse; where, from the start of the IP header.
    Malformed(u8),
    /// A source route, which hosts should not follow (RFC 7126, section 4.3).
    SourceRoute,
}

/// The options of a packet to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    words: [[u8; 4]; OPTIONS_LEN_MAX / 4],
    /// Bytes that are used; what is behind them is the end of options.
    used: u8,
}

impl Options {
    /// "Routers, look at this": of messages about groups (RFC 2113).
    pub const ROUTER_ALERT: Self = {
        let mut words = [[END; 4]; OPTIONS_LEN_MAX / 4];
        words[0] = [ROUTER_ALERT, 4, 0, 0];
        Self { words, used: 4 }
    };

    /// As they are on the wire.
    pub fn bytes(&self) -> &[u8] {
        self.words.as_flattened().get(..self.len()).unwrap_or_default()
    }

    /// How many bytes they take.
    pub fn len(&self) -> usize {
        usize::from(self.used).next_multiple_of(4)
    }

    fn push(&mut self, option: &[u8]) {
        let start = usize::from(self.used);
        let end = start + option.len();
        if let Some(room) = self.words.as_flattened_mut().get_mut(start..end) {
            room.copy_from_slice(option);
            self.used = end as u8;
        }
    }

    /// What fragments behind the first one carry of them.
    #[must_use]
    pub fn of_later_fragments(mut self) -> Self {
        let len = self.len();
        let bytes = self.words.as_flattened_mut();
        let mut at = 0;
        while let Some(&kind) = bytes.get(..len).and_then(|bytes| bytes.get(at)) {
            let size = match kind {
                END => break,
                NOP => 1,
                _ => usize::from(bytes.get(at + 1).copied().unwrap_or(2)).max(2),
            };
            if kind & COPIED == 0 {
                // As Linux does; the header keeps its length.
                bytes.iter_mut().skip(at).take(size).for_each(|byte| *byte = NOP);
            }
            at += size;
        }
        self
    }
}

/// Each option that is more than one byte, with where it begins; or what is wrong.
fn each(
    options: &[u8],
    mut visit: impl FnMut(usize, &[u8]) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        if kind == END {
            break;
        }
        if kind == NOP {
            at += 1;
            continue;
        }
        let malformed = Refusal::Malformed(place(at));
        let len = usize::from(*options.get(at + 1).ok_or(malformed)?);
        let option = options.get(at..at + len).filter(|_| len >= 2).ok_or(malformed)?;
        visit(at, option)?;
        at += len;
    }
    Ok(())
}

/// Counted from the start of the IP header.
fn place(at: usize) -> u8 {
    (at + wire::ipv4::HEADER_LEN) as u8
}

/// How a timestamp option is filled: its lowest four bits.
const TIMES_ONLY: u8 = 0;
const TIMES_AND_ADDRESSES: u8 = 1;
const TIMES_OF_NAMED: u8 = 3;

/// Whether a packet with these options is taken.
pub fn check(options: &[u8]) -> Result<(), Refusal> {
    each(options, |at, option| {
        let wrong = |offset: usize| Err(Refusal::Malformed(place(at + offset)));
        match *option {
            [LOOSE_ROUTE | STRICT_ROUTE, ..] => Err(Refusal::SourceRoute),
            [RECORD_ROUTE, len, ref rest @ ..] => match rest.first() {
                None => wrong(1),
                Some(..4) => wrong(2),
                Some(&pointer) if pointer <= len && pointer + 3 > len => wrong(2),
                Some(_) => Ok(()),
            },
            [TIMESTAMP, len, ref rest @ ..] => {
                let &[pointer, flags, ..] = rest else { return wrong(1) };
                let needs = match flags & 15 {
                    TIMES_AND_ADDRESSES | TIMES_OF_NAMED => 7,
                    _ => 3,
                };
                if pointer < 5 || pointer <= len && u16::from(pointer) + needs > len.into() {
                    return wrong(2);
                }
                let is_full = pointer > len && flags & 15 != TIMES_OF_NAMED;
                if is_full && flags >> 4 == 15 { wrong(3) } else { Ok(()) }
            }
            [ROUTER_ALERT, len, ..] if len < 4 => wrong(1),
            _ => Ok(()),
        }
    })
}

/// The options of the reply to an echo request with these ones, which have been
/// [checked](check), at our address `own` and at time `time`: routes and times are recorded once
/// for the arrival and once for the departure.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.6
//# If a Record Route and/or Time Stamp option is received in an ICMP Echo Request, this option
//# (these options) SHOULD be updated to include the current host and included in the IP header of
//# the Echo Reply message, without "truncation".
pub fn echoed(options: &[u8], own: Ipv4Addr, time: u32) -> Options {
    let mut reply = Options::default();
    let (own, time) = (own.octets(), time.to_be_bytes());
    for wanted in [RECORD_ROUTE, TIMESTAMP] {
        // What was checked is not refused, and only the first of a kind counts.
        let mut is_done = false;
        let _ = each(options, |_, option| {
            if option.first() == Some(&wanted) && !std::mem::replace(&mut is_done, true) {
                let mut bytes = [0; OPTIONS_LEN_MAX];
                let Some(copy) = bytes.get_mut(..option.len()) else { return Ok(()) };
                copy.copy_from_slice(option);
                record(copy, own, time, true);
                record(copy, own, time, false);
                reply.push(copy);
            }
            Ok(())
        });
    }
    reply
}

/// Writes what an option asks for to where its pointer says, if there is room. When that is not so at
/// the arrival, it is counted, where the option has a place for it.
fn record(option: &mut [u8], own: [u8; 4], time: [u8; 4], arrives: bool) {
    let (kind, flags) = match *option {
        [RECORD_ROUTE, ..] => (RECORD_ROUTE, 0),
        [TIMESTAMP, _, _, flags, ..] => (TIMESTAMP, flags),
        _ => return,
    };
    let Some(&pointer) = option.get(2) else { return };
    let at = usize::from(pointer).saturating_sub(1);
    let Some(room) = option.get_mut(at..).filter(|room| !room.is_empty()) else {
        let counts = arrives && kind == TIMESTAMP && flags & 15 != TIMES_OF_NAMED;
        if let Some(flags) = option.get_mut(3).filter(|_| counts) {
            *flags = flags.saturating_add(16);
        }
        return;
    };
    let (first, rest) = room.split_at_mut(room.len().min(4));
    let used = match (kind, flags & 15) {
        (RECORD_ROUTE, _) => {
            copy(first, &own);
            4
        }
        (_, TIMES_ONLY) => {
            copy(first, &time);
            4
        }
        (_, TIMES_AND_ADDRESSES) => {
            copy(first, &own);
            copy(rest, &time);
            8
        }
        (_, TIMES_OF_NAMED) if *first == own => {
            copy(rest, &time);
            8
        }
        _ => 0,
    };
    if let Some(pointer) = option.get_mut(2) {
        *pointer = pointer.saturating_add(used);
    }
}

fn copy(to: &mut [u8], from: &[u8; 4]) {
    for (place, byte) in to.iter_mut().zip(from) {
        *place = *byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    /// An option of `len` bytes, of which `head` are the first.
    fn option(len: usize, head: &[u8]) -> Vec<u8> {
        let mut option = vec![0; len];
        option[..head.len()].copy_from_slice(head);
        option
    }

    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.6
    //= type=test
    //# If a Record Route and/or Time Stamp option is received in an ICMP Echo Request, this option
    //# (these options) SHOULD be updated to include the current host and included in the IP header
    //# of the Echo Reply message, without "truncation".
    #[test]
    fn a_recorded_route_has_our_address_twice() {
        let mut asked = option(40, &[RECORD_ROUTE, 39, 8, 10, 0, 0, 1]);
        assert_eq!(check(&asked), Ok(()));
        let reply = echoed(&asked, OWN, 0);
        assert_eq!(reply.bytes()[..16], [7, 39, 16, 10, 0, 0, 1, 10, 0, 0, 2, 10, 0, 0, 2, 0]);
        assert_eq!(reply.len(), 40);
        // Where there is room for one more, and for none.
        asked[2] = 36;
        assert_eq!(echoed(&asked, OWN, 0).bytes()[2], 40);
        asked[2] = 40;
        assert_eq!(echoed(&asked, OWN, 0).bytes(), asked);
    }

    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.6
    //= type=test
    //# If a Record Route and/or Time Stamp option is received in an ICMP Echo Request, this option
    //# (these options) SHOULD be updated to include the current host and included in the IP header
    //# of the Echo Reply message, without "truncation".
    #[test]
    fn times_are_recorded_as_the_option_asks() {
        let time = 0x8000_0102;
        let only = echoed(&option(12, &[TIMESTAMP, 12, 5, TIMES_ONLY]), OWN, time);
        assert_eq!(only.bytes(), [68, 12, 13, 0, 128, 0, 1, 2, 128, 0, 1, 2]);
        let with = echoed(&option(12, &[TIMESTAMP, 12, 5, TIMES_AND_ADDRESSES]), OWN, time);
        assert_eq!(with.bytes(), [68, 12, 13, 1, 10, 0, 0, 2, 128, 0, 1, 2]);
        let full = echoed(with.bytes(), OWN, time);
        assert_eq!(full.bytes(), [68, 12, 13, 17, 10, 0, 0, 2, 128, 0, 1, 2]);
        let named = [TIMESTAMP, 20, 5, TIMES_OF_NAMED, 10, 0, 0, 2, 0, 0, 0, 0, 10, 0, 0, 9];
        let named = echoed(&option(20, &named), OWN, time);
        assert_eq!(named.bytes()[2..12], [13, 3, 10, 0, 0, 2, 128, 0, 1, 2]);
        assert_eq!(named.bytes()[12..], [10, 0, 0, 9, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_wrong_with_options_is_found_where_it_is() {
        let refused = |options: &[u8]| check(options).unwrap_err();
        assert_eq!(refused(&[LOOSE_ROUTE, 7, 4, 0, 0, 0, 0, 0]), Refusal::SourceRoute);
        for (options, at) in [
            (&[NOP, 200, 1, 0][..], 21),
            (&[NOP, NOP, NOP, 200], 23),
            (&[200, 9, 0, 0], 20),
            (&[RECORD_ROUTE, 2, 0, 0], 21),
            (&[RECORD_ROUTE, 7, 3, 0, 0, 0, 0, 0], 22),
            (&[RECORD_ROUTE, 7, 5, 0, 0, 0, 0, 0], 22),
            (&[TIMESTAMP, 3, 5, 0], 21),
            (&[TIMESTAMP, 8, 4, 0, 0, 0, 0, 0], 22),
            (&[TIMESTAMP, 8, 9, 0xf0, 0, 0, 0, 0], 23),
        ] {
            assert_eq!(refused(options), Refusal::Malformed(at), "{options:?}");
        }
        // Behind the end there may be anything, and nobody knows every option.
        assert_eq!(check(&[END, LOOSE_ROUTE, 0, 0]), Ok(()));
        assert_eq!(check(&[200, 3, 0, NOP, ROUTER_ALERT, 4, 0, 0]), Ok(()));
    }

    #[test]
    fn later_fragments_carry_what_is_to_be_copied() {
        let mut both = Options::default();
        both.push(&[RECORD_ROUTE, 7, 8, 1, 2, 3, 4]);
        both.push(&[ROUTER_ALERT, 4, 0, 0]);
        let later = both.of_later_fragments();
        assert_eq!(later.bytes(), [1, 1, 1, 1, 1, 1, 1, 148, 4, 0, 0, 0]);
    }
}
