//! Kernels on both sides of a narrow place: what `outboard congestion --kernel` compares with.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::config::CongestionKind;
use lab::failure::{Explain, Result};
use lab::relay::Path;
use lab::{Lab, Side};
use rustix::thread::LinkNameSpaceType;
use sim::congestion::{Case, CaseResult, DURATION_NS, STAGGER_NS};

/// How long a connection may take to be made.
const PATIENCE: Duration = Duration::from_secs(5);
/// The port that the receivers listen on.
const PORT: u16 = 5001;

/// Two hosts of the kernel's.
pub struct Relayed {
    lab: Lab,
}

/// What one flow's receiver has counted.
type Count = Arc<AtomicU64>;

impl Relayed {
    /// Makes the hosts.
    ///
    /// # Errors
    /// Without root, or where namespaces cannot be made.
    pub fn new() -> Result<Self> {
        let lab = Lab::new()?;
        for side in Side::BOTH {
            for setting in [
                "net.ipv4.tcp_no_metrics_save=1",
                "net.ipv4.tcp_rmem=4096 131072 6291456",
                "net.ipv6.conf.default.disable_ipv6=1",
            ] {
                lab.inside(side, &["sysctl", "-qw", setting])?;
            }
        }
        Ok(Self { lab })
    }

    /// Runs cases, `jobs` of them at a time; their outcomes in the same order.
    ///
    /// # Errors
    /// When a device cannot be made or the kernel lacks a congestion control.
    pub fn run(&self, wanted: &[(Case, CongestionKind)], jobs: usize) -> Result<Vec<CaseResult>> {
        let next = AtomicU64::new(0);
        let done: Mutex<Vec<(usize, Result<CaseResult>)>> = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, 100) {
                let (next, done) = (&next, &done);
                scope.spawn(move || {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed) as usize;
                        let Some((case, kind)) = wanted.get(at) else { return };
                        let outcome = self.one(case, kind.name());
                        done.lock().unwrap_or_else(PoisonError::into_inner).push((at, outcome));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, outcome)| outcome).collect()
    }

    fn one(&self, case: &Case, algorithm: &str) -> Result<CaseResult> {
        let path = Path::new(&self.lab, [case.narrow(false), case.back()])?;
        self.flows(case, algorithm, SocketAddr::from((path.address(Side::B), PORT)))
    }

    /// Runs the flows of a case and counts what arrives.
    fn flows(&self, case: &Case, algorithm: &str, to: SocketAddr) -> Result<CaseResult> {
        let stop = Arc::new(AtomicBool::new(false));
        let counts: Arc<Mutex<Vec<Count>>> = Arc::default();
        let listener = self.inside(Side::B, || TcpListener::bind(to))?;
        let receiving = {
            let (stop, counts) = (Arc::clone(&stop), Arc::clone(&counts));
            listener.set_nonblocking(true).explain("cannot listen", "report this")?;
            std::thread::spawn(move || accept(&listener, &stop, &counts))
        };
        let began = Instant::now();
        let until = |ns: u64| {
            let due = Duration::from_nanos(ns);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        };
        for flow in 0..case.flows as u64 {
            until(flow * STAGGER_NS);
            let stream = self.inside(Side::A, || TcpStream::connect_timeout(&to, PATIENCE))?;
            rustix::net::sockopt::set_tcp_congestion(&stream, algorithm).explain(
                format!("the kernel has no congestion control {algorithm}"),
                "load its module (modprobe tcp_NAME)",
            )?;
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || send(stream, &stop));
        }
        let read = || -> Vec<u64> {
            let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
        };
        until(DURATION_NS / 2);
        let half = read();
        until(DURATION_NS);
        let bytes = read();
        stop.store(true, Ordering::Relaxed);
        // It ends by itself once told to stop.
        let _ = receiving.join();
        let later = bytes.iter().zip(&half).map(|(all, before)| all - before).collect();
        Ok(CaseResult { bytes, later })
    }

    /// Calls `act` in a host's namespace.
    fn inside<T: Send>(
        &self,
        side: Side,
        act: impl FnOnce() -> std::io::Result<T> + Send,
    ) -> Result<T> {
        let path = format!("/run/netns/{}", self.lab.host(side).namespace());
        let namespace = std::fs::File::open(&path).explain("no namespace", "run as root")?;
        let entered = std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(namespace.as_fd(), network)?;
                act()
            });
            inside.join().unwrap_or_else(|_| Err(std::io::Error::other("a panic")))
        });
        entered.explain("a socket of the kernel failed", "run again on an idle machine")
    }
}

fn accept(listener: &TcpListener, stop: &Arc<AtomicBool>, counts: &Mutex<Vec<Count>>) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                let count = Count::default();
                counts.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&count));
                std::thread::spawn(move || receive(stream, &count));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn receive(mut stream: TcpStream, count: &AtomicU64) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(len) = stream.read(&mut bytes)
        && len > 0
    {
        count.fetch_add(len as u64, Ordering::Relaxed);
    }
}

/// Writes until told to stop; the path goes away soon after, and the connection with it.
fn send(mut stream: TcpStream, stop: &AtomicBool) {
    let bytes = vec![0; 1 << 16];
    // So that it looks whether to stop.
    let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
    while !stop.load(Ordering::Relaxed) {
        match stream.write(&bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
