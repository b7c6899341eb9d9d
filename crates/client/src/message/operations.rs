//! The operations of an endpoint in progress. Their indices are their numbers in the engine.

use shm::message::OPERATIONS_MAX;

use super::Ticket;

/// An operation in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// As given by the program.
    pub context: u64,
    /// Its kind.
    pub kind: OperationKind,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// A send whose bytes the engine has.
    Send,
    /// A send whose bytes are supplied as the engine wants them.
    Announced {
        /// Bytes of the message.
        length: u64,
        /// Bytes wanted by the engine so far.
        wanted: u64,
        /// Bytes supplied.
        fed: u64,
        /// In the list of sends to be fed.
        feeds: bool,
    },
    /// A receive with room for so many bytes.
    Receive {
        /// Bytes.
        capacity: u64,
    },
    /// A probe for an unexpected message.
    Probe,
    /// A claimed unexpected message.
    Claimed,
    /// The discarding of one.
    Discard,
}

impl OperationKind {
    /// Bytes that it can receive.
    pub fn capacity(&self) -> u64 {
        match self {
            Self::Receive { capacity } => *capacity,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    generation: u32,
    operation: Option<Operation>,
}

/// The table.
#[derive(Debug, Default)]
pub struct Operations {
    places: Vec<Place>,
    free: Vec<u32>,
}

fn split(ticket: u64) -> (u32, u32) {
    (ticket as u32, (ticket >> 32) as u32)
}

impl Operations {
    /// Records an operation; `None` if the endpoint has the maximum number.
    pub fn begin(&mut self, operation: Operation) -> Option<Ticket> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.places.len() < OPERATIONS_MAX as usize => {
                self.places.push(Place { generation: 0, operation: None });
                self.places.len() as u32 - 1
            }
            None => return None,
        };
        let place = self.places.get_mut(index as usize)?;
        place.operation = Some(operation);
        Some(Ticket(u64::from(index) | u64::from(place.generation) << 32))
    }

    /// An operation in progress.
    pub fn get(&mut self, ticket: u64) -> Option<&mut Operation> {
        let (index, generation) = split(ticket);
        let place = self.places.get_mut(index as usize)?;
        place.operation.as_mut().filter(|_| place.generation == generation)
    }

    /// Ends an operation.
    pub fn end(&mut self, ticket: u64) -> Option<Operation> {
        let (index, generation) = split(ticket);
        let place = self.places.get_mut(index as usize)?;
        if place.generation != generation {
            return None;
        }
        let operation = place.operation.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(index);
        Some(operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_names_one_operation_for_ever() {
        let mut operations = Operations::default();
        let probe = |context| Operation { context, kind: OperationKind::Probe };
        let first = operations.begin(probe(1)).unwrap();
        assert_eq!(operations.get(first.0).map(|one| one.context), Some(1));
        assert_eq!(operations.end(first.0), Some(probe(1)));
        let second = operations.begin(probe(2)).unwrap();
        assert_ne!(first, second);
        assert_eq!(operations.get(first.0), None);
        assert_eq!(operations.end(first.0), None);
        assert_eq!(operations.end(second.0), Some(probe(2)));
        for context in 0..u64::from(OPERATIONS_MAX) {
            assert!(operations.begin(probe(context)).is_some());
        }
        assert_eq!(operations.begin(probe(0)), None);
    }
}
