//! Captures of a pair, read back here and by tcpdump where there is one.

use std::process::Command;
use std::sync::mpsc;

use super::*;
use crate::pair::{PairConfig, PairPort, pair};

#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Setup {
    near: Captured<PairPort>,
    far: PairPort,
    switch: Switch,
    output: Output,
}

fn everything() -> Filter {
    Filter::compile("").unwrap()
}

fn setup() -> Setup {
    let config = PairConfig { frames_max: 1 << 20, ..PairConfig::default() };
    let (near, far, _) = pair(&config);
    let (near, switch) = wrap(near);
    Setup { near, far, switch, output: Output::default() }
}

fn frame(number: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![number; len];
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes
}

fn turn(setup: &mut Setup, now_ns: u64) {
    setup.near.on_time(now_ns);
    let mut burst = RxBurst::new();
    setup.near.receive(&mut burst);
    setup.near.release(&mut burst);
    setup.near.flush();
}

/// The frames in a file: time, direction, original length, bytes.
fn frames(file: &[u8]) -> Vec<(u64, u32, u32, Vec<u8>)> {
    let word = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut frames) = (0, Vec::new());
    while at < file.len() {
        let len = word(at + 4) as usize;
        assert_eq!(word(at + len - 4) as usize, len, "a block's two lengths agree");
        if word(at) == 6 {
            let captured = word(at + 20) as usize;
            let time = u64::from(word(at + 12)) << 32 | u64::from(word(at + 16));
            let flags = word(at + 28 + captured.next_multiple_of(4) + 4);
            frames.push((time, flags, word(at + 24), file[at + 28..at + 28 + captured].to_vec()));
        }
        at += len;
    }
    assert_eq!(at, file.len());
    frames
}

#[test]
fn frames_of_both_directions_are_captured_while_the_switch_is_on() {
    let mut s = setup();
    s.near.send(&TxMeta::default(), &frame(1, 60), &[]).unwrap();
    s.switch.start(s.output.clone(), everything(), 0, 1_000).unwrap();
    let (sent, came) = (frame(2, 61), frame(3, 1_000));
    s.near.on_time(5);
    let (header, payload) = sent.split_at(20);
    let pieces = payload.chunks(7).map(SharedBytes::from_slice).collect::<Vec<_>>();
    s.near.send(&TxMeta::default(), header, &pieces).unwrap();
    s.far.send(&TxMeta::default(), &came, &[]).unwrap();
    turn(&mut s, 7 << 32);
    assert_eq!(s.switch.stop().unwrap(), Some(CaptureCounters { captured: 2, dropped: 0 }));
    s.near.send(&TxMeta::default(), &frame(4, 60), &[]).unwrap();
    turn(&mut s, 8 << 32);
    let got = frames(&lock(&s.output.0));
    assert_eq!(got, [(1_005, 2, 61, sent), ((7 << 32) + 1_000, 1, 1_000, came)]);
    assert_eq!(s.switch.stop().unwrap(), None);
}

#[test]
fn a_snap_length_cuts_frames_and_keeps_their_length() {
    let mut s = setup();
    s.switch.start(s.output.clone(), everything(), 30, 0).unwrap();
    let sent = frame(2, 100);
    let (header, payload) = sent.split_at(20);
    let pieces = payload.chunks(7).map(SharedBytes::from_slice).collect::<Vec<_>>();
    s.near.send(&TxMeta::default(), header, &pieces).unwrap();
    s.near.send(&TxMeta::default(), &sent, &[]).unwrap();
    turn(&mut s, 1);
    s.switch.stop().unwrap();
    let got = frames(&lock(&s.output.0));
    assert_eq!(got.len(), 2);
    for (_, _, len, bytes) in got {
        assert_eq!((len, &bytes[..]), (100, &sent[..30]));
    }
}

#[test]
fn a_second_capture_follows_the_first_and_two_at_once_are_refused() {
    let mut s = setup();
    for number in 0..3 {
        let output = Output::default();
        s.switch.start(output.clone(), everything(), 0, 0).unwrap();
        let refused = s.switch.start(Output::default(), everything(), 0, 0).unwrap_err();
        assert!(refused.to_string().contains("stop that capture first"));
        s.near.send(&TxMeta::default(), &frame(number, 60), &[]).unwrap();
        turn(&mut s, 1);
        assert_eq!(s.switch.counters().unwrap().captured, 1);
        s.switch.stop().unwrap();
        assert_eq!(frames(&lock(&output.0))[0].3, frame(number, 60));
    }
}

/// An output that takes nothing until it is let.
struct Stuck(mpsc::Receiver<()>);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ended = self.0.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stuck_output_costs_frames_of_the_capture_and_never_the_worker() {
    let mut s = setup();
    let (release, stuck) = mpsc::channel();
    s.switch.start(Stuck(stuck), everything(), 0, 0).unwrap();
    let sent = 20_000;
    for _ in 0..sent {
        s.near.send(&TxMeta::default(), &frame(1, 1_500), &[]).unwrap();
    }
    turn(&mut s, 1);
    let counters = s.switch.counters().unwrap();
    assert_eq!(counters.captured + counters.dropped, sent);
    assert!(counters.dropped > 0);
    drop(release);
    s.switch.stop().unwrap();
}

#[test]
fn an_output_that_fails_ends_the_capture_and_is_told() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut s = setup();
    s.switch.start(Full, everything(), 0, 0).unwrap();
    for now in 0..1_000 {
        s.near.send(&TxMeta::default(), &frame(1, 1_500), &[]).unwrap();
        turn(&mut s, now);
    }
    assert_eq!(s.switch.stop().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
}

#[test]
fn tcpdump_reads_what_is_written() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        return skips::skip("tcpdump_reads_what_is_written", "tcpdump", "it is not installed");
    }
    let mut s = setup();
    let path = std::env::temp_dir().join(format!("outboard-pcap-{}.pcapng", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    s.switch.start(file, everything(), 0, 1_700_000_000_000_000_000).unwrap();
    s.near.on_time(123_456_789);
    s.near.send(&TxMeta::default(), &frame(1, 60), &[]).unwrap();
    s.near.send(&TxMeta::default(), &frame(2, 61), &[]).unwrap();
    turn(&mut s, 123_456_790);
    s.switch.stop().unwrap();
    let read = Command::new("tcpdump")
        .args(["-n", "-tt", "--nano", "-e", "-r"])
        .arg(&path)
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    let text = String::from_utf8_lossy(&read.stdout);
    let errors = String::from_utf8_lossy(&read.stderr);
    let lines: Vec<_> = text.lines().filter(|line| line.contains("0x88b5")).collect();
    assert_eq!(lines.len(), 2, "{text}{errors}");
    assert!(lines[0].starts_with("1700000000.123456789"), "{text}{errors}");
    assert!(lines[1].contains("length 61"), "{text}{errors}");
}
