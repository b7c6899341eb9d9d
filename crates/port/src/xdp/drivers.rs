//! Drivers that are known to misbehave with AF_XDP, according to reports, and the consequence: a
//! mode that misbehaves is tried only if `mode=` requests it.
//!
//! Reports that led to no entry: i40e and ice lose the buffers of a socket that is bound before
//! its fill ring is full (github.com/anza-xyz/agave/pull/6836), so ours is filled first; ena
//! panicked on XDP_TX (github.com/amzn/amzn-drivers/issues/328), which our program never says;
//! ixgbe without copies delivered nothing on Linux 5.4 (github.com/Xilinx-CNS/onload/issues/18),
//! and ice on 4.18 (github.com/firedancer-io/firedancer/issues/273), both older than we run on.

use super::XdpMode;

/// A driver, and its known fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its name in ethtool.
    driver: &'static str,
    /// The best mode without a known fault.
    best: XdpMode,
    /// First affected kernel.
    since: (u32, u32),
    /// The fault.
    reason: &'static str,
}

/// All known faults.
const KNOWN: [Known; 4] = [
    // github.com/amzn/amzn-drivers/issues/330: driver 2.13.1 on Linux 6.8, frames of others in the
    // sockets' memory at 2.5 million frames a second; issues/221: 2.7.1 reset the card under load,
    // and 2.7.4 was slower than with copies. No kernel's own ena has the mode.
    Known {
        driver: "ena",
        best: XdpMode::Copy,
        since: (0, 0),
        reason: "without copies it has corrupted frames and reset the card under load",
    },
    // github.com/intel/ethernet-linux-ice/issues/59: Linux 7.0 panics where traffic to the kernel
    // and to sockets shares the card, as here; pull/62: the card resets for good while sockets are
    // set up under load, before the fixes 99099c6bc75a, 405d9999aa0b, 9da75a511c55, 7e3b407ccbea.
    Known {
        driver: "ice",
        best: XdpMode::Copy,
        since: (0, 0),
        reason: "without copies it has caused kernel panics when programs use the card at the same \
         time",
    },
    // github.com/analogdevicesinc/linux/issues/3517: a queue whose fill ring once ran empty never
    // receives again.
    Known {
        driver: "st_gmac",
        best: XdpMode::Copy,
        since: (0, 0),
        reason: "without copies a queue that once ran out of memory never receives again",
    },
    // github.com/xdp-project/xdp-tutorial/issues/466: Linux 6.14 on an i211; a program that passes
    // everything lets the receive rings run full at a few frames a second.
    Known {
        driver: "igb",
        best: XdpMode::Generic,
        since: (6, 14),
        reason: "with a native program its receive rings fill up and stay full",
    },
];

/// The known fault of a driver on a kernel.
pub(crate) fn known(driver: &str, kernel: (u32, u32)) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.driver == driver && kernel >= known.since)
}

impl Known {
    /// The best mode without a known fault.
    pub(crate) fn best(&self) -> XdpMode {
        self.best
    }

    /// A sentence about it.
    pub(crate) fn sentence(&self) -> String {
        let since = match self.since {
            (0, 0) => String::new(),
            (major, minor) => format!(" since Linux {major}.{minor}"),
        };
        format!(
            "the driver {} is known to misbehave with AF_XDP{since}: {}; it is used {} unless \
             mode= says otherwise",
            self.driver,
            self.reason,
            self.best.words()
        )
    }
}

/// Version of the running kernel; zeros if it cannot be read.
pub(crate) fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.trim().parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_concerned_from_its_first_kernel_on() {
        assert_eq!(known("igb", (6, 13)), None);
        let igb = known("igb", (6, 14)).unwrap();
        assert_eq!(igb.best(), XdpMode::Generic);
        let said = igb.sentence();
        assert!(said.contains("igb") && said.contains("since Linux 6.14"), "{said}");
        assert_eq!(known("ena", (6, 1)).map(Known::best), Some(XdpMode::Copy));
        assert_eq!(known("veth", (6, 18)), None);
        assert!(kernel() > (5, 0));
    }
}
