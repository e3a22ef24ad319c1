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

/// CPU seconds that this machine has used since it started, whoever it was.
pub fn machine_cpu_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).ok_or("no CPU in /proc/stat")?;
    // user, nice, system, idle, iowait, irq, softirq
    let ticks = line.split_ascii_whitespace().take(7).map(str::parse::<u64>).collect::<Result<Vec<_>, _>>()?;
    let used = [0, 1, 2, 5, 6].into_iter().filter_map(|at| ticks.get(at)).sum::<u64>();
    Ok(used as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// A process and everything that it has started and they have.
pub fn family(pid: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        parents.extend(parent.map(|parent: u32| (child, parent)));
    }
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(parent) = family.get(at).copied() {
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        at += 1;
    }
    family
}

/// CPU seconds of a process and of its family.
pub fn family_cpu_seconds(pid: u32) -> Result<f64> {
    // One that ended meanwhile counts with what it left to its parent, which is nothing to speak of here.
    let cpu = family(pid).into_iter().skip(1).filter_map(|pid| Some(usage(pid).ok()?.cpu_seconds)).sum::<f64>();
    Ok(cpu + usage(pid)?.cpu_seconds)
}

/// Resident memory of a process and of its family, shared pages once for each.
pub fn family_resident_bytes(pid: u32) -> Result<u64> {
    let others = family(pid).into_iter().skip(1).filter_map(|pid| Some(memory(pid).ok()?.resident_bytes)).sum::<u64>();
    Ok(others + memory(pid)?.resident_bytes)
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
    fn a_family_has_those_that_a_child_has_started() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while family(child.id()).len() < 2 && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        let family = family(std::process::id());
        let grandchild = super::family(child.id())[1];
        child.kill().unwrap();
        child.wait().unwrap();
        let pid = rustix::process::Pid::from_raw(grandchild.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        assert!(family.contains(&child.id()) && family.contains(&grandchild), "{family:?}");
    }

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
