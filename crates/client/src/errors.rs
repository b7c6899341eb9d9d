//! Error reports of a datagram endpoint (IP_RECVERR): they arrive in its receive queue among the
//! datagrams, and are kept here until the program reads them.

use std::collections::VecDeque;
use std::io::{IoSliceMut, Write};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use shm::client_side::{Direction, ReceiveGuard};
use shm::descriptor::{DatagramFlags, DatagramHeader, ERROR_REPORT_BYTES, ErrorReport, Span};

use crate::driver::locked;
use crate::endpoint::{Call, Endpoint, Kind};
use crate::memory::{self, Access};

/// Maximum number of unread reports; the kernel's limit is SO_RCVBUF.
const REPORTS_MAX: usize = 128;

/// A report, with the quoted part of the datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReceived {
    /// The error.
    pub report: ErrorReport,
    /// Destination of the datagram.
    pub remote: SocketAddr,
    /// Local address from which it was sent.
    pub local: SocketAddr,
    /// Type of service and TTL of the message.
    pub tos: u8,
    /// See `tos`.
    pub ttl: u8,
    /// The engine's interface through which the error came, plus one; 0 if unknown.
    pub interface: u32,
    /// The quoted part of the datagram's payload; for a transmit report the whole packet from its
    /// link header on, if requested.
    pub payload: Vec<u8>,
    /// Time of arrival or sending in nanoseconds of the monotonic clock, if known.
    pub at_ns: Option<u64>,
}

/// The reports found among the datagrams.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    /// The receive queue was searched up to here.
    looked: u64,
    /// Positions of reports taken out of turn, and of what follows each.
    holes: VecDeque<(u64, u64)>,
    waiting: VecDeque<ErrorReceived>,
    /// The error of the next call.
    pending: Option<Errno>,
    /// Reports for which there was no room.
    left_out: u64,
}

impl Errors {
    fn add(&mut self, received: ErrorReceived) {
        if received.report.kind != 0 {
            self.pending = Some(Errno::from_raw_os_error(received.report.errno as i32));
        }
        if self.waiting.len() < REPORTS_MAX {
            self.waiting.push_back(received);
        } else {
            self.left_out += 1;
        }
    }
}

impl Endpoint {
    /// Enables the separation of reports from datagrams. To be called before the engine is asked
    /// for reports.
    pub fn expect_errors(&self) {
        self.inner.sorts.store(true, Ordering::Relaxed);
    }

    /// Reports dropped because [`REPORTS_MAX`] were unread.
    pub fn errors_left_out(&self) -> u64 {
        locked(&self.inner.errors).left_out
    }

    /// Takes the reports out from among the received datagrams, and returns the position reached:
    /// entries that the engine adds meanwhile are after it, and may be reports.
    pub(crate) fn sort(&self, call: &Call<'_>, receive: &mut ReceiveGuard<'_>) -> u64 {
        // Read before checking whether reports are enabled, because they are enabled before the
        // engine is asked.
        let readable = receive.readable();
        if !self.inner.sorts.load(Ordering::Relaxed) {
            return readable;
        }
        let mut errors = locked(&self.inner.errors);
        let consumed = receive.consumed();
        let mut at = errors.looked.max(consumed);
        while at < readable {
            let start = at;
            // The receiving call detects the violation again.
            let Some(found) = take_report(call, receive, &mut at, readable) else { break };
            if let Some(report) = found {
                errors.add(report);
                errors.holes.push_back((start, at));
            }
        }
        errors.looked = readable;
        let mut next = consumed;
        while let Some((_, end)) = errors.holes.pop_front_if(|(start, _)| *start == next) {
            next = end;
        }
        if next != consumed && receive.advance(next) {
            call.ring(Direction::Receive);
        }
        readable
    }

