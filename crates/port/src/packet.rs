//! AF_PACKET on an existing interface without kernel addresses.
//!
//! Receiving uses a ring shared with the kernel (TPACKET_V2, which passes slots frame by frame;
//! version 3 passes blocks, after a timeout): an idle poll is a read of memory, and the kernel
//! copies frames in on the sender's or the interrupt's CPU. Every slot holds a coalesced frame of
//! 64 KiB. Sending gathers small frames and passes them with one `sendmmsg` per burst; large ones
//! go to the kernel in place.
//!
//! So that the kernel does not reply, [`open`](crate::open) drops frames after the socket has
//! received them (`guard`; it ends with the port), and turns off ARP (IFF_NOARP), IPv6 and
//! forwarding on the interface; these settings stay when the port closes (`ip link set NAME arp on`
//! and the two sysctls undo them). An interface with a kernel IPv4 address is refused: two stacks
//! would reply.
//!
//! Sent frames pass the interface's queueing discipline. Bypassing it (PACKET_QDISC_BYPASS) gained
//! nothing over veth, hides sent frames from `tcpdump`, and drops large frames on interfaces that
//! cannot segment them.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use arch::SharedBytes;

use crate::copy;
use crate::interface::{
    Port, PortCounters, PortInfo, RxBurst, RxFrame, RxHandle, RxMeta, TxError, TxFrame, TxMeta,
};
use crate::link::{self, Link};
use crate::open::{OpenError, OpenErrorKind, PortDescription, PortFds, PortOffloads, random_seed};
use crate::spec::PortSpec;

mod guard;
mod ring;
pub(crate) mod transmit;

use ring::Ring;
use transmit::Transmit;

/// The kernel's memory for frames in flight to the interface. Enough for a burst of large ones.
const SEND_BUFFER_BYTES: libc::c_int = 4 << 20;
/// Interval of checks of the link's state.
const LOOK_NS: u64 = 10_000_000;

pub(crate) fn open(spec: &PortSpec) -> Result<PortFds, OpenError> {
    link::in_namespace(spec, || open_here(spec))
}

fn open_here(spec: &PortSpec) -> Result<PortFds, OpenError> {
    let label = spec.label();
    let fail = |doing: &str, capability: &str, why: io::Error| {
        OpenError::system(&label, doing, capability, &why)
    };
    let asked = "look at the interface";
    let admin = "CAP_NET_ADMIN";
    let link = Link::new(&spec.name).map_err(|why| fail(asked, admin, why))?;
    let index = link.index().map_err(|why| fail(asked, admin, why))?;
    let own = link.mac().map_err(|why| fail(asked, admin, why))?;
    let mut notes = Vec::new();
    prepare(&link, spec, &label, &mut notes)?;
    let mac = spec.mac.unwrap_or(own);
    let fd = packet_socket(index, libc::ETH_P_ALL as u16, mac != own)
        .map_err(|why| fail("open a packet socket", "CAP_NET_RAW", why))?;
    // After the socket: until here the kernel receives everything.
    let guard = match guard::attach(index) {
        Ok(guard) => Some(guard),
        Err(why) => {
            notes.push(format!(
                "{label}: the kernel also processes the frames for the engine ({why}; to prevent \
                 that, it takes Linux 6.6 and CAP_BPF): the port works but costs more CPU; ARP, IPv6 \
                 and forwarding are off on the interface"
            ));
            None
        }
    };
    let description = PortDescription {
        kind: spec.kind,
        label: label.clone(),
        mac,
        mtu: link.mtu().map_err(|why| fail(asked, admin, why))?,
        offloads: kernel_segments(),
        interface_index: index,
        impairment: spec.impairment,
        seed: spec.seed.map_or_else(random_seed, Ok)?,
        mode: None,
        xdp: None,
        memif: None,
        station: None,
        notes,
    };
    Ok(PortFds {
        fds: std::iter::once(fd).chain(guard).collect(),
        description,
        rings: Vec::new(),
        links: Vec::new(),
    })
}

/// Keeps the kernel from replying on the interface, and brings it up.
fn prepare(
    link: &Link,
    spec: &PortSpec,
    label: &str,
    notes: &mut Vec<String>,
) -> Result<(), OpenError> {
    let fail = |doing: &str, why: io::Error| OpenError::system(label, doing, "CAP_NET_ADMIN", &why);
    if link.has_address().map_err(|why| fail("look at the interface", why))? {
        return Err(OpenError::new(
            OpenErrorKind::InUse,
            format!(
                "{label} has a kernel address, so the kernel would answer too: remove it (ip addr \
                 flush dev {}), or use an interface without one",
                spec.name
            ),
        ));
    }
    for (family, key, value, effect) in [
        ("ipv6", "disable_ipv6", "1", "its IPv6 may answer neighbours"),
        ("ipv4", "forwarding", "0", "it may forward frames that are for the engine"),
    ] {
        if let Err(why) = link.set_sysctl(family, key, value) {
            notes.push(format!(
                "{label}: net.{family}.conf.{}.{key} could not be set to {value} ({why}); the \
                 kernel keeps its setting and {effect}: set it by hand",
                spec.name
            ));
        }
    }
    if let Some(mtu) = spec.mtu {
        link.set_mtu(mtu).map_err(|why| fail("set the MTU", why))?;
    }
    link.raise(libc::IFF_UP | libc::IFF_NOARP)
        .map_err(|why| fail("turn ARP off and bring the interface up", why))
}

