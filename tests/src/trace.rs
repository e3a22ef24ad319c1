//! Reads what `strace` saw, and proves from it that nothing was acknowledged before it was durable.
//!
//! `strace` writes a line when a call begins and ends, or two when others ran in between. A call whose end stands
//! above another's beginning had returned in the kernel before the other one entered it.

use std::collections::HashMap;
use std::path::Path;

use crate::response::find;

/// The words to run a program under: full buffers in hexadecimal, descriptors with their paths, the process id kept.
pub fn strace(output: &Path) -> Vec<String> {
    let calls = "trace=open,openat,close,fcntl,pwrite64,pwritev,pwritev2,write,writev,sendto,sendmsg,fdatasync,fsync";
    let output = output.to_str().expect("a path of ours is UTF-8");
    ["strace", "-D", "-f", "-q", "-xx", "-s", "1000000", "-y", "-o", output, "-e", calls, "-e", "signal=none"]
        .map(str::to_owned)
        .to_vec()
}

/// One finished call.
#[derive(Debug, Clone)]
pub struct Call {
    pub name: String,
    /// Everything between the brackets.
    arguments: String,
    /// Bytes of every quoted argument, one after the other.
    bytes: Vec<u8>,
    pub result: i64,
    /// Lines of the trace on which it began and ended.
    pub begins: usize,
    pub ends: usize,
}

impl Call {
    fn new(name: &str, arguments: &str, result: &str, begins: usize, ends: usize) -> Option<Self> {
        let digits = result.trim().split(|c: char| c != '-' && !c.is_ascii_digit()).next()?;
        let bytes = unquote(arguments);
        let result = digits.parse().ok()?;
        Some(Self { name: name.into(), arguments: arguments.into(), bytes, result, begins, ends })
    }

    /// The descriptor that it is about.
    fn descriptor(&self) -> Option<i64> {
        self.arguments.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    fn writes(&self) -> bool {
        matches!(self.name.as_str(), "pwrite64" | "pwritev" | "pwritev2" | "write" | "writev")
    }

    fn is_on_socket(&self) -> bool {
        // `-y` decorates a descriptor as `7<socket:[123]>` or `7<TCP:[…]>`; with `-xx` the inside is hexadecimal.
        matches!(self.name.as_str(), "sendto" | "sendmsg") || {
            let decoration = self.arguments.split(['<', '>']).nth(1).unwrap_or_default();
            let plain = if decoration.starts_with("\\x") { unhex(decoration) } else { decoration.into() };
            plain.starts_with(b"socket:") || plain.starts_with(b"TCP")
        }
    }
}

/// Decodes `\x61\x62`.
fn unhex(text: &str) -> Vec<u8> {
    text.split("\\x").skip(1).filter_map(|pair| u8::from_str_radix(pair.get(..2)?, 16).ok()).collect()
}

fn unquote(arguments: &str) -> Vec<u8> {
    arguments.split('"').skip(1).step_by(2).flat_map(unhex).collect()
}

/// All calls that ended, in the order in which they began.
pub fn calls(trace: &str) -> Vec<Call> {
    let mut begun: HashMap<&str, (usize, &str, String)> = HashMap::new();
    let mut calls = Vec::new();
    for (at, line) in trace.lines().enumerate() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(start) = rest.strip_suffix(" <unfinished ...>") {
            let Some((name, arguments)) = start.split_once('(') else { continue };
            begun.insert(thread, (at, name, arguments.to_owned()));
            continue;
        }
        let Some((whole, result)) = rest.rsplit_once(" = ") else { continue };
        let (begins, name, arguments) = if let Some(resumed) = whole.strip_prefix("<... ") {
            let Some((begins, name, arguments)) = begun.remove(thread) else { continue };
            let tail = resumed.split_once(" resumed>").map_or("", |(_, tail)| tail);
            (begins, name, arguments + tail)
        } else {
            let Some((name, arguments)) = whole.split_once('(') else { continue };
            (at, name, arguments.to_owned())
        };
        let arguments = arguments.trim_end().trim_end_matches(')');
        calls.extend(Call::new(name, arguments, result, begins, at));
    }
    calls.sort_by_key(|call| call.begins);
    calls
}

/// By what an acknowledged record had been made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// One completed write through a descriptor opened with `O_DIRECT` and `O_DSYNC`.
    Direct,
    /// A write, and a sync of the same descriptor that began after it.
    Synced,
}

/// An acknowledgement that the trace does not justify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unproven {
    /// No answer with this event id left the process.
    NotAnswered(String),
    /// No durable write of the record ended before its answer began.
    NotDurable(String),
}

/// For each acknowledgement, a marker of its body and its event id: what made it durable before it was told.
pub fn durable_before_answered(calls: &[Call], acknowledged: &[(String, String)]) -> Result<Vec<Durable>, Unproven> {
    let flags = flags(calls);
    acknowledged.iter().map(|(marker, id)| prove(calls, &flags, marker, id)).collect()
}

