//! The program's memory as used by operations.

use std::collections::HashMap;

/// Locates the payload of operations in the program's memory, by the context of the operation.
/// Called only within [`Endpoint::poll_completion`](super::Endpoint::poll_completion) and
/// [`Endpoint::progress`](super::Endpoint::progress); it must not call the endpoint.
pub trait Memory {
    /// Calls `copy` with the bytes `offset .. offset + len` of a send's message, in order, in any
    /// number of pieces.
    fn gather(&mut self, context: u64, offset: u64, len: usize, copy: &mut dyn FnMut(&[u8]));

    /// Calls `copy` with the room for the bytes `offset .. offset + len` of a receive's message, in
    /// order, in any number of pieces.
    fn scatter(&mut self, context: u64, offset: u64, len: usize, copy: &mut dyn FnMut(&mut [u8]));
}

/// A [`Memory`] of vectors, one for each message.
#[derive(Debug, Default)]
pub struct Buffers {
    by_context: HashMap<u64, Vec<u8>>,
}

impl Buffers {
    /// Adds the bytes of a send, or the room of a receive, by the context of its operation.
    pub fn add(&mut self, context: u64, bytes: Vec<u8>) {
        self.by_context.insert(context, bytes);
    }

    /// Takes them back once the operation is complete.
    pub fn take(&mut self, context: u64) -> Option<Vec<u8>> {
        self.by_context.remove(&context)
    }
}

impl Memory for Buffers {
    fn gather(&mut self, context: u64, offset: u64, len: usize, copy: &mut dyn FnMut(&[u8])) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.by_context.get(&context).map_or(&[][..], Vec::as_slice);
        copy(bytes.get(start..start.saturating_add(len)).unwrap_or_default());
    }

    fn scatter(&mut self, context: u64, offset: u64, len: usize, copy: &mut dyn FnMut(&mut [u8])) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let room = self.by_context.get_mut(&context);
        if let Some(room) = room.and_then(|room| room.get_mut(start..start.saturating_add(len))) {
            copy(room);
        }
    }
}
