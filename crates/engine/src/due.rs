//! What a turn has to look at: sets that are walked in the order of their members, so that idle
//! sessions and lanes cost nothing.

use crate::requests::LaneRef;

/// Bits of a word.
const WORD_BITS: u32 = u64::BITS;

/// A set of session places.
#[derive(Clone, Debug, Default)]
pub struct PlaceSet {
    words: Vec<u64>,
}

impl PlaceSet {
    /// Adds a place.
    pub fn insert(&mut self, place: u32) {
        let word = (place / WORD_BITS) as usize;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        if let Some(bits) = self.words.get_mut(word) {
            *bits |= 1 << (place % WORD_BITS);
        }
    }

    /// Takes a place out.
    pub fn remove(&mut self, place: u32) {
        if let Some(bits) = self.words.get_mut((place / WORD_BITS) as usize) {
            *bits &= !(1 << (place % WORD_BITS));
        }
    }

    /// Whether a place is in it.
    pub fn contains(&self, place: u32) -> bool {
        self.next(place) == Some(place)
    }

    /// The first place that is not before `from`.
    pub fn next(&self, from: u32) -> Option<u32> {
        let first = from / WORD_BITS;
        let mut mask = u64::MAX << (from % WORD_BITS);
        for (word, bits) in (first..).zip(self.words.iter().skip(first as usize)) {
            let left = bits & mask;
            if left != 0 {
                return Some(word * WORD_BITS + left.trailing_zeros());
            }
            mask = u64::MAX;
        }
        None
    }
}

/// A set of lanes, by their sessions' places and their contexts.
#[derive(Clone, Debug, Default)]
pub struct LaneSet {
    lanes: Vec<LaneRef>,
}

impl LaneSet {
    /// Adds a lane.
    pub fn insert(&mut self, lane: LaneRef) {
        if let Err(at) = self.lanes.binary_search(&lane) {
            self.lanes.insert(at, lane);
        }
    }

    /// Takes a lane out.
    pub fn remove(&mut self, lane: LaneRef) {
        if let Ok(at) = self.lanes.binary_search(&lane) {
            self.lanes.remove(at);
        }
    }

    /// Takes all lanes of a session out.
    pub fn remove_session(&mut self, place: u32) {
        self.lanes.retain(|lane| lane.place != place);
    }

    /// Whether a lane is in it.
    pub fn contains(&self, lane: LaneRef) -> bool {
        self.lanes.binary_search(&lane).is_ok()
    }

    /// The lane with so many others before it.
    pub fn get(&self, position: usize) -> Option<LaneRef> {
        self.lanes.get(position).copied()
    }
}

/// What the next turn has to look at.
#[derive(Debug, Default)]
pub struct Due {
    /// Lanes whose rings are looked at every turn.
    pub polled: LaneSet,
    /// Sessions that may have lanes to be finished.
    pub finish: PlaceSet,
    /// Sessions that may wait for buffers or spans.
    pub retry: PlaceSet,
}

impl Due {
    /// A session is gone.
    pub fn remove_session(&mut self, place: u32) {
        self.polled.remove_session(place);
        self.finish.remove(place);
        self.retry.remove(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(set: &PlaceSet) -> Vec<u32> {
        std::iter::successors(set.next(0), |place| set.next(place + 1)).collect()
    }

    #[test]
    fn places_come_in_order_and_once() {
        let mut set = PlaceSet::default();
        assert_eq!(set.next(0), None);
        for place in [200, 0, 63, 64, 5, 200] {
            set.insert(place);
        }
        assert_eq!(places(&set), [0, 5, 63, 64, 200]);
        set.remove(63);
        set.remove(1000);
        assert_eq!(places(&set), [0, 5, 64, 200]);
        assert!(set.contains(64) && !set.contains(63));
        assert_eq!((set.next(65), set.next(201), set.next(10_000)), (Some(200), None, None));
    }

    #[test]
    fn lanes_come_in_the_order_of_their_sessions() {
        let at = |place, lane| LaneRef { place, lane };
        let mut set = LaneSet::default();
        for lane in [at(1, 0), at(0, 2), at(0, 0), at(1, 1), at(0, 0)] {
            set.insert(lane);
        }
        set.remove(at(1, 0));
        set.remove(at(7, 0));
        let all: Vec<LaneRef> = (0..).map_while(|position| set.get(position)).collect();
        assert_eq!(all, [at(0, 0), at(0, 2), at(1, 1)]);
        set.remove_session(0);
        assert!(set.contains(at(1, 1)) && !set.contains(at(0, 0)));
    }
}
