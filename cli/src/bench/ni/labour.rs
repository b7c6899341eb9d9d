//! A port that works on every frame it sends, as an extension of the engine would.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use port::{Port, PortCounters, PortInfo, RxBurst, RxFrame, RxHandle, TxError, TxMeta};
use shm::raw::SharedBytes;

/// How much work: 32-bit operations for each eight bytes.
pub type Labour = Arc<AtomicU32>;

/// The port.
#[derive(Debug)]
pub struct Laborious<P> {
    inner: P,
    labour: Labour,
    state: u32,
}

impl<P: Port> Laborious<P> {
    /// Puts work around a port.
    pub fn new(inner: P, labour: Labour) -> Self {
        Self { inner, labour, state: 1 }
    }
}

/// Does so many 32-bit operations, none of which can be left out.
fn operate(state: u32, operations: u64) -> u32 {
    let mut state = state;
    for _ in 0..operations / 2 {
        state = std::hint::black_box(state).wrapping_add(0x9e37_79b9).rotate_left(7);
    }
    state
}

impl<P: Port> Port for Laborious<P> {
    fn info(&self) -> &PortInfo {
        self.inner.info()
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        self.inner.receive(burst);
    }

    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        self.inner.frame(handle)
    }

    fn release(&mut self, burst: &mut RxBurst) {
        self.inner.release(burst);
    }

    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        self.inner.send(meta, header, payload)?;
        // Relaxed: a frame more or less of the step before changes nothing.
        let labour = u64::from(self.labour.load(Ordering::Relaxed));
        let bytes = header.len() + payload.iter().map(SharedBytes::len).sum::<usize>();
        self.state = operate(self.state, bytes as u64 * labour / 8);
        Ok(())
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn counters(&self) -> PortCounters {
        self.inner.counters()
    }

    fn next_deadline(&self) -> Option<u64> {
        self.inner.next_deadline()
    }

    fn on_time(&mut self, now_ns: u64) {
        self.inner.on_time(now_ns);
    }
}
