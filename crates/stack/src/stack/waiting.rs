//! Packets of ours whose next hop is being asked for, and what becomes of them: they go when it is
//! known, and their sockets are told when it does not answer.
//!
//! They lie in the arena. One next hop has at most a quarter of it (with the default of 1 MiB about
//! what Linux keeps for a neighbour, `unres_qlen`), all together half, so that answers find room
//! beside them. The oldest gives way: of its own next hop, or of the one that has the most, so that who
//! sends to silent addresses pushes out his own and not others' first datagrams; and answers to strangers
//! before what programs have sent.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use wire::checksum::Sum;
use wire::ipv4::Protocol;
use wire::udp::{self, UdpHeader};

use super::transmit::{TxPath, UdpPlan};
use super::{IpOut, Outgoing, PacketOut, Stack};
use crate::api::*;
use crate::arena::blocks_of;
use crate::drops::DropReason;
use crate::flow::{FlowTable, KeyedHash};
use crate::ip_options::Options;
use crate::neighbor::{Due, Requester, Resolution};
use crate::route::Route;

/// Most of a datagram's payload that comes back with the report that it did not reach its next hop: as
/// the kernel's ICMP messages to itself quote it, which have 576 bytes over IPv4 and 1280 over IPv6.
const QUOTED_MAX: [usize; 2] = [576 - 20 - 8 - 20 - 8, 1280 - 40 - 8 - 40 - 8];

/// Codes of "host unreachable" and, over IPv6, "address unreachable".
const UNREACHABLE: [(u8, u8); 2] = [(3, 1), (1, 3)];

/// What the type of service of the kernel's own ICMP errors has beside the datagram's.
const INTERNETWORK_CONTROL: u8 = 0xc0;
const TOS_BITS: u8 = 0x1e;

/// The packets that wait.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
//# However, the number of queued packets per neighbor SHOULD be limited to some small value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Waiting {
    /// The oldest first.
    packets: VecDeque<PacketOut>,
    /// Blocks of the arena that the packets to a next hop take, also of those that have been woken and
    /// have not gone yet.
    hops: FlowTable<(InterfaceIndex, IpAddr)>,
    /// The same of all.
    blocks: u32,
    /// Most blocks of all, and of those to one next hop.
    most: u32,
    most_of_one: u32,
    /// Datagrams whose next hop did not answer, told or not, since the embedder was last told of them.
    failed: u64,
}

impl Waiting {
    /// Room for as much as is said above of an arena of so many blocks.
    pub fn new(hash: KeyedHash, arena_blocks: u32) -> Self {
        let (most, most_of_one) = (arena_blocks / 2, arena_blocks / 4);
        Self {
            packets: VecDeque::with_capacity(most as usize),
            hops: FlowTable::new(hash, most),
            blocks: 0,
            most,
            most_of_one,
            failed: 0,
        }
    }

    /// Whether packets to a next hop have waited and not gone yet: others come after them.
    pub fn has(&self, interface: InterfaceIndex, next_hop: IpAddr) -> bool {
        !self.hops.is_empty() && self.hops.find(&(interface, next_hop)).is_some()
    }

    /// Counts a packet in; `false` when it finds no room.
    fn enter(&mut self, packet: &mut PacketOut) -> bool {
        let hop = (packet.interface, packet.next_hop);
        let blocks = self.hops.find(&hop).unwrap_or(0) + blocks_of(packet.len);
        let all = self.blocks + blocks_of(packet.len);
        if blocks > self.most_of_one || all > self.most || self.hops.insert(hop, blocks).is_err() {
            return false;
        }
        (self.blocks, packet.is_counted) = (all, true);
        true
    }

    /// Takes the oldest packet that stands in the way of another one.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
    //# When a queue overflows, the new arrival SHOULD replace the oldest entry.
    fn in_the_way_of(&mut self, packet: &PacketOut) -> Option<PacketOut> {
        let hop = (packet.interface, packet.next_hop);
        let is_of_hop = |one: &PacketOut| (one.interface, one.next_hop) == hop;
        let taken = |one: &PacketOut| self.hops.find(&(one.interface, one.next_hop)).unwrap_or(0);
        let is_own = taken(packet) + blocks_of(packet.len) > self.most_of_one;
        let is_answer = |one: &PacketOut| one.socket.is_none();
        let (place, _) = (self.packets.iter().enumerate().rev())
            .filter(|(_, one)| !is_own || is_of_hop(one))
            .filter(|(_, one)| is_answer(one) || !is_answer(packet))
            // The last of those that are equal, and so the oldest; of one next hop all are.
            .max_by_key(|(_, one)| (is_answer(one), if is_own { 0 } else { taken(one) }))?;
        self.packets.remove(place)
    }

    /// A packet waits no more.
    pub fn leave(&mut self, packet: &PacketOut) {
        if !packet.is_counted {
            return;
        }
        let hop = (packet.interface, packet.next_hop);
        let blocks = blocks_of(packet.len);
        self.blocks = self.blocks.saturating_sub(blocks);
        match self.hops.find(&hop).unwrap_or(0).saturating_sub(blocks) {
            0 => {
                self.hops.remove(&hop);
            }
            // It is known, so there is room.
            left => drop(self.hops.insert(hop, left)),
        }
    }
}

