//! Rights to ports: which of the kernel's sockets programs have shown, and whether each still has its
//! port. A socket loses it when it is closed for the last time, also by SIGKILL, and the kernel tells
//! so. It may lose it before: shutdown(2) and connect(2) to no address give a port back and leave the
//! socket as it is. Of a listener the kernel tells that, too; all sockets are looked for at least
//! once a second, and those at a port whenever another one is shown there.

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

/// Room for those that come in a burst; the kernel allows at most `net.core.rmem_max` of it.
const BACKLOG_BYTES: usize = 4 << 20;

/// Answers taken at a time while the kernel's sockets are looked through, and the pause between.
const LOOK_BATCH: usize = 8;
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// From the beginning of a look to that of the next.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Ports looked at by themselves before others have their turn.
const PORTS_AT_A_TIME: usize = 8;

/// What the news are called among the cookies of listeners, of which none is 0.
const NEWS: u64 = 0;

/// A protocol's number, and a port of it.
type Place = (u8, u16);

/// What a shown socket entitles to.
#[derive(Clone, Copy, Debug)]
struct Right {
    purpose: Purpose,
    /// As the kernel names it.
    local: SocketAddr,
    v6_only: bool,
    uid: u32,
    /// Uses that the worker has been asked for and has not said to be over.
    uses: u32,
    /// It has ended. The worker knows, and its uses are about to end, too.
    is_over: bool,
    /// This look has found the socket, or began before it was shown.
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

    /// Whether the socket, as the kernel has it now, still has the right.
    fn is_backed(&self, row: &Row) -> bool {
        if row.device != 0 || row.local.port() != self.local.port() {
            return false;
        }
        let is_same = row.local.ip() == self.local.ip();
        match self.purpose {
            Purpose::Listen => is_same && row.state == LISTEN,
            Purpose::Connect => is_same && row.state != LISTEN,
            // While it has a peer the kernel knows it by the address that it sends from.
            Purpose::Udp if row.state == ESTABLISHED => is_same || self.local.ip().is_unspecified(),
            Purpose::Udp => {
                let is_wider =
                    row.local.ip().is_unspecified() && row.local.is_ipv4() == self.local.is_ipv4();
                is_same || is_wider
            }
        }
    }

    /// Whether a UDP socket that nobody has shown hears, by the kernel's rules, what comes to this one,
    /// and belongs to somebody else. Which of the two gets it is for the kernel to decide.
    fn is_contested(&self, stranger: &Stranger) -> bool {
        let (own, other) = (self.local.ip().to_canonical(), stranger.ip.to_canonical());
        if self.purpose != Purpose::Udp
            || self.uid == stranger.uid
            || is_elsewhere(own)
            || is_elsewhere(other)
        {
            return false;
        }
        // An unspecified address of IPv6 may mean both families.
        let covers = |any: IpAddr, v6_only: bool, ip: IpAddr| {
            any.is_unspecified() && (any.is_ipv4() == ip.is_ipv4() || (any.is_ipv6() && !v6_only))
        };
        own == other || covers(own, self.v6_only, other) || covers(other, stranger.v6_only, own)
    }
}

/// What counts of a UDP socket that nobody has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stranger {
    uid: u32,
    ip: IpAddr,
    v6_only: bool,
}

/// Whether nothing that comes to such an address comes to a socket that has been shown.
fn is_elsewhere(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_multicast()
}

/// Those at a port that may be in the way of somebody, each kind once.
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

/// A look for all sockets that are shown. The kernel lists its sockets by places in tables, and may
/// leave one out when others come and go meanwhile: those that are missing are looked for by their
/// port.
enum Stage {
    All(Look),
    Missing(Vec<Place>),
}

/// The sockets that were shown, and what the kernel says of them.
pub struct Rights {
    namespace: u64,
    news: OwnedFd,
    /// Listeners and the news.
    watch: OwnedFd,
    all: BTreeMap<SocketKey, Right>,
    /// The same by their ports.
    places: BTreeSet<(Place, SocketKey)>,
    /// The kernel lists TCP sockets that are only bound.
    lists_bound: bool,
    /// What this look has seen at UDP ports of sockets that are shown.
    strangers: BTreeMap<u16, Strangers>,
    stage: Option<Stage>,
    /// No look begins before.
    next_look: Instant,
    /// A look has failed, and it has been said.
    has_failed: bool,
}

