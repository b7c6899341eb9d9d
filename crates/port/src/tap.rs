//! A TAP device of the engine: the kernel's end is an ordinary interface, the other end is a file
//! from which whole frames of up to 64 KiB are read and to which they are written, each with a vnet
//! header that has checksum and segmentation state.
//!
//! The kernel's end may be moved to another network namespace after opening (`ip link set ob0
//! netns X`; it must then be brought up again there), or be opened there at once with `netns=`.
//! It goes away with the descriptor. The engine's link address is its own, different from that of
//! the kernel's end: the two are neighbours on a link.

use std::fs::OpenOptions;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use arch::SharedBytes;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use wire::MacAddr;
use wire::vnet;

use crate::copy::{self, FRAME_BYTES_MAX};
use crate::interface::{
    Offloads, Port, PortCounters, PortInfo, RxBurst, RxFrame, RxHandle, RxMeta, TxError, TxMeta,
};
use crate::kernel::KernelInterface;
use crate::link::{self, Link};
use crate::open::{OpenError, OpenErrorKind, PortDescription, PortFds, PortOffloads, random_seed};
use crate::spec::{Napi, PortSpec};

/// Frames of a burst are stored one after the other in this much memory, so that a burst of large
/// ones is still in the second-level cache when it is copied.
const BURST_BYTES: usize = 192 * 1024;
/// Room that the last frame of a burst may need beyond it.
const SLOT_BYTES: usize = (vnet::LEN + FRAME_BYTES_MAX).next_multiple_of(64);
/// Pieces passed to the kernel in place; a frame of more is assembled first.
const PIECES_MAX: usize = 62;
/// Memory of frames that wait for a kernel thread of the device's own, as the kernel counts it.
const QUEUED_BYTES: libc::c_int = 8 << 20;

pub(crate) fn open(spec: &PortSpec) -> Result<PortFds, OpenError> {
    link::in_namespace(spec, || open_here(spec))
}

fn open_here(spec: &PortSpec) -> Result<PortFds, OpenError> {
    let label = spec.label();
    let fail =
        |doing: &str, why: io::Error| OpenError::system(&label, doing, "CAP_NET_ADMIN", &why);
    let fd = device(&label)?;
    attach(&fd, &spec.name, spec.napi, &label)?;
    let uso = set_offloads(&fd, spec.impairment.is_some())
        .map_err(|why| fail("set the offloads", why))?;
    let link = Link::new(&spec.name).map_err(|why| fail("look at the interface", why))?;
    if let Some(mtu) = spec.mtu {
        link.set_mtu(mtu).map_err(|why| fail("set the MTU", why))?;
    }
    if spec.napi == Napi::Threaded {
        link.set_threaded(spec.netns.is_some()).map_err(|why| {
            OpenError::new(
                OpenErrorKind::Unsupported,
                format!(
                    "cannot give {label} a kernel thread: {why} writing \
                     /sys/class/net/{}/threaded; leave napi=threaded out, or make /sys writable",
                    spec.name
                ),
            )
        })?;
    }
    link.raise(libc::IFF_UP).map_err(|why| fail("bring the interface up", why))?;
    let asked = "look at the interface";
    let kernel_mac = link.mac().map_err(|why| fail(asked, why))?;
    let mac = match spec.mac {
        Some(mac) if mac == kernel_mac => {
            return Err(OpenError::new(
                OpenErrorKind::InUse,
                format!(
                    "{label}: mac={} is the address of the kernel's end, but the engine needs a \
                     different one; leave mac= out or choose another",
                    colons(mac)
                ),
            ));
        }
        Some(mac) => mac,
        None => own_mac(random_seed()?, kernel_mac),
    };
    let description = PortDescription {
        kind: spec.kind,
        label: label.clone(),
        mac,
        mtu: link.mtu().map_err(|why| fail(asked, why))?,
        offloads: PortOffloads { tso: true, uso },
        interface_index: link.index().map_err(|why| fail(asked, why))?,
        impairment: spec.impairment,
        seed: spec.seed.map_or_else(random_seed, Ok)?,
        mode: None,
        xdp: None,
        memif: None,
        station: None,
        notes: Vec::new(),
    };
    Ok(PortFds { fds: vec![fd], description, rings: Vec::new(), links: Vec::new() })
}

