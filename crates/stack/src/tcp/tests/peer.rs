//! One end against a scripted peer. Segments are lines in the manner of packetdrill, numbers
//! relative to each side's SYN:
//!
//! `P. 1:101 ack 1 win 5000 sack 201:301 ts 7 uto 60` — flags (S F R P U E W and `.` for ACK), range of
//! sequence numbers, and what else matters. `[3] ` before it is the type of service.

use std::net::SocketAddr;

use wire::tcp::{
    SackBlock, SeqNumber, TcpFlags, TcpHeader, TcpOptions as WireOptions, Timestamps, UserTimeout,
};

use super::pair::{Host, MS};
use crate::api::*;
use crate::drops::DropReason;
use crate::tcp::{Ends, SegmentRx, TcpSettings};

const INTERFACE: InterfaceIndex = InterfaceIndex(0);
const PEER_ISN: SeqNumber = SeqNumber(u32::MAX - 1000);
const REMOTE: ([u8; 4], u16) = ([10, 0, 0, 9], 5000);

/// Options of the peer's SYN.
#[derive(Clone, Copy)]
pub struct Offer {
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    pub sack: bool,
    pub timestamps: bool,
    pub window: u16,
}

/// A plain peer: MSS 1000, SACK, no timestamps, no scale.
pub const PLAIN: Offer =
    Offer { mss: Some(1000), scale: None, sack: true, timestamps: false, window: 60000 };

pub struct Peer {
    pub now: Instant,
    pub host: Host,
    pub offer: Offer,
    pub id: SocketId,
    pub listener: Option<SocketId>,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub iss: SeqNumber,
    pub last: Option<(TcpHeader, WireOptions)>,
    /// Type of service of the last segment sent.
    pub tos: u8,
    /// Our port refuses what is sent.
    pub refuses: bool,
}

impl Peer {
    fn bare(offer: Offer) -> Self {
        let host = Host::new(1, 1500, false);
        let nobody = SocketId { index: u32::MAX, generation: 0 };
        Self {
            // A round number of seconds, so that times in tests are easy to read.
            now: Instant(1_000_000_000),
            local: SocketAddr::new(host.address, 80),
            host,
            offer,
            id: nobody,
            listener: None,
            remote: SocketAddr::from(REMOTE),
            iss: SeqNumber(0),
            last: None,
            tos: 0,
            refuses: false,
        }
    }

    pub fn listening(options: TcpOptions) -> Self {
        Self::listening_to(PLAIN, options)
    }

    pub fn listening_to(offer: Offer, options: TcpOptions) -> Self {
        let mut peer = Self::bare(offer);
        let listener = peer.host.tcp.listen(peer.local, 8, options, Owner(1)).unwrap();
        peer.listener = Some(listener);
        peer
    }

    pub fn syn_sent(offer: Offer, options: TcpOptions) -> Self {
        let mut peer = Self::bare(offer);
        peer.ask(options);
        peer
    }

    /// Our SYN over a route that says `metrics`.
    pub fn asking_over(metrics: Metrics, offer: Offer) -> Self {
        let mut peer = Self::bare(offer);
        peer.route(metrics);
        peer.ask(TcpOptions::default());
        peer
    }

    /// The route to the peer says `metrics` from now on.
    pub fn route(&mut self, metrics: Metrics) {
        let config = self.host.routes.interface(INTERFACE).expect("an interface").clone();
        let network = self.remote.ip();
        let way = Destination { network, prefix: 32, gateway: None, metrics };
        let config = InterfaceConfig { routes: vec![way], ..config };
        assert!(self.host.routes.replace(INTERFACE, config));
    }

    /// With other settings than usual; our SYN beside it.
    pub fn asking(settings: TcpSettings, options: TcpOptions) -> (Self, String) {
        let mut peer = Self::bare(PLAIN);
        peer.host.tcp.shared.settings = settings;
        let syn = peer.ask(options);
        (peer, syn)
    }

    fn ask(&mut self, options: TcpOptions) -> String {
        let peer = self;
        let route = peer.host.routes.lookup(peer.remote.ip()).unwrap();
        let local = SocketAddr::new(peer.host.address, 4000);
        peer.local = local;
        peer.id = peer
            .host
            .tcp
            .connect(
                peer.now,
                &route,
                TcpConnect { remote: peer.remote, local: Some(local), options, owner: Owner(2) },
            )
            .unwrap();
        peer.learn_iss()
    }

