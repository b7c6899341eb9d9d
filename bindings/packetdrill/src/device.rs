//! The device that packetdrill creates to test the kernel. Here no packet goes through it: scripts'
//! commands configure it, and its routes are read back from the kernel.

use std::ffi::CStr;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use engine::kernel::Kernel;
use script::ours::Destination;

/// Its name.
const NAME: &CStr = c"tun0";

/// The device, if this network namespace has one.
#[derive(Debug)]
pub struct Device {
    interface_index: u32,
}

impl Device {
    /// Adds the address and the route to the peer, as packetdrill does.
    pub fn prepare(local: IpAddr, prefix: &str, remote: &str) -> Option<Self> {
        // SAFETY: the name is a C string.
        let interface_index = unsafe { libc::if_nametoindex(NAME.as_ptr()) };
        if interface_index == 0 {
            return None;
        }
        let name = NAME.to_str().ok()?;
        // An address under duplicate address detection could not be bound yet.
        let undetected: &[&str] = if local.is_ipv6() { &["nodad"] } else { &[] };
        let address = format!("{local}/{prefix}");
        for words in [
            &[&["addr", "add", &address, "dev", name], undetected].concat()[..],
            &["link", "set", name, "up"],
            &["route", "add", remote, "dev", name],
        ] {
            // If that was already done, or is impossible, the script's own commands will report it.
            let _ = Command::new("ip").args(words).stderr(Stdio::null()).status();
        }
        Some(Self { interface_index })
    }

    /// The routes through it that have metrics. All destinations are on-link, so no next hop needs
    /// to be resolved.
    pub fn routes(&self) -> Vec<Destination> {
        let facts = Kernel::open().and_then(|mut kernel| kernel.watch(0, self.interface_index));
        let mut routes = facts.map(|facts| facts.routes).unwrap_or_default();
        routes.retain(|to| to.metrics != Default::default());
        for to in &mut routes {
            to.gateway = None;
        }
        routes
    }
}
