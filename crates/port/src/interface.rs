//! The [`Port`] trait and the plain types that pass through it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use arch::SharedBytes;
use wire::MacAddr;

/// A port's properties. They are fixed while the port is open, except after a link change (see
/// [`Port::info`]).
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// The port's name as the user wrote it, e.g. `tap:ob0`.
    pub name: String,
    /// Link-layer address that the engine uses on this port.
    pub mac: MacAddr,
    /// Largest IP packet in bytes, without the link-layer header.
    pub mtu: u16,
    /// The kernel's index of the interface, in the namespace in which the port was opened; 0 if
    /// there is none.
    pub kernel_index: u32,
    /// Work that the port takes over.
    pub offloads: Offloads,
    /// `Some` if the port shares its interface and addresses with the kernel: only claimed traffic
    /// ([`Port::claim`]) arrives.
    pub shared: Option<Shared>,
}

/// What an engine must know to use the kernel's own interface and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The kernel's index of the interface, in the namespace in which the port was opened.
    pub interface_index: u32,
    /// First and last TCP port of the block that the kernel has reserved for outgoing connections
    /// of the engine. Traffic to it needs no claim.
    pub connect_ports: (u16, u16),
    /// All frames arrive, and [`Port::divide`] passes the kernel its own.
    pub is_divided: bool,
}

/// Protocols with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
}

/// Traffic that the engine takes on an interface shared with the kernel. An unspecified address
/// means all addresses of the interface, later ones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// TCP to this address and port, except for connections that the kernel holds.
    Tcp {
        /// Destination.
        local: SocketAddr,
        /// Whether the engine takes new connections, too.
        listens: bool,
    },
    /// Datagrams to this address and port.
    Udp(SocketAddr),
    /// Frames of an EtherType, other than those of ARP, IP and VLAN.
    EtherType(u16),
}

/// Properties of a kernel interface that may change under a port that shares it; see
/// [`link_state`].
///
/// [`link_state`]: crate::link_state
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Receive queues (`ethtool -L`); `None` if their number is fixed.
    pub receive_queues: Option<u32>,
    /// Accepts frames to be segmented (`ethtool -K NAME tso on`); otherwise the kernel segments
    /// them before the link.
    pub takes_large: bool,
}

/// Work that a port (or the kernel behind it) does for the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Frames may be sent with a partial [`TxMeta::checksum`]; otherwise the port completes the sum
    /// while it copies.
    pub tx_checksum: bool,
    /// TCP/IPv4 frames of up to 64 KiB may be sent with [`TxMeta::gso`]. They should have at most
    /// 65,535 bytes with the Ethernet header: Linux segments longer ones in software before the
    /// device.
    pub tso4: bool,
    /// The same for IPv6.
    pub tso6: bool,
    /// UDP datagrams may be sent as one frame and segmented by the port (UDP GSO).
    pub uso: bool,
    /// Frames may arrive coalesced (longer than one MTU) or with a partial checksum.
    pub rx_coalesce: bool,
}

/// State of a received frame's layer-4 checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxChecksum {
    /// Not checked: the stack verifies.
    #[default]
    Unknown,
    /// Verified by the card or the kernel.
    Valid,
    /// The sender left it partial (a virtual link); the field holds the pseudo-header sum. Offsets
    /// are from the start of the frame, as in the vnet header.
    Partial {
        /// Where summing starts.
        start: u16,
        /// Where the sum goes, relative to `start`.
        offset: u16,
    },
}

/// Segmentation of a large frame, for sending and receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Payload bytes of each segment.
    pub size: u16,
    /// Protocol of the large frame.
    pub kind: GsoKind,
}

/// Protocol of a large frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP, each piece a datagram.
    Udp,
}

/// Metadata of a received frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct RxMeta {
    /// State of the layer-4 checksum.
    pub checksum: RxChecksum,
    /// Set if the frame is several coalesced segments.
    pub gso: Option<Gso>,
}

/// A frame in the port's memory, valid until the burst is released.
#[derive(Clone, Copy, Debug)]
pub struct RxFrame<'a> {
    /// Starts with the Ethernet header.
    pub bytes: &'a [u8],
    /// Its checksum and segmentation state.
    pub meta: RxMeta,
}

/// Offloads requested for a frame to send.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxMeta {
    /// `Some((start, offset))`: the layer-4 checksum field at `start + offset` holds the folded
    /// pseudo-header sum and must be completed over everything from `start` on (both from the start
    /// of the frame). `None`: nothing to do.
    pub checksum: Option<(u16, u16)>,
    /// To be segmented by the port. Only for ports with that [`Offloads`].
    pub gso: Option<Gso>,
    /// Length of the headers (Ethernet to layer 4), which are repeated in every segment.
    pub header_bytes: u16,
}

