//! The lists of what may be accelerated. Anything else is left to the kernel as if there were no
//! engine. The program sees no error, and it is counted.

use std::net::IpAddr;

use port::Protocol;
use shm::control::RemoteRule;

/// Local ports from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The protocol; `None` for both.
    pub protocol: Option<Protocol>,
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
}

/// One list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// Local ports of listeners, of UDP sockets, and of connects from a port chosen by the program.
    pub ports: Vec<Ports>,
    /// Users whose programs are covered.
    pub users: Vec<u32>,
    /// Networks of remote addresses, with their prefix lengths.
    pub remotes: Vec<(IpAddr, u8)>,
}

/// Both lists. An empty part of `allow` allows everything. `deny` takes precedence over `allow`,
/// except that between networks the longer prefix decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Only these are accelerated.
    pub allow: List,
    /// These are not accelerated.
    pub deny: List,
}

impl Rules {
    /// Whether sockets at a local port may be served.
    pub fn admit_port(&self, protocol: Protocol, port: u16) -> bool {
        let named = |list: &List| {
            list.ports.iter().any(|range| {
                range.protocol.is_none_or(|of| of == protocol)
                    && (range.first..=range.last).contains(&port)
            })
        };
        !named(&self.deny) && (self.allow.ports.is_empty() || named(&self.allow))
    }

    /// Whether programs of a user may attach.
    pub fn admit_user(&self, user: u32) -> bool {
        !self.deny.users.contains(&user)
            && (self.allow.users.is_empty() || self.allow.users.contains(&user))
    }

    /// The rules for remote networks: of all that cover an address, the one with the longest prefix
    /// decides; without one it is accelerated.
    pub fn remotes(&self) -> Vec<RemoteRule> {
        let rule = |accelerated| {
            move |&(network, prefix): &(IpAddr, u8)| RemoteRule { network, prefix, accelerated }
        };
        let mut rules: Vec<RemoteRule> = self.deny.remotes.iter().map(rule(false)).collect();
        let denied = self.deny.remotes.clone();
        let allowed = self.allow.remotes.iter().filter(|network| !denied.contains(network));
        rules.extend(allowed.map(rule(true)));
        if !self.allow.remotes.is_empty() {
            for every in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
                if !rules.iter().any(|rule| rule.network == every && rule.prefix == 0) {
                    rules.push(RemoteRule { network: every, prefix: 0, accelerated: false });
                }
            }
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str, prefix: u8) -> (IpAddr, u8) {
        (text.parse().unwrap(), prefix)
    }

    #[test]
    fn empty_lists_allow_everything() {
        let rules = Rules::default();
        assert!(rules.admit_port(Protocol::Tcp, 80) && rules.admit_user(0));
        assert!(rules.remotes().is_empty());
    }

    #[test]
    fn a_list_of_allowed_ports_and_users_leaves_out_the_rest_and_deny_wins() {
        let ports = |protocol, first, last| Ports { protocol, first, last };
        let rules = Rules {
            allow: List {
                ports: vec![ports(Some(Protocol::Tcp), 6000, 6999), ports(None, 53, 53)],
                users: vec![7, 8],
                ..List::default()
            },
            deny: List { ports: vec![ports(None, 6379, 6379)], users: vec![8], ..List::default() },
        };
        for (protocol, port, expected) in [
            (Protocol::Tcp, 6000, true),
            (Protocol::Tcp, 6379, false),
            (Protocol::Tcp, 7000, false),
            (Protocol::Udp, 6000, false),
            (Protocol::Udp, 53, true),
        ] {
            assert_eq!(rules.admit_port(protocol, port), expected, "{protocol:?} {port}");
        }
        assert_eq!([0, 7, 8].map(|user| rules.admit_user(user)), [false, true, false]);
    }

    #[test]
    fn a_list_of_allowed_networks_denies_all_others_and_the_longer_prefix_wins() {
        let rules = Rules {
            allow: List {
                remotes: vec![network("10.0.0.0", 8), network("192.0.2.0", 24)],
                ..List::default()
            },
            deny: List {
                remotes: vec![network("10.1.0.0", 16), network("192.0.2.0", 24)],
                ..List::default()
            },
        };
        let remotes = rules.remotes();
        for (address, expected) in [
            ("10.0.0.1", true),
            ("10.1.0.1", false),
            ("192.0.2.1", false),
            ("198.51.100.1", false),
            ("fd00::1", false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(shm::control::accelerates(&remotes, address), expected, "{address}");
        }
    }
}
