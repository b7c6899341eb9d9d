//! What goes in and out of the stack.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use wire::MacAddr;

use crate::route::Routes;
use crate::stack::HEADER_MAX;

pub use crate::route::Metrics;

/// Nanoseconds on the caller's monotonic clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Instant(pub u64);

/// Which interface, in the order they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InterfaceIndex(pub u8);

impl InterfaceIndex {
    /// The built-in interface that joins the stack to itself: what it transmits (to own
    /// addresses) the caller gives back to [`on_frame`](crate::Stack::on_frame) at once.
    pub const LOOPBACK: InterfaceIndex = InterfaceIndex(u8::MAX);
}

/// An address with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cidr {
    /// The interface's own address.
    pub address: IpAddr,
    /// Bits of the prefix that is on the link.
    pub prefix: u8,
}

/// An interface as the stack sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InterfaceConfig {
    /// Own link-layer address.
    pub mac: MacAddr,
    /// Largest IP packet.
    pub mtu: u16,
    /// Own addresses; the stack answers ARP and neighbour solicitations for them.
    pub addresses: Vec<Cidr>,
    /// Next hop for destinations off the link.
    pub gateway: Option<IpAddr>,
    /// Other ways through the interface, as a kernel that shares it has them.
    pub routes: Vec<Destination>,
    /// Set where a kernel has the same addresses.
    pub shared: Option<SharedAddresses>,
    /// Whether and how IPv6 is spoken.
    pub ipv6: Ipv6Mode,
    /// TCP segments of up to 64 KiB may be emitted with [`gso_bytes`](Transmit::gso_bytes).
    pub tso: bool,
    /// The same for TCP over IPv6.
    pub tso6: bool,
    /// UDP datagrams may be emitted together with [`gso_bytes`](UdpSend::gso_bytes).
    pub uso: bool,
}

/// How an interface speaks IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ipv6Mode {
    /// Not at all: its frames are dropped.
    #[default]
    Off,
    /// With the addresses that it is given, and a link-local one.
    Static,
    /// The same, and with what routers advertise (RFC 4862).
    Automatic,
}

/// A local address to listen at or to bind. An unspecified IPv4 address stands for all own IPv4
/// addresses, an unspecified IPv6 one for all of both families, or of IPv6 alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    /// Address and port.
    pub address: SocketAddr,
    /// IPV6_V6ONLY.
    pub v6_only: bool,
}

impl From<SocketAddr> for Local {
    /// Of both families where the address is `::`.
    fn from(address: SocketAddr) -> Self {
        Self { address, v6_only: false }
    }
}

impl Local {
    /// Whether it takes IPv4 although its address is of IPv6.
    pub fn is_dual(&self) -> bool {
        self.address.is_ipv6() && self.address.ip().is_unspecified() && !self.v6_only
    }

    /// The same with addresses as the stack names them: IPv4-mapped ones are IPv4.
    pub(crate) fn canonical(self) -> Self {
        Self { address: canonical(self.address), ..self }
    }
}

/// IPv4 where it is meant: mapped addresses are unmapped.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Destinations and the way to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// Any address of the network.
    pub network: IpAddr,
    /// Bits of the network's prefix.
    pub prefix: u8,
    /// Next hop; `None` when they are on the link.
    pub gateway: Option<IpAddr>,
    /// What is known of the way.
    pub metrics: Metrics,
}

/// What is different on an interface whose addresses a kernel has, too: the kernel answers ARP
/// there and knows the neighbours, and it says which local ports connections may use. Nothing is
/// announced; questions come out of [`Stack::poll_question`](crate::Stack::poll_question).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedAddresses {
    /// First and last local port for connections without a port of their own.
    pub connect_ports: (u16, u16),
}

/// What is known of a received frame beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxFrameMeta {
    /// State of the layer-4 checksum.
    pub checksum: RxChecksum,
    /// Set when the frame is several segments or datagrams coalesced: payload bytes of each.
    pub gso_bytes: Option<u16>,
}

/// Where the headers of a datagram go, and its payload's sum.
pub struct UdpOut<'a, F: FnOnce() -> u16> {
    /// Room for all headers.
    pub header: &'a mut [u8; HEADER_MAX],
    /// The folded ones' complement sum of the whole payload: big-endian words, an odd last byte
    /// padded with zero, not complemented, as [`Sum::folded`](wire::checksum::Sum::folded) gives it.
    pub payload_sum: F,
}

