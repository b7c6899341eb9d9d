//! Rights to ports: which kernel sockets programs have passed, and whether each still has its port.
//! A socket loses it when its last descriptor is closed, also by SIGKILL, and the kernel notifies
//! us. It may lose it earlier: shutdown(2), and connect(2) to AF_UNSPEC, give a port back and keep
//! the socket. For a listener the kernel notifies us of that, too. All sockets are checked at least
//! once a second, and those at a port whenever another one is passed for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use port::Protocol;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, recv};

use super::authority::Purpose;
use super::exchange::{Shown, SocketKey};
use super::look::{self, ESTABLISHED, LISTEN, Look};
use crate::diag::{self, Message, Row};

/// SKNLGRP_INET_TCP_DESTROY, .._UDP_.., SKNLGRP_INET6_TCP_DESTROY, .._UDP_.. of
/// `linux/sock_diag.h`, as a mask.
const GROUPS: u32 = 0b1111;

/// Messages taken at a time.
const BATCH: usize = 64;

/// Receive buffer for bursts; the kernel allows at most `net.core.rmem_max`.
const BACKLOG_BYTES: usize = 4 << 20;

/// Answers taken at a time during a pass over the kernel's sockets, and the pause between.
const LOOK_BATCH: usize = 8;
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// Interval between the starts of two passes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Ports checked individually before others have their turn.
const PORTS_AT_A_TIME: usize = 8;

/// The key of the notification socket among the cookies of listeners, of which none is 0.
const NEWS: u64 = 0;

/// A protocol's number, and a port of it.
type Place = (u8, u16);

/// The right that a passed socket gives.
#[derive(Clone, Copy, Debug)]
struct Right {
    purpose: Purpose,
    /// As the kernel names it.
    local: SocketAddr,
    v6_only: bool,
    uid: u32,
    /// Granted uses that the worker has not reported as ended.
    uses: u32,
    /// It has ended. The worker knows, and its uses are about to end.
    is_over: bool,
    /// This pass has found the socket, or began before it was passed.
    found: bool,
}

impl Right {
    fn new(shown: &Shown, purpose: Purpose) -> Self {
        Self {
            purpose,
            local: shown.kernel_local,
            v6_only: shown.local.v6_only,
            uid: shown.uid,
            uses: 0,
            is_over: false,
            found: true,
        }
    }

    fn place(&self) -> Place {
        let protocol = match self.purpose.protocol() {
            Protocol::Tcp => diag::TCP,
            Protocol::Udp => diag::UDP,
        };
        (protocol, self.local.port())
    }

    /// Whether the kernel's current data about the socket still supports the right.
    fn is_backed(&self, row: &Row) -> bool {
        if row.device != 0 || row.local.port() != self.local.port() {
            return false;
        }
        let is_same = row.local.ip() == self.local.ip();
        match self.purpose {
            Purpose::Listen => is_same && row.state == LISTEN,
            Purpose::Connect => is_same && row.state != LISTEN,
            // A connected UDP socket is listed with the address from which it sends.
            Purpose::Udp if row.state == ESTABLISHED => is_same || self.local.ip().is_unspecified(),
            Purpose::Udp => {
                let is_wider =
                    row.local.ip().is_unspecified() && row.local.is_ipv4() == self.local.is_ipv4();
                is_same || is_wider
            }
        }
    }

    /// Whether a UDP socket that was not passed and belongs to another user receives, by the
    /// kernel's rules, datagrams for this one. The kernel must decide between the two.
    fn is_contested(&self, stranger: &Stranger) -> bool {
        let (own, other) = (self.local.ip().to_canonical(), stranger.ip.to_canonical());
        if self.purpose != Purpose::Udp
            || self.uid == stranger.uid
            || is_elsewhere(own)
            || is_elsewhere(other)
        {
            return false;
        }
        // The unspecified address of IPv6 may cover both families.
        let covers = |any: IpAddr, v6_only: bool, ip: IpAddr| {
            any.is_unspecified() && (any.is_ipv4() == ip.is_ipv4() || (any.is_ipv6() && !v6_only))
        };
        own == other || covers(own, self.v6_only, other) || covers(other, stranger.v6_only, own)
    }
}

