//! A program's attachment to an engine.

mod own;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use shm::census::{CensusLine, Reason};
use shm::client_side::ClientEndpoint;
use shm::control::{InterfaceInfo, RemoteRule, Role, Socket, ToEngine, accelerates};
use shm::fork::ForkMark;
use shm::layout::EVENT_STOCK;
use shm::region::Region;
use shm::request::{Addresses, ConnectOptions, Reply, Request};

use crate::driver::{Driver, locked};
use crate::endpoint::{Endpoint, EndpointId, Kind};
use crate::open::{
    AttachError, Control, Grant, RequestError, Token, attach, attach_as, greet_connected,
};

/// Events taken from a lane at once.
const EVENTS_MAX: usize = 1024;
/// Fruitless calls after which the engine is checked.
const FRUITLESS_MAX: u32 = 256;
/// Pause after an unanswered query of the interfaces.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A program's attachment to an engine: a region, lanes, and the control socket. It can be used
/// from any thread. It ends when dropped, when the engine ends, or, in a forked child, at the fork:
/// use by a child fails (ENOTSUP) and changes nothing.
#[derive(Debug)]
pub struct Session {
    control: Mutex<Control>,
    region: Arc<Region>,
    drivers: Vec<Driver>,
    spare: Vec<std::os::fd::OwnedFd>,
    remotes: Vec<RemoteRule>,
    interfaces: RwLock<Told>,
    mark: ForkMark,
    alive: AtomicBool,
    fruitless: AtomicU32,
    sleepers: Mutex<Sleepers>,
    /// Endpoints at other workers that belong to one handle, and that handle.
    aliases: Mutex<Vec<(u32, EndpointId)>>,
    has_aliases: AtomicBool,
    /// Endpoints that found the stock empty.
    starved: Mutex<Vec<EndpointId>>,
    /// Threads sleeping in `wait_until`.
    parked: Mutex<Vec<Arc<std::os::fd::OwnedFd>>>,
    next_driver: AtomicUsize,
    /// Held from passing keys for the next endpoint until that endpoint exists.
    asking_with_keys: Mutex<()>,
}

/// The destinations that the engine reaches, as last reported.
#[derive(Debug)]
struct Told {
    /// The lane's change counter at that time.
    reach: u64,
    interfaces: Vec<InterfaceInfo>,
    /// The query was not answered: not repeated before this.
    ask_again: Option<Instant>,
}

#[derive(Debug, Default)]
struct Sleepers {
    count: u32,
    /// Number of the last sleep; see `ClientLane::arm`.
    sleep: u64,
}

impl Session {
    /// Attaches to the engine that listens at `path`. `program` is the name it shows for us.
    ///
    /// # Errors
    /// [`AttachError::NoEngine`] when nobody listens at `path`; [`AttachError::Silent`] when it
    /// does not answer; [`AttachError::Refused`] and [`AttachError::NotServed`] when it refuses;
    /// [`AttachError::Grant`] and [`AttachError::Region`] when what it grants cannot be used.
    pub fn attach(path: &Path, program: &str) -> Result<Arc<Self>, AttachError> {
        Self::from_grant(attach(path, program)?)
    }

    /// The same for [`message`](crate::message) endpoints, of which it can have a few dozen, and no
    /// others.
    ///
    /// # Errors
    /// If there is no engine at `path`, or it refuses.
    pub fn attach_messages(path: &Path, program: &str) -> Result<Arc<Self>, AttachError> {
        Self::from_grant(attach_as(path, Role::Messages, program)?)
    }

    /// Attaches over a control socket that is connected already.
    ///
    /// # Errors
    /// As [`Self::attach`], but for [`AttachError::NoEngine`].
    pub fn attach_over(socket: Socket, program: &str) -> Result<Arc<Self>, AttachError> {
        Self::from_grant(greet_connected(socket, program)?)
    }

