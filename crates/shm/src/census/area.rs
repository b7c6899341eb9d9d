//! The census in the header page of a region, behind the words for crash dumps: a cache line for each
//! line. The client writes it, the engine reads it for observers.

use super::{CENSUS_LINES, CensusLine, IDENTITY_WORDS, Subject};
use crate::layout::{HEADER_BYTES, LINE_BYTES};
use crate::region::Region;
use crate::sync::Ordering;

const COUNT: usize = IDENTITY_WORDS * 8;

const _: () = {
    assert!(LINE_BYTES + CENSUS_LINES * LINE_BYTES <= HEADER_BYTES);
    assert!(COUNT + 8 <= LINE_BYTES);
};

fn start(place: usize) -> usize {
    LINE_BYTES + place * LINE_BYTES
}

impl Region {
    /// Writes a line of the client's. A place keeps its subject for the life of the region. Nothing is
    /// written beyond the last place.
    pub fn put_census_line(&self, place: usize, line: &CensusLine) {
        if place >= CENSUS_LINES {
            return;
        }
        let at = start(place);
        let [head, rest @ ..] = line.subject.encode();
        self.store(at + COUNT, line.count, Ordering::Relaxed);
        for (index, word) in rest.into_iter().enumerate() {
            self.store(at + 8 * (index + 1), word, Ordering::Relaxed);
        }
        // Pairs with the Acquire below: a head that is not 0 says that the rest is there.
        self.store(at, head, Ordering::Release);
    }

    /// The client's lines that count something, as far as they are lines at all.
    pub fn census_lines(&self) -> impl Iterator<Item = CensusLine> {
        (0..CENSUS_LINES).filter_map(|place| {
            let at = start(place);
            let head = self.load(at, Ordering::Acquire);
            if head == 0 {
                return None;
            }
            let word = |index: usize| self.load(at + 8 * index, Ordering::Relaxed);
            let subject = Subject::decode([head, word(1), word(2), word(3)])?;
            let count = self.load(at + COUNT, Ordering::Relaxed);
            (count > 0).then_some(CensusLine { subject, count })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Reason};
    use super::*;
    use crate::control::Geometry;

    #[test]
    fn lines_lie_in_the_header_page_and_garbage_is_none() {
        let region = Region::private(Geometry { buffer_count: 2, ..Geometry::default() }).unwrap();
        assert_eq!(region.census_lines().count(), 0);
        let line = |place: usize, count| CensusLine {
            subject: Subject {
                kind: Kind::Opened,
                address: Some(([192, 0, 2, 1], place as u16).into()),
                reason: Some(Reason::NoRoute),
            },
            count,
        };
        for place in 0..CENSUS_LINES + 1 {
            region.put_census_line(place, &line(place, 1 + place as u64));
        }
        let told: Vec<_> = region.census_lines().collect();
        let put: Vec<_> = (0..CENSUS_LINES).map(|place| line(place, 1 + place as u64)).collect();
        assert_eq!(told, put);
        region.put_census_line(0, &line(0, 0));
        for word in 0..8 {
            assert!(region.scribble((2 * LINE_BYTES + word * 8) as u64, u64::MAX));
        }
        assert_eq!(region.census_lines().count(), CENSUS_LINES - 2);
    }
}
