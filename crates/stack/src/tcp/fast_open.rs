//! TCP Fast Open (RFC 7413), as Linux has it: cookies that let data on a SYN be believed, and what a
//= https://www.rfc-editor.org/rfc/rfc7413#section-4.2.1
//# Any client attempting TFO MUST first request a cookie from the server with the following steps:
//= https://www.rfc-editor.org/rfc/rfc7413#section-4.2.2
//# To open a TFO connection, the client MUST have obtained a cookie from the server:
//! client remembers of servers.
//!
//! A passive connection whose SYN brought a valid cookie is ESTABLISHED for its program from the
//! SYN on ([`Hot::syn_unacked`](super::connection::Hot)); its SYN and ACK stays due until it is
//! acknowledged. An active one that knows a cookie waits for its first data before it sends its SYN.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;
use std::str::FromStr;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use siphasher::sip::{SipHasher13, SipHasher24};
use wire::tcp::{FastOpenCookie, TcpSegment};

use super::congestion::Window;
use super::connection::{Cold, Connection, NEVER, Step};
use super::intervals::Range;
use super::isn::halves;
use super::passive::ListenerRx;
use super::receive::SegmentAt;
use super::rtt::SECOND;
use super::state::Input;
use crate::api::{Instant, Sink, SocketId, TcpOptions, TcpState};
use crate::drops::DropReason;

/// `tcp_fastopen`: data on SYNs that we send.
pub const CLIENT: u32 = 1;
/// Data on SYNs that we receive, by listeners that allow it.
pub const SERVER: u32 = 2;
/// Data on SYNs that we send, without a cookie.
pub const CLIENT_NO_COOKIE: u32 = 4;
/// Data on SYNs that we receive, without a cookie.
pub const SERVER_NO_COOKIE: u32 = 0x200;
/// Every listener allows it, for as many connections as its backlog.
pub const ALL_LISTENERS: u32 = 0x400;

/// How long a connection that was reset before its handshake was over counts among those of its
/// listener (RFC 7413 section 5.1).
pub const RESET_COUNTS_NS: u64 = 60 * SECOND;
/// A pause after black holes doubles so many times at the most.
const PAUSE_DOUBLINGS_MAX: u32 = 6;
/// Bytes that the options of a SYN may take (Linux's MAX_TCP_OPTION_SPACE).
const OPTIONS_MAX: u32 = 40;
/// Bytes of our cookies.
const COOKIE_BYTES: u8 = 8;

/// What makes cookies: two 128-bit keys, of which the second one's are still believed. As text they
/// are written as in `tcp_fastopen_key`: four hexadecimal words with hyphens, and after a comma
/// the former key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FastOpenKeys {
    /// Makes cookies.
    pub primary: [u8; 16],
    /// Made them before.
    pub backup: Option<[u8; 16]>,
}

/// A text that is no key of Fast Open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastOpenKeysError {
    /// The text.
    pub text: String,
}

impl fmt::Display for FastOpenKeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no key; write four hexadecimal words with hyphens, as in tcp_fastopen_key, \
             and the former key after a comma",
            self.text
        )
    }
}

impl std::error::Error for FastOpenKeysError {}

impl FromStr for FastOpenKeys {
    type Err = FastOpenKeysError;

    fn from_str(text: &str) -> Result<Self, FastOpenKeysError> {
        let key = |text: &str| {
            let mut words = text.trim().split('-');
            let mut bytes = [0; 16];
            for place in bytes.as_chunks_mut::<4>().0 {
                let word = words.next().filter(|word| (1..=8).contains(&word.len()))?;
                *place = u32::from_str_radix(word, 16).ok()?.to_le_bytes();
            }
            words.next().is_none().then_some(bytes)
        };
        let (primary, backup) = match text.split_once(',') {
            Some((primary, backup)) => (key(primary), key(backup).map(Some)),
            None => (key(text), Some(None)),
        };
        primary
            .zip(backup)
            .map(|(primary, backup)| Self { primary, backup })
            .ok_or_else(|| FastOpenKeysError { text: text.to_owned() })
    }
}