    /// Takes our SYN off the wire to know where our numbers start.
    pub fn learn_iss(&mut self) -> String {
        let text = self.sent_raw(true);
        self.iss = self.last.expect("a SYN").0.seq;
        text
    }

    pub fn syn_received(offer: Offer, options: TcpOptions) -> Self {
        let mut peer = Self::listening_to(offer, options);
        peer.send("S 0:0");
        peer.learn_iss();
        peer
    }

    pub fn established() -> Self {
        Self::established_with(PLAIN, TcpOptions::default())
    }

    pub fn established_with(offer: Offer, options: TcpOptions) -> Self {
        Self::syn_received(offer, options).accepted()
    }

    /// The handshake is over, and the program has it.
    pub fn accepted(mut self) -> Self {
        self.send(". 1:1 ack 1");
        self.id = self.host.tcp.accept(self.listener.unwrap()).unwrap().expect("accepted").id;
        self.host.tcp.assign(self.id, Owner(2)).unwrap();
        self.state(TcpState::Established);
        self
    }

    /// With a round-trip time of 40 ms, during which there is room for reordering.
    pub fn distant() -> Self {
        let mut peer = Self::syn_received(PLAIN, TcpOptions::default());
        peer.wait(40);
        peer.accepted()
    }

    /// The same where the interface cuts large segments.
    pub fn distant_with_large_frames() -> Self {
        Self::distant_with_large_frames_and(TcpSettings::default())
    }

    pub fn distant_with_large_frames_and(settings: TcpSettings) -> Self {
        let mut peer = Self::listening(TcpOptions::default());
        peer.host.tcp.shared.settings = settings;
        let config = peer.host.routes.interface(INTERFACE).expect("an interface").clone();
        assert!(peer.host.routes.replace(INTERFACE, InterfaceConfig { tso: true, ..config }));
        peer.send("S 0:0");
        peer.learn_iss();
        peer.wait(40);
        peer.accepted()
    }

    pub fn fin_wait_1() -> Self {
        let mut peer = Self::established();
        peer.shutdown();
        peer.expect("F. 1:1 ack 1");
        peer.state(TcpState::FinWait1);
        peer
    }

    pub fn fin_wait_2() -> Self {
        let mut peer = Self::fin_wait_1();
        peer.send(". 1:1 ack 2");
        peer.state(TcpState::FinWait2);
        peer
    }

    pub fn closing() -> Self {
        let mut peer = Self::fin_wait_1();
        peer.send("F. 1:1 ack 1");
        peer.expect(". 2:2 ack 2");
        peer.state(TcpState::Closing);
        peer
    }

    pub fn time_wait() -> Self {
        let mut peer = Self::fin_wait_2();
        peer.send("F. 1:1 ack 2");
        peer.expect(". 2:2 ack 2");
        peer.state(TcpState::TimeWait);
        peer
    }

    pub fn close_wait() -> Self {
        let mut peer = Self::established();
        peer.send("F. 1:1 ack 1");
        peer.expect(". 1:1 ack 2");
        peer.state(TcpState::CloseWait);
        peer
    }

    pub fn last_ack() -> Self {
        let mut peer = Self::close_wait();
        peer.shutdown();
        peer.expect("F. 1:1 ack 2");
        peer.state(TcpState::LastAck);
        peer
    }

    #[track_caller]
    pub fn state(&self, state: TcpState) {
        assert_eq!(self.levels().state, state);
    }

    #[track_caller]
    pub fn levels(&self) -> TcpLevels {
        self.host.tcp.levels(self.id).expect("the connection is there")
    }

    pub fn is_gone(&self) -> bool {
        self.host.tcp.levels(self.id).is_err()
    }

    pub fn write(&mut self, len: usize) {
        let bytes = super::pair::pattern(len, 3);
        self.host.write(self.now, self.id, &bytes);
    }

    pub fn shutdown(&mut self) {
        self.host.tcp.shutdown(self.now, self.id).unwrap();
    }

    pub fn close(&mut self) {
        self.host.tcp.close(self.now, self.id).unwrap();
    }

    pub fn read(&mut self) -> u64 {
        self.host.read_all(self.now, self.id)
    }

    pub fn set_options(&mut self, change: impl FnOnce(&mut TcpOptions)) {
        let mut options = TcpOptions::default();
        change(&mut options);
        self.host.tcp.set_options(self.now, self.id, options).unwrap();
    }

    /// TCP_QUICKACK.
    pub fn quickack(&mut self, on: bool) {
        self.host.tcp.set_quickack(self.now, self.id, on).unwrap();
    }