/// The device file, which has no interface yet.
fn device(label: &str) -> Result<OwnedFd, OpenError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(|why| match why.kind() {
            io::ErrorKind::NotFound => OpenError::new(
                OpenErrorKind::Unsupported,
                format!(
                    "{label} needs /dev/net/tun, which does not exist: load it with \"modprobe \
                     tun\", or add it to the container with --device /dev/net/tun"
                ),
            ),
            _ => OpenError::system(label, "open /dev/net/tun", "CAP_NET_ADMIN", &why),
        })?;
    Ok(OwnedFd::from(file))
}

/// Data of a device for a kernel interface.
#[derive(Debug)]
pub(crate) struct TapFacts {
    pub(crate) label: String,
    pub(crate) index: u32,
    mac: MacAddr,
    mtu: u16,
    uso: bool,
}

/// Creates a device for the kernel, in the caller's network namespace, with an interface that is
/// up. `is_silent`: the kernel uses neither ARP nor IPv6 there.
pub(crate) fn open_for_kernel(
    of: &KernelInterface,
    label: &str,
    is_silent: bool,
) -> Result<(OwnedFd, TapFacts), OpenError> {
    let fail = |doing: &str, why: io::Error| OpenError::system(label, doing, "CAP_NET_ADMIN", &why);
    let link = Link::new(&of.name).map_err(|why| fail("name the interface", why))?;
    if link.index().is_ok() {
        return Err(OpenError::new(
            OpenErrorKind::InUse,
            format!(
                "cannot create {label}: an interface of this name exists; choose another name, or \
                 remove it (ip link del {})",
                of.name
            ),
        ));
    }
    let fd = device(label)?;
    let napi = if is_silent { Napi::Off } else { Napi::Threaded };
    attach(&fd, &of.name, napi, label)?;
    let uso = set_offloads(&fd, false).map_err(|why| fail("set the offloads", why))?;
    if let Some(mac) = of.mac {
        link.set_mac(mac).map_err(|why| fail("set the link address", why))?;
    }
    link.set_mtu(of.mtu).map_err(|why| fail("set the MTU", why))?;
    let mut flags = libc::IFF_UP;
    if is_silent {
        flags |= libc::IFF_NOARP;
        link.set_sysctl("ipv6", "disable_ipv6", "1").map_err(|why| fail("turn IPv6 off", why))?;
    } else if let Err(why) = link.set_threaded(false) {
        tracing::warn!(
            "{label} has no kernel thread: {why} writing /sys/class/net/{}/threaded; the worker \
             does the kernel's share of receiving",
            of.name
        );
    }
    link.raise(flags).map_err(|why| fail("bring the interface up", why))?;
    let asked = "look at the interface";
    let facts = TapFacts {
        label: label.to_owned(),
        index: link.index().map_err(|why| fail(asked, why))?,
        mac: link.mac().map_err(|why| fail(asked, why))?,
        mtu: of.mtu,
        uso,
    };
    Ok((fd, facts))
}