/// The relevant data of a UDP socket that was not passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stranger {
    uid: u32,
    ip: IpAddr,
    v6_only: bool,
}

/// Whether datagrams for such an address cannot reach a passed socket.
fn is_elsewhere(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_multicast()
}

/// Foreign sockets at a port that may conflict, each kind once.
#[derive(Debug, Default)]
struct Strangers(BTreeSet<Stranger>);

impl Strangers {
    fn add(&mut self, row: &Row) {
        let Row { uid, v6_only, .. } = *row;
        let ip = row.local.ip();
        if !is_elsewhere(ip.to_canonical()) {
            self.0.insert(Stranger { uid, ip, v6_only });
        }
    }

    fn contest(&self, right: &Right) -> bool {
        right.purpose == Purpose::Udp && self.0.iter().any(|one| right.is_contested(one))
    }
}

/// A pass over all sockets that were passed. The kernel lists sockets by table positions and may
/// omit one when others come and go meanwhile; missing sockets are looked up by their port.
enum Stage {
    All(Look),
    Missing(Vec<Place>),
}

/// The passed sockets, and the kernel's data about them.
pub struct Rights {
    namespace: u64,
    news: OwnedFd,
    /// Listeners and notifications.
    watch: OwnedFd,
    all: BTreeMap<SocketKey, Right>,
    /// The same by port.
    places: BTreeSet<(Place, SocketKey)>,
    /// The kernel lists TCP sockets that are bound only.
    lists_bound: bool,
    /// The foreign sockets that this pass has found at UDP ports of passed sockets.
    strangers: BTreeMap<u16, Strangers>,
    stage: Option<Stage>,
    /// Earliest start of the next pass.
    next_look: Instant,
    /// A pass has failed, and that was logged.
    has_failed: bool,
}

/// Results of a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Sockets that have lost their right.
    pub keys: Vec<SocketKey>,
    /// How many of them still exist.
    pub kept: u64,
    /// A kernel socket was closed.
    pub any_closed: bool,
    /// The kernel dropped notifications.
    pub missed: bool,
}

/// The state of a port just before a socket is granted something there.
#[derive(Debug, Default)]
pub struct Neighbors {
    /// Passed sockets that no longer have a right to the port.
    pub ended: Ended,
    /// Passed sockets that have.
    pub beside: Vec<SocketKey>,
    /// A socket of another user that was not passed also has the port.
    pub is_contested: bool,
}

impl Rights {
    /// Subscribes to the notifications of the calling thread's network namespace, which has this
    /// cookie.
    ///
    /// # Errors
    /// If the kernel has no such notifications, or no descriptor is left.
    pub fn open(namespace: u64) -> rustix::io::Result<Self> {
        let news = diag::socket(SocketFlags::NONBLOCK, GROUPS)?;
        // The kernel may grant less.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&news, BACKLOG_BYTES);
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(NEWS);
        epoll::add(&watch, &news, data, epoll::EventFlags::IN)?;
        Ok(Self {
            namespace,
            news,
            watch,
            all: BTreeMap::new(),
            places: BTreeSet::new(),
            lists_bound: look::lists_bound()?,
            strangers: BTreeMap::new(),
            stage: None,
            next_look: Instant::now(),
            has_failed: false,
        })
    }

    /// Readable when there are notifications.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Checks the port of a socket that was just passed, before anything is granted.
    pub fn neighbors(&mut self, shown: &Shown, purpose: Purpose) -> Neighbors {
        let own = Right::new(shown, purpose);
        let mut found = Neighbors::default();
        let is_other = |before: &Right| (before.purpose, before.local) != (purpose, own.local);
        if self.all.get(&shown.key).is_some_and(is_other) {
            // Its previous right is gone; otherwise it could not be passed for this purpose.
            self.end(shown.key, &mut found.ended);
        }
        let mut others = self.at(own.place());
        others.retain(|key| *key != shown.key);
        if others.is_empty() && purpose != Purpose::Udp {
            return found;
        }
        match self.rows_at(own.place()) {
            Ok(rows) => {
                let strangers = self.judge(&others, &rows, &mut found.ended);
                found.is_contested = strangers.contest(&own);
            }
            // No right is granted to a port that cannot be checked. Existing rights stay until the
            // next pass.
            Err(_) => found.is_contested = true,
        }
        found.beside = self.at(own.place());
        found
    }

