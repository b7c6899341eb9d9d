//! The message core between hosts in memory.

mod net;

mod basic;
mod faults;
mod refusal;
