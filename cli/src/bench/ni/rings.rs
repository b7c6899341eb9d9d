//! Rings alone, between two threads on two cores: what a direction carries, and what it costs to show
//! each frame at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lab::failure::Result;
use shm::raw::{
    ClientDown, ClientUp, EngineDown, EngineUp, Received, RingSizes, Rings, Taken, UpInfo,
};

use super::bare::BareRing;
use super::{Sample, failed};
use crate::bench::cores::{Cores, Waiting, as_program, on_both};
use crate::bench::planned::some;

/// Frames that are shown together where nothing else is said: a burst of a port.
const BURST: usize = 64;
/// Frames a second where latency is measured.
const LOW_RATE: u64 = 20_000;

/// What carries blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The ring from engine to program.
    Up,
    /// The ring from program to engine.
    Down,
    /// A ring without checks, headers or counters.
    Bare,
    /// No ring: copies on one core.
    Memcpy,
}

/// A bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// What carries them.
    pub carrier: Carrier,
    /// Bytes of each.
    pub bytes: usize,
}

/// When frames are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Each for itself.
    Frame,
    /// After the burst that it belongs to.
    Burst,
    /// Every so often.
    Every(Duration),
}

/// When frames are shown, and whether small ones share a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publishing {
    /// When.
    pub moment: Moment,
    /// Whether frames of a burst share messages.
    pub combines: bool,
    /// Bytes of each frame.
    pub bytes: usize,
}

/// Blocks that a half of the bandwidth is looked for between.
const HALF_BLOCKS: [usize; 2] = [8, 9000];

/// What can carry blocks between the two cores.
pub struct Carriers {
    cores: Cores,
    bare: BareRing,
}

impl Carriers {
    /// All of them.
    ///
    /// # Errors
    /// When the program of the bare ring cannot be made.
    pub fn new(cores: Cores) -> Result<Self> {
        Ok(Self { cores, bare: BareRing::compile()? })
    }

    /// Bytes a second that a carrier moves.
    ///
    /// # Errors
    /// When rings cannot be had.
    pub fn bandwidth(&self, blocks: &Blocks, window: Duration) -> Result<Vec<Sample>> {
        let rate = self.rate(blocks, window)?;
        Ok(vec![
            sample("bandwidth", "MB/s", rate * blocks.bytes as f64 / 1e6),
            sample("blocks", "M/s", rate / 1e6),
        ])
    }

    /// The smallest block with which a carrier moves half of the bytes that it moves in the largest,
    /// found by halving the distance.
    ///
    /// # Errors
    /// When rings cannot be had.
    pub fn half_block(&self, carrier: Carrier, window: Duration) -> Result<Vec<Sample>> {
        let window = window / 4;
        let speed = |bytes| Ok(self.rate(&Blocks { carrier, bytes }, window)? * bytes as f64);
        let [mut below, mut enough] = HALF_BLOCKS;
        let half = speed(enough)? / 2.0;
        while enough - below > 8 {
            let middle = below.midpoint(enough);
            match speed(middle)? >= half {
                true => enough = middle,
                false => below = middle,
            }
        }
        let (name, value) = ("half of the bandwidth at", enough as f64);
        Ok(vec![Sample { name, unit: "B", higher_is_better: false, value }])
    }

    /// Blocks a second.
    fn rate(&self, blocks: &Blocks, window: Duration) -> Result<f64> {
        let cores = self.cores;
        let (count, seconds) = match blocks.carrier {
            Carrier::Up => up(blocks.bytes, cores, window)?,
            Carrier::Down => down(blocks.bytes, cores, window)?,
            Carrier::Bare => self.bare.run(blocks.bytes, cores, window)?,
            Carrier::Memcpy => as_program(cores, || Ok(copies(blocks.bytes, window)))?,
        };
        some(count, "blocks")?;
        Ok(count as f64 / seconds)
    }
}

fn sample(name: &'static str, unit: &'static str, value: f64) -> Sample {
    Sample { name, unit, higher_is_better: true, value }
}

fn rings() -> Result<Arc<Rings>> {
    Rings::private(RingSizes::DEFAULT).map(Arc::new).map_err(|error| failed("no rings", error))
}

/// Tells a loop every burst whether its window is over.
struct Until {
    begin: Instant,
    window: Duration,
}

impl Until {
    fn now(window: Duration) -> Self {
        Self { begin: Instant::now(), window }
    }

    fn is_over(&self) -> bool {
        self.begin.elapsed() >= self.window
    }
}

