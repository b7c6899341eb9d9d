//! The engine's worker, its port and the control socket of the one program.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use client::Session;
use engine::config::Ipv6Mode;
use engine::control::exchange::{Answer, Command, SessionKey, Shown, SocketKey};
use engine::kernel::Facts;
use engine::session::{SessionSeed, SessionWho};
use engine::stats::Counters;
use engine::{Cidr, Destination, Limits, PortSetup, Worker, WorkerConfig};
use port::{Gso, GsoKind, Offloads, RxChecksum, RxMeta, TxMeta};
use shm::control::{FromEngine, InterfaceInfo, Socket, ToEngine, Wait};
use shm::region::Region;
use sim::port::{Arrived, Sent, SimPort, Wires, locked};
use stack::api::{Instant, Local, Sharing};
use wire::MacAddr;

use crate::errors::Unsupported;
use crate::system::LOCAL_MAC;

use super::baton::Baton;
use super::kernel::InMemory;
use super::{Settings, sysctls};

/// The engine's link address.
pub const MAC: MacAddr = LOCAL_MAC;
/// The one session.
const SESSION: SessionKey = SessionKey(1);

/// A worker with one port and one session.
pub struct Host {
    worker: Mutex<Worker>,
    wires: Arc<Mutex<Wires>>,
    baton: Arc<Baton>,
    control: OnceLock<Socket>,
    engine_end: Mutex<Option<OwnedFd>>,
    limits: Limits,
    mtu: u16,
    addresses: Vec<(IpAddr, u8)>,
    /// Large frames are cut on their way out, as the kernel does it for a device.
    cuts: AtomicBool,
}

impl Host {
    /// A host with one port.
    pub fn new(settings: &Settings, baton: Arc<Baton>) -> Result<Self, Unsupported> {
        let (tcp, foreign) = sysctls::meaning(&settings.sysctls);
        if let Some((name, value)) = foreign.first() {
            return Err(Unsupported(format!("{name}={value} is no setting of ours")));
        }
        let limits = Limits {
            contexts: 1,
            endpoints: 64,
            request_slots: 16,
            stock_slots: 32,
            stock_target: 24,
            buffers: 2048,
            spans: 8192,
            lane_idle_ns: u64::MAX,
            sockets: 64,
            ..Limits::default()
        };
        let stack_limits = stack::Limits {
            connections: 64,
            time_waits: 64,
            listeners: 16,
            udp_sockets: 16,
            neighbors: 16,
            ..stack::Limits::default()
        };
        let wires =
            Wires { tx_room: usize::MAX, rx_room: usize::MAX, drops: true, ..Wires::default() };
        let wires = Arc::new(Mutex::new(wires));
        let offloads = Offloads {
            tx_checksum: true,
            tso4: settings.tso,
            tso6: settings.tso,
            uso: false,
            rx_coalesce: false,
        };
        let port = SimPort::new(0, MAC, settings.mtu, offloads, wires.clone());
        let addresses: Vec<Cidr> =
            settings.addresses.iter().map(|&(address, prefix)| Cidr { address, prefix }).collect();
        let speaks_ipv6 = addresses.iter().any(|cidr| cidr.address.is_ipv6());
        let setup = PortSetup {
            port: Box::new(port),
            addresses,
            gateway: None,
            routes: settings.routes.clone(),
            ipv6: if speaks_ipv6 { Ipv6Mode::Static } else { Ipv6Mode::Off },
        };
        let config = WorkerConfig { limits, stack_limits, tcp, seed: [7; 32], index: 0 };
        let now = Instant(baton.now());
        let worker = Worker::new(config, vec![setup], Arc::new(Counters::default()), now)
            .map_err(|why| Unsupported(why.to_string()))?;
        Ok(Self {
            worker: Mutex::new(worker),
            wires,
            baton,
            control: OnceLock::new(),
            engine_end: Mutex::new(None),
            limits,
            mtu: settings.mtu,
            addresses: settings.addresses.clone(),
            cuts: AtomicBool::new(false),
        })
    }

    /// Whether large frames are cut on their way out.
    pub fn cut_frames(&self, cut: bool) {
        self.cuts.store(cut, Ordering::Relaxed);
    }

    /// Gives the program its session.
    pub fn attach(
        self: &Arc<Self>,
        kernel: &'static InMemory,
    ) -> Result<Arc<Session>, Unsupported> {
        let region = Region::private(Worker::geometry(&self.limits)).map_err(|e| e.to_string())?;
        let geometry = *region.geometry();
        let region = Arc::new(region);
        let who = SessionWho { program: "script".into(), pid: 1, uid: 0 };
        let seed = SessionSeed { key: SESSION, geometry, region: region.clone(), pipes: None, who };
        self.command(Command::Attach(Box::new(seed)));
        let interface = InterfaceInfo {
            name: "script".into(),
            addresses: self.addresses.clone(),
            has_gateway: false,
            mtu: self.mtu,
            shared: false,
            kernel_index: 2,
            routes: Vec::new(),
        };
        let host = self.clone();
        let pump = move || {
            host.turn();
            host.serve_control(kernel);
        };
        let (session, engine_end) = Session::in_process(region, 0, vec![interface], Arc::new(pump))
            .map_err(|e| e.to_string())?;
        let copy = engine_end.try_clone().map_err(|why| why.to_string())?;
        let _ = self.control.set(Socket::from_fd(copy));
        *locked(&self.engine_end) = Some(engine_end);
        Ok(session)
    }

    /// Takes other settings while it runs; those that mean nothing are left out.
    pub fn follow(&self, sysctls: &sysctls::Sysctls) {
        locked(&self.worker).set_tcp(sysctls::meaning(sysctls).0);
    }