    fn key(&self, cookie: u64) -> SocketKey {
        SocketKey { namespace: self.namespace, cookie }
    }

    fn is_live(&self, key: SocketKey) -> bool {
        self.all.get(&key).is_some_and(|right| !right.is_over)
    }

    /// The sockets with a right at a port.
    fn at(&self, place: Place) -> Vec<SocketKey> {
        let first = SocketKey { namespace: 0, cookie: 0 };
        let here = self.places.range((place, first)..).take_while(|(other, _)| *other == place);
        here.map(|(_, key)| *key).collect()
    }

    /// A use of the socket begins. From now on [`Rights::take`] reports the end of its right.
    pub fn begin_use(&mut self, shown: &Shown, purpose: Purpose, socket: BorrowedFd<'_>) {
        if purpose == Purpose::Listen && !self.is_live(shown.key) {
            // The registration lives as long as the open file, which it does not keep open. If the
            // kernel refuses one, the next pass finds the same.
            let data = epoll::EventData::new_u64(shown.key.cookie);
            let _ = epoll::add(&self.watch, socket, data, epoll::EventFlags::ET);
        }
        let right = Right::new(shown, purpose);
        self.places.insert((right.place(), shown.key));
        let uses = self.all.get(&shown.key).map_or(0, |right| right.uses);
        self.all.insert(shown.key, Right { uses: uses.saturating_add(1), ..right });
    }

    /// A use of the socket has ended.
    pub fn end_use(&mut self, key: SocketKey) {
        if let Some(right) = self.all.get_mut(&key) {
            right.uses = right.uses.saturating_sub(1);
            if right.uses == 0 {
                let place = right.place();
                self.places.remove(&(place, key));
                self.all.remove(&key);
            }
        }
    }

    /// Ends the right of a socket. `false`: it had none.
    fn end_right(&mut self, key: SocketKey) -> bool {
        let Some(right) = self.all.get_mut(&key).filter(|right| !right.is_over) else {
            return false;
        };
        right.is_over = true;
        let place = right.place();
        self.places.remove(&(place, key))
    }

    /// Time until [`Self::take`] must be called even without notifications; `None` for never.
    pub fn due(&self) -> Option<Duration> {
        if self.stage.is_some() {
            return Some(LOOK_PAUSE);
        }
        let left = self.next_look.saturating_duration_since(Instant::now());
        (!self.places.is_empty()).then_some(left)
    }

