//! The engine as a program holds it.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{ConnectOptions, Endpoint, EndpointId, Errno, Kind, RequestError, Session};
use engine::session::{SessionSeed, SessionWho};
use engine::{PortSetup, Worker};
use port::PortSpec;
use shm::control::InterfaceInfo;
use shm::region::Region;

use crate::errors::{BindError, OpenError, RunError};
use crate::host::{Bound, Host, SESSION, may_bind, now};
use crate::open::{self, Options};
use crate::sockets::{Datagram, Listener, Stream};

/// First and last of the ports that are chosen for sockets bound to port 0.
const EPHEMERAL: (u16, u16) = (49152, 65535);

/// Addresses that are bound, and where the search for a free port goes on.
#[derive(Debug)]
pub(crate) struct Bindings {
    bound: Vec<(bool, SocketAddr)>,
    next_port: u16,
}

impl Bindings {
    fn has(&self, listens: bool, local: SocketAddr) -> bool {
        self.bound.iter().any(|(is_listener, other)| {
            *is_listener == listens
                && other.port() == local.port()
                && (other.ip() == local.ip()
                    || other.ip().is_unspecified()
                    || local.ip().is_unspecified())
        })
    }

    /// The address is free again.
    pub fn release(&mut self, listens: bool, local: SocketAddr) {
        if let Some(at) = self.bound.iter().position(|bound| *bound == (listens, local)) {
            self.bound.swap_remove(at);
        }
    }

    fn next(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = if port == EPHEMERAL.1 { EPHEMERAL.0 } else { port + 1 };
        port
    }
}

/// An engine in this thread. Its protocols run in [`Self::poll`] and [`Self::wait`], and in calls
/// that ask for something (connect, accept, bind). A program that does neither for long answers nobody,
/// and its peers send again.
///
/// Neither it nor its sockets leave the thread that made them. In a forked child they are refused.
/// Dropping it ends everything at once, and peers hear nothing more; [`Self::finish`] delivers first.
pub struct Inline {
    host: Arc<Host>,
    session: Arc<Session>,
    /// For the session the engine is there as long as this is open.
    engine_end: OwnedFd,
    addresses: Vec<IpAddr>,
    bindings: Rc<RefCell<Bindings>>,
}