/// A frame that a port sends: what [`Port::send`] is given.
#[derive(Clone, Copy)]
pub struct TxFrame<'a> {
    /// What the port must do to it.
    pub meta: &'a TxMeta,
    /// Its first bytes.
    pub header: &'a [u8],
    /// The pieces that follow.
    pub payload: &'a [SharedBytes<'a>],
}

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxError {
    /// No room now; try again after [`Port::flush`] or when the port is writable.
    Full,
    /// A queue before the link has dropped it and reported that, as Linux's queueing disciplines
    /// do: none of it was sent. Counted.
    Refused,
    /// The port can never send this frame (too long, or an offload it lacks). Counted.
    Unsendable,
    /// The interface is down or gone. Counted.
    Down,
}

/// Frames received together; see [`Port::receive`].
#[derive(Debug, Default)]
pub struct RxBurst {
    /// Handles with a meaning only for the port that filled them.
    pub handles: Vec<RxHandle>,
}

impl RxBurst {
    /// Most frames in one burst.
    pub const CAPACITY: usize = 64;

    /// An empty burst with all its memory.
    pub fn new() -> Self {
        Self { handles: Vec::with_capacity(Self::CAPACITY) }
    }
}

/// A frame's location in its port's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxHandle(pub u32);

/// Counters that every port keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortCounters {
    /// Frames received (a coalesced frame counts once).
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames lost before the port got them, as far as the kernel reports it.
    pub rx_missed: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Times a frame found no room.
    pub tx_full: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
    /// Frames with a partial checksum that was not marked as such: the exact pseudo-header sum, on
    /// a virtual link.
    pub rx_partial: u64,
    /// Frames left to the kernel because the lists exclude their remote address.
    pub rx_left: u64,
    /// Frames not passed to the worker because it had stopped: new flows went to the kernel,
    /// segments of connections were dropped.
    pub rx_kept_back: u64,
    /// Receive queues whose frames do not reach the engine now.
    pub rx_queues_unserved: u64,
    /// Fragmented packets for the engine, by their first fragments.
    pub fragmented: u64,
    /// Those evicted although more of their fragments could still arrive, which then go to the
    /// kernel.
    pub fragments_evicted: u64,
    /// Fragmented packets without room in the table: their later fragments go to the kernel.
    pub fragments_refused: u64,
    /// Times that a link left a trunk.
    pub links_left: u64,
    /// Links of a trunk that are not in use now.
    pub links_unused: u64,
    /// Frames that a link of a trunk had no room for while others had.
    pub links_refused: u64,
    /// Frames that came and could not be used: truncated, malformed for the link, or tagged for
    /// a VLAN on a port that is in none.
    pub rx_errors: u64,
    /// Received frames passed to the kernel's interface on the port (`nic`).
    pub kernel_rx_frames: u64,
    /// Those for which it had no room.
    pub kernel_rx_dropped: u64,
    /// Frames sent by the kernel through the port.
    pub kernel_tx_frames: u64,
    /// Those that the port could not send.
    pub kernel_tx_dropped: u64,
}

impl PortCounters {
    /// Adds another port's counters.
    pub(crate) fn add(&mut self, of: &Self) {
        // All fields by name, so that none is forgotten.
        let Self {
            rx_frames,
            rx_bytes,
            rx_missed,
            tx_frames,
            tx_bytes,
            tx_full,
            tx_errors,
            rx_partial,
            rx_left,
            rx_kept_back,
            rx_queues_unserved,
            fragmented,
            fragments_evicted,
            fragments_refused,
            links_left,
            links_unused,
            links_refused,
            rx_errors,
            kernel_rx_frames,
            kernel_rx_dropped,
            kernel_tx_frames,
            kernel_tx_dropped,
        } = *of;
        for (sum, more) in [
            (&mut self.rx_frames, rx_frames),
            (&mut self.rx_bytes, rx_bytes),
            (&mut self.rx_missed, rx_missed),
            (&mut self.tx_frames, tx_frames),
            (&mut self.tx_bytes, tx_bytes),
            (&mut self.tx_full, tx_full),
            (&mut self.tx_errors, tx_errors),
            (&mut self.rx_partial, rx_partial),
            (&mut self.rx_left, rx_left),
            (&mut self.rx_kept_back, rx_kept_back),
            (&mut self.rx_queues_unserved, rx_queues_unserved),
            (&mut self.fragmented, fragmented),
            (&mut self.fragments_evicted, fragments_evicted),
            (&mut self.fragments_refused, fragments_refused),
            (&mut self.links_left, links_left),
            (&mut self.links_unused, links_unused),
            (&mut self.links_refused, links_refused),
            (&mut self.rx_errors, rx_errors),
            (&mut self.kernel_rx_frames, kernel_rx_frames),
            (&mut self.kernel_rx_dropped, kernel_rx_dropped),
            (&mut self.kernel_tx_frames, kernel_tx_frames),
            (&mut self.kernel_tx_dropped, kernel_tx_dropped),
        ] {
            *sum += more;
        }
    }
}

