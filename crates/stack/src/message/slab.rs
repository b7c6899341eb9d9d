//! A table whose slots are used again, with handles that outlive them harmlessly.

use serde::{Deserialize, Serialize};
use std::ops::{Index, IndexMut};

use super::api::{ClaimId, EndpointId, ReceiveId, SendId};

/// What names a slot and one of its uses.
pub(super) trait Handle: Copy {
    fn new(index: u32, generation: u32) -> Self;
    fn parts(self) -> (u32, u32);
}

macro_rules! handles {
    ($($name:ident),*) => {
        $(impl Handle for $name {
            fn new(index: u32, generation: u32) -> Self {
                Self { index, generation }
            }

            fn parts(self) -> (u32, u32) {
                (self.index, self.generation)
            }
        })*
    };
}

/// A message on its way in, or unexpected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IncomingId {
    pub index: u32,
    pub generation: u32,
}

/// An open association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AssociationId {
    pub index: u32,
    pub generation: u32,
}

handles!(EndpointId, SendId, ReceiveId, IncomingId, AssociationId);

impl From<IncomingId> for ClaimId {
    fn from(id: IncomingId) -> Self {
        Self { index: id.index, generation: id.generation }
    }
}

impl From<ClaimId> for IncomingId {
    fn from(id: ClaimId) -> Self {
        Self { index: id.index, generation: id.generation }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The table. It grows to the most there ever were at once, and keeps its memory.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "T: Serialize", deserialize = "T: Deserialize<'de>"))]
pub(super) struct Slab<H, T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    handle: std::marker::PhantomData<H>,
}

impl<H: Handle, T> Slab<H, T> {
    pub fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), handle: std::marker::PhantomData }
    }

    pub fn insert(&mut self, value: T) -> H {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 1, value: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        H::new(index, slot.generation)
    }

    pub fn remove(&mut self, id: H) -> Option<T> {
        let (index, generation) = id.parts();
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation != generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(value)
    }

    /// Frees a slot in its place. For values that are long and hold nothing.
    pub fn release(&mut self, id: H) {
        let (index, generation) = id.parts();
        let slot = self.slots.get_mut(index as usize).filter(|it| it.generation == generation);
        if let Some(slot) = slot.filter(|it| it.value.is_some()) {
            slot.value = None;
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(index);
        }
    }

    pub fn get(&self, id: H) -> Option<&T> {
        let (index, generation) = id.parts();
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == generation)
    }

    pub fn get_mut(&mut self, id: H) -> Option<&mut T> {
        let (index, generation) = id.parts();
        let slot = self.slots.get_mut(index as usize)?;
        slot.value.as_mut().filter(|_| slot.generation == generation)
    }

    /// The handle of whatever uses the slot now.
    pub fn at(&self, index: u32) -> Option<H> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref().map(|_| H::new(index, slot.generation))
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Slots that there are, used or not.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn iter(&self) -> impl Iterator<Item = (H, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            slot.value.as_ref().map(|value| (H::new(index as u32, slot.generation), value))
        })
    }
}

impl<H: Handle, T> Index<H> for Slab<H, T> {
    type Output = T;

    fn index(&self, id: H) -> &T {
        self.get(id).expect("the core's own handles are those of used slots")
    }
}

impl<H: Handle, T> IndexMut<H> for Slab<H, T> {
    fn index_mut(&mut self, id: H) -> &mut T {
        self.get_mut(id).expect("the core's own handles are those of used slots")
    }
}
