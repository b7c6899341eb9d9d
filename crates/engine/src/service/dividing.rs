//! Receivers of a burst other than the stack: programs that see or take frames, bridges, the
//! kernel.

use super::bridge::{BridgeTx, Bridges};
use super::raw::Sending;
use crate::transmit::Attached;
use crate::worker::Worker;

impl Worker {
    /// Whether a port's frames have receivers other than the stack.
    #[inline]
    pub(crate) fn is_divided(&self, index: usize) -> bool {
        self.ports.get(index).is_some_and(|of| of.is_bridged || of.is_divided)
            || self.raw.sees_received(index)
    }

    /// Passes the frames of a port's burst to the other receivers, in order: programs, bridges, the
    /// kernel. Returns the bits of the frames that the stack must not see.
    pub(crate) fn divide(&mut self, index: usize) -> u64 {
        let now = self.now;
        let Self { raw, bridges, ports, stack, sessions, counters, .. } = self;
        let Some(Attached { port, burst, is_bridged, is_divided, .. }) = ports.get_mut(index)
        else {
            return 0;
        };
        let (is_bridged, is_divided) = (*is_bridged, *is_divided);
        let mut taken = 0;
        if raw.sees_received(index) {
            taken = raw.receive(index, &**port, burst, now.0);
            raw.publish(sessions);
        }
        if is_bridged {
            let tx = BridgeTx { ports, raw, counters, now_ns: now.0 };
            taken = bridges.forward(index, taken, tx);
            raw.publish(sessions);
        }
        match ports.get_mut(index) {
            Some(Attached { port, burst, .. }) if is_divided => {
                port.divide(burst, taken, &|local, remote| stack.tcp_awaits(now, local, remote))
            }
            _ => taken,
        }
    }

    /// Sends the kernel's frames through a port that it shares; returns their number.
    pub(crate) fn relay_kernel(&mut self, index: usize) -> usize {
        let Self { raw, ports, sessions, now, .. } = self;
        let Some(attached) = ports.get_mut(index) else { return 0 };
        let sending = Sending { number: index, except: None, now_ns: now.0 };
        let count = attached.port.relay(&mut |meta, bytes| raw.copy_sent(sending, meta, bytes));
        raw.publish(sessions);
        count
    }

    /// Sets the rules of forwarding.
    pub(crate) fn set_bridges(&mut self, bridges: Bridges) {
        for (number, attached) in self.ports.iter_mut().enumerate() {
            attached.is_bridged = bridges.sees(number);
        }
        self.bridges = bridges;
    }
}
