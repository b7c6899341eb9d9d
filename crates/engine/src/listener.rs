//! Listeners: one for each local address, shared by every session that has shown the kernel's
//! socket for it.

use stack::api::{Local, SocketId};

use crate::share::Entry;

/// A listener of the stack and the endpoints that stand for it.
#[derive(Debug)]
pub struct Listener {
    /// In the stack.
    pub id: SocketId,
    /// Where it listens.
    pub local: Local,
    /// The first socket shown for it has SO_REUSEADDR or SO_REUSEPORT.
    pub reuses: bool,
    /// Counts for the user who made it.
    _entry: Entry,
    /// Connections that wait, as last published.
    pub pending: u32,
    /// Endpoints: session place and index.
    attached: Vec<(u32, u32)>,
}

impl Listener {
    /// The endpoints that stand for it.
    pub fn attached(&self) -> &[(u32, u32)] {
        &self.attached
    }
}

/// Endpoints that may stand for one listener: each is told of every connection that waits.
pub const SHARERS_MAX: usize = 1024;

/// All listeners of a worker.
#[derive(Debug, Default)]
pub struct Listeners {
    entries: Vec<Option<Listener>>,
}

impl Listeners {
    /// The listener at `local`, if there is one.
    pub fn find(&self, local: Local) -> Option<u32> {
        (0..).zip(&self.entries).find_map(|(index, entry)| {
            entry.as_ref().filter(|listener| listener.local == local).map(|_| index)
        })
    }

    /// Where they listen.
    pub fn locals(&self) -> Vec<Local> {
        self.entries.iter().flatten().map(|listener| listener.local).collect()
    }

    /// The index that the next [`Listeners::add`] will use.
    pub fn next_index(&self) -> u32 {
        self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len()) as u32
    }

    /// Adds a listener.
    pub fn add(&mut self, id: SocketId, local: Local, reuses: bool, entry: Entry) -> u32 {
        let index = self.next_index();
        let listener =
            Listener { id, local, reuses, _entry: entry, pending: 0, attached: Vec::new() };
        match self.entries.get_mut(index as usize) {
            Some(entry) => *entry = Some(listener),
            None => self.entries.push(Some(listener)),
        }
        index
    }

    /// A listener by index.
    pub fn at(&mut self, index: u32) -> Option<&mut Listener> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// A listener by index.
    pub fn peek(&self, index: u32) -> Option<&Listener> {
        self.entries.get(index as usize)?.as_ref()
    }

    /// An endpoint stands for the listener from now on.
    pub fn attach(&mut self, index: u32, place: u32, endpoint: u32) {
        if let Some(listener) = self.at(index) {
            listener.attached.push((place, endpoint));
        }
    }

    /// An endpoint no longer stands for it. `Some`: nobody does, and the listener is removed.
    pub fn detach(&mut self, index: u32, place: u32, endpoint: u32) -> Option<Listener> {
        let entry = self.entries.get_mut(index as usize)?;
        let listener = entry.as_mut()?;
        listener.attached.retain(|one| *one != (place, endpoint));
        if listener.attached.is_empty() { entry.take() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::Tally;

    #[test]
    fn the_last_to_leave_closes() {
        let mut listeners = Listeners::default();
        let local = Local::from(std::net::SocketAddr::from(([10, 0, 0, 2], 80)));
        let id = SocketId { index: 1, generation: 0 };
        let tally = Tally::default();
        let index = listeners.add(id, local, false, Entry::new(&tally, &tally));
        listeners.attach(index, 0, 7);
        listeners.attach(index, 1, 7);
        assert_eq!(listeners.find(local), Some(index));
        assert_eq!(listeners.at(index).unwrap().attached(), [(0, 7), (1, 7)]);
        assert!(listeners.detach(index, 0, 7).is_none());
        assert!(listeners.detach(index, 1, 7).is_some());
        assert_eq!(listeners.find(local), None);
        assert_eq!(listeners.next_index(), index);
    }
}
