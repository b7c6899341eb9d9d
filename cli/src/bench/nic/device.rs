//! The three network interfaces that `bench nic` compares, as processes of their own. Each makes the
//! datagrams that it receives, on the engine's core.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::config::{Cidr, EngineConfig, Ipv6Mode, Poll, PortSetup};
use engine::service::Engine;
use lab::READY;
use lab::failure::{Explain, Failure, Result};
use port::datagrams::{CHECKSUM, DatagramPort, Flow};
use port::{Port, PortSpec, RxBurst, TxError, TxMeta};
use rustix::event::{EventfdFlags, eventfd};
use shm::raw::{ClientUp, EngineUp, Received, RingSizes, Rings, UpInfo};

use crate::bench::ni::cores::{Cores, Waiting, on_both, pin};

/// Longest wait for the kernel's link address.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two questions for it.
const PAUSE: Duration = Duration::from_millis(10);
/// Frames that the software card makes at a time.
const BURST: usize = 64;
/// Link addresses of the sender, and of the engine.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 3, 9], [2, 0, 0, 0, 3, 1]];

/// What an interface does for the program's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A byte ring with a signal for each frame; a driver on the host copies, the kernel does the rest.
    Emulated,
    /// Verifies checksums and writes to the kernel's interface.
    Softnic,
    /// UDP in an engine.
    Onloader,
}

/// An interface.
#[derive(Clone, Debug, clap::Args)]
pub struct Device {
    /// What it does
    kind: Kind,
    /// Where its datagrams go
    #[arg(long)]
    to: SocketAddrV4,
    /// Where they come from
    #[arg(long)]
    from: SocketAddrV4,
    /// Payload of each
    #[arg(long)]
    bytes: usize,
    /// Cores of program and engine
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// The TAP of the kernel's end, as a port
    #[arg(long)]
    tap: String,
    /// Socket of the engine
    #[arg(long)]
    socket: PathBuf,
}

impl Device {
    /// Works until the process is ended.
    ///
    /// # Errors
    /// When it cannot be set up, or fails.
    pub fn run(&self) -> Result<()> {
        let [program, engine] = self.cores[..] else {
            return Err(Failure::new("two cores are needed", "name them with --cores"));
        };
        let cores = Cores { program, engine };
        let flow = Flow {
            source: self.from,
            source_mac: MACS[0],
            destination: self.to,
            destination_mac: MACS[1],
            bytes: self.bytes,
        };
        match self.kind {
            Kind::Onloader => self.onload(&flow, cores),
            Kind::Emulated => emulate(self.kernel_end(flow)?, cores),
            Kind::Softnic => softnic(self.kernel_end(flow)?, cores),
        }
    }

    fn onload(&self, flow: &Flow, cores: Cores) -> Result<()> {
        let port = DatagramPort::new(flow, false).ok_or_else(too_long)?;
        let mut config = EngineConfig::new(&self.socket);
        config.core = Some(cores.engine);
        config.poll = Poll::Busy;
        let setup = PortSetup {
            port: Box::new(port),
            addresses: vec![Cidr { address: (*self.to.ip()).into(), prefix: 24 }],
            gateway: None,
            routes: Vec::new(),
            ipv6: Ipv6Mode::Off,
        };
        let engine = Engine::start(config, vec![setup])
            .explain("the engine does not start", "see whether its core may be used")?;
        tell!("{READY}");
        engine.join().explain("the engine has failed", "report this")
    }

    /// Opens the TAP, and waits until the kernel has its address there.
    fn kernel_end(&self, flow: Flow) -> Result<KernelEnd> {
        let spec: PortSpec =
            self.tap.parse().explain(format!("{:?} is no port", self.tap), "write tap:NAME")?;
        let advice = "run this as root";
        let fds = port::open(&spec).explain("cannot open the TAP", advice)?;
        let tap = port::from_fds(fds).explain("cannot use the TAP", advice)?;
        tell!("{READY}");
        let mut end = KernelEnd { flow, tap };
        end.learn()?;
        Ok(end)
    }
}

fn too_long() -> Failure {
    Failure::new("no IP packet holds such a datagram", "choose fewer bytes")
}

/// The kernel's interface, seen from the wire.
struct KernelEnd {
    flow: Flow,
    tap: Box<dyn Port>,
}

