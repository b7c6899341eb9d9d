//! The list of sockets for observers. It is made in steps that are short for the worker, and the
//! next step is taken only when the observer has room for it. Nothing of a list is kept here,
//! however long it is and however slowly it is read.

use std::collections::VecDeque;
use std::ops::Bound;

use shm::control::{
    ASSOCIATION, CENSUS_SESSIONS, FromEngine, MESSAGE_ENDPOINT, ProgramCensus, SocketInfo,
};
use stack::api::{SocketKind, TcpState};
use stack::tcp::TcpInfo;

use super::Control;
use super::exchange::SessionKey;
use super::grant::Granted;
use crate::session::SessionWho;
use crate::ss::{Seen, SeenSocket};

impl Control {
    /// The sockets left to the kernel by programs of some sessions beyond `after`.
    pub(super) fn census(&self, after: u64) -> FromEngine {
        let beyond = (Bound::Excluded(SessionKey(after)), Bound::Unbounded);
        let mut sessions = self.sessions.range(beyond);
        let some: Vec<_> = sessions.by_ref().take(CENSUS_SESSIONS).collect();
        let last = some.last().map(|(key, _)| key.0);
        let program = |(key, granted): (&SessionKey, &Granted)| {
            // Connections of a program that has ended may still deliver.
            self.connections.get(&key.0)?;
            let lines = granted.region.census_lines();
            let lines: Vec<_> = lines
                .filter(|line| line.subject.reason.is_some())
                .map(|line| ProgramCensus::words_of(&line))
                .collect();
            let who = &granted.who;
            let (program, pid, uid) = (who.program.clone(), who.pid, who.uid);
            (!lines.is_empty()).then_some(ProgramCensus { program, pid, uid, lines })
        };
        let programs = some.into_iter().filter_map(program).collect();
        FromEngine::Census { programs, next: last.filter(|_| sessions.next().is_some()) }
    }
}

/// The next step of an observer's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The observer's connection.
    pub connection: u64,
    /// Where the step begins, as `Worker::sockets_from` counts.
    pub place: usize,
}

/// The queue of steps for the worker, which takes one at a time for all observers.
#[derive(Debug, Default)]
pub struct Listings {
    put: Option<Step>,
    waiting: VecDeque<Step>,
}

impl Listings {
    /// Adds an observer's step. `Some`: send this one to the worker.
    pub fn ask(&mut self, step: Step) -> Option<Step> {
        self.waiting.push_back(step);
        self.put_next()
    }

    /// The worker has answered. Returns the finished step, and the next one.
    pub fn answered(&mut self) -> (Option<Step>, Option<Step>) {
        let answered = self.put.take();
        (answered, self.put_next())
    }

    /// A connection is gone.
    pub fn forget(&mut self, connection: u64) {
        self.waiting.retain(|step| step.connection != connection);
    }

    fn put_next(&mut self) -> Option<Step> {
        if self.put.is_some() {
            return None;
        }
        self.put = self.waiting.pop_front();
        self.put
    }
}

fn state_name(state: TcpState) -> &'static str {
    match state {
        TcpState::Closed => "CLOSED",
        TcpState::SynSent => "SYN-SENT",
        TcpState::SynReceived => "SYN-RECV",
        TcpState::Established => "ESTAB",
        TcpState::FinWait1 => "FIN-WAIT-1",
        TcpState::FinWait2 => "FIN-WAIT-2",
        TcpState::CloseWait => "CLOSE-WAIT",
        TcpState::Closing => "CLOSING",
        TcpState::LastAck => "LAST-ACK",
        TcpState::TimeWait => "TIME-WAIT",
    }
}

