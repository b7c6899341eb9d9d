//! The extension headers of a packet (RFC 8200, section 4): walked once from front to back,
//! within the packet's bounds and a bound on their number.

use crate::ipv4::Protocol;
use crate::{Malformed, NoRoom, put};

use super::HEADER_LEN;

/// Extension headers of one packet that are looked at; a packet with more is not read further.
/// RFC 8504, section 5.3, lets a host bound them; nobody honest has half as many.
pub const HEADERS_MAX: usize = 8;
/// Options of one header that are looked at, padding not counted; a packet with more is dropped, as
/// RFC 8504, section 5.3, allows it with this number.
pub const OPTIONS_MAX: usize = 8;
/// Bytes of a fragment header.
pub const FRAGMENT_LEN: usize = 8;

const HOP_BY_HOP: u8 = Protocol::HOP_BY_HOP.0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = Protocol::FRAGMENT.0;
const NO_NEXT: u8 = 59;
const DESTINATION: u8 = 60;

/// Pad1 and PadN (RFC 8200, section 4.2), router alert (RFC 2711).
const PAD_1: u8 = 0;
const PAD_N: u8 = 1;
const ROUTER_ALERT: u8 = 5;

/// Codes of an ICMPv6 parameter problem (RFC 4443, section 3.4).
const ERRONEOUS_FIELD: u8 = 0;
const UNRECOGNIZED_NEXT_HEADER: u8 = 1;
const UNRECOGNIZED_OPTION: u8 = 2;

/// A fragment header (RFC 8200, section 4.5), in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// What the whole packet carries behind the fragment header.
    pub next_header: Protocol,
    /// Where this piece belongs, in bytes (a multiple of 8).
    pub offset: u16,
    /// This is not the last fragment.
    pub more: bool,
    /// Groups fragments of one packet.
    pub identification: u32,
}

impl Fragment {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&[next_header, _, o0, o1, i0, i1, i2, i3], _) = bytes.split_first_chunk()?;
        let field = u16::from_be_bytes([o0, o1]);
        Some(Self {
            next_header: Protocol(next_header),
            offset: field & 0xfff8,
            more: field & 1 != 0,
            identification: u32::from_be_bytes([i0, i1, i2, i3]),
        })
    }

    /// A packet that needs no other to be whole (RFC 6946).
    pub fn is_whole(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Writes the header to the start of `out` and gives its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let field = self.offset & 0xfff8 | u16::from(self.more);
        let out = put(out, &[self.next_header.0, 0])?;
        let out = put(out, &field.to_be_bytes())?;
        put(out, &self.identification.to_be_bytes())?;
        Ok(FRAGMENT_LEN)
    }
}

/// What the extension headers lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain<'a> {
    /// What `payload` is; of a fragment, what the fragment header says of the whole.
    pub protocol: Protocol,
    /// Where the packet names `protocol`, for a parameter problem: bytes from its start.
    pub named_at: u16,
    /// Bytes of extension headers, those of the fragment header included.
    pub headers_len: u16,
    /// Set when this is a piece of a packet and not the whole; the walk ends there.
    pub fragment: Option<Fragment>,
    /// There was a fragment header, although it says that this is all (RFC 6946).
    pub atomic: bool,
    /// A hop-by-hop header asks routers to look, since the packet is about groups (RFC 2711): all
    /// of MLD comes with it.
    pub alerts_of_groups: bool,
    /// What follows the headers.
    pub payload: &'a [u8],
}

/// Why a packet's headers were not read to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// They do not fit into the packet.
    Malformed(Malformed),
    /// There are more than [`HEADERS_MAX`], or one has more than [`OPTIONS_MAX`] options.
    Order,
    /// An option or routing type that is not known and says that the packet is to be dropped
    /// without a word; or there is nothing behind the headers (no next header).
    Silent,
    /// The sender is to be told with a parameter problem.
    Problem {
        /// Code of the message.
        code: u8,
        /// The byte of the packet that is not understood.
        pointer: u32,
        /// Also when the packet went to a group.
        even_multicast: bool,
    },
}

