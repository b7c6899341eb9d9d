//! Buffers of consecutive pages of a receive stream: none if nothing is unread, one for a request,
//! many for bulk data. Only many need memory of their own, which is freed with the last of them.

use std::collections::VecDeque;

/// The buffers, starting with the first page's.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// No page.
    #[default]
    None,
    /// One.
    One(u32),
    /// More; at least one.
    #[expect(
        clippy::box_collection,
        reason = "few connections have many: one word instead of four"
    )]
    Many(Box<VecDeque<u32>>),
}

impl Pages {
    /// The number of pages.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Many(all) => all.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::None
    }

    /// The buffer of the page at an index.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut u32> {
        match self {
            Self::One(buffer) if place == 0 => Some(buffer),
            Self::None | Self::One(_) => None,
            Self::Many(all) => all.get_mut(place),
        }
    }

    /// Adds the buffer of the next page.
    pub fn push(&mut self, buffer: u32) {
        match self {
            Self::None => *self = Self::One(buffer),
            Self::One(first) => *self = Self::Many(Box::new(VecDeque::from([*first, buffer]))),
            Self::Many(all) => all.push_back(buffer),
        }
    }

    /// Takes the buffer of the first page.
    pub fn pop(&mut self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::One(buffer) => {
                let buffer = *buffer;
                *self = Self::None;
                Some(buffer)
            }
            Self::Many(all) => {
                let first = all.pop_front();
                if all.is_empty() {
                    *self = Self::None;
                }
                first
            }
        }
    }

    /// The buffers in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(buffer) => (Some(*buffer), None),
            Self::Many(all) => (None, Some(all)),
        };
        one.into_iter().chain(many.into_iter().flat_map(|all| all.iter().copied()))
    }
}

impl FromIterator<u32> for Pages {
    fn from_iter<I: IntoIterator<Item = u32>>(buffers: I) -> Self {
        let mut pages = Self::None;
        buffers.into_iter().for_each(|buffer| pages.push(buffer));
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_in_their_order_and_leave_nothing_behind() {
        for count in 0..10 {
            let mut pages: Pages = (0..count).collect();
            assert_eq!(pages.len(), count as usize);
            assert_eq!(pages.get_mut(count as usize), None);
            assert!(pages.iter().eq(0..count));
            for page in 0..count {
                assert_eq!(pages.get_mut(0).copied(), Some(page));
                assert_eq!(pages.pop(), Some(page));
            }
            assert_eq!((pages.pop(), pages), (None, Pages::None));
        }
    }
}
