//! All of TCP as plain data, for export and import. The flow table is not part of it: it is
//! rebuilt, because everything in it follows from the connections.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::connection::{Cold, Hot, Shared};
use super::flow::{Flow, FlowKey, FlowSlot, Flows};
use super::listener::Listeners;
use super::reply::Reply;
use super::tables::{Lane, Tcp};
use super::time_wait::TimeWaits;
use crate::api::Event;
use crate::timer::Wheel;

/// Changed with every change of the data's form.
const VERSION: u32 = 22;

/// The form in which [`Tcp`] is written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TcpImage {
    version: u32,
    shared: Shared,
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    free: Vec<u32>,
    flow_key: FlowKey,
    listeners: Listeners,
    time_waits: TimeWaits,
    lanes: Vec<Lane>,
    parked: Vec<u32>,
    parked_replies: Vec<Reply>,
    events: VecDeque<Event>,
    wheel: Wheel,
    ports: (u16, u16),
    next_port: u32,
    limits: [u32; 3],
}

impl From<Tcp> for TcpImage {
    fn from(tcp: Tcp) -> Self {
        Self {
            version: VERSION,
            shared: tcp.shared,
            hot: tcp.hot,
            cold: tcp.cold,
            free: tcp.free,
            flow_key: tcp.flow_key,
            listeners: tcp.listeners,
            time_waits: tcp.time_waits,
            lanes: tcp.lanes,
            parked: tcp.parked,
            parked_replies: tcp.parked_replies,
            events: tcp.events,
            wheel: tcp.wheel,
            ports: tcp.ports,
            next_port: tcp.next_port,
            limits: [tcp.connections_max, tcp.syn_queue_max, tcp.accept_queue_max],
        }
    }
}

/// Why an image of TCP's state cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpImageError {
    /// Made by another version of the format.
    Version {
        /// The version found.
        found: u32,
    },
    /// Both halves of the connection table have to be of the same length.
    Damaged {
        /// Entries of the first half.
        hot_len: usize,
        /// Entries of the second half.
        cold_len: usize,
    },
}

impl fmt::Display for TcpImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found } => write!(
                f,
                "TCP state of version {found} cannot be read by version {VERSION}; end its \
                 connections and start afresh"
            ),
            Self::Damaged { hot_len, cold_len } => write!(
                f,
                "damaged TCP state: the connection table has halves of {hot_len} and {cold_len} \
                 entries; export it again"
            ),
        }
    }
}

impl std::error::Error for TcpImageError {}

impl TryFrom<TcpImage> for Tcp {
    type Error = TcpImageError;

    fn try_from(image: TcpImage) -> Result<Self, TcpImageError> {
        if image.version != VERSION {
            return Err(TcpImageError::Version { found: image.version });
        }
        if image.hot.len() != image.cold.len() {
            let (hot_len, cold_len) = (image.hot.len(), image.cold.len());
            return Err(TcpImageError::Damaged { hot_len, cold_len });
        }
        let [connections_max, syn_queue_max, accept_queue_max] = image.limits;
        let mut flows = Flows::new(image.flow_key, image.hot.len() + image.time_waits.len());
        for (index, (hot, cold)) in (0u32..).zip(image.hot.iter().zip(&image.cold)) {
            if hot.used && !hot.state.is_over() {
                flows.insert(
                    &Flow::new(cold.local.address(), cold.remote.address()),
                    FlowSlot::Connection(index),
                );
            }
        }
        for (slot, entry) in image.time_waits.iter() {
            flows.insert(&entry.flow(), FlowSlot::TimeWait(slot));
        }
        Ok(Self {
            shared: image.shared,
            hot: image.hot,
            cold: image.cold,
            free: image.free,
            flow_key: image.flow_key,
            flows,
            listeners: image.listeners,
            time_waits: image.time_waits,
            lanes: image.lanes,
            parked: image.parked,
            parked_replies: image.parked_replies,
            events: image.events,
            wheel: image.wheel,
            ports: image.ports,
            next_port: image.next_port,
            connections_max,
            syn_queue_max,
            accept_queue_max,
        })
    }
}
