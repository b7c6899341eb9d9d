//! A capture around any port, switched on and off while the port runs, in the pcapng format that
//! tcpdump and Wireshark read.
//!
//! The worker formats frames into blocks of memory that another thread writes out and returns; when
//! none is free the frame is counted as dropped and the worker continues. Switched off, the wrapper
//! costs one relaxed load per burst and per sent frame. Frames are captured in transit: a checksum
//! left to the port is still partial (Wireshark: "may be caused by checksum offload"), and a large
//! frame is one frame. Times are those of the worker's turns.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use arch::SharedBytes;

use crate::copy::FRAME_BYTES_MAX;
use crate::interface::{Port, RxBurst, TxError, TxMeta};

pub mod filter;
mod format;

pub use filter::Filter;
use format::{
    FrameDirection, SeenFrame, emit_frame, emit_head, emit_statistics, frame_block_bytes,
};

/// Memory handed to the writer at a time; a frame always fits.
const CHUNK_BYTES: usize = 128 * 1024;
/// Maximum data waiting for a slow disk: 8 MiB.
const CHUNKS: usize = 64;

const _: () = assert!(frame_block_bytes(FRAME_BYTES_MAX) < CHUNK_BYTES);

/// Counters of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounters {
    /// Frames passed to the writer.
    pub captured: u64,
    /// Frames for which no memory was free: the writer was too slow.
    pub dropped: u64,
}

/// Messages to the writing thread.
enum ToWriter {
    Chunk(Vec<u8>),
    End,
}

/// The worker's end of a capture.
struct Feed {
    full: SyncSender<ToWriter>,
    empty: Receiver<Vec<u8>>,
    snap_bytes: usize,
    filter: Filter,
    epoch_ns: u64,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    captured: AtomicU64,
    dropped: AtomicU64,
}

impl Counts {
    fn read(&self) -> CaptureCounters {
        CaptureCounters {
            captured: self.captured.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }
}

/// A running capture, as seen by the switch.
struct Running {
    full: SyncSender<ToWriter>,
    writer: JoinHandle<io::Result<()>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Shared {
    /// Incremented at every switching. The worker checks only this.
    turns: AtomicU64,
    /// Fetched by the worker when `turns` has changed.
    next: Mutex<Option<Feed>>,
    running: Mutex<Option<Running>>,
}

/// Poisoning means that a thread died while it held plain data; the data is consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Switches a port's capture, from any thread.
#[derive(Clone)]
pub struct Switch {
    shared: Arc<Shared>,
    name: String,
}

impl Switch {
    /// Starts to capture the frames selected by `filter` into `output`, at most `snap_bytes` of
    /// each (0: whole frames). `epoch_ns` is the offset from the worker's clock to the time since
    /// 1970.
    ///
    /// # Errors
    /// If a capture is already running, or the writing thread cannot be started.
    pub fn start(
        &self,
        mut output: impl Write + Send + 'static,
        filter: Filter,
        snap_bytes: usize,
        epoch_ns: u64,
    ) -> io::Result<()> {
        let mut running = lock(&self.shared.running);
        if running.is_some() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{} is already being captured; stop that capture first", self.name),
            ));
        }
        let snap_bytes = if snap_bytes == 0 { FRAME_BYTES_MAX } else { snap_bytes };
        let (full, to_write) = sync_channel(CHUNKS + 1);
        let (give_back, empty) = sync_channel(CHUNKS);
        for _ in 0..CHUNKS {
            // The channel has room for all of them.
            let _queued = give_back.try_send(Vec::with_capacity(CHUNK_BYTES));
        }
        let counts = Arc::<Counts>::default();
        let mut head = Vec::new();
        emit_head(&mut head, &self.name, snap_bytes);
        let seen = Arc::clone(&counts);
        let writer = std::thread::Builder::new().name("pcap".to_owned()).spawn(move || {
            output.write_all(&head)?;
            output.flush()?;
            write_all(&to_write, &give_back, &mut output)?;
            let mut tail = Vec::new();
            emit_statistics(&mut tail, seen.read());
            output.write_all(&tail)?;
            output.flush()
        })?;
        let feed = Feed {
            full: full.clone(),
            empty,
            snap_bytes,
            filter,
            epoch_ns,
            counts: Arc::clone(&counts),
        };
        *lock(&self.shared.next) = Some(feed);
        *running = Some(Running { full, writer, counts });
        self.shared.turns.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Stops the capture, waits until everything is written and returns its counters; `None` if
    /// none was running.
    ///
    /// # Errors
    /// The error of the output; the capture has ended anyway.
    pub fn stop(&self) -> io::Result<Option<CaptureCounters>> {
        let mut running = lock(&self.shared.running);
        let Some(Running { full, writer, counts }) = running.take() else { return Ok(None) };
        lock(&self.shared.next).take();
        self.shared.turns.fetch_add(1, Ordering::Release);
        // There is room: the queue is longer than there are chunks. An error means that the writer
        // has already ended, which the join reports.
        let _told = full.send(ToWriter::End);
        let written = writer
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the capture's writing thread panicked")));
        written.map(|()| Some(counts.read()))
    }

