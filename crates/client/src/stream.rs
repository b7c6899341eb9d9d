//! Reading and writing streams.

mod registered;

use std::io::{IoSlice, IoSliceMut};

use rustix::io::Errno;
use shm::Status;
use shm::client_side::{Direction, Levels, ReceiveGuard, SendGuard};
use shm::descriptor::{DescriptorFlags, DescriptorKind, Span};
use shm::region::Region;
use shm::request::{OptionName, Reply, Request, SEND_EDGE_PARTED, Stamp};

use crate::driver::reentered;
use crate::endpoint::{Call, Endpoint, FRAME_COST, Kind};
use crate::memory::{self, Access};
use crate::share::SEND_LIMIT;

/// Parameters of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// More follows at once, so a partial segment may wait (MSG_MORE).
    pub more: bool,
    /// After all of it is taken, what follows shares no segment with it (MSG_EOR).
    pub ends_record: bool,
    /// Reports requested for the last byte: the bits of a [`Stamp`].
    pub stamps: u8,
    /// For the last byte that is taken, even if not all are.
    pub stamps_part: bool,
    /// Maximum number of the slices in a segment; 0 for any number.
    pub slices: usize,
}

/// End of the slices that may share a segment with the byte at `offset`, at most `many`.
fn end_of_slices(parts: &[IoSlice<'_>], offset: usize, many: usize) -> usize {
    let mut end = 0;
    for group in parts.chunks(many) {
        end += group.iter().map(|part| part.len()).sum::<usize>();
        if end > offset {
            break;
        }
    }
    end
}

/// A position in a list of slices.
#[derive(Default)]
pub(crate) struct Place {
    slice: usize,
    at: usize,
    /// It has reached memory that cannot be used.
    is_bad: bool,
}

impl Place {
    /// Copies from `span` into `parts` as much as fits both; returns the length.
    pub fn scatter(&mut self, region: &Region, span: Span, parts: &mut [IoSliceMut<'_>]) -> u32 {
        let mut done = 0;
        while done < span.len {
            let Some(part) = parts.get_mut(self.slice) else { break };
            let free = &mut part[self.at..];
            if free.is_empty() {
                *self = Self { slice: self.slice + 1, at: 0, is_bad: false };
                continue;
            }
            let most = free.len().min((span.len - done) as usize);
            let can = memory::usable(free.as_ptr().addr(), most, Access::Write);
            self.is_bad = can < most;
            let copied = region.read_buffer(span.part(done, u32::MAX), &mut free[..can]);
            if copied == 0 {
                break;
            }
            self.at += copied;
            done += copied as u32;
        }
        done
    }

    /// Whether [`Self::scatter`] stopped at memory that cannot be written.
    pub fn is_bad(&self) -> bool {
        self.is_bad
    }

    /// How many of the next `most` bytes of `parts` can be read.
    pub fn readable(&self, parts: &[IoSlice<'_>], most: usize) -> usize {
        let (mut count, mut at) = (0, self.at);
        for part in parts.get(self.slice..).unwrap_or_default() {
            let rest = part.get(at..).unwrap_or_default();
            let len = rest.len().min(most - count);
            let can = memory::usable(rest.as_ptr().addr(), len, Access::Read);
            count += can;
            if can < len || count == most {
                break;
            }
            at = 0;
        }
        count
    }

    /// Fills `span` from `parts` as far as they reach; returns the length.
    pub fn gather(&mut self, region: &Region, span: Span, parts: &[IoSlice<'_>]) -> u32 {
        let mut done = 0;
        while done < span.len {
            let Some(part) = parts.get(self.slice) else { break };
            let rest = &part[self.at..];
            if rest.is_empty() {
                *self = Self { slice: self.slice + 1, at: 0, is_bad: false };
                continue;
            }
            let copied = region.write_buffer(span.part(done, u32::MAX), rest);
            if copied == 0 {
                break;
            }
            self.at += copied;
            done += copied as u32;
        }
        done
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
//# A TCP implementation MUST support a sequence of urgent data of any length (MUST-31) [19].
/// Where a read begins and stops if the urgent byte is ahead: before it. Unless it is in-band, a
/// read that begins at it skips it.
fn around_mark(call: &Call<'_>, receive: &mut ReceiveGuard<'_>, levels: &Levels) -> (u64, u64) {
    let mut start = receive.consumed();
    let inline = call.has_urgent_inline();
    let seen = receive.urgent_seen();
    if seen == start + 1 && levels.urgent > seen && !inline {
        // A reader had stopped here before another urgent byte arrived: this one was out of band.
        start += 1;
    }
    receive.see_urgent(levels.urgent);
    let Some(mark) = levels.urgent.checked_sub(1).filter(|mark| *mark >= start) else {
        return (start, levels.readable);
    };
    if start < mark {
        return (start, mark.min(levels.readable));
    }
    (start + u64::from(!inline), levels.readable)
}

/// The frames that collect a write, counted from `from`. If that is ahead of the written data, the
/// part of the last frame counts as sent.
struct Frames {
    from: u64,
}

impl Frames {
    /// Bytes for which there is room. As in the kernel, if a program has set a limit: frames are
    /// started while they are below the limit, and filled up.
    fn room(&self, call: &Call<'_>, written: u64, acked: u64) -> u64 {
        let queued = written.saturating_sub(acked);
        if !call.is_send_limited() {
            // A call that begins within the limit continues beyond it, but not if many share the
            // buffers.
            return match call.send_limit() {
                limit if queued >= limit => 0,
                limit if limit < SEND_LIMIT => limit - queued,
                _ => u64::MAX,
            };
        }
        let frame = call.frame_bytes();
        let begun = match written.checked_sub(self.from) {
            Some(begun) => begun % frame,
            None => return self.from.saturating_add(frame).saturating_sub(written),
        };
        if begun > 0 {
            frame - begun
        } else if queued + queued.div_ceil(frame) * FRAME_COST < call.send_limit() {
            frame
        } else {
            0
        }
    }
}

impl Frames {
    /// Whether a frame is full.
    fn end_at(&self, call: &Call<'_>, written: u64) -> bool {
        call.is_send_limited()
            && written.checked_sub(self.from).is_some_and(|begun| begun % call.frame_bytes() == 0)
    }
}

impl Endpoint {
    /// Reads what has come, in order, into `parts`; 0 at the end of the stream. EAGAIN when there
    /// is nothing yet.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)); EAGAIN when there is nothing yet; the
    /// error that has ended the connection, once; EFAULT when `parts` cannot be written; ESTALE
    /// when it has become a kernel socket.
    pub fn read_vectored(&self, parts: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        self.receive(parts, true)
    }

    /// [`Self::read_vectored`] into one slice.
    ///
    /// # Errors
    /// As [`Self::read_vectored`].
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.receive(&mut [IoSliceMut::new(bytes)], true)
    }

    /// Reads without taking: the same bytes come again.
    ///
    /// # Errors
    /// As [`Self::read_vectored`].
    pub fn peek_vectored(&self, parts: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        self.receive(parts, false)
    }

    fn receive(&self, parts: &mut [IoSliceMut<'_>], take: bool) -> Result<usize, Errno> {
        let call = self.call_as(Kind::Stream)?;
        if parts.iter().all(|part| part.is_empty()) {
            return Ok(0);
        }
        let view = call.view();
        let mut receive = view.lock_receive(call.driver().tag()).map_err(reentered)?;
        // The status before the readable offset, so that an end is not seen before the last bytes.
        let levels = view.levels();
        if levels.status.contains(Status::MOVED) {
            return Err(Errno::STALE);
        }
        let first = receive.consumed();
        // After a shutdown of reading, received data is still readable (as in the kernel).
        if levels.readable <= first {
            return self.nothing_to_read(&call, &levels);
        }
        let (start, end) = match levels.urgent > first || receive.urgent_seen() > first {
            true => around_mark(&call, &mut receive, &levels),
            false => (first, levels.readable),
        };
        if start >= end {
            // There was only the urgent byte; it is skipped.
            if take && receive.advance(start) {
                call.ring(Direction::Receive);
            }
            return self.nothing_to_read(&call, &levels);
        }
        let mut place = Place::default();
        let mut offset = start;
        while offset < end {
            let Some(span) = receive.page(offset, end) else {
                // The engine violated the contract; there is no valid data to return.
                return Err(Errno::PROTO);
            };
            let copied = place.scatter(view.region(), span, parts);
            if place.is_bad() {
                // As the kernel, which takes nothing from a segment that it cannot copy.
                break;
            }
            offset += u64::from(copied);
            if copied < span.len {
                break;
            }
        }
        if offset == start && place.is_bad() {
            return Err(Errno::FAULT);
        }
        if take && receive.advance(offset) {
            call.ring(Direction::Receive);
        }
        Ok((offset - start) as usize)
    }

    /// Reads the urgent byte out of band (MSG_OOB); 0 at the end of the stream. EINVAL when there
    /// is none, or none any more, or it stays within the stream.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)); EINVAL when there is none, or none any
    /// more, or it stays within the stream; EAGAIN when it has not come yet; ESTALE when the
    /// connection has become a kernel socket.
    pub fn read_urgent(&self, take: bool) -> Result<Option<u8>, Errno> {
        let call = self.call_as(Kind::Stream)?;
        let view = call.view();
        let mut receive = view.lock_receive(call.driver().tag()).map_err(reentered)?;
        let levels = view.levels();
        if levels.status.contains(Status::MOVED) {
            return Err(Errno::STALE);
        }
        let is_ahead = levels.urgent > receive.consumed();
        if call.has_urgent_inline() || !is_ahead || view.urgent_taken() == levels.urgent {
            return Err(Errno::INVAL);
        }
        let Some(byte) = view.urgent_byte(levels.urgent) else {
            let ends = Status::PEER_CLOSED | Status::HANGUP | Status::ERROR;
            return if levels.status.intersects(ends) { Ok(None) } else { Err(Errno::AGAIN) };
        };
        if take {
            receive.take_urgent(levels.urgent);
        }
        Ok(Some(byte))
    }

    fn nothing_to_read(&self, call: &Call<'_>, levels: &Levels) -> Result<usize, Errno> {
        if let Some(errno) = call.error(levels) {
            return Err(errno);
        }
        let ends = Status::PEER_CLOSED | Status::HANGUP | Status::ERROR;
        if levels.status.intersects(ends) || call.is_shut_for_reading() {
            Ok(0)
        } else {
            Err(call.again())
        }
    }

    /// Writes as much of `parts` as there is room for. EAGAIN when there is none or the connection
    /// does not stand yet; EPIPE after the end.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)); EAGAIN when there is no room or the
    /// connection does not stand yet; EPIPE after the end; the error that has ended the connection,
    /// once; EFAULT when `parts` cannot be read; ESTALE when it has become a kernel socket.
    pub fn write_vectored(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        self.send(parts, DescriptorFlags::empty())
    }

    /// The same, and the last byte is urgent (MSG_OOB).
    ///
    /// # Errors
    /// As [`Self::write_vectored`].
    pub fn write_urgent(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        self.send(parts, DescriptorFlags::URGENT)
    }

    /// The same, with a wish: more is to follow at once, so that a partial segment may wait
    /// (MSG_MORE); and, when all of it is taken, that what follows shares no segment with it
    /// (MSG_EOR).
    ///
    /// # Errors
    /// As [`Self::write_vectored`].
    pub fn write_as(
        &self,
        parts: &[IoSlice<'_>],
        more: bool,
        ends_record: bool,
    ) -> Result<usize, Errno> {
        self.write_stamped(parts, Wish { more, ends_record, ..Wish::default() })
    }

    /// The same with everything that can be wished for.
    ///
    /// # Errors
    /// As [`Self::write_vectored`].
    pub fn write_stamped(&self, parts: &[IoSlice<'_>], wish: Wish) -> Result<usize, Errno> {
        let mut kind = DescriptorFlags::empty();
        kind.set(DescriptorFlags::MORE, wish.more);
        kind.set(DescriptorFlags::RECORD_END, wish.ends_record);
        self.send_wished(parts, kind, wish)
    }

    /// Takes the oldest of the times that were asked for; EAGAIN when there is none.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)); EAGAIN when there is none.
    pub fn take_stamp(&self) -> Result<Stamp, Errno> {
        let call = self.call_as(Kind::Stream)?;
        if !call.view().levels().status.contains(Status::STAMPS_WAIT) {
            return Err(call.again());
        }
        match call.ask(&Request::TakeStamp { endpoint: call.view().index() })? {
            Reply::Stamp(stamp) => Ok(stamp),
            _ => Err(Errno::PROTO),
        }
    }

    /// Arrival time of the byte before the position `ahead` bytes after the consumed data: 0 means
    /// the byte read last. Nanoseconds of the monotonic clock; `None` if it is unknown
    /// ([`OptionName::ReceiveStamps`]).
    pub fn arrival(&self, ahead: u64) -> Option<u64> {
        let call = self.call_as(Kind::Stream).ok()?;
        let end = call.view().consumed() + ahead;
        let request = Request::Arrival { endpoint: call.view().index(), end };
        match call.ask(&request) {
            Ok(Reply::Value(at_ns)) => Some(at_ns).filter(|at_ns| *at_ns != 0),
            _ => None,
        }
    }

    /// The acknowledged offset of the stream, and the written one.
    pub fn send_ends(&self) -> (u64, u64) {
        let Ok(call) = self.call_as(Kind::Stream) else { return (0, 0) };
        (call.view().levels().acked, call.view().written())
    }

    fn send(&self, parts: &[IoSlice<'_>], kind: DescriptorFlags) -> Result<usize, Errno> {
        self.send_wished(parts, kind, Wish::default())
    }

    /// Writes; requests reports for the last byte if all is taken, or a part suffices.
    fn send_wished(
        &self,
        parts: &[IoSlice<'_>],
        kind: DescriptorFlags,
        wish: Wish,
    ) -> Result<usize, Errno> {
        let asked = u32::from(wish.stamps) << DescriptorFlags::STAMP_SHIFT;
        let stamps = DescriptorFlags::from_bits_truncate(asked as u8) & DescriptorFlags::STAMPS;
        let call = self.call_as(Kind::Stream)?;
        let view = call.view();
        let mut levels = view.levels();
        if let Some(errno) = call.error(&levels) {
            return Err(errno);
        }
        if call.is_shut_for_writing() || levels.status.intersects(Status::HANGUP | Status::ERROR) {
            return Err(Errno::PIPE);
        }
        let opens = levels.status.contains(Status::AWAITS_DATA) && view.written() == 0;
        if !levels.status.contains(Status::CONNECTED) && !opens {
            return Err(call.again());
        }
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if total == 0 {
            return Ok(0);
        }
        let driver = call.driver();
        let mut send = view.lock_send(driver.tag()).map_err(reentered)?;
        if call.is_shut_for_writing() {
            return Err(Errno::PIPE);
        }
        // Under the lock: the engine takes nothing more from a connection that is moved.
        if view.status().contains(Status::MOVED) {
            return Err(Errno::STALE);
        }
        let buffer_bytes = view.region().geometry().buffer_bytes;
        let mut place = Place::default();
        let mut is_bad = false;
        let mut done = 0;
        // End of the last full frame filled by this call.
        let mut pushed_at = send.written();
        // Bytes taken when the engine was last asked for buffers.
        let mut asked_at = 0;
        // Reports apply to the last span, which is known once nothing follows.
        let mut last: Option<(DescriptorFlags, Span)> = None;
        let is_idle = send.written() == levels.acked;
        let from = call.frames_from(is_idle.then_some(levels.acked)).min(send.written());
        let mut frames = Frames { from };
        'filling: loop {
            // The last slot is left for the end of the stream.
            while done < total && send.room() > 1 + u32::from(last.is_some()) {
                let held = last.map_or(0, |(_, span)| u64::from(span.len));
                let written = send.written() + held;
                if pushed_at != written && frames.end_at(&call, written) {
                    pushed_at = written;
                    if let Some(from) = self.frame_begun_anew(&call, &frames, written) {
                        frames.from = call.frames_from(Some(from));
                        continue;
                    }
                }
                let mut room = frames.room(&call, written, levels.acked);
                if room == 0 {
                    levels = view.levels();
                    room = frames.room(&call, written, levels.acked);
                }
                if room == 0 {
                    break;
                }
                let mut wanted = u32::try_from(room.min((total - done) as u64)).unwrap_or(u32::MAX);
                if levels.status.contains(Status::UNSENT_LIMITED) {
                    match self.ahead(&call, &send) {
                        0 => break,
                        ahead => wanted = wanted.min(ahead),
                    }
                }
                let segment_end = match wish.slices {
                    0 => total,
                    many => end_of_slices(parts, done, many),
                };
                wanted = wanted.min(u32::try_from(segment_end - done).unwrap_or(u32::MAX));
                // At most one buffer is taken at a time. As the kernel, which copies that much at
                // once, it takes nothing of what it cannot copy whole.
                let least = wanted.min(buffer_bytes) as usize;
                is_bad = place.readable(parts, least) < least;
                if is_bad {
                    break 'filling;
                }
                let carved = {
                    let Ok(mut lane) = driver.lane.lock(driver.tag()) else { break 'filling };
                    lane.carve(wanted, 1)
                };
                let Some(carved) = carved else {
                    // The engine refills the stock when it answers.
                    let may_ask = done > 0 && asked_at != done;
                    asked_at = done;
                    if may_ask && self.sent_end(&call).is_some() && driver.lane.has_stock() {
                        continue;
                    }
                    break;
                };
                place.gather(view.region(), carved.span, parts);
                done += carved.span.len as usize;
                // An urgent mark advances, even if not all is taken, as in the kernel.
                let mut flags = kind;
                flags.set(DescriptorFlags::LAST, carved.last);
                if done < total {
                    flags.set(DescriptorFlags::RECORD_END, done == segment_end);
                }
                if stamps.is_empty() {
                    send.push(DescriptorKind::Data, flags, carved.span);
                } else if let Some((flags, span)) = last.replace((flags, carved.span)) {
                    send.push(DescriptorKind::Data, flags, span);
                }
            }
            // A caller whose write was partial waits for room without asking again: an event must
            // come once there is some, unless there already is.
            if done == total || !self.can_send(&call, view.levels()) {
                break;
            }
        }
        if let Some((mut flags, span)) = last {
            flags.set(stamps, done == total || wish.stamps_part);
            send.push(DescriptorKind::Data, flags, span);
        }
        if done == 0 {
            return Err(if is_bad { Errno::FAULT } else { call.again() });
        }
        call.ring(Direction::Send);
        Ok(done)
    }

    /// Start of the last frame once the written data begins to be sent. The kernel sends during a
    /// write, each time that a frame is full, and then fills the rest of it again, which needs no
    /// memory of a new frame.
    fn frame_begun_anew(&self, call: &Call<'_>, frames: &Frames, written: u64) -> Option<u64> {
        // In a larger buffer one frame makes no difference.
        const FRAMES: u64 = 4;
        if !call.is_send_limited() || call.send_limit() > FRAMES * call.frame_bytes() {
            return None;
        }
        let edge = self.ask_number(call, OptionName::SendEdge)?;
        let (edge, is_parted) = (edge & !SEND_EDGE_PARTED, edge & SEND_EDGE_PARTED != 0);
        // A frame that is sent whole leaves nothing to be filled.
        (edge > frames.from && (is_parted || edge < written)).then_some(edge)
    }

    fn ask_number(&self, call: &Call<'_>, option: OptionName) -> Option<u64> {
        let endpoint = call.view().index();
        match call.ask(&Request::Option { endpoint, option }) {
            Ok(Reply::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// Has the written data sent; returns the offset up to which it was.
    fn sent_end(&self, call: &Call<'_>) -> Option<u64> {
        call.ring(Direction::Send);
        self.ask_number(call, OptionName::SentEnd)
    }

    /// How much more may be written ahead of the sent data, if that is limited: as the kernel fills
    /// frames, a started frame is filled up, and another one started while there is less than the
    /// limit.
    fn ahead(&self, call: &Call<'_>, send: &SendGuard<'_>) -> u32 {
        let may_write = || {
            let (sent, most, frame) = call.view().unsent_limit();
            let unsent = send.written().saturating_sub(sent);
            let frame = u64::from(frame.max(1));
            let begun = unsent % frame;
            let room = match (begun, unsent < u64::from(most)) {
                (0, true) => frame,
                (0, false) => 0,
                (begun, _) => frame - begun,
            };
            room as u32
        };
        match may_write() {
            0 => {
                // The written data may have been sent meanwhile.
                match self.sent_end(call) {
                    Some(_) => may_write(),
                    None => 0,
                }
            }
            room => room,
        }
    }

    /// [`Self::write_vectored`] from one slice.
    ///
    /// # Errors
    /// As [`Self::write_vectored`].
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_share_a_segment_end_where_the_last_of_them_does() {
        let bytes = [0; 10];
        let parts: Vec<IoSlice<'_>> =
            [3, 0, 4, 10, 1].map(|len| IoSlice::new(&bytes[..len])).into();
        let ends = [0, 2, 3, 6, 7, 16, 17].map(|offset| end_of_slices(&parts, offset, 2));
        assert_eq!(ends, [3, 3, 17, 17, 17, 17, 18]);
    }
}
