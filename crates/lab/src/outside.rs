//! Links that are made of the machine's own network devices, joined outside of it: those of a
//! virtual machine in which the tests run.
//!
//! `$OUTBOARD_LAB_LINKS` names them by their hardware addresses, pair by pair. A laboratory that
//! ends gives them back; until then the next one waits for them.

use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::hosts::ip;

const PATIENCE: Duration = Duration::from_secs(30);

/// The hardware addresses of the ends of each link.
pub(super) fn links() -> Vec<[String; 2]> {
    let named = std::env::var("OUTBOARD_LAB_LINKS").unwrap_or_default();
    let ends: Vec<&str> = named.split_whitespace().collect();
    ends.as_chunks().0.iter().map(|pair: &[&str; 2]| pair.map(str::to_owned)).collect()
}

/// Gives the device with hardware address `address` to `namespace` under the name `name`, as new:
/// down, with nothing left of what an earlier laboratory has set.
pub(super) fn give(address: &str, namespace: &str, name: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let device = loop {
        if let Some(device) = device(&ip(&["-o", "link", "show"])?, address) {
            break device;
        }
        if Instant::now() > deadline {
            return Err(Failure::new(
                format!("no network device has the address {address}"),
                "check whether another laboratory still holds it (ip netns list)",
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    ip(&["link", "set", &device, "down", "mtu", "1500"])?;
    ip(&["link", "set", &device, "netns", namespace, "name", name]).map(drop)
}

/// The name of the device with this address in what `ip -o link` prints.
fn device(listed: &str, address: &str) -> Option<String> {
    let of_it = |line: &&str| line.contains(&format!("link/ether {address} "));
    let name = listed.lines().find(of_it)?.split(": ").nth(1)?;
    Some(name.split('@').next().unwrap_or(name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_its_address() {
        let listed = "1: lo: <UP> mtu 65536 qdisc noop \\    link/loopback 00:00:00:00:00:00 brd x\n\
            2: eth0: <UP> mtu 1500 \\    link/ether 52:54:00:0b:00:0a brd ff:ff:ff:ff:ff:ff\n\
            3: v0@if2: <UP> mtu 1500 \\    link/ether 52:54:00:0b:00:0b brd ff:ff:ff:ff:ff:ff\n";
        assert_eq!(device(listed, "52:54:00:0b:00:0a").as_deref(), Some("eth0"));
        assert_eq!(device(listed, "52:54:00:0b:00:0b").as_deref(), Some("v0"));
        assert_eq!(device(listed, "52:54:00:0b:00:0c"), None);
    }
}
