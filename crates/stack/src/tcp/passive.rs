//! SYNs for listeners, and acknowledgements that may be answers to SYN cookies.
//= https://www.rfc-editor.org/rfc/rfc7413#section-4.2
//# When this flag is off, the server does not perform any TFO-related operations and MUST ignore
//# all cookie options.

use std::net::SocketAddr;

use wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpSegment, Timestamps};

use super::SegmentRx;
use super::connection::Cold;
use super::cookies::{self, Ends};
use super::ecn::may_agree;
use super::fast_open::{
    ALL_LISTENERS, CLIENT, FastOpen, FastOpenDecision, FastOpenKeys, SERVER, SERVER_NO_COOKIE,
};
use super::reply::{Reply, SynOptions};
use super::tables::{Opening, Tcp, is_half_open};
use super::tally::Tally;
use super::user_timeout::uto_of_cookie;
use super::window::{first_window, initial_memory};
use crate::api::{
    CongestionKind, Instant, Owner, RequestError, Sink, SocketId, TcpError, TcpOptions, TcpState,
};
use crate::drops::DropReason;
use crate::route::{Route, Routes};

/// A segment that belongs to no connection, for a listener.
#[derive(Clone, Copy)]
pub(super) struct ListenerRx<'a> {
    pub listener: SocketId,
    pub rx: &'a SegmentRx,
    pub segment: &'a TcpSegment<'a>,
    pub routes: &'a Routes,
}

impl ListenerRx<'_> {
    /// Its addresses, ours first.
    fn ends(&self) -> Ends {
        let (rx, header) = (self.rx, &self.segment.header);
        let local = SocketAddr::new(rx.local, header.dst_port);
        Ends { local, remote: SocketAddr::new(rx.remote, header.src_port) }
    }
}

impl Tcp {
    /// A SYN for a listener. `iss`: our initial sequence number, where a connection in TIME-WAIT
    /// has decided it.
    pub(super) fn on_syn<S: Sink>(
        &mut self,
        syn: &ListenerRx<'_>,
        iss: Option<SeqNumber>,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let ListenerRx { listener, rx, segment, routes } = *syn;
        let (now, ends) = (rx.now, syn.ends());
        let syn_queue_max = self.syn_queue_max;
        let entry = self.listeners.listener_mut(listener).ok_or(DropReason::TcpNoSocket)?;
        if entry.is_shut {
            return Err(DropReason::TcpListenerShut);
        }
        if entry.is_queue_full() {
            return Err(DropReason::TcpAcceptQueueFull);
        }
        let route = routes.lookup_back(rx.interface, rx.remote).ok_or(DropReason::IpSource)?;
        if entry.is_syn_queue_full(syn_queue_max) {
            if self.shared.settings.syn_cookies && iss.is_none() {
                return self.send_cookie(syn, &route);
            }
            let (hot, cold) = (&self.hot, &self.cold);
            let oldest = entry.oldest_half_open(now, |id| is_half_open(hot, cold, listener, id));
            // Quietly: where the SYN came from there may be nobody.
            let oldest = oldest.ok_or(DropReason::TcpSynQueueFull)?;
            self.on_dead(now, oldest.index);
            self.shared.counters.half_open_evicted += 1;
        }
        let iss =
            iss.unwrap_or_else(|| SeqNumber(self.shared.keys.isn(now, ends.local, ends.remote)));
        let index = self.make_child(syn, &route, iss)?;
        self.shared.counters.passive_opens += 1;
        let verdict = self.judge_fast_open(now, listener, ends, segment);
        self.with(now, index, |connection, step| {
            connection.on_peer_syn(step, segment, rx.tos);
            let opens = matches!(verdict, FastOpenDecision::Open(_)) && !segment.payload.is_empty();
            connection.cold.tally = Tally::of_passive(opens);
            match verdict {
                FastOpenDecision::Ordinary => {}
                FastOpenDecision::Tell(cookie) => {
                    connection.cold.fast_open = Some(Box::new(FastOpen::told(Some(cookie))));
                }
                FastOpenDecision::Open(cookie) => {
                    connection.open_fast(step, syn, cookie, sink);
                }
            }
            step.ready = true;
        });
        Ok(())
    }