fn details(info: &TcpInfo) -> Vec<String> {
    let rate = |name: &str, bytes: Option<u64>| match bytes {
        Some(u64::MAX) | None => None,
        Some(bytes) => Some(format!("{name}:{}", bytes.saturating_mul(8))),
    };
    let more = [
        info.more.ecn.then(|| "ecn".to_string()),
        rate("pacing_rate", info.more.pacing_rate),
        rate("delivery_rate", info.more.delivery_rate),
        info.more.user_timeout_ns.map(|ns| format!("uto:{}", ns / 1_000_000)),
        info.more.peer_user_timeout_s.map(|s| format!("peer_uto:{}", u64::from(s) * 1000)),
    ];
    let mut words = vec![
        info.more.congestion.name().to_string(),
        format!("cwnd:{}", info.cwnd),
        format!("ssthresh:{}", info.ssthresh),
        format!("rtt:{:.3}/{:.3}", info.srtt_ns as f64 / 1e6, info.rttvar_ns as f64 / 1e6),
        format!("rto:{:.0}", info.rto_ns as f64 / 1e6),
        format!("mss:{}", info.mss),
        format!("snd_wnd:{}", info.send_window),
        format!("retrans:{}", info.retransmits),
    ];
    words.extend(more.into_iter().flatten());
    words
}

/// A job's identifier in details; jobs without a key have none.
fn job(identifier: u32) -> String {
    format!("job:{identifier:08x}")
}

/// The words for a socket; `who` is behind it, if that is known.
pub fn line(seen: &Seen, who: Option<&SessionWho>) -> SocketInfo {
    let blank = |protocol: &str, local, remote| SocketInfo {
        protocol: protocol.to_string(),
        state: String::new(),
        local,
        remote,
        receive_queue: 0,
        send_queue: 0,
        program: who.map_or_else(String::new, |who| who.program.clone()),
        pid: who.map_or(0, |who| who.pid),
        uid: who.map_or(0, |who| who.uid),
        details: Vec::new(),
    };
    match &seen.socket {
        SeenSocket::Stack(stack::SocketInfo::Tcp(_, info)) => SocketInfo {
            state: match info.kind {
                SocketKind::Listener => "LISTEN".to_string(),
                _ => state_name(info.state).to_string(),
            },
            receive_queue: info.receive_queue,
            send_queue: info.send_queue,
            details: match info.kind {
                SocketKind::Listener => Vec::new(),
                _ => details(info),
            },
            ..blank("tcp", info.local, info.remote)
        },
        SeenSocket::Stack(stack::SocketInfo::Udp(_, info)) => SocketInfo {
            state: if info.remote.is_some() { "ESTAB" } else { "UNCONN" }.to_string(),
            ..blank("udp", info.local, info.remote)
        },
        SeenSocket::Endpoint(local, of) => SocketInfo {
            state: if of.is_open { "OPEN" } else { "CLOSING" }.to_string(),
            receive_queue: of.unexpected.into(),
            send_queue: of.sends.into(),
            details: (of.job.map(job).into_iter())
                .chain([format!("peers:{}", of.peers), format!("posted:{}", of.receives)])
                .collect(),
            ..blank(MESSAGE_ENDPOINT, *local, None)
        },
        SeenSocket::Association(local, remote, of) => SocketInfo {
            state: if of.is_verified { "ESTAB" } else { "OPENING" }.to_string(),
            receive_queue: of.incoming.into(),
            send_queue: of.sends.into(),
            details: vec![
                job(of.job),
                format!("in_flight:{}", of.in_flight),
                format!("window:{}", of.window),
                format!("rtt:{:.3}", of.srtt_ns as f64 / 1e6),
            ],
            ..blank(ASSOCIATION, *local, Some(*remote))
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_takes_one_step_at_a_time_and_observers_have_them_by_turns() {
        let step = |connection, place| Step { connection, place };
        let mut listings = Listings::default();
        assert_eq!(listings.ask(step(1, 0)), Some(step(1, 0)));
        assert_eq!(listings.ask(step(2, 0)), None);
        assert_eq!(listings.ask(step(3, 0)), None);
        assert_eq!(listings.answered(), (Some(step(1, 0)), Some(step(2, 0))));
        assert_eq!(listings.ask(step(1, 64)), None);
        listings.forget(3);
        assert_eq!(listings.answered(), (Some(step(2, 0)), Some(step(1, 64))));
        assert_eq!(listings.answered(), (Some(step(1, 64)), None));
    }
}
