//! A program on a host: it opens, accepts, writes, reads and checks, through the client core.
//! Between steps it waits for events as a real one would: what no event announces it misses.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use client::{ConnectOptions, Endpoint, EndpointId, Errno, How, OptionName, Readiness, Token};
use engine::control::exchange::SessionKey;
use shm::region::Region;

use crate::connections::{Connection, Ending, Outcome};
use crate::contexts::Contexts;
use crate::coverage::Coverage;
use crate::pattern;
use crate::random::Random;
use crate::seen::{Seen, Step};
use crate::swarm::{MS, Swarm, US};
use crate::violation::Violation;

/// Port that listeners have.
pub const STREAM_PORT: u16 = 4000;
/// Port that datagram sockets have.
pub const DATAGRAM_PORT: u16 = 5000;
/// Bytes of a datagram before its pattern: who sent it and which one it is.
const DATAGRAM_HEAD: usize = 12;

/// What all programs of a run share.
pub struct Shared {
    /// The options.
    pub swarm: Swarm,
    /// All connections.
    pub connections: Vec<Connection>,
    /// The connection of (connector, acceptor).
    pub flows: BTreeMap<(SocketAddr, SocketAddr), usize>,
    /// Payload bytes of each datagram sent, by its number; how often each arrived.
    pub datagrams: Vec<(u64, u32)>,
    /// What was hit.
    pub coverage: Coverage,
    /// Faults are on.
    pub faults_on: bool,
    /// What programs have seen of the engine.
    pub seen: Seen,
}

/// The address of a host.
pub fn address_of(host: usize, v6: bool) -> IpAddr {
    match v6 {
        false => IpAddr::from([10, 0, 0, 1 + host as u8]),
        true => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1 + host as u16]),
    }
}

/// Where a program listens.
pub fn stream_address(at: (usize, usize), v6: bool) -> SocketAddr {
    SocketAddr::new(address_of(at.0, v6), STREAM_PORT + at.1 as u16)
}

/// Where a program takes datagrams.
pub fn datagram_address(at: (usize, usize), v6: bool) -> SocketAddr {
    SocketAddr::new(address_of(at.0, v6), DATAGRAM_PORT + at.1 as u16)
}

/// One of the two ends of a connection of the run.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionEnd {
    /// Which connection.
    pub connection: usize,
    /// Which end: 0 connects.
    pub side: usize,
}

struct Stream {
    connection: usize,
    side: usize,
    endpoint: Endpoint,
    /// The end of the peer's bytes was read.
    ended: bool,
    /// It has shut its reading, and takes what comes all the same, as it still can.
    deaf: bool,
    aborting: bool,
}

/// A program.
pub struct Program {
    /// Host and number.
    pub at: (usize, usize),
    /// Its session's name in the engine.
    pub key: SessionKey,
    /// Its region.
    pub region: Arc<Region>,
    contexts: Contexts,
    listener: Option<Endpoint>,
    datagram: Option<Endpoint>,
    streams: BTreeMap<EndpointId, Stream>,
    ready: BTreeSet<EndpointId>,
    /// When it steps next, if anything is ready.
    step_at: u64,
    /// When it looks at everything although no event came.
    scan_at: Option<u64>,
    random: Random,
    /// It scribbles.
    pub is_hostile: bool,
}

impl Program {
    /// A program with its sockets.
    pub fn new(
        at: (usize, usize),
        (key, region): (SessionKey, Arc<Region>),
        contexts: Contexts,
        (listener, datagram): (Endpoint, Endpoint),
        random: Random,
    ) -> Self {
        Self {
            at,
            key,
            region,
            contexts,
            listener: Some(listener),
            datagram: Some(datagram),
            streams: BTreeMap::new(),
            ready: BTreeSet::new(),
            step_at: 0,
            scan_at: None,
            random,
            is_hostile: false,
        }
    }

    /// When it wants to run.
    pub fn next(&self) -> Option<u64> {
        if !self.contexts.is_alive() {
            return None;
        }
        let step = (!self.ready.is_empty()).then_some(self.step_at);
        step.into_iter().chain(self.scan_at).min()
    }

