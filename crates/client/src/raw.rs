//! Frames: a program sees the frames that the engine's ports receive and send, and sends frames
//! itself, through a pair of byte rings and without system calls. See `docs/raw.md`.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use outboard_client::raw::{Raw, RawSpec};
//! let session = outboard_client::Session::attach("/run/outboard/engine.sock".as_ref(), "example")?;
//! let (mut rx, mut tx) = Raw::open(&session, RawSpec::port("eth1"))?.split();
//! loop {
//!     rx.wait(None)?;
//!     for frame in rx.burst()? {
//!         println!("{} bytes from port {}", frame.bytes.len(), frame.port);
//!     }
//!     tx.reserve(60, 0)?.copy_from(&[0xff; 60]);
//!     tx.commit()?;
//! }
//! # }
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use shm::Status;
use shm::client_side::Direction;
use shm::control::{ControlError, FromEngine, RawWants, ToEngine};
pub use shm::control::{FilterInstruction, RawPort};
use shm::raw::{ClientDown, ClientUp, META_BYTES, Received, Rings};
pub use shm::raw::{FrameFlags, Meta, NoRoom, RingSizes, SegmentKind, SharedBytes};

use crate::driver::locked;
use crate::endpoint::{Endpoint, Kind};
use crate::open::RequestError;
use crate::session::Session;

/// Maximum frames of a burst.
const BURST_FRAMES: usize = 256;

/// Parameters of a raw endpoint.
#[derive(Clone, Debug)]
pub struct RawSpec {
    ports: Vec<String>,
    sizes: RingSizes,
    filter: Vec<FilterInstruction>,
    wants: RawWants,
    shows_socket: bool,
}

impl RawSpec {
    /// For one port, by its name or that of its interface: sees the frames that it receives, and
    /// sends through it.
    pub fn port(name: &str) -> Self {
        Self::ports([name])
    }

    /// For several ports, which get the numbers 0, 1 and so on.
    pub fn ports<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            ports: names.into_iter().map(str::to_owned).collect(),
            sizes: RingSizes::DEFAULT,
            filter: Vec::new(),
            wants: RawWants { received: true, ..RawWants::default() },
            shows_socket: true,
        }
    }

    /// Sees only the frames that a filter keeps: classic BPF for Ethernet, as printed by `tcpdump
    /// -ddd`. Its result is the number of bytes of a frame to keep.
    pub fn filter(mut self, filter: impl Into<Vec<FilterInstruction>>) -> Self {
        self.filter = filter.into();
        self
    }

    /// Sets the sizes of the rings; without DOWN (0) it cannot send.
    pub fn rings(mut self, sizes: RingSizes) -> Self {
        self.sizes = sizes;
        self
    }

    /// Whether it sees the frames that its ports receive; the default is yes.
    pub fn received(mut self, sees: bool) -> Self {
        self.wants.received = sees;
        self
    }

    /// Whether it sees the frames that its ports send, except for its own.
    pub fn sent(mut self, sees: bool) -> Self {
        self.wants.sent = sees;
        self
    }

    /// Whether frames come with a [`Meta`]: their arrival time, their checksum state, and their
    /// original length.
    pub fn meta(mut self, has: bool) -> Self {
        self.wants.meta = has;
        self
    }

    /// Takes the frames that its filter keeps: neither the engine's stack nor other endpoints get
    /// them. A `[[raw]]` rule must permit it.
    pub fn take(mut self) -> Self {
        self.wants.take = true;
        self
    }

    /// Sees, or takes, frames of this EtherType alone. Taking from an `xdp` port needs it: the kernel has
    /// every other frame before the engine.
    pub fn ethertype(mut self, ethertype: u16) -> Self {
        self.wants.ethertype = Some(ethertype);
        self
    }

    /// Relies on `[[raw]]` rules alone, and shows no packet socket.
    pub fn by_rules_alone(mut self) -> Self {
        self.shows_socket = false;
        self
    }
}

/// An open raw endpoint.
#[derive(Debug)]
pub struct Raw {
    endpoint: Endpoint,
    rings: Arc<Rings>,
    ports: Arc<[RawPort]>,
}

impl Raw {
    /// Opens a raw endpoint.
    ///
    /// # Errors
    /// EPERM for lack of rights, or another refusal of the engine, with its sentence.
    pub fn open(session: &Arc<Session>, spec: RawSpec) -> Result<Self, RequestError> {
        let RawSpec { ports, sizes, filter, wants, shows_socket } = spec;
        // A user who may not create one may still be named by a rule.
        let socket = shows_socket.then(packet_socket).and_then(Result::ok);
        let shown: Vec<_> = socket.iter().map(AsFd::as_fd).collect();
        let question =
            |serial| ToEngine::OpenRaw { serial, context: 0, ports, sizes, filter, wants };
        let granted = session.ask_raw(&shown, question)?;
        let unusable = |error: shm::raw::RingError| {
            RequestError::new(Errno::PROTO, format!("the engine's grant is invalid: {error}"))
        };
        let rings = Rings::open(granted.file, granted.sizes).map_err(unusable)?;
        let local = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
        let endpoint = session.granted(Kind::Raw, &[granted.endpoint], local)?;
        Ok(Self { endpoint, rings: Arc::new(rings), ports: granted.ports.into() })
    }

