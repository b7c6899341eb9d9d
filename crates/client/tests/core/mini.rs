//! An engine small enough to read: one lane, no network. Connections echo what they get; a
//! listener's connections come from [`Mini::knock`]; datagrams come back to their sender.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use outboard_client::Session;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use shm::Status;
use shm::control::{FromEngine, Geometry, InterfaceInfo, Socket, ToEngine, Wait};
use shm::descriptor::{DatagramHeader, DescriptorKind};
use shm::engine_side::{EngineEndpoint, EngineLane};
use shm::region::Region;
use shm::request::{Addresses, OptionName, Reply, Request};

/// Geometry of the tests: little enough that everything wraps and runs short.
pub fn geometry() -> Geometry {
    Geometry {
        context_count: 1,
        worker_count: 1,
        request_slots: 4,
        stock_slots: 16,
        endpoint_capacity: 8,
        send_slots: 16,
        receive_slots: 8,
        buffer_bytes: 4096,
        buffer_count: 128,
        region_bytes: 0,
    }
}

fn interface() -> InterfaceInfo {
    InterfaceInfo {
        name: "mini".into(),
        addresses: vec![("10.9.0.2".parse().unwrap(), 24)],
        has_gateway: false,
        routes: Vec::new(),
        shared: false,
        kernel_index: 0,
        mtu: 1500,
    }
}

struct Connection {
    area: EngineEndpoint,
    listener: bool,
    status: Status,
    acked: u64,
    readable: u64,
    consumed: u64,
    pages: Vec<(u64, u32)>,
    waiting: Vec<u8>,
    fin: bool,
    datagrams: Vec<(u64, u32)>,
    assembling: Vec<u8>,
}

struct Engine {
    region: Arc<Region>,
    lane: EngineLane,
    connections: HashMap<u32, Connection>,
    free: Vec<u32>,
    /// Extents taken from each buffer granted to the client.
    extents: HashMap<u32, u32>,
    options: HashMap<OptionName, u64>,
    knocks: u32,
    dirty: Vec<u32>,
    granted: u32,
}

/// A running mini engine.
pub struct Mini {
    stop: Arc<AtomicBool>,
    knocks: Arc<AtomicU32>,
    free: Arc<Mutex<usize>>,
    /// Held by the engine during each turn.
    turns: Arc<Mutex<()>>,
    thread: Option<JoinHandle<()>>,
    _control: Option<Socket>,
    pub local: SocketAddr,
}

impl Mini {
    /// Starts one and attaches to it. `busy`: it never sleeps.
    pub fn start(busy: bool) -> (Self, Arc<Session>) {
        let (here, there) = Socket::pair().unwrap();
        let region = Arc::new(Region::create(geometry()).unwrap());
        let (wake_read, wake_write) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let (bell_client, bell_engine) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        let greeter = {
            let region = region.clone();
            std::thread::spawn(move || {
                let (hello, _) = here.receive::<ToEngine>(Wait::Yes).unwrap();
                assert!(matches!(hello, ToEngine::Hello { .. }));
                let welcome = FromEngine::Welcome {
                    geometry: *region.geometry(),
                    remotes: Vec::new(),
                    interfaces: vec![interface()],
                };
                use std::os::fd::AsFd;
                let fds = [region.file().unwrap(), wake_read.as_fd(), bell_client.as_fd()];
                here.send(&welcome, &fds, Wait::Yes).unwrap();
                here
            })
        };
        let session = Session::attach_over(there, "mini-test").unwrap();
        let control = greeter.join().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let knocks = Arc::new(AtomicU32::new(0));
        let free = Arc::new(Mutex::new(0));
        let turns = Arc::new(Mutex::new(()));
        let thread = {
            let (stop, knocks, free) = (stop.clone(), knocks.clone(), free.clone());
            let turns = turns.clone();
            std::thread::spawn(move || {
                let mut engine = Engine::new(region);
                while !stop.load(Ordering::Relaxed) {
                    engine.knocks += knocks.swap(0, Ordering::Relaxed);
                    let turn = turns.lock();
                    let worked = engine.turn(&wake_write, &control);
                    drop(turn);
                    *free.lock().unwrap() = engine.free.len() + engine.lane.stock_len() as usize;
                    if !worked && !busy && engine.lane.prepare_sleep() {
                        let mut fds = [
                            PollFd::new(&bell_engine, PollFlags::IN),
                            PollFd::new(&control, PollFlags::IN),
                        ];
                        let while_asleep = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
                        let _ = rustix::event::poll(&mut fds, Some(&while_asleep));
                        engine.lane.awake();
                        let mut bytes = [0; 64];
                        let _ = rustix::io::read(&bell_engine, &mut bytes);
                    } else if !worked {
                        std::thread::yield_now();
                    }
                }
                drop((wake_write, bell_engine, control));
            })
        };
        let local = "10.9.0.2:7".parse().unwrap();
        (Self { stop, knocks, free, turns, thread: Some(thread), _control: None, local }, session)
    }

