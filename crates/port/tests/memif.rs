//! memif against a client of the tests' own, which reaches its memory by pread and pwrite. Nothing here
//! starts a program: a child would hold every descriptor for a moment, and hang-ups would come late.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use outboard_port::{Port, PortSpec, RxBurst, TxError, TxMeta, from_fds, open};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, sendmsg, socket_with,
};

const PATIENCE: Duration = Duration::from_secs(30);
const SLOTS: u16 = 16;
const BUFFER: usize = 512;
const RING_BYTES: usize = 128 + SLOTS as usize * 16;
const TO_SERVER: usize = 0;
const TO_CLIENT: usize = RING_BYTES;
const BUFFERS: usize = 4096;
const REGION: usize = BUFFERS + 2 * SLOTS as usize * BUFFER;

static NEXT: AtomicU32 = AtomicU32::new(0);

fn path() -> PathBuf {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("outboard-memif-{}-{number}", std::process::id()))
}

fn port(options: &str) -> (Box<dyn Port>, PathBuf) {
    let path = path();
    let text = format!("memif:{}{options}", path.display());
    let spec: PortSpec = text.parse().expect("a port");
    (from_fds(open(&spec).expect("it opens")).expect("it runs"), path)
}

/// What a client says and shows; the tests change parts of it.
#[derive(Clone)]
struct Words {
    id: u32,
    secret: &'static str,
    is_sealed: bool,
    region_bytes: u64,
    ring_offset: u32,
    cookie: u32,
}

const GOOD: Words = Words {
    id: 3,
    secret: "",
    is_sealed: true,
    region_bytes: REGION as u64,
    ring_offset: TO_CLIENT as u32,
    cookie: 0x3e3_1f20,
};

/// A descriptor as a client writes it.
struct Descriptor {
    /// 1: the frame goes on in the next one.
    flags: u16,
    /// Bytes of its buffer.
    len: u32,
    /// Where its buffer lies in the region.
    offset: u32,
}

struct Client {
    socket: OwnedFd,
    memory: File,
    /// Frames sent, and frames received.
    head: u16,
    taken: u16,
}

fn message(kind: u16, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = [&kind.to_ne_bytes()[..], &parts.concat()].concat();
    bytes.resize(128, 0);
    bytes
}

fn hear(socket: &OwnedFd) -> Option<Vec<u8>> {
    let limit = Timespec::try_from(PATIENCE).unwrap();
    let heard = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&limit)).expect("poll");
    assert!(heard > 0, "the port says nothing");
    let mut bytes = vec![0; 128];
    // What the port said before it closed comes behind the error, if it left something unread.
    for _ in 0..2 {
        match recv(socket, bytes.as_mut_slice(), RecvFlags::empty()) {
            Ok((128, _)) => return Some(bytes),
            Err(Errno::CONNRESET) => {}
            _ => return None,
        }
    }
    None
}

fn say(socket: &OwnedFd, bytes: &[u8], file: Option<BorrowedFd<'_>>) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = file.into_iter().collect();
    if !files.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
    }
    // One that was refused says so itself.
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
}

