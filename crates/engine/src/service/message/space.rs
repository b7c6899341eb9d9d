//! Memory for the payload of one message to a program: pages of the session's buffers. Payload
//! without a free buffer is in private memory until it can be handed over.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use shm::descriptor::Span;
use shm::message::ENTRY_BYTES;

use super::endpoint::Port;
use crate::session::Session;

/// Maximum first piece of a message that shares a buffer with others.
const HEAD_MAX: usize = 2048;

/// Location of bytes.
pub(super) enum Page {
    /// None: no bytes have arrived.
    Empty,
    /// A buffer of the session, of which this is a user.
    Buffer(u32),
    /// In private memory.
    Private(PrivatePage),
}

/// A page of private memory, counted by its session.
pub(super) struct PrivatePage {
    /// The bytes.
    pub bytes: Box<[u8]>,
    count: Arc<AtomicU32>,
}

impl PrivatePage {
    fn new(session: &Session) -> Self {
        let count = Arc::clone(&session.private_pages);
        count.fetch_add(1, Ordering::Relaxed);
        let page_bytes = session.region.geometry().buffer_bytes as usize;
        Self { bytes: vec![0; page_bytes].into_boxed_slice(), count }
    }
}

impl Drop for PrivatePage {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The first bytes of a message, with room for an entry before them, in a shared buffer.
#[derive(Clone, Copy)]
pub(super) struct Head {
    /// The buffer, of which this is a user.
    pub buffer: u32,
    /// The entry and the bytes.
    pub span: Span,
}

impl Head {
    /// Bytes of the message.
    pub fn len(&self) -> u32 {
        self.span.len - ENTRY_BYTES as u32
    }
}

/// The memory of a message.
#[derive(Default)]
pub(super) struct Space {
    head: Option<Head>,
    /// Bytes of the message before the first page.
    taken: u32,
    pages: VecDeque<Page>,
}

/// A part of a message to be handed over.
pub(super) enum Part {
    /// The head.
    Head(Head),
    /// Bytes `start ..` of a page.
    Page {
        /// The page.
        page: Page,
        /// From the start of the page.
        start: u32,
        /// How many.
        len: u32,
    },
}

impl Space {
    /// Writes bytes of the message. Memory is always found.
    pub fn write(&mut self, port: &mut Port, session: &mut Session, offset: u32, bytes: &[u8]) {
        let page_bytes = session.region.geometry().buffer_bytes;
        if offset == 0
            && self.head.is_none()
            && self.taken == 0
            && self.pages.is_empty()
            && bytes.len() <= HEAD_MAX
            && let Some((buffer, span)) = port.carve(session, (ENTRY_BYTES + bytes.len()) as u32)
        {
            session.region.write_buffer(span.part(ENTRY_BYTES as u32, u32::MAX), bytes);
            self.head = Some(Head { buffer, span });
            return;
        }
        let (mut at, mut rest) = (offset, bytes);
        if let Some(head) = self.head.filter(|head| at < head.len()) {
            let here = ((head.len() - at) as usize).min(rest.len());
            let (now, later) = rest.split_at(here);
            session.region.write_buffer(head.span.part(ENTRY_BYTES as u32 + at, u32::MAX), now);
            (at, rest) = (at + here as u32, later);
        }
        while !rest.is_empty() {
            let within = at % page_bytes;
            let (now, later) = rest.split_at(rest.len().min((page_bytes - within) as usize));
            // Bytes that were handed over are not written again.
            if let Some(place) = at.checked_sub(self.taken) {
                let index = (place / page_bytes) as usize;
                while self.pages.len() <= index {
                    self.pages.push_back(Page::Empty);
                }
                if let Some(page) = self.pages.get_mut(index) {
                    fill(page, port, session, within, now);
                }
            }
            (at, rest) = (at + now.len() as u32, later);
        }
    }