/// What has become known.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Sockets that have no right any more.
    pub keys: Vec<SocketKey>,
    /// How many of them still exist.
    pub kept: u64,
    /// Some socket of the kernel's is closed.
    pub any_closed: bool,
    /// The kernel had to drop news.
    pub missed: bool,
}

/// What is known of a port just before a socket is granted something there.
#[derive(Debug, Default)]
pub struct Neighbors {
    /// Shown sockets that have no right to the port any more.
    pub ended: Ended,
    /// Shown sockets that have.
    pub beside: Vec<SocketKey>,
    /// A socket of another user that has not been shown has the port, too.
    pub is_contested: bool,
}

impl Rights {
    /// Listens to the kernel's news of the calling thread's network namespace, which has this
    /// cookie.
    ///
    /// # Errors
    /// When the kernel has no such news, or no descriptor is left.
    pub fn open(namespace: u64) -> rustix::io::Result<Self> {
        let news = diag::socket(SocketFlags::NONBLOCK, GROUPS)?;
        // Less room is given by a kernel that allows less.
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

    /// Readable when there is news.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Looks at the port of a socket that was just shown, before it is granted anything.
    pub fn neighbors(&mut self, shown: &Shown, purpose: Purpose) -> Neighbors {
        let own = Right::new(shown, purpose);
        let mut found = Neighbors::default();
        let is_other = |before: &Right| (before.purpose, before.local) != (purpose, own.local);
        if self.all.get(&shown.key).is_some_and(is_other) {
            // What it entitled to before is gone, or it could not be shown as this.
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
            // Nobody gets a right to a port that cannot be seen. Those that have one keep it until the
            // next look.
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

    /// A use of the socket begins. From now on the end of its right is told by [`Rights::take`].
    pub fn begin_use(&mut self, shown: &Shown, purpose: Purpose, socket: BorrowedFd<'_>) {
        if purpose == Purpose::Listen && !self.is_live(shown.key) {
            // The registration lives as long as the open file, which it does not keep. Where the
            // kernel refuses one, the next look finds what it would have told.
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

    /// The right of a socket ends. `false`: it had none.
    fn end_right(&mut self, key: SocketKey) -> bool {
        let Some(right) = self.all.get_mut(&key).filter(|right| !right.is_over) else {
            return false;
        };
        right.is_over = true;
        let place = right.place();
        self.places.remove(&(place, key))
    }

    /// How long until [`Self::take`] is to be called also without news; `None` when not at all.
    pub fn due(&self) -> Option<Duration> {
        if self.stage.is_some() {
            return Some(LOOK_PAUSE);
        }
        let left = self.next_look.saturating_duration_since(Instant::now());
        (!self.places.is_empty()).then_some(left)
    }

    /// Takes news without blocking; bounded, so that a machine that closes many sockets of the
    /// kernel's does not keep the thread.
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
            // It is tried again.
            self.stage = None;
            if !std::mem::replace(&mut self.has_failed, true) {
                tracing::warn!("the kernel cannot list its sockets, trying again: {error}");
            }
        }
        ended
    }

    /// Looks at listeners that the kernel says something of.
    fn take_events(&mut self, ended: &mut Ended) {
        let mut events = Vec::with_capacity(PORTS_AT_A_TIME);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let buffer = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.watch, buffer, Some(&at_once)).is_err() {
            // The next look finds it.
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

    /// The sockets at a port that matter: those that have been shown, and the strangers of UDP.
    fn rows_at(&self, (protocol, port): Place) -> rustix::io::Result<Vec<Row>> {
        let matters = |row: &Row| {
            self.all.contains_key(&self.key(row.cookie))
                || (protocol == diag::UDP && !is_elsewhere(row.local.ip().to_canonical()))
        };
        look::at_port(protocol, port, self.lists_bound, matters)
    }

    /// Looks at a single port. Without an answer nothing is concluded, for it is asked again.
    fn look_at(&mut self, place: Place, ended: &mut Ended) {
        let keys = self.at(place);
        match self.rows_at(place) {
            Ok(rows) => {
                self.judge(&keys, &rows, ended);
            }
            // So many sockets at a port are its owner's own doing.
            Err(Errno::TOOBIG) => keys.iter().for_each(|key| self.end(*key, ended)),
            Err(_) => {}
        }
    }

    /// Ends the rights of those that `rows`, all sockets of their port, do not back. The others that
    /// are there.
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

    /// Takes the next steps of a look, and begins one where it is time.
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

    /// A socket of the kernel's.
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

    /// Ports where a look has not found a socket that has been shown, or has found a stranger's.
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
