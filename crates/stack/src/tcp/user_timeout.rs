//! The user timeout: how long what was sent may go unacknowledged before the connection ends, and the
//! option by which both ends tell each other of theirs (RFC 5482), where the settings enable it.
//!
//! A program's TCP_USER_TIMEOUT is told to the peer, and nothing that the peer tells changes it; without
//! one (or with 0 again) the usual patience is told, and the peer may make it longer, up to the settings'
//! limit. The option is sent on SYNs, with the first segment after them, and with the next whenever there
//! is something new to tell.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.2
//# Consequently, implementations MUST NOT assume that UTO options are transmitted reliably.

use serde::{Deserialize, Serialize};
use wire::tcp::{OPTIONS_LEN_MAX, SackBlocks, USER_TIMEOUT_LEN, UserTimeout};

use super::connection::{Cold, Connection, Hot, SendTimer, Step};
use super::rtt::{MILLISECOND, RTO_NS_MIN, Rtt, SECOND, patience_ns};
use super::settings::TcpSettings;
use super::timers::RETRIES;
use crate::api::{Instant, TcpOptions};

/// L_LIMIT, but for a longer retransmission timeout.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//# Consequently, the lower limit (L_LIMIT) SHOULD be set to at least 100 seconds when following the
//# RECOMMENDED scheme described in this section.
const LOWER_LIMIT_NS: u64 = 100 * SECOND;

/// Whether a connection speaks the option (ENABLED), and whether there is something to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeoutOption {
    /// It is neither sent nor heeded.
    #[default]
    Off,
    /// The next segment that has room tells ADV_UTO.
    Due,
    /// ADV_UTO has been told, whether or not it arrived.
    Told,
}

/// The last that the peer has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteUto {
    /// Seconds of REMOTE_UTO.
    pub told_s: u32,
    /// As many of them as the settings allowed when it came.
    counted_s: u32,
}

impl TimeoutOption {
    /// That of a new connection.
    pub fn begin(settings: &TcpSettings) -> Self {
        if settings.user_timeout_option { TimeoutOption::Due } else { TimeoutOption::Off }
    }
}

/// The usual patience with a peer that acknowledges nothing, where timeouts are of `rto_most_ns` at most.
fn usual_patience_ns(rto_most_ns: u64) -> u64 {
    patience_ns(RETRIES, RTO_NS_MIN, rto_most_ns)
}

/// The program's own timeout, after which CHANGEABLE is false.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3
//# If an application explicitly sets the USER_TIMEOUT, CHANGEABLE MUST become false in order to
//# prevent UTO options (from the other end) from overriding local application requests.
fn own_ns(options: &TcpOptions) -> Option<u64> {
    match options.user_timeout_ms {
        0 => None,
        ms => Some(u64::from(ms) * MILLISECOND),
    }
}

/// ADV_UTO of a connection with these options whose timeouts are of `rto_most_ns` at most.
fn adv_uto(options: &TcpOptions, rto_most_ns: u64) -> Option<UserTimeout> {
    let ns = own_ns(options).unwrap_or_else(|| usual_patience_ns(rto_most_ns));
    UserTimeout::from_seconds(ns.div_ceil(SECOND))
}

/// ADV_UTO of a connection that a SYN cookie may make.
pub fn uto_of_cookie(options: &TcpOptions, settings: &TcpSettings) -> Option<UserTimeout> {
    if !settings.user_timeout_option {
        return None;
    }
    let rto_most_ms = match options.rto_max_ms {
        0 => settings.rto_max_ms,
        own => own,
    };
    adv_uto(options, Rtt::limited_to(rto_most_ms).most_ns())
}

impl Cold {
    /// What the peer has told.
    pub fn remote_uto(&self) -> Option<RemoteUto> {
        self.rare.as_ref()?.remote_uto
    }

    /// USER_TIMEOUT, where it is not the usual patience.
    pub fn user_timeout_ns(&self, hot: &Hot) -> Option<u64> {
        own_ns(&self.options).or_else(|| self.adopted_ns(hot))
    }

    /// USER_TIMEOUT where the peer's option is what it follows.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
    //# If the CHANGEABLE flag is false, USER_TIMEOUT MUST NOT be changed, regardless of the
    //# received UTO option.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
    //# Under the RECOMMENDED scheme, and when CHANGEABLE is true, each end
    //# SHOULD compute the local USER TIMEOUT for a connection according to
    //# this formula:
    //#
    //# USER_TIMEOUT = min(U_LIMIT, max(ADV_UTO, REMOTE_UTO, L_LIMIT))
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
    //# The RECOMMENDED formula results in the maximum of the two advertised
    //# values, adjusted for the configured upper and lower limits, to be
    //# adopted for the user timeout of the connection on both ends.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
    //# The remainder of this section describes a RECOMMENDED scheme to limit TCP's USER
    //# TIMEOUT based on upper and lower limits.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //# Connections in other states MUST use the default timeout values defined in [RFC0793] and
    //# [RFC1122].
    fn adopted_ns(&self, hot: &Hot) -> Option<u64> {
        let remote = self.remote_uto()?;
        let is_opening = !hot.state.is_synchronized() || hot.syn_unacked;
        if is_opening || own_ns(&self.options).is_some() {
            return None;
        }
        //= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
        //# Therefore, the lower limit (L_LIMIT) MUST be larger than the current retransmission
        //# timeout (RTO) for the connection.
        let lower = LOWER_LIMIT_NS.max(hot.rtt.rto_ns() + SECOND);
        // U_LIMIT bounds what a peer can do, and lies above what holds without one.
        let usual = usual_patience_ns(hot.rtt.most_ns());
        Some((u64::from(remote.counted_s) * SECOND).max(usual).max(lower))
    }
}

