//! Ownership of the buffers of a session's region. The table is in private memory, so a client
//! cannot change it by writing to the region.
//!
//! `free + granted + closing + receiving == total` at all times ([`Pool::census`]).

use shm::descriptor::REGISTERED;
use shm::engine_side::TakenDescriptor;

use crate::registered::Registrations;

/// Maximum bytes of a datagram and its metadata, including our header.
const DATAGRAM_BYTES_MAX: u32 = 66 << 10;

/// Why a buffer could not be used as the client requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotGranted;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Free,
    /// The client's, to take spans from.
    Granted,
    /// No more spans will be taken; some are outstanding.
    Closing,
    /// Holds received bytes.
    Receiving,
}

#[derive(Clone, Copy, Debug)]
struct Buffer {
    holder: Holder,
    lane: u16,
    spans: u32,
    /// Number of messages in a receiving buffer.
    users: u32,
    /// Bytes from which the client can take no more spans.
    carved: u32,
}

/// Buffers by holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// In the pool.
    pub free: u32,
    /// In a lane's stock or being filled by the client.
    pub granted: u32,
    /// Sent, not yet acknowledged.
    pub closing: u32,
    /// Holding received bytes.
    pub receiving: u32,
}

/// The buffers of one session.
#[derive(Clone, Debug)]
pub struct Pool {
    buffers: Vec<Buffer>,
    /// Last in, first out: the buffer returned last is the warmest.
    free: Vec<u32>,
    /// Buffers that sending cannot take, so that two sides that only write cannot block each
    /// other's reading forever.
    reserve: usize,
    /// Buffers that received bytes cannot take, so that a program can still send what the
    /// consumption of those bytes depends on.
    reserve_to_send: usize,
    /// Buffers that hold received bytes.
    receiving: usize,
    /// Those that hold datagrams, and their maximum: senders of datagrams are not limited by a
    /// window, and must not take buffers promised to streams.
    datagrams: usize,
    datagrams_most: usize,
    /// Sockets that receive datagrams.
    datagram_sockets: usize,
    /// Buffers that hold messages.
    shared: u32,
    buffer_bytes: u32,
    /// The session's registered memories, whose spans are held like those of buffers.
    pub registered: Registrations,
}

impl Pool {
    /// A pool of `count` free buffers of `buffer_bytes`, a quarter of them reserved for receiving
    /// and an eighth for sending. Unread datagrams may take a quarter, or enough for the longest
    /// datagram if that is at most half.
    /// more than half.
    pub fn new(count: u32, buffer_bytes: u32) -> Self {
        let longest = DATAGRAM_BYTES_MAX.div_ceil(buffer_bytes.max(1)).min(count / 2);
        Self {
            buffers: vec![
                Buffer { holder: Holder::Free, lane: 0, spans: 0, users: 0, carved: 0 };
                count as usize
            ],
            free: (0..count).rev().collect(),
            reserve: count as usize / 4,
            reserve_to_send: count as usize / 8,
            receiving: 0,
            datagrams: 0,
            datagrams_most: (count / 4).max(longest) as usize,
            datagram_sockets: 0,
            shared: 0,
            buffer_bytes,
            registered: Registrations::default(),
        }
    }

    /// Takes a buffer for the stock of `lane`.
    pub fn take_for_lane(&mut self, lane: u16) -> Option<u32> {
        if self.sendable() == 0 {
            return None;
        }
        let index = self.free.pop()?;
        let buffer = self.buffers.get_mut(index as usize)?;
        *buffer = Buffer { holder: Holder::Granted, lane, spans: 0, users: 0, carved: 0 };
        Some(index)
    }

    /// Buffers that [`Pool::take_for_lane`] could still give.
    pub fn sendable(&self) -> u32 {
        let beyond_reserve = self.free.len().saturating_sub(self.reserve);
        let sending = self.buffers.len() - self.free.len() - self.receiving;
        let guaranteed = self.reserve_to_send.saturating_sub(sending).min(self.free.len());
        beyond_reserve.max(guaranteed) as u32
    }

    /// Whether less than half of the buffers are free, so that they are kept for data that can be
    /// used at once.
    pub fn is_scarce(&self) -> bool {
        self.free.len() < self.buffers.len() / 2
    }

    /// Takes a buffer for received bytes.
    pub fn take_for_receive(&mut self) -> Option<u32> {
        if self.free_for_receive() == 0 {
            return None;
        }
        let index = self.free.pop()?;
        let buffer = self.buffers.get_mut(index as usize)?;
        *buffer = Buffer { holder: Holder::Receiving, lane: 0, spans: 0, users: 0, carved: 0 };
        self.receiving += 1;
        Some(index)
    }

    /// The number of buffers available for received bytes.
    fn free_for_receive(&self) -> usize {
        self.free.len().min(self.receivable().saturating_sub(self.receiving))
    }

    /// The maximum number of buffers with received bytes.
    fn receivable(&self) -> usize {
        self.buffers.len() - self.reserve_to_send
    }

