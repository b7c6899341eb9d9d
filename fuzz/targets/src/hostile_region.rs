//! A client that scribbles over its region between the engine's looks. Whatever it writes, the
//! engine's side must not panic, must do bounded work, and must never hand out a span that does
//! not lie in one buffer, an endpoint beyond the capacity, or a position out of its window. The
//! client's side is shown the same region: it need not make sense of it, but must not panic.

use std::sync::Arc;

use shm::client_side::{ClientEndpoint, ClientLane, Direction};
use shm::control::Geometry;
use shm::descriptor::{DatagramHeader, DescriptorFlags, DescriptorKind, Span};
use shm::engine_side::{EngineEndpoint, EngineLane};
use shm::lock::Tag;
use shm::region::Region;
use shm::request::{Reply, Request};

const ENDPOINTS: u32 = 3;

/// Reads operations and their operands; nought when they end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// A word that has a chance to pass for something.
    fn word(&mut self) -> u64 {
        let (shape, low) = (self.byte(), u64::from(self.byte()));
        match shape % 6 {
            0 => self.number(),
            // A slot of a ring: lap and number.
            1 => u64::from(self.byte() % 4) << 32 | low,
            2 => u64::from(self.byte() % 4) << 32 | u64::from(u32::MAX),
            // The second word of a descriptor.
            3 => {
                let (kind, flags) = (u64::from(self.byte() % 6), u64::from(self.byte() % 8));
                u64::from(self.byte() % 4) << 48 | flags << 40 | kind << 32 | low << 4
            }
            4 => low,
            _ => low.wrapping_neg(),
        }
    }
}

/// Runs the operations that `data` spells.
pub fn run(data: &[u8]) {
    let geometry = Geometry {
        region_bytes: 0,
        context_count: 1,
        worker_count: 1,
        request_slots: 2,
        stock_slots: 4,
        endpoint_capacity: ENDPOINTS,
        send_slots: 4,
        receive_slots: 4,
        buffer_bytes: 1024,
        buffer_count: 4,
    };
    let region = Arc::new(Region::private(geometry).expect("a geometry of ours"));
    let mut lane = EngineLane::new(region.clone(), 0, 0);
    let mut areas: Vec<EngineEndpoint> =
        (0..ENDPOINTS).map(|index| EngineEndpoint::new(region.clone(), index)).collect();
    areas.iter_mut().for_each(EngineEndpoint::clear);
    let mut input = Input(data);
    // An honest beginning, as long as the input wants it, so that rings are somewhere.
    while input.byte() % 2 == 1 {
        honest(&region, &mut input);
        engine(&region, &mut lane, &mut areas, &mut input);
    }
    while !input.0.is_empty() {
        for _ in 0..input.byte() % 8 {
            let words = region.layout().buffers_start() / 8;
            // The lanes and the lines of the endpoints more often than the queues.
            let at = u64::from(input.byte()) | u64::from(input.byte()) << 8;
            region.scribble(at % words * 8, input.word());
        }
        engine(&region, &mut lane, &mut areas, &mut input);
        glance(&region, &mut input);
    }
}

/// What a client does that keeps the contract.
fn honest(region: &Arc<Region>, input: &mut Input<'_>) {
    let lane = ClientLane::new(region.clone(), 0, 0);
    let tag = Tag::new(1, 1);
    let index = u32::from(input.byte()) % ENDPOINTS;
    let endpoint = ClientEndpoint::new(region.clone(), index).expect("below the capacity");
    match input.byte() % 4 {
        0 => {
            let mut guard = lane.lock(tag).expect("not held");
            guard.push_request(&Request::Close { endpoint: index });
            let _ = guard.ring_requests();
        }
        1 => {
            let mut send = endpoint.lock_send(tag).expect("not held");
            let carved = lane.lock(tag).expect("not held").carve(input.byte().into(), 1);
            if let Some(carved) = carved.filter(|_| send.room() > 0) {
                let flags =
                    if carved.last { DescriptorFlags::LAST } else { DescriptorFlags::empty() };
                send.push(DescriptorKind::Data, flags, carved.span);
                let _ = lane.ring(index, Direction::Send);
            }
        }
        2 => {
            lane.lock(tag).expect("not held").take_events(4, |_| {});
        }
        _ => while lane.lock(tag).expect("not held").take_reply().is_some() {},
    }
}