    /// Records the reports that have arrived. Returns the position up to which there are only
    /// datagrams: `readable`, read earlier, if reports are not enabled.
    pub(crate) fn note_errors(&self, call: &Call<'_>, readable: u64) -> u64 {
        if self.inner.sorts.load(Ordering::Relaxed)
            && let Ok(mut receive) = call.view().lock_receive(call.driver().tag())
        {
            return self.sort(call, &mut receive);
        }
        readable
    }

    /// Whether there is a report, or an error caused by one.
    pub(crate) fn has_errors(&self) -> bool {
        if !self.inner.sorts.load(Ordering::Relaxed) {
            return false;
        }
        let errors = locked(&self.inner.errors);
        !errors.waiting.is_empty() || errors.pending.is_some()
    }

    /// The error with which a call on a datagram endpoint fails, once.
    pub(crate) fn datagram_error(&self, call: &Call<'_>) -> Option<Errno> {
        let pending = match self.inner.sorts.load(Ordering::Relaxed) {
            true => locked(&self.inner.errors).pending.take(),
            false => None,
        };
        pending.or_else(|| call.error(&call.view().levels()))
    }

    /// Adds a report of an error found on this side.
    pub fn add_error(&self, received: ErrorReceived) {
        locked(&self.inner.errors).add(received);
    }

