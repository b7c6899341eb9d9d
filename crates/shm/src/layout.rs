//! Where everything lies in a region: offsets in bytes, all multiples of eight. The words of a
//! line have one writer; see docs/spec/shm.md.

use crate::control::Geometry;

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;
/// First word of a region, `outboard` in ASCII.
pub const MAGIC: u64 = u64::from_le_bytes(*b"outboard");
/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;
/// Bytes of a request or reply slot.
pub const REQUEST_BYTES: usize = 64;
/// Number in a doorbell that says: look at the request ring.
pub const DOORBELL_REQUESTS: u32 = u32::MAX;
/// Number in an event that says: the stock is filled again.
pub const EVENT_STOCK: u32 = u32::MAX;
/// Spans of one buffer start at multiples of this.
pub const SPAN_ALIGN_BYTES: u32 = 64;

/// Bytes before the lanes. Small in models, which make an object of every word.
pub(crate) const HEADER_BYTES: usize = if cfg!(loom) { LINE_BYTES } else { 4096 };
const BUFFERS_ALIGN: usize = if cfg!(loom) { LINE_BYTES } else { 4096 };

/// Words of a lane area, from its start.
pub(crate) mod lane {
    // Written by the engine.
    pub const DOORBELLS_TAKEN: usize = 0;
    pub const ASLEEP: usize = 16;
    /// Bit of `ASLEEP`: the worker sleeps for a moment only, to let a client run that has the same
    /// CPU.
    pub const GIVES_WAY: u64 = 1 << 63;
    pub const SENDABLE: usize = 8;
    pub const WORKER_CPU: usize = 24;
    pub const REACH: usize = 32;
    // Written by the client, read by the engine.
    pub const EVENTS_TAKEN: usize = 64;
    pub const REPLIES_TAKEN: usize = 72;
    pub const STOCK_TAKEN: usize = 80;
    pub const ARMED: usize = 88;
    // The client's own.
    pub const LOCK: usize = 128;
    pub const DOORBELLS_PUSHED: usize = 136;
    pub const REQUESTS_PUSHED: usize = 144;
    pub const REQUEST_DOORBELL: usize = 152;
    pub const OPEN_BUFFER: usize = 160;
    pub const OPEN_FILL: usize = 168;
    pub const SLEEP_RUNG: usize = 176;
    pub const RINGS: usize = 192;
}

/// Words of an endpoint area, from its start.
pub(crate) mod endpoint {
    // Written by the engine.
    pub const READABLE: usize = 0;
    pub const ACKED: usize = 8;
    pub const TAKEN: usize = 16;
    pub const STATUS: usize = 24;
    pub const URGENT: usize = 32;
    pub const PENDING: usize = 40;
    pub const WANTED: usize = 48;
    pub const SEND_ROOM: usize = 56;
    // Written by the client, read by the engine; and the client's own for receiving.
    pub const CONSUMED: usize = 64;
    pub const RECEIVE_LOCK: usize = 72;
    pub const RECEIVE_DOORBELL: usize = 80;
    pub const FLAGS: usize = 88;
    pub const WANTS: usize = 96;
    pub const URGENT_SEEN: usize = 104;
    pub const URGENT_TAKEN: usize = 112;
    // Written by the client: sending.
    pub const SEND_LOCK: usize = 128;
    pub const PUSHED: usize = 136;
    pub const WRITTEN: usize = 144;
    pub const SEND_DOORBELL: usize = 152;
    // Written by the engine, of connections that ask for it.
    pub const SENT: usize = 192;
    pub const UNSENT_LIMIT: usize = 200;
    // Written by the engine, of connections whose peers urge.
    pub const URGENT_BYTE: usize = 208;
    pub const QUEUES: usize = 256;

    /// Content of [`URGENT_BYTE`] once the byte has come that ends at `offset`.
    pub fn urgent_word(offset: u64, byte: u8) -> u64 {
        offset << 9 | 1 << 8 | u64::from(byte)
    }
}

const _: () = {
    assert!(lane::EVENTS_TAKEN == LINE_BYTES && lane::REACH < LINE_BYTES);
    assert!(lane::LOCK == 2 * LINE_BYTES && lane::ARMED < 2 * LINE_BYTES);
    assert!(lane::RINGS == 3 * LINE_BYTES && lane::SLEEP_RUNG < 3 * LINE_BYTES);
    assert!(endpoint::CONSUMED == LINE_BYTES && endpoint::SEND_ROOM < LINE_BYTES);
    assert!(endpoint::SEND_LOCK == 2 * LINE_BYTES && endpoint::URGENT_TAKEN < 2 * LINE_BYTES);
    assert!(endpoint::SENT == 3 * LINE_BYTES && endpoint::SEND_DOORBELL < 3 * LINE_BYTES);
    assert!(endpoint::QUEUES == 4 * LINE_BYTES && endpoint::URGENT_BYTE < 4 * LINE_BYTES);
    assert!(SPAN_ALIGN_BYTES as usize == LINE_BYTES);
};

