//! Features of an interface for a port on it, and their gaps: for `outboard doctor`.

use std::ffi::OsStr;
use std::path::Path;
use std::{fs, io};

use wire::MacAddr;

use crate::interface::LinkState;
use crate::link::Link;
use crate::xdp::{carries_vlan, driver_note};

/// An Ethernet interface of the calling thread's network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Name of its driver.
    pub driver: Option<String>,
    /// Largest IP packet.
    pub mtu: u16,
    /// Its receive queues; `None` if /sys does not show them.
    pub receive_queues: Option<usize>,
    /// The card merges segments before any program sees them; some drivers then accept no program.
    pub has_lro: bool,
    /// The card segments large TCP frames, including those that an xdp port sends by its packet
    /// socket.
    pub has_tso: bool,
    /// The card strips VLAN tags.
    pub strips_vlan: bool,
    /// A VLAN interface above it.
    pub vlan: Option<String>,
    /// Known faults of the driver: a sentence.
    pub note: Option<String>,
}

// Command and flag of `linux/ethtool.h`.
const GET_FLAGS: u32 = 0x25;
const FLAG_LRO: u32 = 1 << 15;

/// Inspects the interface called `name`.
///
/// # Errors
/// If there is none, or it is not an Ethernet interface.
pub fn survey(name: &str) -> io::Result<Survey> {
    let link = Link::new(name)?;
    let mac = link.mac()?;
    let flags = link.ethtool(GET_FLAGS).unwrap_or(0);
    let driver = link.driver();
    Ok(Survey {
        mtu: link.mtu()?,
        receive_queues: receive_queues(name, link.index()?, mac),
        has_lro: flags & FLAG_LRO != 0,
        has_tso: link.has_tso(),
        strips_vlan: link.strips_vlan(driver.as_deref()),
        vlan: carries_vlan(name),
        note: driver.as_deref().and_then(driver_note),
        driver,
    })
}

/// The changeable properties of the interface with this index, in the calling thread's network
/// namespace.
///
/// # Errors
/// If there is none.
pub fn link_state(index: u32) -> io::Result<LinkState> {
    let link = Link::with_index(index)?;
    Ok(LinkState {
        receive_queues: link.channels().map(|(now, _)| now),
        takes_large: link.has_tso(),
    })
}

/// The number of receive queues of an interface. `None` if /sys shows another network namespace.
pub(crate) fn receive_queues(name: &str, index: u32, mac: MacAddr) -> Option<usize> {
    let folder = Path::new("/sys/class/net").join(name);
    let shown = |what: &str| fs::read_to_string(folder.join(what)).ok();
    let is_same = shown("ifindex")?.trim() == index.to_string()
        && shown("address")?.trim() == mac.to_string();
    let queues = fs::read_dir(folder.join("queues")).ok().filter(|_| is_same)?;
    let is_receive = |name: &OsStr| name.to_string_lossy().starts_with("rx-");
    Some(queues.flatten().filter(|entry| is_receive(&entry.file_name())).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_told_of_the_interface_that_is_meant_alone() {
        // Without /sys there is nothing to see.
        if let Ok(index) = fs::read_to_string("/sys/class/net/lo/ifindex") {
            let index = index.trim().parse().unwrap();
            assert!(receive_queues("lo", index, MacAddr::ZERO) >= Some(1));
            assert_eq!(receive_queues("lo", index + 1, MacAddr::ZERO), None);
            assert_eq!(receive_queues("lo", index, MacAddr::BROADCAST), None);
        }
    }

    #[test]
    fn the_state_of_an_interface_is_found_by_its_number() {
        // Loopback has no queues to be set, and takes frames of any length.
        let state = link_state(1);
        assert!(state.is_ok_and(|state| state.receive_queues.is_none()));
        assert!(link_state(u32::MAX >> 1).is_err());
    }

    #[test]
    fn loopback_is_no_ethernet_interface_and_neither_is_one_that_is_not_there() {
        // Loopback has an address of its own kind.
        assert!(survey("lo").is_err());
        assert!(survey("outboard-none").is_err());
    }
}
