//! What engines hold for messages, by their counters.

use lab::Side;

use crate::joined::eventually;
use crate::world::World;

/// What an engine holds for messages that are under way or may come.
const HELD: [&str; 5] =
    ["sessions", "messages_endpoints", "messages_sends", "messages_receives", "messages_buffered"];

/// A counter of a host's engine.
///
/// # Panics
/// When the engine does not answer.
pub fn counter(world: &World, side: Side, name: &str) -> u64 {
    let stats = world.observe(side).and_then(|mut engine| engine.stats());
    stats.expect("counters").counter(name)
}

/// Waits until an engine holds nothing for messages any more.
///
/// # Panics
/// When it holds something for good.
pub fn holds_nothing(world: &World, side: Side) {
    for name in HELD {
        eventually(&format!("{name} of {side:?} at 0"), || counter(world, side, name) == 0);
    }
    eventually(&format!("all buffers of {side:?} free"), || {
        counter(world, side, "buffers_free") == counter(world, side, "buffers_total")
    });
}
