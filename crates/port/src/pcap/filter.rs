//! Selection of the frames to capture: an expression in a readable part of tcpdump's language
//! (pcap-filter(7)), compiled once and run on every frame.
//!
//! ```text
//! expression: test, joined by "and" (&&) and "or" (||), which bind alike and from the left;
//!             "not" (!) binds closest; parentheses
//! test:       [ip|ip6|arp|tcp|udp] [src|dst|src or dst|src and dst]
//!             [host ADDRESS | net NETWORK | port N | portrange N-M]
//!             ether [src|dst] [host] MAC
//!             ip | ip6 | arp | tcp | udp | icmp | icmp6
//! ```
//!
//! As in tcpdump, a value alone repeats the words before the last value (`port 80 or 443`), and
//! frames with a VLAN tag do not match. A compiled filter is a list of steps that only jump
//! forward, so a frame is decided in at most as many steps as there are tests.

use std::fmt;
use std::net::IpAddr;

use self::view::{Network, View};

mod parse;
mod view;

/// Longest expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 4096;
/// Most tests in an expression.
const TESTS_MAX: usize = 512;

/// Why an expression is invalid: a sentence with the position and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError(String);

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FilterError {}

/// Which of a frame's two addresses or ports must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    Either,
    Both,
}

impl Side {
    fn holds(self, source: bool, destination: bool) -> bool {
        match self {
            Side::Source => source,
            Side::Destination => destination,
            Side::Either => source || destination,
            Side::Both => source && destination,
        }
    }
}

/// The frames to which an address test applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Any,
    Ip4,
    Ip6,
    Arp,
}

/// A property of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    /// Any frame.
    Everything,
    EtherType(u16),
    /// IPv4 or IPv6 with this protocol.
    Protocol(u8),
    /// The same only for IPv4.
    Protocol4(u8),
    /// The same only for IPv6.
    Protocol6(u8),
    Link(Side, [u8; 6]),
    Address(Family, Side, Network),
    /// Ports from the first to the last, of this protocol or of any with ports.
    Ports(Option<u8>, Side, u16, u16),
}

impl Test {
    fn holds(&self, view: &View<'_>) -> bool {
        match *self {
            Test::Everything => true,
            Test::EtherType(ethertype) => view.ethertype == Some(ethertype),
            Test::Protocol(number) => view.is_protocol(number),
            Test::Protocol4(number) => view.is_ip4() && view.is_protocol(number),
            Test::Protocol6(number) => !view.is_ip4() && view.is_protocol(number),
            Test::Link(side, mac) => {
                side.holds(view.link_source() == Some(mac), view.link_destination() == Some(mac))
            }
            Test::Address(family, side, network) => {
                let looked_at = match family {
                    Family::Any => true,
                    Family::Ip4 => view.is_ip4(),
                    Family::Ip6 => view.is_ip6(),
                    Family::Arp => view.is_arp(),
                };
                let within = |address: Option<IpAddr>| address.is_some_and(|a| network.holds(a));
                looked_at
                    && side.holds(within(view.source_address()), within(view.destination_address()))
            }
            Test::Ports(protocol, side, first, last) => {
                let Some((number, source, destination)) = view.ports() else { return false };
                let within = |port: u16| (first..=last).contains(&port);
                protocol.is_none_or(|wanted| wanted == number)
                    && side.holds(within(source), within(destination))
            }
        }
    }
}

/// Target of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Step(u16),
    End(bool),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    test: Test,
    yes: Next,
    no: Next,
}

/// A compiled expression; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    steps: Vec<Step>,
}

/// A parsed expression.
#[derive(Clone, Debug)]
enum Tree {
    Test(Test),
    Not(Box<Tree>),
    And(Box<Tree>, Box<Tree>),
    Or(Box<Tree>, Box<Tree>),
}

