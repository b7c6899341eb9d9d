//! RESET: what tells a host that its association is not known here.

use serde::{Deserialize, Serialize};
use wire::message::{Body, Epoch, Epochs, Frame, Received, flags, flow_key, seal};

use super::api::{Host, Memory, Packet, Status};
use super::association::Peer;
use super::slab::AssociationId;
use super::{Bugs, Core};

/// RESETs a second to one host, and in all.
const PER_HOST: u32 = 100;
const ALL: u32 = 1_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Higher incarnations are nobody's: microseconds since 1970 reach it in 146,000 years. A host that
/// names one would leave no epoch above it.
pub(super) const INCARNATION_MAX: u64 = u64::MAX >> 2;

/// How many there were in this second.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Rate {
    since: u64,
    count: u32,
}

impl Rate {
    fn take(&mut self, now: u64, most: u32) -> bool {
        if now >= self.since + SECOND_NS {
            *self = Self { since: now, count: 0 };
        }
        self.count += u32::from(self.count <= most);
        self.count <= most
    }
}

/// A RESET to send.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Reset {
    pub host: Host,
    pub job: u32,
    sequence: u32,
    authenticator: u64,
    epochs: Epochs,
    flags: u8,
}

/// A RESET's fields, and how it names the frame that drew it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResetFields {
    pub flags: u8,
    pub sequence: u32,
    pub authenticator: u64,
    pub epochs: Epochs,
}

impl<B: Bugs> Core<B> {
    /// Answers a frame that belongs to no open association. `verified` is [`flags::VERIFIED`] or 0.
    pub(super) fn queue_reset(&mut self, peer: Peer, received: &Received<'_>, verified: u8) {
        let now = self.now;
        let open = self.association_with(peer).map(|id| &self.associations[id]);
        let open = if open.is_some_and(|it| it.theirs.is_some()) { flags::OPEN } else { 0 };
        let known = self.known(peer);
        let host = &mut self.hosts[peer.host.index()];
        if !host.resets.take(now, PER_HOST) || !self.reset_rate.take(now, ALL) {
            self.counters.resets_limited += 1;
            return;
        }
        let incarnation = self.config.incarnation;
        let ours = known.ours.max(Epoch { incarnation, life: 0 });
        self.resets.push_back(Reset {
            host: peer.host,
            job: peer.job,
            sequence: received.frame.sequence,
            authenticator: received.authenticator,
            epochs: Epochs { sender: ours, receiver: known.theirs },
            flags: verified | open,
        });
    }

    pub(super) fn emit_reset(&mut self, out: &mut [u8]) -> Option<Packet> {
        let reset = self.resets.pop_front()?;
        let frame = Frame {
            flags: reset.flags,
            job: self.jobs[reset.job as usize].identifier,
            sequence: reset.sequence,
            counter: 0,
            epochs: None,
            body: Body::Reset { authenticator: reset.authenticator, epochs: reset.epochs },
        };
        let len = frame.emit(out, 0).ok()?;
        let path = &self.hosts[reset.host.index()].addresses;
        let job = self.job_key(reset.job);
        let key = flow_key(&job, &path.local, &path.remote, &Epochs::default());
        seal(&mut out[..len], &key, 0);
        self.counters.resets_out += 1;
        Some(Packet { host: reset.host, len, payload: None })
    }

    /// Ends the association if the frame that drew the RESET is under way. The next epoch for this
    /// peer is above the one that it remembers.
    pub(super) fn on_reset(&mut self, peer: Peer, fields: ResetFields, memory: &mut dyn Memory) {
        let named = fields.epochs.receiver;
        let drawn = self.association_with(peer).filter(|id| self.draws(*id, &fields));
        let Some(id) = drawn.filter(|_| named.incarnation <= INCARNATION_MAX) else {
            self.counters.drop_reset += 1;
            return;
        };
        self.raise(peer, named);
        self.end_association(id, Status::Reset, memory);
    }

    /// Whether a frame under way has drawn this RESET. One that was changed on its way has not: it
    /// left with epochs and came without, or its association is the one that is open there.
    fn draws(&self, id: AssociationId, fields: &ResetFields) -> bool {
        let it = &self.associations[id];
        let record = it.ring.extend(fields.sequence).and_then(|sequence| it.ring.get(sequence));
        let has = |flag| fields.flags & flag != 0;
        let ours = Epochs { sender: it.theirs.unwrap_or(Epoch::UNKNOWN), receiver: it.ours };
        record.is_some_and(|record| {
            record.sent
                && record.authenticator == fields.authenticator
                && (has(flags::VERIFIED) || !record.first)
        }) && !(has(flags::OPEN) && fields.epochs == ours)
    }
}