impl Client {
    /// Connects, or is told why not.
    fn connect(path: &PathBuf, words: &Words) -> Result<Self, String> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(path).unwrap()).expect("somebody listens");
        let memfd = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
        let memory = File::from(memfd_create("client", memfd).unwrap());
        memory.set_len(REGION as u64).unwrap();
        if words.is_sealed {
            fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
        }
        let client = Self { socket, memory, head: 0, taken: 0 };
        for ring in [TO_SERVER, TO_CLIENT] {
            client.write(ring, &words.cookie.to_ne_bytes());
        }
        // All of its buffers for frames to it are offered.
        for slot in 0..SLOTS {
            let offset = buffer(SLOTS + slot) as u32;
            client.describe(TO_CLIENT, slot, Descriptor { flags: 0, len: BUFFER as u32, offset });
        }
        client.write(TO_CLIENT + 6, &SLOTS.to_ne_bytes());
        let mut secret = [0; 24];
        secret[..words.secret.len()].copy_from_slice(words.secret.as_bytes());
        let init = [&[0u8, 2][..], &words.id.to_ne_bytes(), &[0], &secret];
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let add = |flags: u16, offset: u32| {
            message(5, &[&flags.to_ne_bytes(), &[0; 4], &offset.to_ne_bytes(), &[4], &[0; 2]])
        };
        let region = message(4, &[&[0; 2], &words.region_bytes.to_ne_bytes()]);
        let socket = &client.socket;
        say(socket, &message(3, &init), None);
        say(socket, &region, Some(client.memory.as_fd()));
        say(socket, &add(1, TO_SERVER as u32), Some(interrupt.as_fd()));
        say(socket, &add(0, words.ring_offset), Some(interrupt.as_fd()));
        say(socket, &message(6, &[]), None);
        let mut kinds = Vec::new();
        loop {
            let Some(heard) = hear(socket) else { return Err("hung up".into()) };
            let kind = u16::from_ne_bytes([heard[0], heard[1]]);
            kinds.push(kind);
            match kind {
                7 => break,
                8 => {
                    let text: Vec<u8> =
                        heard[6..].iter().copied().take_while(|b| *b != 0).collect();
                    return Err(String::from_utf8(text).unwrap());
                }
                _ => {}
            }
        }
        assert_eq!(kinds, [2, 1, 1, 1, 1, 7]);
        Ok(client)
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at as u64).unwrap();
    }

    fn short(&self, at: usize) -> u16 {
        let mut bytes = [0; 2];
        self.memory.read_exact_at(&mut bytes, at as u64).unwrap();
        u16::from_ne_bytes(bytes)
    }

    fn describe(&self, ring: usize, slot: u16, buffer: Descriptor) {
        let at = ring + 128 + usize::from(slot % SLOTS) * 16;
        let words = [u32::from(buffer.flags), buffer.len, buffer.offset, 0];
        self.write(at, &words.map(u32::to_ne_bytes).concat());
    }

    /// Sends a frame, in as many buffers as it takes.
    fn send(&mut self, frame: &[u8]) {
        let end = Instant::now() + PATIENCE;
        let parts: Vec<&[u8]> = frame.chunks(BUFFER).collect();
        while SLOTS - self.head.wrapping_sub(self.short(TO_SERVER + 64)) < parts.len() as u16 {
            assert!(Instant::now() < end, "the port takes nothing");
        }
        for (number, part) in parts.iter().enumerate() {
            let slot = self.head.wrapping_add(number as u16);
            self.write(buffer(slot % SLOTS), part);
            let flags = u16::from(number + 1 < parts.len());
            let (len, offset) = (part.len() as u32, buffer(slot % SLOTS) as u32);
            self.describe(TO_SERVER, slot, Descriptor { flags, len, offset });
        }
        self.head = self.head.wrapping_add(parts.len() as u16);
        self.write(TO_SERVER + 6, &self.head.to_ne_bytes());
    }

    /// The next frame, if there is one; its buffers are offered again.
    fn receive(&mut self) -> Option<Vec<u8>> {
        let tail = self.short(TO_CLIENT + 64);
        let mut frame = Vec::new();
        while self.taken != tail {
            let slot = self.taken % SLOTS;
            let at = TO_CLIENT + 128 + usize::from(slot) * 16;
            let mut words = [0; 16];
            self.memory.read_exact_at(&mut words, at as u64).unwrap();
            let len = u32::from_ne_bytes(words[4..8].try_into().unwrap()) as usize;
            let from = frame.len();
            frame.resize(from + len, 0);
            let place = buffer(SLOTS + slot) as u64;
            self.memory.read_exact_at(&mut frame[from..], place).unwrap();
            let (len, offset) = (BUFFER as u32, place as u32);
            self.describe(TO_CLIENT, slot, Descriptor { flags: 0, len, offset });
            self.taken = self.taken.wrapping_add(1);
            self.write(TO_CLIENT + 6, &self.taken.wrapping_add(SLOTS).to_ne_bytes());
            if words[0] & 1 == 0 {
                return Some(frame);
            }
        }
        assert!(frame.is_empty(), "a frame without its end");
        None
    }

    /// Waits until the port has hung up.
    fn is_hung_up(&self) -> bool {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if hear(&self.socket).is_none() {
                return true;
            }
        }
        false
    }
}