/// Creates the device, or attaches to a persistent one.
fn attach(fd: &OwnedFd, name: &str, napi: Napi, label: &str) -> Result<(), OpenError> {
    // SAFETY: all-zero is a value of this plain C struct.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    request.ifr_name = link::name_field(name)
        .map_err(|why| OpenError::system(label, "name the interface", "CAP_NET_ADMIN", &why))?;
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if napi == Napi::Threaded {
        flags |= libc::IFF_NAPI;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    let refused = |kind, what: &str| {
        Err(OpenError::new(kind, format!("cannot create the TAP device for {label}: {what}")))
    };
    match tun_ioctl(fd, libc::TUNSETIFF, &mut request) {
        Ok(()) => {}
        Err(why) => match why.raw_os_error() {
            Some(libc::EBUSY) => {
                return refused(
                    OpenErrorKind::InUse,
                    "another program has this device open; choose another name or stop it",
                );
            }
            Some(libc::EINVAL) => {
                return refused(
                    OpenErrorKind::InUse,
                    "an interface of this name exists and is not a single-queue TAP device; \
                     choose another name",
                );
            }
            _ => {
                return Err(OpenError::system(
                    label,
                    "create the TAP device",
                    "CAP_NET_ADMIN",
                    &why,
                ));
            }
        },
    }
    let set = |code, mut value: libc::c_int| {
        tun_ioctl(fd, code, &mut value)
            .map_err(|why| OpenError::system(label, "set up the TAP device", "CAP_NET_ADMIN", &why))
    };
    set(libc::TUNSETVNETHDRSZ, vnet::LEN as libc::c_int)?;
    let queued = match napi {
        // A thread of its own may get no time: what waits for it is bounded, and the device full then.
        Napi::Threaded => QUEUED_BYTES,
        // The writer does the work itself. Without a limit of its own the kernel builds small frames from
        // a page fragment, which is its fast path.
        Napi::Off => libc::c_int::MAX,
    };
    set(libc::TUNSETSNDBUF, queued)
}

/// Lets the kernel pass large frames and partial checksums. True if UDP may be segmented, too
/// (Linux 6.2 and later). An impaired port takes single segments, so that each loss is that of one.
fn set_offloads(fd: &OwnedFd, single_segments: bool) -> io::Result<bool> {
    let set = |flags: libc::c_uint| {
        // SAFETY: the request takes a plain number.
        let result =
            unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(flags)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    let tso = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let uso = set(tso | libc::TUN_F_USO4 | libc::TUN_F_USO6).is_ok();
    if single_segments {
        set(libc::TUN_F_CSUM)?;
    } else if !uso {
        set(tso)?;
    }
    Ok(uso)
}

fn tun_ioctl<T>(fd: &OwnedFd, code: libc::Ioctl, argument: &mut T) -> io::Result<()> {
    // SAFETY: the callers pair each request with the type that it reads or writes.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), code, std::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A locally administered address from random bits, other than that of the kernel's end.
fn own_mac(seed: u64, kernel: MacAddr) -> MacAddr {
    let [_, _, a, b, c, d, e, f] = seed.to_be_bytes();
    // IEEE 802: bit 1 of the first byte says local, bit 0 says group.
    let mut mac = [(a | 2) & !1, b, c, d, e, f];
    if mac == kernel.0 {
        mac[5] ^= 1;
    }
    MacAddr(mac)
}

fn colons(mac: MacAddr) -> String {
    mac.0.map(|byte| format!("{byte:02x}")).join(":")
}

/// A frame of the burst, stored in the arena.
#[derive(Clone, Copy, Debug)]
struct ArenaFrame {
    start: usize,
    len: usize,
    meta: RxMeta,
}

/// The running port; see the module.
#[derive(Debug)]
pub struct TapPort {
    fd: OwnedFd,
    /// Never readable: what a sleeper waits on once the device is gone.
    quiet: OwnedFd,
    gone: bool,
    info: PortInfo,
    arena: Box<[u8]>,
    burst: Vec<ArenaFrame>,
    scratch: Vec<u8>,
    counters: PortCounters,
}

impl TapPort {
    pub(crate) fn new(fd: OwnedFd, description: &PortDescription) -> Result<Self, OpenError> {
        Self::with_info(fd, description.info())
    }

    /// The engine's end of a device for a kernel interface.
    pub(crate) fn of_kernel(fd: OwnedFd, facts: &TapFacts) -> Result<Self, OpenError> {
        let offloads = Offloads {
            tx_checksum: true,
            tso4: true,
            tso6: true,
            uso: facts.uso,
            rx_coalesce: true,
        };
        let info = PortInfo {
            name: facts.label.clone(),
            mac: facts.mac,
            mtu: facts.mtu,
            kernel_index: facts.index,
            offloads,
            shared: None,
        };
        Self::with_info(fd, info)
    }

    fn with_info(fd: OwnedFd, info: PortInfo) -> Result<Self, OpenError> {
        let quiet = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|why| {
            OpenError::system(&info.name, "make a descriptor", "a free descriptor", &why.into())
        })?;
        Ok(Self {
            fd,
            quiet,
            gone: false,
            info,
            arena: vec![0; BURST_BYTES + SLOT_BYTES].into_boxed_slice(),
            burst: Vec::with_capacity(RxBurst::CAPACITY),
            scratch: Vec::with_capacity(FRAME_BYTES_MAX),
            counters: PortCounters::default(),
        })
    }

    fn write(
        &mut self,
        vnet: &[u8; vnet::LEN],
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), Errno> {
        let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; PIECES_MAX + 2];
        let starts = [(vnet.as_ptr(), vnet.len()), (header.as_ptr(), header.len())];
        let pieces = payload.iter().map(|piece| (piece.as_ptr(), piece.len()));
        let mut count = 0;
        for (slot, (start, len)) in vectors.iter_mut().zip(starts.into_iter().chain(pieces)) {
            slot.write(libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len });
            count += 1;
        }
        // SAFETY: the first `count` vectors were written just now, each over memory that its
        // slice or `SharedBytes` keeps readable during the call; writev only reads it.
        let written = unsafe { libc::writev(self.fd.as_raw_fd(), vectors.as_ptr().cast(), count) };
        if written < 0 {
            let why = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            return Err(Errno::from_raw_os_error(why));
        }
        Ok(())
    }

    fn refused(&mut self, why: Errno) -> TxError {
        match why {
            Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::INTR => {
                self.counters.tx_full += 1;
                TxError::Full
            }
            // The device exists and is down.
            Errno::IO => {
                self.counters.tx_errors += 1;
                TxError::Down
            }
            // The device was deleted; this descriptor stays dead.
            Errno::BADFD => {
                self.gone = true;
                self.counters.tx_errors += 1;
                TxError::Down
            }
            _ => {
                self.counters.tx_errors += 1;
                TxError::Unsendable
            }
        }
    }
}

