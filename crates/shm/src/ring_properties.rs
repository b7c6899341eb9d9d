//! Rings against a `VecDeque`, far beyond one lap.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;

use crate::client_side::{ClientEndpoint, ClientLane};
use crate::control::Geometry;
use crate::descriptor::{DescriptorFlags, DescriptorKind};
use crate::engine_side::{EngineEndpoint, EngineLane};
use crate::lock::Tag;
use crate::region::Region;
use crate::request::{Reply, Request};
use crate::ring::Ring;

fn region() -> Arc<Region> {
    let geometry = Geometry {
        region_bytes: 0,
        context_count: 1,
        worker_count: 1,
        request_slots: 4,
        stock_slots: 8,
        endpoint_capacity: 4,
        send_slots: 4,
        receive_slots: 4,
        buffer_bytes: 2048,
        buffer_count: 32,
    };
    Arc::new(Region::private(geometry).expect("a geometry that fits"))
}

fn tag() -> Tag {
    Tag::new(1, 1)
}

proptest! {
    #[test]
    fn a_ring_is_a_queue(start in 0u64..1 << 40, ops in prop::collection::vec(any::<bool>(), 0..400)) {
        let region = region();
        let ring = Ring { base: region.layout().stock(region.layout().lane(0, 0)), slots: 8 };
        let mut queue = VecDeque::new();
        let (mut pushed, mut taken) = (start, start);
        for (number, push) in ops.into_iter().enumerate() {
            if push && pushed - taken < ring.slots {
                ring.push(&region, pushed, number as u32);
                queue.push_back(number as u32);
                pushed += 1;
            } else if !push {
                let got = ring.take(&region, taken);
                prop_assert_eq!(got, queue.pop_front());
                taken += u64::from(got.is_some());
            }
        }
    }

    #[test]
    fn requests_are_answered_in_order(ops in prop::collection::vec(0u8..3, 0..400)) {
        let region = region();
        let (client, mut engine) =
            (ClientLane::new(region.clone(), 0, 0), EngineLane::new(region, 0, 0));
        let (mut asked, mut answered) = (VecDeque::new(), VecDeque::new());
        for (number, op) in ops.into_iter().enumerate() {
            let endpoint = number as u32;
            let mut lane = client.lock(tag()).expect("free");
            match op {
                0 => {
                    let serial = lane.push_request(&Request::Close { endpoint });
                    prop_assert_eq!(serial.is_some(), asked.len() + answered.len() < 4);
                    asked.extend(serial.map(|serial| (serial, endpoint)));
                }
                1 => {
                    let taken = engine.take_request().expect("no breach");
                    prop_assert_eq!(taken.is_some(), !asked.is_empty());
                    if let (Some((serial, request)), Some(first)) = (taken, asked.pop_front()) {
                        prop_assert_eq!(request, Request::Close { endpoint: first.1 });
                        engine.push_reply(serial, &Reply::Value(first.1.into()));
                        answered.push_back(first);
                    }
                }
                _ => {
                    let expected = answered
                        .pop_front()
                        .map(|(serial, endpoint)| (serial, Some(Reply::Value(endpoint.into()))));
                    prop_assert_eq!(lane.take_reply(), expected);
                }
            }
        }
    }

    #[test]
    fn descriptors_are_a_queue(ops in prop::collection::vec(any::<bool>(), 0..400)) {
        let region = region();
        let mut area = EngineEndpoint::new(region.clone(), 3);
        area.clear();
        let endpoint = ClientEndpoint::new(region.clone(), 3).expect("below the capacity");
        let mut queue = VecDeque::new();
        for (number, push) in ops.into_iter().enumerate() {
            if push {
                let mut send = endpoint.lock_send(tag()).expect("free");
                prop_assert_eq!(send.room() as usize, 4 - queue.len());
                if send.room() > 0 {
                    let whole = region.buffer(number as u32 % 32).expect("a buffer");
                    let span = whole.part(64 * (number as u32 % 32), 1 + number as u32 % 64);
                    send.push(DescriptorKind::Data, DescriptorFlags::empty(), span);
                    queue.push_back(span);
                }
            } else {
                let taken = area.take_descriptor().expect("no breach").map(|taken| taken.span);
                prop_assert_eq!(taken, queue.pop_front());
                area.publish_taken();
            }
        }
    }

    #[test]
    fn carving_uses_every_byte_of_a_buffer_once(sizes in prop::collection::vec((1u32..5000, 1u32..2048), 1..200)) {
        let region = region();
        let client = ClientLane::new(region.clone(), 0, 0);
        let mut engine = EngineLane::new(region.clone(), 0, 0);
        let mut area = EngineEndpoint::new(region.clone(), 0);
        area.clear();
        let endpoint = ClientEndpoint::new(region.clone(), 0).expect("below the capacity");
        let mut free: VecDeque<u32> = (0..32).collect();
        let mut extents = [0u32; 32];
        for (len, least) in sizes {
            while let Some(buffer) = free.pop_front() {
                if !engine.grant(buffer) {
                    free.push_front(buffer);
                    break;
                }
            }
            let least = least.min(len);
            let carved = client.lock(tag()).expect("free").carve(len, least).expect("stock");
            prop_assert!(carved.span.len == 0 && carved.last || carved.span.len >= least);
            let flags = if carved.last { DescriptorFlags::LAST } else { DescriptorFlags::empty() };
            endpoint.lock_send(tag()).expect("free").push(DescriptorKind::Data, flags, carved.span);
            let taken = area.take_descriptor().expect("no breach").expect("pushed");
            area.publish_taken();
            let buffer = taken.buffer.expect("data");
            // Spans follow each other without gap or overlap.
            let start = region.buffer(buffer).expect("a buffer").offset;
            prop_assert_eq!(taken.span.offset - start, u64::from(extents[buffer as usize]));
            extents[buffer as usize] += taken.extent;
            if carved.last {
                prop_assert_eq!(extents[buffer as usize], 2048);
                extents[buffer as usize] = 0;
                free.push_back(buffer);
            }
        }
    }
}
