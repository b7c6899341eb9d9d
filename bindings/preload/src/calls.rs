//! The exported C functions, by subject.

mod cancelling;
pub(crate) mod descriptors;
mod ending;
mod moving;
pub(crate) mod opening;
pub(crate) mod programs;
mod streams;
mod syscall;
mod transfers;
mod waiting;
