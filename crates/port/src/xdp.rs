//! AF_XDP on the kernel's own interface and addresses.
//!
//! An XDP program (`program`) checks every frame that arrives: claimed traffic ([`Port::claim`]),
//! and traffic to the engine's block of ports, is redirected to an AF_XDP socket; everything else
//! passes to the kernel untouched, ARP included. The program is attached by a link and everything
//! is held by descriptors, so that any end of the engine, also SIGKILL, restores the interface.
//!
//! There is a socket on every receive queue, each with memory of its own (`memory`); frames are
//! sent through the first. AF_XDP has no segmentation offload: frames to be segmented are sent
//! through a packet socket instead, and the card or the kernel segments them. Frames longer than a
//! page arrive in several buffers, which are assembled here or, in generic mode, are contiguous
//! (`receive::Layout`). With a native program the kernel segments a veth peer's frames to the
//! link's MTU. In generic mode, the default for veth, large frames arrive whole and without a
//! segment size: TCP does not need it, and datagrams longer than the link's MTU are left to the
//! kernel's socket.
//!
//! Connections opened by the engine use TCP ports reserved in the kernel: as many sockets as ports,
//! bound and not listening, so that no other program gets one of them.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arch::SharedBytes;
use rustix::event::epoll;
use serde::{Deserialize, Serialize};
use wire::MacAddr;

use crate::bpf::{Map, Program};
use crate::copy::{self, ETHERNET_BYTES};
use crate::interface::{
    Claim, LinkState, Port, PortCounters, PortInfo, RxBurst, RxFrame, RxHandle, TxError, TxFrame,
    TxMeta,
};
use crate::link::Link;
use crate::open::{OpenError, OpenErrorKind, PortDescription, PortFds, random_seed};
use crate::packet;
use crate::spec::{PortSpec, Remote};
use crate::survey::receive_queues;

mod claims;
mod drivers;
mod fragments;
mod memory;
mod modes;
mod owned;
mod partial;
mod probe;
mod program;
mod queues;
mod receive;
mod remotes;
pub(crate) mod reserve;
mod ring;
mod socket;
mod transmit;
mod watch;

use claims::Claims;
use fragments::{Counts, Fragments};
use memory::{CHUNK_BYTES, HEADROOM, Memory};
use modes::Attempt;
pub use modes::XdpMode;
use owned::Owned;
pub use queues::QUEUES_MAX;
use queues::{Binding, Growth, Sockets, chunks_of, range_of};
use receive::{Layout, Queue, Receive};
use remotes::Remotes;
pub(crate) use socket::Rings;
use transmit::Transmit;
use watch::{Watch, Watched};

/// Interval of checks of the link's state and of the kernel's counters.
const LOOK_NS: u64 = 10_000_000;
/// Checks of the link per check of the counters.
const LOOKS_PER_COUNT: u32 = 10;
/// Longest frame that fits one buffer.
const LONE_FRAME_BYTES_MAX: u32 = (CHUNK_BYTES - HEADROOM) as u32;
/// Drivers without a card, whose peers pass frames without segmentation and with partial checksums.
const SOFTWARE: [&str; 6] = ["veth", "virtio_net", "macvlan", "ipvlan", "tun", "bridge"];
/// A veth peer has room for 256 frames that its kernel has not processed, and silently drops
/// others; a frame counts as sent only when it was processed. At most this many are in flight
/// through the AF_XDP socket,
const VETH_UNDER_WAY: u32 = 144;
/// and frames to be segmented with this many bytes, of which the kernel holds twice as many plus
/// the frame that exceeds them: some 90 segments. This applies if they are segmented before the
/// link; if the link accepts them whole, the limit of a packet port is lower.
const VETH_SEGMENTING_BYTES: libc::c_int = 48 << 10;
/// Pause before frames without room are retried: there is no notification of room.
const RETRY_NS: u64 = 50_000;
/// Room that VLAN tags may take in a frame.
const TAG_BYTES: u32 = 4;

// Flags of attaching (linux/if_link.h).
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;