    /// Reads bytes of the message to `out`.
    pub fn read(&self, session: &Session, offset: u32, out: &mut [u8]) {
        let page_bytes = session.region.geometry().buffer_bytes;
        let mut at = offset;
        let mut out = out;
        if let Some(head) = self.head.filter(|head| at < head.len()) {
            let here = ((head.len() - at) as usize).min(out.len());
            let (now, later) = std::mem::take(&mut out).split_at_mut(here);
            session.region.read_buffer(head.span.part(ENTRY_BYTES as u32 + at, u32::MAX), now);
            (at, out) = (at + here as u32, later);
        }
        while !out.is_empty() {
            let within = at % page_bytes;
            let here = out.len().min((page_bytes - within) as usize);
            let (now, later) = std::mem::take(&mut out).split_at_mut(here);
            let page = at.checked_sub(self.taken);
            match page.and_then(|place| self.pages.get((place / page_bytes) as usize)) {
                Some(Page::Buffer(buffer)) => {
                    if let Some(whole) = session.region.buffer(*buffer) {
                        session.region.read_buffer(whole.part(within, u32::MAX), now);
                    }
                }
                Some(Page::Private(page)) => {
                    if let Some(from) = page.bytes.get(within as usize..within as usize + here) {
                        now.copy_from_slice(from);
                    }
                }
                Some(Page::Empty) | None => now.fill(0),
            }
            (at, out) = (at + here as u32, later);
        }
    }

    /// Hands over the bytes `from .. to`, which have arrived, in order; `from` is the end of the
    /// last call.
    pub fn take(&mut self, page_bytes: u32, from: u32, to: u32, mut each: impl FnMut(u32, Part)) {
        let mut at = from;
        if let Some(head) = self.head
            && at < head.len()
            && to >= head.len()
        {
            self.head = None;
            each(at, Part::Head(head));
            at = head.len();
        }
        while at < to {
            let within = at % page_bytes;
            let len = (to - at).min(page_bytes - within);
            self.taken = self.taken.max(at - within);
            let page = match self.pages.pop_front() {
                Some(page) => page,
                None => Page::Empty,
            };
            // The last page may end beyond the maximum message length.
            self.taken = self.taken.saturating_add(page_bytes);
            each(at, Part::Page { page, start: within, len });
            at += len;
        }
    }

    /// Releases all of it.
    pub fn release(&mut self, session: &mut Session) {
        if let Some(head) = self.head.take() {
            session.pool.unshare(head.buffer);
        }
        for page in self.pages.drain(..) {
            if let Page::Buffer(buffer) = page {
                session.pool.unshare(buffer);
            }
        }
    }

    /// Takes buffers for a whole message; `false` if there are too few.
    pub fn reserve(&mut self, session: &mut Session, pages: u32) -> bool {
        for _ in 0..pages {
            let Some(buffer) = session.pool.take_shared() else {
                self.release(session);
                return false;
            };
            self.pages.push_back(Page::Buffer(buffer));
        }
        true
    }
}

fn fill(page: &mut Page, port: &mut Port, session: &mut Session, within: u32, bytes: &[u8]) {
    if matches!(page, Page::Empty) {
        *page = match port.buffer(session) {
            Some(buffer) => Page::Buffer(buffer),
            None => {
                port.spilled += 1;
                Page::Private(PrivatePage::new(session))
            }
        };
    }
    match page {
        Page::Buffer(buffer) => {
            if let Some(whole) = session.region.buffer(*buffer) {
                session.region.write_buffer(whole.part(within, u32::MAX), bytes);
            }
        }
        Page::Private(private) => {
            let start = within as usize;
            if let Some(room) = private.bytes.get_mut(start..start + bytes.len()) {
                room.copy_from_slice(bytes);
            }
        }
        Page::Empty => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_page_of_the_longest_message_is_handed_over() {
        let mut space = Space { taken: u32::MAX - 99, ..Space::default() };
        let mut lens = Vec::new();
        space.take(1 << 16, u32::MAX - 99, u32::MAX, |at, part| match part {
            Part::Page { len, .. } => lens.push((at, len)),
            Part::Head(_) => panic!("there is no head"),
        });
        assert_eq!(lens, [(u32::MAX - 99, 99)]);
    }
}
