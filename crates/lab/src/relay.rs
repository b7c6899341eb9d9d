//! A path of our own between the two hosts of a [`Lab`], since not every kernel has netem: a TAP
//! device in each host, and a thread that carries frames from one to the other through the
//! simulation's narrow places.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use port::{Port, PortSpec, RxBurst, RxChecksum, TxMeta};
use rustix::event::{PollFd, PollFlags, Timespec};
use sim::congestion::Line;

use crate::failure::{Explain, Failure, Result};
use crate::{Lab, Side};

/// Longest sleep of the relay, after which it looks whether to stop.
const NAP: Duration = Duration::from_millis(20);
/// Ethernet, IPv4 and TCP headers without options: what is certainly no payload.
const HEADER_BYTES: usize = 54;

/// The networks of paths: 10.82.0.0/24 and the following.
const NETWORK: u32 = 10 << 8 | 82;
/// As many there are.
const PATHS_MAX: u32 = 256;
/// Paths made so far.
static PATHS: AtomicU32 = AtomicU32::new(0);

/// A frame on its way, with what is left to do to its checksum.
pub type Frame = (Vec<u8>, Option<(u16, u16)>);

/// A path between the hosts; it ends when dropped, and its devices with it.
#[derive(Debug)]
pub struct Path {
    devices: [String; 2],
    addresses: [Ipv4Addr; 2],
    stop: Arc<AtomicBool>,
    relay: Option<JoinHandle<[Line<Frame>; 2]>>,
}

impl Path {
    /// Joins the hosts; the first of `lines` is the way from host A to host B.
    ///
    /// # Errors
    /// When the devices cannot be made.
    pub fn new(lab: &Lab, lines: [Line<Frame>; 2]) -> Result<Self> {
        // Others than those of the path before, whose devices may live on for a moment in a child
        // of this process that has not yet become another program.
        let number = PATHS.fetch_add(1, Ordering::Relaxed) % PATHS_MAX;
        let address = |host| Ipv4Addr::from((NETWORK << 16) + (number << 8) + host);
        let addresses = [address(1), address(2)];
        let devices = Side::BOTH.map(|side| format!("{}{}{number}", lab.stem(), side.letter()));
        let mut ports = Vec::new();
        for ((side, device), address) in Side::BOTH.into_iter().zip(&devices).zip(addresses) {
            let namespace = lab.host(side).namespace();
            // Faults that never happen keep the kernel from handing over large segments.
            let spec: PortSpec = format!("tap:{device},netns={namespace},impair=loss:0%")
                .parse()
                .map_err(|why| Failure::new(format!("{why}"), "report this"))?;
            let fds = port::open(&spec).explain("cannot make a TAP device", "run as root")?;
            ports.push(port::from_fds(fds).explain("cannot use a TAP device", "run as root")?);
            lab.adopt(side, device, address)?;
            // Whole checksums, as on a wire: XDP is not told which are partial.
            lab.inside(side, &["ethtool", "-K", device, "tx", "off"])?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let relay = std::thread::spawn(move || relay(ports, lines, &stopped));
        Ok(Self { devices, addresses, stop, relay: Some(relay) })
    }

    /// The path's device in a host.
    pub fn device(&self, side: Side) -> &str {
        &self.devices[usize::from(side == Side::B)]
    }

    /// A host's address on the path.
    pub fn address(&self, side: Side) -> Ipv4Addr {
        self.addresses[usize::from(side == Side::B)]
    }

    /// Ends it; the lines as they were then, unless the relay panicked.
    pub fn end(mut self) -> Option<[Line<Frame>; 2]> {
        self.stop.store(true, Ordering::Relaxed);
        self.relay.take()?.join().ok()
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(relay) = self.relay.take() {
            // That it panicked has shown by then: nothing arrived any more.
            let _ = relay.join();
        }
    }
}

/// Moves frames between the ports until told to stop.
fn relay(
    mut ports: Vec<Box<dyn Port>>,
    mut lines: [Line<Frame>; 2],
    stop: &AtomicBool,
) -> [Line<Frame>; 2] {
    let began = Instant::now();
    let mut burst = RxBurst::new();
    while !stop.load(Ordering::Relaxed) {
        let now = began.elapsed().as_nanos() as u64;
        let mut received = 0;
        for (port, line) in ports.iter_mut().zip(&mut lines) {
            port.on_time(now);
            port.receive(&mut burst);
            received += burst.handles.len();
            for &handle in &burst.handles {
                let frame = port.frame(handle);
                let checksum = match frame.meta.checksum {
                    RxChecksum::Partial { start, offset } => Some((start, offset)),
                    _ => None,
                };
                line.push(now, frame.bytes.len(), (frame.bytes.to_vec(), checksum), |_| ());
            }
            port.release(&mut burst);
        }
        for (port, line) in ports.iter_mut().rev().zip(&mut lines) {
            while let Some((bytes, checksum)) = line.pop(now) {
                let header_bytes = bytes.len().min(HEADER_BYTES) as u16;
                let meta = TxMeta { checksum, gso: None, header_bytes };
                // A frame that a full device refuses is lost, as on a wire.
                let _ = port.send(&meta, &bytes, &[]);
            }
            port.flush();
        }
        if received > 0 {
            continue;
        }
        let next = lines.iter().filter_map(Line::next).min().unwrap_or(u64::MAX);
        let wait = Duration::from_nanos(next.saturating_sub(began.elapsed().as_nanos() as u64));
        let wait = Timespec::try_from(wait.min(NAP)).ok();
        let mut watched: Vec<PollFd<'_>> = ports
            .iter()
            .filter_map(|port| Some(PollFd::from_borrowed_fd(port.wait_fd()?, PollFlags::IN)))
            .collect();
        let _ = rustix::event::poll(&mut watched, wait.as_ref());
    }
    lines
}
