//! Memory of one host's programs, which notes what the core may not do with it.

use std::collections::HashMap;

use stack::message::{EndpointId, Memory, PayloadPlace};

use super::Violation;

/// What receives are filled with before.
pub(super) const GUARD: u8 = 0xee;

#[derive(Default)]
pub(super) struct Heap {
    places: HashMap<PayloadPlace, Vec<u8>>,
    buffers: u64,
    buffers_max: u64,
    next: u64,
    wrong: Option<String>,
}

impl Heap {
    pub fn new(buffers_max: u64) -> Self {
        Self { buffers_max, ..Self::default() }
    }

    pub fn put(&mut self, place: PayloadPlace, bytes: Vec<u8>) {
        self.places.insert(place, bytes);
    }

    /// Takes the memory of an operation that has ended.
    pub fn take(&mut self, place: PayloadPlace) -> Result<Vec<u8>, Violation> {
        self.places.remove(&place).ok_or_else(|| Violation(format!("{place:?} ended twice")))
    }

    pub fn append(&mut self, place: PayloadPlace, offset: u32, len: usize, out: &mut Vec<u8>) {
        let mut bytes = vec![0; len];
        self.read(place, offset, &mut bytes);
        out.extend_from_slice(&bytes);
    }

    /// Whether the core has done something that it may not.
    pub fn check(&mut self) -> Result<(), Violation> {
        self.wrong.take().map_or(Ok(()), |wrong| Err(Violation(wrong)))
    }

    pub fn assert_clean(&self) -> Result<(), Violation> {
        match self.buffers {
            0 => Ok(()),
            left => Err(Violation(format!("{left} buffers are left"))),
        }
    }

    fn range(&mut self, place: PayloadPlace, offset: u32, len: usize) -> Option<&mut [u8]> {
        let start = offset as usize;
        let range = self.places.get_mut(&place).and_then(|it| it.get_mut(start..start + len));
        if range.is_none() {
            self.wrong = Some(format!("{len} bytes at {offset} of {place:?} are not there"));
        }
        range
    }
}

impl Memory for Heap {
    fn read(&mut self, from: PayloadPlace, offset: u32, out: &mut [u8]) {
        if let Some(range) = self.range(from, offset, out.len()) {
            out.copy_from_slice(range);
        }
    }

    fn write(&mut self, to: PayloadPlace, offset: u32, bytes: &[u8]) {
        if let Some(range) = self.range(to, offset, bytes.len()) {
            range.copy_from_slice(bytes);
        }
    }

    fn copy(&mut self, from: PayloadPlace, to: PayloadPlace, offset: u32, length: u32) {
        let mut bytes = vec![0; length as usize];
        self.read(from, offset, &mut bytes);
        self.write(to, offset, &bytes);
    }

    fn reserve(&mut self, _: EndpointId, length: u32) -> Option<u64> {
        if self.buffers >= self.buffers_max {
            return None;
        }
        self.buffers += 1;
        self.next += 1;
        self.put(PayloadPlace::Buffer(self.next), vec![0; length as usize]);
        Some(self.next)
    }

    fn release(&mut self, buffer: u64) {
        if self.places.remove(&PayloadPlace::Buffer(buffer)).is_none() {
            self.wrong = Some(format!("buffer {buffer} is given back twice"));
        } else {
            self.buffers -= 1;
        }
    }
}
