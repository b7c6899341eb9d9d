//! Listeners: one for each local address, shared by every session that has passed the kernel socket
//! for it.

use std::collections::BTreeMap;

use stack::api::{Local, SocketId};

use crate::control::exchange::SocketKey;
use crate::share::Entry;

/// A listener of the stack and its endpoints.
#[derive(Debug)]
pub struct Listener {
    /// Its socket in the stack.
    pub id: SocketId,
    /// Where it listens.
    pub local: Local,
    /// The first socket passed for it has SO_REUSEADDR or SO_REUSEPORT.
    pub reuses: bool,
    /// The entry that counts for the user who created it.
    _entry: Entry,
    /// Connections that wait, as last published.
    pub pending: u32,
    /// The kernel socket for it, or several with SO_REUSEPORT.
    sockets: Vec<SocketKey>,
    /// The use of a socket without endpoints, which reports the socket's end.
    pub kept_use: Option<SocketKey>,
    /// Other processes may still have that socket when the last endpoint is closed.
    pub outlives: bool,
    /// Until then new connections go to the kernel, if it has the address.
    pub left_until: Option<u64>,
    /// It has no endpoint. Until then it waits for another process to attach.
    pub unattended_until: Option<u64>,
    /// Endpoints: session place and index.
    attached: Vec<(u32, u32)>,
}

impl Listener {
    /// The endpoints attached to it.
    pub fn attached(&self) -> &[(u32, u32)] {
        &self.attached
    }
}

/// Maximum number of endpoints of one listener: each gets an event for every pending connection.
pub const SHARERS_MAX: usize = 1024;

/// All listeners of a worker.
#[derive(Debug, Default)]
pub struct Listeners {
    entries: Vec<Option<Listener>>,
    /// The listener of each kernel socket.
    by_socket: BTreeMap<SocketKey, u32>,
}

impl Listeners {
    /// The listener at `local`, if there is one.
    pub fn find(&self, local: Local) -> Option<u32> {
        (0..).zip(&self.entries).find_map(|(index, entry)| {
            entry.as_ref().filter(|listener| listener.local == local).map(|_| index)
        })
    }

    /// All, with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Listener)> {
        (0..).zip(&self.entries).filter_map(|(index, entry)| Some((index, entry.as_ref()?)))
    }

    /// The listener of a kernel socket.
    pub fn of_socket(&self, key: SocketKey) -> Option<u32> {
        self.by_socket.get(&key).copied()
    }

    /// The index that the next [`Listeners::add`] will use.
    pub fn next_index(&self) -> u32 {
        self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len()) as u32
    }

    /// Adds a listener.
    pub fn add(&mut self, id: SocketId, local: Local, reuses: bool, entry: Entry) -> u32 {
        let index = self.next_index();
        let listener = Listener {
            id,
            local,
            reuses,
            _entry: entry,
            pending: 0,
            sockets: Vec::new(),
            kept_use: None,
            outlives: false,
            left_until: None,
            unattended_until: None,
            attached: Vec::new(),
        };
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

    /// Attaches an endpoint to the listener, by this kernel socket.
    pub fn attach(&mut self, index: u32, place: u32, endpoint: u32, key: SocketKey) {
        let known = self.of_socket(key);
        if known.is_some_and(|of| of != index) {
            self.forget_socket(key);
        }
        let Some(listener) = self.at(index) else { return };
        listener.attached.push((place, endpoint));
        // Bounded like the endpoints.
        if known != Some(index) && listener.sockets.len() < SHARERS_MAX {
            listener.sockets.push(key);
            self.by_socket.insert(key, index);
        }
    }

    /// A kernel socket was closed. Returns its listener, if it had one.
    pub fn forget_socket(&mut self, key: SocketKey) -> Option<u32> {
        let of = self.by_socket.remove(&key)?;
        self.at(of)?.sockets.retain(|one| *one != key);
        Some(of)
    }

    /// Detaches an endpoint. `true`: it was the last.
    pub fn detach(&mut self, index: u32, place: u32, endpoint: u32) -> bool {
        let Some(listener) = self.at(index) else { return false };
        listener.attached.retain(|one| *one != (place, endpoint));
        listener.attached.is_empty()
    }

    /// Removes a listener.
    pub fn remove(&mut self, index: u32) -> Option<Listener> {
        let listener = self.entries.get_mut(index as usize)?.take()?;
        for key in &listener.sockets {
            self.by_socket.remove(key);
        }
        Some(listener)
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
        let key = SocketKey { namespace: 0, cookie: 5 };
        listeners.attach(index, 0, 7, key);
        listeners.attach(index, 1, 7, key);
        assert_eq!(listeners.find(local), Some(index));
        assert_eq!(listeners.at(index).unwrap().attached(), [(0, 7), (1, 7)]);
        assert_eq!(listeners.forget_socket(key), Some(index));
        assert_eq!(listeners.forget_socket(key), None);
        assert!(!listeners.detach(index, 0, 7));
        assert!(listeners.detach(index, 1, 7));
        assert!(listeners.remove(index).is_some());
        assert_eq!(listeners.find(local), None);
        assert_eq!(listeners.next_index(), index);
    }
}
