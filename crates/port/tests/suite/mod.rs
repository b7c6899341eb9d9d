//! What every port must do, written once: each function takes two connected ports.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use arch::SharedBytes;
use outboard_port::{Gso, GsoKind, Port, RxBurst, RxChecksum, RxHandle, RxMeta, TxError, TxMeta};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub mod kernel;

/// Two ports joined by some link.
pub struct Connected {
    pub a: Box<dyn Port>,
    pub b: Box<dyn Port>,
    /// Takes the link down and up, where the test can.
    pub set_up: Option<Box<dyn FnMut(bool)>>,
    /// Whether segmentation passes this pair whole.
    pub carries_gso: bool,
    /// Whether a partial checksum arrives partial (and not completed on the way).
    pub carries_partial: bool,
    /// The clock that the ports are told.
    pub now_ns: u64,
}

impl Connected {
    pub fn new(a: Box<dyn Port>, b: Box<dyn Port>) -> Self {
        Self { a, b, set_up: None, carries_gso: true, carries_partial: true, now_ns: 0 }
    }

    pub fn swap(&mut self) {
        std::mem::swap(&mut self.a, &mut self.b);
    }

    /// Lets 20 virtual milliseconds pass: more than any delay or look at a link in this suite.
    pub fn pass_time(&mut self) {
        self.now_ns += 20_000_000;
        self.a.on_time(self.now_ns);
        self.b.on_time(self.now_ns);
    }

    fn send(&mut self, meta: &TxMeta, frame: &[u8], header_len: usize) -> Result<(), TxError> {
        let (header, payload) = frame.split_at(header_len);
        let (first, second) = payload.split_at(payload.len() / 3);
        let pieces = [SharedBytes::from_slice(first), SharedBytes::from_slice(second)];
        self.a.send(meta, header, &pieces)
    }

    fn send_all(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            assert_eq!(self.send(&TxMeta::default(), frame, 14), Ok(()), "{}", frame.len());
        }
        self.a.flush();
        self.pass_time();
    }

    /// Receives at `b` until `count` frames of the suite came.
    pub fn collect(&mut self, count: usize) -> Vec<(Vec<u8>, RxMeta)> {
        let mut frames = Vec::new();
        let mut burst = RxBurst::new();
        let give_up = Instant::now() + Duration::from_secs(10);
        while frames.len() < count {
            assert!(Instant::now() < give_up, "{} of {count} frames came", frames.len());
            self.pass_time();
            self.b.receive(&mut burst);
            // What a wrapper holds back comes with time, not with the descriptor.
            if burst.handles.is_empty() && self.b.next_deadline().is_none() {
                wait(&*self.b, 1_000);
            }
            assert!(burst.handles.len() <= RxBurst::CAPACITY);
            for &handle in &burst.handles {
                let frame = self.b.frame(handle);
                if is_ours(frame.bytes) {
                    frames.push((frame.bytes.to_vec(), frame.meta));
                }
            }
            self.b.release(&mut burst);
            assert!(burst.handles.is_empty());
        }
        frames
    }

    fn drain(&mut self) -> usize {
        let mut burst = RxBurst::new();
        let mut count = 0;
        loop {
            self.pass_time();
            self.b.receive(&mut burst);
            let waiting = [&self.a, &self.b].iter().any(|port| port.next_deadline().is_some());
            if burst.handles.is_empty() && !waiting {
                return count;
            }
            count += burst.handles.len();
            self.b.release(&mut burst);
        }
    }
}

/// Whether frames came within so many milliseconds. True at once for a port that is only polled.
fn wait(port: &dyn Port, timeout_ms: i64) -> bool {
    let Some(fd) = port.wait_fd() else { return true };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = Timespec { tv_sec: timeout_ms / 1_000, tv_nsec: timeout_ms % 1_000 * 1_000_000 };
    poll(&mut fds, Some(&timeout)).unwrap() > 0
}

/// Sends until frames cross: a link that was just brought up drops what is sent at first.
pub fn join(from: &mut dyn Port, to: &mut dyn Port) {
    let give_up = Instant::now() + Duration::from_secs(30);
    let mut burst = RxBurst::new();
    let mut crossed = false;
    while !crossed {
        assert!(Instant::now() < give_up, "the link does not come up");
        // Refused while the interface is down.
        let _ = from.send(&TxMeta::default(), &segment(100), &[]);
        from.flush();
        while wait(to, 20) {
            to.receive(&mut burst);
            let came = !burst.handles.is_empty();
            to.release(&mut burst);
            crossed |= came;
            if !came && to.wait_fd().is_none() {
                break;
            }
        }
    }
}

