//! One connection's data: what every packet touches ([`Hot`]) and the rest ([`Cold`]).

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use wire::tcp::SeqNumber;

use super::TcpSettings;
use super::congestion::{Congestion, Window};
use super::counters::TcpCounters;
use super::ecn::Ecn;
use super::fast_open::{FastOpen, Servers};
use super::flow::Socket;
use super::frto::Frto;
use super::intervals::Intervals;
use super::isn::TcpKeys;
use super::mtu::Search;
use super::options::SharedOptions;
use super::pacing::Pacer;
use super::progress::Chronicle;
use super::prr::Prr;
use super::rack::Rack;
use super::rate::Rate;
use super::receive::DELAYED_ACK_NS;
use super::reply::Reply;
use super::rtt::{MILLISECOND, Rtt};
use super::scoreboard::Scoreboard;
use super::shape::Hold;
use super::stamps::Stamps;
use super::state::Input;
use super::tally::{Rare, Tally};
use super::tlp::Tlp;
use super::undo::Undo;
use super::user_timeout::TimeoutOption;
use super::window::{Tuning, is_window_used, memory_of, window_of};
use crate::api::{Instant, InterfaceIndex, Owner, SocketId, TcpError, TcpLevels, TcpState};

/// Bytes of window beyond SO_RCVLOWAT, so that it is not used up before so much has come: several
/// segments, as the last may not fit.
const LOW_WATER_SLACK: u32 = 16 << 10;
/// A deadline that is not set.
pub const NEVER: u64 = u64::MAX;

/// Whether losses are being repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// No loss is known.
    Open,
    /// Fast recovery (RFC 8985, RFC 6582) until `recover` is acknowledged.
    Recovery,
    /// After a timeout: everything outstanding counts as lost (RFC 5681 section 3.1).
    Loss,
}

/// What the transmission timer means while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SendTimer {
    /// Not running.
    Idle,
    /// Retransmission, RFC 6298.
    Retransmit,
    /// Segments that may only be late count as lost, RFC 8985 section 6.
    Reorder,
    /// Tail loss probe, RFC 8985 section 7.
    TailProbe,
    /// Window probe, RFC 9293 section 3.8.6.1.
    Persist,
    /// A partial segment held back by TCP_CORK goes out after all.
    Cork,
    /// What the port has refused is tried again.
    Refused,
}