    /// Whether the data of a SYN is taken at once, as Linux decides it.
    fn judge_fast_open(
        &mut self,
        now: Instant,
        listener: SocketId,
        Ends { local, remote }: Ends,
        segment: &TcpSegment<'_>,
    ) -> FastOpenDecision {
        let switch = self.shared.settings.fast_open;
        let counters = &mut self.shared.counters;
        let shown = segment.options.fast_open;
        counters.fast_open_cookies_requested += u64::from(shown.is_some_and(|c| c.len == 0));
        if switch & SERVER == 0 || (shown.is_none() && segment.payload.is_empty()) {
            return FastOpenDecision::Ordinary;
        }
        let Some(entry) = self.listeners.listener_mut(listener) else {
            return FastOpenDecision::Ordinary;
        };
        if entry.key_of(remote).is_some() {
            return FastOpenDecision::Ordinary;
        }
        let most = match entry.options.fast_open_queue {
            0 if switch & ALL_LISTENERS != 0 => entry.backlog,
            most => most,
        };
        if most == 0 {
            return FastOpenDecision::Ordinary;
        }
        if !entry.has_fast_open_room(now, most) {
            counters.fast_open_overflows += 1;
            return FastOpenDecision::Ordinary;
        }
        let usual = self.shared.settings.fast_open_key.unwrap_or(self.shared.keys.fast_open);
        let keys = entry.fast_open_keys.unwrap_or(usual);
        let is_bare = switch & SERVER_NO_COOKIE != 0 || entry.options.fast_open_no_cookie;
        let verdict = match shown {
            _ if is_bare => FastOpenDecision::Open(None),
            None => FastOpenDecision::Ordinary,
            Some(shown) => keys.judge(remote.ip(), local.ip(), &shown),
        };
        match verdict {
            FastOpenDecision::Open(cookie) => {
                entry.fast_open_waiting += 1;
                counters.fast_open_passive += 1;
                counters.fast_open_former_key += u64::from(cookie.is_some());
            }
            FastOpenDecision::Tell(_) => {
                counters.fast_open_passive_failed += u64::from(shown.is_some_and(|c| c.len > 0));
            }
            FastOpenDecision::Ordinary => {}
        }
        verdict
    }

    /// A connection whose data was taken with its SYN has finished its handshake, or ended before.
    pub(super) fn leave_fast_open(&mut self, now: Instant, index: u32) {
        let Some(cold) = self.cold.get_mut(index as usize) else { return };
        let Some(of) = cold.fast_open.take().and_then(|begun| begun.of) else { return };
        // As Linux: one that a program has seen already.
        let was_reset = cold.error == Some(TcpError::Reset) && cold.listener.is_none();
        if let Some(listener) = self.listeners.listener_mut(of) {
            listener.fast_open_waiting = listener.fast_open_waiting.saturating_sub(1);
            if was_reset {
                listener.fast_open_resets.push_back(now);
            }
        }
    }

    /// Whether the settings let data go with our SYNs.
    pub fn opens_fast(&self) -> bool {
        self.shared.settings.fast_open & CLIENT != 0
    }

    /// Gives a listener keys of its own.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `listener` names no listener.
    pub fn set_fast_open_keys(
        &mut self,
        listener: SocketId,
        keys: FastOpenKeys,
    ) -> Result<(), RequestError> {
        let entry = self.listeners.listener_mut(listener).ok_or(RequestError::Stale)?;
        entry.fast_open_keys = Some(keys);
        Ok(())
    }

    /// A connection of a listener's, half-open.
    fn make_child(
        &mut self,
        syn: &ListenerRx<'_>,
        route: &Route,
        iss: SeqNumber,
    ) -> Result<u32, DropReason> {
        let (now, listener) = (syn.rx.now, syn.listener);
        let Ends { local, remote } = syn.ends();
        let entry = self.listeners.listener(listener).ok_or(DropReason::TcpNoSocket)?;
        let options = self.shared.options.on_route(&entry.options, route.metrics);
        let key = entry.key_of(remote).cloned();
        let index = self.allocate().ok_or(DropReason::TcpTableFull)?;
        let mut cold = Cold::new(local, remote, options, route.mtu);
        cold.listener = Some(listener);
        cold.half_open = true;
        cold.set_key(key);
        let (state, owner) = (TcpState::SynReceived, Owner::NONE);
        self.install(now, index, Opening { cold, state, route, iss, owner });
        if let (Some(entry), Some(new)) =
            (self.listeners.listener_mut(listener), self.hot.get(index as usize))
        {
            let id = SocketId { index, generation: new.generation };
            let (hot, cold) = (&self.hot, &self.cold);
            entry.add_half_open(now, id, |id| is_half_open(hot, cold, listener, id));
        }
        Ok(index)
    }