/// A network attachment, owned by one worker.
pub trait Port: Send {
    /// Name, address, MTU, offloads.
    fn info(&self) -> &PortInfo;

    /// Fills `burst` (empty on entry) with waiting frames, at most [`RxBurst::CAPACITY`] and at
    /// most what keeps the burst's memory in the cache. Never blocks. Frames of a burst that was
    /// not released are valid only until the next call: release first.
    fn receive(&mut self, burst: &mut RxBurst);

    /// The bytes of a frame of the unreleased burst. A foreign handle returns an empty frame.
    fn frame(&self, handle: RxHandle) -> RxFrame<'_>;

    /// Returns the frames of `burst` and empties it.
    fn release(&mut self, burst: &mut RxBurst);

    /// Sends one frame: `header` followed by the pieces of `payload`. The port makes the one copy
    /// that is needed (computing the checksum in the same pass if it must complete it) or passes
    /// the pieces to the kernel in place. The frame may wait until [`Port::flush`]; the pieces are
    /// no longer needed when the call returns.
    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError>;

    /// Sends the frames gathered by [`Port::send`], once per burst.
    fn flush(&mut self);

    /// Becomes readable when frames wait; `None` if the port can only be polled. To be called
    /// before each sleep: once the interface is gone it is another descriptor, which never becomes
    /// readable.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// The counters so far.
    fn counters(&self) -> PortCounters;

    /// Earliest time (engine nanoseconds) at which the port must be polled even if nothing arrives:
    /// for a wrapper that delays frames, or a port whose last flush found no room.
    fn next_deadline(&self) -> Option<u64> {
        None
    }

    /// Sets the time before each turn. Wrappers that delay or limit the rate need it, and ports
    /// check their link here periodically.
    fn on_time(&mut self, _now_ns: u64) {}

    /// Whether the interface is gone for good, as far as is known: not down, but removed.
    fn is_gone(&self) -> bool {
        false
    }

    /// Whether the link carries frames, as far as is known before sending one. Ports of kernel
    /// interfaces query it, which takes the kernel's configuration lock: not for every turn.
    fn is_up(&self) -> bool {
        true
    }

    /// Claims traffic for the engine, or changes a claim, on a port that shares its interface with
    /// the kernel ([`PortInfo::shared`]). On other ports everything is the engine's already. A
    /// system call.
    ///
    /// # Errors
    /// The kernel's error; ENOSPC or E2BIG if there is no room for more.
    fn claim(&mut self, _claim: &Claim) -> io::Result<()> {
        Ok(())
    }

    /// Reverts claimed traffic to the kernel. A system call.
    fn release_claim(&mut self, _claim: &Claim) {}

    /// Sets the addresses and MTU of the kernel's interface; claims follow. Only on ports that
    /// share.
    ///
    /// # Errors
    /// As [`Port::claim`].
    fn follow(&mut self, _addresses: &[IpAddr], _mtu: u16) -> io::Result<()> {
        Ok(())
    }

    /// Sets the state of the kernel interface's link. Only on ports that share.
    ///
    /// # Errors
    /// If not all of its queues can be served: segments of connections on the others are lost,
    /// while the kernel's sockets take new flows.
    fn follow_link(&mut self, _link: &LinkState) -> io::Result<()> {
        Ok(())
    }

    /// Passes the kernel its frames of a burst, on a divided port ([`Shared::is_divided`]), except
    /// for those whose bits are set in `taken`. `awaits` returns whether the engine has a
    /// connection between a local and a remote address. Returns the bits of all frames that are not
    /// the engine's.
    fn divide(
        &mut self,
        _burst: &RxBurst,
        taken: u64,
        _awaits: &dyn Fn(SocketAddr, SocketAddr) -> bool,
    ) -> u64 {
        taken
    }

    /// Sends the kernel's frames through a divided port; `sees` is called with each sent frame.
    /// Returns how many frames the kernel had.
    fn relay(&mut self, _sees: &mut dyn FnMut(&TxMeta, &[u8])) -> usize {
        0
    }
}