    /// A peer connects to the listener.
    pub fn knock(&self) {
        self.knocks.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps the engine from its next turn.
    pub fn pause(&self) -> MutexGuard<'_, ()> {
        self.turns.lock().unwrap()
    }

    /// Buffers that are free or in the stock, as of the last turn.
    pub fn free_buffers(&self) -> usize {
        *self.free.lock().unwrap()
    }

    /// Ends the engine as a crash would: its descriptors close.
    pub fn kill(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the mini engine panicked");
        }
    }
}

impl Drop for Mini {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Engine {
    fn new(region: Arc<Region>) -> Self {
        let mut lane = EngineLane::new(region.clone(), 0, 0);
        let mut free: Vec<u32> = (0..region.geometry().buffer_count).collect();
        while let Some(buffer) = free.pop() {
            if !lane.grant(buffer) {
                free.push(buffer);
                break;
            }
        }
        Self {
            region,
            lane,
            connections: HashMap::new(),
            free,
            extents: HashMap::new(),
            options: HashMap::new(),
            knocks: 0,
            dirty: Vec::new(),
            granted: 0,
        }
    }

    fn turn(&mut self, wake: &OwnedFd, control: &Socket) -> bool {
        let mut rung = [0; 4];
        let count = self.lane.take_doorbells(&mut rung).unwrap();
        for endpoint in &rung[..count] {
            self.serve(*endpoint);
        }
        let mut worked = count > 0;
        while let Some((serial, request)) = self.lane.take_request().unwrap() {
            let reply = self.answer(request);
            self.lane.push_reply(serial, &reply);
            worked = true;
        }
        if let Ok((question, _kernel)) = control.receive::<ToEngine>(Wait::No) {
            let serial = match question {
                ToEngine::Interfaces { serial } => {
                    // An answer to a question that was given up comes first.
                    for (serial, address) in [(serial - 1, "10.9.0.3"), (serial, "10.9.0.4")] {
                        let mut now = interface();
                        now.addresses = vec![(address.parse().unwrap(), 24)];
                        let answer = FromEngine::Interfaces { serial, interfaces: vec![now] };
                        control.send(&answer, &[], Wait::Yes).unwrap();
                    }
                    return true;
                }
                ToEngine::Listen { serial, .. } | ToEngine::BindUdp { serial, .. } => serial,
                other => panic!("{other:?}"),
            };
            let listener = matches!(question, ToEngine::Listen { .. });
            let endpoint = self.open(listener, Status::empty());
            let local = "10.9.0.2:7".parse().unwrap();
            let granted = FromEngine::Granted { serial, endpoints: vec![endpoint], local };
            control.send(&granted, &[], Wait::Yes).unwrap();
        }
        self.show_knocks();
        while let Some(buffer) = self.free.pop() {
            if !self.lane.grant(buffer) {
                self.free.push(buffer);
                break;
            }
        }
        EngineLane::begin_events();
        for id in std::mem::take(&mut self.dirty) {
            assert!(self.lane.push_event(id));
        }
        if self.lane.finish_events() {
            rustix::io::write(wake, &[1]).unwrap();
        }
        worked
    }

    fn show_knocks(&mut self) {
        let listener = self.connections.iter().find(|(_, c)| c.listener).map(|(id, _)| *id);
        if let Some(id) = listener {
            self.connections.get_mut(&id).unwrap().area.set_pending(self.knocks, 1);
            if self.knocks > 0 {
                self.dirty.push(id);
            }
        }
    }