impl Stack {
    /// Lets those who wait for a neighbour try again when one has become known or was given up.
    pub(super) fn wake_waiting(&mut self) {
        let generation = self.neighbors.generation();
        if self.seen_generation == generation {
            return;
        }
        self.seen_generation = generation;
        self.tcp.unpark_all();
        for _ in 0..self.waiting.packets.len() {
            let Some(packet) = self.waiting.packets.pop_front() else { break };
            if !self.push_out(packet.interface, Outgoing::Packet(packet)) {
                self.release(&packet);
            }
        }
    }

    /// The time of a neighbour has come: it is asked again, given up or forgotten.
    pub(super) fn on_neighbor_timer(&mut self, now: Instant, neighbor: u32) {
        let slot = neighbor.saturating_add(self.reassembly_count);
        match self.neighbors.on_timer(now, neighbor) {
            Due::Ask(interface, target, known, again) => {
                self.wheel.set(slot, again);
                self.ask(interface, target, known);
            }
            Due::Failed(interface, target, again) => {
                let counter = match target {
                    IpAddr::V4(_) => &mut self.counters.arp_failures,
                    IpAddr::V6(_) => &mut self.counters.ndp_failures,
                };
                *counter = counter.wrapping_add(1);
                if let Some(again) = again {
                    self.wheel.set(slot, again);
                }
                self.note_router(interface, target, true);
            }
            Due::Gone => {}
        }
    }

    /// A packet waits for its next hop.
    pub(super) fn park(&mut self, mut packet: PacketOut) {
        while !packet.is_counted && !self.waiting.enter(&mut packet) {
            let (gone, is_last) = match self.waiting.in_the_way_of(&packet) {
                Some(older) => (older, false),
                None => (packet, true),
            };
            self.counters.drop(DropReason::NeighborQueueFull);
            self.release(&gone);
            if is_last {
                return;
            }
        }
        self.waiting.packets.push_back(packet);
    }

    /// The next hop of a packet does not answer.
    pub(super) fn give_up_packet(&mut self, packet: PacketOut) {
        self.counters.drop(DropReason::NeighborFailed);
        self.waiting.leave(&packet);
        // Of a datagram in fragments the first one is told of.
        if packet.socket.is_some() && packet.ip.fragment.is_none_or(|(offset, _)| offset == 0) {
            self.waiting.failed += 1;
            self.unreached.push_back(packet);
        } else {
            self.arena.give(packet.start, packet.len);
        }
    }

    fn release(&mut self, packet: &PacketOut) {
        self.waiting.leave(packet);
        self.arena.give(packet.start, packet.len);
    }

    /// Keeps a datagram that [`udp_transmit`](Self::udp_transmit) could not send yet, with all of its
    /// `payload`: it is sent by [`poll_transmit`](Self::poll_transmit) when its next hop is known, also
    /// when its socket is closed by then. Gives where the next datagram begins of several.
    ///
    /// # Errors
    /// [`RequestError::Stale`], [`RequestError::NoRoute`], [`RequestError::AddressNotAvailable`]
    /// and [`RequestError::TooLong`] as [`udp_transmit`](Self::udp_transmit);
    /// [`RequestError::TooLong`] also if `payload` is shorter than `send` says;
    /// [`RequestError::State`] without a remote, or to a broadcast address, which has no next hop
    /// to wait for.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
    //# the sender MUST, for each neighbor, retain a small queue of packets waiting for address
    //# resolution to complete.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
    //# The queue MUST hold at least one packet, and MAY contain more.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-2.3.2.2
    //# The link layer SHOULD save (rather than discard) at least one (the latest) packet of each
    //# set of packets destined to the same unresolved IP address, and transmit the saved packet
    //# when the address has been resolved.
    pub fn udp_keep(
        &mut self,
        now: Instant,
        id: SocketId,
        send: &UdpSend,
        payload: &[u8],
    ) -> Result<Option<u32>, RequestError> {
        // What waits for a next hop that is known by now goes first.
        self.wake_waiting();
        let plan = self.plan_udp(now, id, send)?;
        let UdpPlan { src, dst, route, longest, .. } = plan;
        if plan.to_all && !dst.is_multicast() {
            // It has no next hop to wait for.
            return Err(RequestError::State);
        }
        let end = send.offset.saturating_add(longest);
        let part = payload.get(send.offset as usize..end as usize).ok_or(RequestError::TooLong)?;
        let len = longest + udp::HEADER_LEN as u32;
        let protocol = Protocol::UDP;
        let pseudo = Sum::pseudo(src, dst, protocol, len).ok_or(RequestError::NoRoute)?;
        let (src_port, dst_port) = (plan.local_port, plan.remote_port);
        let mut head = [0; udp::HEADER_LEN];
        let mut header = UdpHeader { src_port, dst_port, len: len as u16, checksum: 0 };
        header.emit(&mut head).map_err(|_| RequestError::TooLong)?;
        if !send.no_checksum {
            header.checksum = pseudo.then(Sum::of(&head)).then(Sum::of(part)).finish_udp();
            header.emit(&mut head).map_err(|_| RequestError::TooLong)?;
        }
        let may_cut = plan.may_cut || longest > plan.room;
        let (tos, ttl, fragment) = (plan.tos, plan.ttl, None);
        let identification = if may_cut { self.identifications(src, dst, 1) } else { 0 };
        let ip = IpOut { src, dst, protocol, tos, ttl, identification, may_cut, fragment };
        let resolution = self.link_address(now, route.interface, route.next_hop, Requester::Local);
        let options = Options::default();
        self.counters.udp_sent = self.counters.udp_sent.wrapping_add(1);
        let waits = matches!(resolution, Resolution::Wait | Resolution::Full | Resolution::Ask(..));
        let path = TxPath { route, mtu: plan.mtu, socket: Some(id), waits };
        if resolution == Resolution::Failed {
            self.keep_for_report(&path, IpOut { may_cut: false, ..ip }, [&head, part]);
            return Ok((longest < plan.left).then_some(end));
        }
        if self.queue_packet(&path, &ip, &options, [&head, part]).is_none() {
            self.counters.drop(DropReason::NeighborQueueFull);
        }
        Ok((longest < plan.left).then_some(end))
    }

