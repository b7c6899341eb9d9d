//! The client of a memif against a server of the tests' own, which reaches its memory by pread and
//! pwrite, and against the engine's server as it comes and goes. Nothing here starts a program: a child
//! would hold every descriptor for a moment, and hang-ups would come late.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use outboard_port::{Port, PortSpec, RxBurst, TxError, TxMeta, from_fds, open};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, recvmsg, sendmsg,
    socket_with,
};

const PATIENCE: Duration = Duration::from_secs(30);

static NEXT: AtomicU32 = AtomicU32::new(0);

fn name() -> String {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("outboard-memif-client-{}-{number}", std::process::id())
}

fn port(name: &str, options: &str) -> Box<dyn Port> {
    let spec: PortSpec = format!("memif:@{name},{options}").parse().expect("a port");
    from_fds(open(&spec).expect("it opens")).expect("it runs")
}

fn frame(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(7) ^ seed) as u8).collect()
}

/// Calls `look` until it has what it waits for.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}");
    }
}

fn taken(port: &mut dyn Port) -> Option<Vec<u8>> {
    let mut burst = RxBurst::new();
    port.receive(&mut burst);
    let bytes = burst.handles.first().map(|first| port.frame(*first).bytes.to_vec());
    port.release(&mut burst);
    bytes
}

fn sent(port: &mut dyn Port, frame: &[u8]) -> Option<()> {
    let sent = port.send(&TxMeta::default(), frame, &[]).ok();
    port.flush();
    sent
}

#[test]
fn a_client_connects_whenever_its_server_comes() {
    let name = name();
    let mut client = port(&name, "id=4,secret=sesame,role=client");
    assert_eq!(client.send(&TxMeta::default(), &frame(60, 0), &[]), Err(TxError::Down));
    for round in 0..3 {
        let mut server = port(&name, "id=4,secret=sesame");
        until("the client does not connect", || {
            // What was under way to the server before is gone with it.
            sent(&mut *client, &frame(60, round))?;
            taken(&mut *server).filter(|came| *came == frame(60, round))
        });
        for len in [60, 1500, 1514] {
            sent(&mut *server, &frame(len, round)).expect("there is room");
            let came = until("nothing comes", || taken(&mut *client));
            assert_eq!(came, frame(len, round));
        }
        drop(server);
        // A ring that nobody empties is full before the end is noticed.
        until("the end is not noticed", || {
            let sent = client.send(&TxMeta::default(), &frame(60, 9), &[]);
            client.flush();
            (sent == Err(TxError::Down)).then_some(())
        });
    }
}

#[test]
fn a_client_without_the_secret_stays_without_a_connection() {
    let name = name();
    let mut server = port(&name, "secret=sesame");
    let mut wrong = port(&name, "secret=simsim,role=client");
    let mut right = port(&name, "secret=sesame,role=client");
    until("the right one does not connect", || {
        sent(&mut *right, &frame(60, 1))?;
        taken(&mut *server)
    });
    assert_eq!(wrong.send(&TxMeta::default(), &frame(60, 0), &[]), Err(TxError::Down));
}

/// A server and a client that are connected, with these options.
fn joined(of_server: &str, of_client: &str) -> [Box<dyn Port>; 2] {
    let name = name();
    let mut server = port(&name, &format!("role=server{of_server}"));
    let mut client = port(&name, &format!("role=client{of_client}"));
    until("they do not connect", || {
        sent(&mut *client, &frame(60, 1))?;
        taken(&mut *server)
    });
    while taken(&mut *server).is_some() {}
    [server, client]
}

/// What a peer sends costs a turn no more than a burst does, whether it is of use or not.
#[test]
fn a_burst_looks_at_no_more_frames_than_it_holds() {
    let [mut server, mut client] = joined("", ",mtu=9000");
    let send_all = |client: &mut dyn Port, len: usize| {
        let full = (0..2000).find(|number| {
            client.send(&TxMeta::default(), &frame(len, *number), &[]) == Err(TxError::Full)
        });
        client.flush();
        full.expect("the ring has an end")
    };
    // Longer than the server takes.
    let count = send_all(&mut *client, 2000);
    assert!(count > 512, "{count} frames");
    for looks in 1..4 {
        assert_eq!(taken(&mut *server), None);
        assert_eq!(server.counters().rx_errors, looks * RxBurst::CAPACITY as u64);
    }
    // Of many buffers each.
    let [mut server, mut client] = joined(",mtu=9000", ",mtu=9000");
    let count = send_all(&mut *client, 9000);
    let mut burst = RxBurst::new();
    server.receive(&mut burst);
    let first = burst.handles.len();
    server.release(&mut burst);
    // Five buffers each, of 256 that a burst looks at.
    assert!((40..=52).contains(&first), "{first} of {count} frames");
}

/// A server that does what it is told.
struct Server {
    socket: OwnedFd,
    memory: File,
    /// Where the rings begin, to the server and to the client.
    rings: [usize; 2],
    slots: u16,
}

fn message(kind: u16, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = [&kind.to_ne_bytes()[..], &parts.concat()].concat();
    bytes.resize(128, 0);
    bytes
}

fn say(socket: &OwnedFd, bytes: &[u8]) {
    let mut none = SendAncillaryBuffer::new(&mut []);
    sendmsg(socket, &[IoSlice::new(bytes)], &mut none, SendFlags::NOSIGNAL).expect("it listens");
}

