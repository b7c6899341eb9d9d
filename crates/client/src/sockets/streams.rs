//! Data beside a stream's bytes: control messages with received bytes, and reports about sent bytes
//! (the error queue).
//!
//! MSG_ZEROCOPY is accepted and the bytes are copied, as the kernel does on links that cannot
//! gather: the report is there when the call returns, and says that they were copied. As in the
//! kernel, a segment holds a limited number of pieces of such a call.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::ancillary::Control;
use super::numbers::statistics;
use super::own_options::{SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW};
use super::socket::{Connection, Socket, held};
use super::times::{Last, put_told};
use super::{Errno, Kernel, Received};
use crate::errors::scatter;
use crate::{Endpoint, Kind, OptionName};

bitflags::bitflags! {
    /// Requested options.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Asked: u32 {
        /// TCP_INQ.
        const QUEUE_HINT = 1;
        /// SO_ZEROCOPY.
        const ZEROCOPY = 2;
        /// SO_TIMESTAMP, or SO_TIMESTAMPNS with the next.
        const TIME = 4;
        const NANOSECONDS = 8;
        /// The last of these or of SO_TIMESTAMPING was set by its name of 2019: messages have the
        /// type of that name.
        const NEW_NAMES = 16;
        /// SO_TIMESTAMPING with SOF_TIMESTAMPING_SOFTWARE and RX_SOFTWARE.
        const TIMES = 32;
        /// The arrival time of the last data read is remembered (SIOCGSTAMP).
        const LAST = 64;
    }
}

/// Flags of SO_TIMESTAMPING (linux/net_tstamp.h).
pub(super) mod timestamping {
    pub const TX_SOFTWARE: u32 = 1 << 1;
    pub const RX_SOFTWARE: u32 = 1 << 3;
    pub const SOFTWARE: u32 = 1 << 4;
    pub const OPT_ID: u32 = 1 << 7;
    pub const TX_SCHED: u32 = 1 << 8;
    pub const TX_ACK: u32 = 1 << 9;
    pub const OPT_CMSG: u32 = 1 << 10;
    pub const OPT_TSONLY: u32 = 1 << 11;
    pub const OPT_STATS: u32 = 1 << 12;
    pub const OPT_ID_TCP: u32 = 1 << 16;
    /// Those known to Linux 6.18.
    pub const KNOWN: u32 = (1 << 19) - 1;
    /// Those that a call may set for its bytes.
    pub const RECORDS: u32 = 1 | TX_SOFTWARE | TX_SCHED | TX_ACK | 1 << 18;
}

/// A report in the error queue made by the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    /// The bytes of the calls with these numbers, the last one included, can be reused by the
    /// program.
    Zerocopy { first: u32, last: u32 },
}

#[derive(Debug, Default)]
struct Reports {
    waiting: VecDeque<Report>,
    /// Number of the next call with MSG_ZEROCOPY.
    next_call: u32,
}

impl Reports {
    /// The kernel's skb_zerocopy_notify_extend: consecutive reports are merged.
    fn add_zerocopy(&mut self) {
        let call = self.next_call;
        self.next_call = call.wrapping_add(1);
        match self.waiting.back_mut() {
            Some(Report::Zerocopy { last, .. }) if last.wrapping_add(1) == call => *last = call,
            _ => self.waiting.push_back(Report::Zerocopy { first: call, last: call }),
        }
    }
}

/// The options of one socket.
#[derive(Debug, Default)]
pub(super) struct StreamMarks {
    asked: AtomicU32,
    /// SO_TIMESTAMPING.
    timestamping: AtomicU32,
    /// Start of the count by which reports name bytes; of a UDP socket the number of the next
    /// datagram with a report.
    pub count_from: AtomicU64,
    /// SIOCGSTAMP: see [`Last`](super::times::Last).
    pub last: Last,
    reports: Mutex<Reports>,
    has_reports: AtomicBool,
}

impl StreamMarks {
    /// The options that are on.
    #[inline]
    pub fn asked(&self) -> Asked {
        Asked::from_bits_truncate(self.asked.load(Ordering::Relaxed))
    }

    pub fn ask(&self, what: Asked, on: bool) {
        match on {
            true => self.asked.fetch_or(what.bits(), Ordering::Relaxed),
            false => self.asked.fetch_and(!what.bits(), Ordering::Relaxed),
        };
    }

    /// Sets SO_TIMESTAMP or SO_TIMESTAMPNS, which replace each other.
    pub fn ask_time(&self, how: Asked, on: bool) {
        self.ask(Asked::TIME | Asked::NANOSECONDS, false);
        if on {
            // As in the kernel, which remembers it from then on.
            self.ask(Asked::NEW_NAMES, false);
            self.ask(Asked::TIME | Asked::LAST | how, true);
        }
    }

