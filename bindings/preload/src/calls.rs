//! The exported C functions, by subject.

mod descriptors;
mod streams;
mod transfers;
mod waiting;
