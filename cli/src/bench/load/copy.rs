//! The programs of `bench copy`: bulk of messages or on a stream over engines on both hosts, from and to
//! memory of the programs' own, which the library copies, or registered memory.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use client::memory::Registered;
use client::message::{Completion, Endpoint, Memory, Outcome as Ended, Pattern, Peer, Send};
use client::native::{Listener, Stream};
use client::{Errno, Session};
use lab::failure::{Explain, Failure, Result};
use serde::{Deserialize, Serialize};

use super::super::usage::Meter;
use super::{Outcome, POLL_LIMIT, Phase, Progress, Window};

/// The job's key.
const KEY: [u8; 16] = *b"outboard bench !";
/// Bytes under way at a time, about, and the least and most messages that they are in.
const UNDER_WAY: u64 = 4 << 20;
const DEPTH: (u64, u64) = (4, 64);
/// What a program says once it can be reached.
pub const SERVING: &str = "serving";

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyCarrier {
    /// Messages.
    Messages,
    /// A TCP stream.
    Stream,
}

impl CopyCarrier {
    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Stream => "stream",
        }
    }
}

/// Where the bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kept {
    /// In the program's own memory: the library copies them to and from the session's buffers.
    Pool,
    /// In registered memory.
    Registered,
    /// In memory that is registered for each message.
    Anew,
}

impl Kept {
    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Registered => "registered",
            Self::Anew => "anew",
        }
    }
}

/// What a program of `bench copy` is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Copy {
    /// The engine's control socket
    pub engine: PathBuf,
    /// The receiver's address
    pub address: SocketAddr,
    /// What carries the bytes
    #[arg(long)]
    pub carrier: CopyCarrier,
    /// Where they lie
    #[arg(long)]
    pub memory: Kept,
    /// Bytes of a message, or of one write or read
    #[arg(long)]
    pub bytes: u32,
}

/// Places for what is under way, in memory of either kind.
struct Places {
    bytes: u32,
    own: Vec<u8>,
    registered: Option<Registered>,
    /// One for each place, instead of one for all.
    anew: Vec<Registered>,
}

/// Memory that the engine receives into.
fn register(session: &Arc<Session>, bytes: u64) -> Result<Registered> {
    let advice = "raise `memory_per_user` under [limits]";
    session.register(bytes).explain("the engine gives no registered memory", advice)
}

impl Places {
    fn new(session: &Arc<Session>, copy: &Copy) -> Result<Self> {
        let room = u64::from(copy.bytes.max(1)) * copy.depth();
        let registered = match copy.memory {
            Kept::Pool | Kept::Anew => None,
            Kept::Registered => Some(register(session, room)?),
        };
        let places = if copy.memory == Kept::Anew { copy.depth() } else { 0 };
        let each = u64::from(copy.bytes.max(1));
        let anew = (0..places).map(|_| register(session, each)).collect::<Result<_>>()?;
        // Touched, as that of a program that has worked with it.
        let own = vec![1; usize::try_from(room).unwrap_or(usize::MAX)];
        if let Some(registered) = &registered {
            registered.write(0, &own);
        }
        Ok(Self { bytes: copy.bytes, own, registered, anew })
    }

    /// Registers the memory of a place again, where each message has its own.
    fn renew(&mut self, session: &Arc<Session>, place: u64) -> Result<()> {
        if let Some(memory) = self.anew.get_mut(place as usize) {
            *memory = register(session, u64::from(self.bytes.max(1)))?;
        }
        Ok(())
    }

    /// Where a place is registered, and from which byte on.
    fn registered(&self, place: u64) -> Option<(&Registered, u64)> {
        let of_all = self.registered.as_ref().map(|memory| (memory, self.start(place)));
        of_all.or_else(|| self.anew.get(place as usize).map(|memory| (memory, 0)))
    }

    fn start(&self, place: u64) -> u64 {
        place * u64::from(self.bytes)
    }

    fn own(&self, place: u64) -> &[u8] {
        let start = self.start(place) as usize;
        self.own.get(start..start + self.bytes as usize).unwrap_or_default()
    }
}

