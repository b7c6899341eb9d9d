//! The least that a card does, as a process of its own: byte rings, a signal for each frame that it has
//! received and for each that it has sent, and nothing else. A driver on the host's core is woken by each
//! signal and copies between the rings and a TAP; checksums are the kernel's.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lab::READY;
use lab::failure::{Explain, Failure, Result};
use port::{Port, PortSpec, RxBurst, RxChecksum, TxError, TxMeta};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use shm::raw::{
    ClientDown, ClientUp, EngineDown, EngineUp, Received, RingSizes, Rings, Taken, UpInfo,
};

use crate::bench::cores::{Waiting, pin};

/// What the driver's thread does with the rings and the kernel's end.
type Work = fn(&Arc<Rings>, &Signals, &Mutex<Box<dyn Port>>) -> Result<()>;

/// The way down holds two bursts of the largest frames.
const RINGS: RingSizes = RingSizes { up: 1 << 20, down: 4 << 20 };
/// Frames given to the card that it has not signalled, from which on no more are taken from the kernel.
const UNDER_WAY_MAX: usize = 64;
/// Why rings cannot fail here.
const BOTH_SIDES: &str = "report this: both sides of the rings are the same program's";

/// A card with its driver.
#[derive(Clone, Debug, clap::Args)]
pub struct Card {
    /// What is at the other end of its link, as a port
    #[arg(long)]
    station: String,
    /// The TAP of the kernel's end, as a port
    #[arg(long)]
    tap: String,
    /// Cores of driver and card
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
}

impl Card {
    /// Works until the process is ended.
    ///
    /// # Errors
    /// When it cannot be set up, or fails.
    pub fn run(&self) -> Result<()> {
        let [host, card] = self.cores[..] else {
            return Err(Failure::new("two cores are needed", "name them with --cores"));
        };
        let [station, tap] = [opened(&self.station)?, opened(&self.tap)?];
        let rings = Rings::private(RINGS).explain("no rings", "make room in memory")?;
        let rings = Arc::new(rings);
        let signals = Signals::new()?;
        tell!("{READY}");
        let tap = Mutex::new(tap);
        // The card's error is why the driver's threads end, or theirs why it does.
        std::thread::scope(|scope| {
            let (rings, signals, tap) = (&rings, &signals, &tap);
            let driver = |work: Work| {
                scope.spawn(move || {
                    let _end = Ending(signals);
                    pin(host)?;
                    work(rings, signals, tap)
                })
            };
            let drivers = [driver(receive), driver(send)];
            let worked = {
                let _end = Ending(signals);
                pin(card).and_then(|()| work(station, rings, signals))
            };
            drivers
                .into_iter()
                .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .fold(worked, Result::and)
        })
    }
}

/// Opens a port from its text.
fn opened(text: &str) -> Result<Box<dyn Port>> {
    let spec: PortSpec = text.parse().explain(format!("{text:?} is no port"), "write tap:NAME")?;
    let advice = "run this as root";
    let fds = port::open(&spec).explain(format!("cannot open {text}"), advice)?;
    port::from_fds(fds).explain(format!("cannot use {text}"), advice)
}

/// The interrupts of the card: counters of which each reading takes one.
struct Signals {
    received: OwnedFd,
    sent: OwnedFd,
    is_over: AtomicBool,
}

impl Signals {
    fn new() -> Result<Self> {
        let counter =
            || eventfd(0, EventfdFlags::SEMAPHORE).explain("no eventfd", "raise ulimit -n");
        Ok(Self { received: counter()?, sent: counter()?, is_over: AtomicBool::new(false) })
    }

    fn is_over(&self) -> bool {
        // Relaxed: nothing but the end is told by it.
        self.is_over.load(Ordering::Relaxed)
    }
}

fn strike(signal: &OwnedFd) -> Result<()> {
    rustix::io::write(signal, &1u64.to_ne_bytes())
        .map(|_| ())
        .explain("a signal fails", "report this")
}

fn hear(signal: &OwnedFd) -> Result<()> {
    rustix::io::read(signal, &mut [0_u8; 8]).map(|_| ()).explain("a signal fails", "report this")
}

/// Ends all threads when one ends.
struct Ending<'a>(&'a Signals);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        // Whoever sleeps sees the end then; a signal that fails has ended the others already.
        let _ = strike(&self.0.received);
        let _ = strike(&self.0.sent);
    }
}

/// No panic leaves a port half-changed that others go on with: all threads end.
fn lock<'a>(tap: &'a Mutex<Box<dyn Port>>) -> MutexGuard<'a, Box<dyn Port>> {
    tap.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(error: TxError) -> Failure {
    Failure::new(format!("a frame is refused ({error:?})"), "see whether the TAP is up")
}

