//! Datagrams into and out of the region.

use shm::descriptor::{
    DATAGRAM_HEADER_BYTES, DATAGRAM_STAMP_BYTES, DatagramFlags, DatagramHeader, DescriptorKind,
    ERROR_REPORT_BYTES, ErrorReport,
};
use stack::api::{DatagramMeta, Instant, InterfaceIndex, SocketId, UdpErrorReport};

use crate::endpoint::{Datagram, Endpoint, EndpointSocket, Role};
use crate::errno;
use crate::session::{Breach, Session};
use crate::stats::Counters;

/// Datagrams in a buffer start at multiples of this.
const ALIGN: u32 = 64;

/// Buffers that a socket may hold before the client is asked to ring when it has read them.
const BUFFERS_UNASKED: usize = 2;

/// Maximum number of spans of one datagram: full buffers of the smallest size, and some remainders.
const SPANS_MAX: usize = 80;

/// Maximum bytes before a datagram's payload.
const HEAD_MAX: usize =
    (DATAGRAM_HEADER_BYTES + DATAGRAM_STAMP_BYTES) as usize + ERROR_REPORT_BYTES;

/// A datagram whose sender asked for its transmit time.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Its header as the client wrote it.
    pub header: DatagramHeader,
    /// The program's number for it.
    pub number: u64,
}

/// What receive queues are filled with.
#[derive(Clone, Copy)]
pub struct RxContext<'a> {
    /// The worker's time, by which entries are stamped.
    pub now: Instant,
    /// Where drops are counted.
    pub counters: &'a Counters,
}

/// An entry of a receive queue.
struct QueueEntry<'a> {
    /// Its header, without the flag for the stamp.
    header: &'a DatagramHeader,
    /// When it arrived, where the program wants to know.
    stamp: Option<u64>,
    /// The encoded report of an error, or nothing.
    report: &'a [u8],
    /// The payload.
    bytes: &'a [u8],
}

/// An interface as a datagram's header names it.
pub fn numbered(interface: InterfaceIndex) -> u32 {
    u32::from(interface.0.wrapping_add(1))
}

impl Session {
    /// Copies a datagram (or several coalesced ones) after its header to the receive queue.
    /// `false`: there was no room for at least one.
    pub fn store_datagram(
        &mut self,
        to: EndpointSocket,
        meta: &DatagramMeta,
        bytes: &[u8],
        rx: RxContext<'_>,
    ) -> bool {
        let stamp = self.arrival_of(to.index, rx.now);
        let size = meta.gso_bytes.filter(|size| bytes.len() > usize::from(*size)).unwrap_or(0);
        let header = DatagramHeader {
            remote: meta.remote,
            local: meta.local,
            tos: meta.tos,
            ttl: meta.ttl,
            interface: numbered(meta.interface),
            gso_bytes: size,
            flags: DatagramFlags::empty(),
            payload_bytes: bytes.len() as u32,
        };
        if size == 0 || self.takes_coalesced(to.index) {
            let entry = QueueEntry { header: &header, stamp, report: &[], bytes };
            return self.store_one(to, &entry, rx.counters);
        }
        let mut all = true;
        for part in bytes.chunks(size.into()) {
            let payload_bytes = part.len() as u32;
            let header = DatagramHeader { gso_bytes: 0, payload_bytes, ..header };
            let entry = QueueEntry { header: &header, stamp, report: &[], bytes: part };
            all &= self.store_one(to, &entry, rx.counters);
        }
        all
    }

    fn takes_coalesced(&self, index: u32) -> bool {
        match self.endpoints.get(index as usize).map(|endpoint| &endpoint.role) {
            Some(Role::Datagram(datagram)) => datagram.takes_coalesced,
            _ => false,
        }
    }

    /// The arrival time of data that arrives now, if it is recorded.
    fn arrival_of(&self, index: u32, now: Instant) -> Option<u64> {
        match self.endpoints.get(index as usize).map(|endpoint| &endpoint.role) {
            Some(Role::Datagram(datagram)) => datagram.is_stamped.then_some(now.0),
            _ => None,
        }
    }

