//! The [`Port`] trait and the plain types that pass through it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use arch::SharedBytes;
use wire::MacAddr;

/// What a port is and what it can do for the stack. Fixed while the port is open, except as
/// told by [`Port::info`] after a link change.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// The port's name as the user wrote it, e.g. `tap:ob0`.
    pub name: String,
    /// Link-layer address that the engine uses on this port.
    pub mac: MacAddr,
    /// Largest IP packet in bytes, without the link-layer header.
    pub mtu: u16,
    /// The kernel's number of the interface, in the namespace that the port was opened in; 0 where
    /// there is none.
    pub kernel_index: u32,
    /// Work the port takes over.
    pub offloads: Offloads,
    /// `Some` where the port shares its interface and addresses with the kernel: only what is
    /// claimed ([`Port::claim`]) arrives.
    pub shared: Option<Shared>,
}

/// What an engine must know to live on the kernel's own interface and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The kernel's number of the interface, in the namespace that the port was opened in.
    pub interface_index: u32,
    /// First and last TCP port of the block that the kernel has reserved for connections that the
    /// engine opens. What comes to it needs no claim.
    pub connect_ports: (u16, u16),
    /// All frames arrive, and [`Port::divide`] gives the kernel what is its.
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

/// What the engine takes for itself on an interface that it shares with the kernel. An
/// unspecified address means all addresses of the interface, also later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// TCP to this address and port, except for connections that the kernel holds.
    Tcp {
        /// Where to.
        local: SocketAddr,
        /// Whether new connections are the engine's, too.
        listens: bool,
    },
    /// Datagrams to this address and port.
    Udp(SocketAddr),
    /// Frames of an EtherType, other than those of ARP, IP and VLAN.
    EtherType(u16),
}

/// What of a kernel's interface may change under a port that shares it; see [`link_state`].
///
/// [`link_state`]: crate::link_state
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Receive queues (`ethtool -L`); `None` where their number is fixed.
    pub receive_queues: Option<u32>,
    /// Takes frames to be segmented as they are (`ethtool -K NAME tso on`); otherwise the kernel
    /// cuts them before the link.
    pub takes_large: bool,
}

/// Work that a port (or the kernel behind it) does for the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Frames may be sent with [`TxMeta::checksum`] left partial; otherwise the port's adapter
    /// completes the sum while it copies.
    pub tx_checksum: bool,
    /// TCP/IPv4 frames of up to 64 KiB may be sent with [`TxMeta::gso`]. Best at most 65,535
    /// bytes with the Ethernet header: longer ones Linux cuts in software before the device.
    pub tso4: bool,
    /// The same for IPv6.
    pub tso6: bool,
    /// UDP datagrams may be sent as one frame and cut by the port (UDP GSO).
    pub uso: bool,
    /// Frames may arrive coalesced (more than one MTU) or with a partial checksum.
    pub rx_coalesce: bool,
}

/// State of a received frame's layer-4 checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxChecksum {
    /// Not looked at: the stack verifies.
    #[default]
    Unknown,
    /// Verified by the card or the kernel.
    Valid,
    /// The sender left it partial (a virtual link); the field holds the pseudo-header sum.
    /// Offsets are from the start of the frame, as in the vnet header.
    Partial {
        /// Where summing starts.
        start: u16,
        /// Where the sum goes, relative to `start`.
        offset: u16,
    },
}

/// Segmentation of a large frame, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Payload bytes of each segment.
    pub size: u16,
    /// What the large frame is made of.
    pub kind: GsoKind,
}

/// Protocol of a large frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP, every piece a datagram.
    Udp,
}

/// What is known of a received frame beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RxMeta {
    /// State of the layer-4 checksum.
    pub checksum: RxChecksum,
    /// Set when the frame is several segments coalesced.
    pub gso: Option<Gso>,
}

/// A frame in the port's memory, valid until the burst is released.
#[derive(Clone, Copy, Debug)]
pub struct RxFrame<'a> {
    /// From the Ethernet header on.
    pub bytes: &'a [u8],
    /// Its checksum and segmentation state.
    pub meta: RxMeta,
}

/// What the port must do to a frame that it sends.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxMeta {
    /// `Some((start, offset))`: the layer-4 checksum field at `start + offset` holds the folded
    /// pseudo-header sum; it is to be completed over everything from `start` on (both from the
    /// start of the frame). `None`: nothing to do.
    pub checksum: Option<(u16, u16)>,
    /// Cut into segments by the port. Only on ports whose [`Offloads`] say so.
    pub gso: Option<Gso>,
    /// Length of the headers (Ethernet to layer 4), which every segment repeats.
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
    /// A queue before the link has dropped it and says so, as Linux's queueing disciplines do: nothing of
    /// it was sent. Counted.
    Refused,
    /// The port can never send this frame (too long, or an offload it lacks). Counted.
    Unsendable,
    /// The interface is down or gone. Counted.
    Down,
}

