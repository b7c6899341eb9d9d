//! The exported C functions, by subject.

mod descriptors;
mod moving;
mod programs;
mod streams;
mod transfers;
mod waiting;
