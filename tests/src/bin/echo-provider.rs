//! A provider on this machine for trying the appliance out: `echo-provider ADDRESS AUTHORITY_FILE`.
//!
//! It writes the authority of its certificate into the file, prints a line for each call, and runs until it is stopped. What
//! its paths do is said in `tidegate_tests::provider`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;

use tidegate_tests::provider::Provider;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(file), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        eprintln!("echo-provider ADDRESS AUTHORITY_FILE");
        return ExitCode::from(2);
    };
    let Ok(address) = address.parse() else {
        eprintln!("{address:?} is no address and port");
        return ExitCode::from(2);
    };
    let provider = Provider::start_at(address, true);
    // Beside the file and then in its place: whoever reads it reads all of it.
    let made = format!("{file}.new");
    if let Err(fault) = std::fs::write(&made, &provider.authority).and_then(|()| std::fs::rename(&made, &file)) {
        eprintln!("cannot write {file}: {fault}");
        return ExitCode::FAILURE;
    }
    println!("provider: listening on https://{}", provider.address);
    loop {
        std::thread::park();
    }
}
