//! Tidegate's one binary.

mod cli;
mod control;
mod run;

use std::process::ExitCode;

/// Events are allocated by the threads that accept them and freed by the one that writes them, which is what the C
/// library's allocator is slowest at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