fn option_problem(kind: u8, pointer: usize) -> Result<(), Unreadable> {
    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.2
    //# The Option Type identifiers are internally encoded such that their
    //# highest-order 2 bits specify the action that must be taken if the
    //# processing IPv6 node does not recognize the Option Type:
    let even_multicast = match kind >> 6 {
        0 => return Ok(()),
        1 => return Err(Unreadable::Silent),
        2 => true,
        _ => false,
    };
    // At most 64 KiB from the packet's start.
    let pointer = pointer as u32;
    Err(Unreadable::Problem { code: UNRECOGNIZED_OPTION, pointer, even_multicast })
}

/// Reads the options of a hop-by-hop or destination options header that lies `at` bytes into
/// the packet; whether one is a router alert for MLD.
//= https://www.rfc-editor.org/rfc/rfc8200#section-4.2
//# The sequence of options within a header must be processed strictly in the order they appear in
//# the header; a receiver must not, for example, scan through the header looking for a particular
//# kind of option and process that option prior to processing all preceding ones.
//= https://www.rfc-editor.org/rfc/rfc8200#section-4.2
//# These padding options must be recognized by all IPv6 implementations:
fn options(header: &[u8], at: usize) -> Result<bool, Unreadable> {
    let short = Unreadable::Malformed(Malformed::Length);
    let mut alerts_of_groups = false;
    let (mut next, mut count) = (2, 0);
    while let Some(&kind) = header.get(next) {
        if kind == PAD_1 {
            next += 1;
            continue;
        }
        let len = usize::from(*header.get(next + 1).ok_or(short)?);
        let end = next + 2 + len;
        if end > header.len() {
            return Err(short);
        }
        count += usize::from(kind != PAD_N);
        if count > OPTIONS_MAX {
            return Err(Unreadable::Order);
        }
        match kind {
            PAD_N => {}
            ROUTER_ALERT => alerts_of_groups |= header.get(next + 2..end) == Some(&[0, 0]),
            _ => option_problem(kind, at + next)?,
        }
        next = end;
    }
    Ok(alerts_of_groups)
}

/// Walks the headers behind the fixed one, of which `first` names the first and `payload` is
/// everything. `skipped`: bytes of headers that came before (0, or what was walked before a
/// fragment was put together), so that pointers are right.
#[inline]
pub fn walk(first: Protocol, payload: &[u8], skipped: usize) -> Result<Chain<'_>, Unreadable> {
    if is_upper(first) {
        // Mostly there are none.
        return Ok(Chain {
            protocol: first,
            named_at: 6,
            headers_len: 0,
            fragment: None,
            atomic: false,
            alerts_of_groups: false,
            payload,
        });
    }
    walk_headers(first, payload, skipped)
}

fn is_upper(protocol: Protocol) -> bool {
    !matches!(protocol.0, HOP_BY_HOP | ROUTING | FRAGMENT | NO_NEXT | DESTINATION)
}