/// The consumer counts from its first block on, for a window.
fn counted(
    window: Duration,
    stop: &AtomicBool,
    mut burst: impl FnMut() -> Result<u64>,
) -> Result<(u64, f64)> {
    let mut waiting = Waiting::default();
    while burst()? == 0 {
        waiting.more();
    }
    let until = Until::now(window);
    let mut count = 0;
    // Where others use the cores, a short window may pass without a block.
    while !until.is_over() || count == 0 {
        match burst()? {
            0 => waiting.more(),
            some => count += some,
        }
    }
    let seconds = until.begin.elapsed().as_secs_f64();
    // Relaxed: nothing but the end is told by it.
    stop.store(true, Ordering::Relaxed);
    Ok((count, seconds))
}

/// The producer goes on until it is told to stop.
fn produced(stop: &AtomicBool, mut burst: impl FnMut() -> Result<bool>) -> Result<()> {
    let mut waiting = Waiting::default();
    while !stop.load(Ordering::Relaxed) {
        if !burst()? {
            waiting.more();
        }
    }
    Ok(())
}

/// Ends the other side also when this one fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn up(bytes: usize, cores: Cores, window: Duration) -> Result<(u64, f64)> {
    let rings = rings()?;
    let stop = AtomicBool::new(false);
    let mut near = EngineUp::new(Arc::clone(&rings));
    let mut far = ClientUp::new(rings);
    let block = vec![0x5a; bytes];
    let consume = || {
        let _end = Ending(&stop);
        counted(window, &stop, || received(&mut far))
    };
    let produce = || {
        produced(&stop, || {
            for _ in 0..BURST {
                let pushed = near.push(UpInfo { port: 1, ..UpInfo::default() }, &block);
                if !pushed.map_err(|breach| failed("the ring", breach))? {
                    break;
                }
            }
            Ok(near.publish())
        })
    };
    on_both(cores, consume, produce).map(|(done, ())| done)
}

/// Passes a burst; how many frames it had.
fn received(far: &mut ClientUp) -> Result<u64> {
    let mut count = 0;
    while count < BURST as u64 {
        match far.receive().map_err(|bad| failed("the ring", bad))? {
            Some(Received::Frame(_)) => count += 1,
            Some(Received::Lost(_)) => {}
            None => break,
        }
    }
    // Nobody waits for room here.
    let _ = far.release();
    Ok(count)
}

fn down(bytes: usize, cores: Cores, window: Duration) -> Result<(u64, f64)> {
    let rings = rings()?;
    let stop = AtomicBool::new(false);
    let far = EngineDown::new(Arc::clone(&rings));
    let near = ClientDown::new(rings);
    let (Some(mut far), Some(mut near)) = (far, near) else {
        return Err(failed("no rings", "they have no way down"));
    };
    let block = vec![0x5a; bytes];
    let consume = || {
        let _end = Ending(&stop);
        counted(window, &stop, || {
            let mut count = 0;
            for _ in 0..BURST {
                match far.peek().map_err(|breach| failed("the ring", breach))? {
                    Taken::Nothing => break,
                    Taken::Frame(frame) => {
                        far.take(&frame);
                        count += 1;
                    }
                    Taken::Wrap | Taken::Bad => {}
                }
                far.finish(far.taken());
            }
            far.publish();
            Ok(count)
        })
    };
    let produce = || {
        produced(&stop, || {
            for _ in 0..BURST {
                let Ok(at) = near.reserve(1, None, bytes) else { break };
                near.write(at, &block);
            }
            Ok(near.commit())
        })
    };
    // Which core has which side does not matter: each is the other's counterpart.
    on_both(cores, produce, consume).map(|((), done)| done)
}

/// Copies of blocks into memory of the size of a ring.
fn copies(bytes: usize, window: Duration) -> (u64, f64) {
    let block = vec![0x5a; bytes];
    let mut memory = vec![0; RingSizes::DEFAULT.up as usize];
    let until = Until::now(window);
    let mut count = 0;
    while !until.is_over() {
        for room in memory.chunks_exact_mut(bytes) {
            room.copy_from_slice(std::hint::black_box(&block));
            count += 1;
        }
        std::hint::black_box(&mut memory);
    }
    (count, until.begin.elapsed().as_secs_f64())
}

/// The rate at which frames go up when the ring is never empty, publications for each frame, and how
/// long a frame takes when few come.
///
/// # Errors
/// When rings cannot be had.
pub fn publish(publishing: &Publishing, cores: Cores, window: Duration) -> Result<Vec<Sample>> {
    let loaded = loaded(publishing, cores, window)?;
    let delay = delay(publishing, cores, window)?;
    let lower = |name, unit, value| Sample { name, unit, higher_is_better: false, value };
    Ok(vec![
        sample("frames", "M/s", loaded.rate / 1e6),
        lower("publications for each frame, loaded", "", loaded.publications),
        lower("p50 of a frame's delay, 20,000 a second", "us", delay.p50),
        lower("p99 of a frame's delay, 20,000 a second", "us", delay.p99),
    ])
}