/// What every segment of a connection touches.
///
/// Positions are offsets from the first byte after the SYN; sequence numbers are made of them
/// by adding `iss + 1` or `irs + 1`. A FIN takes one position after the last byte.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[repr(align(64))]
pub struct Hot {
    /// Who owns it.
    pub owner: Owner,
    /// snd.una.
    pub una: u64,
    /// snd.nxt: everything below has been sent at least once.
    pub nxt: u64,
    /// End of what the program has written.
    pub written: u64,
    /// snd.wl1, as a receive offset.
    pub wl1: u64,
    /// End of the last segment sent that was smaller than full (Minshall's Nagle).
    pub small_end: u64,
    /// Up to where what the program has written was pushed (Linux's pushed_seq).
    pub pushed: u64,
    /// rcv.nxt; includes the peer's FIN once received.
    pub rcv_nxt: u64,
    /// Right edge of the window as advertised; never moves back.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
    //# the receiver SHOULD track the actual maximum window sequence number
    pub rcv_edge: u64,
    /// rcv.nxt in the last segment sent (Last.ACK.sent of RFC 7323).
    pub rcv_acked: u64,
    /// What the program has read.
    pub consumed: u64,
    /// When our SYN was sent, or [`NEVER`] where its answer measures no round trip.
    pub timed_at: u64,
    /// When [`Hot::send_timer`] runs out.
    pub send_at: u64,
    /// When a delayed acknowledgement is due.
    pub ack_at: u64,
    /// What the timer wheel has for this connection; at or before the earliest deadline.
    pub armed_at: u64,
    /// Last segment received.
    pub received_at: u64,
    /// Last data sent.
    pub sent_at: u64,
    /// Generation of the slot.
    pub generation: u32,
    /// snd.wnd.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //# The window size MUST be treated as an unsigned number, or else large window sizes will
    //# appear like negative windows and TCP will not work (MUST-1).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //# It is RECOMMENDED that implementations will reserve 32-bit fields for the send and receive
    //# window sizes in the connection record and do all window computations with 32 bits (REC-1).
    pub snd_wnd: u32,
    /// Largest snd.wnd seen.
    pub max_wnd: u32,
    /// Initial send sequence number.
    pub iss: SeqNumber,
    /// Initial receive sequence number.
    pub irs: SeqNumber,
    /// cwnd and ssthresh.
    pub window: Window,
    /// Receive memory, SO_RCVBUF as the kernel doubles it; may grow up to the option's limit.
    pub rcv_memory: u32,
    /// Most window that the owner has memory for.
    pub rcv_ceiling: u32,
    /// TS.Recent.
    pub ts_recent: u32,
    /// Added to the clock for TSval.
    pub ts_offset: u32,
    /// When `ts_recent` was taken, in seconds.
    pub ts_recent_s: u32,
    /// Round-trip times.
    pub rtt: Rtt,
    /// Payload of a full segment we send, options deducted.
    pub mss: u16,
    /// Payload of a full segment the peer sends, as seen.
    pub rcv_mss: u16,
    /// Where it is sent.
    pub interface: InterfaceIndex,
    /// RFC 9293 state.
    pub state: TcpState,
    /// Loss recovery.
    pub phase: Phase,
    /// Meaning of `send_at`.
    pub send_timer: SendTimer,
    /// Shift of the peer's windows.
    pub snd_scale: u8,
    /// Shift of our windows.
    pub rcv_scale: u8,
    /// Payload in 256 bytes of receive memory.
    pub rcv_ratio: u8,
    /// Acknowledgements still to be sent at once at the start (Linux's quick ack mode).
    pub quick: u8,
    /// Duplicate acknowledgements in a row; with SACK, segments sacked since snd.una last moved.
    pub dup_acks: u8,
    /// Acknowledgements to be sent now.
    pub acks_owed: u8,
    /// In use.
    pub used: bool,
    /// Stands in a ready queue.
    pub ready_queued: bool,
    /// Has an event queued.
    pub event_queued: bool,
    /// Waits for the next hop's link address.
    pub parked: bool,
    /// The program has closed it; it lives on until everything is delivered.
    pub orphan: bool,
    /// A SYN (or SYN and ACK) is to be sent.
    pub syn_due: bool,
    /// The connection stands since its SYN (Fast Open), and its SYN and ACK is not acknowledged.
    pub syn_unacked: bool,
    /// A window or keepalive probe is to be sent.
    pub probe_due: bool,
    /// A tail loss probe is to be sent.
    pub tail_due: bool,
    /// Timestamps were agreed on; until the peer's SYN has come, they are offered.
    pub timestamps: bool,
    /// SACK was agreed on.
    pub sack: bool,
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// TCP_CORK.
    pub cork: bool,
    /// Something urgent ([`Rare::urge_end`]) is not acknowledged yet.
    pub urging: bool,
    /// What is to become of what was written last.
    pub hold: Hold,
    /// What was written last came with MSG_MORE.
    pub more: bool,
    /// The interface cuts large segments.
    pub tso: bool,
    /// Segments are signed ([`Cold::key`]).
    pub signed: bool,
    /// Whether user timeouts are told and heeded.
    pub timeout_option: TimeoutOption,
    /// Answers follow what is received: acknowledgements can ride on them.
    pub interactive: bool,
    /// The peer's FIN is within `rcv_nxt`.
    pub fin_received: bool,
    /// The congestion window held something back since the last acknowledgement.
    pub cwnd_limited: bool,
    /// Data waits for its pace.
    pub pace_waits: bool,
    /// The port has refused what comes next, and nothing has happened since.
    pub refused: bool,
    /// What is known of ECN.
    pub ecn: Ecn,
}

const _: () = assert!(size_of::<Hot>() <= 256, "the hot part is at most four cache lines");

/// What follows the last byte that the program has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sequel {
    /// More bytes, or whatever the state says.
    Open,
    /// A FIN, once the handshake is over.
    Fin,
    /// A reset, once everything has been sent that the windows permit.
    Reset,
}

/// How much of the congestion window has been used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Most bytes in flight since `at`, while they were less than the window.
    pub used: u32,
    /// When it was last used whole, or judged, milliseconds, going round.
    pub at_ms: u32,
    /// Most bytes in flight since what was sent then was acknowledged.
    pub most: u32,
    /// End of what was sent when this was begun, going round.
    pub until: u32,
}