/// Receives until so many frames of the suite came.
pub fn collect(port: &mut dyn Port, count: usize) {
    let (mut burst, mut got) = (RxBurst::new(), 0);
    let give_up = Instant::now() + Duration::from_secs(10);
    while got < count {
        assert!(Instant::now() < give_up, "{got} of {count} frames came");
        wait(port, 1_000);
        port.receive(&mut burst);
        got += burst.handles.iter().filter(|&&handle| is_ours(port.frame(handle).bytes)).count();
        port.release(&mut burst);
    }
}

/// IEEE 802 local experimental ethertype 1: no kernel touches it.
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The kernel may have something to say on its interfaces; that is not part of the test.
fn is_ours(frame: &[u8]) -> bool {
    frame.get(6..12) == Some(&OURS)
}

fn link_header(ethertype: [u8; 2]) -> Vec<u8> {
    [&[0xff; 6][..], &OURS, &ethertype].concat()
}

/// A frame of this length with a number and bytes that follow from it.
fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut frame = link_header(EXPERIMENTAL);
    frame.extend(number.to_be_bytes());
    let mut state = number;
    while frame.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        frame.push((state >> 24) as u8);
    }
    frame.truncate(len);
    frame
}

/// A TCP segment over IPv4 whose checksum field holds the pseudo-header sum.
pub fn segment(payload: usize) -> Vec<u8> {
    let (src, dst) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    let mut frame = link_header([8, 0]);
    let total = 40 + payload;
    let mut ip = vec![0x45, 0];
    ip.extend((total as u16).to_be_bytes());
    ip.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
    ip.extend(src.octets());
    ip.extend(dst.octets());
    let sum = wire::checksum::Sum::of(&ip).finish();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    let mut tcp = vec![0, 80, 0x1f, 0x90, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0];
    let words = [src.octets(), dst.octets()].concat();
    let pseudo = [&words[..], &[0, 6], &((total - 20) as u16).to_be_bytes()].concat();
    tcp[16..18].copy_from_slice(&wire::checksum::Sum::of(&pseudo).folded().to_be_bytes());
    frame.extend(tcp);
    frame.extend((0..payload).map(|at| (at % 253) as u8));
    frame
}

const SEGMENT_META: TxMeta = TxMeta { checksum: Some((34, 16)), gso: None, header_bytes: 54 };

/// All of the suite, in both directions, each part on new ports.
pub fn run(mut make: impl FnMut() -> Connected) {
    for part in PARTS {
        for swapped in [false, true] {
            let mut ports = make();
            if swapped {
                ports.swap();
            }
            part(&mut ports);
        }
    }
}

const PARTS: &[fn(&mut Connected)] = &[
    frames_arrive_intact_and_in_order,
    a_burst_has_at_most_its_capacity,
    frames_of_the_wrong_length_are_refused_and_counted,
    what_is_not_offered_is_refused,
    a_partial_checksum_arrives_partial_or_completed,
    a_large_frame_arrives_whole_with_its_segment_size,
    a_frame_of_many_pieces_arrives,
    a_flooded_port_makes_progress_again,
    a_foreign_handle_gives_an_empty_frame,
    released_frames_are_gone,
    counters_count_frames_and_bytes,
    the_wait_descriptor_is_readable_while_frames_wait,
    a_link_that_goes_down_and_up_carries_frames_again,
    a_port_outlives_the_other_end,
];

pub fn frames_arrive_intact_and_in_order(ports: &mut Connected) {
    let largest = usize::from(ports.a.info().mtu) + 14;
    let sizes = [18, 60, 64, 65, 127, 128, 1_000, largest - 1, largest];
    let frames: Vec<_> = (0..180).map(|at| numbered(at as u32, sizes[at % sizes.len()])).collect();
    for some in frames.chunks(60) {
        ports.send_all(some);
        let got: Vec<_> = ports.collect(some.len()).into_iter().map(|(bytes, _)| bytes).collect();
        assert_eq!(got, some);
    }
}

fn a_burst_has_at_most_its_capacity(ports: &mut Connected) {
    let frames: Vec<_> = (0..200).map(|at| numbered(at, 100)).collect();
    for some in frames.chunks(50) {
        ports.send_all(some);
    }
    // `collect` looks at every burst.
    assert_eq!(ports.collect(200).len(), 200);
}

