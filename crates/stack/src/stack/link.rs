//! Frames of others' protocols: the stack knows whose link address they need.

use wire::ethernet::{EtherType, EthernetHeader};

use super::{HEADER_MAX, Stack};
use crate::api::*;
use crate::neighbor::{Requester, Resolution};

impl Stack {
    /// Writes the Ethernet header of a packet to a host on one of the links, which the caller emits at
    /// once; gives its interface and the header's length.
    ///
    /// # Errors
    /// [`RequestError::NoRoute`]: the host is not on a link of ours, or the address is not ours.
    /// [`RequestError::TooLong`]: the link's MTU is less. [`RequestError::WaitNeighbor`],
    /// [`RequestError::HostUnreachable`]: the host is being asked for, or does not answer.
    pub fn link_transmit(
        &mut self,
        now: Instant,
        send: &LinkSend,
        header: &mut [u8; HEADER_MAX],
    ) -> Result<(InterfaceIndex, usize), RequestError> {
        let route = self.routes.lookup(send.remote).ok_or(RequestError::NoRoute)?;
        let is_on_link =
            route.next_hop == send.remote && route.interface != InterfaceIndex::LOOPBACK;
        if !is_on_link || !self.routes.is_own(send.local) {
            return Err(RequestError::NoRoute);
        }
        if send.len > usize::from(route.mtu) {
            return Err(RequestError::TooLong);
        }
        let src = self.routes.interface(route.interface).ok_or(RequestError::NoRoute)?.mac;
        let next_hop = route.next_hop;
        let dst = match self.link_address(now, route.interface, next_hop, Requester::Local) {
            Resolution::Known(mac) => mac,
            Resolution::Wait | Resolution::Full | Resolution::Ask(..) => {
                return Err(RequestError::WaitNeighbor);
            }
            Resolution::Failed => return Err(RequestError::HostUnreachable),
        };
        let ethertype = EtherType(send.ethertype);
        let ethernet = EthernetHeader { dst, src, vlan: None, ethertype };
        let len = ethernet.emit(header).map_err(|_| RequestError::TooLong)?;
        Ok((route.interface, len))
    }
}