    /// Its client library finds the engine gone: nothing it does has any effect from now on.
    pub fn die(&mut self) {
        self.contexts.end();
        self.streams.clear();
        self.ready.clear();
        self.listener = None;
        self.datagram = None;
    }

    /// Whether it lives.
    pub fn is_alive(&self) -> bool {
        self.contexts.is_alive()
    }

    /// The connections it holds, with the side.
    pub fn held(&self) -> Vec<(usize, usize)> {
        self.streams.values().map(|stream| (stream.connection, stream.side)).collect()
    }

    /// Closes what is left: all connections are over.
    pub fn close_sockets(&mut self) {
        self.listener = None;
        self.datagram = None;
        self.streams.clear();
        self.ready.clear();
        self.scan_at = None;
    }

    /// What it is doing, for a report.
    pub fn describe(&self) -> String {
        let mut text = format!("program {:?} ready {:?}", self.at, self.ready);
        for stream in self.streams.values() {
            text.push_str(&format!(
                "\n    connection {} side {} endpoint {:?}: {:?}, {} readable, {} unsent",
                stream.connection,
                stream.side,
                stream.endpoint.id(),
                stream.endpoint.readiness(),
                stream.endpoint.readable_bytes(),
                stream.endpoint.unacknowledged_bytes(),
            ));
        }
        text
    }

    fn latency(&mut self, swarm: &Swarm) -> u64 {
        match swarm.slow_reader {
            true if self.random.chance(1, 30) => self.random.scale_free(3000 * MS),
            true => self.random.scale_free(30 * MS),
            false => self.random.between(US, 20 * US),
        }
    }

    fn is_ready(&mut self, now: u64, id: EndpointId, swarm: &Swarm) {
        if self.ready.is_empty() {
            self.step_at = now + self.latency(swarm);
        }
        self.ready.insert(id);
    }

    /// Takes the events that have come.
    pub fn take_events(&mut self, now: u64, shared: &mut Shared) {
        if !self.contexts.is_alive() {
            return;
        }
        let mut events = Vec::new();
        self.contexts.take_events(&mut events);
        for id in events {
            shared.seen.note(self.at, Step::Event, Ok(now.rotate_left(24) ^ u64::from(id.0)));
            if shared.swarm.lost_events && self.random.chance(1, 4) {
                shared.coverage.hit("fault: event lost");
                continue;
            }
            self.is_ready(now, id, &shared.swarm);
        }
        if shared.swarm.lost_events && self.scan_at.is_none() {
            self.scan_at = Some(now + 20 * MS);
        }
    }

    /// Opens a connection.
    pub fn connect(
        &mut self,
        now: u64,
        end: ConnectionEnd,
        token: Option<u32>,
        shared: &mut Shared,
    ) {
        let ConnectionEnd { connection, side } = end;
        let of = &mut shared.connections[connection];
        let v6 = shared.swarm.v6;
        let remote = match (side, of.simultaneous, of.local_port) {
            (_, true, Some(port)) => SocketAddr::new(address_of(of.sides[1 - side].at.0, v6), port),
            _ => stream_address(of.sides[1].at, v6),
        };
        let options = ConnectOptions {
            nodelay: self.random.chance(1, 2),
            user_timeout_ms: 0,
            ..ConnectOptions::default()
        };
        let (_, session) = self.contexts.any();
        let token: Option<Token> = token.map(|token| session.adopt_token(token));
        let connected = session.connect(remote, token, &options);
        let local = connected.as_ref().map(|endpoint| u64::from(endpoint.local().port()));
        shared.seen.note(self.at, Step::Connect, local.map_err(|error| error.errno));
        match connected {
            Ok(endpoint) => {
                if side == 0 {
                    of.addresses = Some((endpoint.local(), remote));
                    shared.flows.insert((endpoint.local(), remote), connection);
                }
                of.sides[side].is_open = true;
                self.hold(now, end, endpoint, shared);
            }
            // A limit: nothing was opened.
            Err(error) => shared.coverage.hit(&format!("connect refused: {}", error.errno)),
        }
    }

