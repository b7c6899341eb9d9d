//! Links of the kernel for the suite: each in a network namespace of its own, which goes away,
//! devices and all, with the thread that entered it.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use outboard_port::{Claim, Port, from_fds, open};
use rustix::thread::UnshareFlags;

use super::Connected;

/// One of these tests at a time: a child of one, until it has become `ip`, holds a copy of the
/// descriptor that another closes, and its device would still be there.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a test in a new network namespace, or skips it.
pub fn in_namespace(test: &str, work: impl FnOnce() + Send + 'static) {
    if !skips::is_root(test) {
        return;
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        return skips::skip(test, "tun", "there is no /dev/net/tun");
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let run = move || {
        // SAFETY: leaving the network namespace affects this thread alone and no memory.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        ip("link set lo up");
        work();
    };
    if let Err(panic) = std::thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` with these words; the test fails when it does.
pub fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whether the kernel has what came with Linux 6.6: programs at the ingress of an interface (tcx),
/// and frames of several buffers for AF_XDP.
pub fn is_recent() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(6))
}

/// Opens a port from its text.
pub fn port(text: &str) -> Box<dyn Port> {
    let fds = open(&text.parse().unwrap()).unwrap_or_else(|why| panic!("{why}"));
    let noted = fds.description.notes.join("; ");
    assert!(noted.is_empty() || !is_recent() && noted.contains("it takes Linux 6.6"), "{noted}");
    from_fds(fds).unwrap_or_else(|why| panic!("{why}"))
}

/// A TAP device and a packet port on its kernel end.
pub fn tap_and_packet() -> Connected {
    let tap = port("tap:obt0");
    let packet = port("packet:obt0");
    let mut ports = Connected::new(tap, packet);
    ports.set_up = Some(Box::new(|up| set_link("obt0", up)));
    ports
}

/// Packet ports on the two ends of a veth pair.
pub fn packet_and_packet() -> Connected {
    // Those of the part before are gone with their link.
    let _none = Command::new("ip").args(["link", "del", "obv0"]).output();
    ip("link add obv0 type veth peer name obv1");
    let mut ports = Connected::new(port("packet:obv0"), port("packet:obv1"));
    ports.set_up = Some(Box::new(|up| ["obv0", "obv1"].iter().for_each(|end| set_link(end, up))));
    ports
}

/// XDP ports on the two ends of a veth pair, with a further option.
pub fn xdp_and_xdp(option: &str) -> Connected {
    let _none = Command::new("ip").args(["link", "del", "obx0"]).output();
    ip("link add obx0 type veth peer name obx1");
    xdp_on(["obx0", "obx1"], option)
}

/// XDP ports on two ends, which take all that the suite sends.
pub fn xdp_on(ends: [&'static str; 2], option: &str) -> Connected {
    for end in ends {
        ip(&format!("link set {end} up"));
    }
    let [a, b] = ends.map(|end| {
        let mut port = port(&format!("xdp:{end},ports=4{option}"));
        let address: SocketAddr = "192.0.2.2:8080".parse().unwrap();
        let mtu = port.info().mtu;
        port.follow(&[address.ip()], mtu).unwrap();
        port.claim(&Claim::Tcp { local: address, listens: false }).unwrap();
        port.claim(&Claim::EtherType(0x88b5)).unwrap();
        port
    });
    let mut ports = Connected::new(a, b);
    ports.set_up = Some(Box::new(move |up| ends.iter().for_each(|end| set_link(end, up))));
    // The adapter completes checksums while it copies.
    ports.carries_partial = false;
    // Large frames arrive cut, where the receiver's program is in the driver, or without a word about
    // where to cut them.
    ports.carries_gso = false;
    ports
}

fn set_link(name: &str, up: bool) {
    ip(&format!("link set {name} {}", if up { "up" } else { "down" }));
}
