//! memif: rings in memory that a DPDK, VPP or libmemif program shares with the engine, which is the
//! server (protocol 2.0).
//!
//! A thread of the port's own ([`desk`]) accepts, checks the peer and does the handshake; the worker
//! gets the rings when it is done ([`peer`]). Both sides poll, and the worker makes no system call but
//! one to end a peer that broke the protocol. Everything that the peer writes is copied once and checked.

mod desk;
mod messages;
mod peer;

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
use desk::{Desk, Exchange};
use peer::Peer;

pub use messages::SECRET_BYTES_MAX;

/// Largest IP packet unless said otherwise.
const MTU: u16 = 1500;

/// What is particular to a memif.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemifFacts {
    /// The interface's number at its socket.
    pub id: u32,
    /// What a peer must know.
    pub secret: Option<String>,
    /// Users who may connect beside root and the engine's own.
    pub users: Vec<u32>,
}

/// Makes the socket at which peers connect. It takes no privileges but to write to the directory.
///
/// # Errors
/// The path is taken, or the kernel refuses.
pub(crate) fn open(spec: &PortSpec) -> Result<PortFds, OpenError> {
    let label = spec.label();
    let facts = &spec.memif;
    let listener = desk::listen(&spec.name, !facts.users.is_empty())
        .map_err(|why| OpenError::system(&label, "make the socket", "write permission", &why))?;
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
    Ok(PortFds { fds: vec![listener], description, rings: Vec::new(), links: Vec::new() })
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
    _desk: Desk,
}

impl MemifPort {
    /// The port behind a socket that [`open`] made.
    ///
    /// # Errors
    /// When its thread cannot be started.
    pub(crate) fn new(
        listener: OwnedFd,
        facts: &MemifFacts,
        description: &PortDescription,
    ) -> Result<Self, OpenError> {
        let exchange = Arc::new(Exchange::default());
        let desk = Desk::start(listener, facts.clone(), Arc::clone(&exchange)).map_err(|why| {
            OpenError::new(
                OpenErrorKind::System,
                format!("cannot start the thread of {}: {why}", description.label),
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
            _desk: desk,
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
        let Some(peer) = &mut self.peer else { return };
        let mut end = 0;
        let mut is_broken = false;
        while self.frames.len() < RxBurst::CAPACITY {
            let Some(room) = self.bytes.get_mut(end..end + longest) else { break };
            match peer.take(room) {
                Ok(peer::Came::Nothing) => break,
                Ok(peer::Came::Unusable) => self.counters.rx_errors += 1,
                Ok(peer::Came::Frame(len)) => {
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += len as u64;
                    burst.handles.push(RxHandle(self.frames.len() as u32));
                    self.frames.push((end, len));
                    end += len;
                }
                Err(peer::BrokenProtocol) => {
                    is_broken = true;
                    break;
                }
            }
        }
        peer.free_taken();
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
        match peer.put(&self.whole) {
            Ok(true) => {
                self.counters.tx_frames += 1;
                self.counters.tx_bytes += len as u64;
                Ok(())
            }
            Ok(false) => {
                self.counters.tx_full += 1;
                Err(TxError::Full)
            }
            Err(peer::BrokenProtocol) => {
                self.counters.tx_errors += 1;
                self.breached();
                Err(TxError::Down)
            }
        }
    }

    fn flush(&mut self) {
        if let Some(peer) = &mut self.peer {
            peer.publish();
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