    /// The counters of a running capture.
    pub fn counters(&self) -> Option<CaptureCounters> {
        lock(&self.shared.running).as_ref().map(|running| running.counts.read())
    }
}

fn write_all(
    to_write: &Receiver<ToWriter>,
    give_back: &SyncSender<Vec<u8>>,
    output: &mut impl Write,
) -> io::Result<()> {
    while let Ok(ToWriter::Chunk(mut chunk)) = to_write.recv() {
        output.write_all(&chunk)?;
        output.flush()?;
        chunk.clear();
        // The worker may have dropped the capture; then the memory is freed here.
        let _returned = give_back.try_send(chunk);
    }
    Ok(())
}

/// A port that can be captured; see the module.
pub struct Captured<P: Port = Box<dyn Port>> {
    inner: P,
    shared: Arc<Shared>,
    turns_seen: u64,
    feed: Option<Feed>,
    chunk: Option<Vec<u8>>,
    now_ns: u64,
}

/// Wraps a port with a capture, switched off.
pub fn wrap<P: Port>(port: P) -> (Captured<P>, Switch) {
    let shared = Arc::<Shared>::default();
    let switch = Switch { shared: Arc::clone(&shared), name: port.info().name.clone() };
    let captured =
        Captured { inner: port, shared, turns_seen: 0, feed: None, chunk: None, now_ns: 0 };
    (captured, switch)
}

impl<P: Port> Captured<P> {
    /// Whether to capture now; fetches or drops the feed after a switch.
    fn is_on(&mut self) -> bool {
        let turns = self.shared.turns.load(Ordering::Relaxed);
        if turns != self.turns_seen {
            self.turns_seen = turns;
            self.chunk = None;
            self.feed = lock(&self.shared.next).take();
        }
        self.feed.is_some()
    }

    /// Passes captured frames to the writer.
    fn pass_on(&mut self) {
        let Some(feed) = &self.feed else { return };
        let Some(chunk) = self.chunk.take_if(|chunk| !chunk.is_empty()) else { return };
        // The queue is longer than there are chunks, so an error means that the writer has given up
        // (a full disk): stop capturing.
        if feed.full.try_send(ToWriter::Chunk(chunk)).is_err() {
            self.feed = None;
        }
    }
}

/// Writes one frame, by the port's time, into the chunk, which has room or is exchanged, if the
/// filter keeps it: its headers lie in its first bytes, or the whole frame does.
fn capture(feed: &Feed, chunk: &mut Option<Vec<u8>>, frame: &SeenFrame<'_>) {
    if !feed.filter.keeps(frame.header) {
        return;
    }
    let len = crate::copy::length(frame.header, frame.payload);
    let needed = frame_block_bytes(len.min(feed.snap_bytes));
    if let Some(bytes) = chunk.take_if(|bytes| bytes.len() + needed > CHUNK_BYTES) {
        // As in `pass_on`; the next turn detects a writer that has given up.
        let _passed = feed.full.try_send(ToWriter::Chunk(bytes));
    }
    if chunk.is_none() {
        *chunk = feed.empty.try_recv().ok();
    }
    let Some(room) = chunk else {
        feed.counts.dropped.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let time_ns = feed.epoch_ns.wrapping_add(frame.time_ns);
    emit_frame(room, &SeenFrame { time_ns, ..*frame }, feed.snap_bytes);
    feed.counts.captured.fetch_add(1, Ordering::Relaxed);
}

impl<P: Port> crate::PortWrapper for Captured<P> {
    type Inner = P;

    fn inner(&self) -> &P {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        self.inner.receive(burst);
        if !self.is_on() {
            return;
        }
        if let Some(feed) = &self.feed {
            for &handle in &burst.handles {
                let frame = SeenFrame {
                    time_ns: self.now_ns,
                    direction: FrameDirection::In,
                    header: self.inner.frame(handle).bytes,
                    payload: &[],
                };
                capture(feed, &mut self.chunk, &frame);
            }
        }
    }

    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        self.inner.send(meta, header, payload)?;
        if self.is_on()
            && let Some(feed) = &self.feed
        {
            let (time_ns, direction) = (self.now_ns, FrameDirection::Out);
            capture(feed, &mut self.chunk, &SeenFrame { time_ns, direction, header, payload });
        }
        Ok(())
    }

    fn flush(&mut self) {
        self.inner.flush();
        self.pass_on();
    }

    fn on_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.pass_on();
        self.inner.on_time(now_ns);
    }

    fn relay(&mut self, sees: &mut dyn FnMut(&TxMeta, &[u8])) -> usize {
        if !self.is_on() {
            return self.inner.relay(sees);
        }
        let Self { inner, feed, chunk, now_ns, .. } = self;
        inner.relay(&mut |meta, bytes| {
            if let Some(feed) = feed {
                let (time_ns, direction) = (*now_ns, FrameDirection::Out);
                let frame = SeenFrame { time_ns, direction, header: bytes, payload: &[] };
                capture(feed, chunk, &frame);
            }
            sees(meta, bytes);
        })
    }
}

impl<P: Port> Drop for Captured<P> {
    fn drop(&mut self) {
        self.pass_on();
    }
}

#[cfg(test)]
mod tests;
