//! Links that fail, flap and return, under virtual time.

use super::*;
use crate::pair::{PairConfig, PairLink, PairPort, pair};

const SECOND: u64 = 1_000_000_000;

struct Bench {
    trunk: TrunkPort,
    /// The far ends of the links, and their switches.
    far: Vec<PairPort>,
    switches: Vec<PairLink>,
    now: u64,
}

impl Bench {
    fn new(links: usize) -> Self {
        Self::of(links, &PairConfig::default())
    }

    fn of(links: usize, config: &PairConfig) -> Self {
        let (mut near, mut far, mut switches) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..links {
            let (a, b, switch) = pair(config);
            near.push(Box::new(a) as Box<dyn Port>);
            far.push(b);
            switches.push(switch);
        }
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let trunk = TrunkPort::new("trunk:t", mac, near, 7).unwrap();
        Self { trunk, far, switches, now: 0 }
    }

    fn pass(&mut self, ns: u64) {
        let until = self.now + ns;
        while self.now < until {
            self.now = (self.now + LOOK_NS).min(until);
            self.trunk.on_time(self.now);
        }
    }

    /// The links that frames of so many flows have taken, by flow.
    fn send(&mut self, flows: u16) -> Vec<usize> {
        (0..flows).map(|port| self.send_one(port).unwrap()).collect()
    }

    fn send_one(&mut self, port: u16) -> Result<usize, TxError> {
        self.trunk.send(&TxMeta::default(), &udp(port), &[])?;
        self.trunk.flush();
        let mut burst = RxBurst::new();
        let took = self.far.iter_mut().position(|port| {
            port.receive(&mut burst);
            let came = !burst.handles.is_empty();
            port.release(&mut burst);
            came
        });
        Ok(took.expect("the frame has taken a link"))
    }
}

fn udp(port: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(port.to_be_bytes());
    frame.resize(60, 0);
    frame
}

#[test]
fn a_failing_link_moves_its_own_flows_alone_and_gets_them_back() {
    let mut bench = Bench::new(4);
    let before = bench.send(200);
    assert!((0..4).all(|link| before.contains(&link)), "{before:?}");
    bench.switches[2].set_up(false);
    bench.pass(LOOK_NS);
    assert_eq!(bench.trunk.counters().links_unused, 1);
    let during = bench.send(200);
    for (was, is) in before.iter().zip(&during) {
        assert!(*is != 2 && (was == is || *was == 2), "{was} {is}");
    }
    assert_eq!(bench.trunk.counters().tx_errors, 0, "nobody has tried it");
    bench.switches[2].set_up(true);
    bench.pass(SECOND / 2);
    assert_eq!(bench.send(200), during, "it is not trusted yet");
    bench.pass(SECOND);
    assert_eq!(bench.send(200), before);
    assert_eq!((bench.trunk.counters().links_left, bench.trunk.counters().links_unused), (1, 0));
}

#[test]
fn a_link_that_is_found_down_by_a_frame_loses_no_frame() {
    let mut bench = Bench::new(2);
    let before = bench.send(50);
    bench.switches[0].set_up(false);
    // No look at the links in between.
    let during = bench.send(50);
    assert!(before.contains(&0) && during.iter().all(|link| *link == 1));
    assert_eq!(bench.trunk.counters().links_left, 1);
}

#[test]
fn a_link_that_flaps_is_used_ever_later_and_no_flow_follows_its_flapping() {
    let mut bench = Bench::new(2);
    let before = bench.send(50);
    for round in 0..4 {
        bench.switches[0].set_up(false);
        bench.pass(LOOK_NS);
        bench.switches[0].set_up(true);
        bench.pass((SECOND << round) - 2 * LOOK_NS);
        assert!(bench.send(50).iter().all(|link| *link == 1), "round {round}");
        bench.pass(4 * LOOK_NS);
        assert_eq!(bench.send(50), before, "round {round}");
    }
    assert_eq!(bench.trunk.counters().links_left, 4);
}

#[test]
fn without_links_a_trunk_is_down_and_takes_frames_again_when_one_is_back() {
    let mut bench = Bench::new(2);
    for switch in &bench.switches {
        switch.set_up(false);
    }
    assert_eq!(bench.send_one(1), Err(TxError::Down));
    assert!(!bench.trunk.is_up());
    assert_eq!(bench.trunk.counters().links_unused, 2);
    bench.switches[1].set_up(true);
    bench.pass(SECOND + 2 * LOOK_NS);
    assert_eq!(bench.send_one(1), Ok(1));
    assert!(bench.trunk.is_up());
}

#[test]
fn what_all_links_have_received_comes_and_none_is_forgotten() {
    let mut bench = Bench::new(3);
    let mut sent = 0;
    for (number, far) in bench.far.iter_mut().enumerate() {
        for port in 0..100 {
            let mut frame = udp(port);
            frame[59] = number as u8;
            far.send(&TxMeta::default(), &frame, &[]).unwrap();
            sent += 1;
        }
    }
    let mut burst = RxBurst::new();
    let mut next = [0; 3];
    while sent > 0 {
        bench.trunk.receive(&mut burst);
        assert!(!burst.handles.is_empty() && burst.handles.len() <= RxBurst::CAPACITY);
        for handle in &burst.handles {
            let bytes = bench.trunk.frame(*handle).bytes;
            let link = usize::from(bytes[59]);
            let port = u16::from_be_bytes([bytes[34], bytes[35]]);
            assert_eq!(port, next[link], "in the order of its link");
            next[link] += 1;
            sent -= 1;
        }
        bench.trunk.release(&mut burst);
    }
    bench.trunk.receive(&mut burst);
    assert!(burst.handles.is_empty());
    assert_eq!(bench.trunk.counters().rx_frames, 300);
}

