//! A host that has the job's key: its frames are genuine, their fields arbitrary.

use std::collections::VecDeque;

use stack::message::{EAGER_MAX, JobKey, PathAddresses, WHOLE_MAX};
use wire::message::{
    Body, Epoch, Epochs, Frame, Received, Remote, flags, flow_key, job_identifier, seal,
};

/// Takes the input apart; at its end everything is zero.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    pub fn long(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }

    /// A number of bytes: those near the core's bounds often.
    pub fn length(&mut self) -> u32 {
        let near = [0, 64, WHOLE_MAX, 1408, EAGER_MAX, 300_000, u32::MAX - 8];
        match self.byte() {
            shape @ 0..=223 => {
                let base = near[usize::from(shape) % near.len()];
                base.saturating_add(u32::from(self.byte() % 16)).saturating_sub(8)
            }
            _ => self.word(),
        }
    }
}

/// What a hostile host knows of the core, for one job.
#[derive(Default)]
pub struct Member {
    own: Epoch,
    cores: Epoch,
    sequence: u32,
    order: u16,
    /// Numbers and sequences that the core has used.
    seen: VecDeque<u32>,
    /// Authenticators and sequences of the core's frames.
    drawn: Option<(u64, u32)>,
}

impl Member {
    /// Appends a genuine frame to a packet.
    pub fn frame(
        &mut self,
        input: &mut Input<'_>,
        job: &JobKey,
        path: &PathAddresses,
        packet: &mut Vec<u8>,
    ) {
        let member = self;
        let shape = input.byte();
        let flag_bits = if shape & 1 == 0 { input.byte() } else { 0 };
        let body = body(input, member);
        let starting = matches!(
            body,
            Body::Start { .. } | Body::Read(_) | Body::Write(_) | Body::Atomic { .. }
        ) || (body == Body::Probe && flag_bits & flags::ORDERED != 0);
        let sequence = match (input.byte(), &body) {
            (_, Body::Ack { .. }) => member.seen(input),
            (_, Body::Reset { .. }) => member.drawn.map_or(0, |it| it.1),
            (0..=15, _) => input.word(),
            (shift @ 16..=63, _) => member.sequence.wrapping_add(u32::from(shift % 8)),
            _ => member.sequence,
        };
        let counter = match input.byte() {
            0..=15 => input.word() as u16,
            shift @ 16..=63 if starting => member.order.wrapping_add(u16::from(shift % 8)),
            _ if starting => member.order,
            other => u16::from(other % 3),
        };
        if body.is_sequenced() && sequence == member.sequence {
            member.sequence = sequence.wrapping_add(1);
        }
        if starting && counter == member.order {
            member.order = counter.wrapping_add(1);
        }
        let wild = [0, 1, 1_000, u64::MAX, u64::MAX >> 2];
        let mut epoch = || {
            let (which, life) = (input.byte(), input.byte());
            let life = [0, 1, 2, u32::MAX][usize::from(life % 4)];
            Epoch { incarnation: wild[usize::from(which % 5)], life }
        };
        let known = Epochs { sender: member.own, receiver: member.cores };
        let epochs = match shape >> 1 {
            0..=3 => Some(Epochs { sender: epoch(), receiver: epoch() }),
            4..=6 => Some(Epochs { sender: epoch(), receiver: Epoch::UNKNOWN }),
            7..=40 => Some(known),
            41..=60 => Some(Epochs { receiver: Epoch::UNKNOWN, ..known }),
            _ => None,
        };
        if let Some(epochs) = epochs
            && epochs.sender > member.own
        {
            // What follows is of this life.
            *member = Member { own: epochs.sender, cores: epochs.receiver, ..Member::default() };
        } else if member.own == Epoch::UNKNOWN {
            member.own = Epoch { incarnation: 1, life: 1 };
        }
        let key = match (body, epochs) {
            (Body::Reset { .. }, _) => Epochs::default(),
            (_, Some(epochs)) => epochs,
            _ => Epochs { sender: member.own, receiver: member.cores },
        };
        let key = flow_key(job, &path.remote, &path.local, &key);
        let payload = match body {
            Body::Start { .. } if flag_bits & flags::WHOLE != 0 => usize::from(input.byte() % 129),
            Body::Start { length, .. } if shape & 128 == 0 => (length as usize).min(1408),
            Body::Ack { .. } => usize::from(input.byte() % 8) * 8,
            Body::Start { .. } | Body::More { .. } => input.length() as usize % 1500,
            _ => usize::from(input.byte() % 9),
        };
        let job = job_identifier(job);
        let frame = Frame { flags: flag_bits, job, sequence, counter, epochs, body };
        let from = packet.len();
        packet.resize(from + 2048, 0);
        let header = frame.emit(&mut packet[from..], payload).expect("2048 bytes hold the frame");
        packet.truncate(from + header);
        let bytes = (0..payload).map(|_| if payload <= 64 { input.byte() } else { 0x33 });
        packet.extend(bytes.collect::<Vec<_>>());
        let is_ack = matches!(body, Body::Ack { .. });
        let covered = if is_ack { header + payload } else { header };
        seal(&mut packet[from..from + covered], &key, 0);
    }