    fn open(&mut self, listener: bool, status: Status) -> u32 {
        let id = (0..).find(|id| !self.connections.contains_key(id)).unwrap();
        let mut area = EngineEndpoint::new(self.region.clone(), id);
        area.clear();
        area.set_wanted(0);
        area.set_status(status, 0);
        self.lane.bump_reach();
        let connection = Connection {
            area,
            listener,
            status,
            acked: 0,
            readable: 0,
            consumed: 0,
            pages: Vec::new(),
            waiting: Vec::new(),
            fin: false,
            datagrams: Vec::new(),
            assembling: Vec::new(),
        };
        self.connections.insert(id, connection);
        self.granted += 1;
        id
    }

    fn answer(&mut self, request: Request) -> Reply {
        let local = "10.9.0.2:40000".parse().unwrap();
        match request {
            Request::Connect { remote, .. } if remote.port() == 1 => {
                let endpoint = self.open(false, Status::empty());
                let connection = self.connections.get_mut(&endpoint).unwrap();
                let refused = rustix::io::Errno::CONNREFUSED.raw_os_error().cast_unsigned();
                connection.area.set_status(Status::ERROR | Status::HANGUP, refused);
                self.dirty.push(endpoint);
                Reply::Endpoint { endpoint, addresses: Addresses { local, remote } }
            }
            Request::Connect { remote, .. } => {
                let endpoint = self.open(false, Status::CONNECTED);
                self.dirty.push(endpoint);
                Reply::Endpoint { endpoint, addresses: Addresses { local, remote } }
            }
            Request::Accept { .. } if self.knocks == 0 => Reply::Failed { errno: 11 },
            Request::Accept { .. } => {
                self.knocks -= 1;
                // Before the answer, as engines do: who has taken the last sees none waiting.
                self.show_knocks();
                let endpoint = self.open(false, Status::CONNECTED);
                let remote = "10.9.0.1:50000".parse().unwrap();
                Reply::Endpoint { endpoint, addresses: Addresses { local, remote } }
            }
            Request::Close { endpoint } | Request::Abort { endpoint } => {
                self.serve(endpoint);
                let mut connection = self.connections.remove(&endpoint).unwrap();
                while let Some(taken) = connection.area.take_descriptor().unwrap() {
                    if let Some(buffer) = taken.buffer {
                        self.account(buffer, taken.extent);
                    }
                }
                let pages = connection.pages.iter().map(|(_, buffer)| *buffer);
                self.free.extend(pages);
                self.free.extend(connection.datagrams.iter().map(|(_, buffer)| *buffer));
                connection.area.clear();
                Reply::Done
            }
            Request::SetOption { option, value, .. } => {
                self.options.insert(option, value);
                Reply::Done
            }
            Request::Option { option, .. } => {
                Reply::Value(self.options.get(&option).copied().unwrap_or(0))
            }
            Request::ConnectDatagram { endpoint, remote } => {
                let local: SocketAddr = "10.9.0.2:7".parse().unwrap();
                let remote = remote.unwrap_or("0.0.0.0:0".parse().unwrap());
                Reply::Endpoint { endpoint, addresses: Addresses { local, remote } }
            }
            Request::StopReceiving { .. } => Reply::Done,
            Request::Info { .. }
            | Request::Progress { .. }
            | Request::Rates { .. }
            | Request::Counts { .. }
            | Request::SetFastOpenKeys { .. }
            | Request::SetKey { .. }
            | Request::TakeStamp { .. }
            | Request::Arrival { .. }
            | Request::SetGroup { .. }
            | Request::NameSource { .. } => Reply::Failed { errno: 95 },
        }
    }

    fn account(&mut self, buffer: u32, extent: u32) {
        let sum = self.extents.entry(buffer).or_default();
        *sum += extent;
        assert!(*sum <= self.region.geometry().buffer_bytes, "a buffer accounted for twice");
        if *sum == self.region.geometry().buffer_bytes {
            self.extents.remove(&buffer);
            self.free.push(buffer);
        }
    }

