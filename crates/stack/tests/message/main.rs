//! The message core between hosts in memory.

extern crate outboard_stack as stack;

mod net;

mod basic;
mod faults;
mod hostile;
mod refusal;
mod reset;
