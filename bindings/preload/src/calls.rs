//! The exported C functions, by subject.

mod descriptors;
mod programs;
mod streams;
mod transfers;
mod waiting;
