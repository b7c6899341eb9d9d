//! The engine's private state of an endpoint: what was granted, what was seen, which buffers it
//! holds. Nothing here is read back from the region.

use std::collections::VecDeque;

use shm::descriptor::Span;
use shm::engine_side::EngineEndpoint;
use stack::api::{SocketId, UdpOptions, Urgent};

use crate::control::exchange::SocketKey;
use crate::pages::Pages;
use crate::promises::Promise;
use crate::room::Room;
use crate::service::message::MessageEndpoint;
use crate::share::Entry;
use crate::spans::SpanList;

/// No buffer.
pub const NO_BUFFER: u32 = u32::MAX;

/// One endpoint of a session.
pub struct Endpoint {
    /// The shared area.
    pub view: EngineEndpoint,
    /// Lane for its events.
    pub lane: u16,
    /// The kernel socket that gives it the right to its port.
    pub shown: Option<SocketKey>,
    /// It is in the worker's list of endpoints with news.
    pub has_news: bool,
    /// Its use.
    pub role: Role,
}

/// An endpoint of a session, and the socket of the stack that it must still have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointSocket {
    /// The endpoint.
    pub index: u32,
    /// The socket; another one has the endpoint after it was closed and granted anew.
    pub id: SocketId,
}

/// What an endpoint is used as.
pub enum Role {
    /// Unused; it may be granted.
    Free,
    /// A TCP connection.
    Stream(Stream),
    /// A listener, by its index in the worker's table.
    Listener(u32),
    /// A UDP socket.
    Datagram(Box<Datagram>),
    /// A raw endpoint, by its slot in the worker's table.
    Raw(u32),
    /// An endpoint of messages.
    Messages(MessageEndpoint),
    /// Its port was given up when the program closed the kernel socket; it waits for its own close.
    Revoked,
    /// Its connection was moved to the relay; it waits for its own close.
    Moved,
}

/// What an endpoint holds, for [`Worker::check_conservation`](crate::Worker::check_conservation). The message
/// service and raw endpoints account for theirs themselves.
impl Role {
    /// Spans in the session's slab.
    pub(crate) fn listed_spans(&self) -> u32 {
        match self {
            Self::Stream(stream) => stream.send.list.count(),
            _ => 0,
        }
    }

    /// Other spans that keep buffers from returning to the pool.
    pub(crate) fn held_spans(&self) -> u32 {
        match self {
            Self::Datagram(datagram) => datagram.held.len() as u32,
            _ => 0,
        }
    }

    /// Buffers with received bytes.
    pub(crate) fn receive_buffers(&self) -> usize {
        match self {
            Self::Stream(stream) => {
                stream.receive.pages.iter().filter(|buffer| *buffer != NO_BUFFER).count()
            }
            Self::Datagram(datagram) => datagram.buffers.len(),
            _ => 0,
        }
    }
}

/// A TCP connection as the engine sees it.
pub struct Stream {
    /// The connection in the stack.
    pub id: SocketId,
    /// The send half.
    pub send: SendHalf,
    /// The receive half.
    pub receive: ReceiveHalf,
    /// Bits as last published.
    pub status: shm::Status,
    /// The peer's urgent byte, as last published.
    pub urgent: Urgent,
    /// There is news other than send progress.
    pub urgent_news: bool,
    /// The number of connections of the session up to this one.
    pub born: u64,
}

impl Stream {
    /// A connection that was just opened or accepted.
    pub fn new(id: SocketId) -> Self {
        Self {
            id,
            send: SendHalf::default(),
            receive: ReceiveHalf::default(),
            status: shm::Status::empty(),
            urgent: Urgent::default(),
            urgent_news: false,
            born: 0,
        }
    }
}

/// Bytes from the client to the peer.
pub struct SendHalf {
    /// Spans not yet acknowledged.
    pub list: SpanList,
    /// Acknowledged, as last published.
    pub acked: u64,
    /// Bytes worth preparing, as last published.
    pub room: u32,
    /// Bytes sent, counted only if `unsent_most` is a limit.
    pub sent: u64,
    /// Bytes that may be written and unsent, as last published; [`u32::MAX`] for no limit.
    pub unsent_most: u32,
    /// Bytes of a frame, as last published; 0 at first.
    pub frame_bytes: u32,
    /// An event since its last write told the client that there is room.
    pub room_told: bool,
    /// The client writes no more.
    pub fin: bool,
    /// The stack knows that.
    pub shut: bool,
    /// Not all written data could be taken at the close: the stream must not look complete.
    pub is_cut: bool,
    /// Descriptors were taken since the last report to the client.
    pub taken_news: bool,
    /// Holds the maximum number of spans of one connection; further descriptors wait.
    pub at_share: bool,
    /// In the session's list of endpoints with descriptors that wait for a span.
    pub waits_for_span: bool,
    /// The program waits for room, and the stack knows.
    pub waits_for_room: bool,
}