    /// Lets time pass; timers run when they are due.
    pub fn wait(&mut self, ms: u64) {
        let end = self.now.0 + ms * MS;
        while let Some(next) = self.host.tcp.next_deadline().filter(|next| next.0 <= end) {
            self.now.0 = self.now.0.max(next.0);
            self.run_timers();
            if self.host.tcp.next_deadline().is_some_and(|again| again <= self.now) {
                self.now.0 += 1 << 16;
            }
        }
        self.now.0 = self.now.0.max(end);
        self.run_timers();
    }

    fn run_timers(&mut self) {
        let mut rounds = 0;
        while self.host.tcp.on_timers(self.now, 64) {
            rounds += 1;
            assert!(rounds < 100, "timers fire without end");
        }
    }

    /// Sends a line; a drop is no failure of the test.
    #[track_caller]
    pub fn send(&mut self, line: &str) {
        let _ = self.try_send(line);
    }

    /// Sends a line that must be dropped for `reason`.
    #[track_caller]
    pub fn send_refused(&mut self, line: &str, reason: DropReason) {
        assert_eq!(self.try_send(line), Err(reason));
    }

    /// Sends a line that must not count as a drop.
    #[track_caller]
    pub fn send_taken(&mut self, line: &str) {
        assert_eq!(self.try_send(line), Ok(()));
    }

