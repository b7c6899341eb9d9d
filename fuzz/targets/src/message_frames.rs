//! The message core under frames: arbitrary bytes, and genuine frames of a hostile member with
//! arbitrary fields, between requests of programs. What is checked is in the driver, which the
//! core's own property test shares.

#[path = "../../../crates/stack/tests/message/hostile/driver.rs"]
mod driver;

pub use driver::run;