impl Filter {
    /// Compiles an expression; an empty one matches everything.
    ///
    /// # Errors
    /// A sentence that names the invalid word.
    pub fn compile(expression: &str) -> Result<Self, FilterError> {
        if expression.len() > EXPRESSION_BYTES_MAX {
            return Err(FilterError(format!(
                "the filter is longer than {EXPRESSION_BYTES_MAX} bytes; write a shorter one"
            )));
        }
        let tree = parse::parse(expression)?;
        let mut steps = Vec::new();
        lay(&tree, Next::End(true), Next::End(false), &mut steps);
        // The steps were generated from the end; in reverse order, all of them jump forward.
        let last = steps.len() - 1;
        let turn = |next| match next {
            Next::Step(at) => Next::Step((last - usize::from(at)) as u16),
            end => end,
        };
        steps.reverse();
        for step in &mut steps {
            (step.yes, step.no) = (turn(step.yes), turn(step.no));
        }
        Ok(Self { steps })
    }

    /// Whether a frame matches. `frame` need only hold its headers.
    pub fn keeps(&self, frame: &[u8]) -> bool {
        let view = View::new(frame);
        let mut at = 0;
        // Each step jumps forward.
        while let Some(step) = self.steps.get(usize::from(at)) {
            match if step.test.holds(&view) { step.yes } else { step.no } {
                Next::Step(next) => at = next,
                Next::End(kept) => return kept,
            }
        }
        false
    }
}

/// Generates the steps of a tree after those they jump to, and returns the first one.
fn lay(tree: &Tree, yes: Next, no: Next, steps: &mut Vec<Step>) -> Next {
    match tree {
        Tree::Test(test) => {
            steps.push(Step { test: test.clone(), yes, no });
            Next::Step((steps.len() - 1) as u16)
        }
        Tree::Not(inner) => lay(inner, no, yes, steps),
        Tree::And(first, second) => {
            let second = lay(second, yes, no, steps);
            lay(first, second, no, steps)
        }
        Tree::Or(first, second) => {
            let second = lay(second, yes, no, steps);
            lay(first, yes, second, steps)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_leads_forward() {
        let text = "not (tcp port 80 or udp) and (host 10.0.0.1 or not net 10.0.0.0/8) or arp";
        let filter = Filter::compile(text).unwrap();
        assert_eq!(filter.steps.len(), 5);
        for (at, step) in filter.steps.iter().enumerate() {
            for next in [step.yes, step.no] {
                assert!(!matches!(next, Next::Step(to) if usize::from(to) <= at), "{filter:?}");
            }
        }
    }

    #[test]
    fn an_empty_expression_keeps_everything() {
        assert!(Filter::compile("  ").unwrap().keeps(&[]));
    }

    #[test]
    fn mistakes_are_answered_with_a_sentence_that_names_the_word() {
        for (text, said) in [
            ("tcp prot 80", "\"prot\""),
            ("port http", "\"http\""),
            ("port 70000", "\"70000\""),
            ("portrange 9-3", "\"9-3\""),
            ("host", "ends"),
            ("(tcp", "parenthesis"),
            ("tcp)", "\")\""),
            ("tcp and", "ends"),
            ("net 10.0.0.1/8", "10.0.0.0/8"),
            ("ether host 10.0.0.1", "\"10.0.0.1\""),
            ("arp port 3", "\"port\""),
            ("ip host fe80::1", "\"fe80::1\""),
            ("len < 3", "\"len\""),
            ("tcp udp", "\"udp\""),
            ("icmp host 10.0.0.1", "\"host\""),
            ("tcp host 10.0.0.1", "\"host\""),
        ] {
            let why = Filter::compile(text).expect_err(text).to_string();
            assert!(why.contains(said), "{text}: {why}");
        }
        let nested = format!("{}tcp{}", "(".repeat(1000), ")".repeat(1000));
        assert!(Filter::compile(&nested).is_err(), "nesting is bounded");
        assert!(Filter::compile(&"not ".repeat(1000)).is_err());
        assert!(Filter::compile(&vec!["tcp"; 513].join(" or ")).is_err());
        assert!(Filter::compile(&vec!["tcp"; 512].join(" or ")).is_ok());
    }
}
