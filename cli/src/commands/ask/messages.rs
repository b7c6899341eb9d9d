//! Message endpoints and associations in `outboard ss`.

use std::fmt::Write as _;

use shm::control::{ASSOCIATION, MESSAGE_ENDPOINT, SocketInfo};

use super::process;

/// What an engine has for messages.
#[derive(Debug, Default)]
pub struct Messages {
    endpoints: Vec<SocketInfo>,
    associations: Vec<SocketInfo>,
}

impl Messages {
    /// Takes what belongs to messages out of an engine's list.
    pub fn take_from(sockets: &mut Vec<SocketInfo>) -> Self {
        let mut taken = |protocol: &str| {
            let (own, rest) =
                std::mem::take(sockets).into_iter().partition(|one| one.protocol == protocol);
            *sockets = rest;
            own
        };
        Self { endpoints: taken(MESSAGE_ENDPOINT), associations: taken(ASSOCIATION) }
    }

    /// Whether an endpoint has a kernel socket, which holds the endpoint's number and receives nothing.
    pub fn has_kernel_socket(&self, socket: &SocketInfo) -> bool {
        let is_its = |endpoint: &SocketInfo| endpoint.local == socket.local;
        socket.protocol == "udp" && self.endpoints.iter().any(is_its)
    }

    /// A table of each, with an empty line before it; nothing where there is nothing.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.endpoints.is_empty() {
            let _ = writeln!(
                text,
                "\n{:<28} {:<8} {:<8} {:>5} {:>7} {:>7} {:>10} Process",
                "Message Endpoint", "State", "Job", "Peers", "Sends", "Posted", "Unexpected"
            );
        }
        for of in &self.endpoints {
            let line = format!(
                "{:<28} {:<8} {:<8} {:>5} {:>7} {:>7} {:>10} {}",
                of.local.to_string(),
                of.state,
                detail(of, "job").unwrap_or("-"),
                detail(of, "peers").unwrap_or("-"),
                of.send_queue,
                detail(of, "posted").unwrap_or("-"),
                of.receive_queue,
                process(of),
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        if !self.associations.is_empty() {
            let _ = writeln!(
                text,
                "\n{:<28} {:<28} {:<8} {:<8} {:>7} {:>8} {:>9} {:>6} {:>9}",
                "Association",
                "Host",
                "State",
                "Job",
                "Sends",
                "Incoming",
                "In-Flight",
                "Window",
                "RTT (ms)"
            );
        }
        for of in &self.associations {
            let _ = writeln!(
                text,
                "{:<28} {:<28} {:<8} {:<8} {:>7} {:>8} {:>9} {:>6} {:>9}",
                of.local.ip().to_string(),
                of.remote.map_or_else(String::new, |remote| remote.ip().to_string()),
                of.state,
                detail(of, "job").unwrap_or("-"),
                of.send_queue,
                of.receive_queue,
                detail(of, "in_flight").unwrap_or("-"),
                detail(of, "window").unwrap_or("-"),
                detail(of, "rtt").unwrap_or("-"),
            );
        }
        text
    }

    /// The endpoints as JSON.
    pub fn endpoints_json(&self) -> Vec<serde_json::Value> {
        let endpoint = |of: &SocketInfo| {
            serde_json::json!({
                "address": of.local.to_string(),
                "state": of.state,
                "job": detail(of, "job"),
                "peers": number(of, "peers"),
                "sends": of.send_queue,
                "posted": number(of, "posted"),
                "unexpected": of.receive_queue,
                "program": of.program,
                "pid": of.pid,
                "uid": of.uid,
            })
        };
        self.endpoints.iter().map(endpoint).collect()
    }

    /// The associations as JSON.
    pub fn associations_json(&self) -> Vec<serde_json::Value> {
        let association = |of: &SocketInfo| {
            serde_json::json!({
                "local": of.local.to_string(),
                "remote": of.remote.map(|remote| remote.to_string()),
                "state": of.state,
                "job": detail(of, "job"),
                "sends": of.send_queue,
                "incoming": of.receive_queue,
                "in_flight": number(of, "in_flight"),
                "window": number(of, "window"),
                "rtt_ms": detail(of, "rtt").and_then(|rtt| rtt.parse::<f64>().ok()),
            })
        };
        self.associations.iter().map(association).collect()
    }
}

/// The value of a detail.
fn detail<'a>(of: &'a SocketInfo, name: &str) -> Option<&'a str> {
    let pairs = of.details.iter().filter_map(|detail| detail.split_once(':'));
    pairs.into_iter().find(|(own, _)| *own == name).map(|(_, value)| value)
}

fn number(of: &SocketInfo, name: &str) -> Option<u64> {
    detail(of, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(protocol: &str, local: &str, details: &[&str]) -> SocketInfo {
        SocketInfo {
            protocol: protocol.into(),
            state: "OPEN".into(),
            local: local.parse().expect("an address"),
            remote: None,
            receive_queue: 3,
            send_queue: 2,
            program: "ring".into(),
            pid: 42,
            uid: 0,
            details: details.iter().map(|detail| (*detail).to_owned()).collect(),
        }
    }

    #[test]
    fn endpoints_and_associations_have_tables_of_their_own() {
        let endpoint = line("msg", "10.0.0.1:5000", &["job:00c0ffee", "peers:1", "posted:4"]);
        let association = SocketInfo {
            remote: Some("10.0.0.2:26870".parse().expect("an address")),
            ..line("assoc", "10.0.0.1:26870", &["job:00c0ffee", "in_flight:7", "rtt:0.041"])
        };
        let mut all = vec![line("tcp", "10.0.0.1:80", &[]), association, endpoint];
        let messages = Messages::take_from(&mut all);
        assert_eq!(all.len(), 1);
        let text = messages.text();
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[2][..7], ["10.0.0.1:5000", "OPEN", "00c0ffee", "1", "2", "4", "3"]);
        assert_eq!(rows[2][7], "users:((\"ring\",pid=42))");
        assert_eq!(
            rows[5],
            ["10.0.0.1", "10.0.0.2", "OPEN", "00c0ffee", "2", "3", "7", "-", "0.041"]
        );
        let json = &messages.endpoints_json()[0];
        assert_eq!((&json["posted"], &json["unexpected"]), (&4.into(), &3.into()));
        assert_eq!(messages.associations_json()[0]["rtt_ms"], 0.041);
        // The kernel's socket at the endpoint's number, and another one.
        assert!(messages.has_kernel_socket(&line("udp", "10.0.0.1:5000", &[])));
        assert!(!messages.has_kernel_socket(&line("udp", "10.0.0.1:5001", &[])));
        assert_eq!(Messages::default().text(), "");
    }
}