impl TryFrom<String> for FastOpenKeys {
    type Error = FastOpenKeysError;

    fn try_from(text: String) -> Result<Self, FastOpenKeysError> {
        text.parse()
    }
}

impl From<FastOpenKeys> for String {
    fn from(keys: FastOpenKeys) -> Self {
        let text = |key: [u8; 16]| {
            let words = key.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
            words.map(|word| format!("{word:08x}")).collect::<Vec<_>>().join("-")
        };
        let backup = keys.backup.map(|key| format!(",{}", text(key)));
        text(keys.primary) + &backup.unwrap_or_default()
    }
}

/// The cookie of a client at `remote` that came to `local`: the kernel's, to the bit.
//= https://www.rfc-editor.org/rfc/rfc7413#section-4.1.2
//# The server is in charge of cookie generation and authentication.
//= https://www.rfc-editor.org/rfc/rfc7413#section-4.1.2
//# The cookie SHOULD be a MAC tag with the following properties.
fn cookie_of(key: [u8; 16], remote: IpAddr, local: IpAddr) -> FastOpenCookie {
    let [a, b] = halves(key);
    let mut hasher = SipHasher24::new_with_keys(a, b);
    match (remote, local) {
        (IpAddr::V4(remote), IpAddr::V4(local)) => {
            hasher.write(&remote.octets());
            hasher.write(&local.octets());
        }
        (IpAddr::V6(remote), IpAddr::V6(local)) => {
            hasher.write(&remote.octets());
            hasher.write(&local.octets());
        }
        // Connections have one family.
        _ => {}
    }
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&hasher.finish().to_le_bytes());
    FastOpenCookie { bytes, len: COOKIE_BYTES, experimental: false }
}

/// What a SYN's option leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastOpenDecision {
    /// An ordinary handshake.
    Ordinary,
    /// An ordinary handshake whose SYN and ACK tells the client its cookie.
    Tell(FastOpenCookie),
    /// The data is taken at once; the client learns its new cookie, if there is one.
    Open(Option<FastOpenCookie>),
}

impl FastOpenKeys {
    /// Judges the cookie of a client.
    pub fn judge(&self, remote: IpAddr, local: IpAddr, shown: &FastOpenCookie) -> FastOpenDecision {
        let experimental = shown.experimental;
        let fresh = FastOpenCookie { experimental, ..cookie_of(self.primary, remote, local) };
        if shown.len == 0 {
            return FastOpenDecision::Tell(fresh);
        }
        if *shown == fresh {
            return FastOpenDecision::Open(None);
        }
        let is_old = self.backup.is_some_and(|key| {
            *shown == FastOpenCookie { experimental, ..cookie_of(key, remote, local) }
        });
        if is_old { FastOpenDecision::Open(Some(fresh)) } else { FastOpenDecision::Tell(fresh) }
    }
}

/// What a connection has of it while its handshake goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastOpen {
    /// What the SYN (or SYN and ACK) says.
    pub cookie: Option<FastOpenCookie>,
    /// Counts among the waiting ones of this listener.
    pub of: Option<SocketId>,
    /// The SYN waits for data.
    pub waits: bool,
    /// The SYN may carry data.
    pub with_data: bool,
    /// Bytes that the SYN carried.
    pub syn_bytes: u32,
    /// It was too big for the path, and goes again without data and cookie.
    pub plain: bool,
    /// Largest segment that the server takes, as far as is remembered.
    pub mss: u16,
}

impl FastOpen {
    /// Of a server that tells a cookie, or nothing.
    pub fn told(cookie: Option<FastOpenCookie>) -> Self {
        Self {
            cookie,
            of: None,
            waits: false,
            with_data: false,
            syn_bytes: 0,
            plain: false,
            mss: 0,
        }
    }
}

/// What is remembered of a server.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Server {
    cookie: Option<FastOpenCookie>,
    mss: u16,
    /// The experimental option was (1) or is not to be (2) tried.
    tried: u8,
}

