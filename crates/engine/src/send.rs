//! Send descriptors of streams: copied once, checked, then kept privately until acknowledged.

use shm::descriptor::{DescriptorKind, REGISTERED};

use crate::endpoint::Role;
use crate::session::{Breach, Session};
use crate::stats::Counters;

/// Result of reading a stream's send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The end of the send stream now.
    pub end: u64,
    /// The client has shut down sending.
    pub fin: bool,
    /// End of the urgent data.
    pub urgent: Option<u64>,
    /// More follows at once (MSG_MORE).
    pub more: bool,
}

/// Part of the spans reserved for closing connections, so that data written before a close can
/// always be taken.
const RESERVE: u32 = 8;

/// Part of the spans that one connection may hold, so that a peer that does not acknowledge cannot
/// stop the program's other connections.
const SHARE: u32 = 16;

/// Spans that one connection may hold: at least one.
fn share(total: u32) -> u32 {
    (total / SHARE).max(1)
}

impl Session {
    /// Copies the pending descriptors of a stream. `closing`: all of them, using the reserve.
    pub fn take_descriptors(
        &mut self,
        index: u32,
        closing: bool,
        counters: &Counters,
    ) -> Option<Taken> {
        let reserve = if closing { 0 } else { self.spans.total() / RESERVE };
        let slots = self.region.geometry().send_slots;
        let endpoint = self.endpoints.get_mut(index as usize)?;
        let lane = endpoint.lane;
        let Role::Stream(stream) = &mut endpoint.role else { return None };
        let send = &mut stream.send;
        let (mut took, mut more) = (false, false);
        let mut urgent = None;
        self.record_ends.clear();
        self.stamps.clear();
        let mut breach = None;
        for _ in 0..slots {
            if !closing && send.list.count() >= share(self.spans.total()) {
                // They stay in the queue until something is acknowledged.
                send.at_share = true;
                counters.spans_shared.increment();
                break;
            }
            if !closing && self.spans.free() <= reserve {
                // They stay in the queue; a freed span resumes here.
                if !send.waits_for_span {
                    send.waits_for_span = true;
                    self.waiting_for_span.push(index);
                }
                counters.spans_exhausted.increment();
                break;
            }
            let descriptor = match endpoint.view.take_descriptor() {
                Ok(Some(descriptor)) => descriptor,
                Ok(None) => break,
                Err(found) => {
                    breach = Some(Breach::Contract(found));
                    break;
                }
            };
            took = true;
            match (descriptor.kind, descriptor.buffer) {
                (DescriptorKind::Fin, _) => send.fin = true,
                (DescriptorKind::Data, Some(buffer)) if !send.fin => {
                    let span = descriptor.span;
                    if self.pool.hold(&descriptor, lane).is_err() {
                        if buffer & REGISTERED != 0 {
                            // It may have been released meanwhile: the stream cannot continue
                            // without it.
                            send.is_cut = true;
                            counters.stream_memory_refused.increment();
                            break;
                        }
                        breach = Some(Breach::BufferNotGranted { endpoint: index, buffer });
                        break;
                    }
                    let pushed = if span.len == 0 {
                        Ok(false)
                    } else {
                        self.spans.push(&mut send.list, span.offset, span.len, buffer)
                    };
                    // Merged with the previous span, or empty: no span of its own. If there is no
                    // room for one, the stream ends short, and the buffer is still returned.
                    if pushed != Ok(true) {
                        self.pool.drop_span(buffer);
                    }
                    if pushed.is_err() {
                        send.is_cut = true;
                        counters.spans_exhausted.increment();
                    }
                    more = descriptor.more;
                    if descriptor.urgent {
                        urgent = Some(send.list.end());
                    }
                    if descriptor.ends_record {
                        self.record_ends.push(send.list.end());
                    }
                    if descriptor.stamps != 0 {
                        self.stamps.push((send.list.end(), descriptor.stamps));
                    }
                }
                _ => {
                    breach = Some(Breach::WrongKind { endpoint: index });
                    break;
                }
            }
        }
        let taken = Taken { end: send.list.end(), fin: send.fin, urgent, more };
        if took {
            endpoint.view.publish_taken();
        }
        if let Some(breach) = breach {
            self.breached(breach);
            return None;
        }
        took.then_some(taken)
    }

    /// Frees the spans that the peer has acknowledged. `true`: descriptors that had to wait for
    /// that can be taken now.
    pub fn free_acked(&mut self, index: u32, acked: u64) -> bool {
        let Some(endpoint) = self.endpoints.get_mut(index as usize) else { return false };
        let Role::Stream(stream) = &mut endpoint.role else { return false };
        let (pool, send) = (&mut self.pool, &mut stream.send);
        self.spans.free_before(&mut send.list, acked, |buffer| pool.drop_span(buffer));
        // `<=`: half of a share of one is zero, and zero must suffice.
        let room = send.list.count() <= share(self.spans.total()) / 2;
        room && std::mem::take(&mut send.at_share)
    }
}