/// Flags with which each write's descriptor was open at that time, by the line on which the write began.
fn flags(calls: &[Call]) -> HashMap<usize, String> {
    let mut open: HashMap<i64, String> = HashMap::new();
    let mut at_write = HashMap::new();
    for call in calls {
        if matches!(call.name.as_str(), "open" | "openat") && call.result >= 0 {
            open.insert(call.result, call.arguments.clone());
        } else if call.writes()
            && let Some(flags) = call.descriptor().and_then(|descriptor| open.get(&descriptor))
        {
            at_write.insert(call.begins, flags.clone());
        }
    }
    at_write
}

fn prove(calls: &[Call], flags: &HashMap<usize, String>, marker: &str, id: &str) -> Result<Durable, Unproven> {
    let answer = calls
        .iter()
        .find(|call| call.is_on_socket() && find(&call.bytes, id.as_bytes()).is_some())
        .ok_or_else(|| Unproven::NotAnswered(id.to_owned()))?;
    let record = |call: &&Call| {
        let whole = usize::try_from(call.result).is_ok_and(|written| written == call.bytes.len());
        let before = call.ends < answer.begins && call.writes() && !call.is_on_socket();
        before && whole && find(&call.bytes, marker.as_bytes()).is_some()
    };
    for write in calls.iter().filter(record) {
        let opened = flags.get(&write.begins).map_or("", String::as_str);
        if opened.contains("O_DIRECT") && (opened.contains("O_DSYNC") || opened.contains("O_SYNC")) {
            return Ok(Durable::Direct);
        }
        let synced = |call: &Call| {
            matches!(call.name.as_str(), "fdatasync" | "fsync")
                && call.descriptor() == write.descriptor()
                && call.result == 0
                && call.begins > write.ends
                && call.ends < answer.begins
        };
        if calls.iter().any(synced) {
            return Ok(Durable::Synced);
        }
    }
    Err(Unproven::NotDurable(id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> String {
        text.bytes().map(|byte| format!("\\x{byte:02x}")).collect()
    }

    fn judged(lines: &[String]) -> Result<Vec<Durable>, Unproven> {
        durable_before_answered(&calls(&lines.join("\n")), &[("marker".into(), "evt_1".into())])
    }

    fn direct() -> Vec<String> {
        vec![
            format!(
                "10 openat(AT_FDCWD, \"{}\", O_RDWR|O_DSYNC|O_DIRECT|O_CLOEXEC) = 7<{}>",
                hex("/log/1"),
                hex("/log/1")
            ),
            format!("11 pwrite64(7<{}>, \"{}\", 12, 4096 <unfinished ...>", hex("/log/1"), hex("--marker----")),
            format!("10 write(1<{}>, \"{}\", 2) = 2", hex("/out"), hex("hi")),
            "11 <... pwrite64 resumed>) = 12".to_owned(),
            format!(
                "10 sendto(9<{}>, \"{}\", 20, MSG_NOSIGNAL, NULL, 0) = 20",
                hex("socket:[1]"),
                hex("HTTP/1.1 202 evt_1 ..")
            ),
        ]
    }

    #[test]
    fn a_completed_direct_write_is_proof() {
        assert_eq!(judged(&direct()), Ok(vec![Durable::Direct]));
    }

    #[test]
    fn an_answer_before_the_end_of_the_write_is_none() {
        let mut swapped = direct();
        swapped.swap(3, 4);
        assert_eq!(judged(&swapped), Err(Unproven::NotDurable("evt_1".into())));
    }

    #[test]
    fn a_write_that_is_not_durable_is_none() {
        let mut lazy = direct();
        lazy[0] = lazy[0].replace("|O_DSYNC", "");
        assert_eq!(judged(&lazy), Err(Unproven::NotDurable("evt_1".into())));
    }

    #[test]
    fn a_short_write_and_a_failed_one_are_none() {
        for result in ["= 11", "= -1 EIO (Input/output error)"] {
            let mut short = direct();
            short[3] = short[3].replace("= 12", result);
            assert_eq!(judged(&short), Err(Unproven::NotDurable("evt_1".into())));
        }
    }

    #[test]
    fn a_sync_proves_only_what_was_written_before_it_began() {
        let mut synced = direct();
        synced[0] = synced[0].replace("|O_DSYNC|O_DIRECT", "");
        synced.insert(4, "11 fdatasync(7<x>) = 0".to_owned());
        assert_eq!(judged(&synced), Ok(vec![Durable::Synced]));
        synced.swap(3, 4);
        assert_eq!(judged(&synced), Err(Unproven::NotDurable("evt_1".into())));
        synced.swap(3, 4);
        synced[4] = "11 fdatasync(7<x>) = -1 EIO (Input/output error)".to_owned();
        assert_eq!(judged(&synced), Err(Unproven::NotDurable("evt_1".into())));
    }
}