impl Default for SendHalf {
    fn default() -> Self {
        Self {
            list: SpanList::default(),
            acked: 0,
            room: 0,
            sent: 0,
            unsent_most: u32::MAX,
            frame_bytes: 0,
            room_told: false,
            fin: false,
            shut: false,
            is_cut: false,
            taken_news: false,
            at_share: false,
            waits_for_span: false,
            waits_for_room: false,
        }
    }
}

impl SendHalf {
    /// Whether a client with limited unsent data may write more, and has had no event since its
    /// last write.
    pub fn has_new_room(&mut self) -> bool {
        if self.unsent_most == u32::MAX || self.room_told {
            return false;
        }
        // As in the kernel: woken when half of it is sent.
        let unsent = self.list.end().saturating_sub(self.sent);
        self.room_told = unsent * 2 < u64::from(self.unsent_most);
        self.room_told
    }
}

/// Bytes from the peer to the client.
#[derive(Default)]
pub struct ReceiveHalf {
    /// Buffers of the pages from `base` on; [`NO_BUFFER`] for pages without data.
    pub pages: Pages,
    /// Number of the first page in `pages`.
    pub base: u64,
    /// One past the highest byte stored, in order or not.
    pub highest: u64,
    /// End of the contiguous stream according to in-order segments; filled gaps appear in
    /// `readable`.
    pub next: u64,
    /// End of the contiguous stream, as last published.
    pub readable: u64,
    /// As last read from the client.
    pub consumed: u64,
    /// In the session's list of endpoints that hold pages without a doorbell request.
    pub is_unswept: bool,
    /// The client reads no more: bytes are dropped on arrival.
    pub deaf: bool,
    /// The window as last reported by the stack.
    pub window: u32,
    /// Buffers of the pool promised to it.
    pub promise: Promise,
    /// Arrival times of bytes, if requested.
    pub arrivals: Option<Box<Arrivals>>,
}

impl ReceiveHalf {
    /// The read position at which the client must ring so that the window can be opened.
    /// [`Worker::sweep`](crate::Worker::sweep) finds pages read before that.
    pub fn wanted(&self) -> u64 {
        if self.consumed >= self.readable {
            return u64::MAX;
        }
        self.consumed.saturating_add(u64::from(self.window / 4))
    }
}

/// Times kept for one connection; beyond, the newest bytes share the time of those before.
const ARRIVALS_MAX: usize = 4096;

/// Arrival times of a receive stream: the end offset of each arrival, and its time.
#[derive(Debug, Default)]
pub struct Arrivals(VecDeque<(u64, u64)>);

impl Arrivals {
    /// Bytes up to `end` have arrived now. Those before `consumed` are not queried any more.
    pub fn note(&mut self, end: u64, now_ns: u64, consumed: u64) {
        while self.0.pop_front_if(|(end, _)| *end < consumed).is_some() {}
        let is_full = self.0.len() == ARRIVALS_MAX;
        match self.0.back_mut() {
            Some(last) if is_full || last.1 == now_ns => last.0 = end,
            _ => self.0.push_back((end, now_ns)),
        }
    }

    /// Arrival time of the byte before `end`; 0 if unknown.
    pub fn of(&self, end: u64) -> u64 {
        let at = self.0.partition_point(|(known, _)| *known < end);
        self.0.get(at).map_or(0, |(_, at_ns)| *at_ns)
    }
}

/// A UDP socket as the engine sees it.
pub struct Datagram {
    /// The socket in the stack.
    pub id: SocketId,
    /// The entry that counts for its user.
    _entry: Entry,
    /// Datagrams sent or dropped.
    pub done: u64,
    /// Spans of the next datagram to send, with their buffers.
    pub held: Vec<(Span, u32)>,
    /// The last span of that datagram is among them.
    pub is_whole: bool,
    /// Bytes of it that were sent as separate datagrams.
    pub sent_bytes: u32,
    /// In the worker's list of sockets with a held datagram.
    pub waits: bool,
    /// Received, not yet published.
    pub unpublished: bool,
    /// Sent, not yet published.
    pub unpublished_sent: bool,
    /// Receive descriptors consumed by the client, as last read.
    pub consumed: u64,
    /// Buffers with received datagrams and the position after the last one in each, oldest first.
    pub buffers: VecDeque<(u64, u32)>,
    /// Bytes used in the last of `buffers`.
    pub fill: u32,
    /// Limit of unread data, if set by the client.
    pub room: Option<Room>,
    /// As set by the client; the stack keeps its own copy.
    pub options: UdpOptions,
    /// Coalesced datagrams are received whole (UDP_GRO).
    pub takes_coalesced: bool,
    /// Arrival times are recorded.
    pub is_stamped: bool,
}

impl Datagram {
    /// A fresh socket.
    pub fn new(id: SocketId, entry: Entry) -> Self {
        Self {
            id,
            _entry: entry,
            done: 0,
            held: Vec::new(),
            is_whole: false,
            sent_bytes: 0,
            waits: false,
            unpublished: false,
            unpublished_sent: false,
            consumed: 0,
            buffers: VecDeque::new(),
            fill: 0,
            room: None,
            options: UdpOptions::default(),
            takes_coalesced: false,
            is_stamped: false,
        }
    }
}
