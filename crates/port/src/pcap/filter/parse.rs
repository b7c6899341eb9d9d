//! Parser from an expression's text to its tree.

use std::net::{IpAddr, Ipv4Addr};

use super::view::{Network, first_of};
use super::{Family, FilterError, Side, TESTS_MAX, Test, Tree};

const IP4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IP6: u16 = 0x86dd;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

/// Maximum nesting of parentheses and "not".
const DEPTH_MAX: usize = 100;

type Result<T> = std::result::Result<T, FilterError>;

/// The protocol before a direction or a kind of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Ip4,
    Ip6,
    Arp,
    Tcp,
    Udp,
    Icmp,
    Icmp6,
    Ether,
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Host,
    Net,
    Port,
    PortRange,
}

/// The words before a value.
#[derive(Clone, Copy, Debug, Default)]
struct Words {
    protocol: Option<Protocol>,
    side: Option<Side>,
    kind: Option<Kind>,
}

struct Parser<'a> {
    words: Vec<&'a str>,
    at: usize,
    tests: usize,
    depth: usize,
    /// Those of the last test with a value.
    before: Words,
}

pub(super) fn parse(text: &str) -> Result<Tree> {
    let words = split(text);
    if words.is_empty() {
        return Ok(Tree::Test(Test::Everything));
    }
    let mut parser = Parser { words, at: 0, tests: 0, depth: 0, before: Words::default() };
    let tree = parser.expression()?;
    match parser.next() {
        None => Ok(tree),
        Some(word) => Err(wrong(word, "join tests by \"and\" or \"or\"")),
    }
}

/// Words are separated by spaces; parentheses, `!`, `&&` and `||` need none.
fn split(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let len = if rest.starts_with("&&") || rest.starts_with("||") {
            2
        } else if rest.starts_with(['(', ')', '!']) {
            1
        } else {
            let ends = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '!' | '&' | '|');
            let first = rest.chars().next().map_or(1, char::len_utf8);
            rest.get(first..).and_then(|more| more.find(ends)).map_or(rest.len(), |at| first + at)
        };
        let (word, more) = rest.split_at(len);
        words.push(word);
        rest = more.trim_start();
    }
    words
}

fn wrong(word: &str, instead: &str) -> FilterError {
    FilterError(format!("the filter's word \"{word}\" is not understood there: {instead}"))
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek();
        self.at += usize::from(word.is_some());
        word
    }

    fn takes(&mut self, choices: &[&str]) -> bool {
        let taken = self.peek().is_some_and(|word| choices.contains(&word));
        self.at += usize::from(taken);
        taken
    }

    fn expression(&mut self) -> Result<Tree> {
        let mut tree = self.term()?;
        loop {
            if self.takes(&["and", "&&"]) {
                tree = Tree::And(Box::new(tree), Box::new(self.term()?));
            } else if self.takes(&["or", "||"]) {
                tree = Tree::Or(Box::new(tree), Box::new(self.term()?));
            } else {
                return Ok(tree);
            }
        }
    }

    fn term(&mut self) -> Result<Tree> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(FilterError(format!(
                "the filter is nested more than {DEPTH_MAX} deep; write a simpler one"
            )));
        }
        let tree = if self.takes(&["not", "!"]) {
            Tree::Not(Box::new(self.term()?))
        } else if self.takes(&["("]) {
            let tree = self.expression()?;
            if !self.takes(&[")"]) {
                return Err(FilterError(
                    "a parenthesis of the filter is not closed; add \")\"".to_owned(),
                ));
            }
            tree
        } else {
            self.tests += 1;
            if self.tests > TESTS_MAX {
                return Err(FilterError(format!(
                    "the filter has more than {TESTS_MAX} tests; use networks and portranges"
                )));
            }
            Tree::Test(self.test()?)
        };
        self.depth -= 1;
        Ok(tree)
    }

    fn test(&mut self) -> Result<Test> {
        let mut words = Words { protocol: self.protocol(), side: self.side()?, kind: self.kind() };
        if let (Some(protocol), None, None) = (words.protocol, words.side, words.kind)
            && self.peek().is_none_or(|word| !is_value(word))
        {
            return alone(protocol);
        }
        let Some(value) = self.next() else {
            return Err(FilterError(
                "the filter ends where a test is expected; write e.g. \"tcp port 80\"".to_owned(),
            ));
        };
        if words.protocol.is_none() && words.side.is_none() && words.kind.is_none() {
            if !is_value(value) {
                return Err(wrong(
                    value,
                    "write host, net, port, portrange, src, dst, ether, ip, ip6, arp, tcp, udp, \
                     icmp or icmp6",
                ));
            }
            // A value alone repeats the words before the last one.
            words = self.before;
        } else {
            self.before = words;
        }
        test_of(words, value)
    }

    fn protocol(&mut self) -> Option<Protocol> {
        let protocol = match self.peek()? {
            "ip" => Protocol::Ip4,
            "ip6" => Protocol::Ip6,
            "arp" => Protocol::Arp,
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "icmp" => Protocol::Icmp,
            "icmp6" => Protocol::Icmp6,
            "ether" => Protocol::Ether,
            _ => return None,
        };
        self.at += 1;
        Some(protocol)
    }

    fn side(&mut self) -> Result<Option<Side>> {
        let first = match self.peek() {
            Some("src") => Side::Source,
            Some("dst") => Side::Destination,
            _ => return Ok(None),
        };
        self.at += 1;
        let second = |side| if side == Side::Source { "dst" } else { "src" };
        let joined = match self.peek() {
            Some("or" | "||") => Side::Either,
            Some("and" | "&&") => Side::Both,
            _ => return Ok(Some(first)),
        };
        if self.words.get(self.at + 1) != Some(&second(first)) {
            return Err(wrong(
                self.words.get(self.at + 1).copied().unwrap_or(""),
                "\"src\" and \"dst\" are followed by a value, or joined to each other",
            ));
        }
        self.at += 2;
        Ok(Some(joined))
    }

    fn kind(&mut self) -> Option<Kind> {
        let kind = match self.peek()? {
            "host" => Kind::Host,
            "net" => Kind::Net,
            "port" => Kind::Port,
            "portrange" => Kind::PortRange,
            _ => return None,
        };
        self.at += 1;
        Some(kind)
    }
}

