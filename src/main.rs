//! Tidegate's one binary.

mod cli;
mod control;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