    pub(crate) fn from_grant(grant: Grant) -> Result<Arc<Self>, AttachError> {
        Ok(Arc::new(Self {
            control: Mutex::new(grant.control),
            region: grant.region,
            drivers: grant.drivers,
            spare: grant.spare,
            remotes: grant.remotes,
            interfaces: RwLock::new(Told {
                reach: 0,
                interfaces: grant.interfaces,
                ask_again: None,
            }),
            mark: ForkMark::new().map_err(AttachError::System)?,
            alive: AtomicBool::new(true),
            fruitless: AtomicU32::new(0),
            sleepers: Mutex::default(),
            aliases: Mutex::default(),
            has_aliases: AtomicBool::new(false),
            starved: Mutex::default(),
            parked: Mutex::default(),
            next_driver: AtomicUsize::new(0),
            asking_with_keys: Mutex::default(),
        }))
    }

    /// How often the engine's interfaces, or its admission of new sockets, have changed. 0 in a
    /// forked child, which does not have the region.
    pub fn reach(&self) -> u64 {
        if !self.is_mine() {
            return 0;
        }
        self.drivers.first().map_or(0, |driver| driver.lane.reach())
    }

    /// The engine's current interfaces: queried again when a word of the lane says that they have
    /// changed.
    fn interfaces(&self) -> RwLockReadGuard<'_, Told> {
        let known = || self.interfaces.read().unwrap_or_else(PoisonError::into_inner);
        let now = known();
        // In a forked child the region is not mapped: the state at the fork is kept.
        if self.usable().is_err() {
            return now;
        }
        let reach = self.reach();
        if now.reach == reach || now.ask_again.is_some_and(|then| Instant::now() < then) {
            return now;
        }
        drop(now);
        let answer = self.ask_interfaces();
        let mut told = self.interfaces.write().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(interfaces) => *told = Told { reach, interfaces, ask_again: None },
            // Until then the old state is kept.
            Err(_) => told.ask_again = Some(Instant::now() + ASK_AGAIN_AFTER),
        }
        drop(told);
        known()
    }

    /// Whether the engine can send to `address`: it is on-link for one of its interfaces, or one
    /// has a route, and the lists do not leave it to the kernel. Loopback, link-local and the
    /// engine's own addresses are not reached through it.
    pub fn reaches(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if address.is_loopback()
            || address.is_unspecified()
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
            //# A TCP implementation MUST reject as an error a local OPEN call for an invalid
            //# remote IP address (e.g., a broadcast or multicast address) (MUST-46).
            || address.is_multicast()
            || address == IpAddr::V4(Ipv4Addr::BROADCAST)
            || is_link_local(address)
            || self.owns(address)
            || !accelerates(&self.remotes, address)
        {
            return false;
        }
        let told = self.interfaces();
        if let Some(everybody) = broadcast_of(&told.interfaces, address) {
            // On a shared interface the kernel's, which also delivers it locally.
            return !everybody.shared;
        }
        ways(&told.interfaces, address).max().is_some_and(|(_, is_here)| is_here)
    }

    /// Publishes a line of the census. A forked child publishes none.
    pub fn put_census_line(&self, place: usize, line: &CensusLine) {
        if !self.is_mine() {
            return;
        }
        self.region.put_census_line(place, line);
    }

    /// Why [`Self::reaches`] is false for `address`.
    pub fn why_not_reached(&self, address: IpAddr) -> Reason {
        let address = address.to_canonical();
        let told = self.interfaces();
        if told.interfaces.iter().all(|interface| interface.addresses.is_empty()) {
            return Reason::Withheld;
        }
        if address.is_loopback()
            || address.is_unspecified()
            || owns_among(&told.interfaces, address)
        {
            return Reason::Loopback;
        }
        if address.is_multicast()
            || address == IpAddr::V4(Ipv4Addr::BROADCAST)
            || broadcast_of(&told.interfaces, address).is_some()
        {
            return Reason::Group;
        }
        if accelerates(&self.remotes, address) { Reason::NoRoute } else { Reason::Lists }
    }

    /// Whether `address` is a broadcast address of a link of the engine's own.
    pub fn is_broadcast(&self, address: IpAddr) -> bool {
        let told = self.interfaces();
        broadcast_of(&told.interfaces, address.to_canonical()).is_some_and(|one| !one.shared)
    }

    /// The local address on one of the engine's interfaces, by its number plus one.
    pub fn address_on(&self, interface: u32) -> Option<IpAddr> {
        let told = self.interfaces();
        let of = told.interfaces.get((interface as usize).checked_sub(1)?)?;
        of.addresses.iter().map(|(own, _)| *own).find(IpAddr::is_ipv4)
    }

    /// The engine's first address of a family.
    pub(crate) fn first_address(&self, v6: bool) -> Option<IpAddr> {
        let told = self.interfaces();
        let mut all = told.interfaces.iter().flat_map(|interface| &interface.addresses);
        all.find(|(own, _)| own.is_ipv6() == v6 && !is_link_local(*own)).map(|(own, _)| *own)
    }

    /// Whether `address` is one of the engine's own.
    pub fn owns(&self, address: IpAddr) -> bool {
        owns_among(&self.interfaces().interfaces, address.to_canonical())
    }

    /// Whether the engine has `address` and the kernel does not, so that only the engine can reach
    /// it.
    pub fn owns_alone(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let told = self.interfaces();
        told.interfaces.iter().filter(|interface| !interface.shared).any(|interface| {
            interface.addresses.iter().any(|(own, _)| own.to_canonical() == address)
        })
    }

    /// The engine's interface for a datagram to `address`: its number plus one, its index in the
    /// kernel and its MTU. `None` if the engine has no route.
    pub fn way_to(&self, address: IpAddr) -> Option<WayOut> {
        let address = address.to_canonical();
        let told = self.interfaces();
        let numbered = (1..).zip(&told.interfaces);
        if owns_among(&told.interfaces, address) {
            return Some(WayOut { interface: 0, kernel_index: 0, mtu: u16::MAX });
        }
        let best = numbered.filter_map(|(interface, of)| {
            let (prefix, is_here) = ways(std::slice::from_ref(of), address).max()?;
            is_here.then_some((prefix, std::cmp::Reverse(interface), of))
        });
        best.max_by_key(|(prefix, order, _)| (*prefix, *order)).map(
            |(_, std::cmp::Reverse(interface), of)| WayOut {
                interface,
                kernel_index: of.kernel_index,
                mtu: of.mtu,
            },
        )
    }

    /// Whether the engine has a route to an address, which may be a group's.
    pub fn leads(&self, address: IpAddr) -> bool {
        ways(&self.interfaces().interfaces, address.to_canonical()).any(|(_, is_here)| is_here)
    }

    /// The first interface of the engine's own with an address of a family: its number plus one.
    pub fn first_own(&self, v6: bool) -> Option<u32> {
        self.own_where(|of| of.addresses.iter().any(|(own, _)| own.is_ipv6() == v6))
    }

    /// The engine's own interface with this index in the kernel: its number plus one.
    pub fn own_by_index(&self, kernel_index: u32) -> Option<u32> {
        self.own_where(|of| of.kernel_index == kernel_index && kernel_index != 0)
    }

    /// The engine's own interface with this address: its number plus one.
    pub fn own_by_address(&self, address: IpAddr) -> Option<u32> {
        self.own_where(|of| of.addresses.iter().any(|(own, _)| *own == address))
    }

    fn own_where(&self, is_meant: impl Fn(&InterfaceInfo) -> bool) -> Option<u32> {
        let told = self.interfaces();
        let mut numbered = (1..).zip(&told.interfaces);
        numbered.find(|(_, of)| !of.shared && is_meant(of)).map(|(number, _)| number)
    }

    /// MTU of an interface, by its number plus one.
    pub fn mtu_of(&self, interface: u32) -> Option<u16> {
        let told = self.interfaces();
        let place = (interface as usize).checked_sub(1)?;
        told.interfaces.get(place).map(|of| of.mtu)
    }

    /// The kernel's index of an interface, by our number plus one; 0 if unknown.
    pub fn kernel_index(&self, interface: u32) -> u32 {
        let told = self.interfaces();
        let place = (interface as usize).checked_sub(1);
        place.and_then(|place| told.interfaces.get(place)).map_or(0, |of| of.kernel_index)
    }

    /// The kernel's index of the interface with this address; 0 if unknown.
    pub fn index_of_owner(&self, address: IpAddr) -> u32 {
        let (told, address) = (self.interfaces(), address.to_canonical());
        let has =
            |of: &&InterfaceInfo| of.addresses.iter().any(|(own, _)| own.to_canonical() == address);
        told.interfaces.iter().find(has).map_or(0, |of| of.kernel_index)
    }

    /// Whether the engine is alive, as far as is known. Once it is not, the session stays dead:
    /// attach again.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// Checks whether the engine is alive. One system call.
    pub fn probe(&self) -> bool {
        if self.is_alive() {
            let Ok(control) = self.control.try_lock() else { return true };
            let mut fds = [PollFd::new(&control.socket, PollFlags::empty())];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let gone = rustix::event::poll(&mut fds, Some(&now)).is_ok()
                && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
            if gone {
                self.note_death();
            }
        }
        self.is_alive()
    }

    pub(crate) fn note_death(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }

    /// Whether this process is the one that attached, and not a forked child of it.
    pub fn is_mine(&self) -> bool {
        self.mark.is_mine()
    }

    /// ENOTSUP in a forked child, ECONNRESET once the engine is gone.
    pub(crate) fn usable(&self) -> Result<(), Errno> {
        if !self.is_mine() {
            Err(Errno::NOTSUP)
        } else if !self.is_alive() {
            Err(Errno::CONNRESET)
        } else {
            Ok(())
        }
    }

    /// EAGAIN; from time to time after a check whether the engine is alive, for a program that
    /// polls and never waits.
    pub(crate) fn again(&self) -> Errno {
        let fruitless = self.fruitless.fetch_add(1, Ordering::Relaxed);
        if fruitless % FRUITLESS_MAX == FRUITLESS_MAX - 1 && !self.probe() {
            return Errno::CONNRESET;
        }
        Errno::AGAIN
    }

    pub(crate) fn parked(&self) -> &Mutex<Vec<Arc<std::os::fd::OwnedFd>>> {
        &self.parked
    }

    pub(crate) fn control(&self) -> &Mutex<Control> {
        &self.control
    }

    pub(crate) fn driver(&self, worker: usize) -> &Driver {
        // Endpoints exist only at workers with a driver.
        &self.drivers[worker]
    }

    pub(crate) fn call(&self, worker: usize, request: &Request) -> Result<Reply, Errno> {
        self.usable()?;
        match self.driver(worker).call(request, &|| self.probe())? {
            Reply::Failed { errno } => Err(Errno::from_raw_os_error(errno.cast_signed())),
            reply => Ok(reply),
        }
    }

    pub(crate) fn post(&self, worker: usize, request: &Request) {
        if self.usable().is_ok() {
            self.driver(worker).post(request, &|| self.probe());
        }
    }

    pub(crate) fn asking_with_keys(&self) -> &Mutex<()> {
        &self.asking_with_keys
    }

    pub(crate) fn workers(&self) -> usize {
        self.drivers.len()
    }

    pub(crate) fn next_worker(&self) -> usize {
        self.next_driver.fetch_add(1, Ordering::Relaxed) % self.drivers.len()
    }

    /// Serves the listening kernel socket `kernel`, which stays the program's.
    ///
    /// # Errors
    /// [`RequestError`] with the engine's sentence: EACCES or EADDRNOTAVAIL when `kernel` does not
    /// entitle to its address, ENFILE, ENOBUFS or EADDRINUSE when the engine has no room for it;
    /// ECONNRESET when the engine is gone.
    pub fn listen(
        self: &Arc<Self>,
        kernel: BorrowedFd<'_>,
        backlog: u32,
    ) -> Result<Endpoint, RequestError> {
        self.listen_signed(kernel, backlog, &[])
    }

    /// Serves the bound kernel UDP socket `kernel`, which stays the program's.
    ///
    /// # Errors
    /// As [`Self::listen`].
    pub fn bind_udp(self: &Arc<Self>, kernel: BorrowedFd<'_>) -> Result<Endpoint, RequestError> {
        let (endpoints, local) =
            self.ask(kernel, |serial| ToEngine::BindUdp { serial, context: 0 })?;
        self.granted(Kind::Datagram, &endpoints, local)
    }

    /// Shows the bound kernel TCP socket `kernel`, whose local address the next
    /// [`Self::connect`] with the token may use.
    ///
    /// # Errors
    /// As [`Self::listen`].
    pub fn authorize(&self, kernel: BorrowedFd<'_>) -> Result<(Token, SocketAddr), RequestError> {
        let (tokens, local) = self.ask(kernel, |serial| ToEngine::BindTcp { serial })?;
        let token = tokens.first().copied().ok_or_else(|| broken_grant(0))?;
        Ok((Token(token), local))
    }

    pub(crate) fn granted(
        self: &Arc<Self>,
        kind: Kind,
        endpoints: &[u32],
        local: SocketAddr,
    ) -> Result<Endpoint, RequestError> {
        if endpoints.is_empty() || endpoints.len() > self.drivers.len() {
            return Err(broken_grant(endpoints.len()));
        }
        let remote = unspecified(local);
        let addresses = Addresses { local, remote };
        let endpoint = Endpoint::new(self, kind, endpoints, 0, addresses)
            .ok_or_else(|| broken_grant(endpoints.len()))?;
        if endpoints.len() > 1 {
            let aliases = endpoints.iter().skip(1).map(|index| (*index, endpoint.id()));
            locked(&self.aliases).extend(aliases);
            self.has_aliases.store(true, Ordering::Release);
        }
        Ok(endpoint)
    }

    pub(crate) fn forget_aliases(&self, id: EndpointId) {
        if self.has_aliases.load(Ordering::Acquire) {
            locked(&self.aliases).retain(|(_, primary)| *primary != id);
        }
    }

    /// Opens a connection. It returns at once; [`Endpoint::readiness`] tells when it stands (OUT)
    /// or has failed (ERR).
    ///
    /// # Errors
    /// [`RequestError`]: EADDRNOTAVAIL when the token is spent or no port is free, ENETUNREACH
    /// without a route, ENFILE when the session or its user has all the endpoints that it can have,
    /// EINVAL for an option's value, ECONNRESET when the engine is gone; an errno of the engine's
    /// own ([`shm::request::LEFT_TO_KERNEL`]) where the kernel is to connect instead.
    pub fn connect(
        self: &Arc<Self>,
        remote: SocketAddr,
        token: Option<Token>,
        options: &ConnectOptions,
    ) -> Result<Endpoint, RequestError> {
        self.connect_on(self.next_worker(), remote, token, options)
    }

    pub(crate) fn connect_on(
        self: &Arc<Self>,
        worker: usize,
        remote: SocketAddr,
        token: Option<Token>,
        options: &ConnectOptions,
    ) -> Result<Endpoint, RequestError> {
        let token = token.map_or(0, |token| token.0);
        let request = Request::Connect { remote, token, options: *options };
        match self.call(worker, &request)? {
            Reply::Endpoint { endpoint, addresses } => {
                Endpoint::new(self, Kind::Stream, &[endpoint], worker, addresses)
                    .ok_or_else(|| broken_grant(1))
            }
            _ => Err(RequestError::from(Errno::PROTO)),
        }
    }

    pub(crate) fn view(&self, index: u32) -> Option<ClientEndpoint> {
        ClientEndpoint::new(self.region.clone(), index)
    }

    /// Takes the pending hints and appends the endpoints that they name, possibly some twice. To be
    /// called before levels are read, and after every [`Self::disarm`].
    pub fn take_events(&self, endpoints: &mut Vec<EndpointId>) {
        if self.usable().is_err() {
            return;
        }
        let mut stocked = false;
        let first = endpoints.len();
        for driver in &self.drivers {
            if !driver.lane.has_events() {
                continue;
            }
            // A signal handler that interrupted the same call leaves them for later.
            let Ok(mut lane) = driver.lane.lock(driver.tag()) else { continue };
            while lane.take_events(EVENTS_MAX, |number| {
                if number == EVENT_STOCK {
                    stocked = true;
                } else {
                    endpoints.push(EndpointId(number));
                }
            }) == EVENTS_MAX
            {}
        }
        if self.has_aliases.load(Ordering::Acquire) {
            let aliases = locked(&self.aliases);
            for id in endpoints.iter_mut().skip(first) {
                if let Some((_, primary)) = aliases.iter().find(|(alias, _)| *alias == id.0) {
                    *id = *primary;
                }
            }
        }
        if stocked {
            endpoints.append(&mut locked(&self.starved));
        }
    }

    /// Notes that an endpoint waits for the stock to be filled.
    pub(crate) fn starve(&self, id: EndpointId) {
        let mut starved = locked(&self.starved);
        if !starved.contains(&id) {
            starved.push(id);
        }
    }

    /// Announces that this thread is going to sleep on [`Self::wake_fds`]. `false`: there are
    /// events, do not sleep (nothing is announced then). Levels must have been read after the last
    /// [`Self::take_events`].
    #[must_use]
    pub fn arm(&self) -> bool {
        if self.usable().is_err() {
            return false;
        }
        let mut sleepers = match self.sleepers.try_lock() {
            Ok(sleepers) => sleepers,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Perhaps held by the thread that the caller, a signal handler, has interrupted.
            Err(TryLockError::WouldBlock) => return false,
        };
        sleepers.count += 1;
        sleepers.sleep += 1;
        let quiet = self.drivers.iter().all(|driver| driver.lane.arm(sleepers.sleep));
        if quiet {
            self.drivers.iter().for_each(Driver::resume_worker);
        } else {
            self.rouse(&mut sleepers);
        }
        quiet
    }

    /// Ends the sleep announced by [`Self::arm`], and empties the wake pipes. Other threads may
    /// have slept on the same wakeup: call [`Self::take_events`] next, and inform them of the
    /// result.
    pub fn disarm(&self) {
        if !self.is_mine() {
            return;
        }
        let mut sleepers = locked(&self.sleepers);
        let mut bytes = [0; 64];
        for driver in &self.drivers {
            loop {
                match rustix::io::read(&driver.wake, &mut bytes) {
                    Ok(0) => self.note_death(),
                    Ok(len) if len == bytes.len() => continue,
                    _ => {}
                }
                break;
            }
        }
        self.rouse(&mut sleepers);
    }

    fn rouse(&self, sleepers: &mut Sleepers) {
        sleepers.count = sleepers.count.saturating_sub(1);
        if sleepers.count == 0 {
            self.drivers.iter().for_each(|driver| driver.lane.disarm());
        } else {
            // The others continue to sleep: their next wakeup is a new one.
            sleepers.sleep += 1;
            for driver in &self.drivers {
                // The caller takes events that are already pending.
                let _ = driver.lane.arm(sleepers.sleep);
            }
        }
    }

    /// Descriptors to wait on for reading once armed; a hang-up means that the engine is gone.
    pub fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.drivers.iter().map(|driver| driver.wake.as_fd())
    }

    /// Every descriptor of the session, for callers that must hide them from the program.
    pub fn raw_fds(&self) -> Vec<RawFd> {
        let mut fds = vec![locked(&self.control).socket.as_fd().as_raw_fd()];
        for driver in &self.drivers {
            fds.extend([driver.wake.as_raw_fd(), driver.bell.as_raw_fd()]);
        }
        fds.extend(self.spare.iter().map(AsRawFd::as_raw_fd));
        fds
    }

    /// Yields the CPU to a worker that shares it with this thread. Does nothing where the worker has
    /// a CPU of its own. For loops that poll for completions.
    pub fn give_way(&self) {
        if self.engine_shares_cpu() {
            self.drivers.iter().for_each(Driver::resume_worker);
            std::thread::yield_now();
        }
    }

    /// Whether the engine's worker runs on the CPU of this thread, where spinning would delay it.
    /// False in a forked child, which no worker serves.
    pub fn engine_shares_cpu(&self) -> bool {
        self.is_mine() && self.drivers.iter().any(Driver::shares_cpu)
    }
}

