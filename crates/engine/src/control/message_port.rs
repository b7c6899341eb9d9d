//! Reservation of the UDP port for messages in the kernel, where the engine shares its addresses:
//! an engine socket is bound to it at the address of each endpoint, so that no program can bind it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use super::Control;
use super::authority::Refusal;

/// The sockets; at most one for each address of the engine.
#[derive(Debug, Default)]
pub(super) struct MessagePort(BTreeMap<IpAddr, UdpSocket>);

impl MessagePort {
    /// Reserves the port at `address`.
    fn keep(&mut self, address: IpAddr, number: u16) -> Result<(), Refusal> {
        if self.0.contains_key(&address) {
            return Ok(());
        }
        let socket = UdpSocket::bind((address, number)).map_err(|error| Refusal {
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO).raw_os_error(),
            reason: format!(
                "cannot reserve UDP port {number} of {address}, which carries messages between \
                 hosts: {error}; end the program that has it (ss -lunp), or choose another one \
                 ([messages] port) on all hosts"
            ),
        })?;
        self.0.insert(address, socket);
        Ok(())
    }
}

impl Control {
    /// Reserves the port at the address of a socket that was passed for a message endpoint. Faults
    /// of that socket are found elsewhere.
    pub(super) fn keep_message_port(&mut self, shown: Option<&OwnedFd>) -> Result<(), Refusal> {
        let name = |socket: &OwnedFd| rustix::net::getsockname(socket.as_fd());
        let local = shown.ok_or(Errno::BADF).and_then(name).ok();
        let local = local.and_then(|address| SocketAddr::try_from(address).ok());
        match local.map(|local| local.ip().to_canonical()) {
            Some(address) if self.kernel.is_some() && self.addresses.contains(&address) => {
                self.message_port.keep(address, self.policy.limits.messages.port)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_port_is_in_use_and_one_in_use_is_not_kept() {
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().unwrap();
            let program = UdpSocket::bind((address, 0)).unwrap();
            let number = program.local_addr().unwrap().port();
            let mut port = MessagePort::default();
            let refusal = port.keep(address, number).unwrap_err();
            assert!(refusal.reason.contains(&number.to_string()), "{}", refusal.reason);
            drop(program);
            port.keep(address, number).unwrap();
            port.keep(address, number).unwrap();
            assert!(UdpSocket::bind((address, number)).is_err());
        }
    }
}
