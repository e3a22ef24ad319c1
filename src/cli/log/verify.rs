//! `tidegate log verify`: every checksum, chain and seal, without an appliance.
//!
//! The log is made of journals, each a directory of segments. Whatever lies under the given directory, where a log may
//! have it, and is a journal is checked.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::text::Untrusted;
use domain::{Clock, NodeId};
use eventlog::segment::{Damage, Journal, Report};
use eventlog::{EmbeddedLog, EventLog};
use serde_json::{Value, json};

use super::super::Shell;
use super::super::args::LogVerify;
use super::super::exit::{Exit, Failure, Outcome};
use super::super::faults::counted;
use super::super::out::Tone;
use super::super::settings;
use super::stat::bytes;

/// A log's directories lie four deep; what is deeper is somebody else's.
const DEPTH_MAX: usize = 6;

struct Checked {
    /// Below the directory that was asked about.
    name: String,
    report: Report,
}

pub(in crate::cli) fn verify(args: &LogVerify, shell: &mut Shell<'_>) -> Outcome {
    let root = match &args.directory {
        Some(directory) => directory.clone(),
        None => match settings::appliance(&args.file.config) {
            Ok(appliance) => appliance.log.directory,
            Err(fault) => config::appliance_places(&args.file.config).log_directory.ok_or(fault)?,
        },
    };
    let mut directories = Vec::new();
    // By its own name, also where somebody stands in it and says `.`.
    let root = std::fs::canonicalize(&root).unwrap_or(root);
    gather(&root, 0, &mut directories)?;
    let mut journals = Vec::new();
    for directory in directories {
        let name = shown(directory.strip_prefix(&root).unwrap_or(&directory));
        let report = Journal::verify(&directory).map_err(|error| {
            Failure::failed(
                format_args!("could not check {}: {error}", shown(&directory)),
                "run this as the user that the appliance runs as, or as root",
            )
        })?;
        if !report.segments.is_empty() || !report.damage.is_empty() {
            journals.push(Checked { name: if name.is_empty() { ".".to_owned() } else { name }, report });
        }
    }
    if journals.is_empty() && !is_empty_log(&root, &shell.clock) {
        return Err(Failure::failed(
            format_args!("there is no log in {}", shown(&root)),
            "name the directory that log.directory of the appliance's file names",
        ));
    }
    let whole = journals.iter().all(|journal| journal.report.is_whole());
    if args.form.json {
        let journals: Vec<Value> = journals.iter().map(as_json).collect();
        shell.out.json(&json!({ "ok": whole, "directory": shown(&root), "journals": journals }))?;
    } else {
        print(&journals, shell)?;
    }
    Ok(Exit::yes_if(whole))
}

/// A log that nothing was written to yet has its places and no segments.
fn is_empty_log(root: &Path, clock: &Arc<dyn Clock>) -> bool {
    EmbeddedLog::open_read_only(root, NodeId::default(), Arc::clone(clock))
        .is_ok_and(|log| !log.stat().lanes.is_empty())
}

/// Whether a directory of this name can be part of a log: somebody else's tree, which may be large, is not walked.
fn is_of_a_log(parent: &Path, name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_generation = name.split_once("-of-").is_some_and(|(number, shards)| is_number(number) && is_number(shards));
    // Below `events` are the classes, by the names that the configuration gives them.
    let is_class = parent.file_name().is_some_and(|of| of == "events") && name != "lost+found";
    matches!(name, "events" | "holding") || is_class || is_generation || is_number(name)
}

/// Every directory of a log at and below `path`, in order. Links are not followed: a log has none.
fn gather(path: &Path, depth: usize, into: &mut Vec<PathBuf>) -> Outcome<()> {
    let unreadable = |error: std::io::Error| {
        Failure::failed(
            format_args!("could not read the directory {}: {error}", shown(path)),
            "name the log's directory, and run this as a user that may read it",
        )
    };
    into.push(path.to_owned());
    if depth == DEPTH_MAX {
        return Ok(());
    }
    let mut below = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if is_of_a_log(path, &entry.file_name()) && entry.file_type().map_err(unreadable)?.is_dir() {
            below.push(entry.path());
        }
    }
    below.sort();
    below.iter().try_for_each(|path| gather(path, depth + 1, into))
}

fn print(journals: &[Checked], shell: &mut Shell<'_>) -> Outcome<()> {
    if journals.is_empty() {
        let verdict = shell.out.paint(Tone::Good, "whole").to_string();
        return shell.out.line(format_args!("{verdict} (nothing was written to it yet)"));
    }
    for Checked { name, report } in journals {
        let verdict = if report.is_whole() {
            shell.out.paint(Tone::Good, "whole")
        } else {
            shell.out.paint(Tone::Bad, "damaged")
        };
        let (segments, records) = (counted(report.segments.len(), "segment"), counted(report.records, "record"));
        shell.out.line(format_args!("{name}: {verdict} ({segments}, {records}, {})", bytes(report.bytes)))?;
        for damage in &report.damage {
            let damage = shell.out.paint(Tone::Bad, damage).to_string();
            shell.out.line(format_args!("  {damage}"))?;
        }
        for torn in &report.torn {
            let text = format!(
                "  segment {} offset {}: a write that was cut off, never acknowledged",
                torn.segment, torn.offset
            );
            let text = shell.out.paint(Tone::Dim, text).to_string();
            shell.out.line(text)?;
        }
        if !report.live_epochs.is_empty() {
            shell.out.remark(format_args!("{name} is being written to: checked up to what was there"));
        }
    }
    let damaged: usize = journals.iter().map(|journal| journal.report.damage.len()).sum();
    if damaged > 0 {
        shell.out.remark(format_args!(
            "{}; what they hold is refused and never passed over: restore the segment, or read on behind it",
            counted(damaged, "damaged place")
        ));
    }
    Ok(())
}