impl Memory for Places {
    fn gather(&mut self, context: u64, offset: u64, len: usize, copy: &mut dyn FnMut(&[u8])) {
        let start = (self.start(context) + offset) as usize;
        copy(self.own.get(start..start.saturating_add(len)).unwrap_or_default());
    }

    fn scatter(&mut self, context: u64, offset: u64, len: usize, copy: &mut dyn FnMut(&mut [u8])) {
        let start = (self.start(context) + offset) as usize;
        copy(self.own.get_mut(start..start.saturating_add(len)).unwrap_or_default());
    }
}

fn failed(errno: Errno) -> Failure {
    Failure::new(format!("a transfer failed: {errno}"), "check the other program")
}

impl Copy {
    /// Messages or writes under way at a time.
    fn depth(&self) -> u64 {
        (UNDER_WAY / u64::from(self.bytes.max(1))).clamp(DEPTH.0, DEPTH.1)
    }

    fn attach(&self) -> Result<Arc<Session>> {
        let attached = match self.carrier {
            CopyCarrier::Messages => Session::attach_messages(&self.engine, "bench copy"),
            CopyCarrier::Stream => Session::attach(&self.engine, "bench copy"),
        };
        attached.explain("the engine refuses the program", "see its log")
    }

    /// Receives until it is ended.
    ///
    /// # Errors
    /// When the engine refuses, or a transfer fails.
    pub fn serve(&self) -> Result<()> {
        let session = self.attach()?;
        let mut places = Places::new(&session, self)?;
        match self.carrier {
            CopyCarrier::Messages => {
                let endpoint = Endpoint::open(&session, self.address, Some(KEY))
                    .explain("no endpoint", "use an address of the engine's")?;
                (0..self.depth()).try_for_each(|place| self.post(&endpoint, &places, place))?;
                tell!("{SERVING}");
                loop {
                    match endpoint.poll_completion(&mut places).map_err(failed)? {
                        Some(Completion { context, outcome: Ended::Received(_), .. }) => {
                            places.renew(&session, context)?;
                            self.post(&endpoint, &places, context)?;
                        }
                        Some(other) => {
                            return Err(Failure::new(format!("{other:?}"), "see the engine's log"));
                        }
                        None => drop(endpoint.wait(None).map_err(failed)?),
                    }
                }
            }
            CopyCarrier::Stream => {
                let listener = Listener::bind(&session, self.address)
                    .explain("nothing listens", "use an address of the engine's")?;
                tell!("{SERVING}");
                let (stream, _) = listener.accept().explain("nobody came", "see the client")?;
                let room = places.own.get_mut(..self.bytes as usize).unwrap_or_default();
                while std::io::Read::read(&mut &stream, room)
                    .explain("the stream ended", "see the client")?
                    > 0
                {}
                Ok(())
            }
        }
    }

    fn post(&self, endpoint: &Endpoint, places: &Places, place: u64) -> Result<()> {
        let any = Pattern { source: None, tag: Some((0, 0)) };
        let posted = match places.registered(place) {
            None => endpoint.post_recv(&any, u64::from(self.bytes), place),
            Some((memory, start)) => {
                let piece = memory.piece(start, self.bytes).ok_or(Errno::INVAL);
                piece.and_then(|piece| endpoint.post_recv_registered(&any, &[piece], place))
            }
        };
        posted.map(drop).map_err(failed)
    }

    /// Sends for a window.
    ///
    /// # Errors
    /// When the engine refuses, or a transfer fails.
    pub fn run(&self, window: &Window) -> Result<Outcome> {
        let session = self.attach()?;
        let mut places = Places::new(&session, self)?;
        let meter = Meter::open(&window.sources)?;
        match self.carrier {
            CopyCarrier::Messages => self.send_messages(&session, &mut places, meter, window),
            CopyCarrier::Stream => self.write_stream(&session, &places, meter, window),
        }
    }

