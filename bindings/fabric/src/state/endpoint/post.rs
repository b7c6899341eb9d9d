//! Posting of operations: checks of the arguments, then one call of the client library.

use client::Errno;
use client::message;

use super::many::Buffer;
use super::{Binding, EndpointState, Kind, Operation, Report, Vector, pattern};
use crate::abi::constants::*;
use crate::pieces::Pieces;

/// Maximum length of an injected message, in bytes.
pub const INJECT_MAX: usize = 4096;
/// Longest message, in bytes.
pub const MESSAGE_MAX: usize = u32::MAX as usize;

/// Permitted flags of a send.
const SEND_FLAGS: u64 = FI_COMPLETION
    | FI_REMOTE_CQ_DATA
    | FI_MORE
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_FENCE;
/// Permitted flags of a receive.
const RECEIVE_FLAGS: u64 =
    FI_COMPLETION | FI_MORE | FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD;

/// Parameters of a send.
#[derive(Clone, Copy)]
pub struct Send {
    pub to: u64,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub pieces: Pieces,
    pub context: usize,
    /// `None` for the endpoint's.
    pub flags: Option<u64>,
}

/// Parameters of a receive.
#[derive(Clone, Copy)]
pub struct Receive {
    pub from: u64,
    pub tag: Option<(u64, u64)>,
    pub pieces: Pieces,
    pub context: usize,
    /// `None` for the endpoint's.
    pub flags: Option<u64>,
}

/// libfabric's number of an error.
fn number(errno: Errno) -> i32 {
    match errno {
        // The client library's errors for a full table or region.
        Errno::AGAIN | Errno::NOBUFS => FI_EAGAIN,
        other => other.raw_os_error(),
    }
}

/// The flags of an operation and whether its success is reported.
fn flags_of(binding: &Binding, own: Option<u64>) -> (u64, bool) {
    let flags = own.unwrap_or(binding.op_flags);
    (flags, !binding.is_selective || flags & FI_COMPLETION != 0)
}

impl EndpointState {
    /// Sends.
    ///
    /// # Errors
    /// libfabric's number.
    pub fn send(&mut self, send: &Send, vector: Option<&Vector>) -> Result<(), i32> {
        let (flags, reports) = flags_of(&self.transmit, send.flags);
        let len = send.pieces.len();
        if flags & !SEND_FLAGS != 0 {
            return Err(FI_EBADFLAGS);
        }
        if len > MESSAGE_MAX || (flags & FI_INJECT != 0 && len > INJECT_MAX) {
            return Err(FI_EMSGSIZE);
        }
        let peer = self.ready_peer(send.to, vector)?;
        let what = message::Send {
            tag: send.tag,
            immediate: send.data.map(|data| data as u32),
            delivery: flags & FI_DELIVERY_COMPLETE != 0,
        };
        let key = self.operations.insert(Operation {
            kind: Kind::Send,
            context: send.context,
            pieces: send.pieces,
            is_tagged: send.tag.is_some(),
            reports,
            ticket: None,
        });
        // SAFETY: the program lends its buffers until the operation completes.
        let slices = unsafe { send.pieces.slices() };
        let posted = self.transport.send(peer, &what, &slices[..send.pieces.count()], key as u64);
        self.note(key, posted)
    }

    /// Sends what is the program's again at once, and completes without an entry: at once, or when the
    /// message is delivered, if that is the endpoint's kind of completion. Tells whether it is complete.
    ///
    /// # Errors
    /// libfabric's number.
    pub fn inject(&mut self, send: &Send, vector: Option<&Vector>) -> Result<bool, i32> {
        if send.pieces.len() > INJECT_MAX {
            return Err(FI_EMSGSIZE);
        }
        let peer = self.ready_peer(send.to, vector)?;
        let delivery = self.transmit.op_flags & FI_DELIVERY_COMPLETE != 0;
        let immediate = send.data.map(|data| data as u32);
        let what = message::Send { tag: send.tag, immediate, delivery };
        // SAFETY: the program's buffer is readable during the call.
        let slices = unsafe { send.pieces.slices() };
        let parts = &slices[..send.pieces.count()];
        if !delivery {
            return self.transport.inject(peer, &what, &slices[0]).map_err(number).map(|()| true);
        }
        // The bytes are copied now, and none of them is gathered later.
        let key = self.operations.insert(Operation {
            kind: Kind::Inject,
            context: 0,
            pieces: Pieces::default(),
            is_tagged: send.tag.is_some(),
            reports: false,
            ticket: None,
        });
        let posted = self.transport.send(peer, &what, parts, key as u64);
        self.note(key, posted).map(|()| false)
    }

