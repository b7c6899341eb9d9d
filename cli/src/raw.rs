//! `[[raw]]` of the configuration: who may see and send frames at which ports.

use engine::service::raw::rights::{RawRights, RawRule, is_named};
use lab::failure::{Failure, Result};
use port::PortSpec;
use serde::Deserialize;
use toml::Spanned;

use crate::users;

/// One of the tables, as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTable {
    #[serde(default)]
    users: Vec<Spanned<String>>,
    #[serde(default)]
    groups: Vec<Spanned<String>>,
    #[serde(default)]
    ports: Vec<Spanned<String>>,
    #[serde(default)]
    receive: bool,
    #[serde(default)]
    send: bool,
    #[serde(default)]
    take: bool,
    #[serde(default)]
    spoof: bool,
}

impl RawTable {
    /// What the table says of an engine with these ports; `fail` makes a failure of what is wrong at a
    /// place of the file, which begins at `start`.
    ///
    /// # Errors
    /// The first that is no user, group or port, and a table that gives nothing or gives it nobody.
    pub fn rule(
        &self,
        start: usize,
        ports: &[PortSpec],
        fail: impl Fn(usize, String) -> Failure,
    ) -> Result<RawRule> {
        let number = |read: fn(&str) -> Result<u32>| {
            let fail = &fail;
            move |name: &Spanned<String>| {
                read(name.get_ref())
                    .map_err(|failure| fail(name.span().start, failure.cause().to_owned()))
            }
        };
        let users =
            self.users.iter().map(number(users::user_number)).collect::<Result<Vec<_>>>()?;
        let groups =
            self.groups.iter().map(number(users::group_number)).collect::<Result<Vec<_>>>()?;
        if users.is_empty() && groups.is_empty() {
            return Err(fail(start, "[[raw]] names nobody: add users or groups".into()));
        }
        for port in &self.ports {
            if !ports.iter().any(|of| is_named(&of.label(), port.get_ref())) {
                let why = format!(
                    "[[raw]] names port {:?}, which the engine does not have",
                    port.get_ref()
                );
                return Err(fail(port.span().start, why));
            }
        }
        let Self { receive, send, take, spoof, .. } = *self;
        if !(receive || send || take) {
            let why = "[[raw]] allows nothing: add receive = true, send = true or take = true";
            return Err(fail(start, why.into()));
        }
        if spoof && !send {
            return Err(fail(start, "[[raw]] has spoof without send: add send = true".into()));
        }
        let ports = self.ports.iter().map(|port| port.get_ref().clone()).collect();
        Ok(RawRule { users, groups, ports, rights: RawRights { receive, send, take, spoof } })
    }
}