/// Why a geometry cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadGeometry {
    /// A count that must be a power of two (at least two) is not.
    NotPowerOfTwo(&'static str),
    /// A count is nought or beyond its limit.
    OutOfRange(&'static str),
    /// `region_bytes` is not what the counts add up to.
    WrongSize {
        /// As claimed.
        claimed: u64,
        /// As laid out.
        actual: u64,
    },
}

impl std::fmt::Display for BadGeometry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotPowerOfTwo(name) => write!(f, "{name} is not a power of two of at least two"),
            Self::OutOfRange(name) => write!(f, "{name} is out of range"),
            Self::WrongSize { claimed, actual } => {
                write!(f, "region_bytes is {claimed}, but the parts add up to {actual}")
            }
        }
    }
}

impl std::error::Error for BadGeometry {}

/// A geometry with its offsets worked out; each side computes its own and never reads one from
/// the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    geometry: Geometry,
    pub(crate) doorbell_slots: u64,
    pub(crate) event_slots: u64,
    lane_bytes: usize,
    endpoint_bytes: usize,
    endpoints_start: usize,
    buffers_start: usize,
}

impl Layout {
    /// Works out the offsets of `geometry` and sets its `region_bytes`.
    ///
    /// # Errors
    /// If a capacity is out of range or not a power of two.
    pub fn sized(geometry: Geometry) -> Result<Self, BadGeometry> {
        let layout = Self::offsets(geometry)?;
        let region_bytes = layout.end();
        Ok(Self { geometry: Geometry { region_bytes, ..geometry }, ..layout })
    }

    /// Works out the offsets of a geometry that was granted; its `region_bytes` must agree.
    ///
    /// # Errors
    /// As [`Layout::sized`], and if `region_bytes` is another.
    pub fn granted(geometry: Geometry) -> Result<Self, BadGeometry> {
        let layout = Self::sized(geometry)?;
        let actual = layout.geometry.region_bytes;
        if geometry.region_bytes != actual {
            return Err(BadGeometry::WrongSize { claimed: geometry.region_bytes, actual });
        }
        Ok(layout)
    }

    fn offsets(g: Geometry) -> Result<Self, BadGeometry> {
        let power = |value: u32, max: u32, name| {
            if value < 2 || !value.is_power_of_two() {
                Err(BadGeometry::NotPowerOfTwo(name))
            } else if value > max {
                Err(BadGeometry::OutOfRange(name))
            } else {
                Ok(())
            }
        };
        power(g.request_slots, 1 << 16, "request_slots")?;
        power(g.stock_slots, 1 << 16, "stock_slots")?;
        power(g.send_slots, 1 << 14, "send_slots")?;
        power(g.receive_slots, 1 << 14, "receive_slots")?;
        power(g.buffer_bytes, 1 << 20, "buffer_bytes")?;
        if !cfg!(loom) && g.buffer_bytes < 1024 {
            return Err(BadGeometry::OutOfRange("buffer_bytes"));
        }
        if !(1..=256).contains(&g.context_count) {
            return Err(BadGeometry::OutOfRange("context_count"));
        }
        if !(1..=64).contains(&g.worker_count) {
            return Err(BadGeometry::OutOfRange("worker_count"));
        }
        if !(1..=1 << 20).contains(&g.endpoint_capacity) {
            return Err(BadGeometry::OutOfRange("endpoint_capacity"));
        }
        if !(1..=1 << 20).contains(&g.buffer_count) {
            return Err(BadGeometry::OutOfRange("buffer_count"));
        }
        // Two doorbells (one for each direction) and one event may be outstanding for every
        // endpoint, and one more of each for requests and stock.
        let doorbell_slots = (2 * g.endpoint_capacity as u64 + 1).next_power_of_two();
        let event_slots = (g.endpoint_capacity as u64 + 1).next_power_of_two();
        let line = |bytes: usize| bytes.next_multiple_of(LINE_BYTES);
        let lane_bytes = lane::RINGS
            + line(doorbell_slots as usize * 8)
            + line(event_slots as usize * 8)
            + line(g.stock_slots as usize * 8)
            + 2 * g.request_slots as usize * REQUEST_BYTES;
        let endpoint_bytes = endpoint::QUEUES
            + line(g.send_slots as usize * DESCRIPTOR_BYTES)
            + line(g.receive_slots as usize * DESCRIPTOR_BYTES);
        let lanes = g.context_count as usize * g.worker_count as usize;
        let endpoints_start = HEADER_BYTES + lanes * lane_bytes;
        let buffers_start = (endpoints_start + g.endpoint_capacity as usize * endpoint_bytes)
            .next_multiple_of(BUFFERS_ALIGN);
        Ok(Self {
            geometry: g,
            doorbell_slots,
            event_slots,
            lane_bytes,
            endpoint_bytes,
            endpoints_start,
            buffers_start,
        })
    }

