//! All keys that this node watches.

use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{self, BadRecord, RECORD_BYTES};
use super::watch::{Event, HOUR_MS, Rules, State, Verdict, WEEK_MS, Watch};
use crate::moment::Now;
use crate::pair::PairKey;
use crate::pair_table::{Bounds, Entry, PairTable};

/// An announced spike: until then, so many times more than usual is no runaway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spike {
    /// Times the trigger, 2 to 1,000.
    pub factor: u16,
    /// By the wall clock; at most a week ahead.
    pub until_unix_ms: u64,
}

/// Above this an announcement would say that nothing is a runaway.
pub(crate) const SPIKE_FACTOR_MAX: u16 = 1_000;
/// What lasts longer is no spike.
pub(crate) const SPIKE_MS_MAX: u64 = 168 * HOUR_MS;

/// Why a spike cannot be announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSpike {
    #[error("a spike is 2 to {SPIKE_FACTOR_MAX} times as much as usual, not {0}")]
    Factor(u16),
    #[error("a spike ends in the future, and within a week")]
    Until,
    #[error("no more keys can be watched")]
    NoRoom,
}

/// What an attempt met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub verdict: Verdict,
    /// What this attempt brought to light.
    pub event: Option<Event>,
}

/// How a key stands. Numbers are attempts per minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    pub verdict: Verdict,
    /// What is usual; of one that is throttled or paused, what was when that began.
    pub baseline: u32,
    /// Above this it runs away, an announced spike counted in.
    pub trigger: u64,
    /// What the sample in progress shows so far, or the one before it if that had more.
    pub wanted: u32,
    pub spike: Option<Spike>,
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restored {
    Watched,
    /// The key is watched already, and what is known of it here is newer.
    Known,
    NoRoom,
}

/// The watch over all keys. What it guarantees is said in [`super`].
#[derive(Debug)]
pub struct Runaways {
    keys: PairTable<Watch>,
    unwatched: AtomicU64,
}

impl Entry for Watch {
    /// Silent for a week, and nothing hangs on it.
    fn is_settled(&self, now: Now) -> bool {
        let is_silent = now.mono_ms.saturating_sub(self.seen.mono_ms) >= WEEK_MS;
        let is_announced = self.spike.is_some_and(|spike| now.unix_ms < spike.until_unix_ms);
        self.state == State::Fine && is_silent && !is_announced
    }

    fn worth(&self) -> Option<u64> {
        (self.state == State::Fine && self.spike.is_none()).then_some(self.seen.mono_ms)
    }
}

impl Runaways {
    /// A key costs some 300 bytes: the bound of all is mostly a matter of memory.
    pub fn new(bounds: Bounds) -> Self {
        Self { keys: PairTable::new(bounds), unwatched: AtomicU64::new(0) }
    }

    /// An attempt is wanted, whatever comes of it.
    pub fn attempt(&self, key: PairKey, rules: &Rules, now: Now) -> Seen {
        let seen = self.keys.with_new(
            key,
            now,
            || Watch::new(now),
            |watch| {
                let event = watch.attempt(rules, now);
                Seen { verdict: watch.verdict(rules), event }
            },
        );
        seen.unwrap_or_else(|_| {
            self.unwatched.fetch_add(1, Ordering::Relaxed);
            Seen { verdict: Verdict::Fine, event: None }
        })
    }

    /// Where a key stands, without an attempt.
    pub fn verdict(&self, key: PairKey, rules: &Rules, now: Now) -> Verdict {
        self.keys.with(key, now, |watch| watch.map_or(Verdict::Fine, |watch| watch.verdict(rules)))
    }

    /// What is usual for a key in this hour, per minute, as far as it is known.
    pub fn baseline(&self, key: PairKey, rules: &Rules, now: Now) -> Option<u32> {
        self.keys.with(key, now, |watch| watch.map(|watch| watch.baseline(rules)))
    }

