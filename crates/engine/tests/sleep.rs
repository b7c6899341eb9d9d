//! When a worker may sleep.

mod common;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use common::{A, at, small};
use outboard_engine::config::Cidr;
use outboard_engine::control::exchange::{Answer, Command, SessionKey, Shown};
use outboard_engine::session::{SessionSeed, SessionWho};
use outboard_engine::stats::Counters;
use outboard_engine::{PortSetup, Worker, WorkerConfig};
use port::pair::{PairConfig, PairPort, pair};
use shm::client_side::ClientLane;
use shm::descriptor::DatagramFlags;
use shm::lock::Tag;
use shm::region::Region;
use stack::api::Instant;

/// A port that a worker may sleep at.
struct Waited(PairPort, OwnedFd);

impl port::Port for Waited {
    fn info(&self) -> &port::PortInfo {
        self.0.info()
    }
    fn receive(&mut self, burst: &mut port::RxBurst) {
        self.0.receive(burst);
    }
    fn frame(&self, handle: port::RxHandle) -> port::RxFrame<'_> {
        self.0.frame(handle)
    }
    fn release(&mut self, burst: &mut port::RxBurst) {
        self.0.release(burst);
    }
    fn send(
        &mut self,
        meta: &port::TxMeta,
        header: &[u8],
        payload: &[arch::SharedBytes<'_>],
    ) -> Result<(), port::TxError> {
        self.0.send(meta, header, payload)
    }
    fn flush(&mut self) {}
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.1.as_fd())
    }
    fn counters(&self) -> port::PortCounters {
        self.0.counters()
    }
}

/// A datagram to a host that does not answer kept the worker polling for three of every four seconds.
#[test]
fn a_worker_sleeps_while_a_datagram_waits_for_its_neighbour() {
    for flags in [DatagramFlags::empty(), DatagramFlags::TELL_SENT] {
        let (port, _other, _link) = pair(&PairConfig::default());
        let fd = std::fs::File::open("/dev/null").unwrap().into();
        let setup = PortSetup {
            port: Box::new(Waited(port, fd)),
            addresses: vec![Cidr { address: A.parse().unwrap(), prefix: 24 }],
            gateway: None,
            routes: Vec::new(),
            ipv6: stack::api::Ipv6Mode::Off,
        };
        let limits = small();
        let config = WorkerConfig {
            limits,
            stack_limits: stack::Limits { connections: 64, ..stack::Limits::default() },
            tcp: outboard_engine::TcpSettings::default(),
            seed: [1; 32],
            index: 0,
        };
        let counters = Arc::new(Counters::default());
        let mut worker =
            Worker::new(config, vec![setup], Arc::clone(&counters), Instant(1)).unwrap();
        let region = Arc::new(Region::private(limits.geometry(1)).unwrap());
        worker.attach(SessionSeed {
            key: SessionKey(1),
            geometry: *region.geometry(),
            region: Arc::clone(&region),
            pipes: None,
            who: SessionWho { program: "test".into(), pid: 1, uid: 0 },
        });
        let lane = ClientLane::new(Arc::clone(&region), 0, 0);
        let program = common::Program { key: SessionKey(1), lane, region, tag: Tag::new(1, 1) };
        let shown = Shown::alone(at(A, 1000), 7);
        let bind = Command::BindUdp { session: program.key, serial: 1, context: 0, shown };
        worker.on_command(bind, Instant(1000));
        let granted = worker.take_answers().find_map(|answer| match answer {
            Answer::Granted { endpoint, .. } => Some(endpoint),
            _ => None,
        });
        let mut now = 1_000_000;
        let mut rest = |worker: &mut Worker| {
            now += 1000;
            while worker.turn(Instant(now)).worked() {
                now += 1000;
            }
            now
        };
        rest(&mut worker);
        program.send_flagged(granted.unwrap(), at("10.0.0.77", 9), b"to nobody", flags);
        let sent_at = rest(&mut worker);
        assert!(worker.prepare_sleep(), "nothing but time or an answer helps: {flags:?}");
        worker.awake();
        // Time does: it is woken to ask again, and to give up.
        let mut at = sent_at;
        while let Some(next) =
            worker.next_deadline().filter(|next| next.0 < sent_at + 3_500_000_000)
        {
            at = at.max(next.0) + 1;
            while worker.turn(Instant(at)).worked() {
                at += 1000;
            }
            assert!(worker.prepare_sleep());
            worker.awake();
        }
        assert_eq!(counters.datagrams_tx_failed.read(), 1);
        assert!(counters.turns.read() < 100, "it does not turn for nothing");
    }
}
