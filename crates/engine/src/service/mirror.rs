//! Mirrors: kernel interfaces that show the frames that a port receives and sends. The worker
//! copies frames to a byte ring, as for a program; another thread writes them into the interface.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::JoinHandle;

use port::kernel::Mirror;
use port::{Gso, GsoKind, RxChecksum, RxFrame, RxMeta};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use shm::control::RawWants;
use shm::raw::{ClientUp, FrameFlags, Meta, Received, RingSizes, Rings, SegmentKind};

use super::raw::RawSeed;
use crate::errors::EngineError;
use crate::privileges;
use crate::stats::Counter;

/// Size of the ring.
const RING_BYTES: u32 = 4 << 20;
/// Frames written before their room is released.
const FRAMES_AT_A_TIME: usize = 64;

/// A configured mirror, with its interface.
#[derive(Clone, Debug)]
pub struct MirrorRule {
    /// The port's number.
    pub port: usize,
    /// The interface's name.
    pub name: String,
    /// The interface.
    pub device: Arc<Mirror>,
}

/// Counters of a mirror.
#[derive(Debug, Default)]
pub struct MirrorCounts {
    /// Copies accepted by the interface.
    pub shown: Counter,
    /// Copies that were lost: the ring or the interface was full, the interface was down, or it
    /// refused the frame.
    pub lost: Counter,
    /// Frames sent into the interface by programs, which are dropped.
    pub refused: Counter,
}

/// The worker's handle: wakes the thread, and ends it when dropped.
#[derive(Debug)]
pub struct Rope(Arc<Bell>);

/// Wakes a mirror's thread when it sleeps.
#[derive(Debug)]
struct Bell {
    sleeps: AtomicBool,
    ends: AtomicBool,
    fd: OwnedFd,
}

impl Rope {
    /// There is something to read. Makes a system call only when the thread sleeps.
    pub fn pull(&self) {
        // Pairs with the fence in `Work::run`: either the thread sees what was published, or this
        // sees that it sleeps.
        fence(Ordering::SeqCst);
        if self.0.sleeps.load(Ordering::Relaxed) && self.0.sleeps.swap(false, Ordering::Relaxed) {
            self.0.strike();
        }
    }
}

impl Drop for Rope {
    fn drop(&mut self) {
        self.0.ends.store(true, Ordering::Release);
        self.0.strike();
    }
}

impl Bell {
    fn strike(&self) {
        // A full counter wakes, too.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    fn is_over(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    fn silence(&self) {
        // An empty counter is fine.
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }
}

/// A running mirror.
pub(crate) struct Running {
    /// The destination of the worker's copies.
    pub seed: RawSeed,
    /// Wakes the thread.
    pub rope: Rope,
    /// The interface's name.
    pub name: String,
    /// Its counters.
    pub counts: Arc<MirrorCounts>,
    /// The thread; it ends when the rope is dropped.
    pub thread: JoinHandle<Result<(), EngineError>>,
}

/// Starts a mirror's thread.
///
/// # Errors
/// A sentence: the memory, descriptors or threads that are not available.
pub(crate) fn start(rule: MirrorRule) -> Result<Running, String> {
    let MirrorRule { port, name, device } = rule;
    let failed = |why: String| format!("the mirror {name}: {why}");
    let device = Arc::into_inner(device).ok_or_else(|| failed("it is already running".into()))?;
    let sizes = RingSizes { up: RING_BYTES, down: 0 };
    let rings = Rings::create(sizes).map_err(|error| failed(error.to_string()))?;
    let rings = Arc::new(rings);
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|error| failed(format!("eventfd: {error}")))?;
    let bell = Arc::new(Bell { sleeps: AtomicBool::new(false), ends: AtomicBool::new(false), fd });
    let counts = Arc::<MirrorCounts>::default();
    let work = Work {
        mirror: device,
        up: ClientUp::new(Arc::clone(&rings)),
        bell: Arc::clone(&bell),
        counts: Arc::clone(&counts),
        frame: Vec::new(),
    };
    let thread = std::thread::Builder::new()
        .name("outboard-mirror".into())
        .spawn(move || {
            privileges::keep_or_warn(CapabilitySet::empty());
            work.run();
            Ok(())
        })
        .map_err(|error| failed(format!("starting its thread: {error}")))?;
    let wants = RawWants { received: true, sent: true, meta: true, ..RawWants::default() };
    let seed = RawSeed { rings, ports: vec![port], filter: None, wants, spoofs: false };
    Ok(Running { seed, rope: Rope(bell), name, counts, thread })
}

struct Work {
    mirror: Mirror,
    up: ClientUp,
    bell: Arc<Bell>,
    counts: Arc<MirrorCounts>,
    frame: Vec<u8>,
}

impl Work {
    fn run(mut self) {
        while !self.bell.is_over() {
            if self.show_some() {
                continue;
            }
            self.bell.sleeps.store(true, Ordering::Relaxed);
            // Pairs with the fence in `Rope::pull`.
            fence(Ordering::SeqCst);
            if !self.up.has_more() && !self.wait() {
                return;
            }
            self.bell.sleeps.store(false, Ordering::Relaxed);
        }
    }

    /// `false`: it cannot wait any more.
    fn wait(&mut self) -> bool {
        match self.mirror.wait(self.bell.fd.as_fd()) {
            Ok(found) => {
                self.counts.refused.add(found.dropped);
                if found.is_rung {
                    self.bell.silence();
                }
                true
            }
            Err(Errno::INTR) => true,
            Err(error) => {
                tracing::error!("a mirror cannot wait for frames and ends: {error}");
                false
            }
        }
    }

    /// Writes waiting frames. `false`: there were none.
    fn show_some(&mut self) -> bool {
        let mut count = 0;
        while count < FRAMES_AT_A_TIME {
            match self.up.receive() {
                Ok(None) => break,
                Ok(Some(Received::Lost(frames))) => self.counts.lost.add(frames.into()),
                Ok(Some(Received::Frame(found))) => {
                    self.frame.resize(found.len, 0);
                    self.up.read(&found, &mut self.frame);
                    let meta = meta_of(found.flags, found.meta.as_ref());
                    let frame = RxFrame { bytes: &self.frame, meta };
                    match self.mirror.show(&frame) {
                        true => self.counts.shown.increment(),
                        false => self.counts.lost.increment(),
                    }
                }
                Err(error) => {
                    // Both sides of this ring are the engine's.
                    tracing::error!("a mirror: {error}");
                    break;
                }
            }
            count += 1;
        }
        // No doorbell was requested: the worker finds the room when it looks.
        let _ = self.up.release();
        count > 0
    }
}

fn meta_of(flags: FrameFlags, meta: Option<&Meta>) -> RxMeta {
    let Some(meta) = meta else { return RxMeta::default() };
    let checksum = match meta.checksum_start {
        0 if flags.contains(FrameFlags::VERIFIED) => RxChecksum::Valid,
        0 => RxChecksum::Unknown,
        start => RxChecksum::Partial { start, offset: meta.checksum_offset },
    };
    let kind = match meta.segments {
        SegmentKind::None => None,
        SegmentKind::Tcp4 => Some(GsoKind::Tcp4),
        SegmentKind::Tcp6 => Some(GsoKind::Tcp6),
        SegmentKind::Udp => Some(GsoKind::Udp),
    };
    RxMeta { checksum, gso: kind.map(|kind| Gso { size: meta.segment_bytes, kind }) }
}