    /// Forgets what is remembered of servers, as `ip tcp_metrics flush` does.
    pub fn forget_servers(&self) {
        locked(&self.worker).forget_fast_open();
    }

    /// What the stack has counted under a name; 0 where there is no such counter.
    pub fn counter(&self, wanted: &str) -> u64 {
        let mut found = 0;
        locked(&self.worker).stack().each_counter(|name, value| {
            if name == wanted {
                found = value;
            }
        });
        found
    }

    /// Puts other ways through the port in the place of those that there are.
    pub fn set_routes(&self, routes: Vec<Destination>) {
        let own = |&(address, prefix): &(IpAddr, u8)| Cidr { address, prefix };
        let facts = Facts {
            addresses: self.addresses.iter().map(own).collect(),
            routes,
            mtu: self.mtu,
            mac: Some(MAC),
            ..Facts::default()
        };
        self.command(Command::Interface { port: 0, facts });
    }

    /// Whether the port takes frames; else its queue drops them, as one without room does in Linux.
    pub fn open_port(&self, open: bool) {
        locked(&self.wires).tx_room = if open { usize::MAX } else { 0 };
    }

    fn command(&self, command: Command) {
        locked(&self.worker).on_command(command, Instant(self.baton.now()));
    }

    /// Answers what the program asks of the control thread. What it shows is a socket of the
    /// kernel in memory, which knows which one it has lent.
    fn serve_control(&self, kernel: &InMemory) {
        let Some(control) = self.control.get() else { return };
        while let Ok((question, _)) = control.receive::<ToEngine>(Wait::No) {
            let Some((fd, address)) = kernel.lent() else { continue };
            let sharing = if kernel.reuses(fd) { Sharing::Address } else { Sharing::Alone };
            let v6_only = kernel.is_v6_only(fd);
            let local = match address.ip() {
                ip if ip.is_unspecified() => address,
                ip => SocketAddr::new(ip.to_canonical(), address.port()),
            };
            let shown = Shown {
                local: Local { address: local, v6_only },
                kernel_local: address,
                key: SocketKey { namespace: 0, cookie: fd.unsigned_abs().into() },
                uid: 0,
                sharing,
            };
            let command = match question {
                ToEngine::Listen { serial, context, backlog } => Command::Listen {
                    session: SESSION,
                    serial,
                    context,
                    backlog,
                    shown,
                    beside: Vec::new(),
                },
                ToEngine::BindUdp { serial, context } => {
                    Command::BindUdp { session: SESSION, serial, context, shown }
                }
                ToEngine::BindTcp { serial } => {
                    Command::BindTcp { session: SESSION, serial, shown }
                }
                _ => continue,
            };
            self.command(command);
            let answers: Vec<Answer> = locked(&self.worker).take_answers().collect();
            for answer in answers {
                let told = match answer {
                    Answer::Granted { serial, endpoint, local, .. } => {
                        FromEngine::Granted { serial, endpoints: vec![endpoint], local }
                    }
                    Answer::Denied { serial, errno, reason, .. } => {
                        FromEngine::Denied { serial, errno, reason }
                    }
                    _ => continue,
                };
                control.send(&told, &[], Wait::No).expect("the program reads every answer");
            }
        }
    }

    /// A turn of the worker now; whether it found something.
    pub fn turn(&self) -> bool {
        locked(&self.worker).turn(Instant(self.baton.now())).worked()
    }

    /// The host's addresses.
    pub fn addresses(&self) -> &[(IpAddr, u8)] {
        &self.addresses
    }

    /// When the worker wants its next turn.
    pub fn next_deadline(&self) -> Option<u64> {
        locked(&self.worker).next_deadline().map(|deadline| deadline.0)
    }

    /// A frame comes in.
    pub fn arrive(&self, bytes: Vec<u8>) {
        let meta = RxMeta { checksum: RxChecksum::Unknown, ..RxMeta::default() };
        locked(&self.wires).arrived.push_back(Arrived { bytes, meta });
    }

    /// A frame comes in that stands for several segments of so many bytes.
    pub fn arrive_coalesced(&self, bytes: Vec<u8>, segment_bytes: u16) {
        let is_v6 = bytes.get(12..14) == Some(&[0x86, 0xdd]);
        let protocol = bytes.get(if is_v6 { 20 } else { 23 }).copied().map(i32::from);
        let kind = match (protocol, is_v6) {
            (Some(libc::IPPROTO_UDP), _) => GsoKind::Udp,
            (_, true) => GsoKind::Tcp6,
            (_, false) => GsoKind::Tcp4,
        };
        let gso = Some(Gso { size: segment_bytes, kind });
        let meta = RxMeta { checksum: RxChecksum::Unknown, gso };
        locked(&self.wires).arrived.push_back(Arrived { bytes, meta });
    }

    /// Frames that went out, as they are on a wire.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        let sent = std::mem::take(&mut locked(&self.wires).sent);
        let cuts = self.cuts.load(Ordering::Relaxed);
        let whole = sent.into_iter().flat_map(|mut sent| match sent.meta.gso {
            Some(gso) if cuts => crate::frame::cut(&sent.bytes, gso.size.into())
                .into_iter()
                .map(|bytes| Sent { bytes, meta: TxMeta::default() })
                .collect(),
            _ => {
                sent.meta.gso = None;
                vec![sent]
            }
        });
        whole
            .map(|mut sent| {
                if let Some((start, offset)) = sent.meta.checksum {
                    let (start, offset) = (usize::from(start), usize::from(offset));
                    wire::checksum::complete(&mut sent.bytes, start, offset)
                        .expect("the stack names a place within the frame");
                }
                sent.bytes
            })
            .collect()
    }

    /// The engine goes away.
    pub fn end(&self) {
        locked(&self.engine_end).take();
        self.command(Command::Detach(SESSION));
    }
}
