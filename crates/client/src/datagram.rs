//! Sending and receiving datagrams.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use rustix::io::Errno;
use shm::Status;
use shm::client_side::{Carved, Direction, ReceiveGuard};
use shm::descriptor::{
    DATAGRAM_HEADER_BYTES, DATAGRAM_STAMP_BYTES, DatagramFlags, DatagramHeader, DescriptorFlags,
    DescriptorKind, Span,
};

use crate::driver::{locked, reentered};
use crate::endpoint::{Call, Endpoint, Kind, Readiness};
use crate::session::unspecified;
use crate::stream::Place;

/// Maximum payload of a datagram in bytes: over IPv4 (RFC 768's length field less the headers), and
/// over IPv6, where the IP header does not count.
const PAYLOAD_MAX: [usize; 2] = [65_507, 65_527];
pub(crate) fn payload_max(to: IpAddr) -> usize {
    PAYLOAD_MAX[usize::from(to.to_canonical().is_ipv6())]
}

/// Minimum length of a datagram's pieces, unless it is shorter.
const PIECE_MIN: u32 = 2048;

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// Bytes copied.
    pub len: usize,
    /// Its length; the bytes that did not fit are lost.
    pub full_len: usize,
    /// The sender.
    pub remote: SocketAddr,
    /// The local address that it was sent to.
    pub local: SocketAddr,
    /// Type of service.
    pub tos: u8,
    /// TTL as it arrived.
    pub ttl: u8,
    /// The engine's interface through which it came, plus one; 0 if unknown.
    pub interface: u32,
    /// It is several datagrams of this size, the last one possibly shorter (UDP_GRO); 0 for one.
    pub segment_bytes: u16,
    /// Arrival time in nanoseconds of the monotonic clock, if it is recorded
    /// ([`OptionName::ReceiveStamps`](crate::OptionName::ReceiveStamps)).
    pub at_ns: Option<u64>,
}

/// Parameters of a datagram to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// Destination; `None` for the peer that was set.
    pub remote: Option<SocketAddr>,
    /// Local source address; `None` for the endpoint's own.
    pub local: Option<IpAddr>,
    /// Type of service.
    pub tos: u8,
    /// TTL; 0 for the engine's.
    pub ttl: u8,
    /// The engine's interface to use, plus one, if the address does not determine it; else 0.
    pub interface: u32,
    /// It is several datagrams of this size, the last one possibly shorter (UDP_SEGMENT); 0 for
    /// one.
    pub segment_bytes: u16,
    /// How it is sent, and what is reported about it.
    pub flags: DatagramFlags,
    /// The program's number for it in reports; unused otherwise.
    pub number: u32,
}

impl Endpoint {
    pub(crate) fn datagram_readiness(&self, call: &Call<'_>, asked: Readiness) -> Readiness {
        let view = call.view();
        let mut readiness = Readiness::empty();
        let levels = view.levels();
        let readable = self.note_errors(call, levels.readable);
        if self.has_errors() {
            readiness |= Readiness::ERR;
        }
        if readable > view.consumed() || call.is_shut_for_reading() {
            readiness |= Readiness::IN;
        }
        if levels.errno != 0 && view.reported_errors() != levels.errors {
            readiness |= Readiness::ERR;
        }
        if levels.status.contains(Status::HANGUP) {
            readiness |= Readiness::HUP;
        }
        if asked.contains(Readiness::OUT) && self.can_send(call, levels) {
            readiness |= Readiness::OUT;
        }
        readiness
    }

    pub(crate) fn next_datagram_bytes(&self, call: &Call<'_>) -> u64 {
        let Ok(mut receive) = call.view().lock_receive(call.driver().tag()) else { return 0 };
        let readable = self.sort(call, &mut receive);
        let next = receive.consumed();
        if readable <= next {
            return 0;
        }
        receive
            .datagram(next)
            .and_then(|(span, _)| DatagramHeader::split(call.view().region(), span))
            .map_or(0, |(header, _)| u64::from(header.payload_bytes))
    }

