//! How a test says that it did not run, so that nobody takes it for one that did.
//!
//! What a test that passes prints is kept from everybody (`cargo test` shows it only with `--nocapture`). So these lines
//! go to standard error past the test's own output, and into the file that `TIDEGATE_TESTS_SKIPPED` names: `make test`
//! shows at its end what that has.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// This machine cannot run the test: it lacks a program, or does not let us. Where `TIDEGATE_TESTS_COMPLETE=1` says that
/// everything is to be run, the test has failed.
pub fn skipped(why: &str) {
    assert!(
        std::env::var("TIDEGATE_TESTS_COMPLETE").as_deref() != Ok("1"),
        "this cannot run here: {why}; TIDEGATE_TESTS_COMPLETE=0 leaves out what cannot"
    );
    say("skipped", why);
}

/// The test needs something that nobody has asked for or put here. It is no fault of the machine's, and never a failure.
pub fn left_out(why: &str) {
    say("left out", why);
}

/// A file of the cases that several projects share, which lie beside this repository: `../shared/cases`. None, and a line
/// that says so, where it is not there, as beside a clone alone; this repository has cases of its own for all of it.
pub fn shared_cases(file: &str) -> Option<String> {
    let told = |fault| left_out(&format!("../shared/cases/{file}: {fault}"));
    std::fs::read_to_string(shared().join(file)).map_err(told).ok()
}

fn shared() -> PathBuf {
    // This crate is two directories below the repository's.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(3).unwrap_or(here).join("shared/cases")
}

fn say(what: &str, why: &str) {
    // libtest names each test's thread by the test.
    let thread = std::thread::current();
    let line = format!("{what}: {}: {}\n", thread.name().unwrap_or("a test"), why.replace('\n', " "));
    std::io::stderr().write_all(line.as_bytes()).expect("standard error");
    if let Some(path) = std::env::var_os("TIDEGATE_TESTS_SKIPPED").filter(|path| !path.is_empty()) {
        // Many processes write to it: in one piece each.
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of what is skipped");
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;

    #[test]
    #[ignore = "run by the others, to see what is heard of it"]
    fn it_cannot_run() {
        skipped("for want of\nanything");
    }

    #[test]
    #[ignore = "run by the others, to see what is heard of it"]
    fn it_is_not_asked_for() {
        left_out("nobody asked");
    }

    /// What is heard of a test when `cargo test` runs it, and what the file has then.
    fn heard(test: &str, complete: &str) -> (Output, String) {
        let directory = tempfile::tempdir().unwrap();
        let list: PathBuf = directory.path().join("skipped");
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", &format!("tests::{test}")])
            .env("TIDEGATE_TESTS_COMPLETE", complete)
            .env("TIDEGATE_TESTS_SKIPPED", &list)
            .env_remove("RUST_TEST_NOCAPTURE")
            .output()
            .unwrap();
        (output, std::fs::read_to_string(list).unwrap_or_default())
    }

    #[test]
    fn what_does_not_run_is_seen_though_it_passes() {
        for (test, line) in [
            ("it_cannot_run", "skipped: tests::it_cannot_run: for want of anything\n"),
            ("it_is_not_asked_for", "left out: tests::it_is_not_asked_for: nobody asked\n"),
        ] {
            let (output, list) = heard(test, "0");
            assert!(output.status.success(), "{output:?}");
            assert_eq!((&*String::from_utf8_lossy(&output.stderr), &*list), (line, line));
        }
    }

    #[test]
    fn what_has_to_run_everywhere_fails_where_it_cannot() {
        let (output, list) = heard("it_cannot_run", "1");
        assert!(!output.status.success() && list.is_empty(), "{output:?}");
        assert!(heard("it_is_not_asked_for", "1").0.status.success(), "it is no fault of the machine's");
    }

    #[test]
    fn shared_cases_lie_beside_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        assert!(root.join("Cargo.lock").exists(), "{} is not the repository", root.display());
        assert_eq!(shared(), root.parent().unwrap().join("shared/cases"));
    }
}