fn buffer(number: u16) -> usize {
    BUFFERS + usize::from(number) * BUFFER
}

fn frame(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(7) ^ seed) as u8).collect()
}

/// All frames of the next burst that has any.
fn received(port: &mut dyn Port) -> Vec<Vec<u8>> {
    let (mut burst, end) = (RxBurst::new(), Instant::now() + PATIENCE);
    loop {
        port.receive(&mut burst);
        if !burst.handles.is_empty() {
            let frames = burst.handles.iter().map(|one| port.frame(*one).bytes.to_vec()).collect();
            port.release(&mut burst);
            return frames;
        }
        assert!(Instant::now() < end, "nothing comes");
    }
}

/// Sends as soon as the port lets it.
fn send(port: &mut dyn Port, frame: &[u8]) {
    let end = Instant::now() + PATIENCE;
    while port.send(&TxMeta::default(), frame, &[]).is_err() {
        assert!(Instant::now() < end, "the port takes nothing");
    }
    port.flush();
}

#[test]
fn frames_go_both_ways_whole_and_in_order() {
    let (mut port, path) = port(",id=3");
    let mut client = Client::connect(&path, &GOOD).expect("it connects");
    // Once round the positions of 16 bits, and frames in one buffer to three.
    for number in 0..30_000 {
        let len = [60, 500, 513, 1024, 1500][number % 5];
        client.send(&frame(len, number));
        assert_eq!(received(&mut *port), [frame(len, number)]);
        send(&mut *port, &frame(len, number + 1));
        assert_eq!(client.receive(), Some(frame(len, number + 1)));
    }
    let counters = port.counters();
    assert_eq!((counters.rx_frames, counters.tx_frames, counters.rx_errors), (30_000, 30_000, 0));
}

#[test]
fn a_peer_that_reads_nothing_fills_its_own_ring_alone() {
    let (mut port, path) = port(",id=3");
    let mut client = Client::connect(&path, &GOOD).expect("it connects");
    send(&mut *port, &frame(60, 0));
    let mut sent = 1;
    while port.send(&TxMeta::default(), &frame(600, sent), &[]) == Ok(()) {
        sent += 1;
    }
    assert_eq!(port.send(&TxMeta::default(), &frame(600, 0), &[]), Err(TxError::Full));
    port.flush();
    assert_eq!(sent, 8, "of 16 buffers one is used, and two for each frame");
    assert_eq!(client.receive(), Some(frame(60, 0)));
    for number in 1..sent {
        assert_eq!(client.receive(), Some(frame(600, number)));
    }
    send(&mut *port, &frame(600, 99));
    assert_eq!(client.receive(), Some(frame(600, 99)));
}

#[test]
fn who_says_the_wrong_thing_is_told_and_another_may_come() {
    let (mut port, path) = port(",id=3,secret=sesame");
    for (words, said) in [
        (GOOD, "secret"),
        (Words { id: 4, secret: "sesame", ..GOOD }, "no interface 4"),
        (Words { is_sealed: false, secret: "sesame", ..GOOD }, "F_SEAL_SHRINK"),
        (Words { region_bytes: 1 << 21, secret: "sesame", ..GOOD }, "memfd has"),
        (Words { region_bytes: 1 << 40, secret: "sesame", ..GOOD }, "more than"),
        (Words { ring_offset: REGION as u32 - 64, secret: "sesame", ..GOOD }, "not lie in"),
        (Words { ring_offset: 3, secret: "sesame", ..GOOD }, "not lie in"),
        (Words { cookie: 7, secret: "sesame", ..GOOD }, "cookie"),
    ] {
        let why = Client::connect(&path, &words).err().expect(said);
        assert!(why.contains(said), "{said}: {why}");
    }
    let words = Words { secret: "sesame", ..GOOD };
    let mut client = Client::connect(&path, &words).expect("it connects");
    let second = Client::connect(&path, &words).err().expect("one at a time");
    assert!(second.contains("peer already"), "{second}");
    client.send(&frame(60, 1));
    assert_eq!(received(&mut *port), [frame(60, 1)]);
}

