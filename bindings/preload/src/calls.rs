//! The exported C functions, by subject.

mod cancelling;
pub(crate) mod descriptors;
mod ending;
mod moving;
mod programs;
mod streams;
mod transfers;
mod waiting;