    /// Takes the oldest report; what came back of the datagram goes to `parts` as far as there is
    /// room, and how much did is said. EAGAIN when there is none.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)); EAGAIN when there is none.
    pub fn recv_error(
        &self,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<(ErrorReceived, usize), Errno> {
        let call = self.call_as(Kind::Datagram)?;
        self.note_errors(&call, 0);
        let mut errors = locked(&self.inner.errors);
        let received = errors.waiting.pop_front().ok_or_else(|| call.again())?;
        // As in the kernel: reading a report clears its error, and the next one is set.
        let next = errors.waiting.front().filter(|next| next.report.kind != 0);
        let next = next.map(|next| Errno::from_raw_os_error(next.report.errno as i32));
        if next.is_some() || received.report.kind != 0 {
            errors.pending = next;
        }
        drop(errors);
        let copied = scatter(&received.payload, parts);
        Ok((received, copied))
    }
}

/// Copies as much as fits into writable memory, and returns its length.
pub(crate) fn scatter(bytes: &[u8], parts: &mut [IoSliceMut<'_>]) -> usize {
    let mut rest = bytes;
    for part in parts {
        let len = part.len().min(rest.len());
        let can = memory::usable(part.as_ptr().addr(), len, Access::Write);
        let mut room = part.get_mut(..can).unwrap_or_default();
        let written = room.write(rest).unwrap_or(0);
        rest = rest.get(written..).unwrap_or_default();
    }
    bytes.len() - rest.len()
}

/// Reads the datagram at `at`, and advances past it. `None` if the engine violated the contract or
/// the datagram is incomplete, `Some(None)` if it is not a report.
fn take_report(
    call: &Call<'_>,
    receive: &ReceiveGuard<'_>,
    at: &mut u64,
    readable: u64,
) -> Option<Option<ErrorReceived>> {
    let region = call.view().region();
    let (first, mut more) = receive.datagram(*at)?;
    *at += 1;
    let (header, payload) = DatagramHeader::split(region, first)?;
    let is_report = header.flags.contains(DatagramFlags::ERROR);
    let mut bytes = Vec::new();
    let mut keep = |span: Span| {
        if is_report {
            let start = bytes.len();
            bytes.resize(start + span.len as usize, 0);
            let filled = region.read_buffer(span, bytes.get_mut(start..).unwrap_or_default());
            bytes.truncate(start + filled);
        }
    };
    keep(payload);
    while more && *at < readable {
        let (span, goes_on) = receive.datagram(*at)?;
        keep(span);
        more = goes_on;
        *at += 1;
    }
    if !is_report {
        return Some(None);
    }
    let (report, payload) = bytes.split_first_chunk::<ERROR_REPORT_BYTES>()?;
    Some(Some(ErrorReceived {
        report: ErrorReport::decode(report),
        remote: header.remote,
        local: header.local,
        tos: header.tos,
        ttl: header.ttl,
        interface: header.interface,
        payload: payload.to_vec(),
        at_ns: header.stamp(region, first),
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shm::control::Geometry;
    use shm::engine_side::EngineEndpoint;
    use shm::region::Region;

    use super::*;
    use crate::endpoint::Readiness;
    use crate::session::Session;

    /// What came after a receive had looked for reports was received, reports among it: a program read
    /// the inside of one as a datagram's bytes.
    #[test]
    fn reports_that_come_while_datagrams_are_received_are_never_taken_for_one() {
        const SLOTS: u32 = 64;
        const REPORTS: u64 = 100_000;
        let geometry = Geometry {
            region_bytes: 0,
            context_count: 1,
            worker_count: 1,
            request_slots: 16,
            stock_slots: 16,
            endpoint_capacity: 4,
            send_slots: 4,
            receive_slots: SLOTS,
            buffer_bytes: 2048,
            buffer_count: SLOTS,
        };
        let region = Arc::new(Region::private(geometry).unwrap());
        let (session, _engine) =
            Session::in_process(region.clone(), 0, Vec::new(), Arc::new(|| ())).unwrap();
        let local = SocketAddr::from(([192, 0, 2, 2], 80));
        let endpoint = session.adopt(Kind::Datagram, 0, local).unwrap();
        endpoint.expect_errors();
        let mut view = EngineEndpoint::new(region.clone(), 0);
        let header = DatagramHeader {
            remote: local,
            local,
            tos: 0,
            ttl: 64,
            interface: 1,
            gso_bytes: 0,
            flags: DatagramFlags::ERROR,
            payload_bytes: ERROR_REPORT_BYTES as u32,
        };
        let bytes = [&header.encode()[..], &ErrorReport::of_sent(42, 1, 0).encode()].concat();
        let engine = std::thread::spawn(move || {
            let mut consumed = 0;
            while view.received() < REPORTS {
                if view.received() - consumed == u64::from(SLOTS) {
                    consumed = view.consumed(consumed, view.received()).unwrap();
                    std::thread::yield_now();
                    continue;
                }
                let buffer = region.buffer((view.received() % u64::from(SLOTS)) as u32).unwrap();
                let span = buffer.part(0, bytes.len() as u32);
                region.write_buffer(span, &bytes);
                view.push_datagram(span, false);
                view.set_readable(view.received());
            }
        });
        let mut reports = 0;
        while reports + endpoint.errors_left_out() < REPORTS {
            assert_eq!(endpoint.recv_from(&mut []), Err(Errno::AGAIN));
            assert_eq!(endpoint.readable_bytes(), 0);
            assert!(!endpoint.readiness().contains(Readiness::IN));
            while endpoint.recv_error(&mut []).is_ok() {
                reports += 1;
            }
        }
        engine.join().unwrap();
    }

    #[test]
    fn reports_that_nobody_reads_are_kept_up_to_a_limit_and_counted_beyond() {
        let remote = SocketAddr::from(([10, 0, 0, 2], 9));
        let report = ErrorReport { errno: 111, kind: 3, code: 3, info: 0, offender: None };
        let received = ErrorReceived {
            report,
            remote,
            local: remote,
            tos: 0,
            ttl: 64,
            interface: 1,
            payload: Vec::new(),
            at_ns: None,
        };
        let mut errors = Errors::default();
        for _ in 0..REPORTS_MAX + 3 {
            errors.add(received.clone());
        }
        assert_eq!((errors.waiting.len(), errors.left_out), (REPORTS_MAX, 3));
        // The newest one is what the next call fails with, whether or not it is kept.
        assert_eq!(errors.pending, Some(Errno::CONNREFUSED));
    }
}