    /// Keeps of a datagram to a next hop that does not answer what its socket is told of, and no more: all of it
    /// would take the room of others' datagrams, which may yet go.
    fn keep_for_report(&mut self, path: &TxPath, ip: IpOut, [head, payload]: [&[u8]; 2]) {
        let Some(id) = path.socket else { return };
        let Route { interface, next_hop, .. } = path.route;
        self.counters.drop(DropReason::NeighborFailed);
        self.waiting.failed += 1;
        let is_v6 = ip.dst.is_ipv6();
        let asks = self.udp.socket(id).is_ok_and(|socket| asks_for_reports(&socket.options, is_v6));
        if !asks {
            return;
        }
        let quoted = QUOTED_MAX[usize::from(is_v6)].min(payload.len());
        let len = head.len() + quoted;
        if self.unreached.len() >= self.waiting.most_of_one as usize {
            return;
        }
        let Some((start, bytes)) = self.arena.take(len) else { return };
        let (first, rest) = bytes.split_at_mut(head.len());
        first.copy_from_slice(head);
        rest.copy_from_slice(&payload[..quoted]);
        let (options, len) = (Options::default(), len as u32);
        let socket = Some(id);
        let is_counted = false;
        let packet = PacketOut { interface, next_hop, ip, options, start, len, socket, is_counted };
        self.unreached.push_back(packet);
    }

    /// Tells sockets of the datagrams whose next hop did not answer, as far as they want to know
    /// ([`UdpOptions::report_errors`]); returns how many there were, also of those that nobody wants to
    /// know of. To be called after [`poll_transmit`](Self::poll_transmit).
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
    //# The sender MUST return ICMP destination unreachable indications with code 3 (Address
    //# Unreachable) for each packet queued awaiting address resolution.
    pub fn tell_unreached<S: Sink>(&mut self, sink: &mut S) -> u64 {
        while let Some(packet) = self.unreached.pop_front() {
            self.tell_one_unreached(&packet, sink);
            self.arena.give(packet.start, packet.len);
        }
        std::mem::take(&mut self.waiting.failed)
    }

    fn tell_one_unreached<S: Sink>(&mut self, packet: &PacketOut, sink: &mut S) -> Option<()> {
        let (id, ip) = (packet.socket?, &packet.ip);
        let socket = *self.udp.socket(id).ok()?;
        let is_v6 = ip.dst.is_ipv6();
        if !asks_for_reports(&socket.options, is_v6) {
            return None;
        }
        let (header, payload) =
            udp::parse_header(self.arena.bytes(packet.start, packet.len)).ok()?;
        let quoted = payload.get(..QUOTED_MAX[usize::from(is_v6)]).unwrap_or(payload);
        let (kind, code) = UNREACHABLE[usize::from(is_v6)];
        let error = UdpError::HostUnreachable;
        let report = UdpErrorReport {
            error,
            kind,
            code,
            info: 0,
            offender: ip.src,
            remote: SocketAddr::new(ip.dst, header.dst_port),
            local: SocketAddr::new(ip.src, header.src_port),
            interface: InterfaceIndex::LOOPBACK,
            tos: if is_v6 { 0 } else { ip.tos & TOS_BITS | INTERNETWORK_CONTROL },
            ttl: 64,
        };
        if !sink.udp_error(id, socket.owner, &report, quoted) {
            self.udp.raise(id, error);
        }
        Some(())
    }
}

fn asks_for_reports(options: &UdpOptions, is_v6: bool) -> bool {
    if is_v6 { options.report_errors6 } else { options.report_errors }
}