/// What clients remember, and whether data on SYNs is trusted to arrive.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Servers {
    #[serde(serialize_with = "crate::in_order::write")]
    known: HashMap<IpAddr, Server, BuildHasherDefault<SipHasher13>>,
    /// Those known, the oldest in front.
    order: VecDeque<IpAddr>,
    limit: u32,
    /// No data on SYNs until then.
    paused_until: Instant,
    pauses: u32,
}

impl Servers {
    /// Of at most `limit` servers something is remembered.
    pub fn new(limit: u32) -> Self {
        Self { limit: limit.max(1), ..Self::default() }
    }

    /// Forgets all of it.
    pub fn forget(&mut self) {
        *self = Self::new(self.limit);
    }

    /// What a connection to `remote` with these options begins with; `None`: an ordinary SYN.
    //= https://www.rfc-editor.org/rfc/rfc7413#section-4.1.3
    //# The client MUST cache cookies from servers for later Fast Open
    //# connections.
    pub fn begin(
        &self,
        now: Instant,
        remote: IpAddr,
        options: &TcpOptions,
        switch: u32,
    ) -> Option<FastOpen> {
        if !options.fast_open || switch & CLIENT == 0 || now < self.paused_until {
            return None;
        }
        let server = self.known.get(&remote);
        let mss = server.map_or(0, |server| server.mss);
        let cookie = server.and_then(|server| server.cookie);
        let bare = options.fast_open_no_cookie || switch & CLIENT_NO_COOKIE != 0;
        let with_data = bare || cookie.is_some();
        let experimental = server.is_some_and(|server| server.tried == 1);
        let asked = FastOpenCookie { experimental, ..FastOpenCookie::REQUEST };
        let cookie = if bare { None } else { Some(cookie.unwrap_or(asked)) };
        Some(FastOpen { waits: with_data, with_data, mss, ..FastOpen::told(cookie) })
    }

    /// A server has answered a SYN that began with `begun`; whether another had to be forgotten.
    pub fn learn(&mut self, remote: IpAddr, begun: &FastOpen, answer: SynAnswer) -> bool {
        let SynAnswer { cookie: told, mss, sent_again } = answer;
        // As in Linux, what nobody has asked for is not kept.
        let told = told.filter(|cookie| cookie.len > 0 && begun.cookie.is_some());
        let asked = begun.cookie.filter(|cookie| cookie.len == 0);
        // Asked for a cookie and got none: the other form of the option is tried next time.
        let tried = match asked {
            Some(asked) if told.is_none() && !sent_again => 1 + u8::from(asked.experimental),
            _ => 0,
        };
        let is_new = !self.known.contains_key(&remote);
        let mut evicted = false;
        if is_new {
            if self.order.len() >= self.limit as usize
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
                evicted = true;
            }
            self.order.push_back(remote);
        }
        let server = self.known.entry(remote).or_insert(Server { cookie: None, mss: 0, tried: 0 });
        server.mss = mss;
        if told.is_some() {
            server.cookie = told;
        } else if server.cookie.is_none() {
            server.tried = server.tried.max(tried);
        }
        evicted
    }

    /// Data on a SYN, or what followed it, seems to have vanished: none is sent for a while, the
    /// longer the more often that happens. Whether it is so (`pause_s` is not nought).
    pub fn pause(&mut self, now: Instant, pause_s: u32) -> bool {
        if pause_s == 0 {
            return false;
        }
        let doublings = self.pauses.min(PAUSE_DOUBLINGS_MAX);
        self.pauses = self.pauses.saturating_add(1);
        let pause_ns = (u64::from(pause_s) * SECOND) << doublings;
        self.paused_until = Instant(now.0.saturating_add(pause_ns));
        true
    }
}

/// What a server has answered to a SYN.
#[derive(Clone, Copy)]
pub struct SynAnswer {
    /// The cookie that it gave.
    pub cookie: Option<FastOpenCookie>,
    /// Its maximum segment size.
    pub mss: u16,
    /// The SYN was sent more than once.
    pub sent_again: bool,
}

impl Cold {
    /// Bytes of data that a SYN takes along, beside all options.
    pub fn syn_room(&self, begun: &FastOpen) -> u32 {
        let known = if begun.mss == 0 { u16::MAX } else { begun.mss };
        u32::from(self.mss_most().min(known)).saturating_sub(OPTIONS_MAX)
    }
}