/// Data of an XDP port besides its descriptors: the attached link, the map of claims, the memory,
/// the maps of sockets, of counts and of the watch, two packet sockets, possibly the map of remote
/// addresses, then the sockets of the queues, those for queues to come, and last those that reserve
/// ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpFacts {
    /// Sockets on queues.
    pub queues: u32,
    /// Sockets for queues that may be added.
    pub spares: u32,
    /// Mode in which the sockets are bound.
    pub mode: XdpMode,
    /// Whether they take frames of several buffers.
    pub several_buffers: bool,
    /// The link accepts frames to be segmented.
    pub takes_large: bool,
    /// First and last reserved port.
    pub connect_ports: (u16, u16),
    /// Peers on a kernel may leave checksums partial.
    pub is_virtual: bool,
    /// Maximum frames passed to the kernel and not yet reported as sent.
    pub under_way_max: u32,
    /// Remote addresses to be served; if there are any, their map follows the memory.
    pub remotes: Vec<Remote>,
}

pub(crate) fn open(spec: &PortSpec) -> Result<PortFds, OpenError> {
    let label = spec.label();
    let fail = |doing: &str, capability: &str, why: io::Error| {
        OpenError::system(&label, doing, capability, &why)
    };
    let asked = "look at the interface";
    let admin = "CAP_NET_ADMIN";
    let link = Link::new(&spec.name).map_err(|why| fail(asked, admin, why))?;
    let index = link.index().map_err(|why| fail(asked, admin, why))?;
    let mac = link.mac().map_err(|why| fail(asked, admin, why))?;
    let mtu = link.mtu().map_err(|why| fail(asked, admin, why))?;
    let driver = link.driver();
    if link.strips_vlan(driver.as_deref()) {
        refuse_tagged(spec, &label)?;
    }
    let reserved = reserve::block(spec.connect_ports)
        .map_err(|why| fail("reserve TCP ports", "CAP_NET_BIND_SERVICE", why))?;
    let several_buffers = socket::take_several_buffers()
        .map_err(|why| fail("open AF_XDP sockets", "CAP_NET_RAW", why))?;
    let (modes, known) =
        modes::to_try(spec.mode, driver.as_deref(), drivers::kernel(), several_buffers);
    let mut notes: Vec<String> =
        known.into_iter().map(|sentence| format!("{label}: {sentence}")).collect();
    let driver_name = driver.as_deref();
    let receive_queues = receive_queues(&spec.name, index, mac);
    let interface = Interface {
        label: &label,
        name: &spec.name,
        index,
        mac,
        mtu,
        driver: driver_name,
        several_buffers,
        receive_queues,
    };
    let opened = modes::first_that_works(&label, &modes, &mut notes, |mode| {
        interface.attempt(mode, reserved.ports, &spec.remotes)
    })
    .map_err(|why| OpenError {
        sentence: format!(
            "{}; tap: and packet: ports work without AF_XDP, with addresses of the engine's own",
            why.sentence
        ),
        ..why
    })?;
    let is_veth = driver.as_deref() == Some("veth");
    // The link may begin or cease to accept large frames.
    let segmenting = [None, is_veth.then_some(VETH_SEGMENTING_BYTES)]
        .map(|bytes| packet::sending_socket(index, bytes))
        .into_iter()
        .collect::<io::Result<Vec<OwnedFd>>>()
        .map_err(|why| fail("open a packet socket", "CAP_NET_RAW", why))?;
    let queues = opened.queues.len() as u32;
    let most = link.channels().map_or(queues, |(_, most)| most);
    let binding = Binding { index, mode: opened.mode, several_buffers };
    let spares = binding.spares(&opened.memfd, queues, most);
    let description = PortDescription {
        kind: spec.kind,
        label: label.clone(),
        mac,
        mtu,
        offloads: packet::kernel_segments(),
        interface_index: index,
        impairment: spec.impairment,
        seed: spec.seed.map_or_else(random_seed, Ok)?,
        mode: Some(format!(
            "XDP {}, frames {}, {}, {} receive {}, driver {}, connects from ports {} to {}, {}",
            opened.attach_mode,
            if opened.zero_copy { "zero-copy" } else { "copied by the kernel" },
            if several_buffers { "of several buffers, too" } else { "of one buffer" },
            opened.queues.len(),
            if opened.queues.len() == 1 { "queue" } else { "queues" },
            driver.as_deref().unwrap_or("unknown"),
            reserved.ports.0,
            reserved.ports.1,
            match &opened.untested {
                None => "tested with a frame".to_owned(),
                Some(why) => format!("not tested, because the kernel cannot run the test ({why})"),
            },
        )),
        memif: None,
        station: None,
        xdp: Some(XdpFacts {
            queues,
            spares: spares.len() as u32,
            mode: opened.mode,
            several_buffers,
            takes_large: link.has_tso(),
            connect_ports: reserved.ports,
            is_virtual: driver_name.is_some_and(|driver| SOFTWARE.contains(&driver)),
            under_way_max: if is_veth { VETH_UNDER_WAY } else { transmit::CHUNKS as u32 },
            remotes: spec.remotes.clone(),
        }),
        notes,
    };
    let mut fds = vec![opened.attached, opened.owned.0.into_fd(), opened.memfd];
    let maps = [opened.sockets.0.into_fd(), opened.counts.into_fd(), opened.watch.map.into_fd()];
    fds.extend(maps);
    fds.extend(segmenting);
    fds.extend(opened.remotes.map(|remotes| remotes.map.into_fd()));
    let mut rings = Vec::new();
    for queue in opened.queues.into_iter().chain(spares) {
        fds.push(queue.fd);
        rings.push(queue.rings);
    }
    fds.extend(reserved.sockets);
    Ok(PortFds { fds, description, rings, links: Vec::new() })
}

