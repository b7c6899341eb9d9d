//! Reading and writing streams.

use std::io::{IoSlice, IoSliceMut};

use rustix::io::Errno;
use shm::Status;
use shm::client_side::{Direction, Levels};
use shm::descriptor::{DescriptorFlags, DescriptorKind, Span};
use shm::region::Region;

use crate::driver::reentered;
use crate::endpoint::{Call, Endpoint, Kind};

/// Where the next byte goes to or comes from in a list of slices.
#[derive(Default)]
pub(crate) struct Place {
    slice: usize,
    at: usize,
}

impl Place {
    /// Copies from `span` into `parts` as much as fits both; returns how much.
    pub fn scatter(&mut self, region: &Region, span: Span, parts: &mut [IoSliceMut<'_>]) -> u32 {
        let mut done = 0;
        while done < span.len {
            let Some(part) = parts.get_mut(self.slice) else { break };
            let free = &mut part[self.at..];
            if free.is_empty() {
                *self = Self { slice: self.slice + 1, at: 0 };
                continue;
            }
            let copied = region.read_buffer(span.part(done, u32::MAX), free);
            if copied == 0 {
                break;
            }
            self.at += copied;
            done += copied as u32;
        }
        done
    }

    /// Fills `span` from `parts` as far as they reach; returns how far.
    pub fn gather(&mut self, region: &Region, span: Span, parts: &[IoSlice<'_>]) -> u32 {
        let mut done = 0;
        while done < span.len {
            let Some(part) = parts.get(self.slice) else { break };
            let rest = &part[self.at..];
            if rest.is_empty() {
                *self = Self { slice: self.slice + 1, at: 0 };
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

impl Endpoint {
    /// Reads what has come, in order, into `parts`; 0 at the end of the stream. EAGAIN when there
    /// is nothing yet.
    pub fn read_vectored(&self, parts: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        self.receive(parts, true)
    }

    /// [`Self::read_vectored`] into one slice.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.receive(&mut [IoSliceMut::new(bytes)], true)
    }

    /// Reads without taking: the same bytes come again.
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
        // The status before what is readable, so that an end is not seen before the last bytes.
        let levels = view.levels();
        let start = receive.consumed();
        // What was not read before a shutdown of reading is gone: its pages are the engine's.
        if levels.readable <= start || call.is_shut_for_reading() {
            return self.nothing_to_read(&call, &levels);
        }
        let mut place = Place::default();
        let mut offset = start;
        while offset < levels.readable {
            let Some(span) = receive.page(offset, levels.readable) else {
                // The engine broke its word; there is nothing sane to hand out.
                return Err(Errno::PROTO);
            };
            let copied = place.scatter(view.region(), span, parts);
            offset += u64::from(copied);
            if copied < span.len {
                break;
            }
        }
        if take && receive.advance(offset) {
            call.ring(Direction::Receive);
        }
        Ok((offset - start) as usize)
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
    pub fn write_vectored(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let call = self.call_as(Kind::Stream)?;
        let view = call.view();
        let mut levels = view.levels();
        if let Some(errno) = call.error(&levels) {
            return Err(errno);
        }
        if call.is_shut_for_writing() || levels.status.intersects(Status::HANGUP | Status::ERROR) {
            return Err(Errno::PIPE);
        }
        if !levels.status.contains(Status::CONNECTED) {
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
        let mut place = Place::default();
        let mut done = 0;
        'filling: loop {
            let limit = call.send_limit();
            // The last slot is left for the end of the stream.
            while done < total && send.room() > 1 {
                if send.written().saturating_sub(levels.acked) >= limit {
                    levels = view.levels();
                    if send.written().saturating_sub(levels.acked) >= limit {
                        break;
                    }
                }
                let wanted = u32::try_from(total - done).unwrap_or(u32::MAX);
                let carved = {
                    let Ok(mut lane) = driver.lane.lock(driver.tag()) else { break 'filling };
                    lane.carve(wanted, 1)
                };
                let Some(carved) = carved else { break };
                place.gather(view.region(), carved.span, parts);
                let flags =
                    if carved.last { DescriptorFlags::LAST } else { DescriptorFlags::empty() };
                send.push(DescriptorKind::Data, flags, carved.span);
                done += carved.span.len as usize;
            }
            // Whoever writes less than asked waits for room without asking again: an event must
            // come once there is some, unless it came meanwhile.
            if done == total || !self.can_send(&call, view.levels()) {
                break;
            }
        }
        if done == 0 {
            return Err(call.again());
        }
        call.ring(Direction::Send);
        Ok(done)
    }

    /// [`Self::write_vectored`] from one slice.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }
}
