//! Fragments in every order, and against their bounds.

use proptest::prelude::*;

use super::*;

const IF: InterfaceIndex = InterfaceIndex(0);

fn reassembly() -> Reassembly {
    Reassembly::new(KeyedHash::new([1; 16]), 4, 2, 0)
}

fn header(source: u8, id: u16, offset: usize, more: bool) -> FragmentInfo {
    FragmentInfo::v4(
        &Ipv4Header {
            identification: id,
            more_fragments: more,
            fragment_offset: offset as u16,
            protocol: Protocol::UDP,
            src: [10, 0, 0, source].into(),
            dst: [10, 0, 0, 2].into(),
            ..Ipv4Header::default()
        },
        IF,
    )
}

fn v6(offset: u16, more: bool, protocol: Protocol) -> FragmentInfo {
    let (src, dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    FragmentInfo { src, dst, protocol, identification: 7, offset, more, ecn: 0, link: IF }
}

#[test]
fn the_first_fragment_says_what_an_ipv6_packet_carries() {
    let mut r = reassembly();
    r.on_fragment(&v6(8, false, Protocol::TCP), b"end").unwrap();
    let done = r.on_fragment(&v6(0, true, Protocol::UDP), b"01234567");
    assert_eq!(done, Ok(FragmentStatus::Complete(0)));
    let whole = r.take(0);
    assert_eq!((&*whole.bytes, whole.protocol), (&b"01234567end"[..], Protocol::UDP));
}

//= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
//= type=test
//# o If any of the fragments being reassembled overlap with any other fragments being
//# reassembled for the same packet, reassembly of that packet must be abandoned and all the
//# fragments that have been received for that packet must be discarded, and no ICMP
//= https://www.rfc-editor.org/rfc/rfc5722#section-4
//= type=test
//# When reassembling an IPv6 datagram, if one or more its constituent fragments is determined
//# to be an overlapping fragment, the entire datagram (and any constituent fragments, including
//# those not yet received) MUST be silently discarded.
#[test]
fn nothing_more_is_taken_of_an_ipv6_packet_whose_fragments_overlapped() {
    let mut r = reassembly();
    r.on_fragment(&v6(0, true, Protocol::UDP), &[0; 16]).unwrap();
    for _ in 0..2 {
        let overlap = r.on_fragment(&v6(8, false, Protocol::UDP), &[1; 16]);
        assert_eq!(overlap, Err(DropReason::FragmentOverlap));
    }
    let first = r.on_fragment(&v6(0, true, Protocol::UDP), &[0; 16]);
    assert_eq!(first, Err(DropReason::FragmentOverlap));
    assert!(r.expire(0, |_| panic!("its sender is told nothing")));
    assert!(r.on_fragment(&v6(0, true, Protocol::UDP), &[0; 16]).is_ok());
}

#[test]
fn what_there_was_of_a_datagram_is_known_when_its_time_is_over() {
    let mut r = reassembly();
    let first = v6(0, true, Protocol::UDP);
    r.on_fragment(&first, &[3; 16]).unwrap();
    r.keep_header(&first, [&[9; 40], &[9; 8]]);
    r.on_fragment(&v6(16, true, Protocol::UDP), &[4; 16]).unwrap();
    r.keep_header(&v6(16, true, Protocol::UDP), [&[8; 48], &[]]);
    let mut told = Vec::new();
    assert!(r.expire(0, |expired| told.extend([expired.header, expired.first].concat())));
    assert_eq!(told, [&[9; 48][..], &[3; 16]].concat());
    assert!(!r.expire(0, |_| ()));
}

/// A router may send a group's packet by two links of ours, where it is put together twice.
#[test]
fn fragments_of_a_group_belong_together_on_one_link() {
    let mut r = reassembly();
    let piece = |offset, more, link| {
        let dst = "ff05::1".parse().unwrap();
        FragmentInfo { dst, link: InterfaceIndex(link), ..v6(offset, more, Protocol::UDP) }
    };
    for link in [1, 2] {
        let started = r.on_fragment(&piece(0, true, link), &[link; 8]);
        assert!(matches!(started, Ok(FragmentStatus::Started(_))));
    }
    let Ok(FragmentStatus::Complete(slot)) = r.on_fragment(&piece(8, false, 1), b"end") else {
        panic!("it is whole");
    };
    assert_eq!(r.take(slot).bytes, b"\x01\x01\x01\x01\x01\x01\x01\x01end");
    assert_eq!(r.len(), 1);
}

#[test]
fn fragments_in_any_order_make_the_datagram() {
    let mut r = reassembly();
    assert_eq!(r.on_fragment(&header(1, 7, 16, false), b"end"), Ok(FragmentStatus::Started(0)));
    assert_eq!(r.on_fragment(&header(1, 7, 0, true), b"01234567"), Ok(FragmentStatus::Waiting));
    let done = r.on_fragment(&header(1, 7, 8, true), b"89abcdef");
    assert_eq!(done, Ok(FragmentStatus::Complete(0)));
    let whole = r.take(0);
    assert_eq!(whole.bytes, b"0123456789abcdefend");
    r.give(whole);
    assert_eq!(r.len(), 0);
}

//= https://www.rfc-editor.org/rfc/rfc3168#section-5.3
//= type=test
//# Reassembly of a fragmented packet MUST NOT lose indications of congestion.
//= https://www.rfc-editor.org/rfc/rfc3168#section-5.3
//= type=test
//# In other words, if any fragment of an IP packet to be reassembled has the CE codepoint set,
//# then one of two actions MUST be taken:
//= https://www.rfc-editor.org/rfc/rfc3168#section-5.3
//= type=test
//# However, this MUST NOT occur if any of the other fragments contributing to this reassembly
//# carries the Not-ECT codepoint.
//= https://www.rfc-editor.org/rfc/rfc3168#section-5.3
//= type=test
//# Reassembly of a fragmented packet MUST NOT change the ECN codepoint when all of the fragments
//# carry the same codepoint.
#[test]
fn a_mark_on_a_fragment_is_a_mark_on_the_whole() {
    let cases = [(0, 0, Some(0)), (1, 1, Some(1)), (2, 2, Some(2)), (3, 3, Some(3))];
    let mixed = [(2, 3, Some(3)), (3, 1, Some(3)), (1, 2, Some(2)), (0, 3, None), (2, 0, None)];
    for (first, second, whole) in cases.into_iter().chain(mixed) {
        let mut r = reassembly();
        let piece = |offset, more, ecn| FragmentInfo { ecn, ..header(1, 7, offset, more) };
        r.on_fragment(&piece(0, true, first), &[0; 8]).unwrap();
        match (r.on_fragment(&piece(8, false, second), &[0; 8]), whole) {
            (Ok(FragmentStatus::Complete(slot)), Some(ecn)) => assert_eq!(r.take(slot).ecn, ecn),
            odd => assert_eq!(odd, (Err(DropReason::FragmentMalformed), None)),
        }
    }
}

#[test]
fn an_overlap_ends_the_datagram() {
    let mut r = reassembly();
    r.on_fragment(&header(1, 7, 0, true), &[0; 16]).unwrap();
    let overlap = r.on_fragment(&header(1, 7, 8, true), &[1; 16]);
    assert_eq!(overlap, Err(DropReason::FragmentOverlap));
    assert_eq!(r.len(), 0);
}

//= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
//= type=test
//# It should be noted that fragments may be duplicated in the network.
#[test]
fn a_repeated_fragment_is_harmless() {
    let mut r = reassembly();
    r.on_fragment(&header(1, 7, 0, true), &[5; 16]).unwrap();
    assert_eq!(r.on_fragment(&header(1, 7, 0, true), &[5; 16]), Ok(FragmentStatus::Waiting));
}

#[test]
fn a_datagram_longer_than_ip_allows_is_refused() {
    let mut r = reassembly();
    let end = r.on_fragment(&header(1, 7, 65528, false), &[0; 100]);
    assert_eq!(end, Err(DropReason::FragmentMalformed));
    assert_eq!(r.len(), 0);
}

#[test]
fn the_oldest_datagram_gives_way_to_a_new_one() {
    let mut r = reassembly();
    for source in 1..=5 {
        let started = r.on_fragment(&header(source, 7, 0, true), &[0; 8]);
        assert!(matches!(started, Ok(FragmentStatus::Started(_))));
    }
    assert_eq!((r.len(), r.evictions()), (4, 1));
    let rest =
        |r: &mut Reassembly, source| r.on_fragment(&header(source, 7, 8, false), b"end").unwrap();
    assert!(matches!(rest(&mut r, 2), FragmentStatus::Complete(_)));
    assert!(matches!(rest(&mut r, 1), FragmentStatus::Started(_)), "its beginning is forgotten");
}

#[test]
fn a_source_that_has_many_datagrams_displaces_its_own() {
    let mut r = reassembly();
    r.on_fragment(&header(9, 1, 0, true), &[0; 8]).unwrap();
    for id in 0..20 {
        r.on_fragment(&header(1, id, 0, true), &[0; 8]).unwrap();
    }
    assert_eq!((r.len(), r.evictions()), (3, 18));
    let done = r.on_fragment(&header(9, 1, 8, false), b"end");
    assert!(matches!(done, Ok(FragmentStatus::Complete(_))));
}

#[test]
fn bytes_are_bounded_and_the_oldest_give_way() {
    let mut r = Reassembly::new(KeyedHash::new([1; 16]), 1000, 1000, 0);
    let chunks = r.chunks.len();
    // Each takes a chunk of its own for a few bytes.
    for id in 0..500 {
        r.on_fragment(&header((id % 200) as u8, id, 8 * CHUNK, true), &[0; 8]).unwrap();
    }
    assert_eq!((r.len(), r.free_chunks.len()), (chunks, 0));
    assert_eq!(r.evictions(), 500 - chunks as u64);
    // The longest datagram has room, for which all others make it.
    for offset in (0..64_000).step_by(8_000) {
        let more = offset < 56_000;
        let got = r.on_fragment(&header(7, 999, offset, more), &vec![1; 8_000]);
        assert_eq!(matches!(got, Ok(FragmentStatus::Complete(_))), !more, "{offset}: {got:?}");
    }
    assert!(r.chunks.iter().map(|chunk| chunk.bytes.capacity()).sum::<usize>() <= chunks * CHUNK);
}

#[test]
fn a_spoilt_datagram_has_no_bytes() {
    let mut r = reassembly();
    let all = r.free_chunks.len();
    r.on_fragment(&v6(0, true, Protocol::UDP), &[0; 16]).unwrap();
    assert_eq!(r.free_chunks.len(), all - 1);
    r.on_fragment(&v6(8, false, Protocol::UDP), &[1; 16]).unwrap_err();
    assert_eq!((r.free_chunks.len(), r.len()), (all, 1));
}

proptest! {
    #[test]
    fn it_agrees_with_a_naive_oracle(
        fragments in prop::collection::vec((0usize..6, 1usize..6, any::<bool>(), 0u8..2), 1..12),
    ) {
        let mut r = reassembly();
        // The oracle: every byte that has come, and where the end is.
        let mut bytes: std::collections::BTreeMap<usize, u8> = Default::default();
        let mut total: Option<usize> = None;
        for (at, len, more, fill) in fragments {
            let (offset, payload) = (at * 8, vec![fill; len * 8]);
            let end = offset + payload.len();
            let got = r.on_fragment(&header(1, 7, offset, more), &payload);
            let held = (offset..end).filter(|i| bytes.contains_key(i)).count();
            let reach = bytes.keys().last().map_or(0, |last| last + 1);
            let bad_end = match total {
                Some(total) => end > total || (!more && end != total),
                None => !more && reach > end,
            };
            let same = (offset..end).all(|i| bytes.get(&i) == Some(&fill));
            let repeat = same && (more || total.is_some());
            if bad_end || (held > 0 && !repeat) {
                prop_assert_eq!(got, Err(DropReason::FragmentOverlap));
                (bytes, total) = Default::default();
                continue;
            }
            if held == 0 {
                bytes.extend((offset..end).map(|i| (i, fill)));
            }
            if !more {
                total = Some(end);
            }
            if total == Some(bytes.len()) {
                let Ok(FragmentStatus::Complete(slot)) = got else {
                    return Err(TestCaseError::fail(format!("not complete: {got:?}")));
                };
                let whole = r.take(slot);
                let expected: Vec<u8> = bytes.values().copied().collect();
                prop_assert_eq!(&whole.bytes, &expected);
                r.give(whole);
                (bytes, total) = Default::default();
            } else {
                prop_assert!(matches!(got, Ok(FragmentStatus::Waiting | FragmentStatus::Started(_))));
            }
        }
    }
}
