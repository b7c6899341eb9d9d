//! An endpoint: its bindings, its operations in progress, and their completion.

use std::collections::HashMap;
use std::sync::Arc;

use client::Errno;
use client::message::{self, Completion, Message, Outcome, Pattern, Peer, Ticket};
use slab::Slab;

use super::operation::{Kind, Operation};
use super::queue::{Entry, Error};
use super::vector::Vector;
use crate::abi::constants::*;
use crate::pieces::{Pieces, ProgramMemory};
use many::Buffers;

mod many;
mod post;

pub use post::{Receive, Send};

/// The direction of an operation, which decides where it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Transmit,
    Receive,
}

/// The bindings of one direction.
#[derive(Debug, Default)]
pub struct Binding {
    pub queue: Option<usize>,
    /// Successes are reported only with FI_COMPLETION.
    pub is_selective: bool,
    pub counter: Option<usize>,
    /// Default flags of operations.
    pub op_flags: u64,
}

/// A completion for the queue and counter of its side.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub side: Side,
    pub entry: Option<Entry>,
    pub is_counted: bool,
    pub has_failed: bool,
}

impl Report {
    /// Of an injected message: it is counted, and has no context to name in a queue.
    pub fn of_injected(has_failed: bool) -> Self {
        Self { side: Side::Transmit, entry: None, is_counted: true, has_failed }
    }
}

/// What a look at the engine's completions gave.
#[derive(Debug)]
pub enum Polled {
    Nothing,
    /// A completion, possibly to be reported.
    Completed(Option<Report>),
    /// The engine is gone, and with it all operations in progress.
    Lost(Vec<Report>),
}

/// An endpoint of the domain.
pub struct EndpointState {
    pub transport: Arc<message::Endpoint>,
    pub vector: Option<usize>,
    pub transmit: Binding,
    pub receive: Binding,
    pub is_enabled: bool,
    /// Whether the source of a receive is used (FI_DIRECTED_RECV).
    pub is_directed: bool,
    operations: Slab<Operation>,
    /// Claimed messages, by their contexts.
    claims: HashMap<usize, Ticket>,
    /// Messages found that could not be discarded for lack of room.
    unwanted: Vec<Ticket>,
    /// Multi-receive buffers (FI_MULTI_RECV).
    pub buffers: Buffers,
    /// Peers by their numbers in the vector.
    peers: Vec<Option<Peer>>,
    /// Numbers in the vector by peer.
    sources: Vec<Option<u64>>,
}

impl EndpointState {
    /// An endpoint without bindings.
    pub fn new(transport: Arc<message::Endpoint>, is_directed: bool) -> Self {
        Self {
            transport,
            vector: None,
            transmit: Binding::default(),
            receive: Binding::default(),
            is_enabled: false,
            is_directed,
            operations: Slab::new(),
            claims: HashMap::new(),
            unwanted: Vec::new(),
            buffers: Buffers::default(),
            peers: Vec::new(),
            sources: Vec::new(),
        }
    }

    /// The queues that it completes into.
    pub fn queues(&self) -> impl Iterator<Item = usize> {
        [self.transmit.queue, self.receive.queue].into_iter().flatten()
    }

    /// Removes a number of the vector from the cache.
    pub fn forget(&mut self, address: u64) {
        if let Some(peer) = usize::try_from(address).ok().and_then(|at| self.peers.get_mut(at)) {
            *peer = None;
        }
        for source in &mut self.sources {
            source.take_if(|number| *number == address);
        }
    }

    /// The peer of a number in the vector.
    fn peer(&mut self, address: u64, vector: Option<&Vector>) -> Option<Peer> {
        let place = usize::try_from(address).ok()?;
        if let Some(Some(peer)) = self.peers.get(place) {
            return Some(*peer);
        }
        let peer = self.transport.add_peer(vector?.address(address)?)?;
        if self.peers.len() <= place {
            self.peers.resize(place + 1, None);
        }
        self.peers[place] = Some(peer);
        Some(peer)
    }

    /// The number of a peer in the vector.
    fn number(&mut self, Peer(place): Peer, vector: Option<&Vector>) -> u64 {
        if let Some(Some(number)) = self.sources.get(place as usize) {
            return *number;
        }
        let address = self.transport.peer_address(Peer(place));
        let number = address.and_then(|address| vector?.number(address));
        let Some(number) = number else { return FI_ADDR_NOTAVAIL };
        if self.sources.len() <= place as usize {
            self.sources.resize(place as usize + 1, None);
        }
        self.sources[place as usize] = Some(number);
        number
    }

    /// Takes one completion from the engine.
    pub fn poll(&mut self, vector: Option<&Vector>) -> Polled {
        self.discard_unwanted();
        self.post_next_buffer();
        match self.transport.poll_completion(&mut ProgramMemory(&self.operations)) {
            Ok(Some(completion)) => Polled::Completed(self.complete(completion, vector)),
            Ok(None) => Polled::Nothing,
            Err(errno) => Polled::Lost(self.lose(errno)),
        }
    }

    fn discard_unwanted(&mut self) {
        while let Some(ticket) = self.unwanted.last().copied() {
            let key = self.operations.insert(Operation {
                kind: Kind::DiscardFound,
                context: 0,
                pieces: Pieces::default(),
                is_tagged: false,
                reports: false,
                ticket: None,
            });
            match self.transport.discard_claimed(ticket, key as u64) {
                Ok(_) => {
                    self.unwanted.pop();
                }
                Err(_) => {
                    self.operations.remove(key);
                    return;
                }
            }
        }
    }

