//! memif: rings in memory that the engine shares with a DPDK, VPP or libmemif program, or with another
//! engine (protocol 2.0).
//!
//! The client brings the memory, the server the socket; the engine can be either ([`server`],
//! [`client`]). A thread of the port's own checks the peer and does the handshake; the worker gets the
//! rings when it is done ([`MemifRings`]). Both sides poll, and the worker makes no system call but one
//! to end a peer that broke the protocol. Everything that the peer writes is copied once and checked.

pub mod client;
mod error;
mod memory;
mod messages;
mod peer;
mod ring;
pub mod server;
mod socket;
mod thread;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use arch::SharedBytes;
use serde::{Deserialize, Serialize};

use crate::copy;
use crate::interface::{
    Offloads, Port, PortCounters, PortInfo, RxBurst, RxFrame, RxHandle, RxMeta, TxError, TxMeta,
};
use crate::open::{OpenError, OpenErrorKind, PortDescription, PortFds, PortOffloads, random_mac};
use crate::spec::PortSpec;
use client::Client;
use peer::{Exchange, Peer};
use server::Server;
use thread::Thread;

pub use error::MemifError;
pub use messages::{AddRing, Hello, MESSAGE_BYTES, MemifMessage, SECRET_BYTES_MAX};
pub use ring::{BrokenProtocol, Came, MemifRings};

/// Largest IP packet unless said otherwise.
const MTU: u16 = 1500;
/// Buffers that a burst looks at, so that frames of many buffers take no more of a turn than others: as
/// many as a burst of jumbo frames has.
const BUFFERS_PER_BURST: u16 = 4 * RxBurst::CAPACITY as u16;

/// Which side a memif port is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemifRole {
    /// Makes the socket.
    #[default]
    Server,
    /// Connects to the socket, and brings the memory.
    Client,
}

/// What is particular to a memif.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemifFacts {
    /// Which side it is.
    pub role: MemifRole,
    /// The interface's number at its socket.
    pub id: u32,
    /// What a client must know.
    pub secret: Option<String>,
    /// Users that the other side may belong to, beside root and the engine's own.
    pub users: Vec<u32>,
}

/// Makes the socket at which clients connect. It takes no privileges but to write to the directory. A
/// client connects when it runs, as the user that the engine runs as.
///
/// # Errors
/// The path is taken, or the kernel refuses.
pub(crate) fn open(spec: &PortSpec) -> Result<PortFds, OpenError> {
    let label = spec.label();
    let facts = &spec.memif;
    let fds = match facts.role {
        MemifRole::Client => Vec::new(),
        MemifRole::Server => {
            let refused =
                |why| OpenError::system(&label, "make the socket", "write permission", &why);
            vec![server::listen(&spec.name, !facts.users.is_empty()).map_err(refused)?]
        }
    };
    let description = PortDescription {
        kind: spec.kind,
        label,
        mac: spec.mac.map_or_else(random_mac, Ok)?,
        mtu: spec.mtu.unwrap_or(MTU),
        offloads: PortOffloads::default(),
        interface_index: 0,
        impairment: spec.impairment,
        seed: spec.seed.map_or_else(crate::open::random_seed, Ok)?,
        mode: None,
        xdp: None,
        memif: Some(facts.clone()),
        station: None,
        notes: Vec::new(),
    };
    Ok(PortFds { fds, description, rings: Vec::new(), links: Vec::new() })
}

/// The running port.
pub struct MemifPort {
    info: PortInfo,
    exchange: Arc<Exchange>,
    peer: Option<Box<Peer>>,
    /// Copies of the burst not yet released, one behind the other.
    bytes: Vec<u8>,
    /// Where each lies.
    frames: Vec<(usize, usize)>,
    whole: Vec<u8>,
    counters: PortCounters,
    _thread: Thread,
}