    fn end(&self) -> u64 {
        self.buffers_start as u64
            + self.geometry.buffer_count as u64 * self.geometry.buffer_bytes as u64
    }

    /// The geometry, with `region_bytes` set.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Where buffer 0 begins.
    pub fn buffers_start(&self) -> u64 {
        self.buffers_start as u64
    }

    /// Start of a lane area.
    pub(crate) fn lane(&self, context: u16, worker: u16) -> usize {
        assert!(context < self.geometry.context_count && worker < self.geometry.worker_count);
        let index = context as usize * self.geometry.worker_count as usize + worker as usize;
        HEADER_BYTES + index * self.lane_bytes
    }

    pub(crate) fn doorbells(&self, lane: usize) -> usize {
        lane + lane::RINGS
    }

    pub(crate) fn events(&self, lane: usize) -> usize {
        self.doorbells(lane) + (self.doorbell_slots as usize * 8).next_multiple_of(LINE_BYTES)
    }

    pub(crate) fn stock(&self, lane: usize) -> usize {
        self.events(lane) + (self.event_slots as usize * 8).next_multiple_of(LINE_BYTES)
    }

    pub(crate) fn requests(&self, lane: usize) -> usize {
        self.stock(lane) + (self.geometry.stock_slots as usize * 8).next_multiple_of(LINE_BYTES)
    }

    pub(crate) fn replies(&self, lane: usize) -> usize {
        self.requests(lane) + self.geometry.request_slots as usize * REQUEST_BYTES
    }

    /// Start of an endpoint area.
    pub(crate) fn endpoint(&self, index: u32) -> usize {
        assert!(index < self.geometry.endpoint_capacity, "endpoint index beyond the capacity");
        self.endpoints_start + index as usize * self.endpoint_bytes
    }

    pub(crate) fn send_queue(&self, endpoint: usize) -> usize {
        endpoint + endpoint::QUEUES
    }

    pub(crate) fn receive_queue(&self, endpoint: usize) -> usize {
        let bytes = self.geometry.send_slots as usize * DESCRIPTOR_BYTES;
        self.send_queue(endpoint) + bytes.next_multiple_of(LINE_BYTES)
    }
}

impl Default for Geometry {
    /// The default grant; `region_bytes` is left for [`Layout::sized`].
    fn default() -> Self {
        Self {
            region_bytes: 0,
            context_count: 8,
            worker_count: 1,
            request_slots: 64,
            stock_slots: 1024,
            endpoint_capacity: 16384,
            send_slots: 256,
            receive_slots: 256,
            buffer_bytes: 8192,
            buffer_count: 8192,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_region_do_not_overlap_and_start_at_lines() {
        let layout = Layout::sized(Geometry { worker_count: 3, ..Geometry::default() }).unwrap();
        let g = *layout.geometry();
        let mut before = HEADER_BYTES;
        for context in 0..g.context_count {
            for worker in 0..g.worker_count {
                let lane = layout.lane(context, worker);
                assert_eq!(lane, before);
                let parts = [
                    layout.doorbells(lane),
                    layout.events(lane),
                    layout.stock(lane),
                    layout.requests(lane),
                    layout.replies(lane),
                ];
                assert!(parts.is_sorted() && parts.iter().all(|p| p % LINE_BYTES == 0));
                before = layout.replies(lane) + g.request_slots as usize * REQUEST_BYTES;
            }
        }
        assert_eq!(layout.endpoint(0), before);
        let last = layout.endpoint(g.endpoint_capacity - 1);
        assert!(
            layout.receive_queue(last) + g.receive_slots as usize * DESCRIPTOR_BYTES
                <= layout.buffers_start() as usize
        );
        assert_eq!(
            g.region_bytes,
            layout.buffers_start() + g.buffer_count as u64 * g.buffer_bytes as u64
        );
    }

    #[test]
    fn a_geometry_that_does_not_add_up_is_refused() {
        let good = *Layout::sized(Geometry::default()).unwrap().geometry();
        assert!(Layout::granted(good).is_ok());
        let short = Geometry { region_bytes: good.region_bytes - 4096, ..good };
        assert!(matches!(Layout::granted(short), Err(BadGeometry::WrongSize { .. })));
        for bad in [
            Geometry { send_slots: 3, ..good },
            Geometry { receive_slots: 0, ..good },
            Geometry { buffer_bytes: 1000, ..good },
            Geometry { worker_count: 0, ..good },
            Geometry { endpoint_capacity: u32::MAX, ..good },
        ] {
            assert!(Layout::granted(bad).is_err(), "{bad:?}");
        }
    }
}
