//! How often a process makes the disk durable: `strace`, attached for a few seconds of a run of its own, since what is
//! traced is slow. Counted are syncs of every kind and every write to a file that was opened with `O_DSYNC`.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;

use crate::Result;

const SYNCS: [&str; 6] = ["fsync", "fdatasync", "sync_file_range", "msync", "sync", "syncfs"];
const WRITES: [&str; 6] = ["write", "writev", "pwrite64", "pwritev", "pwritev2", "io_submit"];

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Syncs {
    pub syncs: u64,
    pub durable_writes: u64,
    pub seconds: f64,
}

impl Syncs {
    pub fn total(self) -> u64 {
        self.syncs + self.durable_writes
    }
}

/// `None` where there is no strace, or where it may not attach.
pub fn count(pid: u32, span: Duration, scratch: &Path) -> Result<Option<Syncs>> {
    let trace = scratch.join("strace.out");
    let _ = fs::remove_file(&trace);
    let calls = format!("trace={},{}", SYNCS.join(","), WRITES.join(","));
    let spawned = Command::new("strace")
        .args(["-f", "-qq", "-s", "0", "-e", &calls, "-e", "signal=none", "-p", &pid.to_string(), "-o"])
        .arg(&trace)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut strace) = spawned else { return Ok(None) };
    let mut durable = durable_files(pid);
    std::thread::sleep(span);
    // Files that were opened meanwhile, a log's next segment for one.
    durable.extend(durable_files(pid));
    let strace_pid = rustix::process::Pid::from_child(&strace);
    rustix::process::kill_process(strace_pid, rustix::process::Signal::INT)?;
    strace.wait()?;
    let Ok(text) = fs::read_to_string(&trace) else { return Ok(None) };
    fs::remove_file(&trace)?;
    Ok(Some(tally(&text, &durable, span)))
}

fn tally(trace: &str, durable: &HashSet<u64>, span: Duration) -> Syncs {
    let mut syncs = Syncs { seconds: span.as_secs_f64(), ..Syncs::default() };
    for line in trace.lines() {
        // `1234  pwrite64(7, ""..., 4096, 0) = 4096`; the second half of an interrupted line has no parenthesis first.
        let Some((head, arguments)) = line.split_once('(') else { continue };
        let Some(name) = head.split_ascii_whitespace().next_back() else { continue };
        if SYNCS.contains(&name) {
            syncs.syncs += 1;
        } else if WRITES.contains(&name) {
            let file = arguments.split([',', ')']).next().and_then(|fd| fd.trim().parse::<u64>().ok());
            syncs.durable_writes += u64::from(file.is_some_and(|fd| durable.contains(&fd)));
        }
    }
    syncs
}

/// Descriptors that were opened with `O_DSYNC` or `O_SYNC`.
fn durable_files(pid: u32) -> HashSet<u64> {
    const O_DSYNC: u64 = 0o10_000;
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return HashSet::new() };
    let is_durable = |path: &Path| {
        let info = fs::read_to_string(path).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        u64::from_str_radix(flags.trim(), 8).ok().map(|flags| flags & O_DSYNC != 0)
    };
    entries
        .flatten()
        .filter(|entry| is_durable(&entry.path()) == Some(true))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_and_writes_to_durable_files_are_counted_once() {
        let trace = "\
            12  fdatasync(5) = 0\n\
            12  pwrite64(7, \"\"..., 4096, 0) = 4096\n\
            13  pwrite64(8, \"\"..., 4096, 0) = 4096\n\
            12  write(1, \"\"..., 3) = 3\n\
            13  fsync(9 <unfinished ...>\n\
            13  <... fsync resumed>) = 0\n\
            14  pwritev2(7, [{iov_base=\"\"..., iov_len=4096}], 1, 0, RWF_DSYNC) = 4096\n";
        let counted = tally(trace, &HashSet::from([7]), Duration::from_secs(1));
        assert_eq!((counted.syncs, counted.durable_writes), (2, 2));
    }

    #[test]
    fn a_file_that_was_opened_for_durable_writes_is_recognised() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::OpenOptionsExt;
        let path = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
        let plain = fs::File::create(&path).unwrap();
        let durable = fs::OpenOptions::new().write(true).custom_flags(0o10_000).open(&path).unwrap();
        let found = durable_files(std::process::id());
        fs::remove_file(&path).unwrap();
        assert!(found.contains(&u64::try_from(durable.as_raw_fd()).unwrap()));
        assert!(!found.contains(&u64::try_from(plain.as_raw_fd()).unwrap()));
    }
}
