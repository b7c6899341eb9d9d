//! The client's views of a region: cursors lie in the region and are guarded by owner-tagged
//! locks, so that threads share them. The client trusts the engine's words, but never its own
//! memory safety to them.

mod endpoint;
mod lane;

pub use endpoint::{ClientEndpoint, Levels, ReceiveGuard, SendGuard};
pub use lane::{Carved, ClientLane, Direction, LaneGuard, Rung};