impl MemifPort {
    /// The port that [`open`] has prepared; a server's with its socket.
    ///
    /// # Errors
    /// The descriptor does not belong to its role, or its thread cannot be started.
    pub(crate) fn new(
        listener: Option<OwnedFd>,
        description: &PortDescription,
    ) -> Result<Self, OpenError> {
        let exchange = Arc::new(Exchange::default());
        let facts = description.memif.clone().unwrap_or_default();
        let label = &description.label;
        let shared = Arc::clone(&exchange);
        let thread = match (facts.role, listener) {
            (MemifRole::Server, Some(listener)) => {
                let server = Server::new(listener, facts, shared);
                Thread::start(move |stop| server.run(stop))
            }
            (MemifRole::Client, None) => {
                let path = label.split_once(':').map_or(label.as_str(), |(_, path)| path);
                let client = Client::new(path, facts, shared);
                Thread::start(move |stop| client.run(stop))
            }
            (MemifRole::Server, None) | (MemifRole::Client, Some(_)) => {
                return Err(OpenError::of_descriptors(label));
            }
        };
        let thread = thread.map_err(|why| {
            OpenError::new(
                OpenErrorKind::System,
                format!("cannot start the thread of {label}: {why}"),
            )
        })?;
        let info = PortInfo { offloads: Offloads::default(), ..description.info() };
        let longest = longest(&info);
        Ok(Self {
            info,
            exchange,
            peer: None,
            bytes: vec![0; longest * RxBurst::CAPACITY],
            frames: Vec::with_capacity(RxBurst::CAPACITY),
            whole: Vec::with_capacity(longest),
            counters: PortCounters::default(),
            _thread: thread,
        })
    }

    /// Looks whether the peer has come or gone.
    fn look(&mut self) {
        if self.exchange.has_news() {
            self.exchange.trade(&mut self.peer);
        }
    }

    /// Ends a peer that broke the protocol.
    fn breached(&mut self) {
        self.counters.rx_errors += 1;
        if let Some(peer) = &mut self.peer {
            peer.hang_up();
        }
    }
}

/// Longest frame: Ethernet with one tag.
fn longest(info: &PortInfo) -> usize {
    usize::from(info.mtu) + copy::ETHERNET_BYTES + 4
}

impl Port for MemifPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        self.frames.clear();
        self.look();
        let longest = longest(&self.info);
        let peer = self.peer.as_mut().filter(|peer| !peer.has_ended());
        let Some(Peer { rings, .. }) = peer.map(|peer| &mut **peer) else { return };
        let (mut end, mut looks, mut buffers) = (0, 0, 0);
        let mut is_broken = false;
        // Bounded by what it looks at, too: a peer may bring what is of no use as fast as we look.
        while looks < RxBurst::CAPACITY && buffers < BUFFERS_PER_BURST {
            let Some(room) = self.bytes.get_mut(end..end + longest) else { break };
            let Ok((came, count)) = rings.take(room) else {
                is_broken = true;
                break;
            };
            looks += 1;
            buffers += count;
            match came {
                Came::Nothing => break,
                Came::Unusable => self.counters.rx_errors += 1,
                Came::Frame(len) => {
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += len as u64;
                    burst.handles.push(RxHandle(self.frames.len() as u32));
                    self.frames.push((end, len));
                    end += len;
                }
            }
        }
        rings.free_taken();
        if is_broken {
            self.breached();
        }
    }

    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        let place = self.frames.get(handle.0 as usize);
        let bytes = place.and_then(|&(start, len)| self.bytes.get(start..start + len));
        RxFrame { bytes: bytes.unwrap_or_default(), meta: RxMeta::default() }
    }

    fn release(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        self.frames.clear();
    }

    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        let len = copy::length(header, payload);
        let is_sendable = copy::sendable(&self.info, meta, header, len);
        if !is_sendable || !copy::assemble(&mut self.whole, header, payload, meta.checksum) {
            self.counters.tx_errors += 1;
            return Err(TxError::Unsendable);
        }
        self.look();
        let Some(peer) = self.peer.as_mut().filter(|peer| !peer.has_ended()) else {
            self.counters.tx_errors += 1;
            return Err(TxError::Down);
        };
        match peer.rings.put(&self.whole) {
            Ok(true) => {
                self.counters.tx_frames += 1;
                self.counters.tx_bytes += len as u64;
                Ok(())
            }
            Ok(false) => {
                self.counters.tx_full += 1;
                Err(TxError::Full)
            }
            Err(BrokenProtocol) => {
                self.counters.tx_errors += 1;
                self.breached();
                Err(TxError::Down)
            }
        }
    }

    fn flush(&mut self) {
        if let Some(peer) = &mut self.peer {
            peer.rings.publish();
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
