//! A port that tells somebody of each frame, or is busy with it, as an extension of the engine would be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use port::{Port, RxBurst, TxError, TxMeta};
use shm::raw::SharedBytes;

/// What is done with frames at a port.
pub trait Instrument: Send {
    /// The port has taken a frame of so many bytes.
    fn on_sent(&mut self, bytes: usize);
    /// The port has handed out a burst.
    fn on_received(&mut self) {}
}

/// Work on each frame that is sent: 32-bit operations for each eight bytes.
#[derive(Clone, Debug, Default)]
pub struct Labour {
    operations: Arc<AtomicU32>,
    state: u32,
}

impl Labour {
    /// From now on so many operations for each eight bytes.
    pub fn set(&self, operations: u32) {
        // Relaxed: a frame more or less of the step before changes nothing.
        self.operations.store(operations, Ordering::Relaxed);
    }
}

impl Instrument for Labour {
    fn on_sent(&mut self, bytes: usize) {
        let each = self.operations.load(Ordering::Relaxed) as usize;
        // An addition and a rotation, none of which can be left out.
        for _ in 0..bytes * each / 16 {
            self.state = std::hint::black_box(self.state).wrapping_add(0x9e37_79b9).rotate_left(7);
        }
    }
}

/// When the only frame under way was last given to a port, and when one last handed it out.
#[derive(Clone, Debug)]
pub struct Stamps {
    begin: Instant,
    /// Nanoseconds since `begin`.
    times: Arc<[AtomicU64; 2]>,
}

impl Stamps {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { begin: Instant::now(), times: Arc::default() }
    }

    /// Nanoseconds from its making until now.
    pub fn now_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// When the last frame was given to a port, and when a port handed it out.
    pub fn last_ns(&self) -> [u64; 2] {
        // Relaxed: the frame's way through the ring, which is read before, orders them.
        [0, 1].map(|at: usize| self.times[at].load(Ordering::Relaxed))
    }
}

impl Instrument for Stamps {
    fn on_sent(&mut self, _bytes: usize) {
        self.times[0].store(self.now_ns(), Ordering::Relaxed);
    }

    fn on_received(&mut self) {
        self.times[1].store(self.now_ns(), Ordering::Relaxed);
    }
}

/// A port with an instrument.
#[derive(Debug)]
pub struct Instrumented<P, I> {
    inner: P,
    instrument: I,
}

impl<P: Port, I: Instrument> Instrumented<P, I> {
    /// Puts an instrument around a port.
    pub fn new(inner: P, instrument: I) -> Self {
        Self { inner, instrument }
    }
}

impl<P: Port, I: Instrument> port::PortWrapper for Instrumented<P, I> {
    type Inner = P;

    fn inner(&self) -> &P {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        self.inner.receive(burst);
        if !burst.handles.is_empty() {
            self.instrument.on_received();
        }
    }

    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        self.inner.send(meta, header, payload)?;
        let bytes = header.len() + payload.iter().map(SharedBytes::len).sum::<usize>();
        self.instrument.on_sent(bytes);
        Ok(())
    }
}