/// Frames received together; see [`Port::receive`].
#[derive(Debug, Default)]
pub struct RxBurst {
    /// Handles that mean something to the port that filled them.
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

/// A frame's place in its port's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxHandle(pub u32);

/// Counters that every port keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortCounters {
    /// Frames received (a coalesced frame counts once).
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames lost before we saw them, as far as the kernel tells.
    pub rx_missed: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Times a frame found no room.
    pub tx_full: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
    /// Frames that came with a partial checksum and nothing that said so: the exact
    /// pseudo-header sum, on a virtual link.
    pub rx_partial: u64,
    /// Frames left to the kernel because the lists leave their remote address out.
    pub rx_left: u64,
    /// Frames that were not given to the worker because it had stopped: what was new went to the kernel,
    /// segments of connections were dropped.
    pub rx_kept_back: u64,
    /// Receive queues now of which frames do not come to the engine.
    pub rx_queues_unserved: u64,
    /// Fragmented packets for the engine, by their first fragments.
    pub fragmented: u64,
    /// Of these, those that were forgotten for others although fragments of theirs could still
    /// come, which then go to the kernel.
    pub fragments_evicted: u64,
    /// Fragmented packets that there was no room to remember: their later fragments go to the
    /// kernel.
    pub fragments_refused: u64,
    /// Times that a link left a trunk.
    pub links_left: u64,
    /// Links of a trunk that frames are not sent over now.
    pub links_unused: u64,
    /// Frames that a link of a trunk had no room for while others had.
    pub links_refused: u64,
    /// Frames that came and could not be used: truncated, malformed for the link, or tagged for
    /// a VLAN on a port that is in none.
    pub rx_errors: u64,
    /// Received frames given to the kernel's interface beside the port (`nic`).
    pub kernel_rx_frames: u64,
    /// The same that it had no room for.
    pub kernel_rx_dropped: u64,
    /// Frames that the kernel has sent through the port.
    pub kernel_tx_frames: u64,
    /// The same that the port could not send.
    pub kernel_tx_dropped: u64,
}

impl PortCounters {
    /// Counts what another port has counted, too.
    pub(crate) fn add(&mut self, of: &Self) {
        // All fields by name, so that none that is added later is forgotten.
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

    /// Fills `burst` (empty on entry) with frames that wait, at most [`RxBurst::CAPACITY`] and
    /// at most what keeps the burst's memory cache-resident. Never blocks. Frames of a burst not
    /// yet released stay valid only until the next call: release first.
    fn receive(&mut self, burst: &mut RxBurst);

    /// The bytes of a frame of the burst not yet released. A foreign handle gives an empty frame.
    fn frame(&self, handle: RxHandle) -> RxFrame<'_>;

    /// Gives the frames of `burst` back and empties it.
    fn release(&mut self, burst: &mut RxBurst);

    /// Takes one frame: `header` followed by the pieces of `payload`. The port makes the one copy
    /// that is needed (with the checksum fused in where it has to complete it) or gives the
    /// pieces to the kernel as they lie. The frame may wait until [`Port::flush`]; the pieces
    /// are no longer needed when the call returns.
    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError>;

    /// Pushes out what [`Port::send`] has gathered, once per burst.
    fn flush(&mut self);

    /// Becomes readable when frames wait; `None` when the port can only be polled. Ask before
    /// each sleep: when the interface is gone it is another descriptor, which never wakes anyone.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// The counters so far.
    fn counters(&self) -> PortCounters;

    /// Earliest time (engine nanoseconds) at which the port wants to be polled although nothing
    /// arrives: a wrapper that delays frames, an adapter whose last flush found no room.
    fn next_deadline(&self) -> Option<u64> {
        None
    }

    /// Tells the port the time before each turn. Wrappers that delay or rate-limit need it, and
    /// adapters look after their link here now and then.
    fn on_time(&mut self, _now_ns: u64) {}

    /// Whether the interface is gone for good, as far as the port can tell: not down, but removed.
    fn is_gone(&self) -> bool {
        false
    }

    /// Whether the link carries frames, as far as the port can tell before it sends one. Ports of the
    /// kernel's interfaces ask it, which takes the kernel's configuration lock: not for every turn.
    fn is_up(&self) -> bool {
        true
    }

    /// Takes something for the engine, or changes how it is taken, on a port that shares its
    /// interface with the kernel ([`PortInfo::shared`]). Elsewhere everything is the engine's
    /// already. A system call.
    ///
    /// # Errors
    /// What the kernel says, ENOSPC or E2BIG when there is no room for more.
    fn claim(&mut self, _claim: &Claim) -> io::Result<()> {
        Ok(())
    }

    /// Leaves to the kernel what was claimed. A system call.
    fn release_claim(&mut self, _claim: &Claim) {}

    /// The kernel's interface has these addresses and this MTU now; claims follow. Only on ports
    /// that share.
    ///
    /// # Errors
    /// As [`Port::claim`].
    fn follow(&mut self, _addresses: &[IpAddr], _mtu: u16) -> io::Result<()> {
        Ok(())
    }

    /// The link of the kernel's interface is so now. Only on ports that share.
    ///
    /// # Errors
    /// When not all of its queues can be served: what arrives at the others is lost to connections,
    /// while the kernel's halves of their sockets take what is new.
    fn follow_link(&mut self, _link: &LinkState) -> io::Result<()> {
        Ok(())
    }

    /// Gives the kernel the frames of a burst that are its, on a port that is divided
    /// ([`Shared::is_divided`]), but for those whose bits are set in `taken`. `awaits` tells whether the
    /// engine has a connection between a local and a remote address. The bits of all frames that are
    /// not the engine's.
    fn divide(
        &mut self,
        _burst: &RxBurst,
        taken: u64,
        _awaits: &dyn Fn(SocketAddr, SocketAddr) -> bool,
    ) -> u64 {
        taken
    }

    /// Sends what the kernel sends through a port that is divided; `sees` is shown what went. How many
    /// frames the kernel had.
    fn relay(&mut self, _sees: &mut dyn FnMut(&TxMeta, &[u8])) -> usize {
        0
    }
}