/// What few segments touch. What a connection has only while something is the matter lies behind
/// a pointer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cold {
    /// Own address.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
    //# At all other times, a previous segment has either been sent or received on this connection,
    //# and TCP implementations MUST use the same local address that was used in those previous
    //# segments (MUST-45).
    pub local: Socket,
    /// Peer's address.
    pub remote: Socket,
    /// Options as set.
    pub options: SharedOptions,
    /// Congestion control.
    pub congestion: Congestion,
    /// The listener that it came from, until it is accepted.
    pub listener: Option<SocketId>,
    /// Counts among its listener's half-open connections.
    pub half_open: bool,
    /// Why it died.
    pub error: Option<TcpError>,
    /// What ICMP last said; becomes the error if the connection times out (RFC 1122 4.2.3.9).
    pub soft_error: Option<TcpError>,
    /// What is outstanding.
    pub scoreboard: Scoreboard,
    /// Loss detection by time.
    pub rack: Rack,
    /// Tail loss probe.
    pub tlp: Tlp,
    /// Rate of sending in the recovery that goes on.
    pub prr: Option<Box<Prr>>,
    /// Whether a timeout came too early.
    pub frto: Frto,
    /// What there was before the last loss, until the loss is disproved.
    pub undo: Option<Box<Undo>>,
    /// When the retransmission timer runs out, whatever it stands for now.
    pub rto_at: u64,
    /// When late segments count as lost, or [`NEVER`].
    pub reorder_at: u64,
    /// Ranges received out of order.
    pub received: Intervals,
    /// Recovery ends when this is acknowledged.
    pub recover: u64,
    /// Bytes that have arrived since something could last be sent: acknowledgements that come together
    /// are one where they begin a reduction.
    pub burst: u32,
    /// When lost data was last begun to be sent again, milliseconds, going round.
    pub repaired_ms: u32,
    /// One past where the peer's FIN is, once announced.
    pub peer_fin: Option<NonZeroU64>,
    /// The program waits for room to write.
    pub waits_for_room: bool,
    /// What the program has asked for behind its last byte.
    pub sequel: Sequel,
    /// Retransmission timeouts, or probes, in a row.
    pub retries: u8,
    /// When the first of them was; of probes, the first since the window was shut, whatever was
    /// answered since, or [`NEVER`] before it.
    pub stuck_since: u64,
    /// Keepalive probes in a row.
    pub keep_probes: u8,
    /// When to look whether a keepalive is due, or an orphan to be given up.
    pub keep_at: u64,
    /// MSS option received, or 536.
    pub peer_mss: u16,
    /// Largest IP packet to the peer.
    pub mtu: u16,
    /// The search for it where routers say nothing.
    pub search: Option<Box<Search>>,
    /// The handshake is over for the peer, and waits for its data (TCP_DEFER_ACCEPT).
    pub deferred: bool,
    /// Fast Open, while the handshake goes on.
    pub fast_open: Option<Box<FastOpen>>,
    /// Fast Open was tried.
    pub fast_opened: bool,
    /// Data came or went with the SYN.
    pub syn_data: bool,
    /// When the last rate-limited acknowledgement was sent (RFC 5961 section 7), milliseconds, going
    /// round; 0 before the first.
    pub challenged_ms: u32,
    /// When data was received last.
    pub data_at: u64,
    /// What the receive window's growth is measured by.
    pub tuning: Tuning,
    /// The pace, where there is one.
    pub pacer: Option<Box<Pacer>>,
    /// The delivery rate, where the congestion control asks for it.
    pub rate: Option<Box<Rate>>,
    /// How much of the congestion window is used.
    pub usage: Usage,
    /// Segments of a large frame, whatever the rate.
    pub frame_min: u8,
    /// Segments received and sent.
    pub tally: Tally,
    /// What few connections ever have.
    pub rare: Option<Box<Rare>>,
    /// Where its time went, and what arrived.
    pub chronicle: Chronicle,
}

const _: () = assert!(
    size_of::<Hot>() + size_of::<Cold>() <= 1088,
    "an idle connection takes less than 1,280 bytes, of which the engine needs some beside this"
);

/// A connection while something is done to it.
pub struct Connection<'a> {
    /// Its name.
    pub id: SocketId,
    /// First array.
    pub hot: &'a mut Hot,
    /// Second array.
    pub cold: &'a mut Cold,
}

/// How a connection ended within one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// It goes on.
    #[default]
    None,
    /// CLOSED.
    Dead,
    /// TIME-WAIT; the peer's FIN is to be acknowledged.
    TimeWait {
        /// Where it has not been.
        owes_ack: bool,
    },
}

/// What steps share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shared {
    /// Secrets.
    pub keys: TcpKeys,
    /// What is remembered of Fast Open's servers.
    pub servers: Servers,
    /// What holds for all connections.
    pub settings: TcpSettings,
    /// What is counted.
    pub counters: TcpCounters,
    /// Options as they were last set: the next connection's are nearly always the same.
    pub options: SharedOptions,
}

