//! The thread of a memif port that deals with peers until their rings are in use, and notices their end.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, recvmsg, send,
    socket_with,
};

use super::MemifFacts;
use super::messages::{
    AddRing, FromPeer, MESSAGE_BYTES, REGIONS_MAX, RING_LOG2_MAX, SECRET_BYTES_MAX, ack, connected,
    disconnect, hello, is_ours,
};
use super::peer::{Mapping, Peer, REGION_BYTES_MAX};

/// How long a peer may take from its connection to its last word.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// Messages taken before others have their turn.
const WORDS_AT_A_TIME: usize = 64;
const SO_PEERCRED: libc::c_int = libc::SO_PEERCRED;

/// What the thread and the worker hand to each other.
#[derive(Default)]
pub(super) struct Exchange {
    has_news: AtomicBool,
    trade: Mutex<Trade>,
}

#[derive(Default)]
struct Trade {
    arrived: Option<Box<Peer>>,
    is_gone: bool,
    /// To be unmapped by the thread, as that takes its time.
    retired: Vec<Peer>,
}

impl Exchange {
    /// Whether the worker has something to take.
    pub fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed)
    }

    /// The worker takes what there is, unless the thread is just putting it there.
    pub fn trade(&self, peer: &mut Option<Box<Peer>>) {
        let Ok(mut trade) = self.trade.try_lock() else { return };
        self.has_news.store(false, Ordering::Relaxed);
        if std::mem::take(&mut trade.is_gone) {
            trade.retired.extend(peer.take().map(|gone| *gone));
        }
        if let Some(arrived) = trade.arrived.take() {
            trade.retired.extend(peer.replace(arrived).map(|gone| *gone));
        }
    }

    fn put(&self, change: impl FnOnce(&mut Trade)) {
        let mut trade = self.trade.lock().unwrap_or_else(PoisonError::into_inner);
        trade.retired.clear();
        change(&mut trade);
        self.has_news.store(true, Ordering::Relaxed);
    }
}

/// A name as an address: a path, or an abstract name behind `@`.
fn address(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(match name.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        None => SocketAddrUnix::new(name)?,
    })
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A socket at which peers connect. What an engine that is gone has left at the path is replaced.
pub(super) fn listen(name: &str, for_others: bool) -> io::Result<OwnedFd> {
    let address = address(name)?;
    let listener = new_socket()?;
    match bind(&listener, &address) {
        Err(Errno::ADDRINUSE) if connect(new_socket()?, &address) == Err(Errno::CONNREFUSED) => {
            std::fs::remove_file(name)?;
            bind(&listener, &address)?;
        }
        bound => bound?,
    }
    if !name.starts_with('@') {
        // Who may connect is checked with SO_PEERCRED.
        let mode = if for_others { 0o666 } else { 0o600 };
        std::fs::set_permissions(Path::new(name), std::fs::Permissions::from_mode(mode))?;
    }
    rustix::net::listen(&listener, 8)?;
    Ok(listener)
}

/// The thread; it ends when this is dropped.
pub(super) struct Desk {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Desk {
    /// Begins to accept.
    pub fn start(
        listener: OwnedFd,
        facts: MemifFacts,
        exchange: Arc<Exchange>,
    ) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let ends = Arc::clone(&stop);
        let thread =
            std::thread::Builder::new().name("outboard-memif".into()).spawn(move || {
                let mut work = Work { listener, facts, exchange, guest: None };
                while work.round(ends.as_fd()) {}
            })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // A full counter wakes, too.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say that its panic has not said.
            let _ = thread.join();
        }
    }
}

/// Somebody who has connected.
struct Guest {
    socket: OwnedFd,
    since: Instant,
    is_known: bool,
    regions: Vec<Mapping>,
    to_server: Option<AddRing>,
    to_client: Option<AddRing>,
    is_connected: bool,
}

struct Work {
    listener: OwnedFd,
    facts: MemifFacts,
    exchange: Arc<Exchange>,
    guest: Option<Guest>,
}