    /// The number of buffers available for datagrams.
    pub fn free_for_datagrams(&self) -> usize {
        self.free_for_receive().min(self.datagrams_most.saturating_sub(self.datagrams))
    }

    /// Takes a buffer for received datagrams, to be returned by [`Pool::give_datagrams`].
    pub fn take_for_datagrams(&mut self) -> Option<u32> {
        if self.free_for_datagrams() == 0 {
            return None;
        }
        let buffer = self.take_for_receive()?;
        self.datagrams += 1;
        Some(buffer)
    }

    /// Returns a buffer of datagrams.
    pub fn give_datagrams(&mut self, index: u32) {
        self.give_received(index);
        self.datagrams -= 1;
    }

    /// Takes a buffer for messages, with one user.
    pub fn take_shared(&mut self) -> Option<u32> {
        let index = self.take_for_receive()?;
        self.shared += 1;
        self.share(index);
        Some(index)
    }

    /// Adds a user to a buffer of messages.
    pub fn share(&mut self, index: u32) {
        if let Some(buffer) = self.buffers.get_mut(index as usize) {
            buffer.users = buffer.users.saturating_add(1);
        }
    }

    /// Removes a user; the last one returns the buffer.
    pub fn unshare(&mut self, index: u32) {
        let Some(buffer) = self.buffers.get_mut(index as usize) else { return };
        assert!(buffer.users > 0, "a user leaves once");
        buffer.users -= 1;
        if buffer.users == 0 {
            self.shared -= 1;
            self.give_received(index);
        }
    }

    /// Buffers that hold messages.
    pub fn shared(&self) -> u32 {
        self.shared
    }

    /// A socket that receives datagrams was added.
    pub fn add_datagram_socket(&mut self) {
        self.datagram_sockets += 1;
    }

    /// A socket that receives datagrams was removed.
    pub fn remove_datagram_socket(&mut self) {
        self.datagram_sockets -= 1;
    }

    /// Returns a receiving buffer.
    pub fn give_received(&mut self, index: u32) {
        if let Some(buffer) = self.buffers.get_mut(index as usize) {
            assert_eq!(buffer.holder, Holder::Receiving, "a buffer is given back by its holder");
            buffer.holder = Holder::Free;
            self.receiving -= 1;
            self.free.push(index);
        }
    }

    /// Bytes that receive streams hold or could hold: the free buffers and their own, except for
    /// those kept for datagrams.
    pub fn receivable_bytes(&self) -> u64 {
        let kept = if self.datagram_sockets > 0 { self.datagrams_most } else { self.datagrams };
        let all = (self.free.len() + self.receiving).min(self.receivable());
        all.saturating_sub(kept) as u64 * u64::from(self.buffer_bytes)
    }

    /// A client passes the span of a descriptor on `lane` to the engine: a span of a buffer, or of
    /// registered memory.
    pub fn hold(&mut self, of: &TakenDescriptor, lane: u16) -> Result<u32, NotGranted> {
        let buffer = of.buffer.ok_or(NotGranted)?;
        if buffer & REGISTERED == 0 {
            return self.on_span(buffer, lane, of.extent).map(|()| buffer);
        }
        if self.registered.hold(of.span) { Ok(buffer) } else { Err(NotGranted) }
    }

    /// A client passes a span of buffer `index` on `lane` to the engine. This uses up `extent`
    /// bytes of the buffer. A buffer that is used up returns with its last span.
    pub fn on_span(&mut self, index: u32, lane: u16, extent: u32) -> Result<(), NotGranted> {
        let buffer = self.buffers.get_mut(index as usize).ok_or(NotGranted)?;
        if buffer.holder != Holder::Granted || buffer.lane != lane {
            return Err(NotGranted);
        }
        buffer.spans = buffer.spans.saturating_add(1);
        buffer.carved = buffer.carved.saturating_add(extent);
        if buffer.carved >= self.buffer_bytes {
            buffer.holder = Holder::Closing;
        }
        Ok(())
    }

    /// A span of buffer `index`, or of registered memory, is no longer in use.
    pub fn drop_span(&mut self, index: u32) {
        if index & REGISTERED != 0 {
            return self.registered.release(index as u16);
        }
        if let Some(buffer) = self.buffers.get_mut(index as usize) {
            assert!(buffer.spans > 0, "a span is dropped once");
            buffer.spans = buffer.spans.saturating_sub(1);
            self.free_if_done(index);
        }
    }

    fn free_if_done(&mut self, index: u32) {
        if let Some(buffer) = self.buffers.get_mut(index as usize)
            && buffer.holder == Holder::Closing
            && buffer.spans == 0
        {
            buffer.holder = Holder::Free;
            self.free.push(index);
        }
    }

    /// Returns a buffer taken for a lane that the client has not seen.
    pub fn revoke(&mut self, index: u32) {
        if let Some(buffer) = self.buffers.get_mut(index as usize) {
            assert_eq!(buffer.holder, Holder::Granted, "only a granted buffer is revoked");
            buffer.holder = Holder::Closing;
            self.free_if_done(index);
        }
    }

