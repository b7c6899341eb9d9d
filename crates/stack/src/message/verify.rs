//! Frames from the network: whose they are, whether they are genuine, and what they are about.

use wire::message::{Body, Epoch, Epochs, Frame, Frames, Received, flags, flow_key};

use super::acknowledge::AckFields;
use super::api::{Host, Memory, Status};
use super::arrivals::Novelty;
use super::association::Peer;
use super::decide::Verdict;
use super::reset::{INCARNATION_MAX, ResetFields};
use super::ring::extend;
use super::send::Hold;
use super::slab::AssociationId;
use super::{Bugs, Core, Planted};

/// An ACK waits so long for a frame to ride with, nanoseconds.
const ACK_DELAY_NS: u64 = 50_000;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is the job's: taken, or dropped with a count.
    Genuine,
    /// It is not.
    Foreign,
}

use Outcome::{Foreign, Genuine};

/// A frame of a job's host.
#[derive(Clone, Copy)]
struct Arrival<'a> {
    peer: Peer,
    /// The association that is open with it.
    open: Option<AssociationId>,
    received: &'a Received<'a>,
}

impl<B: Bugs> Core<B> {
    /// Takes a packet of a host: everything behind its UDP or Ethernet header.
    pub fn on_frame(&mut self, now: u64, host: Host, packet: &[u8], memory: &mut dyn Memory) {
        self.now = now;
        if host == Host::LOCAL || !self.has_host(host) {
            return;
        }
        for received in Frames::new(packet) {
            let Ok(received) = received else {
                self.counters.drop_malformed += 1;
                return;
            };
            self.on_received(host, &received, memory);
        }
    }

    fn on_received(&mut self, host: Host, received: &Received<'_>, memory: &mut dyn Memory) {
        let mut known = false;
        let identifier = received.frame.job;
        let first = self.identifiers.partition_point(|it| it.0 < identifier);
        // A few keys may share an identifier.
        for at in first.. {
            let Some(&(_, job)) = self.identifiers.get(at).filter(|it| it.0 == identifier) else {
                break;
            };
            if !self.jobs[job as usize].is_known(self.now) {
                continue;
            }
            known = true;
            if self.try_job(Peer { host, job }, received, memory) == Genuine {
                return;
            }
        }
        if known {
            self.counters.drop_unverified += 1;
        } else {
            self.counters.drop_unknown_job += 1;
        }
    }

    fn try_job(&mut self, peer: Peer, received: &Received<'_>, memory: &mut dyn Memory) -> Outcome {
        let open = self.association_with(peer);
        if let Body::Reset { authenticator, epochs } = received.frame.body {
            let genuine = self.is_under(peer, received, &Epochs::default(), 0);
            if genuine {
                let Frame { flags, sequence, .. } = received.frame;
                let fields = ResetFields { flags, sequence, authenticator, epochs };
                self.on_reset(peer, fields, memory);
            }
            return if genuine { Genuine } else { Foreign };
        }
        let arrival = Arrival { peer, open, received };
        match received.frame.epochs {
            None => self.try_plain(arrival, memory),
            Some(epochs) => self.try_first(arrival, epochs, memory),
        }
    }

    /// A frame without epochs: of the open association, or of one that is not known any more.
    fn try_plain(&mut self, arrival: Arrival<'_>, memory: &mut dyn Memory) -> Outcome {
        let Arrival { peer, open, received } = arrival;
        let mut verified = false;
        if let Some(id) = open {
            let it = &self.associations[id];
            verified = it.verified;
            if it.theirs.is_some() {
                let sequence = self.sequence(id, received);
                if received.verify(&it.key_in, (sequence >> 32) as u32)
                    || self.bugs.has(Planted::KeyIgnored)
                {
                    self.associations[id].verified = true;
                    self.process(id, sequence, received, memory);
                    return Genuine;
                }
            }
        }
        if !verified && received.frame.body.is_sequenced() {
            self.queue_reset(peer, received, 0);
        }
        Foreign
    }

