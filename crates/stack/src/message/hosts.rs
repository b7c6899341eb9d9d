//! Hosts that messages are exchanged with, and the epochs that are remembered of them.

use serde::{Deserialize, Serialize};
use wire::message::Epoch;

use super::api::{Host, MessageError, PathAddresses};
use super::association::{Known, Peer};
use super::reset::Rate;
use super::slab::AssociationId;
use super::{Bugs, Core, Planted, ROOM_MIN};

/// Epochs that are remembered at most, of all jobs and hosts.
const REMEMBERED_MAX: usize = 65_536;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HostState {
    pub addresses: PathAddresses,
    pub room: u16,
    pub resets: Rate,
    /// Open associations with it, in order of their jobs.
    associations: Vec<(u32, AssociationId)>,
    /// False: its slot is free.
    pub added: bool,
}

impl HostState {
    fn new(addresses: PathAddresses, room: u16) -> Self {
        let (resets, associations) = (Rate::default(), Vec::new());
        Self { addresses, room, resets, associations, added: true }
    }

    /// The association that is open for a job.
    pub fn association(&self, job: u32) -> Option<AssociationId> {
        let found = self.associations.binary_search_by_key(&job, |it| it.0);
        found.ok().and_then(|at| self.associations.get(at)).map(|it| it.1)
    }

    /// Notes an association that has opened; there was none for its job.
    pub fn opened(&mut self, job: u32, id: AssociationId) {
        let at = self.associations.partition_point(|it| it.0 < job);
        self.associations.insert(at, (job, id));
    }

    /// Notes that the job's association has ended.
    pub fn ended(&mut self, job: u32) {
        self.associations.retain(|it| it.0 != job);
    }

    /// The engine's own endpoints.
    pub fn local() -> Self {
        Self::new(PathAddresses { local: [0; 16], remote: [0; 16] }, u16::MAX)
    }
}

impl<B: Bugs> Core<B> {
    /// Adds a host with a path of so much room: bytes of a packet behind its UDP or Ethernet header.
    /// Less than [`ROOM_MIN`] counts as that. [`forget_hosts`](Self::forget_hosts) removes it.
    ///
    /// # Errors
    /// [`MessageError::TooMany`]: there are as many as there may be.
    pub fn add_host(&mut self, addresses: PathAddresses, room: u16) -> Result<Host, MessageError> {
        let state = HostState::new(addresses, room.max(ROOM_MIN));
        if let Some(free) = self.free_hosts.pop() {
            self.hosts[free as usize] = state;
            return Ok(Host(free));
        }
        if self.hosts.len() > self.config.hosts as usize {
            return Err(MessageError::TooMany);
        }
        self.hosts.push(state);
        Ok(Host(self.hosts.len() as u32 - 1))
    }

    /// Changes the room of a host's path. Frames that were cut for more are still sent as they are.
    pub fn set_room(&mut self, host: Host, room: u16) {
        if let Some(state) = self.hosts.get_mut(host.index()) {
            state.room = room.max(ROOM_MIN);
        }
    }

    pub(super) fn has_host(&self, host: Host) -> bool {
        self.hosts.get(host.index()).is_some_and(|it| it.added)
    }

    /// Forgets jobs whose time is over, and hosts that nothing is about any more: no association,
    /// no epoch of a known job, no receive and no message. Their handles are given again. Looks at all
    /// that there is: for when [`add_host`](Self::add_host) finds no room, and not often then.
    pub fn forget_hosts(&mut self, now: u64, mut gone: impl FnMut(Host)) {
        self.now = now;
        self.forget_jobs();
        let mut used = vec![false; self.hosts.len()];
        let mut keep = |host: Host| used[host.index()] = true;
        keep(Host::LOCAL);
        self.jobs.iter().flat_map(|job| job.peers.keys()).for_each(|host| keep(Host(*host)));
        self.associations.iter().for_each(|(_, it)| keep(it.peer.host));
        self.incoming.iter().for_each(|(_, it)| keep(it.key.source.host));
        self.endpoints.iter().flat_map(|(_, it)| it.posted.hosts()).for_each(&mut keep);
        self.resets.iter().for_each(|reset| keep(reset.host));
        for (index, host) in self.hosts.iter_mut().enumerate() {
            if host.added && !used[index] {
                host.added = false;
                self.free_hosts.push(index as u32);
                self.counters.hosts_forgotten += 1;
                gone(Host(index as u32));
            }
        }
    }

    fn forget_jobs(&mut self) {
        for job in 0..self.jobs.len() {
            if !self.jobs[job].is_known(self.now) && !self.jobs[job].peers.is_empty() {
                self.forget_job(job as u32);
            }
        }
    }

    /// The association that is open with a peer.
    pub(super) fn association_with(&self, peer: Peer) -> Option<AssociationId> {
        self.hosts[peer.host.index()].association(peer.job)
    }

    /// Whether the epochs of a peer are remembered, or can be.
    pub(super) fn has_place_for(&mut self, peer: Peer) -> bool {
        if self.jobs[peer.job as usize].peers.contains_key(&peer.host.0) {
            return true;
        }
        if self.remembered >= REMEMBERED_MAX {
            self.forget_jobs();
        }
        let has = self.remembered < REMEMBERED_MAX;
        self.counters.peers_refused += u64::from(!has);
        has
    }

    fn entry(&mut self, peer: Peer) -> &mut Known {
        let peers = &mut self.jobs[peer.job as usize].peers;
        self.remembered += usize::from(!peers.contains_key(&peer.host.0));
        peers.entry(peer.host.0).or_default()
    }

    /// What is remembered of a peer.
    pub(super) fn known(&self, peer: Peer) -> Known {
        self.jobs[peer.job as usize].peers.get(&peer.host.0).copied().unwrap_or_default()
    }

    /// Remembers the other host's epoch.
    pub(super) fn remember(&mut self, peer: Peer, theirs: Epoch) {
        if !self.bugs.has(Planted::EpochForgotten) {
            self.entry(peer).theirs = theirs;
        }
    }

    /// Raises what the next epoch for a peer is above.
    pub(super) fn raise(&mut self, peer: Peer, ours: Epoch) {
        let known = self.entry(peer);
        known.ours = known.ours.max(ours);
    }

    /// Takes an epoch for a peer above all that it had from us.
    pub(super) fn take_epoch(&mut self, peer: Peer) -> Epoch {
        // A hostile member can use up all lives; `above` keeps the order then.
        self.next_life = self.next_life.wrapping_add(1);
        let incarnation = self.config.incarnation;
        let same = self.bugs.has(Planted::LifeNotRaised);
        let life = if same { 1 } else { self.next_life };
        let known = self.entry(peer);
        let above = match known.ours.life.checked_add(1) {
            Some(life) => Epoch { incarnation: known.ours.incarnation, life },
            None => Epoch { incarnation: known.ours.incarnation.saturating_add(1), life: 1 },
        };
        let epoch = Epoch { incarnation, life };
        known.ours = if same { epoch } else { epoch.max(above) };
        known.ours
    }
}
