//! `[allow]` and `[deny]` of the configuration: what may be accelerated.

use std::net::IpAddr;

use engine::rules::{List, Ports, Rules};
use lab::failure::{Failure, Result};
use port::Protocol;
use port::spec::{PortKind, PortSpec, Remote};
use serde::Deserialize;
use toml::Spanned;

use crate::users;

/// One of the two tables, as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    #[serde(default)]
    ports: Vec<Spanned<String>>,
    #[serde(default)]
    users: Vec<Spanned<String>>,
    #[serde(default)]
    remotes: Vec<Spanned<String>>,
}

/// Networks in both tables: what one message to a program holds, beside the routes.
pub const REMOTES_MAX: usize = 1024;

impl Table {
    /// What the table says, which takes its networks from `room`; `fail` makes a failure of what
    /// is wrong at a place of the file.
    ///
    /// # Errors
    /// The first that is no port, user or network, and more networks than there is room for.
    pub fn list(&self, room: &mut usize, fail: impl Fn(usize, String) -> Failure) -> Result<List> {
        fn each<T>(
            written: &[Spanned<String>],
            fail: &impl Fn(usize, String) -> Failure,
            understand: impl Fn(&str) -> Result<T, String>,
        ) -> Result<Vec<T>> {
            let one = |text: &Spanned<String>| {
                understand(text.get_ref()).map_err(|why| fail(text.span().start, why))
            };
            written.iter().map(one).collect()
        }
        if let Some(beyond) = self.remotes.get(*room) {
            return Err(fail(
                beyond.span().start,
                format!("more than {REMOTES_MAX} networks in [allow] and [deny]: merge some"),
            ));
        }
        *room = room.saturating_sub(self.remotes.len());
        Ok(List {
            ports: each(&self.ports, &fail, ports)?,
            users: each(&self.users, &fail, |name| {
                users::user_number(name).map_err(|failure| failure.cause().to_owned())
            })?,
            remotes: each(&self.remotes, &fail, network)?,
        })
    }
}

/// `6379`, `8000-8999`, `tcp:80`, `udp:53-54`.
fn ports(text: &str) -> Result<Ports, String> {
    let (protocol, range) = match text.split_once(':') {
        None => (None, text),
        Some(("tcp", range)) => (Some(Protocol::Tcp), range),
        Some(("udp", range)) => (Some(Protocol::Udp), range),
        Some(_) => return Err(format!("{text:?} is not a port: write e.g. \"tcp:80\" or \"53\"")),
    };
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(Ports { protocol, first, last }),
        _ => Err(format!(
            "{text:?} is not a port or range: write e.g. \"6379\" or \"tcp:8000-8999\""
        )),
    }
}

fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let bad = || format!("{text:?} is not a network: write e.g. \"10.0.0.0/8\" or \"fd00::/8\"");
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| bad())?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.map_or(Ok(width), str::parse).ok().filter(|prefix| *prefix <= width);
    let prefix: u8 = prefix.ok_or_else(bad)?;
    let has_rest = match address {
        IpAddr::V4(own) => own.to_bits().checked_shl(prefix.into()).unwrap_or(0) != 0,
        IpAddr::V6(own) => own.to_bits().checked_shl(prefix.into()).unwrap_or(0) != 0,
    };
    if let IpAddr::V6(own) = address
        && let (Some(mapped), Some(prefix)) = (own.to_ipv4_mapped(), prefix.checked_sub(96))
    {
        return Err(format!("{text:?} is an IPv4 network: write \"{mapped}/{prefix}\""));
    }
    match has_rest {
        true => {
            Err(format!("{text:?} has bits set beyond its prefix: write the network's address"))
        }
        false => Ok((address, prefix)),
    }
}

/// Tells the ports which remote addresses are served.
///
/// # Errors
/// When a port has no kernel behind it that could serve the others.
pub fn tell(rules: &Rules, ports: &mut [PortSpec]) -> Result<()> {
    let remotes: Vec<Remote> = rules
        .remotes()
        .into_iter()
        .map(|rule| Remote { network: rule.network, prefix: rule.prefix, served: rule.accelerated })
        .collect();
    for port in ports {
        if port.kind != PortKind::Xdp && !remotes.is_empty() {
            return Err(Failure::new(
                format!(
                    "`remotes` leaves peers to the kernel, which has no address on {}",
                    port.label()
                ),
                "use an xdp port, or remove `remotes` from [allow] and [deny]",
            ));
        }
        port.remotes.clone_from(&remotes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_with_or_without_their_protocol() {
        let of = |protocol, first, last| Ok(Ports { protocol, first, last });
        assert_eq!(ports("53"), of(None, 53, 53));
        assert_eq!(ports("tcp:80"), of(Some(Protocol::Tcp), 80, 80));
        assert_eq!(ports("udp:1-65535"), of(Some(Protocol::Udp), 1, 65535));
        for wrong in ["", "http", "sctp:1", "9-3", "70000", "tcp:"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn networks_have_no_bits_beyond_their_prefix() {
        let good = |text: &str, address: &str, prefix| {
            assert_eq!(network(text), Ok((address.parse().unwrap(), prefix)), "{text}");
        };
        good("10.0.0.0/8", "10.0.0.0", 8);
        good("0.0.0.0/0", "0.0.0.0", 0);
        good("192.0.2.1", "192.0.2.1", 32);
        good("fd00::/8", "fd00::", 8);
        good("::/0", "::", 0);
        for wrong in ["10.0.0.1/8", "10.0.0.0/33", "ten", "fd00::1/64", "::/129", "1.2.3.4/x"] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ipv4_networks_are_not_written_as_ipv6() {
        let why = network("::ffff:10.0.0.0/104").unwrap_err();
        assert!(why.contains("write \"10.0.0.0/8\""), "{why}");
        assert!(network("::ffff:0:0/96").is_err());
    }
}