    /// Whether this one of SO_TIMESTAMP and SO_TIMESTAMPNS is on.
    pub fn tells_time(&self, name: i32) -> bool {
        let mut set = self.asked() & (Asked::TIME | Asked::NANOSECONDS | Asked::NEW_NAMES);
        if name == SO_TIMESTAMP_NEW {
            // As the kernel answers.
            set -= Asked::NANOSECONDS;
        }
        set == Asked::TIME
            | match name {
                libc::SO_TIMESTAMPNS => Asked::NANOSECONDS,
                SO_TIMESTAMP_NEW => Asked::NEW_NAMES,
                SO_TIMESTAMPNS_NEW => Asked::NANOSECONDS | Asked::NEW_NAMES,
                _ => Asked::empty(),
            }
    }

    /// The flags of SO_TIMESTAMPING.
    pub fn timestamping(&self) -> u32 {
        self.timestamping.load(Ordering::Relaxed)
    }

    /// Sets them; the count restarts when it is first needed.
    pub fn set_timestamping(&self, flags: u32, endpoint: Option<&Endpoint>, new_name: bool) {
        use timestamping::{OPT_ID, OPT_ID_TCP, RX_SOFTWARE, SOFTWARE};
        let before = self.timestamping.swap(flags, Ordering::Relaxed);
        if flags & OPT_ID != 0 && before & OPT_ID == 0 {
            let stream = endpoint.filter(|endpoint| endpoint.kind() == Kind::Stream);
            let from = stream.map_or(0, |endpoint| {
                let (acked, written) = endpoint.send_ends();
                if flags & OPT_ID_TCP != 0 { written } else { acked }
            });
            self.count_from.store(from, Ordering::Relaxed);
        }
        self.ask(Asked::TIMES, flags & SOFTWARE != 0 && flags & RX_SOFTWARE != 0);
        self.ask(Asked::NEW_NAMES, new_name);
    }

    /// Whether the engine must record arrival times.
    pub fn wants_arrivals(&self, of: Kind) -> bool {
        // For streams the last arrival time is not needed.
        let last = if of == Kind::Datagram { Asked::LAST } else { Asked::empty() };
        self.asked().intersects(Asked::TIME | Asked::TIMES | last)
    }

    /// Passes a new endpoint of a UDP socket whether the engine must record arrival times.
    pub fn apply(&self, face: &Endpoint) -> Result<(), Errno> {
        match self.wants_arrivals(Kind::Datagram) {
            true => face.set_option(OptionName::ReceiveStamps, 1),
            false => Ok(()),
        }
    }

    /// The reports requested for the last byte of a call, whose control messages set `anew`: the
    /// bits of a [`Stamp`](crate::Stamp).
    #[inline]
    pub fn stamps(&self, anew: Option<u32>) -> u8 {
        use timestamping::{RECORDS, TX_ACK, TX_SCHED, TX_SOFTWARE};
        let flags = self.timestamping();
        let flags = match anew {
            Some(anew) => flags & !RECORDS | anew & RECORDS,
            None => flags,
        };
        u8::from(flags & TX_SCHED != 0)
            | u8::from(flags & TX_SOFTWARE != 0) << 1
            | u8::from(flags & TX_ACK != 0) << 2
    }

    /// Whether there is a report of the layer, which poll shows as an error.
    pub fn has_reports(&self) -> bool {
        self.has_reports.load(Ordering::Acquire)
    }

    /// Maximum pieces of a call's bytes in a segment; 0 for any number.
    pub fn pieces_of_segment(&self, flags: i32) -> usize {
        /// MAX_SKB_FRAGS.
        const PIECES_MAX: usize = 17;
        let gathers = flags & libc::MSG_ZEROCOPY != 0 && self.asked().contains(Asked::ZEROCOPY);
        if gathers { PIECES_MAX } else { 0 }
    }

    /// A call with MSG_ZEROCOPY has taken bytes. Returns whether to notify watchers.
    pub fn add_zerocopy(&self) -> bool {
        if !self.asked().contains(Asked::ZEROCOPY) {
            return false;
        }
        held(self.reports.lock()).add_zerocopy();
        self.has_reports.store(true, Ordering::Release);
        true
    }

    fn take_report(&self) -> Option<Report> {
        if !self.has_reports() {
            return None;
        }
        let mut reports = held(self.reports.lock());
        let report = reports.waiting.pop_front();
        self.has_reports.store(!reports.waiting.is_empty(), Ordering::Release);
        report
    }
}

