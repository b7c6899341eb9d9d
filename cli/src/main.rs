//! The `outboard` executable.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    outboard::commands::main()
}
