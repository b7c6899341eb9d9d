//! `[[bridge]]` of the configuration: which port passes its frames on to which.

use engine::service::bridge::BridgeRule;
use engine::service::raw::rights::is_named;
use lab::failure::{Failure, Result};
use port::PortSpec;
use port::pcap::Filter;
use port::spec::PortKind;
use serde::Deserialize;
use toml::Spanned;

/// One of the tables, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BridgeTable {
    from: Spanned<String>,
    to: Spanned<String>,
    #[serde(default)]
    mode: BridgeMode,
    filter: Option<Spanned<String>>,
}

/// Whether others get the frames, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BridgeMode {
    #[default]
    Copy,
    Take,
}

/// The number of the port called `name`, at a place of the file; `fail` makes a failure of what is wrong
/// there.
///
/// # Errors
/// There is none.
pub fn find_port(
    table: &str,
    name: &Spanned<String>,
    ports: &[PortSpec],
    fail: &impl Fn(usize, String) -> Failure,
) -> Result<usize> {
    let found = ports.iter().position(|of| is_named(&of.label(), name.get_ref()));
    found.ok_or_else(|| {
        let labels: Vec<String> = ports.iter().map(PortSpec::label).collect();
        let why = format!(
            "{table} names port {:?}, which the engine does not have; it has {}",
            name.get_ref(),
            labels.join(", ")
        );
        fail(name.span().start, why)
    })
}

impl BridgeTable {
    /// What the table says of an engine with these ports; `fail` makes a failure of what is wrong at a
    /// place of the file.
    ///
    /// # Errors
    /// A name that no port has, a port that is to be its own target, a port whose frames cannot be taken,
    /// or a filter that is none.
    pub fn rule(
        &self,
        ports: &[PortSpec],
        fail: impl Fn(usize, String) -> Failure,
    ) -> Result<BridgeRule> {
        let [from, to] = [&self.from, &self.to];
        let [source, target] = [
            find_port("[[bridge]]", from, ports, &fail)?,
            find_port("[[bridge]]", to, ports, &fail)?,
        ];
        if source == target {
            let why =
                format!("[[bridge]] leads from {:?} to itself: name another port", to.get_ref());
            return Err(fail(to.span().start, why));
        }
        let takes = self.mode == BridgeMode::Take;
        if takes && ports.get(source).is_some_and(|of| of.kind == PortKind::Xdp) {
            let why = format!(
                "[[bridge]] takes frames from {:?}, which shares its interface with the kernel: \
                 use a packet port, or mode = \"copy\" to copy the frames of the engine's own \
                 sockets",
                from.get_ref()
            );
            return Err(fail(from.span().start, why));
        }
        let text = self.filter.as_ref().map_or("", |text| text.get_ref());
        let filter = Filter::compile(text).map_err(|error| {
            let at = self.filter.as_ref().map_or(from.span().start, |text| text.span().start);
            fail(at, format!("[[bridge]] has an invalid filter: {error}"))
        })?;
        Ok(BridgeRule { from: source, to: target, takes, filter })
    }
}
