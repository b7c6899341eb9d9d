//! Flows of our stack through a narrow place, in virtual time. What programs write is not there:
//! frames carry zeros, and the receiver counts.

use std::net::{IpAddr, SocketAddr};

use stack::api::{
    Cidr, CongestionKind, DatagramMeta, Instant, InterfaceConfig, InterfaceIndex, Ipv6Mode, Owner,
    Payload, RxChecksum, RxFrame, RxFrameMeta, Sink, SocketId, TcpConnect, TcpOptions,
};
use stack::{Config, HEADER_MAX, Limits, Stack};
use wire::{MacAddr, checksum};

use super::{Case, CaseResult, DURATION_NS, Line, STAGGER_NS};

const INTERFACE: InterfaceIndex = InterfaceIndex(0);
const PORT: u16 = 80;
/// Time begins here.
const BEGIN_NS: u64 = 1_000_000_000;
/// More than any flow brings across.
const ENDLESS: u64 = 1 << 40;
/// A tick of the stack's timers, which may name a time that has just passed.
const TICK_NS: u64 = 1 << 16;
/// Where an IPv4 frame has its type of service.
const TOS_AT: usize = 15;

/// Takes everything and keeps nothing.
struct Nowhere;

impl Sink for Nowhere {
    fn stream(&mut self, _: SocketId, _: Owner, _: u64, _: &[u8]) -> bool {
        true
    }
    fn datagram(&mut self, _: SocketId, _: Owner, _: &DatagramMeta, _: &[u8]) -> bool {
        false
    }
}

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

fn host(number: u8) -> Stack {
    let mut config = Config::new([number; 32]);
    config.limits = Limits { connections: 64, time_waits: 8, ..Limits::default() };
    let mut stack = Stack::new(config);
    let added = stack.add_interface(InterfaceConfig {
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        mtu: 1500,
        addresses: vec![Cidr { address: address(number), prefix: 24 }],
        gateway: None,
        routes: Vec::new(),
        shared: None,
        ipv6: Ipv6Mode::Off,
        tso: false,
        tso6: false,
        uso: false,
    });
    assert_eq!(added, Some(INTERFACE), "one interface is few enough");
    stack
}

/// Sets the mark of congestion where the sender allows it, and keeps the header's sum right.
fn mark(frame: &mut [u8]) {
    let may = frame.get(12..14) == Some(&[8, 0]) && frame.get(TOS_AT).is_some_and(|t| t & 3 != 0);
    let Some(header) = frame.get_mut(14..34).filter(|_| may) else { return };
    header[TOS_AT - 14] |= 3;
    header[10..12].fill(0);
    let sum = checksum::Sum::of(header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

struct World {
    now: u64,
    hosts: [Stack; 2],
    lines: [Line<Vec<u8>>; 2],
}

impl World {
    /// Everything that the hosts want to send now.
    fn transmit(&mut self) {
        for (stack, line) in self.hosts.iter_mut().zip(&mut self.lines) {
            let mut header = [0; HEADER_MAX];
            while let Some(out) = stack.poll_transmit(Instant(self.now), INTERFACE, &mut header) {
                let mut frame = header[..usize::from(out.header_bytes)].to_vec();
                match out.payload {
                    Payload::None => {}
                    Payload::Stream { len, .. } => frame.resize(frame.len() + len as usize, 0),
                    Payload::Own { start, len } => {
                        frame.extend_from_slice(stack.own_bytes(start, len));
                        stack.release_own(start, len);
                    }
                }
                line.push(self.now, frame.len(), frame, |frame| mark(frame));
            }
        }
    }

    /// Goes to the next thing that happens, but not beyond `until`.
    fn step(&mut self, until: u64) {
        self.transmit();
        let arrivals = self.lines.iter().filter_map(Line::next);
        let timers = self.hosts.iter().filter_map(Stack::next_deadline).map(|at| at.0);
        let timers = timers.map(|at| if at <= self.now { self.now + TICK_NS } else { at });
        let next = arrivals.chain(timers).min().unwrap_or(until);
        self.now = next.clamp(self.now, until);
        let now = Instant(self.now);
        for (from, line) in self.lines.iter_mut().enumerate() {
            let stack = &mut self.hosts[1 - from];
            while let Some(frame) = line.pop(self.now) {
                let meta = RxFrameMeta { checksum: RxChecksum::Valid, gso_bytes: None };
                stack.on_frame(
                    now,
                    &RxFrame { interface: INTERFACE, bytes: &frame, meta },
                    &mut Nowhere,
                );
            }
        }
        for stack in &mut self.hosts {
            while stack.on_timers(now) {}
            while stack.poll_event().is_some() {}
        }
    }
}

/// Runs a case with one algorithm at both ends.
pub fn run(case: &Case, congestion: CongestionKind) -> CaseResult {
    let lines = [case.narrow(congestion == CongestionKind::Dctcp), case.back()];
    over(lines, &vec![congestion; case.flows], DURATION_NS)
}

/// Runs a flow with each of these algorithms for a time, over the ways there and back.
pub fn over(lines: [Line<Vec<u8>>; 2], flows: &[CongestionKind], duration_ns: u64) -> CaseResult {
    let mut world = World { now: BEGIN_NS, hosts: [host(1), host(2)], lines };
    let local = SocketAddr::new(address(2), PORT);
    let options = |congestion| TcpOptions { congestion, ..TcpOptions::default() };
    let first = flows.first().copied().unwrap_or_default();
    let listener = world.hosts[1]
        .tcp_listen(local, 64, options(first), Owner(1))
        .expect("an address of the host's own");
    let (half, end) = (BEGIN_NS + duration_ns / 2, BEGIN_NS + duration_ns);
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    let mut at_half = None;
    let read = |world: &World, receivers: &[SocketId]| -> Vec<u64> {
        let level = |id: &SocketId| world.hosts[1].tcp_levels(*id).map_or(0, |l| l.readable);
        receivers.iter().map(level).collect()
    };
    while world.now < end {
        let due = BEGIN_NS + senders.len() as u64 * STAGGER_NS;
        if let Some(&congestion) = flows.get(senders.len()).filter(|_| world.now >= due) {
            let now = Instant(world.now);
            let id = world.hosts[0]
                .tcp_connect(
                    now,
                    TcpConnect {
                        remote: local,
                        local: None,
                        options: options(congestion),
                        owner: Owner(2),
                    },
                )
                .expect("few connections");
            world.hosts[0].tcp_written(now, id, ENDLESS).expect("just opened");
            senders.push(id);
        }
        if at_half.is_none() && world.now >= half {
            at_half = Some(read(&world, &receivers));
        }
        let stop = if senders.len() < flows.len() { due.max(world.now + 1) } else { end };
        world.step(stop.min(end));
        while let Ok(Some(accepted)) = world.hosts[1].tcp_accept(listener) {
            receivers.push(accepted.id);
        }
        for id in &receivers {
            let Ok(levels) = world.hosts[1].tcp_levels(*id) else { continue };
            let _ = world.hosts[1].tcp_consumed(Instant(world.now), *id, levels.readable);
        }
    }
    let bytes = read(&world, &receivers);
    let before = at_half.unwrap_or_default();
    let earlier = before.into_iter().chain(std::iter::repeat(0));
    let later = bytes.iter().zip(earlier).map(|(all, before)| all - before).collect();
    CaseResult { bytes, later }
}