/// A socket that sends on an interface, with offloads, and receives nothing. The kernel holds at
/// most `bytes` of frames (`None`: as for a packet port) that the peer has not taken.
pub(crate) fn sending_socket(index: u32, bytes: Option<libc::c_int>) -> io::Result<OwnedFd> {
    let fd = packet_socket(index, 0, false)?;
    if let Some(bytes) = bytes {
        set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)?;
    }
    Ok(fd)
}

/// `protocol`: the EtherType to receive; 0 for none.
fn packet_socket(index: u32, protocol: u16, promiscuous: bool) -> io::Result<OwnedFd> {
    // Protocol 0: nothing arrives before the socket is set up and bound.
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket takes no pointers.
    let raw = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    set_option(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32)?;
    set_option(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
    set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_BYTES)?;
    // SAFETY: all-zero is a value of these plain C structs.
    let (mut address, mut member): (libc::sockaddr_ll, libc::packet_mreq) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as i32;
    // IPv6 uses multicast for neighbour discovery, which a card would otherwise filter out.
    let kind = if promiscuous { libc::PACKET_MR_PROMISC } else { libc::PACKET_MR_ALLMULTI };
    member.mr_ifindex = index as i32;
    member.mr_type = kind as u16;
    set_option(&fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &member)?;
    // SAFETY: the address is a sockaddr_ll of the length given.
    let bound = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            mem::size_of_val(&address) as libc::socklen_t,
        )
    };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
}

pub(crate) fn set_option<T>(
    fd: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as the value has.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option into `value`, which must be a plain C type.
fn read_option<T: Copy>(
    fd: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut T,
) -> bool {
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into the value, which takes any bytes.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_mut(value).cast(),
            &raw mut len,
        )
    };
    result == 0
}

/// What the kernel segments for a packet socket, in software if the card cannot. Linux 6.2 and
/// later understand UDP segmentation in the vnet header; there is no option to query it.
pub(crate) fn kernel_segments() -> PortOffloads {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let uso = (numbers.next(), numbers.next()) >= (Some(6), Some(2));
    PortOffloads { tso: true, uso }
}

/// The running port; see the module.
#[derive(Debug)]
pub struct PacketPort {
    fd: OwnedFd,
    /// Held so that the kernel keeps dropping what the socket has received.
    _guard: Option<OwnedFd>,
    info: PortInfo,
    ring: Ring,
    transmit: Transmit,
    next_look_ns: u64,
    gone: bool,
    counters: PortCounters,
}

/// Whether the interface to which a packet socket was bound has been removed: the kernel then
/// returns -1 as its index.
fn is_unbound(fd: &OwnedFd) -> bool {
    // SAFETY: all-zero is a value of this plain C struct.
    let mut bound: libc::sockaddr_ll = unsafe { mem::zeroed() };
    let mut len = mem::size_of_val(&bound) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into the struct, which takes any.
    let told = unsafe {
        libc::getsockname(fd.as_raw_fd(), std::ptr::from_mut(&mut bound).cast(), &raw mut len)
    };
    told == 0 && bound.sll_ifindex == -1
}

impl PacketPort {
    pub(crate) fn new(
        fd: OwnedFd,
        guard: Option<OwnedFd>,
        description: &PortDescription,
    ) -> Result<Self, OpenError> {
        let ring = Ring::new(&fd, &description.label)?;
        Ok(Self {
            fd,
            _guard: guard,
            info: description.info(),
            ring,
            transmit: Transmit::new(),
            next_look_ns: 0,
            gone: false,
            counters: PortCounters::default(),
        })
    }

    /// Reads how many frames found the ring full. The kernel resets the count.
    fn read_drops(&mut self) {
        let mut seen = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        if read_option(&self.fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut seen) {
            self.counters.rx_missed += u64::from(seen.tp_drops);
        }
    }
}

impl Port for PacketPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        self.release(burst);
        self.ring.receive(burst, &mut self.counters);
    }

    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        self.ring.frame(handle).unwrap_or(RxFrame { bytes: &[], meta: RxMeta::default() })
    }

    fn release(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        self.ring.release();
        if self.ring.take_losing() {
            self.read_drops();
        }
    }

    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        let len = copy::length(header, payload);
        if !copy::sendable(&self.info, meta, header, len) {
            self.counters.tx_errors += 1;
            return Err(TxError::Unsendable);
        }
        let frame = TxFrame { meta, header, payload };
        self.transmit.send(&self.fd, &frame, len, &mut self.counters)
    }

    fn flush(&mut self) {
        self.transmit.flush(&self.fd, &mut self.counters);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn is_gone(&self) -> bool {
        self.gone
    }

    fn is_up(&self) -> bool {
        link::has_carrier(&self.fd, self.info.kernel_index).unwrap_or(!self.gone)
    }

    /// At once while the kernel has no room for gathered frames: it sends no wakeup when it has.
    fn next_deadline(&self) -> Option<u64> {
        self.transmit.is_waiting().then_some(0)
    }

    /// Clears the socket's pending error periodically: otherwise a link that went down would keep
    /// [`Port::wait_fd`] ready forever. Retries a link that was down.
    fn on_time(&mut self, now_ns: u64) {
        if now_ns >= self.next_look_ns {
            self.next_look_ns = now_ns.saturating_add(LOOK_NS);
            let mut pending: libc::c_int = 0;
            read_option(&self.fd, libc::SOL_SOCKET, libc::SO_ERROR, &mut pending);
            self.gone |= pending != 0 && is_unbound(&self.fd);
            self.transmit.try_again();
        }
    }
}