    /// How a key stands, for people; none of one that is not watched.
    pub fn view(&self, key: PairKey, rules: &Rules, now: Now) -> Option<View> {
        self.keys.with(key, now, |watch| watch.map(|watch| watch.view(rules, now)))
    }

    /// Every key that is watched. One shard is held at a time: `read` should be quick.
    pub fn views(&self, rules: &Rules, now: Now, mut read: impl FnMut(PairKey, View)) {
        self.keys.each(|key, watch| read(key, watch.view(rules, now)));
    }

    /// An operator lets a key go on; whether it was throttled or paused.
    pub fn resume(&self, key: PairKey, now: Now) -> bool {
        self.keys.with(key, now, |watch| watch.is_some_and(Watch::resume))
    }

    /// A spike is to be expected. A later announcement replaces the one before.
    pub fn announce(&self, key: PairKey, spike: Spike, now: Now) -> Result<(), BadSpike> {
        if !(2..=SPIKE_FACTOR_MAX).contains(&spike.factor) {
            return Err(BadSpike::Factor(spike.factor));
        }
        let ahead_ms = spike.until_unix_ms.checked_sub(now.unix_ms).filter(|ahead_ms| *ahead_ms > 0);
        if ahead_ms.is_none_or(|ahead_ms| ahead_ms > SPIKE_MS_MAX) {
            return Err(BadSpike::Until);
        }
        let announced = self.keys.with_new(key, now, || Watch::new(now), |watch| watch.spike = Some(spike));
        announced.map_err(|_| BadSpike::NoRoom)
    }

    /// Takes an announcement back; whether there was one.
    pub fn withdraw(&self, key: PairKey, now: Now) -> bool {
        self.keys.with(key, now, |watch| watch.is_some_and(|watch| watch.spike.take().is_some()))
    }

    /// Lets time pass for keys that are silent, tells what ended meanwhile, and forgets keys after a week of silence;
    /// how many are left. To be called now and then: a throttle ends no earlier than the next attempt or sweep.
    pub fn sweep(&self, rules: &Rules, now: Now, mut tell: impl FnMut(PairKey, Event)) -> usize {
        self.keys.sweep(now, |key, watch| {
            if let Some(event) = watch.catch_up(rules, now) {
                tell(key, event);
            }
        })
    }

    /// The record to keep of a key.
    pub fn record(&self, key: PairKey, now: Now) -> Option<[u8; RECORD_BYTES]> {
        self.keys.with(key, now, |watch| watch.map(|watch| record::write(watch, now)))
    }

    /// The records of all keys, for a snapshot or a hand-over. One shard is held at a time: `keep` should be quick.
    pub fn records(&self, now: Now, mut keep: impl FnMut(PairKey, [u8; RECORD_BYTES])) {
        self.keys.each(|key, watch| keep(key, record::write(watch, now)));
    }

    /// Every key and where it stands, without an attempt. One shard is held at a time: `read` should be quick.
    pub fn verdicts(&self, rules: &Rules, mut read: impl FnMut(PairKey, Verdict)) {
        self.keys.each(|key, watch| read(key, watch.verdict(rules)));
    }

    /// Takes up a record that another process, or this node before, has kept.
    pub fn restore(&self, key: PairKey, bytes: &[u8], now: Now) -> Result<Restored, BadRecord> {
        let watch = record::read(bytes, now)?;
        if self.keys.with(key, now, |known| known.is_some()) {
            return Ok(Restored::Known);
        }
        Ok(match self.keys.with_new(key, now, || watch, |_| ()) {
            Ok(()) => Restored::Watched,
            Err(_) => Restored::NoRoom,
        })
    }

    /// Keys that are watched now.
    pub fn tracked(&self) -> usize {
        self.keys.len()
    }

    /// Attempts of keys that had no room, since the start.
    pub fn unwatched(&self) -> u64 {
        self.unwatched.load(Ordering::Relaxed)
    }
}