impl Work {
    /// Waits for something and deals with it. `false`: the port ends.
    fn round(&mut self, stop: BorrowedFd<'_>) -> bool {
        let mut fds = vec![
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        let mut limit = None;
        if let Some(guest) = &self.guest {
            fds.push(PollFd::new(&guest.socket, PollFlags::IN));
            if !guest.is_connected {
                let left = HANDSHAKE_WITHIN.saturating_sub(guest.since.elapsed());
                limit = Timespec::try_from(left).ok();
            }
        }
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return true,
            Err(error) => {
                tracing::error!("a memif port cannot wait for peers: {error}");
                return false;
            }
        }
        let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let (ends, comes, says) = (is_ready(0), is_ready(1), is_ready(2));
        drop(fds);
        if ends {
            return false;
        }
        if says {
            self.hear();
        }
        let is_slow =
            |guest: &Guest| !guest.is_connected && guest.since.elapsed() >= HANDSHAKE_WITHIN;
        if self.guest.as_ref().is_some_and(is_slow) {
            self.end(Some("the handshake took too long"));
        }
        if comes {
            self.accept();
        }
        true
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = accept_with(&self.listener, flags) else { return };
        let refusal = match self.admits(socket.as_fd()) {
            Err(why) => Some(why),
            Ok(()) if self.guest.is_some() => Some("the port has a peer already".to_owned()),
            Ok(()) => None,
        };
        if let Some(why) = refusal {
            tracing::warn!("a memif peer is refused: {why}");
            say(socket.as_fd(), &disconnect(&why));
            return;
        }
        say(socket.as_fd(), &hello());
        self.guest = Some(Guest {
            socket,
            since: Instant::now(),
            is_known: false,
            regions: Vec::new(),
            to_server: None,
            to_client: None,
            is_connected: false,
        });
    }

    /// Whether the user at the other end may connect.
    fn admits(&self, socket: BorrowedFd<'_>) -> Result<(), String> {
        // struct ucred: pid, uid, gid.
        let mut told = [0; 12];
        crate::sockets::option(socket, libc::SOL_SOCKET, SO_PEERCRED, &mut told)
            .map_err(|why| format!("SO_PEERCRED: {why}"))?;
        let [_, _, _, _, a, b, c, d, ..] = told;
        let uid = u32::from_ne_bytes([a, b, c, d]);
        let own = rustix::process::geteuid().as_raw();
        if uid == 0 || uid == own || self.facts.users.contains(&uid) {
            return Ok(());
        }
        Err(format!("user {uid} may not connect; add uid={uid} to the port"))
    }

    /// Takes the messages that wait.
    fn hear(&mut self) {
        // Bounded, for one who never stops talking; poll brings us back.
        for _ in 0..WORDS_AT_A_TIME {
            let Some(guest) = &self.guest else { return };
            match hear_one(guest.socket.as_fd()) {
                Ok(None) => return,
                Ok(Some((message, files))) => {
                    if let Err(why) = self.on_message(message, files) {
                        return self.end(Some(&why));
                    }
                }
                Err(Ended::HungUp) => return self.end(None),
                Err(Ended::Garbage(why)) => return self.end(Some(why)),
            }
        }
    }