/// A VLAN interface above the one called `name`.
pub(crate) fn carries_vlan(name: &str) -> Option<String> {
    let tagged = std::fs::read_to_string("/proc/thread-self/net/vlan/config").unwrap_or_default();
    let of_ours = |line: &&str| line.rsplit('|').next().is_some_and(|of| of.trim() == name);
    let line = tagged.lines().find(of_ours)?;
    Some(line.split('|').next().unwrap_or_default().trim().to_owned())
}

/// Known faults of a driver on this kernel: a sentence.
pub(crate) fn driver_note(driver: &str) -> Option<String> {
    drivers::known(driver, drivers::kernel()).map(drivers::Known::sentence)
}

/// Without its VLAN tag a frame looks like one of the interface's own network. With it, it is left
/// to the kernel, because the program does not parse tags.
fn refuse_tagged(spec: &PortSpec, label: &str) -> Result<(), OpenError> {
    match carries_vlan(&spec.name) {
        None => Ok(()),
        Some(vlan) => Err(OpenError::new(
            OpenErrorKind::InUse,
            format!(
                "{label} carries the VLAN interface {vlan}: the frames of the two cannot be \
                 distinguished once the tag is stripped; keep the tags if the card can (ethtool -K \
                 {name} rxvlan off), remove the VLAN interface (ip link del {vlan}), or give the \
                 engine another interface",
                name = spec.name
            ),
        )),
    }
}

/// The interface of a port being opened.
struct Interface<'a> {
    label: &'a str,
    name: &'a str,
    index: u32,
    mac: MacAddr,
    mtu: u16,
    driver: Option<&'a str>,
    /// Whether the kernel passes frames of several buffers to the sockets.
    several_buffers: bool,
    /// Number of receive queues, if known.
    receive_queues: Option<usize>,
}

/// A port that works in one of the modes.
struct Opened {
    attached: OwnedFd,
    owned: Owned,
    remotes: Option<Remotes>,
    sockets: Sockets,
    counts: Map,
    watch: Watch,
    memfd: OwnedFd,
    queues: Vec<Queue>,
    mode: XdpMode,
    attach_mode: &'static str,
    /// On every queue.
    zero_copy: bool,
    /// Why the frame test was not run.
    untested: Option<io::Error>,
}

