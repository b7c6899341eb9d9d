//! The `outboard` executable.
fn main() {}
