//! Outboard's client room.
