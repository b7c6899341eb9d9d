//! The device that packetdrill makes where it tests the kernel. Here nothing goes through it: scripts'
//! commands speak of it, and what they say of its routes is read back from the kernel.

use std::ffi::CStr;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use engine::kernel::Kernel;
use script::ours::Destination;

/// Its name.
const NAME: &CStr = c"tun0";

/// The device, where this network namespace has one.
#[derive(Debug)]
pub struct Device {
    interface_index: u32,
}

impl Device {
    /// Gives it the address and the route to the peer, as packetdrill does it.
    pub fn prepare(local: IpAddr, prefix: &str, remote: &str) -> Option<Self> {
        // SAFETY: the name is a C string.
        let interface_index = unsafe { libc::if_nametoindex(NAME.as_ptr()) };
        if interface_index == 0 {
            return None;
        }
        let name = NAME.to_str().ok()?;
        // An address that others might have could not be bound yet.
        let undetected: &[&str] = if local.is_ipv6() { &["nodad"] } else { &[] };
        let address = format!("{local}/{prefix}");
        for words in [
            &[&["addr", "add", &address, "dev", name], undetected].concat()[..],
            &["link", "set", name, "up"],
            &["route", "add", remote, "dev", name],
        ] {
            // Where it has been done, or cannot be, the script's own commands will say so.
            let _ = Command::new("ip").args(words).stderr(Stdio::null()).status();
        }
        Some(Self { interface_index })
    }

    /// The routes through it of which more is known than where they lead. All the world is on our
    /// link, so that nobody need be asked for a next hop.
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