/// One step's surroundings and its effects on the tables.
pub struct Step<'a> {
    /// The time.
    pub now: Instant,
    /// Keys, counters, allowances.
    pub shared: &'a mut Shared,
    /// The owner should look at the levels.
    pub event: bool,
    /// There may be something to send.
    pub ready: bool,
    /// The handshake is over.
    pub established: bool,
    /// The handshake of a connection that stood before is over.
    pub handshake_over: bool,
    /// Whether the connection ended.
    pub end: End,
    /// A segment that belongs to no connection (any more).
    pub reply: Option<Reply>,
    /// Type of service of such a segment that answers the one that is taken.
    pub answers_as: u8,
}

impl<'a> Step<'a> {
    /// Nothing has happened yet.
    pub fn new(now: Instant, shared: &'a mut Shared) -> Self {
        Self {
            now,
            shared,
            event: false,
            ready: false,
            established: false,
            handshake_over: false,
            end: End::None,
            reply: None,
            answers_as: 0,
        }
    }
}

impl Hot {
    /// The sequence number of a send offset.
    pub fn seq(&self, offset: u64) -> SeqNumber {
        self.iss + 1 + (offset as u32)
    }

    /// The acknowledgement number of a receive offset.
    pub fn ack(&self, offset: u64) -> SeqNumber {
        self.irs + 1 + (offset as u32)
    }

    /// The send offset of an acknowledgement number, by its distance from snd.una; negative
    /// when it lies before the first byte.
    pub fn send_offset(&self, ack: SeqNumber) -> i64 {
        self.una.cast_signed().wrapping_add(i64::from(ack.offset_from(self.seq(self.una))))
    }

    /// The receive offset of a sequence number, by its distance from rcv.nxt.
    pub fn receive_offset(&self, seq: SeqNumber) -> i64 {
        self.rcv_nxt.cast_signed().wrapping_add(i64::from(seq.offset_from(self.ack(self.rcv_nxt))))
    }

    /// How long an acknowledgement may wait for company.
    pub fn ack_delay_ns(&self) -> u64 {
        DELAYED_ACK_NS.min(self.rtt.floor_ns().saturating_sub(MILLISECOND))
    }

    /// End of the contiguous stream received.
    pub fn readable(&self) -> u64 {
        self.rcv_nxt - u64::from(self.fin_received)
    }

    /// End of everything that is to be sent, the FIN included.
    pub fn send_end(&self) -> u64 {
        self.written + u64::from(self.state.has_closed())
    }

    /// Bytes (and FIN) of the send stream that are outstanding.
    pub fn flight(&self) -> u64 {
        self.nxt.saturating_sub(self.una)
    }

    /// Our SYN has not been acknowledged.
    pub fn is_opening(&self) -> bool {
        matches!(self.state, TcpState::SynSent | TcpState::SynReceived)
    }

    /// Our SYN is a SYN and ACK, not acknowledged yet.
    pub fn answers_syn(&self) -> bool {
        self.state == TcpState::SynReceived || self.syn_unacked
    }

    /// TSval now: a millisecond a tick.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-4.1
    //# Values of this clock MUST be at least approximately proportional to real time, in order to
    //# measure actual RTT.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-5.4
    //# It MUST tick at least once for each 2^31 bytes sent.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-5.4
    //# the clock SHOULD tick at least once per window's worth of data
    //= https://www.rfc-editor.org/rfc/rfc7323#section-5.4
    //# The recycling time of the timestamp clock MUST be greater than MSL seconds.
    pub fn ts_now(&self, now: Instant) -> u32 {
        self.ts_offset.wrapping_add((now.0 / 1_000_000) as u32)
    }
}

impl Cold {
    /// Recomputes what of the options is needed per packet.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
    //# It is not required, but the application SHOULD be able to change the Differentiated Services
    //# field during the connection lifetime (SHLD-21).
    pub fn set_options(&mut self, hot: &mut Hot, options: SharedOptions) {
        if options.congestion != self.congestion.kind() {
            self.congestion = Congestion::new(options.congestion);
        }
        if !options.recv_tunes {
            hot.rcv_memory = options.recv_limit.saturating_mul(2);
        } else if options.recv_low_water > 1 {
            let least = options.recv_low_water.saturating_add(LOW_WATER_SLACK);
            let least = least.min(options.recv_limit);
            hot.rcv_memory = hot.rcv_memory.max(memory_of(least.into(), hot.rcv_ratio));
            self.tuning.threshold = self.tuning.threshold.max(least);
        }
        if options.rto_max_ms != 0 {
            hot.rtt.set_ceiling(options.rto_max_ms);
        }
        hot.nodelay = options.nodelay;
        hot.cork = options.cork;
        self.options = options;
    }
}

