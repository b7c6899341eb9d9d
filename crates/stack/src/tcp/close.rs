//! How connections are opened, closed and aborted by their owner.
//= https://www.rfc-editor.org/rfc/rfc7323#section-5.2
//# If an <RST> is being generated because of a user abort, and Snd.TS.OK is set, then a Timestamps
//# option SHOULD be included in the <RST>.

use std::net::SocketAddr;

use wire::tcp::{SeqNumber, TcpFlags, TcpSegment, Timestamps};

use super::congestion::{Congestion, Window};
use super::connection::{Cold, Connection, Hot, NEVER, Phase, SendTimer, Sequel, Step, Usage};
use super::ecn::Ecn;
use super::frto::Frto;
use super::intervals::Intervals;
use super::options::SharedOptions;
use super::progress::Chronicle;
use super::rack::Rack;
use super::reply::Reply;
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;
use super::shape::Hold;
use super::state::Input;
use super::tally::Tally;
use super::tlp::Tlp;
use super::user_timeout::TimeoutOption;
use super::window::{CEILING_MIN, RATIO_UNKNOWN, Tuning, initial_memory};
use crate::api::{InterfaceIndex, Owner, TcpError, TcpState};
use crate::route::Route;

impl Hot {
    /// A slot that nobody uses.
    pub fn vacant() -> Self {
        Self {
            owner: Owner::NONE,
            una: 0,
            nxt: 0,
            written: 0,
            wl1: 0,
            small_end: 0,
            pushed: 0,
            rcv_nxt: 0,
            rcv_edge: 0,
            rcv_acked: 0,
            consumed: 0,
            timed_at: NEVER,
            send_at: NEVER,
            ack_at: NEVER,
            armed_at: NEVER,
            received_at: 0,
            sent_at: 0,
            generation: 0,
            snd_wnd: 0,
            max_wnd: 0,
            iss: SeqNumber(0),
            irs: SeqNumber(0),
            window: Window { cwnd: 0, ssthresh: u32::MAX },
            rcv_memory: 0,
            rcv_ceiling: u32::MAX,
            ts_recent: 0,
            ts_offset: 0,
            ts_recent_s: 0,
            rtt: Rtt::default(),
            mss: 536,
            rcv_mss: 536,
            interface: InterfaceIndex(0),
            state: TcpState::Closed,
            phase: Phase::Open,
            send_timer: SendTimer::Idle,
            snd_scale: 0,
            rcv_scale: 0,
            rcv_ratio: RATIO_UNKNOWN,
            quick: 0,
            dup_acks: 0,
            acks_owed: 0,
            used: false,
            ready_queued: false,
            event_queued: false,
            parked: false,
            orphan: false,
            syn_due: false,
            syn_unacked: false,
            probe_due: false,
            tail_due: false,
            timestamps: false,
            sack: false,
            nodelay: false,
            cork: false,
            urging: false,
            hold: Hold::None,
            more: false,
            tso: false,
            signed: false,
            timeout_option: TimeoutOption::Off,
            interactive: false,
            fin_received: false,
            cwnd_limited: false,
            pace_waits: false,
            refused: false,
            ecn: Ecn::default(),
        }
    }
}

impl Cold {
    /// Of a slot that no connection uses.
    pub fn vacant(options: SharedOptions) -> Self {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        Self::new(nowhere, nowhere, options, 0)
    }

    /// A connection's cold part before anything has happened.
    pub fn new(local: SocketAddr, remote: SocketAddr, options: SharedOptions, mtu: u16) -> Self {
        Self {
            local: local.into(),
            remote: remote.into(),
            congestion: Congestion::new(options.congestion),
            options,
            listener: None,
            half_open: false,
            error: None,
            soft_error: None,
            scoreboard: Scoreboard::default(),
            rack: Rack::default(),
            tlp: Tlp::default(),
            prr: None,
            frto: Frto::Off,
            undo: None,
            rto_at: NEVER,
            reorder_at: NEVER,
            received: Intervals::default(),
            recover: 0,
            burst: 0,
            repaired_ms: 0,
            peer_fin: None,
            waits_for_room: false,
            sequel: Sequel::Open,
            retries: 0,
            stuck_since: 0,
            keep_probes: 0,
            keep_at: NEVER,
            peer_mss: 536,
            mtu,
            search: None,
            deferred: false,
            fast_open: None,
            fast_opened: false,
            syn_data: false,
            challenged_ms: 0,
            data_at: 0,
            tuning: Tuning::default(),
            pacer: None,
            rate: None,
            usage: Usage::default(),
            frame_min: 2,
            tally: Tally::default(),
            rare: None,
            chronicle: Chronicle::default(),
        }
    }
}

