//! What a journal says about itself, and how fast it grows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::options::SyncMode;
use super::position::Position;

/// A look at a journal, for metrics and for `log stat`.
#[derive(Debug, Clone, PartialEq)]
pub struct Stat {
    pub epoch: u64,
    /// What `Auto` came to.
    pub sync: SyncMode,
    pub durable: Position,
    pub segments: usize,
    /// Trimmed files that wait for reuse.
    pub recyclable: usize,
    /// Bytes of all files of the journal.
    pub bytes_used: u64,
    /// Bytes of the file system that this process may still use, and all of them; from the last look.
    pub bytes_free: u64,
    pub bytes_total: u64,
    /// Bytes that were appended per second over the last hour, or since the journal was opened if that is less.
    pub append_bytes_per_second: f64,
    pub records: u64,
    pub record_bytes: u64,
    /// Durable writes since the journal was opened: one a batch.
    pub batches: u64,
    pub queued_records: usize,
    pub queued_bytes: u64,
    /// Is the free space below the reserve, so that appends fail?
    pub full: bool,
    /// Why nothing can be appended for the moment, if so.
    pub unavailable: Option<Arc<str>>,
    /// Why appends were refused last, since the journal was opened.
    pub last_fault: Option<Fault>,
    /// How often an error of the disk was met, and how often a fresh segment has proved it since.
    pub failures: u64,
    pub heals: u64,
    /// Known stretches of damage that hold records.
    pub damaged: usize,
    /// Earliest and latest time that a record says, also one of the segment that is written.
    pub oldest_unix_ms: Option<u64>,
    pub newest_unix_ms: Option<u64>,
}

/// Why appends were refused, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub unix_ms: u64,
    pub reason: Arc<str>,
}

impl Stat {
    /// How long the free space above the reserve lasts at the last hour's pace; `None` while nothing is appended.
    pub fn time_left(&self, reserve_bytes: u64) -> Option<Duration> {
        let free = self.bytes_free.saturating_sub(reserve_bytes);
        #[expect(clippy::cast_precision_loss, reason = "an estimate in days needs no more than 52 bits")]
        let seconds = free as f64 / self.append_bytes_per_second;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

/// Bytes per second over the last hour, in minutes.
#[derive(Debug)]
pub(crate) struct Rate {
    started: Duration,
    /// (minute, bytes), oldest first.
    minutes: VecDeque<(u64, u64)>,
}

const MINUTES: u64 = 60;

impl Rate {
    pub(crate) fn new(now: Duration) -> Self {
        Self { started: now, minutes: VecDeque::new() }
    }

    pub(crate) fn add(&mut self, now: Duration, bytes: u64) {
        let minute = now.as_secs() / 60;
        match self.minutes.back_mut() {
            Some((last, sum)) if *last == minute => *sum += bytes,
            Some(_) | None => self.minutes.push_back((minute, bytes)),
        }
        while self.minutes.front().is_some_and(|(first, _)| first + MINUTES < minute) {
            self.minutes.pop_front();
        }
    }

    pub(crate) fn per_second(&self, now: Duration) -> f64 {
        let minute = now.as_secs() / 60;
        let bytes: u64 = self.minutes.iter().filter(|(m, _)| m + MINUTES >= minute).map(|(_, b)| b).sum();
        let since = now.saturating_sub(self.started).min(Duration::from_secs(MINUTES * 60)).max(Duration::from_secs(1));
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
        let bytes = bytes as f64;
        bytes / since.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_remembered_and_no_more() {
        let second = Duration::from_secs;
        let mut rate = Rate::new(second(0));
        rate.add(second(10), 1000);
        assert!((rate.per_second(second(10)) - 100.0).abs() < 1e-9);
        rate.add(second(3600), 3_600_000);
        assert!((rate.per_second(second(3600)) - 1000.0).abs() < 1.0);
        assert!(rate.per_second(second(3600 * 3)) < 1e-9);
        for hour in 0..100 {
            rate.add(second(hour * 600), 1);
        }
        assert!(rate.minutes.len() <= 62);
    }
}
