//! Runs command lines inside tests.

use std::ffi::OsString;
use std::sync::Arc;

use config::MapEnvironment;
use domain::ManualClock;

use super::exit::{Exit, Outcome};
use super::out::Out;
use super::{Shell, execute};

/// 2025-11-29T13:46:40Z.
pub(crate) const NOW_UNIX_MS: u64 = 1_764_424_000_000;

/// What a command line came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: Exit,
    pub(crate) answer: String,
    pub(crate) remarks: String,
}

/// Runs `tidegate WORDS…` with this standard input and environment.
pub(crate) fn run_with(words: &[&str], stdin: &[u8], environment: &[(&str, &str)]) -> Ran {
    let environment = MapEnvironment::new(environment.iter().copied());
    let (mut answer, mut remarks) = (Vec::new(), Vec::new());
    let clock: Arc<ManualClock> = ManualClock::at_unix_ms(NOW_UNIX_MS);
    let mut shell = Shell {
        out: Out::new(&mut answer, &mut remarks),
        stdin: &mut { stdin },
        environment: &environment,
        clock: &*clock,
    };
    let words = std::iter::once("tidegate").chain(words.iter().copied()).map(OsString::from);
    let exit = execute(words, &mut shell);
    Ran { exit, answer: String::from_utf8(answer).unwrap(), remarks: String::from_utf8(remarks).unwrap() }
}

pub(crate) fn run(words: &[&str]) -> Ran {
    run_with(words, b"", &[])
}

/// What a printing function prints.
pub(crate) fn printed(print: impl FnOnce(&mut Shell<'_>) -> Outcome<()>) -> String {
    let environment = MapEnvironment::default();
    let (mut answer, mut remarks) = (Vec::new(), Vec::new());
    let clock: Arc<ManualClock> = ManualClock::at_unix_ms(NOW_UNIX_MS);
    let mut shell = Shell {
        out: Out::new(&mut answer, &mut remarks),
        stdin: &mut std::io::empty(),
        environment: &environment,
        clock: &*clock,
    };
    print(&mut shell).unwrap();
    String::from_utf8(answer).unwrap()
}