    fn ready_peer(&mut self, to: u64, vector: Option<&Vector>) -> Result<message::Peer, i32> {
        if !self.is_enabled {
            return Err(FI_EOPBADSTATE);
        }
        self.peer(to, vector).ok_or(FI_EINVAL)
    }

    /// Posts a receive, or probes for, claims or discards a message.
    ///
    /// # Errors
    /// libfabric's number.
    pub fn receive(&mut self, receive: &Receive, vector: Option<&Vector>) -> Result<(), i32> {
        let (flags, reports) = flags_of(&self.receive, receive.flags);
        if flags & !RECEIVE_FLAGS != 0 {
            return Err(FI_EBADFLAGS);
        }
        if !self.is_enabled {
            return Err(FI_EOPBADSTATE);
        }
        let source = match receive.from {
            FI_ADDR_UNSPEC => None,
            _ if !self.is_directed => None,
            from => Some(self.peer(from, vector).ok_or(FI_EINVAL)?),
        };
        let wanted = pattern(source, receive.tag);
        let kind = match (flags & FI_PEEK != 0, flags & FI_CLAIM != 0, flags & FI_DISCARD != 0) {
            (true, true, false) => Kind::Claim,
            (true, false, true) => Kind::FindAndDiscard,
            (true, false, false) => Kind::Peek,
            (false, true, true) => Kind::Discard,
            (false, _, false) => Kind::Receive,
            (true, true, true) | (false, false, true) => return Err(FI_EBADFLAGS),
        };
        if flags & FI_MULTI_RECV != 0 {
            if kind != Kind::Receive || receive.tag.is_some() || receive.pieces.count() != 1 {
                return Err(FI_EINVAL);
            }
            self.buffers.push(Buffer {
                context: receive.context,
                base: receive.pieces.base(),
                len: receive.pieces.len(),
                used: 0,
                source,
                reports,
            });
            self.post_next_buffer();
            return Ok(());
        }
        let claimed = if !matches!(kind, Kind::Receive | Kind::Discard) || flags & FI_CLAIM == 0 {
            None
        } else {
            Some(self.claims.get(&receive.context).copied().ok_or(FI_EINVAL)?)
        };
        let key = self.operations.insert(Operation {
            kind,
            context: receive.context,
            pieces: receive.pieces,
            is_tagged: receive.tag.is_some(),
            reports,
            ticket: None,
        });
        let (context, capacity) = (key as u64, receive.pieces.len() as u64);
        let posted = match (kind, claimed) {
            (Kind::Peek, _) => self.transport.peek(&wanted, context),
            (Kind::Claim | Kind::FindAndDiscard, _) => self.transport.claim(&wanted, context),
            (Kind::Discard, Some(claim)) => self.transport.discard_claimed(claim, context),
            (_, Some(claim)) => self.transport.receive_claimed(claim, capacity, context),
            (_, None) => self.transport.post_recv(&wanted, capacity, context),
        };
        self.note(key, posted)?;
        if claimed.is_some() {
            self.claims.remove(&receive.context);
        }
        Ok(())
    }

    /// Records a posted operation, or removes it.
    fn note(&mut self, key: usize, posted: Result<message::Ticket, Errno>) -> Result<(), i32> {
        match posted {
            Ok(ticket) => {
                self.operations[key].ticket = Some(ticket);
                Ok(())
            }
            Err(errno) => {
                self.operations.remove(key);
                Err(number(errno))
            }
        }
    }

    /// Cancels the operation with a context. A buffer without a posted receive is reported at once;
    /// other operations complete when the engine has decided.
    ///
    /// # Errors
    /// FI_ENOENT if no operation in progress has the context.
    pub fn cancel(&mut self, context: usize) -> Result<Option<Report>, i32> {
        if let Some(report) = self.cancel_buffer(Some(context)) {
            return Ok(Some(report));
        }
        let mut under_way = self.operations.iter().map(|(_, operation)| operation);
        let meant = under_way
            .find(|operation| operation.context == context && operation.kind.is_cancellable());
        let ticket = meant.and_then(|operation| operation.ticket).ok_or(FI_ENOENT)?;
        self.transport.cancel(ticket).map_err(number)?;
        Ok(None)
    }
}