/// A multicast group on an interface.
pub type GroupKey = (InterfaceIndex, IpAddr);

/// A source that a socket adds to its filter of a group, or removes (RFC 3376, section 3.2).
#[derive(Clone, Copy, Debug)]
pub struct SourceChange {
    /// Its address.
    pub address: IpAddr,
    /// It is added.
    pub is_added: bool,
}

/// A connection to be opened.
#[derive(Clone, Copy, Debug)]
pub struct TcpConnect {
    /// To whom.
    pub remote: SocketAddr,
    /// An authorized address and port, or `None` for the route's address and an ephemeral port (a
    /// port of 0 lets the stack choose the port only).
    pub local: Option<SocketAddr>,
    /// Its options.
    pub options: TcpOptions,
    /// Whose it is.
    pub owner: Owner,
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct RxFrame<'a> {
    /// Through which interface.
    pub interface: InterfaceIndex,
    /// From the Ethernet header on, without a frame check sequence.
    pub bytes: &'a [u8],
    /// What the port knows of it.
    pub meta: RxFrameMeta,
}

/// State of a received frame's layer-4 checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxChecksum {
    /// Not looked at: the stack verifies.
    #[default]
    Unknown,
    /// Verified by the card or the kernel.
    Valid,
    /// The sender left it partial; accepted only when the field is the exact folded
    /// pseudo-header sum. Offsets as in the vnet header.
    Partial {
        /// Where summing starts, from the start of the frame.
        start: u16,
        /// Where the sum goes, relative to `start`.
        offset: u16,
    },
}

/// Names a connection, listener or UDP socket of the stack; a stale id is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SocketId {
    /// Slot.
    pub index: u32,
    /// Distinguishes successive users of the slot.
    pub generation: u32,
}

/// What the caller wants to be called back with; it means nothing to the stack.
/// [`Owner::NONE`] until a connection made by a listener is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner(pub u64);

impl Owner {
    /// Nobody yet.
    pub const NONE: Owner = Owner(u64::MAX);
}

/// Where received payload goes. Implemented by the engine; a payload trait and not an output to
/// be polled because a refusal must be known before `rcv.nxt` advances.
pub trait Sink {
    /// Stores bytes of a connection's receive stream at `offset` (bytes since the SYN). Always
    /// inside the window; may repeat bytes stored before. `false`: no room, none of the bytes
    /// count as received; fewer of them may be offered at once.
    fn stream(&mut self, id: SocketId, owner: Owner, offset: u64, bytes: &[u8]) -> bool;

    /// Takes a datagram. `false`: no room, it is dropped and counted.
    fn datagram(&mut self, id: SocketId, owner: Owner, meta: &DatagramMeta, bytes: &[u8]) -> bool;

    /// Takes what became of a datagram of a socket that wants to know
    /// ([`UdpOptions::report_errors`]), with the part of its payload that came back. `false`: no
    /// room, and the error is told by an event alone.
    fn udp_error(&mut self, _: SocketId, _: Owner, _: &UdpErrorReport, _: &[u8]) -> bool {
        false
    }

    /// Takes a frame of an EtherType that the stack does not speak, sent to this host alone. `false`:
    /// nobody here speaks it, and it is dropped and counted.
    fn link_packet(&mut self, _: &LinkPacket<'_>) -> bool {
        false
    }
}

/// What a frame brought that is not of the stack's protocols.
#[derive(Clone, Copy, Debug)]
pub struct LinkPacket<'a> {
    /// Through which interface.
    pub interface: InterfaceIndex,
    /// Its EtherType.
    pub ethertype: u16,
    /// What is behind the Ethernet header, with the link's padding.
    pub bytes: &'a [u8],
    /// The stack's addresses and routes.
    pub routes: &'a Routes,
}

/// A packet of an EtherType that the stack does not speak; see
/// [`link_transmit`](crate::Stack::link_transmit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSend {
    /// The own address that it goes from.
    pub local: IpAddr,
    /// The host that it goes to.
    pub remote: IpAddr,
    /// Its EtherType.
    pub ethertype: u16,
    /// Bytes behind the Ethernet header.
    pub len: usize,
}

