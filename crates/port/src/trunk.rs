//! Several ports as one (trunking of the IXP1200 paper): a trunk has one link address, and each
//! flow uses one of its links. Back to back with another engine's trunk, or at a switch with a
//! static aggregation group.
//!
//! A link leaves when it is down, as the kernel tells ([`carrier`]), or refuses frames as such, and its flows move to
//! the links that are left; the flows of these stay. It returns when it has been well for a while
//! ([`health`]). Frames for a link without room wait for it ([`waiting`]) and hold no others. What arrives is taken from all links, also from those that are not sent over.

mod carrier;
mod flow;
mod health;
mod waiting;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use arch::SharedBytes;
use rustix::event::epoll;
use wire::MacAddr;

use crate::interface::{
    Port, PortCounters, PortInfo, RxBurst, RxFrame, RxHandle, RxMeta, TxError, TxMeta,
};
use crate::link;
use crate::open::{self, OpenError, OpenErrorKind, PortDescription, PortFds, PortOffloads};
use crate::spec::PortSpec;
use health::Health;
use waiting::Waiting;

/// Most links of a trunk.
pub const LINKS_MAX: usize = 8;
/// Buffer for a link notification of the kernel.
const NEWS_BYTES: usize = 16_384;
/// Interval of checks of the links.
const LOOK_NS: u64 = 10_000_000;
/// How soon a link is tried again for which frames wait.
const RETRY_NS: u64 = 50_000;

/// Opens the links. All have the link address of the trunk: the first one's, unless it is given.
pub(crate) fn open(spec: &PortSpec) -> Result<PortFds, OpenError> {
    let mut links: Vec<PortFds> = Vec::with_capacity(spec.links.len());
    for link in &spec.links {
        let mac = spec.mac.or_else(|| links.first().map(|first| first.description.mac));
        let (mtu, netns) = (spec.mtu, spec.netns.clone());
        links.push(open::open(&PortSpec { mac, mtu, netns, ..link.clone() })?);
    }
    let described = || links.iter().map(|link| &link.description);
    let Some(first) = described().next() else {
        let why =
            format!("{} has no links; name them, e.g. ports=packet:eth1+packet:eth2", spec.label());
        return Err(OpenError::new(OpenErrorKind::System, why));
    };
    let description = PortDescription {
        kind: spec.kind,
        label: spec.label(),
        mac: first.mac,
        mtu: described().map(|link| link.mtu).min().unwrap_or(first.mtu),
        offloads: PortOffloads {
            tso: described().all(|link| link.offloads.tso),
            uso: described().all(|link| link.offloads.uso),
        },
        interface_index: 0,
        impairment: spec.impairment,
        seed: spec.seed.map_or_else(open::random_seed, Ok)?,
        mode: None,
        xdp: None,
        memif: None,
        station: None,
        notes: described().flat_map(|link| link.notes.iter().cloned()).collect(),
    };
    let listening = link::in_namespace(spec, || {
        carrier::open().map_err(|why| {
            OpenError::system(
                &spec.label(),
                "listen to the kernel's news of links",
                "nothing",
                &why,
            )
        })
    })?;
    Ok(PortFds { fds: vec![listening], description, rings: Vec::new(), links })
}

/// One port of a trunk.
struct Link {
    port: Box<dyn Port>,
    health: Health,
    /// Frames received by the port.
    burst: RxBurst,
    /// How many of these the trunk has returned.
    taken: usize,
    /// The descriptor that is waited for.
    waited: Option<RawFd>,
    /// Whether it was up when the port or the kernel last reported it.
    is_up: bool,
    /// Frames for which it had no room.
    waiting: Waiting,
}

/// The running port; see the module.
pub struct TrunkPort {
    info: PortInfo,
    links: Vec<Link>,
    /// Makes this trunk's choice of links different from others'.
    key: u64,
    now_ns: u64,
    next_look_ns: u64,
    /// The link polled first.
    first: usize,
    /// The returned frames: their link, and their handle there.
    handed: Vec<(usize, RxHandle)>,
    /// Readable when a link is.
    waiting: Option<OwnedFd>,
    /// The socket for the kernel's link notifications, and a buffer.
    news: Option<(OwnedFd, Box<[u8]>)>,
    departures: u64,
    /// Frames for which no link was left, or that waited for one that has left.
    unsent: u64,
    /// Frames that a link had no room for while others had.
    refused: u64,
}