fn broken_grant(endpoints: usize) -> RequestError {
    let reason = format!("the engine granted {endpoints} endpoints, which is invalid");
    RequestError::new(Errno::PROTO, reason)
}

/// The unspecified address with port 0, of the same family.
pub(crate) fn unspecified(like: SocketAddr) -> SocketAddr {
    match like {
        SocketAddr::V4(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    }
}

/// The interface of whose link an address is the broadcast address.
fn broadcast_of(interfaces: &[InterfaceInfo], address: IpAddr) -> Option<&InterfaceInfo> {
    let IpAddr::V4(to) = address else { return None };
    let names_all = |(own, prefix): &(IpAddr, u8)| match own {
        IpAddr::V4(own) if *prefix < 31 => to.to_bits() == own.to_bits() | (u32::MAX >> prefix),
        _ => false,
    };
    interfaces.iter().find(|interface| interface.addresses.iter().any(names_all))
}

fn owns_among(interfaces: &[InterfaceInfo], address: IpAddr) -> bool {
    let mut all = interfaces.iter().flat_map(|interface| &interface.addresses);
    all.any(|(own, _)| own.to_canonical() == address)
}

/// The route of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WayOut {
    /// The engine's interface, plus one; 0 for local delivery in the engine.
    pub interface: u32,
    /// Its index in the kernel; 0 if it has none.
    pub kernel_index: u32,
    /// MTU.
    pub mtu: u16,
}