/// What went wrong with a datagram of ours. Maps once to an errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UdpError {
    /// Nobody has the port (ECONNREFUSED).
    Refused,
    /// The host does not speak UDP (ENOPROTOOPT).
    NoProtocol,
    /// EHOSTUNREACH; also when its hops were used up.
    HostUnreachable,
    /// ENETUNREACH.
    NetUnreachable,
    /// EHOSTDOWN.
    HostDown,
    /// ENONET.
    NoNetwork,
    /// A router could not follow its source route (EOPNOTSUPP).
    NotSupported,
    /// Forbidden by an administrator (EACCES; IPv6 only).
    Prohibited,
    /// Its headers were not understood (EPROTO).
    Protocol,
    /// Too long for the path and not to be cut (EMSGSIZE).
    TooLong,
}

/// What an ICMP message says of a datagram of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpErrorReport {
    /// What is wrong.
    pub error: UdpError,
    /// Type and code of the message.
    pub kind: u8,
    /// See `kind`.
    pub code: u8,
    /// The MTU that would have fitted, or the pointer of a parameter problem; else 0.
    pub info: u32,
    /// Who says so.
    pub offender: IpAddr,
    /// Where the datagram was sent to.
    pub remote: SocketAddr,
    /// From where.
    pub local: SocketAddr,
    /// Through which interface the message came.
    pub interface: InterfaceIndex,
    /// The message's type of service.
    pub tos: u8,
    /// The message's TTL.
    pub ttl: u8,
}

/// Options of a UDP socket that are not each datagram's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpOptions {
    /// Errors of IPv4 are given to [`Sink::udp_error`] (IP_RECVERR), also of a socket without a
    /// remote.
    pub report_errors: bool,
    /// The same for IPv6 (IPV6_RECVERR).
    pub report_errors6: bool,
    /// Datagrams over IPv6 without a checksum are taken (UDP_NO_CHECK6_RX; RFC 6935).
    pub no_check6: bool,
    /// Whether what routers say of a path's MTU counts (IP_MTU_DISCOVER).
    pub pmtu: PathMtuDiscovery,
    /// Of groups of IPv4 only those are heard that the socket itself listens to (IP_MULTICAST_ALL
    /// taken back).
    pub only_joined: bool,
    /// The same for IPv6 (IPV6_MULTICAST_ALL).
    pub only_joined6: bool,
}

/// With whom a UDP socket has its port in common, if they agree to it, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sharing {
    /// With nobody.
    #[default]
    Alone,
    /// With anybody (SO_REUSEADDR): what is sent to a group reaches all, the rest the youngest.
    Address,
    /// The same, but the rest is divided among them by where it comes from (SO_REUSEPORT).
    Port,
}

/// A received datagram's circumstances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramMeta {
    /// Who sent it.
    pub remote: SocketAddr,
    /// Which of our addresses it came to.
    pub local: SocketAddr,
    /// Through which interface.
    pub interface: InterfaceIndex,
    /// Type of service / traffic class.
    pub tos: u8,
    /// TTL / hop limit.
    pub ttl: u8,
    /// Set when `bytes` is several coalesced datagrams of this size (the last may be shorter).
    pub gso_bytes: Option<u16>,
}

/// A frame to send, as [`Stack::poll_transmit`](crate::Stack) yields it. The headers, Ethernet to
/// layer 4, have been written to the caller's buffer with the IP checksum done and the layer-4
/// checksum partial (the field holds the folded pseudo-header sum).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Bytes of header written.
    pub header_bytes: u16,
    /// What follows the header.
    pub payload: Payload,
    /// `(start, offset)` of the checksum that is still partial, as in the vnet header: `start` from
    /// the start of the frame, `offset` relative to `start`.
    pub checksum: Option<(u16, u16)>,
    /// Payload bytes per segment when the frame is to be cut; only on interfaces with `tso`.
    pub gso_bytes: Option<u16>,
    /// The segment is to be signed with its payload ([`tcp_sign`](crate::Stack::tcp_sign)) before it
    /// is sent.
    pub unsigned: bool,
}