impl Interface<'_> {
    fn failed(&self, doing: &str, capability: &str, why: &io::Error) -> Attempt<OpenError> {
        let error = OpenError::system(self.label, doing, capability, why);
        match why.raw_os_error() {
            // The same would be missing in every mode.
            Some(libc::EPERM | libc::EACCES | libc::ENODEV | libc::ENOBUFS) => {
                Attempt::Hopeless(error)
            }
            _ => Attempt::Failed(error),
        }
    }

    /// Sets up one mode, and tests it with a frame.
    fn attempt(
        &self,
        mode: XdpMode,
        block: (u16, u16),
        remotes: &[Remote],
    ) -> Result<Opened, Attempt<OpenError>> {
        let maps = (|| {
            let remotes = Remotes::create(remotes)?;
            let watch = Watch::create()?;
            Ok((Owned::create()?, Sockets::create()?, Fragments::create()?, watch, remotes))
        })();
        let (owned, sockets, fragments, watch, remotes) =
            maps.map_err(|why| self.failed("make BPF maps", "CAP_BPF", &why))?;
        let maps = program::Maps {
            owned: &owned.0,
            sockets: &sockets.0,
            watch: &watch.map,
            fragments: &fragments,
            remotes: remotes.as_ref(),
        };
        let program = program::load(&maps, block, program::UNBOUND, self.several_buffers)
            .map_err(|why| self.failed("load the XDP program", "CAP_BPF or CAP_PERFMON", &why))?;
        let attached = self.attach(&program, mode)?;
        if !self.several_buffers {
            self.refuse_long_frames(mode).map_err(Attempt::Failed)?;
        }
        let Self { index, several_buffers, .. } = *self;
        let (memfd, mut queues) = Binding { index, mode, several_buffers }
            .open_all(&sockets)
            .map_err(|why| self.failed("open AF_XDP sockets", "CAP_NET_RAW", &why))?;
        self.refuse_unserved(queues.len())?;
        let zero_copy = queues.iter().all(|queue| socket::is_zero_copy(&queue.fd));
        let Some(first) = queues.first_mut() else {
            let why = io::Error::other("the interface has no receive queue");
            return Err(self.failed("open AF_XDP sockets", "CAP_NET_RAW", &why));
        };
        let untested = match probe::run(&program, &owned, first, self.index, self.mac) {
            Ok(()) => None,
            // The kernel is too old for such tests, or does not permit them.
            Err(why) if matches!(why.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                Some(why)
            }
            Err(why) => return Err(self.failed("receive", "CAP_BPF", &why)),
        };
        let attach_mode = if mode == XdpMode::Generic { "generic" } else { "native" };
        let counts = fragments.counts;
        Ok(Opened {
            attached,
            owned,
            remotes,
            sockets,
            counts,
            watch,
            memfd,
            queues,
            mode,
            attach_mode,
            zero_copy,
            untested,
        })
    }

    /// Fails unless `served` is the number of queues.
    fn refuse_unserved(&self, served: usize) -> Result<(), Attempt<OpenError>> {
        let Self { label, name, .. } = self;
        let Some(queues) = self.receive_queues.filter(|queues| *queues > served) else {
            return Ok(());
        };
        Err(Attempt::Failed(OpenError::new(
            OpenErrorKind::Unsupported,
            format!(
                "{label} has {queues} receive queues, but AF_XDP serves only the first {served}: \
                 frames on the others would be lost to the engine; use fewer: ethtool -L {name} \
                 combined {served}"
            ),
        )))
    }

    /// Before Linux 6.6 a frame that does not fit one buffer is lost to the sockets. A driver that
    /// runs the program makes none; in generic mode they arrive as a virtual link's peer sent them.
    fn refuse_long_frames(&self, mode: XdpMode) -> Result<(), OpenError> {
        let Self { label, mtu, .. } = self;
        let refuse = |why: String| Err(OpenError::new(OpenErrorKind::Unsupported, why));
        if frame_bytes_max(*mtu) > LONE_FRAME_BYTES_MAX {
            return refuse(format!(
                "{label} has an MTU of {mtu}, but before Linux 6.6 AF_XDP takes frames of at most \
                 {LONE_FRAME_BYTES_MAX} bytes: set the MTU to {} or less (ip link set NAME mtu N), \
                 or boot a newer kernel",
                LONE_FRAME_BYTES_MAX - frame_bytes_max(0)
            ));
        }
        let is_software = self.driver.is_none_or(|driver| SOFTWARE.contains(&driver));
        if mode == XdpMode::Generic && is_software {
            return refuse(format!(
                "in generic mode {label} receives frames as long as a virtual peer sends them, but \
                 before Linux 6.6 AF_XDP takes at most {LONE_FRAME_BYTES_MAX} bytes: boot a newer \
                 kernel"
            ));
        }
        Ok(())
    }

    fn attach(&self, program: &Program, mode: XdpMode) -> Result<OwnedFd, Attempt<OpenError>> {
        let flag = if mode == XdpMode::Generic { FLAG_GENERIC } else { FLAG_NATIVE };
        let why = match program.attach(self.index, flag) {
            Ok(link) => return Ok(link),
            Err(why) => why,
        };
        if matches!(why.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) {
            return Err(Attempt::Hopeless(OpenError::new(
                OpenErrorKind::InUse,
                format!(
                    "{} has an XDP program already ({why}): stop the program that attached it, \
                     perhaps another engine (\"ip link\" shows it, \"ip link set NAME xdp off\" \
                     removes one without a link)",
                    self.label
                ),
            )));
        }
        Err(self.failed("attach the XDP program", "CAP_NET_ADMIN", &why))
    }
}