    /// A frame that says its epochs.
    fn try_first(
        &mut self,
        arrival: Arrival<'_>,
        epochs: Epochs,
        memory: &mut dyn Memory,
    ) -> Outcome {
        let Arrival { peer, open, received } = arrival;
        let known = self.known(peer);
        let unknown = epochs.receiver == Epoch::UNKNOWN;
        if epochs.sender.incarnation > INCARNATION_MAX {
            return Foreign;
        }
        if unknown
            && !matches!(
                received.frame.body,
                Body::Start { .. } | Body::More { .. } | Body::Abort { .. } | Body::Probe
            )
        {
            return Foreign;
        }
        if let Some(id) = open {
            let it = &self.associations[id];
            let current = epochs.receiver == it.ours;
            let same = it.theirs == Some(epochs.sender);
            let learns = it.theirs.is_none() && epochs.sender > known.theirs;
            if (unknown || current) && (same || learns) {
                let sequence = self.sequence(id, received);
                if !self.is_under(peer, received, &epochs, (sequence >> 32) as u32) {
                    return Foreign;
                }
                let (job, path) = (self.job_key(peer.job), self.hosts[peer.host.index()].addresses);
                let it = &mut self.associations[id];
                if learns {
                    it.theirs = Some(epochs.sender);
                    it.make_keys(&job, &path);
                    self.remember(peer, epochs.sender);
                }
                self.associations[id].verified |= current;
                self.process(id, sequence, received, memory);
                return Genuine;
            }
        }
        let sequence = extend(received.frame.sequence, 0);
        if !self.is_under(peer, received, &epochs, (sequence >> 32) as u32) {
            return Foreign;
        }
        if epochs.sender > known.theirs && unknown {
            if !self.has_place_for(peer) {
                return Genuine;
            }
            if let Some(id) = open {
                self.end_association(id, Status::Reset, memory);
            }
            self.remember(peer, epochs.sender);
            let id = self.open_association(peer, Some(epochs.sender));
            self.process(id, sequence, received, memory);
        } else {
            self.queue_reset(peer, received, flags::VERIFIED);
        }
        Genuine
    }

    /// Whether a frame from the peer was sealed under these epochs.
    pub(super) fn is_under(
        &self,
        peer: Peer,
        received: &Received<'_>,
        epochs: &Epochs,
        upper: u32,
    ) -> bool {
        let path = &self.hosts[peer.host.index()].addresses;
        let key = flow_key(&self.job_key(peer.job), &path.remote, &path.local, epochs);
        received.verify(&key, upper) || self.bugs.has(Planted::KeyIgnored)
    }

    /// The whole sequence of a frame.
    fn sequence(&self, id: AssociationId, received: &Received<'_>) -> u64 {
        let it = &self.associations[id];
        let near = match received.frame.body {
            Body::Ack { .. } => it.ring.base,
            _ => it.arrivals.next,
        };
        extend(received.frame.sequence, near)
    }

    /// Takes a genuine frame.
    fn process(
        &mut self,
        id: AssociationId,
        sequence: u64,
        received: &Received<'_>,
        memory: &mut dyn Memory,
    ) {
        let now = self.now;
        self.counters.frames_in += 1;
        self.associations[id].heard_at = now;
        let frame = &received.frame;
        if let Body::Ack { newest, answered } = frame.body {
            let duplicates = frame.flags & flags::DUPLICATES != 0;
            let fields = AckFields { newest, answered, waited: frame.counter, duplicates };
            self.on_ack(id, sequence, received, fields);
            return self.touch(id);
        }
        match self.associations[id].arrivals.novelty(sequence) {
            Novelty::New => {}
            Novelty::Duplicate => {
                self.counters.drop_duplicate += 1;
                self.owe(id, now, true);
                self.associations[id].owed.duplicates = true;
                return self.touch(id);
            }
            Novelty::Beyond => {
                self.counters.drop_beyond += 1;
                return;
            }
        }
        if self.take(id, sequence, received, memory) == Verdict::Taken {
            let it = &mut self.associations[id];
            it.arrivals.insert(sequence, now);
            let at_once = frame.flags & flags::ACK_NOW != 0 || it.arrivals.has_gap();
            self.owe(id, now + ACK_DELAY_NS, at_once);
            self.decide_waiting(id);
        }
        self.touch(id);
    }

    /// Does what a new sequenced frame says.
    fn take(
        &mut self,
        id: AssociationId,
        sequence: u64,
        received: &Received<'_>,
        memory: &mut dyn Memory,
    ) -> Verdict {
        let frame = &received.frame;
        let whole = frame.flags & flags::WHOLE != 0;
        match frame.body {
            Body::Start { .. } => return self.on_start(id, received, memory),
            Body::More { .. } => return self.on_more(id, sequence, received, memory),
            Body::Abort { number, .. } => return self.on_abort(id, sequence, number, memory),
            Body::Read(_) | Body::Write(_) | Body::Atomic { .. } => {
                return self.on_remote(id, received, memory);
            }
            Body::Probe if frame.flags & flags::ORDERED != 0 => {
                let order = self.associations[id].arrivals.extend_order(frame.counter);
                if !self.associations[id].arrivals.order_is_new(order) {
                    self.counters.drop_invalid += 1;
                    return Verdict::Dropped;
                }
                self.on_order(id, order, None, memory);
            }
            Body::Done { message, status } => self.on_done(id, message, status, whole),
            Body::Grant { number, offset } => self.on_grant(id, number, offset, frame.counter),
            Body::Hold { message, offset } => {
                let refused = frame.flags & flags::REFUSED != 0;
                let attempt = frame.counter;
                self.on_hold(id, Hold { message, offset, attempt, refused, whole });
            }
            Body::Go { port } => self.on_go(id, port),
            Body::Probe | Body::Reply { .. } | Body::Ack { .. } | Body::Reset { .. } => {}
        }
        Verdict::Taken
    }
}