/// The payload of a [`Transmit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing follows.
    None,
    /// Bytes `offset .. offset + len` of a connection's send stream (bytes since the SYN).
    Stream {
        /// The connection.
        id: SocketId,
        /// Whose it is.
        owner: Owner,
        /// First byte.
        offset: u64,
        /// How many.
        len: u32,
    },
    /// Bytes that the stack holds: `stack.own_bytes(start, len)`.
    Own {
        /// First byte.
        start: u32,
        /// How many.
        len: u32,
    },
}

/// A datagram to send, as far as its headers need to know. The payload stays with the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpSend {
    /// Where to; `None` for the remote that the socket is connected to.
    pub remote: Option<SocketAddr>,
    /// From which own address, for a socket bound to all of them; `None` lets the route choose.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.3.5
    //# An application program MUST be able to specify the IP source address to be used for sending
    //# a UDP datagram or to leave it unspecified (in which case the networking software will choose
    //# an appropriate source address).
    pub local: Option<IpAddr>,
    /// Bytes of payload.
    pub payload_len: u32,
    /// Bytes of it that are sent already: [`UdpFrame::next`] of the frame before; else 0.
    pub offset: u32,
    /// Type of service; `None` for 0.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.6
    //# The IP layer MUST provide a means for the transport layer to set the TOS field of every
    //# datagram that is sent; the default is all zero bits.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.4
    //# An application-layer program MUST be able to set the TTL and TOS values as well as IP
    //# options for sending a UDP datagram, and these values must be passed transparently to the IP
    //# layer.
    pub tos: Option<u8>,
    /// Time to live; `None` for 64, and of IPv6 for what routers say.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.7
    //# The IP layer MUST provide a means for the transport layer to set the TTL field of every
    //# datagram that is sent.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.7
    //# When a fixed TTL value is used, it MUST be configurable.
    pub ttl: Option<u8>,
    /// The payload is several datagrams of this size (the last may be shorter): one frame where the
    /// port cuts it, else one frame for each call, until [`UdpFrame::next`] is `None`.
    pub gso_bytes: Option<u16>,
    /// Who may cut it when it is too long.
    pub cut: UdpCut,
    /// Without a checksum (over IPv6: RFC 6935).
    //= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.3.4
    //# An application MAY optionally be able to control whether a UDP checksum will be generated,
    //# but it MUST default to checksumming on.
    pub no_checksum: bool,
    /// Through which interface it goes to a group; `None` for the first.
    pub interface: Option<InterfaceIndex>,
    /// Not really: the copy that we get ourselves of what goes to a group or to everybody
    /// ([`UdpFrame::comes_back`]).
    pub comes_back: bool,
}

/// Who may cut a datagram that is longer than the path takes, and how long that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpCut {
    /// Not routers (IPv4's DF), as long as it is not cut here.
    pub not_routers: bool,
    /// Nor we: [`RequestError::TooLong`] instead.
    pub not_us: bool,
    /// By the link's MTU, whatever routers have said of the path.
    pub by_link: bool,
}

/// A frame of a datagram; the header has been written to the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpFrame {
    /// Through which interface to send.
    pub interface: InterfaceIndex,
    /// Bytes of header written.
    pub header_bytes: u16,
    /// First byte of the payload that follows the header.
    pub offset: u32,
    /// How many bytes of it.
    pub len: u32,
    /// `(start, offset)` of the checksum left partial, relative as in [`Transmit::checksum`];
    /// `None` on fragments, whose sum is complete, and where there is none.
    pub checksum: Option<(u16, u16)>,
    /// Payload bytes per datagram when the port is to cut.
    pub gso_bytes: Option<u16>,
    /// `Some` when the datagram is fragmented and more follows: the state for
    /// [`udp_fragment`](crate::Stack::udp_fragment).
    pub more: Option<UdpFragments>,
    /// Where the next datagram begins of several that the port does not cut.
    pub next: Option<u32>,
    /// Somebody here hears it, too: to be sent again, with [`UdpSend::comes_back`].
    pub comes_back: bool,
}