/// recvmsg(2) with MSG_ERRQUEUE on a connection; never waits. The engine's reports come without the
/// packet, even without OPT_TSONLY.
pub(super) fn receive_report(
    socket: &Socket,
    connection: &Connection,
    kernel: &dyn Kernel,
    bufs: &mut [IoSliceMut<'_>],
    control: &mut [u8],
) -> Result<Received, Errno> {
    let marks = &socket.streams;
    let mut out = Control::new(control);
    let (mut len, mut cut) = (0, 0);
    if let Some(Report::Zerocopy { first, last }) = marks.take_report() {
        out.put_zerocopy(socket.v6, first, last);
    } else {
        let stamp = connection.endpoint.take_stamp()?;
        let flags = marks.timestamping();
        put_told(socket, Some(stamp.at_ns), kernel, &mut out);
        if flags & timestamping::OPT_STATS != 0 {
            let statistics = statistics(&connection.endpoint, &stamp)?;
            if flags & timestamping::SOFTWARE != 0 {
                out.put_statistics(&statistics);
            }
            // As in the kernel, whose report consists of them.
            len = scatter(&statistics, bufs);
            cut = if len < statistics.len() { libc::MSG_TRUNC } else { 0 };
        }
        let from = marks.count_from.load(Ordering::Relaxed);
        let count = match flags & timestamping::OPT_ID {
            0 => 0,
            _ => stamp.end.wrapping_sub(1).wrapping_sub(from) as u32,
        };
        out.put_stamp(socket.v6, stamp.kind, count, None);
        if flags & timestamping::OPT_TSONLY == 0 {
            cut = libc::MSG_TRUNC;
        }
    }
    let flags = libc::MSG_ERRQUEUE | out.flags | cut;
    Ok(Received { len, from: None, flags, control_len: out.len })
}

/// Nanoseconds since 1970 of a time on the monotonic clock.
pub(super) fn by_calendar(kernel: &dyn Kernel, at_ns: u64) -> u64 {
    let ago = kernel.now_ns().saturating_sub(at_ns);
    kernel.calendar_ns().saturating_sub(ago)
}

/// Control messages for `len` bytes that were read or peeked.
#[inline]
pub(super) fn said_with(
    socket: &Socket,
    connection: &Connection,
    kernel: &dyn Kernel,
    (len, flags): (usize, i32),
    control: &mut [u8],
) -> Received {
    let asked = socket.streams.asked();
    if !asked.intersects(Asked::QUEUE_HINT | Asked::TIME | Asked::TIMES) {
        return Received { len, ..Received::default() };
    }
    let mut out = Control::new(control);
    if len > 0 && asked.intersects(Asked::TIME | Asked::TIMES) {
        let ahead = if flags & libc::MSG_PEEK != 0 { len as u64 } else { 0 };
        if let Some(at_ns) = connection.endpoint.arrival(ahead) {
            out.put_arrival_time(asked, by_calendar(kernel, at_ns));
        }
    }
    if asked.contains(Asked::QUEUE_HINT) {
        let waiting = i32::try_from(connection.endpoint.queue_hint()).unwrap_or(i32::MAX);
        out.put_queue_hint(waiting);
    }
    Received { len, from: None, flags: out.flags, control_len: out.len }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_calls_in_a_row_are_one_until_it_is_taken() {
        let marks = StreamMarks::default();
        assert!(!marks.add_zerocopy(), "nobody has asked");
        marks.ask(Asked::ZEROCOPY, true);
        for _ in 0..3 {
            assert!(marks.add_zerocopy());
        }
        assert!(marks.has_reports());
        assert_eq!(marks.take_report(), Some(Report::Zerocopy { first: 0, last: 2 }));
        assert!(!marks.has_reports());
        marks.add_zerocopy();
        assert_eq!(marks.take_report(), Some(Report::Zerocopy { first: 3, last: 3 }));
        assert_eq!(marks.take_report(), None);
    }

    #[test]
    fn a_call_says_anew_what_is_recorded_of_its_bytes_alone() {
        use timestamping::{OPT_ID, SOFTWARE, TX_ACK, TX_SCHED, TX_SOFTWARE};
        let marks = StreamMarks::default();
        marks.set_timestamping(SOFTWARE | OPT_ID | TX_SCHED, None, false);
        assert_eq!(marks.stamps(None), 1);
        assert_eq!(marks.stamps(Some(TX_SOFTWARE | TX_ACK)), 6);
        assert_eq!(marks.stamps(Some(0)), 0);
        assert_eq!(marks.timestamping(), SOFTWARE | OPT_ID | TX_SCHED);
    }
}