    fn send_messages(
        &self,
        session: &Arc<Session>,
        places: &mut Places,
        meter: Meter,
        window: &Window,
    ) -> Result<Outcome> {
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let endpoint =
            Endpoint::open(session, any, Some(KEY)).explain("no endpoint", "see the engine")?;
        let peer = endpoint.add_peer(self.address).ok_or_else(|| failed(Errno::INVAL))?;
        let mut free: Vec<u64> = (0..self.depth()).collect();
        let mut progress = Progress::begin(meter, window);
        let mut outcome = Outcome::default();
        loop {
            let phase = progress.at(Instant::now())?;
            if phase == Phase::Over {
                break;
            }
            while let Some(place) = free.last().copied() {
                match self.send(&endpoint, peer, places, place) {
                    Ok(()) => drop(free.pop()),
                    Err(Errno::AGAIN) => break,
                    Err(errno) => return Err(failed(errno)),
                }
            }
            match endpoint.poll_completion(places).map_err(failed)? {
                Some(Completion { context, outcome: Ended::Sent, .. }) => {
                    free.push(context);
                    if phase == Phase::Window {
                        outcome.operations += 1;
                        outcome.bytes += u64::from(self.bytes);
                    }
                }
                Some(other) => {
                    return Err(Failure::new(format!("{other:?}"), "check the receiver"));
                }
                None => drop(endpoint.wait(Some(Instant::now() + POLL_LIMIT)).map_err(failed)?),
            }
        }
        outcome.usage = progress.usage()?;
        Ok(outcome)
    }

    fn send(
        &self,
        endpoint: &Endpoint,
        peer: Peer,
        places: &Places,
        place: u64,
    ) -> std::result::Result<(), Errno> {
        let send = Send { tag: Some(0), ..Send::default() };
        let begun = match places.registered(place) {
            None => endpoint.send(peer, &send, &[IoSlice::new(places.own(place))], place),
            Some((memory, start)) => {
                let piece = memory.piece(start, self.bytes).ok_or(Errno::INVAL)?;
                endpoint.send_registered(peer, &send, &[piece], place)
            }
        };
        begun.map(drop)
    }

    fn write_stream(
        &self,
        session: &Arc<Session>,
        places: &Places,
        meter: Meter,
        window: &Window,
    ) -> Result<Outcome> {
        let stream =
            Stream::connect(session, self.address).explain("no connection", "see the server")?;
        let endpoint = stream.endpoint();
        let mut progress = Progress::begin(meter, window);
        let (mut begun, mut outcome) = (None, Outcome::default());
        loop {
            match progress.at(Instant::now())? {
                Phase::Over => break,
                Phase::Window if begun.is_none() => begun = Some(endpoint.send_ends().0),
                _ => {}
            }
            let written = match &places.registered {
                None => endpoint.write(places.own(0)).map(drop),
                Some(memory) => self.write_registered(endpoint, memory),
            };
            match written {
                Ok(()) => outcome.operations += 1,
                Err(Errno::AGAIN) => {
                    let ready = || match &places.registered {
                        None => endpoint.readiness().contains(client::Readiness::OUT),
                        // What has failed is told below.
                        Some(_) => self.has_room(endpoint).unwrap_or(true),
                    };
                    let deadline = Instant::now() + POLL_LIMIT;
                    session.wait_until(Some(deadline), ready).map_err(failed)?;
                    if places.registered.is_some() {
                        self.has_room(endpoint).map_err(failed)?;
                    }
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
        outcome.bytes = endpoint.send_ends().0 - begun.unwrap_or_default();
        outcome.usage = progress.usage()?;
        Ok(outcome)
    }

    /// Whether less than half of what may be under way is.
    fn has_room(&self, endpoint: &client::Endpoint) -> std::result::Result<bool, Errno> {
        let (_, written) = endpoint.send_ends();
        endpoint.has_acknowledged(written.saturating_sub(UNDER_WAY / 2))
    }

    /// The places take turns. Their bytes never change, so that one may be under way more than once.
    fn write_registered(
        &self,
        endpoint: &client::Endpoint,
        memory: &Registered,
    ) -> std::result::Result<(), Errno> {
        let (acked, written) = endpoint.send_ends();
        if written - acked + u64::from(self.bytes) > UNDER_WAY.max(u64::from(self.bytes)) {
            return Err(Errno::AGAIN);
        }
        let turn = written / u64::from(self.bytes) % self.depth();
        let piece = memory.piece(turn * u64::from(self.bytes), self.bytes).ok_or(Errno::INVAL)?;
        endpoint.write_registered(&[piece]).map(drop)
    }
}
