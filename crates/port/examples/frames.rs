//! What one frame costs on the kernel's ports: `cargo run --release --example frames` (root).
//!
//! Frames go from one port to another of the same thread in bursts; sending and receiving are
//! timed apart. Sending includes the kernel's whole way to the other end, since that runs inside
//! the system call. Medians over many bursts, in nanoseconds per frame.

use std::process::Command;
use std::time::Instant;

use arch::SharedBytes;
use outboard_port::{Gso, GsoKind, Port, RxBurst, TxMeta, from_fds, open};
use rustix::thread::UnshareFlags;

const ROUNDS: usize = 2_000;
const BUFFER_BYTES: usize = 8_192;

fn main() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("this measurement opens TAP devices and packet sockets: run it as root");
        std::process::exit(1);
    }
    // SAFETY: leaving the network namespace affects this thread alone and no memory.
    if let Err(why) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
        eprintln!("no network namespace of its own for this measurement ({why}): run it as root");
        std::process::exit(1);
    }
    println!("{:38} {:>10} {:>10}", "ns per frame (median)", "send", "receive");
    let tap = port("tap:obm0");
    let on_tap = port("packet:obm0");
    measure("tap (a), packet (b)", tap, on_tap);
    let made = Command::new("ip")
        .args(["link", "add", "obm1", "type", "veth", "peer", "name", "obm2"])
        .status();
    assert!(made.is_ok_and(|status| status.success()), "ip (iproute2) makes the veth pair");
    measure("packet over veth", port("packet:obm1"), port("packet:obm2"));
}

fn port(text: &str) -> Box<dyn Port> {
    let opened = text
        .parse()
        .map_err(|why: outboard_port::SpecError| why.to_string())
        .and_then(|spec| open(&spec).map_err(|why| why.to_string()))
        .and_then(|fds| from_fds(fds).map_err(|why| why.to_string()));
    match opened {
        Ok(port) => port,
        Err(why) => {
            eprintln!("{why}");
            std::process::exit(1);
        }
    }
}

fn measure(name: &str, mut a: Box<dyn Port>, mut b: Box<dyn Port>) {
    let segments = [(64 - 54, 32), (1_446, 32), (16_000, 8), (64_000, 4)];
    for (payload, burst) in segments {
        for way in ["a to b", "b to a"] {
            let (send, receive) = bursts(&mut *a, &mut *b, payload, burst);
            println!(
                "{:38} {send:>10.0} {receive:>10.0}",
                format!("{name} {way} {} B", payload + 54)
            );
            std::mem::swap(&mut a, &mut b);
        }
    }
}

fn bursts(a: &mut dyn Port, b: &mut dyn Port, payload: usize, count: usize) -> (f64, f64) {
    let header = headers(payload, b.info().mac.0);
    let bytes = vec![7u8; payload];
    let pieces: Vec<_> = bytes.chunks(BUFFER_BYTES).map(SharedBytes::from_slice).collect();
    let gso = (payload > 1_460).then_some(Gso { size: 1_448, kind: GsoKind::Tcp4 });
    let meta = TxMeta { checksum: Some((34, 16)), gso, header_bytes: 54 };
    let mut burst = RxBurst::new();
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    let mut copy = vec![0u8; payload + 54];
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for _ in 0..count {
            if let Err(why) = a.send(&meta, &header, &pieces) {
                eprintln!("a frame was refused: {why:?}");
                std::process::exit(1);
            }
        }
        a.flush();
        sends.push(started.elapsed().as_nanos() as f64 / count as f64);
        let started = Instant::now();
        let mut got = 0;
        while got < count {
            b.receive(&mut burst);
            for &handle in &burst.handles {
                let frame = b.frame(handle);
                if frame.bytes.len() == copy.len() {
                    copy.copy_from_slice(frame.bytes);
                    got += 1;
                }
            }
            b.release(&mut burst);
            if started.elapsed().as_secs() > 2 {
                eprintln!("{got} of {count} frames came: the kernel lost the rest");
                std::process::exit(1);
            }
        }
        receives.push(started.elapsed().as_nanos() as f64 / count as f64);
    }
    (median(&mut sends), median(&mut receives))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Ethernet, IPv4 and TCP headers to a port where nobody listens in the kernel.
fn headers(payload: usize, to: [u8; 6]) -> Vec<u8> {
    let mut header = to.to_vec();
    header.extend([2, 0, 0, 0, 0, 9, 8, 0, 0x45, 0]);
    header.extend(((payload + 40) as u16).to_be_bytes());
    header.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    let sum = header.get(14..).map_or(0, |ip| wire::checksum::Sum::of(ip).finish());
    if let Some(field) = header.get_mut(24..26) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    header.extend([0, 80, 31, 144, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    header
}