impl Connection<'_> {
    /// A SYN with a good cookie: the connection stands for its program from now on, and what came
    /// with the SYN is taken. It counts at the listener until its handshake is over.
    //= https://www.rfc-editor.org/rfc/rfc7413#section-4.2.2
    //# 4. Buffer the data and notify the application.  Set the FastOpened
    //# flag and increment PendingFastOpenRequests.
    pub fn open_fast<S: Sink>(
        &mut self,
        step: &mut Step<'_>,
        syn: &ListenerRx<'_>,
        cookie: Option<FastOpenCookie>,
        sink: &mut S,
    ) {
        let ListenerRx { listener: of, rx, segment, .. } = *syn;
        self.cold.fast_open = Some(Box::new(FastOpen { of: Some(of), ..FastOpen::told(cookie) }));
        self.cold.fast_opened = true;
        self.hot.syn_unacked = true;
        //= https://www.rfc-editor.org/rfc/rfc7413#section-4.2.2
        //# If the FastOpened flag is set, the server MUST follow [RFC5681] (based on [RFC3390]) to
        //# set the initial congestion window for sending more data packets.
        self.hot.window = Window::first(self.hot.mss, &self.cold.options.path);
        self.apply(step, Input::AckOfSyn);
        // What the sink refuses is not acknowledged, and comes again.
        let _ = self.on_payload(step, &SegmentAt { segment, rx, start: 0 }, sink);
        // Of the delay of acknowledgements it says nothing.
        self.cold.data_at = 0;
        let hot = &mut *self.hot;
        self.cold.syn_data = hot.rcv_nxt > 0;
        // The SYN and ACK acknowledges it.
        hot.rcv_acked = hot.rcv_nxt;
        hot.acks_owed = 0;
        hot.ack_at = NEVER;
        hot.syn_due = true;
    }

    /// The acknowledgement of the SYN and ACK of a connection that stands since its SYN.
    pub fn on_fast_open_acked(
        &mut self,
        step: &mut Step<'_>,
        segment: &TcpSegment<'_>,
    ) -> Result<(), DropReason> {
        let ack = self.hot.send_offset(segment.header.ack);
        if ack < 0 || ack > self.hot.nxt.cast_signed() {
            step.reply = self.reset_for(step, segment);
            return Err(DropReason::TcpBadAck);
        }
        self.hot.syn_unacked = false;
        self.on_handshake_acked(step, segment);
        let hot = &mut *self.hot;
        hot.snd_wnd = u32::from(segment.header.window) << hot.snd_scale;
        hot.max_wnd = hot.snd_wnd;
        if hot.flight() > 0 {
            self.cold.rto_at = step.now.0.saturating_add(hot.rtt.rto_ns());
            self.arm_send_timer(step.now);
        }
        step.handshake_over = true;
        Ok(())
    }

    /// The SYN that waited for data may go.
    pub fn release_syn(&mut self, step: &mut Step<'_>) {
        if self.hot.state == TcpState::SynSent
            && let Some(begun) = &mut self.cold.fast_open
            && std::mem::take(&mut begun.waits)
        {
            self.hot.syn_due = true;
            self.restart_retransmit_timer(step.now);
            step.event = true;
        }
    }

    /// Bytes of data that the SYN takes along: as much as a segment holds beside all options.
    pub fn syn_payload(&self) -> u32 {
        let may = |begun: &&FastOpen| begun.with_data && !begun.plain;
        let Some(begun) = self.cold.fast_open.as_deref().filter(may) else { return 0 };
        if self.hot.state != TcpState::SynSent || self.cold.retries > 0 {
            return 0;
        }
        let room = self.cold.syn_room(begun);
        u32::try_from(self.hot.written).unwrap_or(u32::MAX).min(room)
    }

    /// What our SYN (or SYN and ACK) says of Fast Open: once, so that one that is sent again gets
    /// through where options or data on SYNs do not.
    //= https://www.rfc-editor.org/rfc/rfc7413#section-4.2.2
    //# when the SYN timer fires, the client SHOULD
    //# retransmit a SYN packet without data and Fast Open options.
    //= https://www.rfc-editor.org/rfc/rfc7413#section-4.2.2
    //# If the SYN-ACK timer fires, the server SHOULD retransmit a SYN-ACK
    //# segment with neither data nor Fast Open options for compatibility
    //# reasons.
    pub fn syn_cookie(&self) -> Option<FastOpenCookie> {
        let begun = self.cold.fast_open.as_ref().filter(|_| self.cold.retries == 0)?;
        begun.cookie.filter(|_| !begun.plain)
    }

    /// What the server's SYN and ACK says to a SYN that began with `begun`.
    //= https://www.rfc-editor.org/rfc/rfc7413#section-4.2.2
    //# The client SHOULD perform the following steps upon receiving the SYN-ACK:
    //= https://www.rfc-editor.org/rfc/rfc7413#section-4.2.2
    //# The client SHOULD retransmit any unacknowledged data in the first ACK packet in step 2.
    pub fn on_fast_open_answer(
        &mut self,
        step: &mut Step<'_>,
        segment: &TcpSegment<'_>,
        begun: &FastOpen,
    ) {
        let shared = &mut *step.shared;
        let cookie = segment.options.fast_open;
        let sent_again = self.cold.retransmits() > 0;
        let mss = self.cold.peer_mss;
        if shared.servers.learn(self.cold.remote.ip(), begun, SynAnswer { cookie, mss, sent_again })
        {
            shared.counters.fast_open_evictions += 1;
        }
        if begun.syn_bytes == 0 {
            return;
        }
        let acked = segment.header.ack.since(self.hot.iss + 1).min(begun.syn_bytes);
        self.hot.una = u64::from(acked);
        self.hot.nxt = u64::from(begun.syn_bytes);
        self.cold.syn_data = acked == begun.syn_bytes;
        if self.cold.syn_data {
            shared.counters.fast_open_active += 1;
            return;
        }
        shared.counters.fast_open_active_failed += 1;
        // What is not acknowledged was sent and is lost; as in Linux it keeps to itself when it is
        // sent again.
        self.end_record(step, self.hot.nxt);
        let (start, end, mss) = (self.hot.una, self.hot.nxt, self.hot.mss);
        let snapshot = self.account_for_sending(step.now);
        self.cold.scoreboard.on_sent(Range { start, end }, step.now.0, snapshot, mss);
        self.cold.scoreboard.lose_longer_than(0);
        self.cold.rto_at = step.now.0.saturating_add(self.hot.rtt.rto_ns());
        self.repair_uncongested(step);
    }

    /// The SYN was too big for the path: another goes without data, at once, as in Linux.
    pub fn shrink_syn(&mut self, step: &mut Step<'_>) {
        if self.hot.state == TcpState::SynSent
            && let Some(begun) = &mut self.cold.fast_open
            && begun.syn_bytes > 0
            && !std::mem::replace(&mut begun.plain, true)
        {
            self.hot.syn_due = true;
            let rare = self.cold.rare_mut();
            rare.retransmits = rare.retransmits.wrapping_add(1);
            step.shared.counters.retransmits += 1;
            step.ready = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: FastOpenKeys = FastOpenKeys { primary: *b"0123456789abcdef", backup: None };

    fn at(last: u8) -> IpAddr {
        IpAddr::from([192, 168, 0, last])
    }

    fn wishing() -> TcpOptions {
        TcpOptions { fast_open: true, ..TcpOptions::default() }
    }

    //= https://www.rfc-editor.org/rfc/rfc7413#section-4.1.2
    //= type=test
    //# The cookie SHOULD be a MAC tag with the following properties.
    #[test]
    fn a_cookie_is_believed_from_its_client_alone() {
        let FastOpenDecision::Tell(cookie) = KEYS.judge(at(1), at(2), &FastOpenCookie::REQUEST)
        else {
            panic!("a request is answered");
        };
        assert_eq!(KEYS.judge(at(1), at(2), &cookie), FastOpenDecision::Open(None));
        assert!(matches!(KEYS.judge(at(3), at(2), &cookie), FastOpenDecision::Tell(_)));
    }

    #[test]
    fn the_former_keys_cookies_are_believed_and_replaced() {
        let FastOpenDecision::Tell(old) = KEYS.judge(at(1), at(2), &FastOpenCookie::REQUEST) else {
            panic!("a request is answered");
        };
        let keys = FastOpenKeys { primary: [7; 16], backup: Some(KEYS.primary) };
        let FastOpenDecision::Open(Some(fresh)) = keys.judge(at(1), at(2), &old) else {
            panic!("an old cookie is believed");
        };
        assert_eq!(keys.judge(at(1), at(2), &fresh), FastOpenDecision::Open(None));
    }

    #[test]
    fn cookies_are_the_kernels_for_its_key() {
        let keys: FastOpenKeys = "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4".parse().unwrap();
        // Of Linux 6.18, between these addresses with this key.
        for (remote, local, expected) in [
            ("192.0.2.1", "192.168.0.1", [0x30, 0x21, 0xb9, 0xd8, 0x89, 0x01, 0x7e, 0xeb]),
            (
                "fd3d:fa7b:d17d::1",
                "fd3d:a0b:17d6::1",
                [0xc1, 0xd1, 0xe9, 0x74, 0x2a, 0x47, 0xa9, 0xbc],
            ),
        ] {
            let (remote, local) = (remote.parse().unwrap(), local.parse().unwrap());
            let cookie = cookie_of(keys.primary, remote, local);
            assert_eq!(cookie.bytes[..8], expected);
        }
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        let text = "00000001-b2b2b2b2-c3c3c3c3-d4d4d4d4,0a0a0a0a-0000000b-00000000-ffffffff";
        let keys: FastOpenKeys = text.parse().unwrap();
        assert_eq!(keys.primary[..5], [1, 0, 0, 0, 0xb2]);
        assert_eq!(String::from(keys), text);
        for wrong in ["", "1-2-3", "1-2-3-4-5", "1-2-3-123456789", "x-2-3-4", "1-2-3-4,", ","] {
            assert!(wrong.parse::<FastOpenKeys>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_oldest_goes() {
        let mut servers = Servers::new(2);
        let begun = servers.begin(Instant(0), at(1), &wishing(), CLIENT).unwrap();
        assert!(!begun.waits);
        let cookie = FastOpenCookie { len: 8, ..FastOpenCookie::REQUEST };
        let learnt = [1, 2, 3].map(|last| servers.learn(at(last), &begun, answer(Some(cookie))));
        assert_eq!(learnt, [false, false, true]);
        let knows = [1, 2, 3]
            .map(|last| servers.begin(Instant(0), at(last), &wishing(), CLIENT).unwrap().waits);
        assert_eq!(knows, [false, true, true]);
    }

    fn answer(cookie: Option<FastOpenCookie>) -> SynAnswer {
        SynAnswer { cookie, mss: 1000, sent_again: false }
    }

    #[test]
    fn a_server_that_tells_no_cookie_is_asked_in_the_other_form_once() {
        let mut servers = Servers::new(2);
        let mut forms = Vec::new();
        for _ in 0..4 {
            let begun = servers.begin(Instant(0), at(1), &wishing(), CLIENT).unwrap();
            forms.push(begun.cookie.unwrap().experimental);
            servers.learn(at(1), &begun, answer(None));
        }
        assert_eq!(forms, [false, true, false, false]);
    }

    #[test]
    fn pauses_after_black_holes_grow() {
        let mut servers = Servers::new(2);
        assert!(!servers.pause(Instant(0), 0));
        assert!(servers.pause(Instant(0), 10));
        let begins = |servers: &Servers, s: u64| {
            servers.begin(Instant(s * SECOND), at(1), &wishing(), CLIENT).is_some()
        };
        assert!(!begins(&servers, 9) && begins(&servers, 10));
        servers.pause(Instant(0), 10);
        assert!(!begins(&servers, 19) && begins(&servers, 20));
    }
}