/// The rest of a fragmented datagram; plain state that borrows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpFragments {
    pub(crate) interface: InterfaceIndex,
    pub(crate) destination_mac: MacAddr,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) identification: u32,
    pub(crate) mtu: u16,
    pub(crate) tos: u8,
    pub(crate) ttl: Option<u8>,
    /// Next payload byte (of UDP, so 8 less than the IP offset).
    pub(crate) next: u32,
    pub(crate) payload_len: u32,
}

/// Something happened to a socket; read the levels for what. At most one event per socket is
/// queued, so the queue cannot overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Which socket.
    pub id: SocketId,
    /// Whose.
    pub owner: Owner,
    /// Kind of socket.
    pub kind: SocketKind,
}

/// Kinds of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketKind {
    /// A TCP connection.
    Connection,
    /// A TCP listener: a connection waits to be accepted.
    Listener,
    /// A UDP socket.
    Udp,
}

/// A peer's urgent byte: where it is in the stream, and which, once it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Urgent(u64);

impl Urgent {
    const HAS_COME: u64 = 1 << 8;

    /// One that ends at an offset and has not come.
    pub fn announced(end: u64) -> Self {
        Self(end << 9)
    }

    /// The same one, come.
    #[must_use]
    pub fn come(self, byte: u8) -> Self {
        Self(self.end() << 9 | Self::HAS_COME | u64::from(byte))
    }

    /// Offset one past it; 0 for none.
    pub fn end(self) -> u64 {
        self.0 >> 9
    }

    /// Which it is, once it has come.
    pub fn byte(self) -> Option<u8> {
        (self.0 & Self::HAS_COME != 0).then_some(self.0 as u8)
    }

    /// Whether it is announced and has not come.
    pub fn is_awaited(self) -> bool {
        self.0 != 0 && self.byte().is_none()
    }
}

/// Where a connection stands; the truth behind an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpLevels {
    /// RFC 9293 state.
    pub state: TcpState,
    /// End of the contiguous received stream (bytes since the SYN): readable up to here.
    pub readable: u64,
    /// The peer has closed and everything before its FIN is within `readable`.
    pub peer_closed: bool,
    /// Bytes of the send stream acknowledged: their buffers may be freed.
    pub acked: u64,
    /// The urgent byte, if the peer announced one.
    pub urgent: Option<Urgent>,
    /// Bytes written and not acknowledged that are worth having at hand: a few windows.
    pub send_room: u32,
    /// Bytes that the receive window may have now.
    pub receive_window: u32,
    /// Why the connection died, once it has.
    pub error: Option<TcpError>,
    /// Its SYN waits for the first data (Fast Open).
    pub awaits_data: bool,
    /// The window that was offered is used up, where the program waits for much at once
    /// ([`TcpOptions::recv_low_water`]).
    pub window_used: bool,
    /// End of the send stream as far as it has been sent; a FIN counts as one byte.
    pub sent: u64,
    /// The same of what is acknowledged.
    pub acked_all: u64,
    /// Bytes of the send stream that share a frame, by the peer's window.
    pub frame_bytes: u32,
    /// Times of bytes asked about that wait to be taken.
    pub stamps: u32,
    /// [`TcpOptions::unsent_low_water`] as set; 0 for what all connections have.
    pub unsent_low_water: u32,
}

/// RFC 9293, section 3.3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum TcpState {
    Closed,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

/// Why a connection ended otherwise than by closing. Maps once to an errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TcpError {
    /// The peer answered our SYN with a reset (ECONNREFUSED).
    Refused,
    /// The peer reset the connection (ECONNRESET).
    Reset,
    /// The peer reset the connection after it had sent its FIN (EPIPE, as Linux).
    ResetAfterEnd,
    /// Nothing came back in time (ETIMEDOUT).
    TimedOut,
    /// A router says there is no way to the host (EHOSTUNREACH), also when ARP fails.
    HostUnreachable,
    /// No route (ENETUNREACH).
    NetUnreachable,
    /// EHOSTDOWN.
    HostDown,
    /// ENONET.
    NoNetwork,
    /// A router could not follow its source route (EOPNOTSUPP).
    NotSupported,
    /// The host does not speak the protocol (ENOPROTOOPT).
    NoProtocol,
    /// Forbidden by an administrator (EACCES; IPv6 only).
    Prohibited,
    /// Its headers were not understood (EPROTO).
    Protocol,
    /// We aborted (ECONNABORTED).
    Aborted,
}

