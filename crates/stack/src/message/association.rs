//! What joins two hosts of a job: epochs, keys and a flow in each direction.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use wire::message::{Epoch, Epochs, flow_key};

use super::api::{Host, JobKey, PathAddresses, SendId};
use super::arrivals::Arrivals;
use super::pace::Pace;
use super::ring::{Content, Control, Ring};
use super::slab::{AssociationId, IncomingId};
use super::{Bugs, Core, Hashed};

/// Whom an association is with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Peer {
    pub host: Host,
    pub job: u32,
}

/// The epochs last seen between us and a host.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Known {
    /// The highest that we took, or that the other one has of us.
    pub ours: Epoch,
    /// The other one's.
    pub theirs: Epoch,
}

/// The programs that share a key.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub key: Option<JobKey>,
    pub identifier: u32,
    pub endpoints: u32,
    /// When its last endpoint closed.
    pub idle_since: u64,
    #[serde(serialize_with = "crate::in_order::write")]
    pub peers: Hashed<u32, Known>,
}

/// A port of the other host that refused messages.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Mark {
    pub port: u16,
    /// Messages for it that have not begun, the refused ones first, by order.
    pub queue: VecDeque<SendId>,
    /// GO has come, or the timer.
    pub go: bool,
    /// When the first is tried without GO.
    pub at: u64,
    pub backoff: u32,
    /// The START with RESUME that is not decided.
    pub resuming: Option<u64>,
}

/// A port of ours that refused messages of the other host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Refusing {
    pub port: u16,
    /// Messages behind this one are refused, too.
    pub order: u64,
    /// GO has not been sent for it.
    pub go_due: bool,
}

/// Numbers of messages on their way out.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Numbers {
    slots: Vec<(u16, Option<SendId>)>,
    free: VecDeque<u32>,
}

/// Numbers that a flow has: the index has 20 bits.
const NUMBERS: usize = 1 << 20;

impl Numbers {
    /// Whether a message can have one.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < NUMBERS
    }

    /// Gives a message a number; there must be room.
    pub fn take(&mut self, send: SendId) -> u32 {
        let index = self.free.pop_front().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.1 = Some(send);
        index << 12 | u32::from(slot.0)
    }

    pub fn get(&self, number: u32) -> Option<SendId> {
        let slot = self.slots.get((number >> 12) as usize)?;
        slot.1.filter(|_| u32::from(slot.0) == number & 0xfff)
    }

    pub fn free(&mut self, number: u32) {
        if self.get(number).is_some() {
            let slot = &mut self.slots[(number >> 12) as usize];
            *slot = ((slot.0 + 1) & 0xfff, None);
            self.free.push_back(number >> 12);
        }
    }
}

/// The acknowledgement that is owed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Owed {
    pub due: Option<u64>,
    pub at_once: bool,
    pub duplicates: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Association {
    pub peer: Peer,
    pub ours: Epoch,
    pub theirs: Option<Epoch>,
    /// A frame under both epochs has been verified.
    pub verified: bool,
    pub key_out: [u8; 16],
    /// Of frames under both epochs.
    pub key_in: [u8; 16],
    /// Of frames whose sender does not know our epoch.
    pub key_in_first: [u8; 16],

    pub ring: Ring,
    pub pace: Pace,
    pub next_order: u64,
    /// Messages that have not begun.
    pub waiting: VecDeque<SendId>,
    /// Messages with data to send.
    pub active: VecDeque<SendId>,
    /// The next frame is one of `active`.
    pub turn: bool,
    pub numbers: Numbers,
    pub marks: Vec<Mark>,
    /// Control frames that found no record.
    pub backlog: VecDeque<Control>,
    /// A frame that did not fit into the last packet.
    pub stashed: Option<u64>,
    /// The latest sending time of what was acknowledged.
    pub delivered_at: u64,
    /// Messages begun and not ended.
    pub open_sends: usize,

    pub arrivals: Arrivals,
    #[serde(serialize_with = "crate::in_order::write")]
    pub incoming: Hashed<u32, IncomingId>,
    pub refusing: Vec<Refusing>,
    /// One past the sequence of our last answer.
    pub answered: u64,
    pub owed: Owed,

    pub heard_at: u64,
    pub progress_at: u64,
    pub timeout_at: Option<u64>,
    /// The timeout is that of the tail probe.
    pub probing: bool,
    pub reorder_at: Option<u64>,
    pub ready: bool,
}

