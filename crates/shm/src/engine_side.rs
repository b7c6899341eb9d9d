//! The engine's views of a region. Everything the client wrote is copied once, checked and then
//! used; what is wrong is a [`Breach`] and ends the session. Positions are private.
//!
//! Order of a turn, per lane: [`EngineLane::take_doorbells`], then for each endpoint named its
//! descriptors and its `consumed`; [`EngineLane::take_request`] while
//! [`EngineLane::requests_rung`]; then levels are written, [`EngineLane::begin_events`],
//! [`EngineLane::push_event`] for each endpoint whose levels changed,
//! [`EngineLane::finish_events`].

mod endpoint;
mod lane;

pub use endpoint::{EngineEndpoint, TakenDescriptor};
pub use lane::{EngineLane, Serial};

use crate::descriptor::Span;

/// How a client broke the contract. It loses its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// A doorbell names an endpoint beyond the capacity.
    DoorbellOutOfRange {
        /// The number.
        endpoint: u32,
    },
    /// A descriptor is of no known kind or region.
    DescriptorMalformed {
        /// Its second word.
        word: u64,
    },
    /// A descriptor's span does not lie in one buffer.
    SpanOutOfBuffers {
        /// The span.
        span: Span,
    },
    /// `consumed` went back or beyond what is readable.
    ConsumedOutOfWindow {
        /// As claimed.
        claimed: u64,
        /// Least possible.
        low: u64,
        /// Most possible.
        high: u64,
    },
    /// A request is of no known kind.
    RequestMalformed {
        /// Its kind.
        kind: u8,
    },
    /// More requests are outstanding than the ring of replies holds.
    RepliesUnread,
    /// The byte rings of a raw endpoint are not as they may be.
    Rings(crate::raw::RingBreach),
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DoorbellOutOfRange { endpoint } => {
                write!(f, "a doorbell names endpoint {endpoint}, which does not exist")
            }
            Self::DescriptorMalformed { word } => {
                write!(f, "a send descriptor is malformed (second word {word:#018x})")
            }
            Self::SpanOutOfBuffers { span } => write!(
                f,
                "a send descriptor names {} bytes at {:#x}, which are not within one buffer",
                span.len, span.offset
            ),
            Self::ConsumedOutOfWindow { claimed, low, high } => {
                write!(f, "consumed is {claimed}, but must lie between {low} and {high}")
            }
            Self::RequestMalformed { kind } => write!(f, "a request has the unknown kind {kind}"),
            Self::RepliesUnread => {
                write!(f, "more requests were made than replies can be outstanding")
            }
            Self::Rings(breach) => breach.fmt(f),
        }
    }
}

impl std::error::Error for Breach {}
