//! Bridges: frames received by one port are sent by another.

use port::{Forwarder, Reach, TxError, TxFrame};

use super::raw::{RawTable, Sending};
use crate::stats::Counters;
use crate::transmit::Attached;

/// A configured bridge.
#[derive(Clone, Debug)]
pub struct BridgeRule {
    /// Number of the port whose received frames are forwarded.
    pub from: usize,
    /// Number of the port that sends them.
    pub to: usize,
    /// The frames go to the bridge only.
    pub takes: bool,
    /// Filter of the frames to forward.
    pub filter: port::pcap::Filter,
}

/// What frames are passed on with.
pub(crate) struct BridgeTx<'a> {
    /// The ports.
    pub ports: &'a mut [Attached],
    /// Who sees what is sent.
    pub raw: &'a mut RawTable,
    /// What is passed on and dropped.
    pub counters: &'a Counters,
    /// The time, in engine nanoseconds.
    pub now_ns: u64,
}

/// All bridges of a worker.
#[derive(Default)]
pub struct Bridges {
    rules: Vec<BridgeRule>,
    forwarder: Forwarder,
}

impl Bridges {
    /// Creates the bridges of these rules.
    pub fn new(rules: Vec<BridgeRule>) -> Self {
        Self { rules, forwarder: Forwarder::default() }
    }

    /// Whether a port's frames are forwarded.
    pub fn sees(&self, port: usize) -> bool {
        self.rules.iter().any(|rule| rule.from == port)
    }

    /// Passes a burst of port `from` on, but for the frames whose bits are set in `taken`; their bits
    /// and those that the bridges have taken.
    pub(crate) fn forward(&mut self, from: usize, taken: u64, tx: BridgeTx<'_>) -> u64 {
        let BridgeTx { ports, raw, counters, now_ns } = tx;
        let Self { rules, forwarder } = self;
        let mut all = taken;
        for rule in rules.iter().filter(|rule| rule.from == from) {
            let Ok([source, target]) = ports.get_disjoint_mut([from, rule.to]) else { continue };
            let port = &mut *target.port;
            let to = Reach::of(port.info());
            let sending = Sending { number: rule.to, except: None, now_ns };
            for (position, handle) in source.burst.handles.iter().enumerate() {
                let frame = source.port.frame(*handle);
                if all >> position & 1 != 0 || !rule.filter.keeps(frame.bytes) {
                    continue;
                }
                let sent = forwarder.forward(to, &frame, |meta, header| {
                    raw.send(port, sending, &TxFrame { meta, header, payload: &[] })
                });
                match sent {
                    Ok(()) => counters.bridge_frames.increment(),
                    Err(TxError::Full) => counters.bridge_full.increment(),
                    Err(_) => counters.bridge_dropped.increment(),
                }
                all |= u64::from(rule.takes) << position;
            }
        }
        all
    }
}