    #[track_caller]
    fn try_send(&mut self, line: &str) -> Result<(), DropReason> {
        let (tos, line) = match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
            Some((tos, rest)) => (tos.parse().expect("a type of service"), rest),
            None => (0, line),
        };
        let (header, options, len) = self.parse(line);
        let mut bytes = vec![0; 60];
        let header_len = header.emit(&options, &mut bytes).unwrap();
        bytes.truncate(header_len);
        let start = header.seq.since(PEER_ISN).wrapping_sub(1) as usize;
        bytes.extend((0..len).map(|i| (start.wrapping_add(i) % 251) as u8));
        let rx = SegmentRx {
            now: self.now,
            local: self.local.ip(),
            remote: self.remote.ip(),
            interface: INTERFACE,
            tos,
            ttl: 64,
            gso_bytes: None,
        };
        let host = &mut self.host;
        host.tcp.on_segment(&rx, &bytes, &host.routes, &mut host.store)
    }

    /// Both ends of the connection, ours first.
    pub fn ends(&self) -> Ends {
        Ends { local: self.local, remote: self.remote }
    }

    #[track_caller]
    fn parse(&self, line: &str) -> (TcpHeader, WireOptions, usize) {
        let mut words = line.split_whitespace().peekable();
        let mut flags = TcpFlags::NONE;
        for letter in words.next().expect("flags").chars() {
            flags |= match letter {
                'S' => TcpFlags::SYN,
                'F' => TcpFlags::FIN,
                'R' => TcpFlags::RST,
                'P' => TcpFlags::PSH,
                'U' => TcpFlags::URG,
                'E' => TcpFlags::ECE,
                'W' => TcpFlags::CWR,
                '.' => TcpFlags::ACK,
                _ => panic!("flag {letter}"),
            };
        }
        let range = |word: &str| {
            let (from, to) = word.split_once(':').expect("a range");
            (from.parse::<i64>().unwrap() as u32, to.parse::<i64>().unwrap() as u32)
        };
        let (start, end) = range(words.next().expect("a range"));
        let mut header = TcpHeader {
            src_port: self.remote.port(),
            dst_port: self.local.port(),
            seq: PEER_ISN + start,
            ack: SeqNumber(0),
            flags,
            window: self.offer.window,
            checksum: 0,
            urgent: 0,
        };
        let mut options = WireOptions::NONE;
        if flags.syn() {
            options.mss = self.offer.mss;
            options.window_scale = self.offer.scale;
            options.sack_permitted = self.offer.sack;
            if self.offer.timestamps {
                options.timestamps = Some(Timestamps { value: 1000, echo: 0 });
            }
        }
        while let Some(word) = words.next() {
            let value = words.next().expect("a value");
            let number = || value.parse::<i64>().unwrap();
            match word {
                "ack" => header.ack = self.iss + number() as u32,
                "win" => header.window = number() as u16,
                "uto" => options.user_timeout = UserTimeout::from_seconds(value.parse().unwrap()),
                "urg" => header.urgent = number() as u16,
                "ts" => {
                    let echo = self.last.and_then(|l| l.1.timestamps).map_or(0, |t| t.value);
                    options.timestamps = Some(Timestamps { value: number() as u32, echo });
                }
                // Milliseconds away from the last timestamp of ours.
                "echo" => {
                    if let Some(timestamps) = &mut options.timestamps {
                        timestamps.echo = timestamps.echo.wrapping_add(number() as u32);
                    }
                }
                "sack" => {
                    let mut value = Some(value);
                    while let Some(block) = value {
                        let (left, right) = range(block);
                        let (left, right) = (self.iss + left, self.iss + right);
                        options.sack.push(SackBlock { left, right });
                        value = words.next_if(|w| w.contains(':'));
                    }
                }
                other => panic!("word {other}"),
            }
        }
        (header, options, end.wrapping_sub(start) as usize)
    }

    /// Everything sent since the last look, lines joined by ` | `.
    pub fn sent(&mut self) -> String {
        self.sent_raw(false)
    }

    pub fn sent_raw(&mut self, first: bool) -> String {
        let mut lines = Vec::new();
        let mut bytes = [0u8; 60];
        while let Some(ready) = self.host.tcp.next_ready(INTERFACE) {
            let mtu = self.host.mtu_towards(self.now, ready.remote);
            let Some(tx) = self.host.tcp.emit(self.now, ready.handle, mtu, &mut bytes) else {
                continue;
            };
            let segment = wire::tcp::parse(&bytes[..usize::from(tx.header_bytes)]).unwrap();
            let header = segment.header;
            if first {
                self.iss = header.seq;
            }
            let len = match tx.payload {
                Payload::Stream { len, .. } => len,
                _ => 0,
            };
            self.last = Some((header, segment.options));
            self.tos = tx.tos;
            lines.push(self.line(&header, &segment.options, len));
            if self.refuses {
                self.host.tcp.on_refused(self.now, &tx.payload);
            }
        }
        lines.join(" | ")
    }

    fn line(&self, header: &TcpHeader, options: &WireOptions, len: u32) -> String {
        let mut text = String::new();
        for (flag, letter) in [
            (TcpFlags::SYN, 'S'),
            (TcpFlags::FIN, 'F'),
            (TcpFlags::RST, 'R'),
            (TcpFlags::PSH, 'P'),
            (TcpFlags::ECE, 'E'),
            (TcpFlags::CWR, 'W'),
            (TcpFlags::ACK, '.'),
        ] {
            if header.flags.contains(flag) {
                text.push(letter);
            }
        }
        let start = header.seq.since(self.iss).cast_signed();
        text += &format!(" {start}:{}", i64::from(start) + i64::from(len));
        if header.flags.ack() {
            text += &format!(" ack {}", header.ack.since(PEER_ISN).cast_signed());
        }
        for (i, block) in options.sack.iter().enumerate() {
            text += if i == 0 { " sack " } else { " " };
            let relative = |n: SeqNumber| n.since(PEER_ISN).cast_signed();
            text += &format!("{}:{}", relative(block.left), relative(block.right));
        }
        if let Some(timeout) = options.user_timeout {
            text += &format!(" uto {}", timeout.seconds());
        }
        text
    }

    /// What must have been sent since the last look; "" is nothing.
    #[track_caller]
    pub fn expect(&mut self, lines: &str) {
        assert_eq!(self.sent(), lines);
    }

    /// The window of the last segment sent, not scaled.
    pub fn window(&self) -> u16 {
        self.last.expect("something was sent").0.window
    }

    pub fn info(&self) -> crate::tcp::TcpInfo {
        self.host.tcp.info(self.id).expect("live")
    }

    pub fn received(&self) -> usize {
        self.host.received(self.id).len()
    }
}

impl Peer {
    /// Our initial sequence number, from the SYN that stands ready to be sent.
    pub fn host_iss(&mut self) -> SeqNumber {
        self.learn_iss();
        self.iss
    }

    /// Listens anew with another backlog.
    pub fn set_backlog(&mut self, backlog: u32) {
        let tcp = &mut self.host.tcp;
        tcp.close(self.now, self.listener.unwrap()).unwrap();
        let options = TcpOptions::default();
        self.listener = Some(tcp.listen(self.local, backlog, options, Owner(1)).unwrap());
    }
}

impl Peer {
    pub fn syn_received_by_simultaneous_open() -> Self {
        let mut peer = Self::syn_sent(PLAIN, TcpOptions::default());
        peer.send("S 0:0");
        peer.state(TcpState::SynReceived);
        peer
    }
}
