//! The engine's sockets, for `outboard ss`.

use std::net::SocketAddr;

use shm::control::SocketInfo;
use stack::api::{Owner, SocketKind, TcpState};
use stack::tcp::TcpInfo;

use crate::session::Session;
use crate::sessions::Holder;
use crate::worker::Worker;

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
    vec![
        format!("cwnd:{}", info.cwnd),
        format!("ssthresh:{}", info.ssthresh),
        format!("rtt:{:.3}/{:.3}", info.srtt_ns as f64 / 1e6, info.rttvar_ns as f64 / 1e6),
        format!("rto:{:.0}", info.rto_ns as f64 / 1e6),
        format!("mss:{}", info.mss),
        format!("snd_wnd:{}", info.send_window),
        format!("retrans:{}", info.retransmits),
    ]
}

impl Worker {
    fn session_of(&self, owner: Owner) -> Option<&Session> {
        match Holder::of(owner) {
            Holder::Endpoint { place, .. } | Holder::Orphan { place, .. } => {
                self.sessions.peek(place)
            }
            Holder::Listener(index) => {
                let (place, _) = self.listeners.peek(index)?.attached().first()?;
                self.sessions.peek(*place)
            }
            Holder::Nobody => None,
        }
    }

    fn line(&self, protocol: &str, owner: Owner, local: SocketAddr) -> SocketInfo {
        let who = self.session_of(owner).map(|session| &session.who);
        SocketInfo {
            protocol: protocol.to_string(),
            state: "UNCONN".to_string(),
            local,
            remote: None,
            receive_queue: 0,
            send_queue: 0,
            program: who.map_or_else(String::new, |who| who.program.clone()),
            pid: who.map_or(0, |who| who.pid),
            uid: who.map_or(0, |who| who.uid),
            details: Vec::new(),
        }
    }

    /// Every socket of the stack, with the program behind it.
    pub fn socket_list(&self) -> Vec<SocketInfo> {
        self.stack
            .sockets(self.now)
            .map(|socket| match socket {
                stack::SocketInfo::Tcp(_, info) => SocketInfo {
                    state: match info.kind {
                        SocketKind::Listener => "LISTEN".to_string(),
                        _ => state_name(info.state).to_string(),
                    },
                    remote: info.remote,
                    receive_queue: info.receive_queue,
                    send_queue: info.send_queue,
                    details: match info.kind {
                        SocketKind::Listener => Vec::new(),
                        _ => details(&info),
                    },
                    ..self.line("tcp", info.owner, info.local)
                },
                stack::SocketInfo::Udp(_, info) => SocketInfo {
                    remote: info.remote,
                    state: if info.remote.is_some() { "ESTAB" } else { "UNCONN" }.to_string(),
                    ..self.line("udp", info.owner, info.local)
                },
            })
            .collect()
    }

    /// Writes what others count to the counters: ports, stack, cycles, buffers.
    pub fn copy_counters(&self) {
        let counters = &self.counters;
        let dying = self.sessions.iter().filter(|(_, one)| one.dying_since.is_some()).count();
        counters.sessions.set((self.sessions.iter().count() - dying) as u64);
        counters.sessions_dying.set(dying as u64);
        counters.stash_bytes.set(self.sessions.stash.bytes() as u64);
        let in_use = |one: &crate::session::Session| one.endpoints.len() - one.free_endpoints.len();
        counters.endpoints.set(self.sessions.iter().map(|(_, one)| in_use(one) as u64).sum());
        let total: u64 = self.sessions.iter().map(|(_, one)| u64::from(one.pool.total())).sum();
        let free: u64 = self.sessions.iter().map(|(_, one)| one.pool.free() as u64).sum();
        counters.buffers_total.set(total);
        counters.buffers_free.set(free);
        counters.copied.replace(|list| {
            for attached in &self.ports {
                let name = &attached.port.info().name;
                let of = attached.port.counters();
                for (what, value) in [
                    ("rx_frames", of.rx_frames),
                    ("rx_bytes", of.rx_bytes),
                    ("rx_missed", of.rx_missed),
                    ("rx_errors", of.rx_errors),
                    ("tx_frames", of.tx_frames),
                    ("tx_bytes", of.tx_bytes),
                    ("tx_full", of.tx_full),
                    ("tx_errors", of.tx_errors),
                ] {
                    list.push((format!("port_{what}{{port={name}}}"), value));
                }
            }
            for ((_, name), cycles) in crate::account::COMPONENTS.iter().zip(self.account.totals())
            {
                list.push(((*name).to_string(), *cycles));
            }
            self.stack.each_counter(|name, value| list.push((name.to_string(), value)));
            let of = self.stack.counters();
            for (reason, count) in stack::drops::DropReason::ALL.iter().zip(&of.drops) {
                list.push((format!("stack_drops{{reason={}}}", reason.name()), *count));
            }
        });
    }
}