    fn serve(&mut self, id: u32) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        let g = *self.region.geometry();
        let high = connection.readable;
        connection.consumed = connection.area.consumed(connection.consumed, high).unwrap();
        let page_bytes = u64::from(g.buffer_bytes);
        let (consumed, readable) = (connection.consumed, connection.readable);
        connection.pages.retain(|(page, buffer)| {
            // A page that has been read to its end, or to the end of all there is.
            let keep = (page + 1) * page_bytes > consumed && consumed != readable;
            if !keep {
                self.free.push(*buffer);
            }
            keep
        });
        connection.datagrams.retain(|(position, buffer)| {
            let keep = *position >= consumed;
            if !keep {
                self.free.push(*buffer);
            }
            keep
        });
        // Takes no more while the echo is held up, as a closed window would.
        while connection.waiting.len() < 16 * 1024 {
            let Some(taken) = connection.area.take_descriptor().unwrap() else { break };
            let mut bytes = vec![0; taken.span.len as usize];
            self.region.read_buffer(taken.span, &mut bytes);
            match taken.kind {
                DescriptorKind::Data => {
                    connection.acked += bytes.len() as u64;
                    connection.waiting.extend(bytes);
                }
                DescriptorKind::Fin => connection.fin = true,
                DescriptorKind::Datagram => {
                    connection.assembling.extend(bytes);
                    if !taken.more && taken.span.len > 0 {
                        connection.acked += 1;
                        self.echo_datagram(&mut connection);
                    }
                }
                DescriptorKind::Page => unreachable!(),
            }
            if let Some(buffer) = taken.buffer {
                self.account(buffer, taken.extent);
            }
        }
        self.echo_stream(&mut connection);
        connection.area.publish_taken();
        connection.area.set_acked(connection.acked);
        self.connections.insert(id, connection);
        self.dirty.push(id);
    }

    fn echo_stream(&mut self, connection: &mut Connection) {
        let g = *self.region.geometry();
        let page_bytes = u64::from(g.buffer_bytes);
        let most = connection.consumed + u64::from(g.receive_slots) * page_bytes;
        let mut done = 0;
        while done < connection.waiting.len() && connection.readable < most {
            let offset = connection.readable;
            let page = offset / page_bytes;
            // No two pages of a lap apart may be behind one slot.
            if page >= connection.consumed / page_bytes + u64::from(g.receive_slots) {
                break;
            }
            let buffer = match connection.pages.iter().find(|(p, _)| *p == page) {
                Some((_, buffer)) => *buffer,
                None => {
                    let Some(buffer) = self.free.pop() else { break };
                    connection.area.set_page(page, buffer);
                    connection.pages.push((page, buffer));
                    buffer
                }
            };
            let span = self.region.buffer(buffer).unwrap();
            let span = span.part((offset % page_bytes) as u32, u32::MAX);
            let copied = self.region.write_buffer(span, &connection.waiting[done..]);
            done += copied;
            connection.readable += copied as u64;
        }
        connection.waiting.drain(..done);
        if connection.datagrams.is_empty() && connection.readable > 0 {
            connection.area.set_readable(connection.readable);
        }
        if connection.fin && connection.waiting.is_empty() {
            connection.status |= Status::PEER_CLOSED;
            connection.area.set_status(connection.status, 0);
        }
    }

    fn echo_datagram(&mut self, connection: &mut Connection) {
        let bytes = std::mem::take(&mut connection.assembling);
        let (header, payload) = bytes.split_first_chunk::<48>().unwrap();
        let header = DatagramHeader::decode(header);
        let local = "10.9.0.2:7".parse().unwrap();
        let back = DatagramHeader { local, ..header };
        let whole = [back.encode().as_slice(), payload].concat();
        let g = *self.region.geometry();
        let pieces: Vec<&[u8]> = whole.chunks(g.buffer_bytes as usize).collect();
        let room = u64::from(g.receive_slots) - (connection.readable - connection.consumed);
        if pieces.len() as u64 > room || pieces.len() > self.free.len() {
            return;
        }
        for (at, piece) in pieces.iter().enumerate() {
            let buffer = self.free.pop().unwrap();
            let span = self.region.buffer(buffer).unwrap().part(0, piece.len() as u32);
            self.region.write_buffer(span, piece);
            connection.datagrams.push((connection.area.received(), buffer));
            connection.area.push_datagram(span, at + 1 < pieces.len());
        }
        connection.readable = connection.area.received();
        connection.area.set_readable(connection.readable);
    }
}