    /// Puts a transmit report into the receive queue, as requested by the program; if wanted, with
    /// the `packet` from its link header on.
    pub fn store_sent(
        &mut self,
        to: EndpointSocket,
        told: &Told,
        packet: &[u8],
        rx: RxContext<'_>,
    ) -> bool {
        let mut all = true;
        for (flag, kind) in [
            (DatagramFlags::TELL_SCHEDULED, stack::tcp::SCHEDULED),
            (DatagramFlags::TELL_SENT, stack::tcp::SENT),
        ] {
            if !told.header.flags.contains(flag) {
                continue;
            }
            let header = DatagramHeader {
                gso_bytes: 0,
                flags: DatagramFlags::ERROR,
                payload_bytes: (ERROR_REPORT_BYTES + packet.len()) as u32,
                ..told.header
            };
            let errno = errno::number(rustix::io::Errno::NOMSG);
            let report = ErrorReport::of_sent(errno, kind, told.number as u32).encode();
            let stamp = Some(rx.now.0);
            let entry = QueueEntry { header: &header, stamp, report: &report, bytes: packet };
            all &= self.store_one(to, &entry, rx.counters);
        }
        all
    }

    /// Puts an error report into the receive queue, with the quoted part of the datagram.
    pub fn store_error(
        &mut self,
        to: EndpointSocket,
        report: &UdpErrorReport,
        quoted: &[u8],
        rx: RxContext<'_>,
    ) -> bool {
        let stamp = self.arrival_of(to.index, rx.now);
        let header = DatagramHeader {
            remote: report.remote,
            local: report.local,
            tos: report.tos,
            ttl: report.ttl,
            interface: numbered(report.interface),
            gso_bytes: 0,
            flags: DatagramFlags::ERROR,
            payload_bytes: (ERROR_REPORT_BYTES + quoted.len()) as u32,
        };
        let report = ErrorReport {
            errno: errno::number(errno::of_datagram(report.error)),
            kind: report.kind,
            code: report.code,
            info: report.info,
            offender: (report.kind != 0).then_some(report.offender),
        };
        let report = &report.encode();
        let entry = QueueEntry { header: &header, stamp, report, bytes: quoted };
        let stored = self.store_one(to, &entry, rx.counters);
        if stored {
            rx.counters.datagram_errors.increment();
        }
        stored
    }

    fn store_one(
        &mut self,
        EndpointSocket { index, id }: EndpointSocket,
        entry: &QueueEntry<'_>,
        counters: &Counters,
    ) -> bool {
        let QueueEntry { header, stamp, report, bytes } = *entry;
        let geometry = *self.region.geometry();
        let slots = u64::from(geometry.receive_slots);
        let mut header = *header;
        header.flags.set(DatagramFlags::STAMPED, stamp.is_some());
        let own_bytes = header.head_bytes() as usize;
        let head_bytes = own_bytes + report.len();
        let total = head_bytes + bytes.len();
        // Each descriptor's span is within one buffer; all but the last fill theirs.
        let parts = total.div_ceil(geometry.buffer_bytes as usize);
        let is_full = |datagram: &Datagram, pushed: u64| {
            (pushed - datagram.consumed).saturating_add(parts as u64) > slots
        };
        // Error reports are few, and are queued elsewhere when they are found.
        let is_counted = !header.flags.contains(DatagramFlags::ERROR);
        let lacks_room = |datagram: &Datagram| {
            is_counted && datagram.room.as_ref().is_some_and(|room| !room.admits(bytes.len()))
        };
        match self.endpoints.get(index as usize) {
            Some(Endpoint { view, role: Role::Datagram(datagram), .. }) if datagram.id == id => {
                // Only when another buffer is needed, so that a socket holds the buffers of unread
                // data and not every buffer that its queue could name.
                let wants_buffer = datagram.fill as usize + total > geometry.buffer_bytes as usize;
                if wants_buffer
                    || is_full(datagram, view.received())
                    || lacks_room(datagram)
                    || self.pool.free_for_datagrams() < parts
                {
                    self.learn_datagrams_consumed(index);
                }
            }
            _ => return false,
        }
        let Some(endpoint) = self.endpoints.get_mut(index as usize) else { return false };
        let Role::Datagram(datagram) = &mut endpoint.role else { return false };
        if is_full(datagram, endpoint.view.received()) || lacks_room(datagram) {
            counters.datagrams_rx_full.increment();
            return false;
        }
        if self.pool.free_for_datagrams() < parts {
            counters.buffers_exhausted.increment();
            return false;
        }
        let mut head = [0; HEAD_MAX];
        let (own, after) = head.split_at_mut(DATAGRAM_HEADER_BYTES as usize);
        own.copy_from_slice(&header.encode());
        let stamp = stamp.map(u64::to_le_bytes);
        let stamp = stamp.as_ref().map_or(&[][..], |bytes| bytes);
        for (place, byte) in after.iter_mut().zip(stamp.iter().chain(report)) {
            *place = *byte;
        }
        let mut ahead = head.get(..head_bytes).unwrap_or_default();
        let mut rest = bytes;
        let mut left = total as u32;
        while left > 0 {
            let wanted = left.min(geometry.buffer_bytes);
            if datagram.buffers.is_empty() || datagram.fill + wanted > geometry.buffer_bytes {
                let Some(buffer) = self.pool.take_for_datagrams() else { return false };
                datagram.buffers.push_back((endpoint.view.received(), buffer));
                datagram.fill = 0;
            }
            let Some((after, buffer)) = datagram.buffers.back_mut() else { return false };
            let Some(whole) = self.region.buffer(*buffer) else { return false };
            let span = whole.part(datagram.fill, wanted);
            let headed = self.region.write_buffer(span, ahead) as u32;
            ahead = &[];
            let (now, later) = rest.split_at(rest.len().min((wanted - headed) as usize));
            if !now.is_empty() {
                self.region.write_buffer(span.part(headed, u32::MAX), now);
            }
            rest = later;
            left -= wanted;
            endpoint.view.push_datagram(span, left > 0);
            *after = endpoint.view.received();
            datagram.fill = (datagram.fill + wanted).next_multiple_of(ALIGN);
        }
        if let Some(room) = datagram.room.as_mut().filter(|_| is_counted) {
            room.add(endpoint.view.received(), bytes.len());
        }
        datagram.unpublished = true;
        counters.datagrams_rx.increment();
        true
    }