    /// Processes notifications without blocking; bounded, so that a machine that closes many kernel
    /// sockets does not keep the thread.
    pub fn take(&mut self) -> Ended {
        let mut ended = Ended::default();
        self.take_events(&mut ended);
        let mut buffer = [0u8; 8192];
        for _ in 0..BATCH {
            match recv(&self.news, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((_, len)) => {
                    ended.any_closed = true;
                    for cookie in cookies(buffer.get(..len).unwrap_or_default()) {
                        let key = self.key(cookie);
                        ended.keys.extend(self.end_right(key).then_some(key));
                    }
                }
                Err(Errno::NOBUFS) => (ended.missed, ended.any_closed) = (true, true),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if let Err(error) = self.look_on(&mut ended) {
            // It is retried.
            self.stage = None;
            if !std::mem::replace(&mut self.has_failed, true) {
                tracing::warn!("the kernel cannot list its sockets, trying again: {error}");
            }
        }
        ended
    }

    /// Checks listeners with events.
    fn take_events(&mut self, ended: &mut Ended) {
        let mut events = Vec::with_capacity(PORTS_AT_A_TIME);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let buffer = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.watch, buffer, Some(&at_once)).is_err() {
            // The next pass finds it.
            return;
        }
        for event in events {
            let key = self.key(event.data.u64());
            let place = self.all.get(&key).filter(|right| !right.is_over).map(Right::place);
            if let Some(place) = place {
                self.look_at(place, ended);
            }
        }
    }

    /// The relevant sockets at a port: passed ones, and foreign UDP sockets.
    fn rows_at(&self, (protocol, port): Place) -> rustix::io::Result<Vec<Row>> {
        let matters = |row: &Row| {
            self.all.contains_key(&self.key(row.cookie))
                || (protocol == diag::UDP && !is_elsewhere(row.local.ip().to_canonical()))
        };
        look::at_port(protocol, port, self.lists_bound, matters)
    }

    /// Checks a single port. Without an answer nothing changes, and it is asked again.
    fn look_at(&mut self, place: Place, ended: &mut Ended) {
        let keys = self.at(place);
        match self.rows_at(place) {
            Ok(rows) => {
                self.judge(&keys, &rows, ended);
            }
            // That many sockets at one port are their owner's fault.
            Err(Errno::TOOBIG) => keys.iter().for_each(|key| self.end(*key, ended)),
            Err(_) => {}
        }
    }

    /// Ends the rights that `rows`, all sockets of their port, do not support. Returns the others.
    fn judge(&mut self, keys: &[SocketKey], rows: &[Row], ended: &mut Ended) -> Strangers {
        let mut by_key = BTreeMap::new();
        let mut strangers = Strangers::default();
        for row in rows {
            by_key.insert(self.key(row.cookie), row);
            if !self.is_live(self.key(row.cookie)) {
                strangers.add(row);
            }
        }
        for key in keys {
            let Some(right) = self.all.get(key) else { continue };
            let is_listed = right.purpose != Purpose::Connect || self.lists_bound;
            let is_backed = by_key.get(key).is_some_and(|row| right.is_backed(row));
            if (is_listed && !is_backed) || strangers.contest(right) {
                self.end(*key, ended);
            }
        }
        strangers
    }

    /// Ends the right of a socket that may still exist.
    fn end(&mut self, key: SocketKey, ended: &mut Ended) {
        if self.end_right(key) {
            ended.keys.push(key);
            ended.kept += 1;
        }
    }

    /// Continues a pass, and starts one if it is due.
    fn look_on(&mut self, ended: &mut Ended) -> rustix::io::Result<()> {
        match self.stage.take() {
            None if self.due().is_some_and(|due| due.is_zero()) => {
                self.next_look = Instant::now() + LOOK_EVERY;
                let udp = self.all.values().filter(|right| right.purpose == Purpose::Udp);
                self.strangers =
                    udp.map(|right| (right.local.port(), Strangers::default())).collect();
                self.all.values_mut().for_each(|right| right.found = false);
                let look = Look::begin(&[diag::TCP, diag::UDP], None, self.lists_bound)?;
                self.stage = Some(Stage::All(look));
            }
            None => {}
            Some(Stage::All(mut look)) => {
                let is_over = look.go_on(LOOK_BATCH, |protocol, row| self.see(protocol, row))?;
                self.stage = Some(match is_over {
                    true => Stage::Missing(self.missing()),
                    false => Stage::All(look),
                });
            }
            Some(Stage::Missing(mut places)) => {
                for _ in 0..PORTS_AT_A_TIME {
                    if let Some(place) = places.pop() {
                        self.look_at(place, ended);
                    }
                }
                self.stage = (!places.is_empty()).then_some(Stage::Missing(places));
            }
        }
        Ok(())
    }

    /// Processes one kernel socket.
    fn see(&mut self, protocol: u8, row: &Row) {
        let key = self.key(row.cookie);
        match self.all.get_mut(&key).filter(|right| !right.is_over) {
            Some(right) => right.found |= right.is_backed(row),
            None if protocol == diag::UDP => {
                if let Some(strangers) = self.strangers.get_mut(&row.local.port()) {
                    strangers.add(row);
                }
            }
            None => {}
        }
    }

    /// Ports where a pass has not found a passed socket, or has found a foreign one.
    fn missing(&self) -> Vec<Place> {
        let is_missing = |right: &Right| {
            let is_listed = right.purpose != Purpose::Connect || self.lists_bound;
            let strangers = self.strangers.get(&right.local.port());
            (is_listed && !right.found) || strangers.is_some_and(|here| here.contest(right))
        };
        let missing = self.all.values().filter(|right| !right.is_over && is_missing(right));
        let places: BTreeSet<Place> = missing.map(Right::place).collect();
        places.into_iter().collect()
    }
}

/// The cookies in a series of messages.
fn cookies(messages: &[u8]) -> impl Iterator<Item = u64> {
    diag::messages(messages).filter_map(|message| match message {
        Message::Socket(socket) => diag::cookie(socket),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
