//! Where the kernel's receive work of a virtual link runs, and how it shows that it ran there.

use std::fs;

use crate::failure::{Failure, Result};
use crate::{Lab, Link, Side};

/// Where a frame that crosses a virtual link enters the receiving kernel's network stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    /// In the soft interrupt of the sender's core: the shortest path, and work of the receiving host
    /// that its core does not do.
    Sender,
    /// In the soft interrupt of the receiver's core, where receive packet steering queues it.
    Steered,
    /// In a kernel thread on the receiver's core (threaded NAPI). veth does so only without
    /// segmentation offload.
    Threaded,
}

impl Placement {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sender, Self::Steered, Self::Threaded];

    /// Whether each core does all work of its host, and no other.
    pub fn is_on_receiver(self) -> bool {
        self != Self::Sender
    }
}

impl Lab {
    /// Places the receive work of both ends of `link`.
    ///
    /// # Errors
    /// When ethtool or /sys refuse.
    pub fn place(&self, link: &Link, placement: Placement) -> Result<()> {
        for side in Side::BOTH {
            let interface = link.end(side);
            // Receive offload on gives a veth end a NAPI of its own, which a thread can take over.
            let [cut, join] = match placement {
                Placement::Threaded => ["off", "on"],
                Placement::Sender | Placement::Steered => ["on", "off"],
            };
            self.inside(side, &["ethtool", "-K", &interface, "tso", cut, "gso", cut, "gro", join])?;
            match placement {
                Placement::Threaded => self.thread_receive(side, &interface)?,
                Placement::Steered => self.steer_receive(side, &interface, true)?,
                Placement::Sender => self.steer_receive(side, &interface, false)?,
            }
        }
        Ok(())
    }
}

/// The kernel's own account of receive work so far, to be compared with a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveWork {
    /// Frames that each host's core took from other cores by packet steering, host A's first.
    pub steered: [u64; 2],
    /// Processor time of the receive threads of the link, nanoseconds.
    pub threads_ns: u64,
}

/// Column of /proc/net/softnet_stat with the interrupts that packet steering sent to a core.
const RECEIVED_RPS: usize = 9;
/// Column with the core's number.
const CORE: usize = 12;

impl ReceiveWork {
    /// The receive work so far of the hosts of `lab`, and of `link` in particular.
    pub fn now(lab: &Lab, link: &Link) -> Self {
        let softnet = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        let steered = Side::BOTH.map(|side| received_rps(&softnet, lab.host(side).core));
        Self { steered, threads_ns: lab.receive_threads_ns(link) }
    }

    /// Whether the work since `earlier` was where `placement` says.
    ///
    /// # Errors
    /// When it was elsewhere, with the figures that tell so.
    pub fn check(&self, earlier: &Self, placement: Placement) -> Result<()> {
        let steered = [0, 1].map(|host| self.steered[host].saturating_sub(earlier.steered[host]));
        let threads_ns = self.threads_ns.saturating_sub(earlier.threads_ns);
        let is_placed = match placement {
            // Others on the machine may steer.
            Placement::Sender => threads_ns == 0,
            // Two hosts on one core have nothing to steer to.
            Placement::Steered => threads_ns == 0 && steered.iter().all(|&count| count > 0),
            Placement::Threaded => threads_ns > 0,
        };
        if is_placed {
            return Ok(());
        }
        Err(Failure::new(
            format!(
                "receive work did not run where it was placed ({placement:?}): {steered:?} \
                 interrupts by packet steering, {threads_ns} ns in receive threads"
            ),
            "check rps_cpus and threaded of the links in /sys/class/net, and run on two cores",
        ))
    }
}

fn received_rps(softnet: &str, core: usize) -> u64 {
    let hexadecimal = |word: &str| u64::from_str_radix(word, 16).ok();
    let of_line = |line: &str| {
        let fields: Vec<u64> = line.split_whitespace().filter_map(hexadecimal).collect();
        (fields.get(CORE) == Some(&(core as u64))).then(|| fields.get(RECEIVED_RPS).copied())
    };
    softnet.lines().find_map(of_line).flatten().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steering_is_read_by_the_number_of_the_core() {
        let line = |rps: u64, core: u64| {
            format!("00000001 0 0 0 0 0 0 0 0 {rps:08x} 00000000 00000000 {core:08x} 0 0\n")
        };
        let softnet = line(3, 0) + &line(17, 1);
        assert_eq!([0, 1, 2].map(|core| received_rps(&softnet, core)), [3, 17, 0]);
    }

    #[test]
    fn misplaced_work_fails() {
        let before = ReceiveWork::default();
        let steered = ReceiveWork { steered: [5, 5], threads_ns: 0 };
        let threaded = ReceiveWork { steered: [0, 0], threads_ns: 7 };
        let half = ReceiveWork { steered: [5, 0], threads_ns: 0 };
        assert!(steered.check(&before, Placement::Steered).is_ok());
        assert!(half.check(&before, Placement::Steered).is_err());
        assert!(threaded.check(&before, Placement::Threaded).is_ok());
        assert!(threaded.check(&before, Placement::Sender).is_err());
        assert!(before.check(&before, Placement::Sender).is_ok());
        assert!(before.check(&before, Placement::Threaded).is_err());
    }
}
