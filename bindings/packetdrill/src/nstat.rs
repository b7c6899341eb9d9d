//! nstat(8) in a script's commands: the kernel's counters do not include our stack's work.

use std::collections::BTreeMap;

/// Counters of the kernel that our stack has, too, with both names.
const NAMES: [(&str, &str); 7] = [
    ("TcpActiveOpens", "tcp_active_opens"),
    ("TcpPassiveOpens", "tcp_passive_opens"),
    ("TcpExtBeyondWindow", "tcp_beyond_window"),
    ("TcpExtOutOfWindowIcmps", "tcp_icmp_out_of_window"),
    ("TcpExtTCPChallengeACK", "tcp_challenge_acks"),
    ("TcpExtTCPOFOQueue", "tcp_out_of_order"),
    ("TcpExtTCPTimeouts", "tcp_timeouts"),
];

/// The values last shown, by our names: nstat shows increments.
#[derive(Debug, Default)]
pub struct Nstat(BTreeMap<&'static str, u64>);

impl Nstat {
    /// Shell code for a script's command in which `nstat` shows our counters; `None` for commands
    /// without it.
    pub fn define(&mut self, command: &str, counter: impl Fn(&str) -> u64) -> Option<String> {
        let is_shown = |part: &str| part.split_whitespace().next() == Some("nstat");
        let mut calls = command.split(['|', ';', '\n']).filter(|part| is_shown(part)).peekable();
        calls.peek()?;
        let mut lines = String::new();
        for (kernel, own) in NAMES {
            let added = counter(own) - self.0.get(own).copied().unwrap_or_default();
            if added > 0 {
                lines += &format!("{kernel:<32}{added:<16} 0.0\n");
            }
        }
        if calls.any(|call| !call.split_whitespace().any(|word| word == "-s")) {
            self.0 = NAMES.iter().map(|(_, own)| (*own, counter(own))).collect();
        }
        Some(format!(
            "nstat() {{ [ \"$1\" = -n ] || cat; }} <<'END'\n#kernel\n{lines}END\n{command}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_since_it_was_last_shown_is_shown() {
        let mut nstat = Nstat::default();
        assert_eq!(nstat.define("ip link; echo nstat", |_| 1), None);
        let shown = |code: Option<String>| {
            let code = code.unwrap();
            let line = code.lines().find(|line| line.starts_with("TcpExtBeyondWindow"));
            line.map(|line| line.split_whitespace().nth(1).unwrap().to_string())
        };
        assert!(nstat.define("nstat -n", |_| 2).is_some());
        assert_eq!(shown(nstat.define("nstat -s | grep -q x", |_| 5)).as_deref(), Some("3"));
        assert_eq!(shown(nstat.define("nstat | grep -q x", |_| 6)).as_deref(), Some("4"));
        assert_eq!(shown(nstat.define("nstat", |_| 6)), None);
    }
}
