//! A host's attachment to the simulated link: frames wait here until the simulation moves them.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arch::SharedBytes;
use port::{
    Offloads, Port, PortCounters, PortInfo, RxBurst, RxFrame, RxHandle, RxMeta, TxError, TxMeta,
};
use wire::MacAddr;

/// A frame that a host has sent.
#[derive(Debug)]
pub struct Sent {
    /// As the host left it.
    pub bytes: Vec<u8>,
    /// What is left to do to it.
    pub meta: TxMeta,
}

/// A frame that a host will receive.
#[derive(Debug)]
pub struct Arrived {
    /// From the Ethernet header on.
    pub bytes: Vec<u8>,
    /// What the host is told of it.
    pub meta: RxMeta,
}

/// What both the port and the simulation see.
#[derive(Debug, Default)]
pub struct Wires {
    /// Sent, to be taken by the simulation.
    pub sent: Vec<Sent>,
    /// To be received.
    pub arrived: VecDeque<Arrived>,
    /// Frames that `sent` takes.
    pub tx_room: usize,
    /// What finds no room in `sent` is dropped, as by a queue that says so.
    pub drops: bool,
    /// Frames that `arrived` takes.
    pub rx_room: usize,
    /// Times a frame found no room in `sent`.
    pub full: u64,
    /// Frames that found no room in `arrived`.
    pub missed: u64,
}

/// Locks plain data that no panic leaves half changed.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The port.
#[derive(Debug)]
pub struct SimPort {
    info: PortInfo,
    wires: Arc<Mutex<Wires>>,
    burst: Vec<Arrived>,
    counters: PortCounters,
}

impl SimPort {
    /// A port on `wires`.
    pub fn new(
        host: usize,
        mac: MacAddr,
        mtu: u16,
        offloads: Offloads,
        wires: Arc<Mutex<Wires>>,
    ) -> Self {
        let info = PortInfo {
            name: format!("sim:{host}"),
            mac,
            mtu,
            kernel_index: 0,
            offloads,
            shared: None,
        };
        Self { info, wires, burst: Vec::new(), counters: PortCounters::default() }
    }
}

impl Port for SimPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        self.burst.clear();
        burst.handles.clear();
        let mut wires = locked(&self.wires);
        while self.burst.len() < RxBurst::CAPACITY {
            let Some(frame) = wires.arrived.pop_front() else { break };
            burst.handles.push(RxHandle(self.burst.len() as u32));
            self.burst.push(frame);
        }
        self.counters.rx_frames += self.burst.len() as u64;
    }

    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        match self.burst.get(handle.0 as usize) {
            Some(frame) => RxFrame { bytes: &frame.bytes, meta: frame.meta },
            None => RxFrame { bytes: &[], meta: RxMeta::default() },
        }
    }

    fn release(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        self.burst.clear();
    }

    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        let mut wires = locked(&self.wires);
        if wires.sent.len() >= wires.tx_room {
            wires.full += 1;
            if wires.drops {
                self.counters.tx_errors += 1;
                return Err(TxError::Refused);
            }
            self.counters.tx_full += 1;
            return Err(TxError::Full);
        }
        let len = payload.iter().fold(header.len(), |sum, piece| sum + piece.len());
        let limit = if meta.gso.is_some() { 65_535 } else { usize::from(self.info.mtu) };
        // What the stack may never do is an error here, not a lost frame.
        assert!(len <= 14 + limit, "a frame of {len} bytes for a link of {limit}");
        assert!(meta.gso.is_none() || self.info.offloads.tso4, "TSO on a port without it");
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(header);
        for piece in payload {
            let start = bytes.len();
            bytes.resize(start + piece.len(), 0);
            piece.copy_to(&mut bytes[start..]);
        }
        wires.sent.push(Sent { bytes, meta: *meta });
        self.counters.tx_frames += 1;
        Ok(())
    }

    fn flush(&mut self) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