/// The driver's interrupt handler of received frames: one frame for each signal.
fn receive(rings: &Arc<Rings>, signals: &Signals, tap: &Mutex<Box<dyn Port>>) -> Result<()> {
    let mut up = ClientUp::new(Arc::clone(rings));
    let mut room = Vec::new();
    loop {
        hear(&signals.received)?;
        if signals.is_over() {
            return Ok(());
        }
        // A notice of lost frames has no signal of its own.
        let received = loop {
            match up.receive().explain("the ring fails", BOTH_SIDES)? {
                Some(Received::Frame(frame)) => break Some(frame),
                Some(Received::Lost(_)) => {}
                None => break None,
            }
        };
        let Some(received) = received else { continue };
        room.resize(received.len, 0);
        up.read(&received, &mut room);
        // Nobody waits for room.
        let _ = up.release();
        let mut tap = lock(tap);
        match tap.send(&TxMeta::default(), &room, &[]) {
            // Until it is up the TAP takes nothing.
            Ok(()) | Err(TxError::Full | TxError::Down) => tap.flush(),
            Err(error) => return Err(refused(error)),
        }
    }
}

/// The driver's sending: frames of the kernel go to the card, whose signal is heard for each.
fn send(rings: &Arc<Rings>, signals: &Signals, tap: &Mutex<Box<dyn Port>>) -> Result<()> {
    let Some(mut down) = ClientDown::new(Arc::clone(rings)) else {
        return Err(Failure::new("the rings have no way down", BOTH_SIDES));
    };
    let device = lock(tap).wait_fd().map(|fd| fd.try_clone_to_owned());
    let device = device.transpose().explain("no descriptor", "raise ulimit -n")?;
    let Some(device) = device else {
        return Err(Failure::new("the TAP cannot be waited for", "report this"));
    };
    let (mut burst, mut under_way) = (RxBurst::new(), 0_usize);
    while !signals.is_over() {
        let mut waited = vec![PollFd::new(&signals.sent, PollFlags::IN)];
        if under_way < UNDER_WAY_MAX {
            waited.push(PollFd::new(&device, PollFlags::IN));
        }
        poll(&mut waited, None).explain("cannot poll", "report this")?;
        let is_ready = |at: usize| waited.get(at).is_some_and(|one| !one.revents().is_empty());
        if is_ready(0) {
            hear(&signals.sent)?;
            under_way = under_way.saturating_sub(1);
        }
        if !is_ready(1) {
            continue;
        }
        let mut tap = lock(tap);
        tap.receive(&mut burst);
        for handle in &burst.handles {
            let frame = tap.frame(*handle);
            if frame.meta.checksum != RxChecksum::Unknown || frame.meta.gso.is_some() {
                let cause = "the kernel has left work to the card";
                return Err(Failure::new(cause, "turn its offloads off (ethtool -K)"));
            }
            let at =
                down.reserve(1, None, frame.bytes.len()).explain("the ring is full", BOTH_SIDES)?;
            down.write(at, frame.bytes);
            // The card polls.
            let _ = down.commit();
            under_way += 1;
        }
        tap.release(&mut burst);
    }
    Ok(())
}

/// The card.
fn work(mut station: Box<dyn Port>, rings: &Arc<Rings>, signals: &Signals) -> Result<()> {
    let mut up = EngineUp::new(Arc::clone(rings));
    let Some(mut down) = EngineDown::new(Arc::clone(rings)) else {
        return Err(Failure::new("the rings have no way down", BOTH_SIDES));
    };
    let (begin, mut waiting, mut burst) = (Instant::now(), Waiting::default(), RxBurst::new());
    let mut frame = Vec::new();
    while !signals.is_over() {
        station.on_time(begin.elapsed().as_nanos() as u64);
        let mut has_worked = false;
        station.receive(&mut burst);
        for handle in &burst.handles {
            let bytes = station.frame(*handle).bytes;
            let pushed = up.push(UpInfo { port: 1, ..UpInfo::default() }, bytes);
            // The host is behind: a card drops.
            if !pushed.explain("the ring fails", BOTH_SIDES)? {
                break;
            }
            up.publish();
            strike(&signals.received)?;
            has_worked = true;
        }
        station.release(&mut burst);
        while let Some(next) = next_of(&mut down)? {
            frame.resize(next.len, 0);
            down.read(&next, &mut frame);
            down.take(&next);
            down.finish(down.taken());
            // The driver does not wait for room.
            let _ = down.publish();
            station.send(&TxMeta::default(), &frame, &[]).map_err(refused)?;
            strike(&signals.sent)?;
            has_worked = true;
        }
        if !has_worked {
            waiting.more();
        }
    }
    Ok(())
}

/// The next frame from the driver.
fn next_of(down: &mut EngineDown) -> Result<Option<shm::raw::DownFrame>> {
    loop {
        match down.peek().explain("the ring fails", BOTH_SIDES)? {
            Taken::Nothing => return Ok(None),
            Taken::Frame(frame) => return Ok(Some(frame)),
            Taken::Wrap | Taken::Bad => down.finish(down.taken()),
        }
    }
}