impl TrunkPort {
    /// Creates a trunk of these ports. `name` and `mac` are its own; MTU and offloads are those
    /// that all have.
    ///
    /// # Errors
    /// If there are no ports or more than [`LINKS_MAX`], or no descriptor is left.
    pub fn new(
        name: &str,
        mac: MacAddr,
        ports: Vec<Box<dyn Port>>,
        key: u64,
    ) -> Result<Self, OpenError> {
        let fail =
            |why: io::Error| OpenError::system(name, "wait for several links", "nothing", &why);
        if ports.len() > LINKS_MAX {
            let why = format!("{name} has {} links; the maximum is {LINKS_MAX}", ports.len());
            return Err(OpenError::new(OpenErrorKind::Unsupported, why));
        }
        let Some(mut info) = ports.first().map(|port| port.info().clone()) else {
            let why = format!("{name} has no links; give it some");
            return Err(OpenError::new(OpenErrorKind::Unsupported, why));
        };
        (info.name, info.mac) = (name.to_owned(), mac);
        (info.kernel_index, info.shared) = (0, None);
        for port in &ports {
            let (all, one) = (&mut info.offloads, port.info().offloads);
            all.tx_checksum &= one.tx_checksum;
            all.tso4 &= one.tso4;
            all.tso6 &= one.tso6;
            all.uso &= one.uso;
            all.rx_coalesce |= one.rx_coalesce;
            info.mtu = info.mtu.min(port.info().mtu);
        }
        let link = |port| Link {
            port,
            health: Health::NEW,
            burst: RxBurst::new(),
            taken: 0,
            waited: None,
            is_up: true,
            waiting: Waiting::default(),
        };
        let mut trunk = Self {
            info,
            links: ports.into_iter().map(link).collect(),
            key,
            now_ns: 0,
            next_look_ns: 0,
            first: 0,
            handed: Vec::with_capacity(RxBurst::CAPACITY),
            waiting: None,
            news: None,
            departures: 0,
            unsent: 0,
            refused: 0,
        };
        trunk.wait_for_links().map_err(fail)?;
        Ok(trunk)
    }

    /// Uses the kernel's link notifications, through the socket opened by [`open`], instead of
    /// querying the links in every check.
    pub(crate) fn listen(&mut self, news: OwnedFd) {
        self.news = Some((news, vec![0; NEWS_BYTES].into_boxed_slice()));
        self.links.iter_mut().for_each(|link| link.is_up = link.port.is_up());
    }

    /// The current link of a flow.
    fn link_of(&self, flow: u64) -> Option<usize> {
        let used = self.links.iter().enumerate().filter(|(_, link)| link.health.is_used());
        used.map(|(at, _)| at).max_by_key(|at| flow::weight(flow, *at))
    }

    /// Lets a frame wait for a link that has no room. Where its queue is full, too, the frame is refused, as
    /// by a queue of the kernel's, for the sake of those of other links; the trunk is full where all are.
    fn hold(
        &mut self,
        at: usize,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        let (mut is_alone, mut have_room) = (true, false);
        for (other, link) in self.links.iter().enumerate() {
            if other != at && link.health.is_used() {
                is_alone = false;
                have_room |= link.waiting.has_room();
            }
        }
        match self.links.get_mut(at) {
            Some(link) if !is_alone && link.waiting.has_room() => {
                link.waiting.push(meta, header, payload);
                Ok(())
            }
            Some(_) if have_room => {
                self.refused += 1;
                Err(TxError::Refused)
            }
            _ => Err(TxError::Full),
        }
    }

    /// A link has failed: its flows move, and what waited for it is lost as what was in its own queue.
    fn depart(&mut self, at: usize) {
        if let Some(link) = self.links.get_mut(at) {
            self.departures += u64::from(link.health.fail(self.now_ns));
            self.unsent += link.waiting.clear();
        }
    }

    fn look(&mut self) {
        let Self { links, news, .. } = self;
        let is_told = news.as_mut().is_some_and(|(socket, buffer)| {
            carrier::news(socket, buffer, |index, is_up| {
                let of = links.iter_mut().find(|link| link.port.info().kernel_index == index);
                if let Some(link) = of {
                    link.is_up = is_up;
                }
            })
        });
        for link in &mut self.links {
            if !is_told || link.port.info().kernel_index == 0 {
                link.is_up = link.port.is_up();
            }
            if !link.is_up || link.port.is_gone() {
                self.departures += u64::from(link.health.fail(self.now_ns));
                self.unsent += link.waiting.clear();
            } else {
                link.health.note_well(self.now_ns);
            }
        }
        // A link that is gone is not waited for: it would wake us forever. If no descriptor is left
        // the next check retries.
        if self.links.iter().any(|link| link.waited != link.waits_for()) {
            let _ = self.wait_for_links();
        }
    }

