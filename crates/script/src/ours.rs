//! Our stack as the host under test: an engine's worker, the shared-memory contract, the client's
//! POSIX sockets and one program's thread on top, under virtual time.

mod baton;
mod host;
mod kernel;
mod program;
pub mod sysctls;

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use client::sockets::{Config, Sockets};
pub use engine::Destination;

use crate::errors::Unsupported;
use crate::frame;
use crate::system::{LOCAL, Outcome, System, SystemCall};
use baton::Baton;
pub use baton::Job;
use host::Host;
pub use host::MAC;
use kernel::InMemory;
pub use kernel::Numbers;
pub use program::{Message, Program};

/// Scripts that do not say otherwise get the tolerance that packetdrill gives.
const TOLERANCE_NS: u64 = 4_000_000;
/// Rounds of work at one moment after which something is wrong.
const ROUNDS_MAX: usize = 100_000;
/// Time in which an IPv6 address is surely known to be nobody else's (RFC 4862).
const DETECTION_NS: u64 = 4_000_000_000;

/// How a system is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Largest packet of the link.
    pub mtu: u16,
    /// Kernel settings that the script wants.
    pub sysctls: Vec<(String, String)>,
    /// The host's addresses with the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// What kind of numbers its descriptors have.
    pub numbers: Numbers,
    /// Whether its port cuts large segments.
    pub tso: bool,
    /// Ways through the port, beside the link.
    pub routes: Vec<Destination>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mtu: 1500,
            sysctls: Vec::new(),
            addresses: vec![(LOCAL.into(), 24)],
            numbers: Numbers::Own,
            tso: false,
            routes: Vec::new(),
        }
    }
}

/// A host of ours.
pub struct Ours {
    host: Arc<Host>,
    baton: Arc<Baton>,
    thread: Option<JoinHandle<()>>,
    frames: Vec<(u64, Vec<u8>)>,
    program: Program,
}

impl Ours {
    /// A host at the beginning of time, which knows the peer's link address.
    pub fn new(settings: &Settings) -> Result<Self, Unsupported> {
        let baton = Arc::new(Baton::default());
        let host = Arc::new(Host::new(settings, baton.clone())?);
        // The sockets of a process live as long as it does; a script's are a few kilobytes.
        let kernel: &'static InMemory = Box::leak(Box::new(InMemory::new(baton.clone(), settings)));
        let config = Config {
            socket: "/dev/null".into(),
            program: "script".into(),
            spin_ns: 0,
            quiet: true,
            report: None,
        };
        let sockets: &'static Sockets = Box::leak(Box::new(Sockets::new(config, kernel)));
        let session = host.attach(kernel)?;
        sockets.use_session(session);
        let program = Program::new(sockets, kernel);
        let calling = baton.clone();
        let thread = std::thread::Builder::new()
            .name("program".into())
            .spawn(move || calling.serve(program))
            .map_err(|why| Unsupported(format!("no thread for the program: {why}")))?;
        let mut ours = Self { host, baton, thread: Some(thread), frames: Vec::new(), program };
        ours.inject(frame::arp_question());
        ours.settle();
        if settings.addresses.iter().any(|(address, _)| address.is_ipv6()) {
            // Until the addresses are known to be nobody else's.
            let later = ours.now() + DETECTION_NS;
            while ours.now() < later {
                ours.pass(later);
                ours.frames.clear();
            }
        }
        ours.frames.clear();
        Ok(ours)
    }

    /// The program begins something. Only when what it did before has ended.
    pub fn begin(&mut self, job: Job) {
        self.settle();
        self.baton.start(job);
        self.settle();
    }

    /// Takes other kernel settings while it runs.
    pub fn follow(&mut self, sysctls: &sysctls::Sysctls) {
        self.host.follow(sysctls);
        self.program.follow(sysctls);
    }