/// Valid on one link only; a program means the kernel's interface, which is not the engine's.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// The routes to `address` by prefix length, and whether each is the engine's.
fn ways(interfaces: &[InterfaceInfo], address: IpAddr) -> impl Iterator<Item = (u8, bool)> + '_ {
    interfaces.iter().flat_map(move |interface| {
        let own = interface.addresses.iter();
        let links = own.filter(move |(own, prefix)| on_link(*own, *prefix, address));
        let routes = interface.routes.iter();
        let routes = routes.filter(move |way| on_link(way.network, way.prefix, address));
        let has_v4 = interface.addresses.iter().any(|(own, _)| own.is_ipv4());
        let leads = interface.has_gateway && has_v4 && address.is_ipv4();
        let gateway = leads.then_some((0, true));
        links
            .map(|(_, prefix)| (*prefix, true))
            .chain(routes.map(|way| (way.prefix, way.is_here)))
            .chain(gateway)
    })
}

fn on_link(own: IpAddr, prefix: u8, address: IpAddr) -> bool {
    let (own, address, bits) = match (own, address) {
        (IpAddr::V4(own), IpAddr::V4(address)) => {
            (u128::from(own.to_bits()), u128::from(address.to_bits()), 32)
        }
        (IpAddr::V6(own), IpAddr::V6(address)) => (own.to_bits(), address.to_bits(), 128),
        _ => return false,
    };
    let host_bits = u32::from(bits - prefix.min(bits));
    (own ^ address).checked_shr(host_bits).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_on_the_link_when_its_prefix_is() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(on_link(ip("10.0.0.2"), 24, ip("10.0.0.77")));
        assert!(!on_link(ip("10.0.0.2"), 24, ip("10.0.1.77")));
        assert!(on_link(ip("10.0.0.2"), 0, ip("192.0.2.1")));
        assert!(!on_link(ip("10.0.0.2"), 32, ip("10.0.0.3")));
        assert!(on_link(ip("fe80::1"), 64, ip("fe80::2")));
        assert!(!on_link(ip("fe80::1"), 64, ip("10.0.0.1")));
        assert!(on_link(ip("::1"), 0, ip("2001:db8::1")));
    }
}
