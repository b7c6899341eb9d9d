//! Outboard's shm room.
pub mod control;