impl Port for TapPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        self.burst.clear();
        let mut at = 0;
        while self.burst.len() < RxBurst::CAPACITY && at < BURST_BYTES && !self.gone {
            let Some(room) = self.arena.get_mut(at..) else { break };
            let len = match rustix::io::read(&self.fd, &mut *room) {
                Ok(len) => len,
                Err(Errno::INTR) => continue,
                Err(Errno::BADFD) => {
                    self.gone = true;
                    break;
                }
                Err(_) => break,
            };
            let parsed = room.get(..len).and_then(|bytes| vnet::parse(bytes).ok());
            let Some((meta, bytes)) =
                parsed.and_then(|(header, frame)| Some((copy::meta_of(&header)?, frame.len())))
            else {
                self.counters.rx_errors += 1;
                continue;
            };
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += bytes as u64;
            burst.handles.push(RxHandle(self.burst.len() as u32));
            self.burst.push(ArenaFrame { start: at + vnet::LEN, len: bytes, meta });
            at = (at + len).next_multiple_of(64);
        }
    }

    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        self.burst
            .get(handle.0 as usize)
            .and_then(|place| {
                let bytes = self.arena.get(place.start..)?.get(..place.len)?;
                Some(RxFrame { bytes, meta: place.meta })
            })
            .unwrap_or(RxFrame { bytes: &[], meta: RxMeta::default() })
    }

    fn release(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        self.burst.clear();
    }

    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        let len = copy::length(header, payload);
        let mut vnet = [0; vnet::LEN];
        if !copy::sendable(&self.info, meta, header, len)
            || copy::vnet_of(meta).emit(&mut vnet).is_err()
        {
            self.counters.tx_errors += 1;
            return Err(TxError::Unsendable);
        }
        if self.gone {
            self.counters.tx_errors += 1;
            return Err(TxError::Down);
        }
        let result = if payload.len() <= PIECES_MAX {
            self.write(&vnet, header, payload)
        } else {
            let mut scratch = mem::take(&mut self.scratch);
            let whole = copy::assemble(&mut scratch, header, payload, None);
            let result = if whole { self.write(&vnet, &scratch, &[]) } else { Err(Errno::INVAL) };
            self.scratch = scratch;
            result
        };
        match result {
            Ok(()) => {
                self.counters.tx_frames += 1;
                self.counters.tx_bytes += len as u64;
                Ok(())
            }
            Err(why) => Err(self.refused(why)),
        }
    }

    /// Nothing to do: a TAP device takes one frame per system call.
    fn flush(&mut self) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(if self.gone { self.quiet.as_fd() } else { self.fd.as_fd() })
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn is_gone(&self) -> bool {
        self.gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_own_address_is_local_and_not_the_kernel_ends() {
        let first = own_mac(u64::MAX, MacAddr([0; 6]));
        assert_eq!(first.0[0] & 3, 2);
        assert_ne!(own_mac(u64::MAX, first), first);
    }
}
