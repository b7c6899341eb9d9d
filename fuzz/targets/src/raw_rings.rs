//! Byte rings of a raw endpoint whose client scribbles over them: the engine finds whole frames within
//! the ring, or a breach; it does bounded work, and what it sends up stays readable for a client that
//! keeps the contract.

use std::sync::Arc;

use shm::raw::{
    ClientDown, ClientUp, EngineDown, EngineUp, FrameFlags, Header, MESSAGES_PER_VISIT,
    MessageKind, Meta, Received, RingBreach, RingSizes, Rings, SegmentKind, Taken, UpInfo,
};

const SIZES: RingSizes = RingSizes { up: RingSizes::LEAST, down: RingSizes::LEAST };
/// Words of the client's lines: where what it pushed ends, what it waits for, and what it released.
const DOWN_TAIL: u64 = 128;
const DOWN_WANTED: u64 = 136;
const UP_HEAD: u64 = 192;
/// Where DOWN begins.
const DOWN: u64 = 4096 + RingSizes::LEAST as u64;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn short(&mut self) -> u64 {
        u64::from(self.byte()) << 8 | u64::from(self.byte())
    }

    fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// A position: near the beginning, near the end of a lap, or anywhere.
    fn position(&mut self) -> u64 {
        match self.byte() % 4 {
            0 => self.number(),
            1 => u64::from(SIZES.down) * u64::from(self.byte() % 4) + self.short() * 64,
            2 => self.short(),
            _ => self.short() * 64,
        }
    }

    /// The first word of a message.
    fn header(&mut self) -> u64 {
        let kinds = [
            MessageKind::Frame,
            MessageKind::Wrap,
            MessageKind::Frame,
            MessageKind::Frames,
            MessageKind::Notice,
        ];
        let kind = kinds[usize::from(self.byte()) % kinds.len()];
        let len = self.short() as u32;
        let flags = FrameFlags::from_bits_truncate(self.byte());
        let word = Header { len, kind, port: self.byte(), flags }.encode();
        if self.byte().is_multiple_of(8) { word ^ 1 << (self.byte() % 64) } else { word }
    }

    fn meta(&mut self) -> Option<Meta> {
        self.byte().is_multiple_of(2).then(|| Meta {
            time_ns: self.number(),
            segment_bytes: self.short() as u16,
            segments: SegmentKind::Tcp4,
            ..Meta::default()
        })
    }
}

/// The two sides of a pair of rings.
struct Pair {
    rings: Arc<Rings>,
    up: EngineUp,
    down: EngineDown,
    /// Positions taken and not done with.
    held: Vec<u64>,
}

impl Pair {
    fn new() -> Self {
        let rings = Arc::new(Rings::private(SIZES).expect("sizes of ours"));
        let up = EngineUp::new(Arc::clone(&rings));
        let down = EngineDown::new(Arc::clone(&rings)).expect("there is DOWN");
        Self { rings, up, down, held: Vec::new() }
    }

    /// One visit of the engine's.
    fn visit(&mut self, input: &mut Input<'_>) -> Result<(), RingBreach> {
        let mut bytes = vec![0; SIZES.down as usize / 8];
        for _ in 0..MESSAGES_PER_VISIT {
            let before = self.down.taken();
            match self.down.peek()? {
                Taken::Nothing => break,
                Taken::Wrap | Taken::Bad => {}
                Taken::Frame(frame) => {
                    assert!(frame.len <= bytes.len(), "{frame:?}");
                    assert!((before..=before + u64::from(SIZES.down) / 8).contains(&frame.end));
                    assert_eq!(self.down.read(&frame, &mut bytes), frame.len);
                    assert_eq!(self.down.rest(&frame, 100).len(), frame.len.saturating_sub(100));
                    self.down.take(&frame);
                    self.down.count(input.byte().is_multiple_of(2));
                    self.held.push(frame.end);
                }
            }
            assert!(self.down.taken() > before, "no step forward");
        }
        // Some are done with, not always in order.
        while !self.held.is_empty() && !input.byte().is_multiple_of(4) {
            let at = usize::from(input.byte()) % self.held.len();
            let end = self.held.swap_remove(at);
            self.held.retain(|other| *other > end);
            self.down.finish(end);
        }
        self.down.publish();
        assert!(self.down.held_bytes() <= u64::from(SIZES.down));
        Ok(())
    }

    fn push_up(&mut self, input: &mut Input<'_>) -> Result<(), RingBreach> {
        let meta = input.meta();
        let flags = if meta.is_some() { FrameFlags::META } else { FrameFlags::empty() };
        let len = (input.short() as usize * 3).min(self.up.frame_bytes_max(meta.is_some()));
        for _ in 0..=input.byte() % 16 {
            let port = input.byte();
            let info = UpInfo { port, flags, meta: meta.as_ref(), time_ns: input.number() };
            self.up.push(info, &vec![7; len])?;
        }
        if input.byte().is_multiple_of(2) {
            self.up.publish();
        }
        Ok(())
    }
}

/// What a client does that breaks the contract, or may.
fn scribble(pair: &Pair, input: &mut Input<'_>) {
    match input.byte() % 5 {
        0 => drop(pair.rings.scribble(DOWN_TAIL, input.position())),
        1 => drop(pair.rings.scribble(DOWN_WANTED, input.position())),
        2 => drop(pair.rings.scribble(UP_HEAD, input.position())),
        3 => drop(pair.rings.scribble(DOWN + input.short() % 4096 * 64, input.header())),
        _ => drop(pair.rings.scribble(input.short() * 8, input.number())),
    }
}

/// What a client does that keeps the contract.
fn honest(pair: &Pair, input: &mut Input<'_>) {
    let Some(mut down) = ClientDown::new(Arc::clone(&pair.rings)) else { return };
    for _ in 0..=input.byte() % 8 {
        let meta = input.meta();
        let len = input.short() as usize;
        if let Ok(at) = down.reserve(input.byte(), meta.as_ref(), len) {
            down.write(at, &vec![input.byte(); len]);
        }
    }
    let _ = down.commit();
}

/// Everything that was sent up can be read by a client that has kept the contract.
fn read_all(pair: &Pair) {
    let mut reader = ClientUp::new(Arc::clone(&pair.rings));
    let mut room = vec![0; SIZES.up as usize / 8];
    while let Some(received) = reader.receive().expect("the engine keeps its word") {
        if let Received::Frame(frame) = received {
            assert_eq!(reader.read(&frame, &mut room), frame.len);
            assert!(room.iter().take(frame.len).all(|byte| *byte == 7));
        }
    }
    let _ = reader.release();
}

/// Runs the operations that `data` spells.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut pair = Pair::new();
    let mut is_honest = true;
    while !input.0.is_empty() {
        let done = match input.byte() % 6 {
            0 => {
                is_honest = false;
                scribble(&pair, &mut input);
                Ok(())
            }
            1 if is_honest => {
                honest(&pair, &mut input);
                Ok(())
            }
            2 if is_honest => {
                read_all(&pair);
                Ok(())
            }
            3 => pair.push_up(&mut input),
            _ => pair.visit(&mut input),
        };
        if let Err(breach) = done {
            assert!(!is_honest, "{breach}");
            assert!(!breach.to_string().is_empty());
            pair = Pair::new();
            is_honest = true;
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn rings_survive_thousands_of_scribblers() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..2000usize {
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