impl KernelEnd {
    /// Asks for the link address of the kernel's end until it is said.
    fn learn(&mut self) -> Result<()> {
        let asked = self.flow.arp_request().ok_or_else(too_long)?;
        let (begin, mut burst) = (Instant::now(), RxBurst::new());
        while begin.elapsed() < PATIENCE {
            // A TAP that is not up yet refuses frames.
            let _ = self.tap.send(&TxMeta::default(), &asked, &[]);
            self.tap.flush();
            std::thread::sleep(PAUSE);
            self.tap.receive(&mut burst);
            let frames = burst.handles.iter().map(|handle| self.tap.frame(*handle).bytes);
            let answer = frames.filter_map(|frame| self.flow.arp_answer(frame)).next();
            self.tap.release(&mut burst);
            if let Some(mac) = answer {
                self.flow.destination_mac = mac;
                return Ok(());
            }
        }
        let cause = format!("nobody has {} at the TAP", self.flow.destination.ip());
        Err(Failure::new(cause, "give the interface the address and bring it up"))
    }
}

/// The least that a card does: it signals each frame, and a driver on the host's core is woken, copies
/// one, and leaves everything else to the kernel.
fn emulate(end: KernelEnd, cores: Cores) -> Result<()> {
    let KernelEnd { flow, mut tap } = end;
    let rings = Rings::private(RingSizes::DEFAULT).explain("no rings", "make room in memory")?;
    let rings = Arc::new(rings);
    let frame = flow.frame().ok_or_else(too_long)?;
    // A counter of which each reading takes one.
    let signal = eventfd(0, EventfdFlags::SEMAPHORE).explain("no eventfd", "raise ulimit -n")?;
    let is_over = AtomicBool::new(false);
    let mut far = ClientUp::new(Arc::clone(&rings));
    let mut near = EngineUp::new(Arc::clone(&rings));
    let driver = || {
        let mut room = vec![0; frame.len()];
        let mut count = [0; 8];
        let driven = (|| loop {
            rustix::io::read(&signal, &mut count).explain("the signal fails", "report this")?;
            // A notice of lost frames has no signal of its own.
            let received = loop {
                match far.receive().explain("the ring fails", "report this")? {
                    Some(Received::Frame(frame)) => break Some(frame),
                    Some(Received::Lost(_)) => {}
                    None => break None,
                }
            };
            let Some(received) = received else { continue };
            let copied = far.read(&received, &mut room);
            // Nobody waits for room.
            let _ = far.release();
            match tap.send(&TxMeta::default(), &room[..copied], &[]) {
                Ok(()) | Err(TxError::Full) => tap.flush(),
                Err(error) => return Err(refused(error)),
            }
        })();
        is_over.store(true, Ordering::Relaxed);
        driven
    };
    let card = || {
        let mut waiting = Waiting::default();
        while !is_over.load(Ordering::Relaxed) {
            let pushed =
                near.push(UpInfo { port: 1, ..UpInfo::default() }, std::hint::black_box(&frame));
            // The host is behind: a card drops.
            if !pushed.explain("the ring fails", "report this")? {
                waiting.more();
                continue;
            }
            near.publish();
            rustix::io::write(&signal, &1u64.to_ne_bytes())
                .explain("the signal fails", "report this")?;
        }
        Ok(())
    };
    on_both(cores, driver, card).map(|((), ())| ())
}

/// A card that verifies and copies; the kernel's receive thread takes what it finds.
fn softnic(end: KernelEnd, cores: Cores) -> Result<()> {
    let KernelEnd { flow, mut tap } = end;
    pin(cores.engine)?;
    let frame = flow.frame().ok_or_else(too_long)?;
    let verified = flow.partial_frame().ok_or_else(too_long)?;
    let meta = TxMeta { checksum: Some(CHECKSUM), ..TxMeta::default() };
    let mut waiting = Waiting::default();
    loop {
        for _ in 0..BURST {
            if !flow.is_valid(std::hint::black_box(&frame)) {
                return Err(Failure::new("a checksum is wrong", "report this"));
            }
            match tap.send(&meta, &verified, &[]) {
                Ok(()) => {}
                Err(TxError::Full) => {
                    waiting.more();
                    break;
                }
                Err(error) => return Err(refused(error)),
            }
        }
        tap.flush();
    }
}

fn refused(error: TxError) -> Failure {
    Failure::new(format!("the TAP refuses a frame ({error:?})"), "see whether it is up")
}