/// The next message and its descriptor; `None` when the client has hung up.
fn hear(socket: &OwnedFd) -> Option<(Vec<u8>, Option<OwnedFd>)> {
    let limit = Timespec::try_from(PATIENCE).unwrap();
    let heard = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&limit)).expect("poll");
    assert!(heard > 0, "the client says nothing");
    let mut bytes = vec![0; 128];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut room = [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(socket, &mut room, &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut files = ancillary.drain().filter_map(|one| match one {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    let file = files.next();
    (got.bytes == 128).then_some((bytes, file))
}

impl Server {
    fn at(name: &str) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        listen(&socket, 1).unwrap();
        socket
    }

    /// Goes through the handshake as a server must.
    fn accept(listener: &OwnedFd) -> Self {
        let socket = accept(listener).expect("somebody connects");
        let version = 0x200u16.to_ne_bytes();
        say(&socket, &message(2, &[&[0; 32], &version, &version, &[0; 6], &[10]]));
        let (mut memory, mut rings, mut slots) = (None, [0; 2], 0);
        loop {
            let (bytes, file) = hear(&socket).expect("it goes on");
            match u16::from_ne_bytes([bytes[0], bytes[1]]) {
                3 => {}
                4 => memory = file,
                5 => {
                    let is_to_client = usize::from(bytes[2] & 1 == 0);
                    let offset = u32::from_ne_bytes(bytes[8..12].try_into().unwrap());
                    rings[is_to_client] = offset as usize;
                    slots = 1 << bytes[12];
                    assert!(file.is_some(), "a ring comes with the descriptor of its interrupt");
                }
                6 => break,
                other => panic!("message {other}"),
            }
            say(&socket, &message(1, &[]));
        }
        let memory = File::from(memory.expect("a region"));
        let server = Self { socket, memory, rings, slots };
        for ring in rings {
            // As DPDK does.
            server.write(ring + 6, &[0; 2]);
            server.write(ring + 64, &[0; 2]);
        }
        say(&server.socket, &message(7, &[]));
        server
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at as u64).unwrap();
    }

    fn words(&self, at: usize) -> [u32; 4] {
        let mut bytes = [0; 16];
        self.memory.read_exact_at(&mut bytes, at as u64).unwrap();
        std::array::from_fn(|word| u32::from_ne_bytes(*bytes[word * 4..].first_chunk().unwrap()))
    }

    fn head(&self, ring: usize) -> u16 {
        (self.words(self.rings[ring] + 4)[0] >> 16) as u16
    }

    fn descriptor(&self, ring: usize, slot: u16) -> usize {
        self.rings[ring] + 128 + usize::from(slot % self.slots) * 16
    }

    /// Fills the client's next buffer.
    fn send(&self, slot: u16, frame: &[u8]) {
        until("no buffer is offered", || (self.head(1).wrapping_sub(slot) > 0).then_some(()));
        let at = self.descriptor(1, slot);
        let [_, len, offset, _] = self.words(at);
        assert!(len as usize >= frame.len());
        self.write(offset as usize, frame);
        self.write(at + 4, &(frame.len() as u32).to_ne_bytes());
        self.write(self.rings[1] + 64, &slot.wrapping_add(1).to_ne_bytes());
    }
}

#[test]
fn a_server_that_breaks_the_protocol_is_left_and_tried_again() {
    let name = name();
    let listener = Server::at(&name);
    let mut client = port(&name, "role=client");
    let breaches: [fn(&Server); 4] = [
        // A tail beyond what was offered.
        |server| {
            let beyond = server.slots.wrapping_add(2);
            server.write(server.rings[1] + 64, &beyond.to_ne_bytes());
        },
        // More bytes than a buffer has.
        |server| {
            server.write(server.descriptor(1, 1) + 4, &u32::MAX.to_ne_bytes());
            server.write(server.rings[1] + 64, &2u16.to_ne_bytes());
        },
        // A frame without end.
        |server| {
            for slot in 1..server.slots {
                server.write(server.descriptor(1, slot), &1u16.to_ne_bytes());
            }
            server.write(server.rings[1] + 64, &server.slots.to_ne_bytes());
        },
        // Buffers freed that were never sent, noticed as soon as there seems to be no room.
        |server| server.write(server.rings[0] + 64, &700u16.to_ne_bytes()),
    ];
    for (number, breach) in breaches.into_iter().enumerate() {
        let server = Server::accept(&listener);
        server.send(0, &frame(60, number));
        assert_eq!(until("nothing comes", || taken(&mut *client)), frame(60, number));
        breach(&server);
        let before = client.counters().rx_errors;
        until("the breach is not seen", || {
            taken(&mut *client);
            let _ = client.send(&TxMeta::default(), &frame(60, 0), &[]);
            (client.counters().rx_errors > before).then_some(())
        });
        while hear(&server.socket).is_some() {}
        assert_eq!(client.send(&TxMeta::default(), &frame(60, 0), &[]), Err(TxError::Down));
    }
}

#[test]
fn what_a_server_writes_over_regions_and_offsets_is_not_used() {
    let name = name();
    let listener = Server::at(&name);
    let mut client = port(&name, "role=client");
    let server = Server::accept(&listener);
    for number in 0..3000u16 {
        server.send(number, &frame(900, number.into()));
        let at = server.descriptor(1, number);
        server.write(at + 2, &7u16.to_ne_bytes());
        server.write(at + 8, &u32::MAX.to_ne_bytes());
        let came = until("nothing comes", || taken(&mut *client));
        assert_eq!(came, frame(900, number.into()));
        // Described anew before it is offered again.
        let [flags, len, offset, _] = server.words(at);
        assert_eq!((flags, len), (0, 2048), "{number}");
        assert_ne!(offset, u32::MAX, "{number}");
    }
}
