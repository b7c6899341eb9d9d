//! The kernel's firewall, which accelerated traffic does not pass: rules of nftables and of both
//! kinds of iptables, read through their own tools, and which of them concern a port.
//!
//! A rule concerns a port when it looks at packets to or from this machine and may match one of
//! the port's; what cannot be understood is taken to match. A rule that only accepts, and names no
//! port, concerns none.

use std::ops::RangeInclusive;
use std::process::{Command, Stdio};

use port::Protocol;

mod iptables;
mod nftables;

/// Where a rule stands and what it says, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Table and chain, e.g. `nftables inet filter input`.
    pub place: String,
    /// The rule, or the policy of its chain.
    pub text: String,
    matches: Matches,
}

/// What a rule is known to ask of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Matches {
    /// The one protocol.
    protocol: Option<Protocol>,
    /// It is for another protocol, or another interface than those of a machine's traffic.
    is_foreign: bool,
    /// The local ports; all when `None`.
    ports: Option<Ports>,
    /// Does more than accept or count.
    acts: bool,
    /// Gives what goes out this machine's address in the place of another's.
    translates: bool,
}

/// Ports that a rule names, or all but those.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ports {
    ranges: Vec<RangeInclusive<u16>>,
    but: bool,
}

impl Matches {
    /// Narrows the ports down; of two conditions the first decides.
    fn name_ports(&mut self, ranges: Vec<RangeInclusive<u16>>, but: bool) {
        self.ports.get_or_insert(Ports { ranges, but });
    }

    fn concern(&self, protocol: Protocol, port: u16) -> bool {
        if self.is_foreign || self.protocol.is_some_and(|of| of != protocol) {
            return false;
        }
        match &self.ports {
            Some(ports) => ports.ranges.iter().any(|range| range.contains(&port)) != ports.but,
            None => self.acts,
        }
    }
}

/// What was found of the kernel's firewall.
#[derive(Clone, Debug, Default)]
pub struct Firewall {
    /// Every rule, and every policy that drops.
    pub rules: Vec<Rule>,
    /// Connections that are tracked; 0 where nothing tracks them.
    pub tracked: u64,
    /// What could not be seen: sentences.
    pub unseen: Vec<String>,
}

impl Firewall {
    /// Reads the rules of this network namespace. Takes CAP_NET_ADMIN, and CAP_NET_RAW for the
    /// older iptables; starts programs.
    pub fn read() -> Self {
        let mut found = Self::default();
        let mut tables_of_iptables = Vec::new();
        for program in ["iptables-nft-save", "ip6tables-nft-save"] {
            if let Tool::Says(text) = run(program, &[]) {
                tables_of_iptables.extend(iptables::tables(&text));
                found.rules.extend(iptables::rules(program, &text));
            }
        }
        match run("nft", &["-j", "list", "ruleset"]) {
            Tool::Says(text) => found.rules.extend(nftables::rules(&text, &tables_of_iptables)),
            Tool::Missing if tables_of_iptables.is_empty() => found
                .unseen
                .push("nft is not installed, so nftables rules cannot be listed".to_owned()),
            Tool::Missing => {}
            Tool::Fails(why) => found.unseen.push(format!("nft lists no rules: {why}")),
        }
        // These would set up empty tables only by asking, so they are asked where there are some.
        for (list, program) in [
            ("/proc/net/ip_tables_names", "iptables-legacy-save"),
            ("/proc/net/ip6_tables_names", "ip6tables-legacy-save"),
        ] {
            let tables = match std::fs::read_to_string(list) {
                Ok(tables) => tables,
                // The older iptables is not in this kernel.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => {
                    found.unseen.push(format!(
                        "{list} cannot be read by the engine's user ({error}), so rules that \
                         {program} would show cannot be listed; run `outboard doctor` as root to \
                         list them"
                    ));
                    continue;
                }
            };
            if tables.trim().is_empty() {
                continue;
            }
            match run(program, &[]) {
                Tool::Says(text) => found.rules.extend(iptables::rules(program, &text)),
                Tool::Missing => found.unseen.push(format!(
                    "{program} is not installed, so the rules of its tables ({}) cannot be listed",
                    tables.split_whitespace().collect::<Vec<_>>().join(", ")
                )),
                Tool::Fails(why) => found.unseen.push(format!("{program}: {why}")),
            }
        }
        let count = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
        found.tracked = count.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        found
    }

    /// The rules that concern a local port.
    pub fn concerning(&self, protocol: Protocol, port: u16) -> Vec<&Rule> {
        self.rules.iter().filter(|rule| rule.matches.concern(protocol, port)).collect()
    }

    /// The rules by which other machines use this one's addresses.
    pub fn translating(&self) -> Vec<&Rule> {
        self.rules.iter().filter(|rule| rule.matches.translates).collect()
    }

    /// What such rules mean beside an engine whose own connections come from `ports`; `None` where
    /// there are none.
    pub fn translation(&self, ports: &str) -> Option<String> {
        let rules = self.translating();
        (!rules.is_empty()).then(|| {
            format!(
                "address translation assigns this machine's ports to others, and replies to \
                 {ports} go to the engine: {}; restrict translation to other ports (masquerade to \
                 :1024-19999, --to-ports 1024-19999)",
                listed(&rules)
            )
        })
    }

    /// What to say when a port is accelerated; `None` when nothing concerns it.
    pub fn warning(&self, protocol: Protocol, port: u16) -> Option<String> {
        let concerning = self.concerning(protocol, port);
        if concerning.is_empty() {
            return None;
        }
        let word = match protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        Some(format!(
            "firewall rules do not apply to {word} port {port} while it is accelerated: {}; if \
             they must, put the port under [deny], or filter before this machine",
            listed(&concerning)
        ))
    }
}