    /// Combines the descriptors to wait for.
    fn wait_for_links(&mut self) -> io::Result<()> {
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for link in &self.links {
            if let Some(fd) = link.port.wait_fd().filter(|_| !link.port.is_gone()) {
                let (data, readable) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
                epoll::add(&all, fd, data, readable)?;
            }
        }
        self.waiting = Some(all);
        for link in &mut self.links {
            link.waited = link.waits_for();
        }
        Ok(())
    }
}

impl Link {
    /// The descriptor that the port wants to wait for.
    fn waits_for(&self) -> Option<RawFd> {
        self.port.wait_fd().filter(|_| !self.port.is_gone()).map(|fd| fd.as_raw_fd())
    }
}

impl Port for TrunkPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        self.release(burst);
        let count = self.links.len();
        for step in 0..count {
            let at = (self.first + step) % count;
            let Some(link) = self.links.get_mut(at) else { continue };
            if link.burst.handles.is_empty() {
                link.port.receive(&mut link.burst);
            }
            let room = RxBurst::CAPACITY - self.handed.len();
            for handle in link.burst.handles.iter().skip(link.taken).take(room) {
                burst.handles.push(RxHandle(self.handed.len() as u32));
                self.handed.push((at, *handle));
                link.taken += 1;
            }
        }
        // No link is always first.
        self.first = (self.first + 1) % count.max(1);
    }

    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        let found = self.handed.get(handle.0 as usize);
        match found.and_then(|(at, handle)| Some((self.links.get(*at)?, *handle))) {
            Some((link, handle)) => link.port.frame(handle),
            None => RxFrame { bytes: &[], meta: RxMeta::default() },
        }
    }

    fn release(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        self.handed.clear();
        for link in &mut self.links {
            if link.taken > 0 && link.taken == link.burst.handles.len() {
                link.port.release(&mut link.burst);
                link.taken = 0;
            }
        }
    }

    /// Sends over the link of the frame's flow. A link that turns out to be down leaves, and the
    /// frame takes the next.
    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        let flow = flow::of(header, self.key);
        while let Some(at) = self.link_of(flow) {
            let Some(link) = self.links.get_mut(at) else { break };
            let sent = match link.waiting.is_empty() {
                true => link.port.send(meta, header, payload),
                // In order behind those.
                false => Err(TxError::Full),
            };
            match sent {
                Err(TxError::Down) => self.depart(at),
                Err(TxError::Full) => return self.hold(at, meta, header, payload),
                outcome => return outcome,
            }
        }
        self.unsent += 1;
        Err(TxError::Down)
    }

    fn flush(&mut self) {
        for at in 0..self.links.len() {
            let Some(link) = self.links.get_mut(at) else { continue };
            let is_down = link.waiting.drain(&mut *link.port).is_err();
            link.port.flush();
            if is_down {
                self.depart(at);
            }
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        let waits = self.links.iter().all(|link| link.port.is_gone() || link.waited.is_some());
        self.waiting.as_ref().filter(|_| waits).map(AsFd::as_fd)
    }

    fn counters(&self) -> PortCounters {
        let mut all = PortCounters {
            tx_errors: self.unsent,
            links_refused: self.refused,
            links_left: self.departures,
            links_unused: self.links.iter().filter(|link| !link.health.is_used()).count() as u64,
            ..PortCounters::default()
        };
        for link in &self.links {
            all.add(&link.port.counters());
        }
        all
    }

    /// At once while received frames of a link wait.
    fn next_deadline(&self) -> Option<u64> {
        let waits = |link: &Link| link.taken < link.burst.handles.len();
        if self.links.iter().any(waits) {
            return Some(0);
        }
        let is_full = self.links.iter().any(|link| !link.waiting.is_empty());
        let again = is_full.then(|| self.now_ns.saturating_add(RETRY_NS));
        let links = self.links.iter().filter_map(|link| link.port.next_deadline());
        links.chain(again).min()
    }

    fn on_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        for link in &mut self.links {
            link.port.on_time(now_ns);
        }
        if self.links.iter().any(|link| !link.waiting.is_empty()) {
            self.flush();
        }
        if now_ns >= self.next_look_ns {
            self.next_look_ns = now_ns.saturating_add(LOOK_NS);
            self.look();
        }
    }

    fn is_up(&self) -> bool {
        self.links.iter().any(|link| link.health.is_used())
    }

    fn is_gone(&self) -> bool {
        self.links.iter().all(|link| link.port.is_gone())
    }
}

#[cfg(test)]
mod tests;
