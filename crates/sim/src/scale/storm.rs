//! Short connections, far more at a time than queues and ports hold: each asks once and closes.

use super::pair::{CLIENT, Pair, SERVER, TICK_NS, second};
use crate::violation::Violation;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Storm {
    /// Connections in all.
    pub connections: u32,
    /// Opened at once, again and again.
    pub wave: u32,
    /// The client closes first, and so has the TIME-WAIT; if not, the server.
    pub client_closes: bool,
}

/// What it came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormReport {
    /// Times a new connection took the place of one in TIME-WAIT.
    pub reuses: u64,
    /// Handshakes that the listener's queues had no room for.
    pub refused: u64,
    /// Bytes answered.
    pub answered_bytes: u64,
}

/// What a wave has to be answered: SYNs that found no room are repeated after one second and two.
const PATIENCE_NS: u64 = second(4);
/// Bytes of each question.
const BYTES: u64 = 64;

/// Runs it.
///
/// # Errors
/// With a sentence when a connection does not get through, or when something is left at the end.
pub fn storm(what: &Storm) -> Result<StormReport, Violation> {
    let mut pair = Pair::new(what.wave * 2, true);
    // Who is refused tries again, as programs do.
    for _ in 0..4 * what.connections / what.wave {
        let missing = what.connections - (pair.answered_bytes() / BYTES) as u32;
        if missing == 0 {
            break;
        }
        let wave = what.wave.min(missing);
        let first = pair.connections();
        pair.open(wave)?;
        for connection in first..first + wave {
            pair.ask(connection, BYTES)?;
        }
        pair.run_for(PATIENCE_NS);
        pair.end_all(if what.client_closes { CLIENT } else { SERVER })?;
        // Before a second has passed nobody may take over what is in TIME-WAIT.
        pair.run_for(second(1) + TICK_NS);
    }
    pair.expect_nothing_left()?;
    let reuses = [CLIENT, SERVER].map(|side| pair.counter(side, "tcp_time_wait_reuses"));
    Ok(StormReport {
        reuses: reuses.iter().sum(),
        refused: pair.refused(),
        answered_bytes: pair.answered_bytes(),
    })
}
