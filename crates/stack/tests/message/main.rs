//! The message core between hosts in memory.

extern crate outboard_stack as stack;

mod net;

mod basic;
mod export;
mod faults;
mod hostile;
mod hosts;
mod refusal;
mod reset;
