//! System calls of AF_XDP sockets: setup, wakeups, statistics.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::memory::{CHUNK_BYTES, Memory};
use super::modes::XdpMode;
use super::receive::Layout;
use super::ring::Ring;
use crate::packet::set_option;

/// Descriptors in the ring of received frames, and in that of frames to send.
pub(super) const RING_ENTRIES: u32 = 4096;
/// The kernel's memory for frames in flight; it counts the frames of a whole send ring.
const SEND_BUFFER_BYTES: libc::c_int = 64 << 20;

/// Another descriptor of the same frame follows.
pub(super) const CONTINUES: u32 = libc::XDP_PKT_CONTD;

pub(super) type Descriptor = libc::xdp_desc;

/// An unconfigured socket. Opening one needs CAP_NET_RAW, the rest needs no privileges.
pub(super) fn open() -> io::Result<OwnedFd> {
    // SAFETY: socket takes no pointers.
    let raw = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Whether the kernel passes frames of several buffers to sockets (Linux 6.6). It checks the flags
/// of a bind before it looks up the interface, and there is none with this index.
pub(super) fn take_several_buffers() -> io::Result<bool> {
    let refused = bind(&open()?, 0, 0, XdpMode::ZeroCopy, true);
    Ok(!matches!(refused.map_err(|why| why.raw_os_error()), Err(Some(libc::EINVAL))))
}

/// Registers a socket's memory and creates its rings; only the bind is left.
pub(super) fn prepare(fd: &OwnedFd, memory: &Memory, layout: Layout) -> io::Result<()> {
    let registration = libc::xdp_umem_reg {
        addr: memory.address(),
        len: memory.len() as u64,
        chunk_size: CHUNK_BYTES as u32,
        headroom: 0,
        flags: match layout {
            Layout::Pages => 0,
            Layout::Joined => libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG,
        },
        tx_metadata_len: 0,
    };
    set_option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)?;
    for ring in [
        libc::XDP_UMEM_FILL_RING,
        libc::XDP_UMEM_COMPLETION_RING,
        libc::XDP_RX_RING,
        libc::XDP_TX_RING,
    ] {
        set_option(fd, libc::SOL_XDP, ring, &RING_ENTRIES)?;
    }
    // Without CAP_NET_ADMIN the buffer is smaller; frames are then sent in smaller bursts.
    let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_BYTES);
    Ok(())
}

/// Binds to a queue of an interface; [`XdpMode::ZeroCopy`] falls back to copies if the driver needs
/// them.
pub(super) fn bind(
    fd: &OwnedFd,
    interface_index: u32,
    queue: u32,
    mode: XdpMode,
    several_buffers: bool,
) -> io::Result<()> {
    let copies = if mode == XdpMode::ZeroCopy { 0 } else { libc::XDP_COPY };
    let several_buffers = if several_buffers { libc::XDP_USE_SG } else { 0 };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP | several_buffers | copies,
        sxdp_ifindex: interface_index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: the address is a sockaddr_xdp of the length given.
    let bound = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            mem::size_of_val(&address) as libc::socklen_t,
        )
    };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn read_option<T>(fd: &OwnedFd, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into the value; all callers pass plain C
    // structs, which take any bytes.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            name,
            std::ptr::from_mut(value).cast(),
            &raw mut len,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the driver puts frames into our memory itself.
pub(super) fn is_zero_copy(fd: &OwnedFd) -> bool {
    let mut options = libc::xdp_options { flags: 0 };
    read_option(fd, libc::XDP_OPTIONS, &mut options).is_ok()
        && options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0
}

/// Frames for this socket that found no chunk or no room in the ring.
pub(super) fn missed(fd: &OwnedFd) -> u64 {
    // SAFETY: all-zero is a value of this plain C struct.
    let mut seen: libc::xdp_statistics = unsafe { mem::zeroed() };
    match read_option(fd, libc::XDP_STATISTICS, &mut seen) {
        Ok(()) => seen.rx_dropped.wrapping_add(seen.rx_ring_full),
        Err(_) => 0,
    }
}

/// The four rings of a socket.
#[derive(Debug)]
pub(crate) struct Rings {
    /// Chunks for the kernel to receive into.
    pub(super) fill: Ring<u64>,
    /// Frames received.
    pub(super) received: Ring<Descriptor>,
    /// Frames to send.
    pub(super) send: Ring<Descriptor>,
    /// Chunks whose frames were sent.
    pub(super) sent: Ring<u64>,
}

impl Rings {
    pub(super) fn map(fd: &OwnedFd) -> io::Result<Self> {
        // SAFETY: all-zero is a value of this plain C struct.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { mem::zeroed() };
        read_option(fd, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
        let (rx, tx) = (libc::XDP_PGOFF_RX_RING, libc::XDP_PGOFF_TX_RING);
        let (fill, sent) = (libc::XDP_UMEM_PGOFF_FILL_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        Ok(Self {
            fill: Ring::map(fd, fill, &offsets.fr, RING_ENTRIES)?,
            received: Ring::map(fd, rx as u64, &offsets.rx, RING_ENTRIES)?.reading(),
            send: Ring::map(fd, tx as u64, &offsets.tx, RING_ENTRIES)?,
            sent: Ring::map(fd, sent, &offsets.cr, RING_ENTRIES)?.reading(),
        })
    }
}

/// Makes the kernel poll the ring of frames to send.
pub(super) fn wake_sending(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: an empty message: no memory is read.
    let result = unsafe {
        libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the driver poll the fill ring.
pub(super) fn wake_receiving(fd: &OwnedFd) {
    // What fails here is tried again with the next burst.
    // SAFETY: an empty buffer: no memory is written.
    let _ = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
}
