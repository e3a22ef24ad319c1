//! What the kernel says about a process.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::Result;

/// Counters of a process at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// User and system time of all its threads.
    pub cpu_seconds: f64,
    /// Bytes that it caused to be written to a device.
    pub written_bytes: u64,
}

/// Memory of a process.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Memory {
    pub resident_bytes: u64,
    pub resident_peak_bytes: u64,
}

pub fn usage(pid: u32) -> Result<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may hold anything: fields are counted from behind it. utime is the 14th, stime the 15th.
    let fields: Vec<_> = stat.rsplit_once(')').ok_or("no name in /proc/PID/stat")?.1.split_ascii_whitespace().collect();
    let ticks: u64 = fields.get(11..13).ok_or("a short /proc/PID/stat")?.iter().flat_map(|n| n.parse::<u64>()).sum();
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Ok(Usage { cpu_seconds: ticks as f64 / per_second, written_bytes: written_bytes(pid).unwrap_or(0) })
}

fn written_bytes(pid: u32) -> Option<u64> {
    value(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?, "write_bytes:")
}

pub fn memory(pid: u32) -> Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = |name| value(&status, name).unwrap_or(0) * 1_024;
    Ok(Memory { resident_bytes: kib("VmRSS:"), resident_peak_bytes: kib("VmHWM:") })
}

fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok())
}

/// Bytes that a directory takes on the disk.
pub fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            // It was there a moment ago.
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_something() {
        let before = usage(std::process::id()).unwrap();
        let mut x = 1_u64;
        while usage(std::process::id()).unwrap().cpu_seconds < before.cpu_seconds + 0.02 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(memory(std::process::id()).unwrap().resident_bytes > 1 << 20);
    }
}