/// Rules named in a sentence.
const NAMED: usize = 4;

/// The first rules by name, and how many more there are.
pub fn listed(rules: &[&Rule]) -> String {
    let name = |rule: &&Rule| format!("{}: {}", rule.place, rule.text);
    let mut names: Vec<String> = rules.iter().take(NAMED).map(name).collect();
    if let more @ 1.. = rules.len().saturating_sub(NAMED) {
        names.push(format!("and {more} more"));
    }
    names.join("; ")
}

enum Tool {
    Says(String),
    Missing,
    Fails(String),
}

fn run(program: &str, arguments: &[&str]) -> Tool {
    let output = Command::new(program)
        .args(arguments)
        // Also where the engine was started with a short path.
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output();
    match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Tool::Missing,
        Err(error) => Tool::Fails(error.to_string()),
        Ok(output) if output.status.success() => {
            Tool::Says(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Tool::Fails(said.lines().next().unwrap_or("it fails without a message").to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str, matches: Matches) -> Rule {
        Rule { place: "nftables inet t input".into(), text: text.into(), matches }
    }

    #[test]
    fn rules_that_concern_a_port_are_named_and_many_are_counted() {
        let one = |port: u16| Matches {
            protocol: Some(Protocol::Tcp),
            ports: Some(Ports { ranges: vec![port..=port], but: false }),
            ..Matches::default()
        };
        let mut firewall = Firewall {
            rules: vec![rule("tcp dport 80 accept", one(80)), rule("tcp dport 81 drop", one(81))],
            ..Firewall::default()
        };
        let said = firewall.warning(Protocol::Tcp, 80).expect("concerned");
        assert!(said.contains("tcp port 80") && said.contains("dport 80 accept"), "{said}");
        assert!(!said.contains("dport 81") && said.contains("[deny]"), "{said}");
        assert_eq!(firewall.warning(Protocol::Udp, 80), None);
        assert_eq!(firewall.warning(Protocol::Tcp, 82), None);
        let policy = Matches { acts: true, ..Matches::default() };
        firewall.rules.extend((0..6).map(|_| rule("policy drop", policy.clone())));
        let said = firewall.warning(Protocol::Udp, 9).expect("concerned by what names no port");
        assert!(said.contains("and 2 more"), "{said}");
    }

    #[test]
    fn rules_that_translate_addresses_are_named() {
        let translates = Matches { acts: true, translates: true, ..Matches::default() };
        let mut firewall =
            Firewall { rules: vec![rule("drop", Matches::default())], ..Firewall::default() };
        assert_eq!(firewall.translation("ports 61000 to 62023"), None);
        firewall.rules.push(rule("oifname eth0 masquerade", translates));
        let said = firewall.translation("ports 61000 to 62023").expect("a rule");
        assert!(said.contains("61000 to 62023") && said.contains("eth0 masquerade"), "{said}");
    }

    #[test]
    fn all_ports_but_some_are_not_those() {
        let matches = Matches {
            ports: Some(Ports { ranges: vec![22..=22], but: true }),
            ..Matches::default()
        };
        assert!(matches.concern(Protocol::Tcp, 80) && !matches.concern(Protocol::Tcp, 22));
    }
}