    fn on_message(&mut self, message: FromPeer, files: Vec<OwnedFd>) -> Result<(), String> {
        let Some(guest) = &mut self.guest else { return Ok(()) };
        if message.has_descriptor() != (files.len() == 1) {
            return Err("a message has not the descriptors that belong to it".into());
        }
        let is_settled = matches!(message, FromPeer::Ack | FromPeer::Disconnect);
        if guest.is_connected && !is_settled {
            return Err("a message comes after the connection stands".into());
        }
        if !guest.is_known && !is_settled && !matches!(message, FromPeer::Init { .. }) {
            return Err("a message comes before INIT".into());
        }
        match message {
            FromPeer::Ack => return Ok(()),
            FromPeer::Disconnect => return Err("the peer disconnects".into()),
            FromPeer::Init { version, id, mode, secret } => {
                if !is_ours(version) {
                    return Err(format!("the peer speaks version {version:#x} instead of 2.0"));
                }
                if mode != 0 {
                    return Err("only Ethernet mode is served".into());
                }
                if id != self.facts.id {
                    return Err(format!("there is no interface {id} here, only {}", self.facts.id));
                }
                if !is_secret(self.facts.secret.as_deref(), &secret) {
                    return Err("the secret is another".into());
                }
                guest.is_known = true;
            }
            FromPeer::AddRegion { index, bytes } => {
                let held: u64 = guest.regions.iter().map(Mapping::bytes).sum();
                if usize::from(index) != guest.regions.len() || guest.regions.len() >= REGIONS_MAX {
                    return Err("regions come in order, and at most 16".into());
                }
                if held.saturating_add(bytes) > REGION_BYTES_MAX {
                    return Err(format!("the regions have more than {REGION_BYTES_MAX} bytes"));
                }
                let file = files.first().ok_or("a region comes without its memfd")?;
                guest.regions.push(Mapping::new(file, bytes)?);
            }
            FromPeer::AddRing(ring) => {
                if ring.index != 0 || ring.private_bytes != 0 {
                    return Err("one ring each way, without private headers, is served".into());
                }
                if !(1..=RING_LOG2_MAX).contains(&ring.log2_slots) {
                    return Err("a ring has 2 to 16384 slots".into());
                }
                let place =
                    if ring.to_server { &mut guest.to_server } else { &mut guest.to_client };
                if place.replace(ring).is_some() {
                    return Err("a ring comes twice".into());
                }
            }
            FromPeer::Connect => {
                let (Some(to_server), Some(to_client)) = (guest.to_server, guest.to_client) else {
                    return Err("a ring is missing".into());
                };
                let copy = rustix::io::fcntl_dupfd_cloexec(&guest.socket, 0)
                    .map_err(|why| format!("no descriptor is left: {why}"))?;
                let regions = std::mem::take(&mut guest.regions);
                let peer = Peer::new(regions, &to_server, &to_client, copy)?;
                guest.is_connected = true;
                self.exchange.put(|trade| trade.arrived = Some(Box::new(peer)));
                say(guest.socket.as_fd(), &connected());
                tracing::info!("a memif peer has connected");
                return Ok(());
            }
        }
        say(guest.socket.as_fd(), &ack());
        Ok(())
    }

    /// The end of a peer; why, if that is ours to say.
    fn end(&mut self, why: Option<&str>) {
        let Some(guest) = self.guest.take() else { return };
        if let Some(why) = why {
            tracing::warn!("a memif peer is disconnected: {why}");
            // A peer whose words are left unread finds an error before ours.
            for _ in 0..WORDS_AT_A_TIME {
                if !matches!(hear_one(guest.socket.as_fd()), Ok(Some(_)) | Err(Ended::Garbage(_))) {
                    break;
                }
            }
            say(guest.socket.as_fd(), &disconnect(why));
        }
        if guest.is_connected {
            self.exchange.put(|trade| {
                // One that the worker has not taken yet goes at once.
                trade.is_gone = trade.arrived.take().is_none();
            });
        }
    }
}

/// Says something to a peer; one that does not listen is found by its hang-up or by the time it takes.
fn say(socket: BorrowedFd<'_>, message: &[u8; MESSAGE_BYTES]) {
    let _ = send(socket, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

fn is_secret(expected: Option<&str>, said: &[u8; SECRET_BYTES_MAX]) -> bool {
    let mut wanted = [0; SECRET_BYTES_MAX];
    for (room, byte) in wanted.iter_mut().zip(expected.unwrap_or_default().bytes()) {
        *room = byte;
    }
    // All bytes are looked at, wherever the first difference is.
    expected.is_none() || wanted.iter().zip(said).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

enum Ended {
    HungUp,
    Garbage(&'static str),
}

/// Takes one message and its descriptors.
fn hear_one(socket: BorrowedFd<'_>) -> Result<Option<(FromPeer, Vec<OwnedFd>)>, Ended> {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut room = [io::IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(socket, &mut room, &mut ancillary, flags) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(_) => return Err(Ended::HungUp),
    };
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Err(Ended::HungUp);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        || received.bytes != MESSAGE_BYTES
    {
        return Err(Ended::Garbage("a message is not of 128 bytes, or has too many descriptors"));
    }
    let message = FromPeer::read(&bytes).ok_or(Ended::Garbage("a message of an unknown kind"))?;
    Ok(Some((message, files)))
}