impl std::fmt::Debug for Inline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inline").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Inline {
    /// Opens the ports and starts on them, with default settings. Opening a TAP takes CAP_NET_ADMIN,
    /// a packet port CAP_NET_RAW as well.
    ///
    /// # Errors
    /// There is no port, a port shares its interface with the kernel or has no address of its own, or it
    /// cannot be opened.
    pub fn open(specs: &[PortSpec]) -> Result<Self, OpenError> {
        Self::open_with(specs, &Options::default())
    }

    /// The same with settings.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(specs: &[PortSpec], options: &Options) -> Result<Self, OpenError> {
        let setups: Result<Vec<PortSetup>, OpenError> = specs.iter().map(open::open_port).collect();
        Self::from_ports(setups?, options)
    }

    /// An engine on ports that are open.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_ports(setups: Vec<PortSetup>, options: &Options) -> Result<Self, OpenError> {
        if setups.is_empty() {
            return Err(OpenError::NoPort);
        }
        setups.iter().try_for_each(open::check)?;
        let interfaces = setups.iter().map(interface_info).collect();
        let addresses: Vec<IpAddr> =
            setups.iter().flat_map(|setup| &setup.addresses).map(|own| own.address).collect();
        // No other context or session is ever there, and the only lane is always polled.
        let host = Arc::new(Host::new(setups, options)?);
        let region =
            Region::private(Worker::geometry(&options.limits)).map_err(OpenError::Region)?;
        let geometry = *region.geometry();
        let region = Arc::new(region);
        let who = SessionWho {
            program: "inline".to_owned(),
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            uid: rustix::process::getuid().as_raw(),
        };
        let seed =
            SessionSeed { key: SESSION, geometry, region: Arc::clone(&region), pipes: None, who };
        host.attach(seed);
        let pumped = Arc::clone(&host);
        let pump = move || {
            // What went wrong stays so, and the next `poll` says it.
            let _ = pumped.turn();
        };
        let (session, engine_end) = Session::in_process(region, 0, interfaces, Arc::new(pump))
            .map_err(OpenError::Attach)?;
        let bindings = Bindings { bound: Vec::new(), next_port: EPHEMERAL.0 };
        let bindings = Rc::new(RefCell::new(bindings));
        Ok(Self { host, session, engine_end, addresses, bindings })
    }

    /// The addresses of its ports, as they were given.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// One turn: receives, runs timers, sends. Never waits. Whether there was something to do.
    ///
    /// # Errors
    /// The engine cannot go on.
    pub fn poll(&self) -> Result<bool, RunError> {
        if !self.session.is_mine() {
            return Err(RunError::Forked);
        }
        self.host.turn()
    }

    /// Turns until one finds something to do; sleeps on the ports in between. `false`: `deadline` came
    /// first. A port that nothing can be waited on (the in-memory pair) is polled instead.
    ///
    /// # Errors
    /// The engine cannot go on.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<bool, RunError> {
        loop {
            if self.poll()? {
                return Ok(true);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            let until = left.map(|left| {
                let ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
                stack::api::Instant(now().0.saturating_add(ns))
            });
            self.host.sleep(until)?;
        }
    }

    /// Runs until `ready` says so; `false`: `deadline` came first. `ready` is asked after every turn
    /// that found something to do.
    ///
    /// # Errors
    /// The engine cannot go on.
    pub fn wait_until(
        &self,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> bool,
    ) -> Result<bool, RunError> {
        loop {
            if ready() {
                return Ok(true);
            }
            if !self.wait(deadline)? {
                return Ok(ready());
            }
        }
    }

    /// Appends the sockets that have news, some maybe twice: for programs with too many to look at each.
    /// Their levels ([`Stream::readiness`] and so on) are to be looked at after this.
    pub fn take_events(&self, sockets: &mut Vec<EndpointId>) {
        self.session.take_events(sockets);
    }

    /// Listens at `local`, one of the engine's addresses or unspecified; port 0 takes a free one.
    /// Connections that wait to be accepted are bounded by `backlog`.
    ///
    /// # Errors
    /// The address is foreign or taken, or a limit is reached.
    pub fn listen(&self, local: SocketAddr, backlog: u32) -> Result<Listener, BindError> {
        let (endpoint, local) = self.bind_as(Kind::Listener, Bound::Listener(backlog), local)?;
        Ok(Listener::new(endpoint, local, Rc::clone(&self.bindings)))
    }

    /// A datagram socket at `local`, one of the engine's addresses or unspecified; port 0 takes a free
    /// one.
    ///
    /// # Errors
    /// As [`Self::listen`].
    pub fn bind(&self, local: SocketAddr) -> Result<Datagram, BindError> {
        let (endpoint, local) = self.bind_as(Kind::Datagram, Bound::Datagrams, local)?;
        Ok(Datagram::new(endpoint, local, Rc::clone(&self.bindings)))
    }

    /// Opens a connection and returns at once: [`Stream::is_connected`] and [`Stream::take_error`] tell
    /// what came of it.
    ///
    /// # Errors
    /// There is no way to `remote`, or a limit is reached.
    pub fn connect(&self, remote: SocketAddr) -> Result<Stream, RequestError> {
        self.connect_with(remote, &ConnectOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_with(
        &self,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<Stream, RequestError> {
        Ok(Stream::new(self.session.connect(remote, None, options)?))
    }

    /// Names and values of all counters, as `outboard stats` shows them of an engine.
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.host.counters()
    }

    /// The counter `name`; `None` where there is none of that name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters().into_iter().find(|(one, _)| one == name).map(|(_, value)| value)
    }

    /// Closes every socket as close(2) would and runs until everything is delivered, for at most
    /// `limit`. `false`: something was not, and is lost. Sockets that are left are of no use then.
    ///
    /// # Errors
    /// The engine cannot go on.
    pub fn finish(self, limit: Duration) -> Result<bool, RunError> {
        let deadline = Instant::now() + limit;
        self.host.detach();
        // What is left of sockets finds the engine gone.
        drop(self.engine_end);
        self.session.probe();
        loop {
            if !self.session.is_mine() {
                return Err(RunError::Forked);
            }
            let worked = self.host.turn()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if self.host.is_gone() || left.is_zero() {
                return Ok(self.host.is_gone());
            }
            if !worked {
                let ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
                self.host.sleep(Some(stack::api::Instant(now().0.saturating_add(ns))))?;
            }
        }
    }

    fn bind_as(
        &self,
        kind: Kind,
        bound: Bound,
        local: SocketAddr,
    ) -> Result<(Endpoint, SocketAddr), BindError> {
        if !may_bind(&self.addresses, local.ip()) {
            return Err(BindError::ForeignAddress(local));
        }
        // Sockets that were closed give their addresses back in a turn.
        self.host.turn().map_err(|error| BindError::Refused {
            local,
            errno: Errno::NETDOWN,
            reason: error.to_string(),
        })?;
        let index = match local.port() {
            0 => self.grant_any(bound, local)?,
            _ => (self.grant(bound, local)?, local),
        };
        let (index, local) = index;
        let endpoint = self
            .session
            .adopt(kind, index, local)
            .map_err(|error| BindError::of_request(local, error))?;
        self.bindings.borrow_mut().bound.push((kind == Kind::Listener, local));
        Ok((endpoint, local))
    }

    fn grant(&self, bound: Bound, local: SocketAddr) -> Result<u32, BindError> {
        // The worker lets sockets share a listener, as processes do that show the same one.
        if self.bindings.borrow().has(matches!(bound, Bound::Listener(_)), local) {
            return Err(BindError::InUse(local));
        }
        self.host.bind(local, bound).map_err(|(errno, reason)| match errno {
            Errno::ADDRINUSE => BindError::InUse(local),
            errno => BindError::Refused { local, errno, reason },
        })
    }

    /// At a port that is free.
    fn grant_any(&self, bound: Bound, wanted: SocketAddr) -> Result<(u32, SocketAddr), BindError> {
        for _ in EPHEMERAL.0..=EPHEMERAL.1 {
            let port = self.bindings.borrow_mut().next();
            let local = SocketAddr::new(wanted.ip(), port);
            match self.grant(bound, local) {
                Err(BindError::InUse(_)) => {}
                granted => return Ok((granted?, local)),
            }
        }
        Err(BindError::NoPortLeft(wanted))
    }
}

fn interface_info(setup: &PortSetup) -> InterfaceInfo {
    let info = setup.port.info();
    InterfaceInfo {
        name: info.name.clone(),
        addresses: setup.addresses.iter().map(|own| (own.address, own.prefix)).collect(),
        has_gateway: setup.gateway.is_some(),
        mtu: info.mtu,
        routes: Vec::new(),
        shared: false,
        kernel_index: info.kernel_index,
    }
}