/// Whether a word is a number, an address or the like, and not a keyword.
fn is_value(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || c == ':') || word.contains(':')
}

/// A protocol without a following value.
fn alone(protocol: Protocol) -> Result<Test> {
    Ok(match protocol {
        Protocol::Ip4 => Test::EtherType(IP4),
        Protocol::Ip6 => Test::EtherType(IP6),
        Protocol::Arp => Test::EtherType(ARP),
        Protocol::Tcp => Test::Protocol(TCP),
        Protocol::Udp => Test::Protocol(UDP),
        Protocol::Icmp => Test::Protocol4(ICMP),
        Protocol::Icmp6 => Test::Protocol6(ICMP6),
        Protocol::Ether => {
            return Err(FilterError(
                "\"ether\" in the filter is followed by src, dst or host and a link address, \
                 e.g. ether host 02:00:00:00:00:01"
                    .to_owned(),
            ));
        }
    })
}

fn test_of(words: Words, value: &str) -> Result<Test> {
    let side = words.side.unwrap_or(Side::Either);
    let kind = words.kind.unwrap_or(Kind::Host);
    let word = match kind {
        Kind::Host => "host",
        Kind::Net => "net",
        Kind::Port => "port",
        Kind::PortRange => "portrange",
    };
    if words.protocol == Some(Protocol::Ether) {
        return match (kind, link_address(value)) {
            (Kind::Host, Some(mac)) => Ok(Test::Link(side, mac)),
            (Kind::Host, None) => Err(wrong(value, "write six bytes, e.g. 02:00:00:00:00:01")),
            _ => Err(wrong(word, "\"ether\" takes host alone")),
        };
    }
    if matches!(kind, Kind::Host | Kind::Net) {
        let family = match words.protocol {
            None => Family::Any,
            Some(Protocol::Ip4) => Family::Ip4,
            Some(Protocol::Ip6) => Family::Ip6,
            Some(Protocol::Arp) => Family::Arp,
            Some(_) => return Err(wrong(word, "addresses are those of ip, ip6 or arp")),
        };
        let network = match kind {
            Kind::Net => network(value)?,
            _ => host(value)?,
        };
        let fits = match family {
            Family::Any => true,
            Family::Ip6 => network.address.is_ipv6(),
            Family::Ip4 | Family::Arp => network.address.is_ipv4(),
        };
        return match fits {
            true => Ok(Test::Address(family, side, network)),
            false => Err(wrong(value, "it is an address of the other IP version")),
        };
    }
    let protocol = match words.protocol {
        None => None,
        Some(Protocol::Tcp) => Some(TCP),
        Some(Protocol::Udp) => Some(UDP),
        Some(_) => return Err(wrong(word, "ports are those of tcp or udp")),
    };
    let number = |text: &str| text.parse::<u16>().ok();
    let range = match kind {
        Kind::Port => number(value).map(|port| (port, port)),
        _ => value
            .split_once('-')
            .and_then(|(first, last)| Some((number(first)?, number(last)?)))
            .filter(|(first, last)| first <= last),
    };
    let (first, last) = range.ok_or_else(|| {
        wrong(value, "write numbers from 0 to 65535, a range as FIRST-LAST, e.g. 8000-8080")
    })?;
    Ok(Test::Ports(protocol, side, first, last))
}

fn link_address(value: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = value.split([':', '-', '.']);
    for byte in &mut mac {
        let part = parts.next().filter(|part| matches!(part.len(), 1 | 2))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

fn host(value: &str) -> Result<Network> {
    let address: IpAddr = value
        .parse()
        .map_err(|_| wrong(value, "write an address in numbers, e.g. 10.0.0.1 or fd00::1"))?;
    Ok(Network { address, prefix: if address.is_ipv4() { 32 } else { 128 } })
}

/// `10.0.0.0/8`, `fd00::/8`, or as in tcpdump `10` and `192.168.1`.
fn network(value: &str) -> Result<Network> {
    let bad = || wrong(value, "write a network, e.g. 10.0.0.0/8 or fd00::/8");
    let (address, prefix) = match value.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix.parse::<u8>().map_err(|_| bad())?)),
        None => (value, None),
    };
    let (address, written): (IpAddr, u8) = match address.parse() {
        Ok(address @ IpAddr::V4(_)) => (address, 32),
        Ok(address) => (address, 128),
        Err(_) => {
            let mut octets = [0; 4];
            let parts: Vec<&str> = address.split('.').collect();
            if parts.len() > 3 {
                return Err(bad());
            }
            for (octet, part) in octets.iter_mut().zip(&parts) {
                *octet = part.parse().map_err(|_| bad())?;
            }
            (Ipv4Addr::from(octets).into(), parts.len() as u8 * 8)
        }
    };
    let prefix = prefix.unwrap_or(written);
    if prefix > if address.is_ipv4() { 32 } else { 128 } {
        return Err(bad());
    }
    let first = first_of(address, prefix);
    match first == address {
        true => Ok(Network { address, prefix }),
        false => Err(wrong(value, &format!("the network is {first}/{prefix}"))),
    }
}