    /// Publishes received datagrams to the client; `false` if there are none.
    pub fn publish_datagrams(&mut self, index: u32) -> bool {
        let Some(endpoint) = self.endpoints.get_mut(index as usize) else { return false };
        let Role::Datagram(datagram) = &mut endpoint.role else { return false };
        if !std::mem::take(&mut datagram.unpublished) {
            return false;
        }
        // A socket that holds several buffers must ring when it has read them.
        let received = endpoint.view.received();
        let wanted = if datagram.buffers.len() > BUFFERS_UNASKED { received } else { u64::MAX };
        endpoint.view.set_wanted(wanted);
        endpoint.view.set_readable(received);
        true
    }

    /// Reads how many datagrams the client has consumed, and takes their buffers back.
    pub fn learn_datagrams_consumed(&mut self, index: u32) {
        let Some(endpoint) = self.endpoints.get_mut(index as usize) else { return };
        let Role::Datagram(datagram) = &mut endpoint.role else { return };
        let claimed = match endpoint.view.consumed(datagram.consumed, endpoint.view.received()) {
            Ok(claimed) => claimed,
            Err(found) => return self.breached(Breach::Contract(found)),
        };
        datagram.consumed = claimed;
        if let Some(room) = &mut datagram.room {
            room.release(claimed);
        }
        while let Some((after, buffer)) = datagram.buffers.front().copied() {
            if after > claimed {
                break;
            }
            datagram.buffers.pop_front();
            self.pool.give_datagrams(buffer);
        }
    }