fn as_json(checked: &Checked) -> Value {
    let damage = |damage: &Damage| {
        json!({
            "segment": damage.segment.to_string(),
            "offset": damage.offset,
            "end": damage.end,
            "kind": damage.kind.label(),
            "losesRecords": damage.kind.loses_records(),
        })
    };
    let report = &checked.report;
    json!({
        "journal": checked.name,
        "segments": report.segments.len(),
        "records": report.records,
        "bytes": report.bytes,
        "damage": report.damage.iter().map(damage).collect::<Vec<_>>(),
        "torn": report.torn.len(),
        "live": !report.live_epochs.is_empty(),
    })
}

fn shown(path: &Path) -> String {
    Untrusted::with_limit(path.as_os_str().as_encoded_bytes(), 1024).to_string()
}

#[cfg(test)]
mod tests {
    use domain::ManualClock;
    use eventlog::segment::{Entry, Options, Payload};

    use super::*;
    use crate::cli::testing::run;

    /// A log with ten records in it, closed; the names of its segments.
    fn log(directory: &Path) -> Vec<PathBuf> {
        let clock: Arc<dyn Clock> = ManualClock::at_unix_ms(1_764_424_000_000);
        let (journal, _) = Journal::open(Options::new(directory.to_owned(), clock)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for nth in 0..10_u8 {
            runtime.block_on(journal.append(entry(nth))).unwrap();
        }
        journal.close();
        let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|path| path.metadata().unwrap().len() > 8192).collect();
        files.sort();
        files
    }

    fn entry(nth: u8) -> Entry {
        Entry {
            stream: 1,
            time_unix_ms: 1_764_424_000_000,
            kind: 1,
            payload: Payload::from(vec![nth; 100]),
            check: None,
        }
    }

    #[test]
    fn a_whole_log_is_a_yes_and_damage_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let journal = directory.path().join("events/default/1-of-1/0");
        std::fs::create_dir_all(&journal).unwrap();
        let files = log(&journal);
        let root = directory.path().to_str().unwrap();
        let ran = run(&["log", "verify", root]);
        assert_eq!(ran.exit, Exit::Yes, "{}{}", ran.answer, ran.remarks);
        assert!(ran.answer.starts_with("events/default/1-of-1/0: whole (1 segment, 10 records, "), "{}", ran.answer);

        let mut bytes = std::fs::read(&files[0]).unwrap();
        let at = bytes.windows(50).position(|window| window == [5; 50]).unwrap();
        bytes[at] ^= 1;
        std::fs::write(&files[0], bytes).unwrap();
        let ran = run(&["log", "verify", root]);
        assert_eq!(ran.exit, Exit::No, "{}", ran.answer);
        assert!(ran.answer.contains(": damaged (") && ran.answer.contains("  segment "), "{}", ran.answer);
        let json: Value = serde_json::from_str(&run(&["log", "verify", root, "--json"]).answer).unwrap();
        assert_eq!(
            (json["ok"].as_bool(), json["journals"][0]["damage"][0]["kind"].as_str()),
            (Some(false), Some("batch"))
        );
        assert!(json["journals"][0]["damage"][0]["offset"].is_u64());
    }

    #[test]
    fn a_log_that_nothing_was_written_to_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = eventlog::embedded::Settings::new(&config::Log::default(), NodeId(1));
        settings.directory = directory.path().to_owned();
        settings.reserve_bytes = 0;
        let clock: Arc<dyn Clock> = ManualClock::at_unix_ms(1_764_424_000_000);
        EmbeddedLog::open(&settings, clock).unwrap().0.close().unwrap();
        let ran = run(&["log", "verify", directory.path().to_str().unwrap()]);
        assert_eq!(ran.exit, Exit::Yes, "{}", ran.remarks);
        assert!(ran.answer.starts_with("whole") || ran.answer.contains(": whole ("), "{}", ran.answer);
    }

    #[test]
    fn what_is_no_log_is_not_walked() {
        let root = tempfile::tempdir().unwrap();
        let journal = root.path().join("events/default/1-of-1/0");
        for other in ["usr/lib/a/b", "events.old/default/1-of-1/0", "events/default/other/0", "holding/x", "lost+found"]
        {
            std::fs::create_dir_all(root.path().join(other)).unwrap();
        }
        std::fs::create_dir_all(&journal).unwrap();
        let gathered = |from: &str| {
            let (from, mut found) = (root.path().join(from), Vec::new());
            gather(&from, 0, &mut found).unwrap();
            found.iter().map(|path| shown(path.strip_prefix(root.path()).unwrap())).collect::<Vec<_>>()
        };
        let log = ["", "events", "events/default", "events/default/1-of-1", "events/default/1-of-1/0", "holding"];
        assert_eq!(gathered(""), log);
        assert_eq!(gathered("events/default"), log[2..5], "a part of a log");
        assert_eq!(gathered("usr"), ["usr"]);
    }

    #[test]
    fn no_log_is_a_failure_and_not_a_yes() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path().to_str().unwrap(), "/nonexistent/log"] {
            let ran = run(&["log", "verify", path]);
            assert_eq!(ran.exit, Exit::Failed, "{path}: {}", ran.answer);
        }
    }
}