    /// Answers a SYN without keeping anything of it.
    //= https://www.rfc-editor.org/rfc/rfc4987#section-3.6
    //# SYN cookies go a step further and allocate no state at all for
    //# connections in SYN-RECEIVED.
    fn send_cookie(&mut self, syn: &ListenerRx<'_>, route: &Route) -> Result<(), DropReason> {
        let ListenerRx { listener, rx, segment, .. } = *syn;
        let (now, ends, tos) = (rx.now, syn.ends(), rx.tos);
        let entry = self.listeners.listener_mut(listener).ok_or(DropReason::TcpNoSocket)?;
        entry.overflowed_at = Some(now);
        let options = self.shared.options.on_route(&entry.options, route.metrics);
        let Ends { local, remote } = ends;
        let key = entry.key_of(remote).cloned();
        let settings = self.shared.settings;
        let mut offer = segment.options;
        offer.timestamps = offer.timestamps.filter(|_| settings.timestamps && key.is_none());
        offer.window_scale = offer.window_scale.filter(|_| settings.window_scaling);
        offer.sack_permitted &= settings.sack;
        if offer.timestamps.is_none() {
            // Nothing can keep them.
            offer.window_scale = None;
            offer.sack_permitted = false;
        }
        let needs_ecn = options.congestion == CongestionKind::Dctcp;
        let ecn = offer.timestamps.is_some()
            && may_agree(settings.ecn, segment.header.flags, tos, needs_ecn);
        let keys = &self.shared.keys;
        let (memory, scale) = initial_memory(&options, &settings);
        let timestamps = offer.timestamps.map(|theirs| Timestamps {
            value: cookies::timestamp(
                now,
                keys.timestamp_offset(local.ip(), remote.ip()),
                &offer,
                ecn,
            ),
            echo: theirs.value,
        });
        let told = if ecn { TcpFlags::ECE } else { TcpFlags::default() };
        let irs = segment.header.seq;
        let seq = keys.cookie(now, ends, irs, offer.mss.unwrap_or(0));
        let tos = options.tos_to(remote.ip());
        let user_timeout = uto_of_cookie(&options, &settings);
        let most = options.window_limit();
        let mss = Cold::new(local, remote, options, route.mtu).advertised_mss();
        let unit = mss.saturating_sub(if timestamps.is_some() { 12 } else { 0 });
        let most = most.min(route.metrics.first_window_most(unit));
        let window = first_window(memory / 2, unit).min(most);
        self.push_reply(Reply {
            interface: route.interface,
            local,
            remote,
            seq,
            ack: irs + 1,
            flags: TcpFlags::SYN | TcpFlags::ACK | told,
            window: window.min(65535) as u16,
            timestamps,
            syn: Some(SynOptions {
                mss,
                window_scale: offer.window_scale.map(|_| scale),
                sack_permitted: offer.sack_permitted,
                user_timeout,
            }),
            tos,
            key: key.map(Box::new),
        });
        self.shared.counters.syn_cookies_sent += 1;
        Ok(())
    }

    /// Whether a segment from `remote` to `local` belongs to a connection, or may make one as the answer
    /// to a cookie.
    pub fn awaits(&self, now: Instant, local: SocketAddr, remote: SocketAddr) -> bool {
        let listener = || self.listeners.listener(self.listeners.find(local)?)?.overflowed_at;
        self.flow_slot(local, remote).is_some()
            || listener().is_some_and(|at| now.0.saturating_sub(at.0) <= cookies::LIFE_NS)
    }

    /// An acknowledgement that belongs to no connection: the answer to a cookie makes one. `None`
    /// when it is none, and a reset is due.
    pub(super) fn on_cookie_answer<S: Sink>(
        &mut self,
        answer: &ListenerRx<'_>,
        sink: &mut S,
    ) -> Option<Result<(), DropReason>> {
        let ListenerRx { listener, rx, segment, routes } = *answer;
        let now = rx.now;
        let entry = self.listeners.listener(listener)?;
        let since = now.0.saturating_sub(entry.overflowed_at?.0);
        if since > cookies::LIFE_NS {
            return None;
        }
        let is_full = entry.is_queue_full();
        let header = &segment.header;
        let ends = answer.ends();
        let (iss, irs) = (header.ack - 1, header.seq - 1);
        let Some(mss) = self.shared.keys.check_cookie(now, ends, irs, iss) else {
            self.shared.counters.syn_cookies_failed += 1;
            return None;
        };
        self.shared.counters.syn_cookies_received += 1;
        let timestamps = segment.options.timestamps;
        if timestamps.is_some() && !self.shared.settings.timestamps {
            return None;
        }
        if is_full {
            // The peer believes itself connected, and repeats its data until there is room.
            return Some(Err(DropReason::TcpAcceptQueueFull));
        }
        let Some(route) = routes.lookup_back(rx.interface, rx.remote) else {
            return Some(Err(DropReason::IpSource));
        };
        let index = match self.make_child(answer, &route, iss) {
            Ok(index) => index,
            Err(reason) => return Some(Err(reason)),
        };
        self.shared.counters.passive_opens += 1;
        let offset = self.shared.keys.timestamp_offset(ends.local.ip(), ends.remote.ip());
        // The SYN as it was, or as much of it as was kept.
        let asked = match cookies::agreed_on_ecn(timestamps, offset) {
            true => TcpFlags::ECE | TcpFlags::CWR,
            false => TcpFlags::default(),
        };
        let syn = TcpSegment {
            header: TcpHeader { seq: irs, flags: TcpFlags::SYN | asked, ..*header },
            options: cookies::offer(mss, timestamps, offset),
            payload: &[],
        };
        self.with(now, index, |connection, step| {
            connection.on_peer_syn(step, &syn, 0);
            connection.cold.tally = Tally::of_passive(false);
            connection.hot.syn_due = false;
            // Here is the peer's answer; it is not waited for again.
            let options = TcpOptions { defer_accept: 0, ..*connection.cold.options };
            connection.cold.options = step.shared.options.follow(options);
        });
        Some(self.on_connection_segment(index, rx, segment, sink))
    }
}
