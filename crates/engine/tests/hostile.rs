//! A client that writes anything anywhere between turns: the engine neither panics nor loses a
//! buffer, and an honest program beside it goes on.

mod common;

use common::{A, B, Net, at, pattern, small};
use shm::client_side::Direction;
use shm::descriptor::{DescriptorFlags, DescriptorKind, Span};
use shm::request::{ConnectOptions, OptionName, Request};

/// SplitMix64: any seed gives a good sequence.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Numbers that are often near the edges of what is allowed.
    fn edgy(&mut self) -> u64 {
        match self.below(6) {
            0 => self.below(4),
            1 => u64::MAX - self.below(4),
            2 => 1 << self.below(64),
            3 => self.below(4096),
            4 => 1 << 32 | self.below(1 << 16),
            _ => self.next(),
        }
    }
}

fn request(random: &mut Random) -> Request {
    let endpoint = (random.edgy() as u32) % 70;
    match random.below(9) {
        0 => Request::Connect {
            remote: at(A, random.below(3) as u16 * 500),
            token: random.below(2) as u32,
            options: ConnectOptions { receive_limit: random.edgy() as u32, ..Default::default() },
        },
        1 => Request::Accept { listener: endpoint },
        2 => Request::Close { endpoint },
        3 => Request::Abort { endpoint },
        4 => Request::StopReceiving { endpoint },
        5 => Request::SetOption {
            endpoint,
            option: OptionName::ALL[random.below(OptionName::ALL.len() as u64) as usize],
            value: random.edgy(),
        },
        6 => Request::Info { endpoint },
        7 => Request::ConnectDatagram { endpoint, remote: Some(at(A, 1000)) },
        _ => Request::Option { endpoint, option: OptionName::Linger },
    }
}

fn attack(seed: u64) -> u64 {
    let mut random = Random(seed);
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, far) = net.connected(&a, &b, listener, 80);
    let (mut sent, mut got) = (0, 0);
    let mut bad = net.b.attach(&limits);
    let mut breaches = 0;
    for _ in 0..400 {
        for _ in 0..random.below(8) {
            let endpoint = random.below(4) as u32;
            match random.below(12) {
                // Anywhere in the lanes and the first endpoints.
                0 | 1 => {
                    let offset = 4096 + random.below(60_000) / 8 * 8;
                    bad.region.scribble(offset, random.edgy());
                }
                2 => {
                    let span = Span {
                        offset: random.edgy() & 0xffff_ffff_ffff,
                        len: random.edgy() as u32,
                    };
                    let kinds = [DescriptorKind::Data, DescriptorKind::Fin, DescriptorKind::Page];
                    let kind = kinds[random.below(3) as usize];
                    bad.push(endpoint, kind, DescriptorFlags::empty(), span);
                }
                3..=5 => {
                    let request = request(&mut random);
                    if let Ok(mut lane) = bad.lane.lock(bad.tag) {
                        if lane.push_request(&request).is_some() {
                            let _ = lane.ring_requests();
                        }
                        while lane.take_reply().is_some() {}
                    }
                }
                6 => {
                    bad.write(endpoint, &pattern(0, random.below(5000) as usize));
                }
                7 => {
                    let _ = bad.lane.ring(endpoint, Direction::Receive);
                    let _ = bad.lane.ring(endpoint, Direction::Send);
                }
                8 => {
                    let _ = net.try_listen(&bad, 6000 + random.below(3) as u16);
                }
                9 => {
                    // A connection to whatever it listens at, with early bytes.
                    let near = net.connect(&a, 6000 + random.below(3) as u16);
                    a.write(near, b"early");
                    net.turn();
                    net.ask(false, &a, Request::Abort { endpoint: near });
                }
                10 => {
                    bad.events();
                }
                _ => net.now += random.below(50_000_000),
            }
        }
        net.turn();
        sent += a.write(near, &pattern(sent, random.below(2000) as usize));
        net.turn();
        let bytes = b.read(far, usize::MAX);
        assert_eq!(bytes, pattern(got, bytes.len()), "seed {seed}: the honest stream differs");
        got += bytes.len();
        if net.b.breached.pop().is_some() {
            breaches += 1;
            bad = net.b.attach(&limits);
        }
    }
    net.b.worker.detach(bad.key);
    for _ in 0..100 {
        net.pass(100_000_000);
        let bytes = b.read(far, usize::MAX);
        assert_eq!(bytes, pattern(got, bytes.len()));
        got += bytes.len();
        a.events();
        b.events();
    }
    assert_eq!(got, sent, "seed {seed}: the honest stream stalls");
    net.pass(120_000_000_000);
    assert_eq!(net.b.worker.session_count(), 1, "seed {seed}: a dead session is kept");
    let _ = B;
    breaches
}

#[test]
fn a_client_that_scribbles_harms_itself_alone() {
    let breaches: u64 = (0..40).map(attack).sum();
    assert!(breaches > 20, "only {breaches} sessions were ended: the attack is asleep");
}