    /// The next datagram to send: its header and number, how many bytes of it are already sent, and
    /// in `payload` the location of its bytes. It remains the next one until
    /// [`Session::finish_datagram`].
    pub fn next_datagram(
        &mut self,
        index: u32,
        payload: &mut Vec<(u64, u32)>,
    ) -> Option<(SocketId, Told, u32)> {
        let endpoint = self.endpoints.get_mut(index as usize)?;
        let lane = endpoint.lane;
        let Role::Datagram(datagram) = &mut endpoint.role else { return None };
        // Bounded, because a client may push empty descriptors without end.
        for _ in 0..self.region.geometry().send_slots {
            if datagram.is_whole {
                break;
            }
            let descriptor = match endpoint.view.take_descriptor() {
                Ok(Some(descriptor)) => descriptor,
                Ok(None) => return None,
                Err(found) => {
                    self.breached(Breach::Contract(found));
                    return None;
                }
            };
            datagram.unpublished_sent = true;
            let (DescriptorKind::Datagram, Some(buffer)) = (descriptor.kind, descriptor.buffer)
            else {
                self.breached(Breach::WrongKind { endpoint: index });
                return None;
            };
            if self.pool.on_span(buffer, lane, descriptor.extent).is_err() {
                self.breached(Breach::BufferNotGranted { endpoint: index, buffer });
                return None;
            }
            if descriptor.span.len == 0 {
                // This descriptor only closes its buffer.
                self.pool.drop_span(buffer);
                continue;
            }
            datagram.is_whole = !descriptor.more;
            datagram.held.push((descriptor.span, buffer));
            if datagram.held.len() > SPANS_MAX {
                self.breached(Breach::BadDatagram { endpoint: index });
                return None;
            }
        }
        if !datagram.is_whole {
            return None;
        }
        let (id, sent_bytes) = (datagram.id, datagram.sent_bytes);
        let split = datagram.held.first().and_then(|(first, _)| {
            let (header, payload) = DatagramHeader::split(&self.region, *first)?;
            let number = header.stamp(&self.region, *first).unwrap_or(0);
            Some((Told { header, number }, payload))
        });
        let Some((told, first)) = split else {
            self.breached(Breach::BadDatagram { endpoint: index });
            return None;
        };
        payload.clear();
        let mut left = told.header.payload_bytes;
        let rest = datagram.held.iter().skip(1).map(|(span, _)| *span);
        for span in std::iter::once(first).chain(rest) {
            let len = span.len.min(left);
            if len > 0 {
                payload.push((span.offset, len));
            }
            left -= len;
        }
        if left > 0 {
            self.breached(Breach::BadDatagram { endpoint: index });
            return None;
        }
        Some((id, told, sent_bytes))
    }

    /// So many bytes of the datagram of [`Session::next_datagram`] were sent, as separate
    /// datagrams.
    pub fn note_datagram_sent(&mut self, index: u32, bytes: u32) {
        if let Some(Endpoint { role: Role::Datagram(datagram), .. }) =
            self.endpoints.get_mut(index as usize)
        {
            datagram.sent_bytes = bytes;
        }
    }

    /// The datagram of [`Session::next_datagram`] was sent or dropped.
    pub fn finish_datagram(&mut self, index: u32) {
        let Some(endpoint) = self.endpoints.get_mut(index as usize) else { return };
        let Role::Datagram(datagram) = &mut endpoint.role else { return };
        if std::mem::take(&mut datagram.is_whole) {
            for (_, buffer) in datagram.held.drain(..) {
                self.pool.drop_span(buffer);
            }
            datagram.sent_bytes = 0;
            datagram.done += 1;
            datagram.unpublished_sent = true;
        }
    }

    /// Drops unsent datagrams of a closing socket. Each descriptor is still accounted for, because
    /// that returns the buffers.
    pub fn drop_unsent_datagrams(&mut self, index: u32, counters: &Counters) {
        let mut payload = Vec::new();
        // Bounded, because a client may keep pushing.
        for _ in 0..self.region.geometry().send_slots {
            if self.next_datagram(index, &mut payload).is_none() {
                break;
            }
            self.finish_datagram(index);
            counters.datagrams_tx_failed.increment();
        }
    }

    /// Publishes sent datagrams to the client; `false` if there are none.
    pub fn publish_sent_datagrams(&mut self, index: u32) -> bool {
        let Some(endpoint) = self.endpoints.get_mut(index as usize) else { return false };
        let Role::Datagram(datagram) = &mut endpoint.role else { return false };
        if !std::mem::take(&mut datagram.unpublished_sent) {
            return false;
        }
        endpoint.view.publish_taken();
        endpoint.view.set_acked(datagram.done);
        true
    }

    /// Returns all buffers of a datagram endpoint.
    pub fn release_datagrams(&mut self, datagram: &mut Datagram) {
        for (_, buffer) in datagram.buffers.drain(..) {
            self.pool.give_datagrams(buffer);
        }
        self.pool.remove_datagram_socket();
        for (_, buffer) in datagram.held.drain(..) {
            self.pool.drop_span(buffer);
        }
    }
}
