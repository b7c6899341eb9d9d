//! Frames of somebody who does not know the job's key: frames that were seen, with something changed,
//! and new ones under a key of his own.

use stack::message::JobKey;
use wire::message::{Body, COMMON_LEN, Epoch, Epochs, Frame, job_identifier, seal};

use crate::random::Random;

use super::HOSTS;
use super::network::{Network, Packet};

/// One step in so many has a forged frame.
const FORGED_OF: u64 = 32;

/// A frame, for host `to`, in the name of host `from`.
pub(super) struct Forged {
    pub from: usize,
    pub to: usize,
    pub bytes: Vec<u8>,
}

pub(super) struct Forger {
    random: Random,
}

impl Forger {
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed, 0x666f_7267) }
    }

    /// A forged frame, now and then.
    pub fn forge(&mut self, network: &Network, keys: &[JobKey]) -> Option<Forged> {
        if !self.random.chance(1, FORGED_OF) {
            return None;
        }
        let seen = network.seen(&mut self.random).filter(|_| self.random.chance(2, 3));
        Some(match seen {
            Some(packet) => self.changed(packet),
            None => self.own(keys),
        })
    }

    /// A packet's first frame, with a bit of its header changed. The checksum is the link's, not the
    /// protocol's.
    fn changed(&mut self, packet: &Packet) -> Forged {
        let Packet { from, to, ref bytes } = *packet;
        let behind = bytes.get(2..4).map_or(0, |len| u16::from_be_bytes([len[0], len[1]]));
        let len = (COMMON_LEN + usize::from(behind)).min(bytes.len());
        let mut bytes = bytes[..len].to_vec();
        let place = self.random.pick(&[0, 1, 2, 3, 5, 7, 8, 11, 12, 13, 16, 19, 23]);
        if let Some(byte) = bytes.get_mut(place) {
            *byte ^= 1 << self.random.below(8);
        }
        Forged { from, to, bytes }
    }

    fn own(&mut self, keys: &[JobKey]) -> Forged {
        let r = &mut self.random;
        let from = r.below(HOSTS as u64) as usize;
        let to = (from + 1 + r.below(HOSTS as u64 - 1) as usize) % HOSTS;
        let small = r.below(4) as u32;
        let body = match r.below(8) {
            0 => Body::Start {
                source: 1,
                destination: 1,
                immediate: 0,
                tag: u64::from(small),
                number: small << 12,
                length: 8,
            },
            1 => Body::More { number: small << 12, offset: 0 },
            2 => Body::Done { message: small << 12, status: small },
            3 => Body::Hold { message: small << 12, offset: 0 },
            4 => Body::Grant { number: small << 12, offset: 10_000 },
            5 => Body::Abort { number: small << 12, reason: 0 },
            6 => Body::Ack { newest: small, answered: small },
            _ => {
                let sender = Epoch { incarnation: r.below(2_000), life: small };
                Body::Reset { authenticator: r.any(), epochs: Epochs { sender, receiver: sender } }
            }
        };
        let epochs = r.chance(1, 3).then(|| Epochs {
            sender: Epoch { incarnation: r.below(2_000), life: small },
            receiver: Epoch::default(),
        });
        let sequence = r.scale_free(1_000) as u32;
        let job = job_identifier(&r.pick(keys));
        let frame =
            Frame { flags: r.any() as u8, job, sequence, counter: small as u16, epochs, body };
        let mut bytes = vec![0; 256];
        let payload = 8;
        let len = frame.emit(&mut bytes, payload).unwrap_or(0);
        let key: [u8; 16] = std::array::from_fn(|_| r.any() as u8);
        seal(&mut bytes[..len], &key, 0);
        bytes.truncate(len + payload);
        Forged { from, to, bytes }
    }
}