#[test]
fn a_peer_that_breaks_the_protocol_is_disconnected_and_another_may_come() {
    let (mut port, path) = port(",id=3");
    let breaches: [fn(&mut Client); 5] = [
        // A head beyond the ring.
        |client| {
            let beyond = client.head.wrapping_add(SLOTS + 1);
            client.write(TO_SERVER + 6, &beyond.to_ne_bytes());
        },
        // Bytes outside of the region, and a region that there is not.
        |client| {
            let past = Descriptor { flags: 0, len: 60, offset: REGION as u32 - 8 };
            client.describe(TO_SERVER, client.head, past);
            client.write(TO_SERVER + 6, &client.head.wrapping_add(1).to_ne_bytes());
        },
        |client| {
            let all = Descriptor { flags: 0, len: u32::MAX, offset: u32::MAX };
            client.describe(TO_SERVER, client.head, all);
            client.write(TO_SERVER + 6, &client.head.wrapping_add(1).to_ne_bytes());
        },
        |client| {
            let at = TO_SERVER + 128 + usize::from(client.head % SLOTS) * 16;
            client.write(at + 2, &9u16.to_ne_bytes());
            client.write(TO_SERVER + 6, &client.head.wrapping_add(1).to_ne_bytes());
        },
        // A chain without end.
        |client| {
            for slot in 0..SLOTS {
                let one = Descriptor { flags: 1, len: 60, offset: BUFFERS as u32 };
                client.describe(TO_SERVER, slot, one);
            }
            client.write(TO_SERVER + 6, &client.head.wrapping_add(SLOTS).to_ne_bytes());
        },
    ];
    for (number, breach) in breaches.into_iter().enumerate() {
        let mut client = Client::connect(&path, &GOOD).expect("it connects");
        client.send(&frame(60, number));
        assert_eq!(received(&mut *port), [frame(60, number)]);
        breach(&mut client);
        let (mut burst, end) = (RxBurst::new(), Instant::now() + PATIENCE);
        while port.counters().rx_errors <= number as u64 {
            port.receive(&mut burst);
            port.release(&mut burst);
            assert!(Instant::now() < end, "breach {number} is not seen");
        }
        assert!(client.is_hung_up(), "breach {number}");
        let sent = port.send(&TxMeta::default(), &frame(60, 0), &[]);
        assert_eq!(sent, Err(TxError::Down), "breach {number}");
    }
}

#[test]
fn a_peer_that_goes_leaves_the_port_down_until_the_next_comes() {
    let (mut port, path) = port(",id=3");
    for number in 0..10 {
        assert_eq!(port.send(&TxMeta::default(), &frame(60, 0), &[]), Err(TxError::Down));
        let mut client = Client::connect(&path, &GOOD).expect("it connects");
        send(&mut *port, &frame(60, number));
        assert_eq!(client.receive(), Some(frame(60, number)));
        drop(client);
        let end = Instant::now() + PATIENCE;
        while port.send(&TxMeta::default(), &frame(60, 0), &[]) != Err(TxError::Down) {
            assert!(Instant::now() < end, "the end is not noticed");
        }
    }
}

/// Long words and short ones, many descriptors, none: nobody but the one who says them suffers.
#[test]
fn garbage_on_the_control_socket_ends_its_connection_alone() {
    let (mut port, path) = port(",id=3");
    let garbage: [Vec<u8>; 4] = [vec![0; 4], message(99, &[]), message(4, &[]), vec![0xff; 4000]];
    for words in garbage {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(&path).unwrap()).expect("somebody listens");
        say(&socket, &words, None);
        let mut bytes = [0; 128];
        let mut room = [IoSliceMut::new(&mut bytes)];
        let end = Instant::now() + PATIENCE;
        let mut last = None;
        while last != Some(8) {
            assert!(Instant::now() < end, "it is not told: {last:?}");
            match rustix::io::readv(&socket, &mut room) {
                Ok(128) => {}
                Err(Errno::CONNRESET) => continue,
                other => panic!("it is not told: {last:?}, {other:?}"),
            }
            last = Some(u16::from_ne_bytes([room[0][0], room[0][1]]));
        }
    }
    let mut client = Client::connect(&path, &GOOD).expect("it connects");
    client.send(&frame(60, 1));
    assert_eq!(received(&mut *port), [frame(60, 1)]);
}