fn frames_of_the_wrong_length_are_refused_and_counted(ports: &mut Connected) {
    let mtu = usize::from(ports.a.info().mtu);
    let before = ports.a.counters().tx_errors;
    let meta = TxMeta::default();
    for frame in [numbered(0, mtu + 15), numbered(1, 70_000)] {
        assert_eq!(ports.send(&meta, &frame, 14), Err(TxError::Unsendable));
    }
    assert_eq!(ports.a.send(&meta, &[0; 13], &[]), Err(TxError::Unsendable));
    assert_eq!(ports.a.send(&meta, &[], &[]), Err(TxError::Unsendable));
    assert_eq!(ports.a.counters().tx_errors, before + 4);
    let mut tagged = numbered(2, mtu + 18);
    tagged[12..14].copy_from_slice(&[0x81, 0]);
    assert_eq!(ports.send(&meta, &tagged, 14), Ok(()));
}

fn what_is_not_offered_is_refused(ports: &mut Connected) {
    let offloads = ports.a.info().offloads;
    let frame = segment(8_000);
    for (kind, offered) in [
        (GsoKind::Tcp4, offloads.tso4),
        (GsoKind::Tcp6, offloads.tso6),
        (GsoKind::Udp, offloads.uso),
    ] {
        let meta = TxMeta { gso: Some(Gso { size: 1_000, kind }), ..SEGMENT_META };
        if !offered {
            assert_eq!(ports.send(&meta, &frame, 54), Err(TxError::Unsendable));
        }
    }
    let outside = TxMeta { checksum: Some((60, 16)), ..SEGMENT_META };
    assert_eq!(ports.send(&outside, &segment(100), 54), Err(TxError::Unsendable));
    let no_size = TxMeta { gso: Some(Gso { size: 0, kind: GsoKind::Tcp4 }), ..SEGMENT_META };
    assert_eq!(ports.send(&no_size, &frame, 54), Err(TxError::Unsendable));
}

fn a_partial_checksum_arrives_partial_or_completed(ports: &mut Connected) {
    for payload in [0, 1, 333, 1_400] {
        let sent = segment(payload);
        ports.send(&SEGMENT_META, &sent, 54).unwrap();
        ports.a.flush();
        let (got, meta) = ports.collect(1).remove(0);
        match meta.checksum {
            RxChecksum::Partial { start, offset } => {
                assert!(ports.carries_partial);
                assert_eq!((start, offset), (34, 16));
                assert_eq!(got, sent);
            }
            RxChecksum::Unknown | RxChecksum::Valid => {
                assert!(!ports.carries_partial);
                let mut whole = sent;
                wire::checksum::complete(&mut whole, 34, 16).unwrap();
                assert_eq!(got, whole);
            }
        }
        assert_eq!(meta.gso, None);
    }
}

fn a_large_frame_arrives_whole_with_its_segment_size(ports: &mut Connected) {
    if !ports.a.info().offloads.tso4 || !ports.carries_gso {
        return;
    }
    let gso = Some(Gso { size: 1_400, kind: GsoKind::Tcp4 });
    let meta = TxMeta { gso, ..SEGMENT_META };
    // Beyond 65,535 bytes with the headers, Linux cuts in software.
    let frames: Vec<_> = [2_000, 5_000, 14_000, 64_000, 65_481].map(segment).into();
    for round in 0..5 {
        for frame in &frames {
            assert_eq!(ports.send(&meta, frame, 54), Ok(()), "round {round}");
        }
        ports.a.flush();
        let got = ports.collect(frames.len());
        for ((bytes, meta), sent) in got.iter().zip(&frames) {
            assert_eq!(bytes, sent);
            assert_eq!(meta.gso, gso);
            assert_eq!(meta.checksum, RxChecksum::Partial { start: 34, offset: 16 });
        }
    }
}

fn a_frame_of_many_pieces_arrives(ports: &mut Connected) {
    for len in [600, 1_500] {
        let frame = numbered(3, len);
        let (header, payload) = frame.split_at(20);
        let pieces: Vec<_> = payload.chunks(2).map(SharedBytes::from_slice).collect();
        assert_eq!(ports.a.send(&TxMeta::default(), header, &pieces), Ok(()));
        ports.a.flush();
        assert_eq!(ports.collect(1)[0].0, frame);
    }
}