    /// Fails all operations in progress.
    fn lose(&mut self, errno: Errno) -> Vec<Report> {
        self.claims.clear();
        self.unwanted.clear();
        let lost: Vec<Operation> = self.operations.drain().collect();
        let mut reports: Vec<Report> =
            lost.iter().filter_map(|operation| self.failed(operation, errno, None, None)).collect();
        while let Some(report) = self.cancel_buffer(None) {
            reports.push(report);
        }
        reports
    }

    fn complete(&mut self, completion: Completion, vector: Option<&Vector>) -> Option<Report> {
        let key = usize::try_from(completion.context).ok();
        let Some(operation) = key.and_then(|key| self.operations.try_remove(key)) else {
            // An injected message that failed.
            let has_failed = matches!(completion.outcome, Outcome::Failed { .. });
            return has_failed.then_some(Report::of_injected(true));
        };
        match completion.outcome {
            Outcome::Failed { errno, message } => self.failed(&operation, errno, message, vector),
            Outcome::Sent => Some(Report {
                side: Side::Transmit,
                entry: operation.reports.then(|| Entry {
                    context: operation.context,
                    flags: FI_SEND | kind_flag(operation.is_tagged),
                    len: operation.pieces.len(),
                    source: FI_ADDR_NOTAVAIL,
                    ..Entry::default()
                }),
                is_counted: true,
                has_failed: false,
            }),
            Outcome::Received(message) if operation.kind == Kind::ReceiveMany => {
                let entry = self.received(&operation, &message, vector);
                Some(self.filled(entry, &operation, message.copied as usize))
            }
            Outcome::Received(message) => {
                let entry = self.received(&operation, &message, vector);
                Some(Report {
                    side: Side::Receive,
                    entry: operation.reports.then_some(entry),
                    is_counted: true,
                    has_failed: false,
                })
            }
            Outcome::Peeked(message) => self.found(&operation, &message, vector),
            Outcome::Claimed(message) => {
                let claim = completion.ticket?;
                if operation.kind == Kind::FindAndDiscard {
                    self.unwanted.push(claim);
                    self.discard_unwanted();
                } else {
                    self.claims.insert(operation.context, claim);
                }
                self.found(&operation, &message, vector)
            }
            Outcome::Discarded => {
                if operation.kind == Kind::DiscardFound {
                    return None;
                }
                let entry = Entry {
                    context: operation.context,
                    flags: FI_RECV | kind_flag(operation.is_tagged),
                    source: FI_ADDR_NOTAVAIL,
                    ..Entry::default()
                };
                Some(Report {
                    side: Side::Receive,
                    entry: Some(entry),
                    is_counted: false,
                    has_failed: false,
                })
            }
        }
    }

    /// The entry of a received message.
    fn received(
        &mut self,
        operation: &Operation,
        message: &Message,
        vector: Option<&Vector>,
    ) -> Entry {
        let has_data = if message.immediate.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        Entry {
            context: operation.context,
            flags: FI_RECV | kind_flag(operation.is_tagged) | has_data,
            len: message.copied as usize,
            buffer: operation.pieces.base(),
            data: message.immediate.map_or(0, u64::from),
            tag: message.tag.unwrap_or(0),
            source: self.number(message.source, vector),
            error: None,
        }
    }

    /// The report of a message that was found and remains in the engine.
    fn found(
        &mut self,
        operation: &Operation,
        message: &Message,
        vector: Option<&Vector>,
    ) -> Option<Report> {
        let entry = self.received(operation, message, vector);
        let entry = Entry { len: message.length as usize, buffer: 0, ..entry };
        Some(Report {
            side: Side::Receive,
            entry: Some(entry),
            is_counted: false,
            has_failed: false,
        })
    }

    fn failed(
        &mut self,
        operation: &Operation,
        errno: Errno,
        message: Option<Message>,
        vector: Option<&Vector>,
    ) -> Option<Report> {
        match operation.kind {
            Kind::DiscardFound => return None,
            Kind::Inject => return Some(Report::of_injected(true)),
            _ => {}
        }
        let is_send = operation.kind == Kind::Send;
        let mut entry = match &message {
            Some(message) => self.received(operation, message, vector),
            None => Entry {
                context: operation.context,
                flags: kind_flag(operation.is_tagged) | if is_send { FI_SEND } else { FI_RECV },
                buffer: operation.pieces.base(),
                source: FI_ADDR_NOTAVAIL,
                ..Entry::default()
            },
        };
        let overflow =
            message.map_or(0, |message| message.length.saturating_sub(message.copied) as usize);
        let number = if errno == Errno::MSGSIZE { FI_ETRUNC } else { errno.raw_os_error() };
        entry.error = Some(Error { number, errno: errno.raw_os_error(), overflow });
        if operation.kind == Kind::ReceiveMany {
            entry.flags |= FI_MULTI_RECV;
            self.buffers.release();
            self.post_next_buffer();
        }
        let is_counted = operation.kind.is_cancellable();
        let side = if is_send { Side::Transmit } else { Side::Receive };
        Some(Report { side, entry: Some(entry), is_counted, has_failed: true })
    }
}

/// The flag of a message's type in completions.
fn kind_flag(is_tagged: bool) -> u64 {
    if is_tagged { FI_TAGGED } else { FI_MSG }
}

/// The pattern of a receive for the engine.
fn pattern(source: Option<Peer>, tag: Option<(u64, u64)>) -> Pattern {
    Pattern { source, tag }
}