/// Options of a connection or listener (inherited by its connections), with the kernel's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpOptions {
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// TCP_CORK.
    pub cork: bool,
    /// SO_KEEPALIVE.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
    //# If keep-alives are included, the application MUST be able to turn them on or off for each
    //# TCP connection (MUST-24), and they MUST default to off (MUST-25).
    pub keepalive: bool,
    /// TCP_KEEPIDLE, seconds.
    pub keepidle_s: u32,
    /// TCP_KEEPINTVL, seconds.
    pub keepintvl_s: u32,
    /// TCP_KEEPCNT.
    pub keepcnt: u32,
    /// TCP_USER_TIMEOUT in milliseconds, 0 for the default.
    pub user_timeout_ms: u32,
    /// TCP_RTO_MAX_MS: the longest retransmission timeout, 1,000 to 120,000; 0 for the settings'.
    pub rto_max_ms: u32,
    /// TCP_MAXSEG, 0 for what the path allows.
    pub maxseg: u16,
    /// SO_LINGER: `Some(seconds)`; `Some(0)` makes close send a reset.
    pub linger_s: Option<u32>,
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
    //# The application layer MUST be able to specify the Differentiated Services field for
    //# segments that are sent on a connection (MUST-48).
    /// IP_TOS.
    pub tos: u8,
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2
    //# The TTL value used to send TCP segments MUST be configurable (MUST-49).
    /// IP_TTL; `None` for 64.
    pub ttl: Option<u8>,
    /// IPV6_TCLASS, which over IPv6 is in the place of `tos`.
    pub traffic_class: u8,
    /// IPV6_UNICAST_HOPS, in the place of `ttl`; `None` for what routers say.
    pub hop_limit: Option<u8>,
    /// Limit of the receive window in bytes (SO_RCVBUF).
    pub recv_limit: u32,
    /// The window grows with what the path carries and the program reads; `false` once the
    /// program has set SO_RCVBUF.
    pub recv_tunes: bool,
    /// SO_RCVLOWAT: bytes that the window is to hold at the least, where it tunes itself.
    pub recv_low_water: u32,
    /// TCP_NOTSENT_LOWAT: bytes that may be written and not sent; 0 for what the owner has for
    /// all. The owner sees to it.
    pub unsent_low_water: u32,
    /// SO_MAX_PACING_RATE, bytes per second; [`u64::MAX`] for none.
    pub max_pacing_rate: u64,
    /// TCP_CONGESTION.
    pub congestion: CongestionKind,
    /// IP_MTU_DISCOVER.
    pub pmtu: PathMtuDiscovery,
    /// TCP_LINGER2: seconds that a closed connection waits for the peer's FIN; 0 for the default,
    /// negative for not at all.
    pub linger2_s: i32,
    /// TCP_SYNCNT: how often a SYN is sent again; 0 for the default.
    pub syn_retries: u8,
    /// TCP_WINDOW_CLAMP: most bytes of window to offer; 0 for what `recv_limit` says.
    pub window_clamp: u32,
    /// TCP_DEFER_ACCEPT: retransmissions of the SYN and ACK for which a listener waits for the
    /// peer's first data.
    pub defer_accept: u8,
    /// TCP_FASTOPEN_CONNECT, or MSG_FASTOPEN: the first data goes with the SYN, once the server's
    /// cookie is known.
    pub fast_open: bool,
    /// TCP_FASTOPEN_NO_COOKIE: so it does without a cookie, and a listener asks for none.
    pub fast_open_no_cookie: bool,
    /// TCP_FASTOPEN of a listener: connections whose data was taken before their handshake was
    /// over; 0 for none.
    pub fast_open_queue: u32,
    /// What the route says of the path; the stack sees to it.
    pub path: Metrics,
}

impl TcpOptions {
    /// The type of service, or the traffic class, of what goes to an address.
    pub(crate) fn tos_to(&self, remote: IpAddr) -> u8 {
        if remote.is_ipv4() { self.tos } else { self.traffic_class }
    }