impl Connection<'_> {
    /// Moves the state; effects on timers and tables follow from where it went.
    pub fn apply(&mut self, step: &mut Step<'_>, input: Input) {
        let before = self.hot.state;
        let after = before.after(input);
        if after == before {
            return;
        }
        self.hot.state = after;
        step.event = true;
        match after {
            TcpState::Closed => {
                step.end = End::Dead;
                self.stop_timers();
            }
            TcpState::TimeWait => {
                let owes_ack = input == Input::Fin || self.hot.acks_owed > 0;
                step.end = End::TimeWait { owes_ack };
                self.stop_timers();
            }
            TcpState::Established => step.established = true,
            _ => {}
        }
    }

    /// The connection is over because of `error`.
    pub fn die(&mut self, step: &mut Step<'_>, error: TcpError) {
        if self.hot.state == TcpState::Closed {
            return;
        }
        self.cold.error.get_or_insert(error);
        self.apply(step, Input::Dead);
    }

    /// Nothing is waited for any more.
    pub fn stop_timers(&mut self) {
        self.hot.send_timer = SendTimer::Idle;
        self.hot.send_at = NEVER;
        self.hot.ack_at = NEVER;
        self.cold.keep_at = NEVER;
        if let Some(pacer) = &mut self.cold.pacer {
            pacer.wake = NEVER;
        }
        self.hot.acks_owed = 0;
        self.hot.probe_due = false;
        self.hot.syn_due = false;
    }

    /// Earliest deadline.
    pub fn deadline(&self) -> u64 {
        let pace = self.cold.pacer.as_ref().map_or(NEVER, |pacer| pacer.wake);
        self.hot.send_at.min(self.hot.ack_at).min(self.cold.keep_at).min(pace)
    }
}

/// The truth for the owner.
pub fn levels(hot: &Hot, cold: &Cold, settings: &TcpSettings) -> TcpLevels {
    let windows = cold.congestion.windows_at_hand();
    let window = hot.window.cwnd.max(Window::first(hot.mss, &cold.options.path).cwnd);
    let opens_with = cold.fast_open.as_deref().filter(|begun| begun.waits);
    TcpLevels {
        send_room: match opens_with {
            // What does not go with the SYN waits until the connection stands, as in Linux.
            Some(begun) => cold.syn_room(begun),
            None => window.saturating_mul(windows).min(settings.send_max),
        },
        receive_window: window_of(hot, cold),
        state: hot.state,
        readable: hot.readable(),
        peer_closed: hot.fin_received,
        //= https://www.rfc-editor.org/rfc/rfc2018#section-8
        //# Since the data receiver may later discard data reported in a SACK option, the sender
        //# MUST NOT discard data before it is acknowledged by the Acknowledgment Number field in
        //# the TCP header.
        acked: hot.una.min(hot.written),
        urgent: Some(cold.urgent()).filter(|urgent| urgent.end() > 0),
        error: cold.error,
        awaits_data: opens_with.is_some(),
        window_used: cold.options.recv_low_water > 1 && is_window_used(hot, cold),
        sent: hot.nxt,
        acked_all: hot.una,
        frame_bytes: frame_of(hot),
        stamps: cold.stamps().map_or(0, Stamps::waiting),
        unsent_low_water: cold.options.unsent_low_water,
    }
}

/// What of the largest window that the peer has offered one frame may take at the most: half, or all of
/// a small one (Linux's tcp_bound_to_half_wnd).
pub fn window_part(hot: &Hot) -> u32 {
    /// TCP_MSS_DEFAULT: smaller windows are not halved.
    const SMALL: u32 = 536;
    if hot.max_wnd > SMALL { hot.max_wnd / 2 } else { hot.max_wnd }
}

/// Bytes that the program's writes are gathered in before they are sent: what one frame takes (Linux's
/// tcp_xmit_size_goal).
pub fn frame_of(hot: &Hot) -> u32 {
    let mss = u32::from(hot.mss.max(1));
    let most = super::shape::FRAME_BYTES as u32;
    let window = window_part(hot);
    let room = if window > 0 { most.min(window) } else { most };
    (room / mss).max(1) * mss
}
