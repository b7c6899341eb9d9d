//! A peer that lies in its acknowledgements: whatever it says to have got, or not to have got, or
//! to have got twice, costs neither a panic nor the connection once it tells the truth.

use proptest::prelude::*;

use super::peer::*;
use crate::api::*;

/// What a peer does next.
#[derive(Clone, Debug)]
enum Act {
    Write(usize),
    Wait(u64),
    Transmit,
    Ack(Lie),
}

/// An acknowledgement. Numbers are per mille of what is outstanding: less or more is a lie as well.
#[derive(Clone, Debug)]
struct Lie {
    ack: i64,
    blocks: Vec<(i64, u16)>,
    window: u16,
    echo: i64,
}

fn lie() -> impl Strategy<Value = Lie> {
    let ack = prop_oneof![5 => Just(0i64), 2 => 0i64..1000, 1 => -500i64..1200];
    let window = prop_oneof![6 => Just(60_000u16), 1 => Just(0), 1 => 1u16..2000];
    let echo = prop_oneof![3 => Just(0i64), 1 => -3000i64..3000];
    let blocks = prop::collection::vec((-200i64..1100, 1u16..3000), 0..4);
    (ack, blocks, window, echo).prop_map(|(ack, blocks, window, echo)| Lie {
        ack,
        blocks,
        window,
        echo,
    })
}

fn act() -> impl Strategy<Value = Act> {
    let wait = prop_oneof![Just(0u64), Just(1), Just(7), Just(40), Just(260), Just(1500)];
    prop_oneof![
        2 => (1usize..30_000).prop_map(Act::Write),
        3 => wait.prop_map(Act::Wait),
        5 => Just(Act::Transmit),
        8 => lie().prop_map(Act::Ack),
    ]
}

/// The peer and what it has seen.
struct Liar {
    peer: Peer,
    una: i64,
    nxt: i64,
}

impl Liar {
    fn transmit(&mut self) {
        for line in self.peer.sent().split(" | ").filter(|line| !line.is_empty()) {
            let mut words = line.split_whitespace();
            let fin = i64::from(words.next().is_some_and(|flags| flags.contains('F')));
            let end = words.next().and_then(|range| range.split_once(':')).expect("a range").1;
            self.nxt = self.nxt.max(end.parse::<i64>().expect("a number") + fin);
        }
    }

    fn tell(&mut self, lie: &Lie) {
        let outstanding = self.nxt - self.una;
        let place = |per_mille: i64| self.una + (outstanding + 2) * per_mille / 1000;
        let ack = place(lie.ack);
        let mut line = format!(". 1:1 ack {ack} win {}", lie.window);
        if self.peer.offer.timestamps {
            line += &format!(" ts 1000 echo {}", lie.echo);
        }
        if !lie.blocks.is_empty() {
            line += " sack";
        }
        for (left, len) in &lie.blocks {
            let left = place(*left);
            line += &format!(" {left}:{}", left + i64::from(*len));
        }
        self.peer.send(&line);
        if ack <= self.nxt {
            self.una = self.una.max(ack);
        }
    }

    fn is_dead(&self) -> bool {
        self.peer.is_gone() || self.peer.levels().state == TcpState::Closed
    }
}

fn live_through(offer: Offer, acts: &[Act]) {
    let mut liar =
        Liar { peer: Peer::established_with(offer, TcpOptions::default()), una: 1, nxt: 1 };
    let mut written = 0;
    for act in acts {
        match act {
            Act::Write(len) => {
                liar.peer.write(*len);
                written += *len as i64;
            }
            Act::Wait(ms) => liar.peer.wait(*ms),
            Act::Transmit => liar.transmit(),
            Act::Ack(lie) => liar.tell(lie),
        }
        if liar.is_dead() {
            return;
        }
    }
    let truth = Lie { ack: 0, blocks: Vec::new(), window: 60_000, echo: 0 };
    for _ in 0..400 {
        liar.transmit();
        let outstanding = liar.nxt > liar.una;
        liar.una = liar.nxt;
        liar.tell(&truth);
        if liar.una == written + 1 {
            return;
        }
        if !outstanding {
            liar.peer.wait(120_000);
        }
        if liar.is_dead() {
            return;
        }
    }
    panic!("stuck at {} of {written}", liar.una);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_connection_goes_on_once_its_peer_tells_the_truth(
        mss in prop_oneof![Just(1000u16), Just(1u16), Just(100u16)],
        sack in prop::bool::weighted(0.8),
        timestamps in any::<bool>(),
        acts in prop::collection::vec(act(), 1..80),
    ) {
        live_through(Offer { mss: Some(mss), sack, timestamps, ..PLAIN }, &acts);
    }
}