//= https://www.rfc-editor.org/rfc/rfc8200#section-4
//# Therefore, extension headers must be processed strictly in the order they appear in the packet;
//# a receiver must not, for example, scan through a packet looking for a particular kind of
//# extension header and process that header prior to processing all preceding ones.
fn walk_headers(first: Protocol, payload: &[u8], skipped: usize) -> Result<Chain<'_>, Unreadable> {
    let short = Unreadable::Malformed(Malformed::Short);
    let (mut protocol, mut rest) = (first, payload);
    // Where the byte lies that names `protocol`, and where `rest` begins, from the packet's start.
    let (mut named_at, mut at) = (6, HEADER_LEN + skipped);
    let (mut alerts_of_groups, mut atomic) = (false, false);
    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.1
    //# IPv6 nodes must accept and attempt to process extension headers in any order and occurring any
    //# number of times in the same packet, except for the Hop-by-Hop Options header, which is
    //# restricted to appear immediately after an IPv6 header only.
    for count in 0..=HEADERS_MAX {
        let headers_len = (payload.len() - rest.len()) as u16;
        let chain = |protocol, named_at: usize, fragment| Chain {
            protocol,
            named_at: named_at as u16,
            headers_len,
            fragment,
            atomic,
            alerts_of_groups,
            payload: rest,
        };
        if is_upper(protocol) {
            return Ok(chain(protocol, named_at, None));
        }
        //= https://www.rfc-editor.org/rfc/rfc8200#section-4.7
        //# If the Payload Length field of the IPv6 header indicates the presence of octets past the
        //# end of a header whose Next Header field contains 59, those octets must be ignored and
        //# passed on unchanged if the packet is forwarded.
        if protocol.0 == NO_NEXT {
            return Err(Unreadable::Silent);
        }
        if protocol.0 == FRAGMENT {
            let fragment = Fragment::parse(rest).ok_or(short)?;
            let (_, behind) = rest.split_at_checked(FRAGMENT_LEN).ok_or(short)?;
            //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
            //# Fragment Offset field and the M flag are zero), then it does not need any further
            //# reassembly and should be processed as a fully reassembled packet (i.e., updating
            //# Next Header, adjust Payload Length, removing the Fragment header, etc.).
            //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
            //# Any other fragments that match this packet (i.e., the same IPv6 Source Address, IPv6
            //# Destination Address, and Fragment Identification) should be processed independently.
            if !fragment.is_whole() {
                let headers_len = headers_len + FRAGMENT_LEN as u16;
                let found = chain(fragment.next_header, at, Some(fragment));
                return Ok(Chain { headers_len, payload: behind, ..found });
            }
            atomic = true;
            (protocol, named_at) = (fragment.next_header, at);
            (rest, at) = (behind, at + FRAGMENT_LEN);
            continue;
        }
        let &[next, len, ..] = rest else { return Err(short) };
        let len = (usize::from(len) + 1) * 8;
        let (header, behind) = rest.split_at_checked(len).ok_or(short)?;
        match protocol.0 {
            //= https://www.rfc-editor.org/rfc/rfc8200#section-4.1
            //# IPv6 nodes must accept and attempt to process extension headers in
            //# any order and occurring any number of times in the same packet,
            //# except for the Hop-by-Hop Options header, which is restricted to
            //# appear immediately after an IPv6 header only.
            //= https://www.rfc-editor.org/rfc/rfc8200#section-4
            //# The Hop-by-Hop Options header, when present, must immediately follow the IPv6 header.
            //= https://www.rfc-editor.org/rfc/rfc8200#section-4
            //# The same action should be taken if a node encounters a Next Header value of zero in any header
            //# other than an IPv6 header.
            HOP_BY_HOP if count > 0 || skipped > 0 => {
                let code = UNRECOGNIZED_NEXT_HEADER;
                let pointer = named_at as u32;
                return Err(Unreadable::Problem { code, pointer, even_multicast: false });
            }
            HOP_BY_HOP => alerts_of_groups = options(header, at)?,
            DESTINATION => {
                options(header, at)?;
            }
            _ => {
                //= https://www.rfc-editor.org/rfc/rfc8200#section-4.4
                //# If, while processing a received packet, a node encounters a Routing header with an unrecognized
                //# Routing Type value, the required behavior of the node depends on the value of the Segments Left
                //# field, as follows:
                //= https://www.rfc-editor.org/rfc/rfc8200#section-4.4
                //# If Segments Left is zero, the node must ignore the Routing header and proceed to process the
                //# next header in the packet, whose type is identified by the Next Header field in the Routing
                //# header.
                //= https://www.rfc-editor.org/rfc/rfc8200#section-4.4
                //# If Segments Left is non-zero, the node must discard the packet and
                //# send an ICMP Parameter Problem, Code 0, message to the packet's
                //# Source Address, pointing to the unrecognized Routing Type.
                if header.get(3).is_some_and(|&left| left != 0) {
                    let pointer = at as u32 + 2;
                    let code = ERRONEOUS_FIELD;
                    return Err(Unreadable::Problem { code, pointer, even_multicast: false });
                }
            }
        }
        (protocol, named_at) = (Protocol(next), at);
        (rest, at) = (behind, at + len);
    }
    Err(Unreadable::Order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options_header(next: u8, options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![next, 0];
        bytes.extend(options);
        while !bytes.len().is_multiple_of(8) {
            bytes.push(PAD_1);
        }
        bytes[1] = (bytes.len() / 8 - 1) as u8;
        bytes
    }

    //= https://www.rfc-editor.org/rfc/rfc8200#section-4
    //= type=test
    //# Therefore, extension headers must be processed strictly in the order they appear in the
    //# packet; a receiver must not, for example, scan through a packet looking for a particular
    //# kind of extension header and process that header prior to processing all preceding ones.
    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.1
    //= type=test
    //# IPv6 nodes must accept and attempt to process extension headers in any order and occurring
    //# any number of times in the same packet, except for the Hop-by-Hop Options header, which is
    //# restricted to appear immediately after an IPv6 header only.
    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.2
    //= type=test
    //# The sequence of options within a header must be processed strictly in the order they appear
    //# in the header; a receiver must not, for example, scan through the header looking for a
    //# particular kind of option and process that option prior to processing all preceding ones.
    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.2
    //= type=test
    //# These padding options must be recognized by all IPv6 implementations:
    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
    //= type=test
    //# Fragment Offset field and the M flag are zero), then it does not need any further reassembly
    //# and should be processed as a fully reassembled packet (i.e., updating Next Header, adjust
    //# Payload Length, removing the Fragment header, etc.).
    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.4
    //= type=test
    //# If Segments Left is zero, the node must ignore the Routing header and proceed to process the
    //# next header in the packet, whose type is identified by the Next Header field in the Routing
    //# header.
    #[test]
    fn headers_in_any_order_lead_to_what_is_carried() {
        let mut packet = options_header(DESTINATION, &[ROUTER_ALERT, 2, 0, 0]);
        packet.extend(options_header(ROUTING, &[PAD_N, 8, 0, 0, 0, 0, 0, 0, 0, 0]));
        packet.extend([FRAGMENT, 0, 99, 0, 0, 0, 0, 0]);
        let whole =
            Fragment { next_header: Protocol::TCP, offset: 0, more: false, identification: 7 };
        let mut fragment = [0; FRAGMENT_LEN];
        whole.emit(&mut fragment).unwrap();
        packet.extend(fragment);
        let headers_len = packet.len() as u16;
        packet.extend(b"segment");
        let chain = walk(Protocol(HOP_BY_HOP), &packet, 0).unwrap();
        assert_eq!((chain.protocol, chain.headers_len), (Protocol::TCP, headers_len));
        assert_eq!((chain.payload, chain.fragment), (&b"segment"[..], None));
        assert_eq!(usize::from(chain.named_at), HEADER_LEN + usize::from(headers_len) - 8);
        assert!(chain.alerts_of_groups);
    }

    #[test]
    fn the_walk_ends_at_a_piece_of_a_packet() {
        let piece =
            Fragment { next_header: Protocol(60), offset: 16, more: true, identification: 9 };
        let mut packet = [0; 12];
        piece.emit(&mut packet).unwrap();
        let chain = walk(Protocol(FRAGMENT), &packet, 0).unwrap();
        assert_eq!((chain.fragment, chain.payload.len()), (Some(piece), 4));
        assert_eq!((chain.protocol, chain.headers_len), (Protocol(60), 8));
    }

    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.2
    //= type=test
    //# The Option Type identifiers are internally encoded such that their highest-order 2 bits
    //# specify the action that must be taken if the processing IPv6 node does not recognize the
    //# Option Type:
    #[test]
    fn an_unknown_option_is_treated_as_its_type_says() {
        let with =
            |kind| walk(Protocol(DESTINATION), &options_header(6, &[kind, 0]), 0).map(|_| ());
        assert_eq!(with(0x3e), Ok(()));
        assert_eq!(with(0x7e), Err(Unreadable::Silent));
        for (kind, even_multicast) in [(0xbe, true), (0xfe, false)] {
            let expected = Unreadable::Problem { code: 2, pointer: 42, even_multicast };
            assert_eq!(with(kind), Err(expected));
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.4
    //= type=test
    //# If, while processing a received packet, a node encounters a Routing header with an
    //# unrecognized Routing Type value, the required behavior of the node depends on the value of
    //# the Segments Left field, as follows:
    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.4
    //= type=test
    //# If Segments Left is non-zero, the node must discard the packet and send an ICMP Parameter
    //# Problem, Code 0, message to the packet's Source Address, pointing to the unrecognized
    //# Routing Type.
    #[test]
    fn a_routing_header_that_is_not_used_up_is_a_problem() {
        let packet = [6, 0, 0, 1, 0, 0, 0, 0];
        let expected = Unreadable::Problem { code: 0, pointer: 42, even_multicast: false };
        assert_eq!(walk(Protocol(ROUTING), &packet, 0), Err(expected));
    }

    //= https://www.rfc-editor.org/rfc/rfc8200#section-4
    //= type=test
    //# The Hop-by-Hop Options header, when present, must immediately follow the IPv6 header.
    //= https://www.rfc-editor.org/rfc/rfc8200#section-4
    //= type=test
    //# The same action should be taken if a node encounters a Next Header value of zero in any
    //# header other than an IPv6 header.
    #[test]
    fn hop_by_hop_options_come_first_or_are_a_problem() {
        let mut packet = options_header(HOP_BY_HOP, &[]);
        packet.extend(options_header(6, &[]));
        let expected = Unreadable::Problem { code: 1, pointer: 40, even_multicast: false };
        assert_eq!(walk(Protocol(DESTINATION), &packet, 0), Err(expected));
    }

    #[test]
    fn the_number_of_headers_is_bounded() {
        let packet = |count| options_header(DESTINATION, &[]).repeat(count);
        let mut fits = packet(HEADERS_MAX - 1);
        fits.extend(options_header(6, &[]));
        assert!(walk(Protocol(DESTINATION), &fits, 0).is_ok());
        let over = packet(HEADERS_MAX + 2);
        assert_eq!(walk(Protocol(DESTINATION), &over, 0), Err(Unreadable::Order));
    }

    #[test]
    fn the_number_of_options_is_bounded_and_padding_does_not_count() {
        // One that may be skipped, and padding of two bytes.
        let packet = |count| options_header(6, &[0x1e, 0, PAD_N, 0].repeat(count));
        assert!(walk(Protocol(DESTINATION), &packet(OPTIONS_MAX), 0).is_ok());
        let over = packet(OPTIONS_MAX + 1);
        assert_eq!(walk(Protocol(DESTINATION), &over, 0), Err(Unreadable::Order));
    }

    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.7
    //= type=test
    //# If the Payload Length field of the IPv6 header indicates the presence of octets past the end
    //# of a header whose Next Header field contains 59, those octets must be ignored and passed on
    //# unchanged if the packet is forwarded.
    #[test]
    fn headers_cut_anywhere_are_malformed() {
        let packet = options_header(6, &[PAD_N, 4, 0, 0, 0, 0]);
        for len in 0..packet.len() {
            let cut = walk(Protocol(DESTINATION), &packet[..len], 0);
            assert_eq!(cut, Err(Unreadable::Malformed(Malformed::Short)), "{len}");
        }
        let long = walk(Protocol(DESTINATION), &[6, 0, PAD_N, 5, 0, 0, 0, 0], 0);
        assert_eq!(long, Err(Unreadable::Malformed(Malformed::Length)));
        assert_eq!(walk(Protocol(NO_NEXT), &[], 0), Err(Unreadable::Silent));
    }
}