/// A turn of an engine that uses everything it is given.
fn engine(
    region: &Region,
    lane: &mut EngineLane,
    areas: &mut [EngineEndpoint],
    input: &mut Input<'_>,
) {
    let buffers = region.geometry().buffer_count;
    lane.has_work();
    let mut rung = [0; 4];
    if let Ok(count) = lane.take_doorbells(&mut rung) {
        assert!(rung[..count].iter().all(|endpoint| *endpoint < ENDPOINTS));
    }
    for _ in 0..4 {
        let Ok(Some((serial, request))) = lane.take_request() else { break };
        let (Request::Accept { .. } | Request::Connect { .. }) = request else {
            lane.push_reply(serial, &Reply::Done);
            continue;
        };
        lane.push_reply(serial, &Reply::Failed { errno: 11 });
    }
    let high = u64::from(input.byte());
    for (index, area) in areas.iter_mut().enumerate() {
        if let Ok(consumed) = area.consumed(high / 2, high) {
            assert!((high / 2..=high).contains(&consumed));
        }
        for _ in 0..4 {
            let Ok(Some(taken)) = area.take_descriptor() else { break };
            check_span(region, taken.span, taken.buffer, taken.extent);
        }
        area.publish_taken();
        area.set_page(high, u32::from(input.byte()) % (buffers + 1));
        if let Some(span) = region.buffer(high as u32 % buffers) {
            area.push_datagram(span.part(0, 100), high % 5 == 0);
        }
        area.set_readable(high);
        area.is_wish_due(high, high % 2 == 0);
        EngineLane::begin_events();
        lane.push_event(index as u32);
    }
    assert!(lane.stock_len() <= region.geometry().stock_slots);
    lane.grant(u32::from(input.byte()) % buffers);
    let _ = lane.finish_events();
    if lane.prepare_sleep() {
        lane.awake();
    }
    if input.byte().is_multiple_of(16) {
        let index = usize::from(input.byte()) % areas.len();
        areas[index].clear();
    }
}

fn check_span(region: &Region, span: Span, buffer: Option<u32>, extent: u32) {
    let Some(buffer) = buffer else {
        assert_eq!((span, extent), (Span::default(), 0));
        return;
    };
    let whole = region.buffer(buffer).expect("a buffer that exists");
    let (start, end) = (span.offset, span.offset + u64::from(span.len));
    assert!(start >= whole.offset && end <= whole.offset + u64::from(whole.len));
    assert!(extent >= span.len && extent <= whole.len);
    let mut bytes = [0; 64];
    region.read_buffer(span, &mut bytes);
    DatagramHeader::split(region, span);
    assert_eq!(region.shared(span).len(), span.len as usize);
}

/// A client's look at a region that somebody scribbled over, without the locks, which it may
/// find held for ever.
fn glance(region: &Arc<Region>, input: &mut Input<'_>) {
    let lane = ClientLane::new(region.clone(), 0, 0);
    lane.has_events();
    lane.has_stock();
    lane.worker_cpu();
    if lane.arm(1) {
        lane.disarm();
    }
    let index = u32::from(input.byte()) % ENDPOINTS;
    if let Some(endpoint) = ClientEndpoint::new(region.clone(), index) {
        endpoint.levels();
        endpoint.report_error(input.byte().into());
        let wants = u64::from(input.byte());
        let _ = endpoint.wish(|levels| (levels.acked < wants).then_some(wants));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_engine_survives_thousands_of_scribblers() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..3000usize {
            let data: Vec<u8> = (0..round % 700)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 24) as u8
                })
                .collect();
            super::run(&data);
        }
    }
}