    /// Its ports, in the order of their numbers.
    pub fn ports(&self) -> &[RawPort] {
        &self.ports
    }

    /// The receiving and the sending side. The endpoint is closed with the last of them.
    pub fn split(self) -> (RawReceiver, RawSender) {
        let Self { endpoint, rings, ports } = self;
        let receiver = RawReceiver {
            up: ClientUp::new(Arc::clone(&rings)),
            rings: Arc::clone(&rings),
            endpoint: endpoint.clone(),
            ports: Arc::clone(&ports),
            lost: 0,
            is_broken: false,
        };
        (receiver, RawSender { down: ClientDown::new(rings), endpoint, ports })
    }
}

/// A granted raw endpoint.
struct RawGrant {
    endpoint: u32,
    file: OwnedFd,
    sizes: RingSizes,
    ports: Vec<RawPort>,
}

impl Session {
    /// Requests a raw endpoint.
    fn ask_raw(
        &self,
        shown: &[BorrowedFd<'_>],
        question: impl FnOnce(u32) -> ToEngine,
    ) -> Result<RawGrant, RequestError> {
        let mut control = locked(self.control());
        let asked = control.next_serial();
        self.converse_with_files(&control, &question(asked), shown, |answer, files| match answer {
            FromEngine::RawGranted { serial, endpoints, sizes, ports } if serial == asked => {
                let mut files = files.into_iter();
                let grant = match (endpoints.as_slice(), files.next(), files.next()) {
                    (&[endpoint], Some(file), None) => RawGrant { endpoint, file, sizes, ports },
                    (_, None, _) => {
                        let lost = ControlError::DescriptorsLost.to_string();
                        return Some(Err(RequestError::new(Errno::MFILE, lost)));
                    }
                    _ => {
                        let reason = "the engine's grant is invalid";
                        return Some(Err(RequestError::new(Errno::PROTO, reason)));
                    }
                };
                Some(Ok(grant))
            }
            FromEngine::Denied { serial, errno, reason } if serial == asked => {
                Some(Err(RequestError::new(Errno::from_raw_os_error(errno), reason)))
            }
            _ => None,
        })?
    }
}

fn packet_socket() -> Result<OwnedFd, Errno> {
    let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
    // Protocol 0: it receives nothing.
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
}

/// Why no more frames are transferred: ECONNRESET if the engine is gone, ENODEV if all ports are.
fn ended(endpoint: &Endpoint) -> Option<Errno> {
    match endpoint.call() {
        Err(errno) => Some(errno),
        Ok(call) => call.view().status().contains(Status::HANGUP).then_some(Errno::NODEV),
    }
}

/// A received frame. Its bytes are in the ring and valid until the burst is dropped.
#[derive(Clone, Copy, Debug)]
pub struct RawFrame<'a> {
    /// Starts with the destination MAC.
    pub bytes: SharedBytes<'a>,
    /// The number of its port.
    pub port: usize,
    /// Its flags.
    pub flags: FrameFlags,
    /// Its metadata, if requested.
    pub meta: Option<Meta>,
}

impl RawFrame<'_> {
    /// A copy of its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes.len()];
        self.bytes.copy_to(&mut bytes);
        bytes
    }
}

/// The receiving side of a raw endpoint.
#[derive(Debug)]
pub struct RawReceiver {
    up: ClientUp,
    rings: Arc<Rings>,
    endpoint: Endpoint,
    ports: Arc<[RawPort]>,
    lost: u64,
    is_broken: bool,
}

impl RawReceiver {
    /// The waiting frames, possibly none. Their room is released when the burst is dropped.
    ///
    /// # Errors
    /// Once no frames wait: ECONNRESET if the engine is gone, ENODEV if all ports are.
    pub fn burst(&mut self) -> Result<RawBurst<'_>, Errno> {
        if self.is_broken {
            return Err(Errno::PROTO);
        }
        if !self.up.has_more()
            && let Some(errno) = ended(&self.endpoint)
        {
            return Err(errno);
        }
        let Self { up, rings, endpoint, lost, is_broken, .. } = self;
        Ok(RawBurst { up, rings, endpoint, lost, is_broken, left: BURST_FRAMES })
    }

    /// Waits until frames have arrived, or none will; `false` if `deadline` passes first.
    ///
    /// # Errors
    /// ECONNRESET if the engine is gone; EMFILE without a descriptor to sleep on.
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<bool, Errno> {
        let Self { up, endpoint, .. } = self;
        endpoint.session().wait_until(deadline, || up.has_more() || ended(endpoint).is_some())
    }

    /// Frames dropped for lack of room in the ring, as of the last burst.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Its ports, in the order of their numbers.
    pub fn ports(&self) -> &[RawPort] {
        &self.ports
    }
}

