//! Tidegate's one binary.

mod cli;
mod control;
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