    /// The ways through its port are others.
    pub fn set_routes(&mut self, routes: Vec<Destination>) {
        self.host.set_routes(routes);
    }

    /// What the time of day was when time began, nanoseconds, going round.
    pub fn set_calendar(&mut self, at_ns: u64) {
        self.program.set_calendar(at_ns);
    }

    /// Forgets what is remembered of servers, as `ip tcp_metrics flush` does.
    pub fn forget_servers(&mut self) {
        self.host.forget_servers();
    }

    /// What its stack has counted under a name; 0 where there is no such counter.
    pub fn counter(&self, name: &str) -> u64 {
        self.host.counter(name)
    }

    /// Whether large segments leave as they are, as a device that cuts them itself takes them.
    pub fn cut_frames(&mut self, cut: bool) {
        self.host.cut_frames(cut);
    }

    /// A frame arrives that stands for several segments of so many bytes.
    pub fn inject_coalesced(&mut self, mut frame: Vec<u8>, segment_bytes: u16) {
        frame::address_to(&mut frame, host::MAC);
        self.host.arrive_coalesced(frame, segment_bytes);
    }

    /// Whether its port takes frames to send.
    pub fn open_port(&mut self, open: bool) {
        self.host.open_port(open);
    }

    /// The program, for those who call it themselves.
    pub fn program(&self) -> Program {
        self.program
    }

    /// Lets everything happen that happens now.
    fn settle(&mut self) {
        let addresses = self.host.addresses().to_vec();
        let is_peer = |address| !addresses.iter().any(|(own, _)| *own == address);
        for _ in 0..ROUNDS_MAX {
            let worked = self.host.turn();
            let now = self.baton.now();
            let mut answered = false;
            for bytes in self.host.take_sent() {
                match frame::neighbor_answer(&bytes, &is_peer) {
                    Some(answer) => {
                        self.inject(answer);
                        answered = true;
                    }
                    None => self.frames.push((now, bytes)),
                }
            }
            let went_on = worked && self.baton.nudge();
            if !worked && !went_on && !answered {
                return;
            }
        }
        panic!("the engine and its program never come to rest");
    }
}

impl System for Ours {
    fn now(&self) -> u64 {
        self.baton.now()
    }

    fn pass(&mut self, until: u64) {
        loop {
            self.settle();
            if !self.frames.is_empty() || self.baton.has_outcome() {
                return;
            }
            let now = self.baton.now();
            if now >= until {
                return;
            }
            let engine = self.host.next_deadline().unwrap_or(u64::MAX).max(now + 1_000);
            let program = self.baton.waits_until().unwrap_or(u64::MAX).max(now);
            let next = until.min(engine).min(program);
            self.baton.set_now(next);
            if program <= next {
                self.baton.nudge();
            }
        }
    }

    fn take_frames(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.settle();
        std::mem::take(&mut self.frames)
    }

    fn inject(&mut self, mut frame: Vec<u8>) {
        frame::address_if_open(&mut frame, host::MAC);
        self.host.arrive(frame);
    }

    fn inject_datagrams(&mut self, mut frame: Vec<u8>, segment_bytes: u16) {
        let start = frame::transport_start(&frame);
        wire::checksum::complete(&mut frame, start.into(), frame::UDP_CHECKSUM.into())
            .expect("the frame has a UDP header");
        self.inject_coalesced(frame, segment_bytes);
    }

    fn calendar_ns(&self) -> u64 {
        self.program.calendar_ns()
    }

    fn start(&mut self, call: SystemCall) {
        self.begin(Job::new(move |program| program.call(call)));
    }

    fn take_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.settle();
        self.baton.take_outcome()
    }

    fn tolerance_ns(&self) -> u64 {
        TOLERANCE_NS
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.baton.end();
        self.host.end();
        if let Some(thread) = self.thread.take() {
            // It can only have panicked; whoever runs the script hears of that by its failure.
            let _ = thread.join();
        }
    }
}
