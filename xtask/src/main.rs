//! Checks of the whole tree.
fn main() {}
