//! Outboard's sim room.
