//! Outboard's engine room.