impl Connection<'_> {
    /// Fills both parts for a new connection in `state`, its SYN (or SYN and ACK) due.
    pub fn open(&mut self, step: &Step<'_>, state: TcpState, route: &Route, iss: SeqNumber) {
        let (local, remote) = (self.cold.local, self.cold.remote);
        let options = &self.cold.options;
        let hot = &mut *self.hot;
        let (ready_queued, armed_at) = (hot.ready_queued, hot.armed_at);
        *hot = Hot { generation: hot.generation, ready_queued, armed_at, ..Hot::vacant() };
        hot.used = true;
        hot.rtt = Rtt::limited_to(match options.rto_max_ms {
            0 => step.shared.settings.rto_max_ms,
            own => own,
        });
        hot.state = state;
        hot.iss = iss;
        hot.interface = route.interface;
        hot.tso = route.tso;
        self.cold.frame_min = step.shared.settings.tso_segments_min.max(1);
        hot.ts_offset = step.shared.keys.timestamp_offset(local.ip(), remote.ip());
        (hot.rcv_memory, hot.rcv_scale) = initial_memory(options, &step.shared.settings);
        hot.received_at = step.now.0;
        hot.nodelay = options.nodelay;
        hot.cork = options.cork;
        hot.syn_due = true;
        hot.timestamps = step.shared.settings.timestamps;
        hot.signed = self.cold.key().is_some();
        hot.timeout_option = TimeoutOption::begin(&step.shared.settings);
        self.settle_signing();
        self.ask_for_ecn(step.shared.settings.ecn);
        self.update_mss();
        if self.cold.listener.is_some() {
            // Nobody has memory for more yet.
            self.hot.rcv_ceiling = CEILING_MIN;
        }
        self.begin_window(self.cold.advertised_mss());
        self.hot.rtt.set_floor(self.cold.options.path.rto_min_ms);
        self.hot.window = Window::first(self.hot.mss, &self.cold.options.path);
        // Also when the SYN cannot leave for lack of a neighbour, the attempt ends in time.
        self.restart_retransmit_timer(step.now);
    }

    /// The program closes its sending direction: a FIN follows what it has written.
    pub fn shutdown(&mut self, step: &mut Step<'_>) {
        if self.hot.is_opening() {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.4
            //# otherwise, queue for processing
            //# after entering ESTABLISHED state.
            self.cold.sequel = Sequel::Fin;
            return;
        }
        self.apply(step, Input::Close);
        step.ready = true;
    }

    /// What was asked for during the handshake happens now that it is over.
    pub fn on_established(&mut self, step: &mut Step<'_>) {
        if self.cold.sequel == Sequel::Fin {
            self.apply(step, Input::Close);
        }
        self.restart_keepalive(step.now);
        step.ready = true;
    }

    /// The program closes the connection for good.
    pub fn close(&mut self, step: &mut Step<'_>) {
        self.hot.orphan = true;
        self.cold.keep_at = NEVER;
        if self.hot.state.is_over() {
            return;
        }
        if self.hot.state == TcpState::SynSent {
            self.apply(step, Input::Close);
            return;
        }
        if self.has_unread() || self.cold.options.linger_s == Some(0) {
            self.reset_behind_data(step);
            return;
        }
        self.shutdown(step);
        if self.hot.state == TcpState::FinWait2 {
            self.limit_fin_wait(step);
        }
    }

    /// The program closes the connection for good, and with a reset.
    pub fn close_with_reset(&mut self, step: &mut Step<'_>) {
        self.hot.orphan = true;
        self.cold.keep_at = NEVER;
        if !self.hot.state.is_over() {
            self.reset_behind_data(step);
        }
    }

    /// Whether bytes have been received that the program has not read.
    fn has_unread(&self) -> bool {
        self.hot.readable() > self.hot.consumed
    }

    /// A reset follows what was written. Like the kernel, which sends in the call that writes, this sends
    /// what the windows, Nagle's algorithm and TCP_CORK permit now, and drops the rest.
    fn reset_behind_data(&mut self, step: &mut Step<'_>) {
        if self.hot.is_opening() {
            self.reset_now(step);
            return;
        }
        self.cold.sequel = Sequel::Reset;
        step.ready = true;
    }

    /// Sends the reset of a closed connection, now that what could be sent before it has been.
    pub fn reset_now(&mut self, step: &mut Step<'_>) {
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
        //# If such a host issues a CLOSE call while received data is still pending in the TCP
        //# connection, or if new data is received after CLOSE is called, its TCP implementation
        //# SHOULD send a RST to show that data was lost (SHLD-3).
        //= https://www.rfc-editor.org/rfc/rfc1122#section-4.2.2.13
        //# If such a host issues a
        //# CLOSE call while received data is still pending in TCP, or
        //# if new data is received after CLOSE is called, its TCP
        //# SHOULD send a RST to show that data was lost.
        if self.has_unread() {
            step.shared.counters.aborts_on_data += 1;
            self.tell_reset(step);
            self.die(step, TcpError::Aborted);
            return;
        }
        self.abort(step);
    }

    /// Resets the connection.
    pub fn abort(&mut self, step: &mut Step<'_>) {
        self.abort_with(step, TcpError::Aborted);
    }

    /// Ends the connection because of `error`. The peer is told unless both sides have closed: it
    /// waits for nothing then but our FIN, or its acknowledgement, where those have been sent.
    pub fn abort_with(&mut self, step: &mut Step<'_>, error: TcpError) {
        let tells = match self.hot.state {
            TcpState::Closed | TcpState::SynSent | TcpState::TimeWait => false,
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.5
            //# *  Respond with "ok" and delete the TCB, enter CLOSED state, and
            //# return.
            // Where what was written has not all been sent, Linux does.
            TcpState::Closing | TcpState::LastAck => self.hot.nxt < self.hot.send_end(),
            _ => true,
        };
        if tells {
            self.tell_reset(step);
        }
        self.die(step, error);
    }

    /// Resets the connection with an answer to a segment, of which its owner, if any, is told by `error`.
    pub fn abort_in_answer(
        &mut self,
        step: &mut Step<'_>,
        segment: &TcpSegment<'_>,
        error: TcpError,
    ) {
        step.shared.counters.resets_sent += 1;
        step.reply = self.reset_for(step, segment);
        self.die(step, error);
    }

    /// A reset is sent, whatever the state.
    fn tell_reset(&mut self, step: &mut Step<'_>) {
        let opening = self.hot.state == TcpState::SynReceived;
        // As Linux tells it with every reset of a connection.
        let window = self.offer_window();
        step.reply = Some(Reply {
            interface: self.hot.interface,
            local: self.cold.local.address(),
            remote: self.cold.remote.address(),
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.5
            //# <SEQ=SND.NXT><CTL=RST>
            seq: if opening { self.hot.iss + 1 } else { self.hot.seq(self.hot.nxt) },
            ack: self.hot.ack(self.hot.rcv_nxt),
            flags: TcpFlags::RST | TcpFlags::ACK,
            window,
            //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
            //# Once TSopt has been successfully negotiated, that is both <SYN> and
            //# <SYN,ACK> contain TSopt, the TSopt MUST be sent in every non-<RST>
            //# segment for the duration of the connection, and SHOULD be sent in an
            //# <RST> segment
            timestamps: self
                .hot
                .timestamps
                .then(|| Timestamps { value: self.hot.ts_now(step.now), echo: self.hot.ts_recent }),
            syn: None,
            tos: self.cold.options.tos_to(self.cold.remote.ip()),
            key: self.cold.key().cloned().map(Box::new),
        });
        step.shared.counters.resets_sent += 1;
    }
}