    /// The client is gone: its granted buffers return, at once or with their last span.
    pub fn revoke_granted(&mut self) {
        for index in 0..self.buffers.len() as u32 {
            if let Some(buffer) = self.buffers.get_mut(index as usize)
                && buffer.holder == Holder::Granted
            {
                buffer.holder = Holder::Closing;
                self.free_if_done(index);
            }
        }
    }

    /// Buffers in the pool.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Total number of buffers.
    pub fn total(&self) -> u32 {
        self.buffers.len() as u32
    }

    /// Spans of closing buffers and of registered memory; a scan, for checks only.
    pub fn outstanding_spans(&self) -> u32 {
        self.buffers.iter().map(|buffer| buffer.spans).sum::<u32>() + self.registered.spans()
    }

    /// Counts all buffers by holder; a scan, for statistics and checks only.
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for buffer in &self.buffers {
            match buffer.holder {
                Holder::Free => census.free += 1,
                Holder::Granted => census.granted += 1,
                Holder::Closing => census.closing += 1,
                Holder::Receiving => census.receiving += 1,
            }
        }
        census
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_returns_with_its_last_span_once_it_is_closed() {
        let mut pool = Pool::new(8, 1024);
        let buffer = pool.take_for_lane(3).unwrap();
        pool.on_span(buffer, 3, 64).unwrap();
        pool.drop_span(buffer);
        assert_eq!(pool.free(), 7);
        pool.on_span(buffer, 3, 960).unwrap();
        assert_eq!(pool.free(), 7);
        assert_eq!(pool.on_span(buffer, 3, 64), Err(NotGranted));
        pool.drop_span(buffer);
        assert_eq!(pool.free(), 8);
    }

    #[test]
    fn a_span_of_a_buffer_that_was_not_granted_to_the_lane_is_refused() {
        let mut pool = Pool::new(8, 1024);
        let buffer = pool.take_for_lane(0).unwrap();
        assert_eq!(pool.on_span(buffer, 1, 64), Err(NotGranted));
        assert_eq!(pool.on_span(buffer + 1, 0, 64), Err(NotGranted));
        assert_eq!(pool.on_span(99, 0, 64), Err(NotGranted));
        let received = pool.take_for_receive().unwrap();
        assert_eq!(pool.on_span(received, 0, 64), Err(NotGranted));
    }

    #[test]
    fn a_buffer_of_messages_returns_with_its_last_user() {
        let mut pool = Pool::new(8, 1024);
        let buffer = pool.take_shared().unwrap();
        pool.share(buffer);
        pool.unshare(buffer);
        assert_eq!((pool.free(), pool.shared(), pool.census().receiving), (7, 1, 1));
        pool.unshare(buffer);
        assert_eq!((pool.free(), pool.shared(), pool.census().receiving), (8, 0, 0));
    }

    #[test]
    fn sending_leaves_a_reserve_to_receiving() {
        let mut pool = Pool::new(8, 1024);
        let mut granted = 0;
        while pool.take_for_lane(0).is_some() {
            granted += 1;
        }
        assert_eq!(granted, 6);
        assert!(pool.take_for_receive().is_some());
        pool.revoke_granted();
        assert_eq!(pool.free(), 7);
        let census = pool.census();
        assert_eq!(census.free + census.granted + census.closing + census.receiving, 8);
    }

    /// A program that did not read, as it had to write first, never could: unread bytes held what sending
    /// is done with.
    #[test]
    fn receiving_leaves_a_reserve_to_sending() {
        let mut pool = Pool::new(16, 1024);
        let mut received = 0;
        while pool.take_for_receive().is_some() {
            received += 1;
        }
        assert_eq!((received, pool.free_for_datagrams()), (14, 0));
        assert!(pool.take_for_lane(0).is_some() && pool.take_for_lane(0).is_some());
        assert!(pool.take_for_lane(0).is_none());
    }

    /// Unread datagrams took every buffer, and then streams had none for what their windows allowed.
    #[test]
    fn datagrams_take_a_part_of_the_buffers_that_streams_were_not_promised() {
        let mut pool = Pool::new(400, 1024);
        assert_eq!(pool.receivable_bytes(), 350 << 10);
        pool.add_datagram_socket();
        assert_eq!(pool.receivable_bytes(), 250 << 10);
        let taken: Vec<u32> = std::iter::from_fn(|| pool.take_for_datagrams()).collect();
        assert_eq!((taken.len(), pool.free_for_datagrams()), (100, 0));
        assert_eq!((pool.receivable_bytes(), pool.free()), (250 << 10, 300));
        taken.iter().for_each(|buffer| pool.give_datagrams(*buffer));
        pool.remove_datagram_socket();
        assert_eq!(pool.receivable_bytes(), 350 << 10);
        // The longest one finds room in a small pool, too.
        assert_eq!(Pool::new(160, 1024).free_for_datagrams(), 66);
    }
}
