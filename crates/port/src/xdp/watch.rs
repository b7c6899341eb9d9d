//! A watchdog for the worker: the XDP program detects that it has stopped taking frames, and leaves
//! new connections and datagrams to the kernel until it continues.
//!
//! A heartbeat would not work, because an adaptive worker sleeps while nothing arrives. So the
//! worker counts its polls for frames in memory shared with the program, and the program knows
//! since when, and how many, frames wait for the next poll.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::Memory;
use crate::bpf::asm::Register::*;
use crate::bpf::asm::{Assembler, Helper, If, Label, Width};
use crate::bpf::{Map, MapKind};

/// Number of polls; written by the worker. The rest is written by the program, on another cache
/// line.
const LOOKS: i16 = 0;
/// The number of polls when the first of the waiting frames arrived,
const SEEN: i16 = 64;
/// the time of that, in nanoseconds of the monotonic clock; once the worker has stopped, when it
/// was last given a frame or found to have stopped,
const SINCE: i16 = 72;
/// and the number of waiting frames.
const WAITING: i16 = 80;
/// Not 0: the worker has stopped.
const STOPPED: i16 = 88;
/// Frames not passed to a stopped worker.
const KEPT_BACK: i16 = 96;
const VALUE_BYTES: usize = 104;
/// The mapping of such a map.
const MAPPED_BYTES: usize = 4096;

/// A worker has stopped if it lets frames wait this long and does not poll before [`FRAMES`] have
/// arrived, or a multiple of it. A stopped worker is still given one frame in each such interval,
/// to wake one that merely slept because earlier frames were lost before they reached it.
const STOPPED_AFTER_NS: i32 = 2_000_000_000;
/// A power of two.
const FRAMES: i32 = 8;

/// State shared by worker and program.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) map: Map,
}

impl Watch {
    pub(super) fn create() -> io::Result<Self> {
        let map = Map::create(MapKind::MappedArray, 4, VALUE_BYTES, 1)?;
        let mut value = [0; VALUE_BYTES];
        // An impossible number of polls, so that the first frame begins to wait.
        value[SEEN as usize..SINCE as usize].fill(0xff);
        map.set(&[0; 4], &value)?;
        Ok(Self { map })
    }

    /// The worker's side of the map `fd`.
    pub(super) fn watched(fd: OwnedFd) -> io::Result<Watched> {
        let memory = Memory::map(&fd, 0..MAPPED_BYTES)?;
        Ok(Watched { memory })
    }
}

/// The worker's side.
#[derive(Debug)]
pub(super) struct Watched {
    memory: Memory,
}

impl Watched {
    fn word(&self, at: i16) -> Option<&AtomicU64> {
        self.memory.word(at as u64)
    }

    /// The worker has polled for frames. It need not report every poll that finds none.
    #[inline]
    pub(super) fn looked(&self) {
        if let Some(looks) = self.word(LOOKS) {
            // There is no other writer.
            looks.store(looks.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Frames that were not passed because the worker had stopped.
    pub(super) fn kept_back(&self) -> u64 {
        self.word(KEPT_BACK).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

/// Jumps to the verdict in R8 while the worker has stopped, and continues otherwise. `key` is a
/// location for a word on the program's stack. Frames that arrive at the same time on several
/// queues may count as one. Uses R0 to R5 and R7.
pub(super) fn leave_if_stopped(asm: &mut Assembler, watch: &Map, key: i16) {
    let [goes_on, same, stopped, keep_back] = [(); 4].map(|()| asm.label());
    asm.store_value(Width::Word, Fp, key, 0);
    asm.load_map(R1, watch);
    asm.copy(R2, Fp);
    asm.add(R2, i32::from(key));
    asm.call(Helper::MapLookup);
    asm.jump(If::Equal, R0, 0, goes_on);
    asm.load(Width::Double, R1, R0, LOOKS);
    asm.load(Width::Double, R2, R0, SEEN);
    asm.jump_register(If::Equal, R1, R2, same);
    // Written first, before the poll counts as seen: another queue's program may read it at once.
    asm.copy(R7, R0);
    asm.call(Helper::KtimeGetNs);
    asm.store(Width::Double, R7, SINCE, R0);
    asm.store_value(Width::Double, R7, WAITING, 1);
    asm.store_value(Width::Double, R7, STOPPED, 0);
    asm.load(Width::Double, R1, R7, LOOKS);
    asm.store(Width::Double, R7, SEEN, R1);
    asm.go(goes_on);

    asm.place(same);
    asm.copy(R7, R0);
    asm.load(Width::Double, R1, R7, STOPPED);
    asm.jump(If::NotEqual, R1, 0, stopped);
    asm.load(Width::Double, R1, R7, WAITING);
    asm.add(R1, 1);
    asm.store(Width::Double, R7, WAITING, R1);
    asm.and(R1, FRAMES - 1);
    asm.jump(If::NotEqual, R1, 0, goes_on);
    less_than_long_ago(asm, goes_on);
    asm.store_value(Width::Double, R7, STOPPED, 1);
    asm.store(Width::Double, R7, SINCE, R0);
    asm.go(keep_back);

    asm.place(stopped);
    less_than_long_ago(asm, keep_back);
    asm.store(Width::Double, R7, SINCE, R0);
    asm.go(goes_on);

    asm.place(keep_back);
    asm.load(Width::Double, R1, R7, KEPT_BACK);
    asm.add(R1, 1);
    asm.store(Width::Double, R7, KEPT_BACK, R1);
    asm.copy(R0, R8);
    asm.exit();
    asm.place(goes_on);
}

/// Jumps to `label` unless [`SINCE`] of the value in R7 is long ago; sets R0 to the time.
fn less_than_long_ago(asm: &mut Assembler, label: Label) {
    asm.call(Helper::KtimeGetNs);
    asm.load(Width::Double, R1, R7, SINCE);
    asm.add(R1, STOPPED_AFTER_NS);
    asm.jump_register(If::Less, R0, R1, label);
}

#[cfg(test)]
impl Watched {
    /// Moves the arrival of the waiting frames: to `nanoseconds` ago, or ahead if negative.
    pub(super) fn age(&self, nanoseconds: i64) {
        let since = self.word(SINCE).expect("it lies in the map");
        since.fetch_sub(nanoseconds as u64, Ordering::Relaxed);
    }
}