    fn hold(&mut self, now: u64, end: ConnectionEnd, endpoint: Endpoint, shared: &mut Shared) {
        let ConnectionEnd { connection, side } = end;
        let id = endpoint.id();
        // So that a side that only listens learns of a peer whose reset was lost. A connection
        // that has died already takes no options.
        for (option, value) in [
            (OptionName::Keepidle, 2),
            (OptionName::Keepintvl, 10),
            (OptionName::Keepcnt, 12),
            (OptionName::Keepalive, 1),
        ] {
            let _ = endpoint.set_option(option, value);
        }
        let stream =
            Stream { connection, side, endpoint, ended: false, deaf: false, aborting: false };
        self.streams.insert(id, stream);
        self.is_ready(now, id, &shared.swarm);
    }

    /// Sends a datagram.
    pub fn send_datagram(
        &mut self,
        to: SocketAddr,
        number: u64,
        len: u64,
        seen: &mut Seen,
    ) -> Result<bool, Violation> {
        let Some(endpoint) = &self.datagram else { return Ok(false) };
        let len = (len as usize).max(DATAGRAM_HEAD);
        let mut bytes = vec![0; len];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..DATAGRAM_HEAD].copy_from_slice(&(len as u32).to_le_bytes());
        pattern::fill(!number, 0, &mut bytes[DATAGRAM_HEAD..]);
        let sent = endpoint.send_to(Some(to), None, &[IoSlice::new(&bytes)]);
        seen.note(self.at, Step::Send, sent.map(|len| len as u64));
        match sent {
            Ok(sent) if sent == len => Ok(true),
            Ok(sent) => Err(format!("a datagram of {len} bytes was sent as {sent}").into()),
            Err(Errno::AGAIN | Errno::CONNREFUSED | Errno::HOSTUNREACH) => Ok(false),
            Err(errno) => {
                Err(format!("sending a datagram of {len} bytes failed: {errno:?}").into())
            }
        }
    }

    /// Does what there is to do.
    pub fn step(&mut self, now: u64, shared: &mut Shared) -> Result<(), Violation> {
        if !self.contexts.is_alive() {
            return Ok(());
        }
        if self.scan_at.is_some_and(|at| at <= now) {
            self.scan_at = None;
            let all: Vec<EndpointId> = self.streams.keys().copied().collect();
            self.ready.extend(all);
            self.ready.extend(self.listener.iter().map(Endpoint::id));
            self.ready.extend(self.datagram.iter().map(Endpoint::id));
            self.step_at = now;
        }
        if self.ready.is_empty() || self.step_at > now {
            return Ok(());
        }
        for id in std::mem::take(&mut self.ready) {
            let again = if self.streams.contains_key(&id) {
                self.step_stream(now, id, shared)?
            } else if self.listener.as_ref().is_some_and(|one| one.id() == id) {
                self.step_listener(now, shared)?
            } else if self.datagram.as_ref().is_some_and(|one| one.id() == id) {
                self.step_datagrams(shared)?
            } else {
                // An event for an endpoint that was closed meanwhile.
                false
            };
            if again {
                self.ready.insert(id);
            }
        }
        self.step_at = now + self.latency(&shared.swarm);
        Ok(())
    }

    fn step_listener(&mut self, now: u64, shared: &mut Shared) -> Result<bool, Violation> {
        let Some(listener) = self.listener.clone() else { return Ok(false) };
        loop {
            let accepted = listener.accept();
            let remote = accepted.as_ref().map(|accepted| u64::from(accepted.remote.port()));
            shared.seen.note(self.at, Step::Accept, remote.map_err(|errno| *errno));
            match accepted {
                Ok(accepted) => {
                    let flow = (accepted.remote, accepted.local);
                    let Some(&connection) = shared.flows.get(&flow) else {
                        if shared.swarm.adversary {
                            shared.coverage.hit("accepted the adversary");
                            continue;
                        }
                        return Err(format!("a connection from nowhere: {flow:?}").into());
                    };
                    let of_flow = shared.connections.iter().filter(|c| c.addresses == Some(flow));
                    if of_flow.count() > 1 && accepted.endpoint.readiness().contains(Readiness::ERR)
                    {
                        // Reset while it waited here; its ports are another connection's by now.
                        shared.coverage.hit("accepted after its reset");
                        continue;
                    }
                    let of = &mut shared.connections[connection];
                    let side = &mut of.sides[1];
                    if side.is_open {
                        let has_cookies = shared.swarm.hosts[self.at.0].syn_cookies;
                        if shared.swarm.adversary || shared.swarm.link.duplicate > 0 || has_cookies
                        {
                            // An old SYN, delivered late, or with cookies what was still under way
                            // when this side ended: it ends when it gets no answer.
                            of.was_reopened |= has_cookies;
                            shared.coverage.hit("accepted twice");
                            continue;
                        }
                        return Err(format!("connection {connection} was accepted twice").into());
                    }
                    side.is_open = true;
                    let end = ConnectionEnd { connection, side: 1 };
                    self.hold(now, end, accepted.endpoint, shared);
                }
                Err(Errno::AGAIN) => return Ok(false),
                // No buffers, no endpoints: later.
                Err(Errno::NOBUFS | Errno::NFILE) => {
                    shared.coverage.hit("accept put off");
                    return Ok(true);
                }
                Err(errno) => return Err(format!("accept failed: {errno:?}").into()),
            }
        }
    }

    fn step_datagrams(&mut self, shared: &mut Shared) -> Result<bool, Violation> {
        let Some(endpoint) = &self.datagram else { return Ok(false) };
        let mut bytes = vec![0; 65_536];
        for _ in 0..4 {
            let received = endpoint.recv_from(&mut [IoSliceMut::new(&mut bytes)]);
            let len = received.as_ref().map(|received| received.len as u64);
            shared.seen.note(self.at, Step::Receive, len.map_err(|errno| *errno));
            let received = match received {
                Ok(received) => received,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::CONNREFUSED | Errno::HOSTUNREACH) => continue,
                Err(errno) => return Err(format!("receiving a datagram failed: {errno:?}").into()),
            };
            let got = &bytes[..received.len];
            if shared.swarm.adversary
                && received.remote.ip() == crate::adversary::address(shared.swarm.v6)
            {
                continue;
            }
            let Some((head, rest)) = got.split_first_chunk::<DATAGRAM_HEAD>() else {
                return Err(format!("a datagram of {} bytes that nobody sent", got.len()).into());
            };
            let number = u64::from_le_bytes([
                head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7],
            ]);
            let Some((len, times)) = shared.datagrams.get_mut(number as usize) else {
                return Err(format!("datagram {number} was never sent").into());
            };
            if *len == u64::MAX {
                // Of a scribbler: it may hold anything.
                continue;
            }
            if *len as usize != got.len() || received.full_len != got.len() {
                return Err(format!(
                    "datagram {number} of {len} bytes arrived with {} of {}",
                    got.len(),
                    received.full_len
                )
                .into());
            }
            if let Some(at) = pattern::first_difference(!number, 0, rest) {
                return Err(format!("datagram {number} of {len} bytes differs at {at}").into());
            }
            *times += 1;
            let may_repeat = shared.swarm.link.duplicate > 0 || shared.swarm.adversary;
            if *times > 1 && !may_repeat {
                return Err(format!("datagram {number} arrived {times} times").into());
            }
        }
        Ok(true)
    }

    fn finish(&mut self, id: EndpointId, outcome: Outcome, shared: &mut Shared) {
        if let Some(stream) = self.streams.remove(&id) {
            shared.connections[stream.connection].sides[stream.side].outcome = Some(outcome);
        }
    }

    /// Whether there is more to do without waiting.
    fn step_stream(
        &mut self,
        now: u64,
        id: EndpointId,
        shared: &mut Shared,
    ) -> Result<bool, Violation> {
        let swarm = shared.swarm.clone();
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(false) };
        let (connection, side) = (stream.connection, stream.side);
        let endpoint = stream.endpoint.clone();
        let what = |of: &Connection, what: String| {
            Violation::from(format!("connection {connection} {of}: {what}"))
        };
        let own_key = pattern::stream_key(connection, side);
        let peer_key = pattern::stream_key(connection, 1 - side);
        let (ending, total) = {
            let own = &shared.connections[connection].sides[side];
            (own.ending, own.total)
        };
        let _ = now;
        if ending == Ending::Deaf && !stream.deaf && endpoint.is_connected() {
            stream.deaf = true;
            if let Err(errno) = endpoint.shutdown(How::Read)
                && errno != Errno::NOTCONN
            {
                let of = &shared.connections[connection];
                return Err(what(of, format!("shutdown(Read) failed: {errno:?}")));
            }
        }
        // Reading.
        let most = if swarm.slow_reader { self.random.scale_free(3000) } else { 16_384 };
        let mut bytes = vec![0; most as usize];
        let mut reads = 4;
        while !stream.ended && reads > 0 {
            reads -= 1;
            let read = endpoint.read(&mut bytes);
            shared.seen.note(self.at, Step::Read, read.map(|len| len as u64));
            match read {
                Ok(0) if stream.deaf => break,
                Ok(0) => {
                    stream.ended = true;
                    let of = &shared.connections[connection];
                    of.check_end(side).map_err(|error| what(of, error.to_string()))?;
                }
                Ok(len) => {
                    let of = &mut shared.connections[connection];
                    let offset = of.sides[side].read;
                    of.sides[side].read += len as u64;
                    if of.is_tainted {
                        continue;
                    }
                    if let Some(at) = pattern::first_difference(peer_key, offset, &bytes[..len]) {
                        return Err(what(of, format!("byte {at} is wrong at side {side}")));
                    }
                    if of.sides[side].read > of.sides[1 - side].written {
                        return Err(what(of, format!("side {side} read what nobody wrote")));
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    endpoint.close();
                    self.finish(id, Outcome::Failed(errno), shared);
                    return Ok(false);
                }
            }
        }
        // Writing.
        let mut writes = 4;
        loop {
            let own = &mut shared.connections[connection].sides[side];
            if let Ending::Abort(at) = ending
                && own.written >= at
                && endpoint.is_connected()
            {
                stream.aborting = true;
                break;
            }
            if own.shut || own.written >= total || writes == 0 {
                break;
            }
            writes -= 1;
            let most = if swarm.small_writes { self.random.scale_free(100) } else { 20_000 };
            let len = most.min(total - own.written);
            let mut bytes = vec![0; len as usize];
            pattern::fill(own_key, own.written, &mut bytes);
            let wrote = endpoint.write(&bytes);
            shared.seen.note(self.at, Step::Write, wrote.map(|len| len as u64));
            match wrote {
                Ok(len) => own.written += len as u64,
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    endpoint.close();
                    self.finish(id, Outcome::Failed(errno), shared);
                    return Ok(false);
                }
            }
        }
        if stream.aborting {
            endpoint.abort();
            self.finish(id, Outcome::Left, shared);
            return Ok(false);
        }
        let own = &mut shared.connections[connection].sides[side];
        let all_written = own.written >= total;
        if all_written && !own.shut && endpoint.is_connected() {
            own.shut = true;
            if ending == Ending::CloseUnread {
                endpoint.close();
                self.finish(id, Outcome::Left, shared);
                return Ok(false);
            }
            let shut = endpoint.shutdown(How::Write);
            shared.seen.note(self.at, Step::Shutdown, shut.map(|()| 0));
            match shut {
                Ok(()) | Err(Errno::NOTCONN) => {}
                Err(errno) => {
                    let of = &shared.connections[connection];
                    return Err(what(of, format!("shutdown(Write) failed: {errno:?}")));
                }
            }
        }
        let own = &shared.connections[connection].sides[side];
        if (stream.ended || stream.deaf) && own.shut {
            endpoint.close();
            let outcome = if ending == Ending::Deaf { Outcome::Left } else { Outcome::Clean };
            self.finish(id, outcome, shared);
            return Ok(false);
        }
        let wants_out = own.written < total;
        let ended = stream.ended || stream.deaf;
        let readiness = endpoint.readiness();
        if readiness.contains(Readiness::ERR) {
            return Ok(true);
        }
        Ok(!ended && readiness.contains(Readiness::IN)
            || wants_out && readiness.contains(Readiness::OUT))
    }
}