    /// Learns from a frame of the core.
    pub fn learn(&mut self, received: &Received<'_>) {
        let frame = &received.frame;
        if let Some(epochs) = frame.epochs {
            self.cores = epochs.sender;
        }
        if frame.body.is_sequenced() {
            self.drawn = Some((received.authenticator, frame.sequence));
            self.seen.push_front(frame.sequence);
        }
        if let Body::Start { number, .. } = frame.body {
            self.seen.push_front(number);
        }
        self.seen.truncate(16);
    }

    /// A number or sequence of the core's, or about one.
    fn seen(&self, input: &mut Input<'_>) -> u32 {
        let shape = input.byte();
        let known = self.seen.get(usize::from(shape % 16)).copied().unwrap_or(0);
        match shape >> 4 {
            0 => input.word(),
            1 | 2 => known.wrapping_add(1),
            3 => known.wrapping_sub(1),
            _ => known,
        }
    }
}

fn body(input: &mut Input<'_>, member: &Member) -> Body {
    let shape = input.byte();
    let port = u16::from(shape >> 5 & 3);
    let remote = Remote { source: port, destination: port, ..Remote::default() };
    let number = u32::from(shape % 4);
    match input.byte() % 24 {
        0..=4 => Body::Start {
            source: u16::from(shape % 4),
            destination: port,
            immediate: 1,
            tag: u64::from(shape >> 6),
            number: if shape & 16 == 0 { number } else { member.sequence },
            length: input.length(),
        },
        5..=8 => {
            let offset = [0, 1408, input.length()][usize::from(input.byte() % 3)];
            Body::More { number, offset }
        }
        9 => Body::Read(Remote { number: input.word(), ..remote }),
        10 => Body::Write(Remote { length: input.word(), ..remote }),
        11 => Body::Atomic { remote, operation: shape, data_type: shape, count: 0xffff },
        12 => Body::Reply { number, offset: input.word() },
        13 => Body::Done { message: member.seen(input), status: u32::from(input.byte() % 7) },
        14 | 15 => Body::Grant { number: member.seen(input), offset: input.length() },
        16 | 17 => Body::Hold { message: member.seen(input), offset: input.length() },
        18 => Body::Go { port },
        19 => Body::Abort { number, reason: 0 },
        20 => Body::Probe,
        21 if input.byte() < 32 => {
            let epoch = Epoch { incarnation: input.long(), life: input.word() };
            let receiver = if shape & 1 == 0 { epoch } else { member.cores };
            let receiver = if shape & 6 == 0 {
                Epoch { incarnation: u64::MAX, life: u32::MAX }
            } else {
                receiver
            };
            Body::Reset {
                authenticator: member.drawn.map_or_else(|| input.long(), |it| it.0),
                epochs: Epochs { sender: epoch, receiver },
            }
        }
        _ => Body::Ack { newest: member.seen(input), answered: input.word() % 64 },
    }
}