/// The running port; see the module.
#[derive(Debug)]
pub struct XdpPort {
    info: PortInfo,
    queues: Vec<Queue>,
    receive: Receive,
    transmit: Transmit,
    /// For frames to be segmented: if the link accepts them, and if the kernel segments them.
    segmenting: [OwnedFd; 2],
    takes_large: bool,
    large: packet::transmit::Transmit,
    claims: Claims,
    remotes: Option<Remotes>,
    /// Watches all queues, where there are several.
    waiting: Option<OwnedFd>,
    growth: Growth,
    counts: Counts,
    watched: Watched,
    /// Held to keep program, map and reservation: they end with the port.
    _held: Vec<OwnedFd>,
    now_ns: u64,
    next_look_ns: u64,
    looks: u32,
    /// A frame found no room in this turn.
    is_full: bool,
    counters: PortCounters,
}

impl XdpPort {
    pub(crate) fn new(
        mut fds: impl Iterator<Item = OwnedFd>,
        rings: Vec<Rings>,
        facts: &XdpFacts,
        description: &PortDescription,
    ) -> Result<Self, OpenError> {
        let fail = |doing: &str, why: io::Error| {
            OpenError::system(&description.label, doing, "memory", &why)
        };
        let first = [(); 8].map(|()| fds.next());
        let [
            Some(link),
            Some(owned),
            Some(memfd),
            Some(sockets),
            Some(counts),
            Some(watched),
            Some(whole),
            Some(cut),
        ] = first
        else {
            return Err(fail("find the descriptors", io::ErrorKind::InvalidInput.into()));
        };
        let remotes = match facts.remotes.is_empty() {
            true => None,
            false => {
                let Some(fd) = fds.next() else {
                    return Err(fail("find the descriptors", io::ErrorKind::InvalidInput.into()));
                };
                Some(Remotes::from_fd(fd, &facts.remotes))
            }
        };
        let layout = Layout::of(facts.mode);
        let mut queues = Vec::new();
        // Linux 6.1 maps the rings of a socket only before it is bound.
        let mut rings = rings.into_iter();
        for (number, fd) in (0..facts.queues).zip(&mut fds) {
            let memory = Memory::map(&memfd, range_of(number));
            // Its fill ring is as the opener left it: full.
            let chunks = chunks_of(number);
            let queue =
                memory.and_then(|memory| Queue::new(fd, rings.next(), memory, layout, chunks));
            queues.push(queue.map_err(|why| fail("map the memory of AF_XDP", why))?);
        }
        let waiting = match queues.len() {
            0 => return Err(fail("find a receive queue", io::ErrorKind::InvalidInput.into())),
            1 => None,
            _ => Some(watch(&queues).map_err(|why| fail("watch the sockets", why))?),
        };
        let XdpFacts { mode, several_buffers, .. } = *facts;
        let binding = Binding { index: description.interface_index, mode, several_buffers };
        let spares: io::Result<_> = (0..facts.spares)
            .zip(&mut fds)
            .map(|(at, fd)| binding.spare(&memfd, facts.queues + at, fd, rings.next()))
            .collect();
        let spares = spares.map_err(|why| fail("map the memory of AF_XDP", why))?;
        let growth = Growth { binding, sockets: Sockets::from_fd(sockets), spares };
        let info = description.info();
        let watched = Watch::watched(watched).map_err(|why| fail("map the watch", why))?;
        let claims = Claims::new(Owned::from_fd(owned), frame_bytes_max(info.mtu));
        Ok(Self {
            info,
            queues,
            receive: Receive::new(facts.is_virtual),
            transmit: Transmit::new(chunks_of(0) * CHUNK_BYTES, facts.under_way_max as usize),
            segmenting: [whole, cut],
            takes_large: facts.takes_large,
            large: packet::transmit::Transmit::new(),
            claims,
            remotes,
            waiting,
            growth,
            counts: Counts::from_fd(counts),
            watched,
            _held: [link, memfd].into_iter().chain(fds).collect(),
            now_ns: 0,
            next_look_ns: 0,
            looks: 0,
            is_full: false,
            counters: PortCounters::default(),
        })
    }

    fn has_room_for(&self, len: usize) -> bool {
        self.queues.first().is_some_and(|queue| self.transmit.has_room_for(queue, len))
    }

    fn flush_large(&mut self) {
        self.large.flush(segmenting(&self.segmenting, self.takes_large), &mut self.counters);
    }