/// What a ring does that is never empty.
struct Loaded {
    rate: f64,
    publications: f64,
}

/// The producer that shows frames when it is told to.
struct Publisher {
    up: EngineUp,
    publishing: Publishing,
    shown_at: Instant,
    block: Vec<u8>,
}

impl Publisher {
    fn new(rings: Arc<Rings>, publishing: Publishing) -> Self {
        Self {
            up: EngineUp::new(rings),
            publishing,
            shown_at: Instant::now(),
            block: vec![0x5a; publishing.bytes],
        }
    }

    /// Appends `count` frames as one burst; `false` when the ring is full.
    fn burst(&mut self, count: usize) -> Result<bool> {
        let mut is_full = false;
        for _ in 0..count {
            let pushed = self.up.push(UpInfo { port: 1, ..UpInfo::default() }, &self.block);
            is_full = !pushed.map_err(|breach| failed("the ring", breach))?;
            if is_full {
                break;
            }
            if !self.publishing.combines {
                self.up.end_message();
            }
            if self.publishing.moment == Moment::Frame {
                self.up.publish();
            }
        }
        let is_due = match self.publishing.moment {
            Moment::Frame => false,
            Moment::Burst => true,
            Moment::Every(period) => self.shown_at.elapsed() >= period,
        };
        if is_due || is_full {
            self.shown_at = Instant::now();
            self.up.publish();
        }
        // A message does not outlive the burst of its frames.
        self.up.end_message();
        Ok(!is_full)
    }
}

fn loaded(publishing: &Publishing, cores: Cores, window: Duration) -> Result<Loaded> {
    let rings = rings()?;
    let stop = AtomicBool::new(false);
    let mut far = ClientUp::new(Arc::clone(&rings));
    let mut near = Publisher::new(rings, *publishing);
    let consume = || {
        let _end = Ending(&stop);
        let mut begun = None;
        let done = counted(window, &stop, || {
            begun.get_or_insert((far.counts().0, far.publications()));
            received(&mut far)
        })?;
        let (frames, publications) = begun.unwrap_or_default();
        let frames = far.counts().0.saturating_sub(frames);
        Ok((done, far.publications().saturating_sub(publications) as f64 / frames.max(1) as f64))
    };
    let produce = || produced(&stop, || near.burst(BURST));
    let (((count, seconds), publications), ()) = on_both(cores, consume, produce)?;
    some(count, "frames")?;
    Ok(Loaded { rate: count as f64 / seconds, publications })
}

/// Quantiles in microseconds.
struct Delay {
    p50: f64,
    p99: f64,
}

/// The time from the arrival of a frame at the engine's side until the program sees it.
fn delay(publishing: &Publishing, cores: Cores, window: Duration) -> Result<Delay> {
    let rings = rings()?;
    let stop = AtomicBool::new(false);
    let begin = Instant::now();
    let ns = |at: Instant| at.saturating_duration_since(begin).as_nanos() as u64;
    let mut far = ClientUp::new(Arc::clone(&rings));
    let mut near = Publisher::new(rings, *publishing);
    let seen = || {
        let _end = Ending(&stop);
        // Three significant digits are within the histogram's range.
        let mut delays: Histogram<u64> =
            Histogram::new(3).map_err(|error| failed("no histogram", format!("{error:?}")))?;
        let until = Until::now(window);
        let mut waiting = Waiting::default();
        while !until.is_over() || delays.is_empty() {
            let Some(received) = far.receive().map_err(|bad| failed("the ring", bad))? else {
                waiting.more();
                continue;
            };
            if let Received::Frame(frame) = received {
                let mut sent = [0; 8];
                far.read(&frame, &mut sent);
                let took = ns(Instant::now()).saturating_sub(u64::from_le_bytes(sent));
                let _ = delays.record(took);
            }
            let _ = far.release();
        }
        Ok(delays)
    };
    let send = || {
        let mut due = ns(Instant::now());
        let mut waiting = Waiting::default();
        while !stop.load(Ordering::Relaxed) {
            let now = ns(Instant::now());
            if now < due {
                // A burst without frames: what waits for its period is shown.
                near.burst(0)?;
                waiting.more();
                continue;
            }
            due = now + 1_000_000_000 / LOW_RATE;
            if let Some(room) = near.block.first_chunk_mut::<8>() {
                *room = now.to_le_bytes();
            }
            near.burst(1)?;
        }
        Ok(())
    };
    let (delays, ()) = on_both(cores, seen, send)?;
    some(delays.len(), "frames")?;
    let at = |quantile| delays.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Delay { p50: at(0.5), p99: at(0.99) })
}
