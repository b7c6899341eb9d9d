//! The engine's private knowledge of an endpoint: what was granted, what was seen, which buffers
//! it holds. Nothing here is read back from the region.

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
    /// Lane that its events go to.
    pub lane: u16,
    /// The kernel socket that gives it the right to its port.
    pub shown: Option<SocketKey>,
    /// Named in the worker's list of endpoints with news.
    pub has_news: bool,
    /// What it is.
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
    /// Nothing: it may be granted.
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
    /// It had a port that its program has given up by closing the kernel's socket; it waits for
    /// its own close.
    Revoked,
    /// It had a connection that is the relay's now; it waits for its own close.
    Moved,
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
    /// There is news beside the progress of sending.
    pub urgent_news: bool,
    /// How many connections the session had had when it was made or accepted, this one included.
    pub born: u64,
}

impl Stream {
    /// A connection that has just been made or accepted.
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

/// Bytes from the client on their way out.
pub struct SendHalf {
    /// What is not acknowledged yet.
    pub list: SpanList,
    /// Acknowledged, as last published.
    pub acked: u64,
    /// Bytes worth having at hand, as last published.
    pub room: u32,
    /// Sent, as far as is kept count of: where `unsent_most` is a limit.
    pub sent: u64,
    /// Bytes that may be written and not sent, as last published; [`u32::MAX`] for no limit.
    pub unsent_most: u32,
    /// Bytes of a frame, as last published; 0 before.
    pub frame_bytes: u32,
    /// The client knows that it may write more, by an event since it last wrote.
    pub room_told: bool,
    /// The client has said that it writes no more.
    pub fin: bool,
    /// The stack has been told so.
    pub shut: bool,
    /// Not all of what was written could be taken at the close: the stream must not seem whole.
    pub is_cut: bool,
    /// Descriptors were taken since the client was last told.
    pub taken_news: bool,
    /// Holds as many spans as one connection may; descriptors wait.
    pub at_share: bool,
    /// In the session's list of endpoints whose descriptors had to wait for a span.
    pub waits_for_span: bool,
    /// The program waits for room, as the stack has been told.
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
    /// Whether a client whose writing ahead is limited may write more, and has not been told so since
    /// it last wrote.
    pub fn has_new_room(&mut self) -> bool {
        if self.unsent_most == u32::MAX || self.room_told {
            return false;
        }
        // As the kernel: woken when half of it is gone.
        let unsent = self.list.end().saturating_sub(self.sent);
        self.room_told = unsent * 2 < u64::from(self.unsent_most);
        self.room_told
    }
}

/// Bytes from the peer on their way in.
#[derive(Default)]
pub struct ReceiveHalf {
    /// Buffers of the pages from `base` on; [`NO_BUFFER`] where nothing has arrived yet.
    pub pages: Pages,
    /// Number of the first page in `pages`.
    pub base: u64,
    /// One past the last byte stored, in order or not.
    pub highest: u64,
    /// End of the contiguous stream as far as segments in order have brought it; filled gaps
    /// show in `readable`.
    pub next: u64,
    /// End of the contiguous stream, as last published.
    pub readable: u64,
    /// As last learnt from the client.
    pub consumed: u64,
    /// In the session's list of endpoints that hold pages and were not asked to ring.
    pub is_unswept: bool,
    /// The client reads no more: bytes are dropped as they come.
    pub deaf: bool,
    /// The window as the stack last said.
    pub window: u32,
    /// What of the pool this takes.
    pub promise: Promise,
    /// When bytes came, where that is asked for.
    pub arrivals: Option<Box<Arrivals>>,
}

impl ReceiveHalf {
    /// Where the client is to ring when it has read so far: when the window should be opened.
    /// Pages that it has read meanwhile are found by [`Worker::sweep`](crate::Worker::sweep).
    pub fn wanted(&self) -> u64 {
        if self.consumed >= self.readable {
            return u64::MAX;
        }
        self.consumed.saturating_add(u64::from(self.window / 4))
    }
}

/// Times kept for one connection; beyond them the newest bytes count as come with those before.
const ARRIVALS_MAX: usize = 4096;

/// When the bytes of a receive stream came: the end of what came at a time, and the time.
#[derive(Debug, Default)]
pub struct Arrivals(VecDeque<(u64, u64)>);

impl Arrivals {
    /// Bytes up to `end` have come now. Those before `consumed` are not asked about any more.
    pub fn note(&mut self, end: u64, now_ns: u64, consumed: u64) {
        while self.0.pop_front_if(|(end, _)| *end < consumed).is_some() {}
        let is_full = self.0.len() == ARRIVALS_MAX;
        match self.0.back_mut() {
            Some(last) if is_full || last.1 == now_ns => last.0 = end,
            _ => self.0.push_back((end, now_ns)),
        }
    }

    /// When the byte before `end` came; 0 where that is not known.
    pub fn of(&self, end: u64) -> u64 {
        let at = self.0.partition_point(|(known, _)| *known < end);
        self.0.get(at).map_or(0, |(_, at_ns)| *at_ns)
    }
}

/// A UDP socket as the engine sees it.
pub struct Datagram {
    /// The socket in the stack.
    pub id: SocketId,
    /// Counts for its user.
    _entry: Entry,
    /// Datagrams sent or given up.
    pub done: u64,
    /// Spans of the datagram to be sent next, with their buffers.
    pub held: Vec<(Span, u32)>,
    /// The last span of that datagram is among them.
    pub is_whole: bool,
    /// Bytes of it that were sent as datagrams of their own, when it is several.
    pub sent_bytes: u32,
    /// In the worker's list of sockets with a held datagram.
    pub waits: bool,
    /// Received and not yet published.
    pub unpublished: bool,
    /// Sent and not yet published.
    pub unpublished_sent: bool,
    /// Receive descriptors that the client has read, as last learnt.
    pub consumed: u64,
    /// Buffers with received datagrams and the position after the last one in each, oldest first.
    pub buffers: VecDeque<(u64, u32)>,
    /// Bytes used of the last of `buffers`.
    pub fill: u32,
    /// What may wait to be read, where the client has said so.
    pub room: Option<Room>,
    /// As set by the client; the stack keeps its own copy.
    pub options: UdpOptions,
    /// Coalesced datagrams are received as they come (UDP_GRO).
    pub takes_coalesced: bool,
    /// When datagrams come is told with them.
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