/// Received frames.
#[derive(Debug)]
pub struct RawBurst<'a> {
    up: &'a mut ClientUp,
    rings: &'a Rings,
    endpoint: &'a Endpoint,
    lost: &'a mut u64,
    is_broken: &'a mut bool,
    left: usize,
}

impl<'a> Iterator for RawBurst<'a> {
    type Item = RawFrame<'a>;

    fn next(&mut self) -> Option<RawFrame<'a>> {
        while self.left > 0 {
            match self.up.receive() {
                Ok(Some(Received::Frame(frame))) => {
                    self.left -= 1;
                    return Some(RawFrame {
                        bytes: self.rings.bytes_of(&frame),
                        port: usize::from(frame.port).saturating_sub(1),
                        flags: frame.flags,
                        meta: frame.meta,
                    });
                }
                Ok(Some(Received::Lost(count))) => *self.lost += u64::from(count),
                Ok(None) => return None,
                Err(_) => {
                    *self.is_broken = true;
                    return None;
                }
            }
        }
        None
    }
}

impl Drop for RawBurst<'_> {
    fn drop(&mut self) {
        if self.up.release()
            && let Ok(call) = self.endpoint.call()
        {
            call.ring(Direction::Receive);
        }
    }
}

/// The sending side of a raw endpoint.
#[derive(Debug)]
pub struct RawSender {
    down: Option<ClientDown>,
    endpoint: Endpoint,
    ports: Arc<[RawPort]>,
}

/// Room for a frame.
#[derive(Debug)]
pub struct RawRoom<'a> {
    down: &'a ClientDown,
    at: usize,
    len: usize,
}

impl RawRoom<'_> {
    /// Writes the frame, truncated to the room.
    pub fn copy_from(self, bytes: &[u8]) {
        self.down.write(self.at, bytes.get(..self.len).unwrap_or(bytes));
    }
}

impl RawSender {
    /// Reserves room for a frame of `len` bytes on port number `port`.
    ///
    /// # Errors
    /// If the ring is full, or the frame is longer than the ring can ever take.
    pub fn reserve(&mut self, len: usize, port: usize) -> Result<RawRoom<'_>, NoRoom> {
        self.reserve_with(len, port, None)
    }

    /// The same for a frame whose checksum or segmentation is left to the port.
    ///
    /// # Errors
    /// As of [`Self::reserve`].
    pub fn reserve_with(
        &mut self,
        len: usize,
        port: usize,
        meta: Option<&Meta>,
    ) -> Result<RawRoom<'_>, NoRoom> {
        let down = self.down.as_mut().ok_or(NoRoom)?;
        let number = u8::try_from(port + 1).map_err(|_| NoRoom)?;
        let at = down.reserve(number, meta, len)?;
        Ok(RawRoom { down, at, len })
    }

    /// Whether there is room for a frame of `len` bytes, with any metadata.
    pub fn has_room(&mut self, len: usize) -> bool {
        self.down.as_mut().is_some_and(|down| down.has_room(len + META_BYTES))
    }

    /// Passes the frames reserved since the last call to the engine.
    ///
    /// # Errors
    /// ECONNRESET if the engine is gone.
    pub fn commit(&mut self) -> Result<(), Errno> {
        let Some(down) = &mut self.down else { return Ok(()) };
        let call = self.endpoint.call()?;
        if down.commit() {
            call.ring(Direction::Send);
        }
        Ok(())
    }

    /// Waits until [`Self::has_room`]; `false` if `deadline` passes first. Commits the frames
    /// reserved before.
    ///
    /// # Errors
    /// ECONNRESET if the engine is gone, ENODEV if all ports are, EMFILE without a descriptor to
    /// sleep on; EMSGSIZE for a frame longer than the ring can ever take.
    pub fn wait_room(&mut self, len: usize, deadline: Option<Instant>) -> Result<bool, Errno> {
        self.commit()?;
        let Self { down, endpoint, .. } = self;
        let down = down.as_mut().filter(|down| len <= down.frame_bytes_max(true));
        let down = down.ok_or(Errno::MSGSIZE)?;
        let len = len + META_BYTES;
        if down.want(len) {
            return Ok(true);
        }
        let ready = || down.has_room(len) || ended(endpoint).is_some();
        if !endpoint.session().wait_until(deadline, ready)? {
            return Ok(false);
        }
        match ended(endpoint) {
            Some(errno) => Err(errno),
            None => Ok(true),
        }
    }

    /// Number of frames sent to ports, and of frames dropped.
    pub fn counts(&self) -> (u64, u64) {
        self.down.as_ref().map_or((0, 0), ClientDown::counts)
    }

    /// Its ports, in the order of their numbers.
    pub fn ports(&self) -> &[RawPort] {
        &self.ports
    }
}