/// Frames that a far end has not fetched yet, by their ports.
fn fetched(far: &mut PairPort) -> Vec<u16> {
    let (mut burst, mut ports) = (RxBurst::new(), Vec::new());
    loop {
        far.receive(&mut burst);
        if burst.handles.is_empty() {
            return ports;
        }
        for handle in &burst.handles {
            let bytes = far.frame(*handle).bytes;
            ports.push(u16::from_be_bytes([bytes[34], bytes[35]]));
        }
        far.release(&mut burst);
    }
}

#[test]
fn a_full_link_holds_no_other_and_keeps_its_order() {
    let mut bench = Bench::of(2, &PairConfig { frames_max: 100, ..PairConfig::default() });
    let before = bench.send(200);
    let full = before[0];
    let of = |link| {
        let before = &before;
        (0..200_u16).filter(move |port| before[usize::from(*port)] == link)
    };
    let own: Vec<u16> = of(full).collect();
    let other: Vec<u16> = of(1 - full).take(90).collect();
    // More of the full link's flows than it and its queue hold.
    let (mut sent, mut refused) = (Vec::new(), 0);
    for port in own.iter().cycle().take(300) {
        match bench.trunk.send(&TxMeta::default(), &udp(*port), &[]) {
            Ok(()) => sent.push(*port),
            Err(error) => {
                assert_eq!(error, TxError::Refused);
                refused += 1;
            }
        }
    }
    assert_eq!((sent.len(), refused), (100 + waiting::FRAMES_MAX, 136));
    assert_eq!(bench.trunk.counters().links_refused, 136);
    for port in &other {
        assert_eq!(bench.trunk.send(&TxMeta::default(), &udp(*port), &[]), Ok(()));
    }
    bench.trunk.flush();
    assert_eq!(fetched(&mut bench.far[1 - full]), other);
    assert!(bench.trunk.next_deadline().is_some(), "it is tried again");
    let mut came = fetched(&mut bench.far[full]);
    bench.trunk.flush();
    came.extend(fetched(&mut bench.far[full]));
    assert_eq!(came, sent);
    assert_eq!(bench.trunk.next_deadline(), None);
}

#[test]
fn a_trunk_is_full_when_its_links_are_and_what_waits_for_a_failed_link_is_counted() {
    let mut bench = Bench::of(2, &PairConfig { frames_max: 1, ..PairConfig::default() });
    let mut outcomes = Vec::new();
    for port in 0..1000 {
        outcomes.push(bench.trunk.send(&TxMeta::default(), &udp(port), &[]));
    }
    let last = outcomes.len() - 50;
    assert!(outcomes[last..].iter().all(|one| *one == Err(TxError::Full)), "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|one| one.is_ok()).count(), 2 * (1 + waiting::FRAMES_MAX));
    bench.switches[0].set_up(false);
    bench.trunk.flush();
    assert_eq!(bench.trunk.counters().links_unused, 1);
    let lost = bench.trunk.counters().tx_errors;
    assert_eq!(lost, waiting::FRAMES_MAX as u64 + 1, "those that waited, and the link's own count");
    // The link that is left is a port like any other.
    assert_eq!(bench.trunk.send(&TxMeta::default(), &udp(1), &[]), Err(TxError::Full));
}

#[test]
fn four_links_carry_almost_four_times_what_one_carries() {
    use crate::impair::Impaired;
    let faults: crate::spec::Impairment = "rate:100mbit".parse().unwrap();
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for seed in 0..4 {
        let (a, b, _) = pair(&PairConfig::default());
        near.push(Box::new(Impaired::new(a, faults, seed)) as Box<dyn Port>);
        far.push(b);
    }
    let mut trunk = TrunkPort::new("trunk:t", MacAddr([2; 6]), near, 1).unwrap();
    let mut arrived = 0;
    let (mut burst, mut frame) = (RxBurst::new(), udp(0));
    frame.resize(1514, 0);
    // A second of virtual time, offered 500 Mbit/s in 1,024 flows.
    for step in 0..41_000_u64 {
        let now = step * SECOND / 41_000;
        frame[34..36].copy_from_slice(&((step % 1024) as u16).to_be_bytes());
        trunk.on_time(now);
        // What a link has no room for is lost: the flows are nobody's in particular.
        let _ = trunk.send(&TxMeta::default(), &frame, &[]);
        trunk.flush();
        for port in &mut far {
            port.receive(&mut burst);
            arrived +=
                burst.handles.iter().map(|handle| port.frame(*handle).bytes.len()).sum::<usize>();
            port.release(&mut burst);
        }
    }
    let bits = arrived as u64 * 8;
    assert!(bits >= 380_000_000, "{bits} of 400,000,000 bit/s");
}
