//! The control thread's part in following the kernel: notifications about interfaces, rules and
//! neighbours go to the worker, and programs are informed of the destinations they can reach.

use std::net::{IpAddr, Ipv6Addr};

use shm::control::{InterfaceInfo, Way};
use stack::api::Cidr;

use super::exchange::Command;
use super::{Control, addresses_of};
use crate::kernel::News;

/// The warning while there are such rules.
pub(crate) const FOREIGN_RULES: &str = "the kernel has routing rules (ip rule) beyond the default \
 three, but the engine follows only the main table: no new sockets are accelerated while there are \
 others (ip rule del removes one)";

impl Control {
    /// Shared interfaces or rules have changed, or neighbours were resolved.
    pub(super) fn on_kernel_news(&mut self) {
        let Some(kernel) = &mut self.kernel else { return };
        let News { changed, neighbors, rules } = kernel.take();
        for (port, address, mac) in neighbors {
            self.worker.send(Command::Neighbor { port, address, mac });
        }
        let mut is_other = false;
        for (port, facts) in changed {
            if let Some(interface) = self.interfaces.get_mut(port) {
                let before = interface.clone();
                facts.tell(interface);
                is_other |= *interface != before;
                self.addresses = addresses_of(&self.interfaces);
            }
            self.worker.send(Command::Interface { port, facts });
        }
        self.count_routes();
        if let Some(has_rules) = rules {
            match has_rules {
                true => tracing::warn!("{FOREIGN_RULES}"),
                false => tracing::warn!(
                    "only the default routing rules are left: accelerating \
                 again"
                ),
            }
            self.has_rules = has_rules;
            self.worker.send(Command::Open(!has_rules));
            is_other = true;
        }
        if is_other {
            self.worker.send(Command::Reach);
        }
    }

    /// Counts the kernel routes that could not be followed.
    pub(super) fn count_routes(&self) {
        let Some(kernel) = &self.kernel else { return };
        let (left_out, untold) = kernel.routes_left_out(&self.interfaces);
        self.counters.routes_left_out.set(left_out as u64);
        self.counters.routes_untold.set(untold as u64);
    }

    /// The addresses or routes of a port with its own interface have changed.
    pub(super) fn on_addresses(&mut self, port: usize, addresses: &[Cidr], leads_v6: bool) {
        let Some(interface) = self.interfaces.get_mut(port) else { return };
        let before = interface.clone();
        interface.addresses = addresses.iter().map(|own| (own.address, own.prefix)).collect();
        let everywhere = Way { network: Ipv6Addr::UNSPECIFIED.into(), prefix: 0, is_here: true };
        interface.routes.retain(|way| *way != everywhere);
        interface.routes.extend(leads_v6.then_some(everywhere));
        let is_other = *interface != before;
        self.addresses = addresses_of(&self.interfaces);
        if is_other {
            self.worker.send(Command::Reach);
        }
    }

    pub(super) fn ask_for_neighbor(&mut self, port: usize, address: IpAddr) {
        let Some(kernel) = &mut self.kernel else { return };
        match kernel.neighbor(port, address) {
            Ok(Some(mac)) => {
                self.worker.send(Command::Neighbor { port, address, mac });
            }
            Ok(None) => {}
            Err(error) => tracing::warn!("the kernel cannot resolve {address}: {error}"),
        }
    }

    /// The interfaces as announced to programs: without any routes while no new sockets are
    /// admitted.
    pub(super) fn told(&self) -> Vec<InterfaceInfo> {
        let mut all = self.interfaces.clone();
        for interface in &mut all {
            if self.is_ending || (self.has_rules && interface.shared) {
                interface.addresses.clear();
                interface.has_gateway = false;
                interface.routes.clear();
            }
        }
        all
    }
}