impl Association {
    fn new(peer: Peer, ours: Epoch, now: u64) -> Self {
        Self {
            peer,
            ours,
            theirs: None,
            verified: false,
            key_out: [0; 16],
            key_in: [0; 16],
            key_in_first: [0; 16],
            ring: Ring::new(),
            pace: Pace::new(),
            next_order: 0,
            waiting: VecDeque::new(),
            active: VecDeque::new(),
            turn: false,
            numbers: Numbers::default(),
            marks: Vec::new(),
            backlog: VecDeque::new(),
            stashed: None,
            delivered_at: 0,
            open_sends: 0,
            arrivals: Arrivals::new(),
            incoming: Hashed::default(),
            refusing: Vec::new(),
            answered: 0,
            owed: Owed::default(),
            heard_at: now,
            progress_at: now,
            timeout_at: None,
            probing: false,
            reorder_at: None,
            ready: false,
        }
    }

    /// Makes the keys for the epochs as they are known.
    pub fn make_keys(&mut self, job: &JobKey, path: &PathAddresses) {
        let theirs = self.theirs.unwrap_or(Epoch::UNKNOWN);
        let out = Epochs { sender: self.ours, receiver: theirs };
        self.key_out = flow_key(job, &path.local, &path.remote, &out);
        let both = Epochs { sender: theirs, receiver: self.ours };
        self.key_in = flow_key(job, &path.remote, &path.local, &both);
        let first = Epochs { sender: theirs, receiver: Epoch::UNKNOWN };
        self.key_in_first = flow_key(job, &path.remote, &path.local, &first);
    }

    /// The epochs that frames carry until the other one is known to have them.
    pub fn epochs(&self) -> Option<Epochs> {
        let receiver = self.theirs.unwrap_or(Epoch::UNKNOWN);
        (!self.verified).then_some(Epochs { sender: self.ours, receiver })
    }

    /// Queues a control frame behind those that wait for a record.
    pub fn control(&mut self, control: Control) {
        self.backlog.push_back(control);
        self.take_backlog();
    }

    /// Gives records to what waits for one.
    pub fn take_backlog(&mut self) {
        while !self.backlog.is_empty() && self.ring.has_room_for_control() {
            if let Some(control) = self.backlog.pop_front() {
                self.push_control(control);
            }
        }
    }

    /// Answers a START: takes a sequence at once. False: there is no record.
    #[must_use]
    pub fn answer(&mut self, control: Control) -> bool {
        let room = self.backlog.is_empty() && self.ring.has_room_for_control();
        if room {
            self.push_control(control);
        }
        room
    }

    fn push_control(&mut self, control: Control) {
        let sequence = self.ring.push(Content::Control(control), 0);
        if matches!(control, Control::Done { .. } | Control::Hold { .. }) {
            self.answered = sequence + 1;
        }
    }

    pub fn mark(&mut self, port: u16) -> Option<&mut Mark> {
        self.marks.iter_mut().find(|mark| mark.port == port)
    }
}

impl<B: Bugs> Core<B> {
    /// The job's key. Associations are only of jobs with one.
    pub(super) fn job_key(&self, job: u32) -> JobKey {
        self.jobs[job as usize].key.unwrap_or_default()
    }

    /// The association with a peer, opened if there is none; none if no more can be opened.
    pub(super) fn associate(&mut self, peer: Peer) -> Option<AssociationId> {
        match self.association_with(peer) {
            Some(id) => Some(id),
            None => self.has_place_for(peer).then(|| self.open_association(peer, None)),
        }
    }

    pub(super) fn open_association(&mut self, peer: Peer, theirs: Option<Epoch>) -> AssociationId {
        let ours = self.take_epoch(peer);
        let mut association = Association::new(peer, ours, self.now);
        association.theirs = theirs;
        association.make_keys(&self.job_key(peer.job), &self.hosts[peer.host.index()].addresses);
        self.counters.opened += 1;
        let id = self.associations.insert(association);
        self.hosts[peer.host.index()].opened(peer.job, id);
        id
    }

    /// Has the association looked at by `poll_transmit`, which sets its timer when nothing is left to
    /// send.
    pub(super) fn touch(&mut self, id: AssociationId) {
        let Some(association) = self.associations.get_mut(id) else { return };
        if !association.ready {
            association.ready = true;
            self.ready.push_back(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_at_their_bound_and_come_back_with_another_generation() {
        let send = SendId { index: 0, generation: 1 };
        let mut numbers = Numbers::default();
        for at in 0..NUMBERS as u32 {
            assert!(numbers.has_room());
            assert_eq!(numbers.take(send), at << 12);
        }
        assert!(!numbers.has_room());
        numbers.free(77 << 12);
        assert!(numbers.has_room());
        assert_eq!(numbers.take(send), 77 << 12 | 1);
        assert_eq!((numbers.get(77 << 12), numbers.get(77 << 12 | 1)), (None, Some(send)));
        assert!(!numbers.has_room());
    }
}
