//! Per-CPU primitives: copy, checksum while copying, prefetch, pause, cycle counter; an allocator
//! that counts.
//!
//! `no_std`. One of the few rooms that may use `unsafe`. What it does not do: know any protocol,
//! decide what to copy where.
//!
//! Start reading at [`sum`] and [`SharedBytes`].
#![cfg_attr(not(test), no_std)]

mod count;
mod cpu;
mod shared;
mod sum;

pub use count::Counting;
pub use cpu::{cycles, pause, prefetch_read, prefetch_write};
pub use shared::SharedBytes;
pub use sum::{copy_and_sum, fold, sum};
