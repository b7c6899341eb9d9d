//! The exported C functions, by subject.

pub(crate) mod descriptors;
mod moving;
mod programs;
mod streams;
mod transfers;
mod waiting;