fn a_flooded_port_makes_progress_again(ports: &mut Connected) {
    let frame = numbered(4, 400);
    let (mut full, mut refused) = (0, 0);
    for _ in 0..5_000 {
        match ports.send(&TxMeta::default(), &frame, 14) {
            Ok(()) => {}
            Err(TxError::Full) => full += 1,
            Err(TxError::Refused) => refused += 1,
            Err(why) => panic!("{why:?}"),
        }
    }
    ports.a.flush();
    assert!(ports.a.counters().tx_full >= full);
    // Only trunks refuse frames: those for one link without room while another has some.
    assert_eq!(ports.a.counters().links_refused, refused);
    let got = ports.drain();
    assert!(got > 0);
    let last = numbered(5, 90);
    // A kernel that is short of its core gives buffers of sent frames back when it comes to it.
    let give_up = Instant::now() + Duration::from_secs(10);
    while let Err(TxError::Full | TxError::Refused) = ports.send(&TxMeta::default(), &last, 14) {
        assert!(Instant::now() < give_up, "it makes no progress");
        ports.a.flush();
        ports.drain();
    }
    ports.a.flush();
    ports.pass_time();
    let mut burst = Vec::new();
    // By another link of a trunk it may come before frames that wait for theirs.
    while burst.iter().all(|(bytes, _)| *bytes != last) {
        ports.pass_time();
        ports.a.flush();
        burst = ports.collect(1);
    }
}

fn a_foreign_handle_gives_an_empty_frame(ports: &mut Connected) {
    for handle in [0, 63, 64, 100_000, u32::MAX] {
        assert!(ports.a.frame(RxHandle(handle)).bytes.is_empty());
    }
}

fn released_frames_are_gone(ports: &mut Connected) {
    ports.send_all(&[numbered(6, 80)]);
    let mut burst = RxBurst::new();
    while burst.handles.is_empty() {
        if ports.b.next_deadline().is_none() {
            wait(&*ports.b, 1_000);
        }
        ports.pass_time();
        ports.b.receive(&mut burst);
    }
    let handles = burst.handles.clone();
    ports.b.release(&mut burst);
    for handle in handles {
        assert!(ports.b.frame(handle).bytes.is_empty());
    }
    ports.b.release(&mut burst);
    ports.send_all(&[numbered(7, 80)]);
    assert_eq!(ports.collect(1)[0].0, numbered(7, 80));
}

fn counters_count_frames_and_bytes(ports: &mut Connected) {
    let (sent, seen) = (ports.a.counters(), ports.b.counters());
    ports.send_all(&[numbered(8, 100), numbered(9, 200)]);
    ports.collect(2);
    let (sent_after, seen_after) = (ports.a.counters(), ports.b.counters());
    assert_eq!(sent_after.tx_frames - sent.tx_frames, 2);
    assert_eq!(sent_after.tx_bytes - sent.tx_bytes, 300);
    assert!(seen_after.rx_frames - seen.rx_frames >= 2);
    assert!(seen_after.rx_bytes - seen.rx_bytes >= 300);
}

fn the_wait_descriptor_is_readable_while_frames_wait(ports: &mut Connected) {
    if ports.b.wait_fd().is_none() {
        return;
    }
    ports.drain();
    assert!(!wait(&*ports.b, 0), "nothing has been sent");
    ports.send_all(&[numbered(10, 100)]);
    assert!(wait(&*ports.b, 10_000));
    ports.collect(1);
    ports.drain();
    assert!(!wait(&*ports.b, 0), "all has been received");
}

fn a_link_that_goes_down_and_up_carries_frames_again(ports: &mut Connected) {
    let Some(mut set_up) = ports.set_up.take() else { return };
    set_up(false);
    let before = ports.a.counters();
    let mut refused = false;
    for at in 0..100 {
        refused |= ports.send(&TxMeta::default(), &numbered(at, 100), 14) == Err(TxError::Down);
        ports.a.flush();
    }
    assert!(refused);
    ports.drain();
    assert!(ports.a.counters().tx_errors > before.tx_errors);
    // A dead link must not keep a sleeper awake.
    assert!(ports.b.wait_fd().is_none() || !wait(&*ports.b, 0));
    set_up(true);
    ports.pass_time();
    // The first frames after a change may still be lost; some must pass.
    let mut burst = RxBurst::new();
    let give_up = Instant::now() + Duration::from_secs(10);
    while burst.handles.is_empty() {
        assert!(Instant::now() < give_up, "nothing came after the link was up again");
        let _lost = ports.send(&TxMeta::default(), &numbered(11, 100), 14);
        ports.a.flush();
        ports.pass_time();
        ports.b.receive(&mut burst);
    }
    ports.b.release(&mut burst);
}

fn a_port_outlives_the_other_end(ports: &mut Connected) {
    let (other, _, _) = outboard_port::pair::pair(&outboard_port::pair::PairConfig::default());
    ports.send_all(&[numbered(12, 100)]);
    drop(std::mem::replace(&mut ports.a, Box::new(other)));
    ports.swap();
    for at in 0..100 {
        let _lost = ports.send(&TxMeta::default(), &numbered(at, 100), 14);
        ports.a.flush();
        ports.pass_time();
    }
    ports.swap();
    ports.drain();
}