    /// The time to live, or the hop limit.
    pub(crate) fn ttl_to(&self, remote: IpAddr) -> Option<u8> {
        if remote.is_ipv4() { self.ttl } else { self.hop_limit }
    }
}

/// IP_MTU_DISCOVER: what the size of packets follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathMtuDiscovery {
    /// The link; routers may cut.
    Dont,
    /// The path, as routers tell it. IP_PMTUDISC_DO is the same for TCP.
    #[default]
    Want,
    /// The link; routers may not cut, and are not listened to.
    Probe,
}

impl TcpOptions {
    /// Whether what routers say of the path counts.
    pub fn heeds_routers(&self) -> bool {
        self.pmtu == PathMtuDiscovery::Want && !self.path.mtu_lock
    }

    /// Whether routers may cut packets.
    pub fn may_be_cut(&self) -> bool {
        match self.pmtu {
            PathMtuDiscovery::Dont => true,
            PathMtuDiscovery::Want => self.path.mtu_lock,
            PathMtuDiscovery::Probe => false,
        }
    }

    /// The same for a connection whose route says `metrics`.
    pub fn on_route(self, metrics: Metrics) -> Self {
        let congestion = metrics.congestion.unwrap_or(self.congestion);
        Self { path: metrics, congestion, ..self }
    }

    /// Most bytes of window to offer.
    pub fn window_limit(&self) -> u32 {
        match self.window_clamp {
            0 => self.recv_limit,
            clamp => self.recv_limit.min(clamp),
        }
    }
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            nodelay: false,
            cork: false,
            keepalive: false,
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
            //# This interval MUST be configurable (MUST-27) and MUST default to no less than two
            //# hours (MUST-28).
            keepidle_s: 7200,
            keepintvl_s: 75,
            keepcnt: 9,
            user_timeout_ms: 0,
            rto_max_ms: 0,
            maxseg: 0,
            linger_s: None,
            tos: 0,
            ttl: None,
            traffic_class: 0,
            hop_limit: None,
            recv_limit: 6 << 20,
            recv_tunes: true,
            recv_low_water: 1,
            unsent_low_water: 0,
            max_pacing_rate: u64::MAX,
            congestion: CongestionKind::Cubic,
            pmtu: PathMtuDiscovery::default(),
            linger2_s: 0,
            syn_retries: 0,
            window_clamp: 0,
            defer_accept: 0,
            //= https://www.rfc-editor.org/rfc/rfc7413#section-2
            //# Therefore, TCP implementations MUST NOT use TFO by default, but only use TFO if
            //# requested explicitly by the application on a per-service-port basis.
            //= https://www.rfc-editor.org/rfc/rfc7413#section-4.2
            //# It MUST be turned on explicitly by the application.
            fast_open: false,
            fast_open_no_cookie: false,
            fast_open_queue: 0,
            path: Metrics::default(),
        }
    }
}

/// Congestion control algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CongestionKind {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 5681.
    Reno,
    /// RFC 8257.
    Dctcp,
    /// BBR, version 1.
    Bbr,
}

impl CongestionKind {
    /// All of them; their places are their numbers in the contract with clients.
    pub const ALL: [Self; 4] = [Self::Cubic, Self::Reno, Self::Dctcp, Self::Bbr];

    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Reno => "reno",
            Self::Dctcp => "dctcp",
            Self::Bbr => "bbr",
        }
    }
}

/// Why a request was refused. Maps once to an errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The id names nothing (any more).
    Stale,
    /// The local address is not ours (EADDRNOTAVAIL).
    AddressNotAvailable,
    /// Another socket has it (EADDRINUSE).
    AddressInUse,
    /// No route (ENETUNREACH).
    NoRoute,
    /// A table is full (ENOBUFS); the limit and its counter tell which.
    LimitReached,
    /// Not in this state (EISCONN, ENOTCONN, EPIPE as fits the request).
    State,
    /// A datagram too long for IP (EMSGSIZE).
    TooLong,
    /// The next hop's link address is being asked for.
    WaitNeighbor,
    /// Others that waited for the next hop are to go first: try again when they have.
    Behind,
    /// The next hop does not answer (EHOSTUNREACH).
    HostUnreachable,
    /// What is to be taken back was never set (ENOENT).
    Unknown,
}