    fn try_to_send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        let len = copy::length(header, payload);
        let frame = TxFrame { meta, header, payload };
        if !copy::sendable(&self.info, meta, header, len) {
            self.counters.tx_errors += 1;
            return Err(TxError::Unsendable);
        }
        if meta.gso.is_none() {
            if self.large.is_waiting() && !self.has_room_for(len) {
                self.flush_large();
                if self.large.is_waiting() {
                    self.counters.tx_full += 1;
                    return Err(TxError::Full);
                }
            }
            let Some(queue) = self.queues.first_mut() else { return Err(TxError::Down) };
            return self.transmit.send(queue, &frame, len, &mut self.counters);
        }
        if self.transmit.is_gathered() {
            // Frames of a connection keep their order.
            self.flush();
            if self.transmit.is_gathered() {
                self.counters.tx_full += 1;
                return Err(TxError::Full);
            }
        }
        let socket = segmenting(&self.segmenting, self.takes_large);
        self.large.send(socket, &frame, len, &mut self.counters)
    }
}

/// The socket for frames to be segmented, of the one for a link that accepts them whole and the one
/// for a link that does not.
fn segmenting([whole, cut]: &[OwnedFd; 2], takes_large: bool) -> &OwnedFd {
    if takes_large { whole } else { cut }
}

fn frame_bytes_max(mtu: u16) -> u32 {
    u32::from(mtu) + ETHERNET_BYTES as u32 + TAG_BYTES
}

fn watch(queues: &[Queue]) -> io::Result<OwnedFd> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for queue in queues {
        epoll::add(&all, &queue.fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(all)
}

impl Port for XdpPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        self.release(burst);
        self.receive.receive(&mut self.queues, burst, &mut self.counters);
        if !burst.handles.is_empty() {
            self.watched.looked();
        }
    }

    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        self.receive.frame(&self.queues, handle)
    }

    fn release(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        self.receive.release(&mut self.queues);
    }

    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        let sent = self.try_to_send(meta, header, payload);
        self.is_full |= sent == Err(TxError::Full);
        sent
    }

    /// Frames to be segmented first: those gathered before them were already sent, and those
    /// gathered after them wait until the kernel has taken them.
    fn flush(&mut self) {
        self.flush_large();
        if self.large.is_waiting() {
            return;
        }
        if let Some(queue) = self.queues.first_mut() {
            self.transmit.flush(queue, &mut self.counters);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        let only = || self.queues.first().map(|queue| queue.fd.as_fd());
        self.waiting.as_ref().map(AsFd::as_fd).or_else(only)
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    /// Soon while the kernel has no room for a frame: it sends no wakeup when it has.
    fn next_deadline(&self) -> Option<u64> {
        let queue = self.queues.first()?;
        let waits = self.is_full || self.transmit.is_waiting(queue) || self.large.is_waiting();
        waits.then(|| self.now_ns.saturating_add(RETRY_NS))
    }

    fn on_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.is_full = false;
        if now_ns < self.next_look_ns {
            return;
        }
        self.next_look_ns = now_ns.saturating_add(LOOK_NS);
        self.watched.looked();
        self.transmit.try_again();
        self.large.try_again();
        self.flush();
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_PER_COUNT) {
            self.counters.rx_missed =
                self.queues.iter().map(|queue| socket::missed(&queue.fd)).sum();
            self.counters.rx_left = self.remotes.as_mut().map_or(0, Remotes::left);
            self.counters.rx_kept_back = self.watched.kept_back();
            self.counts.look(now_ns);
            self.counters.fragmented = self.counts.kept();
            self.counters.fragments_evicted = self.counts.evicted();
            self.counters.fragments_refused = self.counts.refused();
            self.queues.iter_mut().for_each(Queue::look);
        }
    }

    fn claim(&mut self, claim: &Claim) -> io::Result<()> {
        self.claims.claim(claim)
    }

    fn release_claim(&mut self, claim: &Claim) {
        self.claims.release(claim);
    }

    fn follow(&mut self, addresses: &[IpAddr], mtu: u16) -> io::Result<()> {
        self.info.mtu = mtu;
        self.claims.follow(addresses, frame_bytes_max(mtu))
    }

    fn follow_link(&mut self, link: &LinkState) -> io::Result<()> {
        self.takes_large = link.takes_large;
        let wanted = link.receive_queues.unwrap_or(0);
        if wanted <= self.queues.len() as u32 {
            self.counters.rx_queues_unserved = 0;
            return Ok(());
        }
        let served = self.growth.serve(&mut self.queues, wanted);
        self.counters.rx_queues_unserved = u64::from(wanted) - self.queues.len() as u64;
        self.waiting = Some(watch(&self.queues)?);
        served
    }
}