impl Connection<'_> {
    /// USER_TIMEOUT, where it is not the usual patience.
    pub fn user_timeout_ns(&self) -> Option<u64> {
        self.cold.user_timeout_ns(self.hot)
    }

    /// Since when the timeout runs, while something waits to be acknowledged or for a window: of
    /// what the peer has told, since its last answer, as it may keep its window shut (RFC 9293, MUST-37).
    pub fn timeout_since(&self) -> u64 {
        let since = self.cold.stuck_since;
        let is_probing = self.hot.send_timer == SendTimer::Persist || self.hot.snd_wnd == 0;
        let is_answer_enough =
            is_probing && !self.hot.orphan && own_ns(&self.cold.options).is_none();
        if is_answer_enough { since.max(self.hot.received_at) } else { since }
    }

    /// Whether the adopted timeout has passed; `None` where there is none.
    pub fn is_adopted_over(&self, now: Instant) -> Option<bool> {
        let adopted = self.cold.adopted_ns(self.hot)?;
        Some(now.0.saturating_sub(self.timeout_since()) >= adopted)
    }

    /// How long a connection is idle before it is probed.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-4.2
    //# Therefore, if a connection that enables keep-alives is also using the
    //# TCP User Timeout Option, then the keep-alive timer MUST be set to a
    //# value larger than that of the adopted USER TIMEOUT.
    pub fn keep_idle_ns(&self) -> u64 {
        let wanted = u64::from(self.cold.options.keepidle_s.max(1)) * SECOND;
        match self.user_timeout_ns() {
            Some(user) if self.hot.timeout_option != TimeoutOption::Off => {
                wanted.max(user.saturating_add(SECOND))
            }
            _ => wanted,
        }
    }

    /// The peer has told its user timeout.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3
    //# A TCP implementation that does not support the UTO option MUST silently ignore it [RFC1122],
    //# thus ensuring interoperability.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-4.1
    //# A TCP implementation that does not support the TCP User Timeout Option MUST silently ignore
    //# it [RFC1122], thus ensuring interoperability.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
    //# In general, unless the application on the local host has requested a
    //# specific USER TIMEOUT for the connection, CHANGEABLE will be true and
    //# hosts SHOULD adjust the local TCP USER TIMEOUT (USER_TIMEOUT) in
    //# response to receiving a UTO option, as described in the remainder of
    //# this section.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3
    //# Hosts MUST impose upper and lower limits on the user timeouts they use for a connection.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
    //# To protect against these effects, implementations MUST impose limits on the user timeout
    //# values they accept and use.
    pub fn on_user_timeout(&mut self, step: &mut Step<'_>, told: UserTimeout) {
        if self.hot.timeout_option == TimeoutOption::Off {
            return;
        }
        step.shared.counters.user_timeouts_received += 1;
        let before = self.patience();
        let counted_s = told.seconds().min(step.shared.settings.user_timeout_max_s);
        let remote = RemoteUto { told_s: told.seconds(), counted_s };
        self.cold.rare_mut().remote_uto = Some(remote);
        self.tell_if_changed(before);
    }

    /// ADV_UTO and USER_TIMEOUT, to be compared with what they become.
    pub fn patience(&self) -> (Option<UserTimeout>, u64) {
        let usual = || usual_patience_ns(self.hot.rtt.most_ns());
        (self.adv_uto(), self.user_timeout_ns().unwrap_or_else(usual))
    }

    /// The peer is to hear of a timeout that is another one than [before](Self::patience).
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3
    //# A host that supports the UTO option SHOULD include one in the next possible outgoing segment
    //# whenever it starts using a new user timeout for the connection.
    pub fn tell_if_changed(&mut self, before: (Option<UserTimeout>, u64)) {
        if self.hot.timeout_option == TimeoutOption::Told && self.patience() != before {
            self.hot.timeout_option = TimeoutOption::Due;
        }
    }

    /// ADV_UTO.
    pub fn adv_uto(&self) -> Option<UserTimeout> {
        adv_uto(&self.cold.options, self.hot.rtt.most_ns())
    }

    /// What a SYN (or SYN and ACK) tells: the first alone, so that one that is sent again gets through
    /// where unknown options do not. The first segment without SYN tells it once more.
    pub fn syn_uto(&self) -> Option<UserTimeout> {
        let tells = self.hot.timeout_option != TimeoutOption::Off && self.cold.retries == 0;
        if tells { self.adv_uto() } else { None }
    }

    /// What a segment with these blocks tells that is no SYN: all else that it says goes before.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3
    //# In addition to exchanging UTO options in the SYN segments, a connection that has enabled UTO
    //# options SHOULD include a UTO option in the first packet that does not have the SYN flag set.
    pub fn due_uto(&self, sack: &SackBlocks) -> Option<UserTimeout> {
        let others = usize::from(self.option_bytes()) + sack.option_len();
        let tells = self.hot.timeout_option == TimeoutOption::Due
            && others + USER_TIMEOUT_LEN <= OPTIONS_LEN_MAX;
        if tells { self.adv_uto() } else { None }
    }
}
