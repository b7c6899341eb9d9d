//! Membership of programs in multicast groups.

use std::net::IpAddr;

use rustix::io::Errno;
use shm::request::Reply;
use stack::api::{InterfaceIndex, SocketId, SourceChange};

use crate::endpoint::Role;
use crate::errno;
use crate::transmit::interface_of;
use crate::worker::Worker;

impl Worker {
    /// Sets the membership of a datagram endpoint in a group.
    pub(super) fn set_group(
        &mut self,
        place: u32,
        index: u32,
        (interface, group): (u32, IpAddr),
        excludes: Option<bool>,
    ) -> Result<Reply, Errno> {
        let (id, interface) = self.listener_to_groups(place, index, interface)?;
        let set = self.stack.udp_set_group(self.now, id, (interface, group), excludes);
        set.map(|()| Reply::Done).map_err(errno::of_request)
    }

    /// Adds or removes a source in the filter of a group.
    pub(super) fn name_source(
        &mut self,
        place: u32,
        index: u32,
        (interface, group): (u32, IpAddr),
        change: SourceChange,
    ) -> Result<Reply, Errno> {
        let (id, interface) = self.listener_to_groups(place, index, interface)?;
        let named = self.stack.udp_name_source(self.now, id, (interface, group), change);
        named.map(|()| Reply::Done).map_err(errno::of_request)
    }

    /// On an interface shared with the kernel, groups are the kernel's.
    fn listener_to_groups(
        &mut self,
        place: u32,
        index: u32,
        interface: u32,
    ) -> Result<(SocketId, InterfaceIndex), Errno> {
        let interface = interface_of(interface).ok_or(Errno::NODEV)?;
        let config = self.stack.routes().interface(interface).ok_or(Errno::NODEV)?;
        if config.shared.is_some() {
            return Err(Errno::OPNOTSUPP);
        }
        match self.endpoint(place, index).map(|endpoint| &endpoint.role) {
            Some(Role::Datagram(datagram)) => Ok((datagram.id, interface)),
            _ => Err(Errno::BADF),
        }
    }
}