    /// Takes the next datagram into `parts`; what does not fit is lost, as with the kernel. EAGAIN
    /// when there is none.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)); EAGAIN when there is none; EFAULT when
    /// `parts` cannot be written; the error that an earlier datagram has met.
    pub fn recv_from(&self, parts: &mut [IoSliceMut<'_>]) -> Result<ReceivedDatagram, Errno> {
        self.receive_datagram(parts, true)
    }

    /// Copies the next datagram without taking it.
    ///
    /// # Errors
    /// As [`Self::recv_from`].
    pub fn peek_from(&self, parts: &mut [IoSliceMut<'_>]) -> Result<ReceivedDatagram, Errno> {
        self.receive_datagram(parts, false)
    }

    fn receive_datagram(
        &self,
        parts: &mut [IoSliceMut<'_>],
        take: bool,
    ) -> Result<ReceivedDatagram, Errno> {
        let call = self.call_as(Kind::Datagram)?;
        let view = call.view();
        let mut receive = view.lock_receive(call.driver().tag()).map_err(reentered)?;
        let readable = self.sort(&call, &mut receive);
        if let Some(errno) = self.datagram_error(&call) {
            return Err(errno);
        }
        let start = receive.consumed();
        if readable <= start {
            return Err(call.again());
        }
        let (received, next) = copy_datagram(&receive, view.region(), start..readable, parts)?;
        // As in the kernel, a datagram that cannot be copied is lost.
        if take && receive.advance(next) {
            call.ring(Direction::Receive);
        }
        received.ok_or(Errno::FAULT)
    }

    /// Sends a datagram made of `parts`: to `remote`, or to the peer that was set; from `local`,
    /// or the endpoint's own. All of it or nothing; EAGAIN when there is no room.
    ///
    /// # Errors
    /// As [`Self::send_datagram`].
    pub fn send_to(
        &self,
        remote: Option<SocketAddr>,
        local: Option<IpAddr>,
        parts: &[IoSlice<'_>],
    ) -> Result<usize, Errno> {
        self.send_datagram(&Outgoing { remote, local, ..Outgoing::default() }, parts)
    }

    /// The same with everything that can be said of a datagram.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)); EAGAIN when there is no room; EMSGSIZE
    /// when it is longer than a datagram can be; EPIPE after a shutdown; EDESTADDRREQ without a
    /// remote; EINVAL when its port is 0; EFAULT when `parts` cannot be read; the error that an
    /// earlier datagram has met.
    pub fn send_datagram(
        &self,
        outgoing: &Outgoing,
        parts: &[IoSlice<'_>],
    ) -> Result<usize, Errno> {
        let call = self.call_as(Kind::Datagram)?;
        let view = call.view();
        self.note_errors(&call, 0);
        if let Some(errno) = self.datagram_error(&call) {
            return Err(errno);
        }
        if call.is_shut_for_writing() {
            return Err(Errno::PIPE);
        }
        let own = *locked(&self.inner.addresses);
        let remote = match outgoing.remote {
            Some(remote) if remote.port() == 0 => return Err(Errno::INVAL),
            Some(remote) => remote,
            None if own.remote == unspecified(own.remote) => return Err(Errno::DESTADDRREQ),
            None => own.remote,
        };
        let payload: usize = parts.iter().map(|part| part.len()).sum();
        if payload > payload_max(remote.ip()) {
            return Err(Errno::MSGSIZE);
        }
        if Place::default().readable(parts, payload) < payload {
            return Err(Errno::FAULT);
        }
        let port = own.local.port();
        let local = outgoing.local.map_or(unspecified(remote), |ip| SocketAddr::new(ip, port));
        let asks =
            outgoing.flags.intersects(DatagramFlags::TELL_SCHEDULED | DatagramFlags::TELL_SENT);
        let mut flags = outgoing.flags;
        flags.set(DatagramFlags::STAMPED, asks);
        if asks {
            self.expect_errors();
        }
        let header = DatagramHeader {
            remote,
            local,
            tos: outgoing.tos,
            ttl: outgoing.ttl,
            interface: outgoing.interface,
            gso_bytes: outgoing.segment_bytes,
            flags,
            payload_bytes: payload as u32,
        };
        let total = header.head_bytes() + payload as u32;
        let least = total.min(PIECE_MIN);
        let buffer_bytes = view.region().geometry().buffer_bytes;
        let driver = call.driver();
        let mut send = view.lock_send(driver.tag()).map_err(reentered)?;
        // Full buffers, one piece from the open buffer, its remnant, and one shorter than `least`.
        let most = total / buffer_bytes + 4;
        if send.room() < most {
            // An event must come once there is room, unless there is room already.
            self.can_send(&call, view.levels());
            if send.room() < most {
                return Err(call.again());
            }
        }
        let mut place = Place::default();
        let mut done = 0;
        // The spans for the whole datagram are taken under one lock, or none.
        let mut lane = driver.lane.lock(driver.tag()).map_err(reentered)?;
        if !lane.can_carve(total, least) {
            self.inner.session.starve(self.id());
            if !lane.can_carve(total, least) {
                drop(lane);
                return Err(call.again());
            }
        }
        while done < total {
            let Some(Carved { span, last }) = lane.carve(total - done, least.min(total - done))
            else {
                // The stock was checked under this lock, so it cannot have shrunk.
                return Err(Errno::PROTO);
            };
            let mut rest = span;
            if done == 0 && span.len > 0 {
                // A first piece is at least `least` long, which holds the header.
                view.region().write_buffer(span, &header.encode());
                if asks {
                    let number = u64::from(outgoing.number).to_le_bytes();
                    let behind = span.part(DATAGRAM_HEADER_BYTES, DATAGRAM_STAMP_BYTES);
                    view.region().write_buffer(behind, &number);
                }
                rest = span.part(header.head_bytes(), u32::MAX);
            }
            place.gather(view.region(), rest, parts);
            done += span.len;
            let mut flags = DescriptorFlags::empty();
            flags.set(DescriptorFlags::LAST, last);
            flags.set(DescriptorFlags::MORE, done < total && span.len > 0);
            send.push(DescriptorKind::Datagram, flags, span);
        }
        drop(lane);
        call.ring(Direction::Send);
        Ok(payload)
    }
}

/// Copies the first of the `waiting` datagrams. Returns it, unless the destination cannot be
/// written, and the start of the next one.
fn copy_datagram(
    receive: &ReceiveGuard<'_>,
    region: &shm::region::Region,
    waiting: Range<u64>,
    parts: &mut [IoSliceMut<'_>],
) -> Result<(Option<ReceivedDatagram>, u64), Errno> {
    // `PROTO`: the engine violated the contract.
    let (first, mut more) = receive.datagram(waiting.start).ok_or(Errno::PROTO)?;
    let (header, mut payload): (_, Span) =
        DatagramHeader::split(region, first).ok_or(Errno::PROTO)?;
    let mut place = Place::default();
    let mut copied = place.scatter(region, payload, parts);
    let mut next = waiting.start + 1;
    while more && next < waiting.end {
        (payload, more) = receive.datagram(next).ok_or(Errno::PROTO)?;
        copied += place.scatter(region, payload, parts);
        next += 1;
    }
    let received = ReceivedDatagram {
        len: copied as usize,
        full_len: header.payload_bytes as usize,
        remote: header.remote,
        local: header.local,
        tos: header.tos,
        ttl: header.ttl,
        interface: header.interface,
        segment_bytes: header.gso_bytes,
        at_ns: header.stamp(region, first),
    };
    Ok(((!place.is_bad()).then_some(received), next))
}
