//! When things happened to runs, and how long it took: told by the provider that is called and by the ledger that is
//! written.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;
use runner::ids::RunId;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::load::histogram;

const SHARDS: usize = 64;

/// Milliseconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Times {
    fn of(histogram: &Histogram<u64>) -> Self {
        let ms = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        Self { count: histogram.len(), p50: ms(0.5), p99: ms(0.99), max: ms(1.0) }
    }
}

/// What came of a measured time.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Overheads {
    /// From when a run was due until its first call was begun.
    pub first_call: Times,
    /// From a step's outcome until it and the next intent were durable and the next call was begun.
    pub between: Times,
    /// From the last outcome until it and the run's end were durable.
    pub end: Times,
    /// Of a whole run, from when it was due, with the provider's time in it.
    pub run: Times,
}

#[derive(Debug)]
struct Run {
    due: Instant,
    answered: Option<Instant>,
}

#[derive(Debug)]
struct Shard {
    runs: HashMap<RunId, Run, BuildHasherDefault<DefaultHasher>>,
    spans: [Histogram<u64>; 4],
}

/// Runs that are under way, and what they took.
#[derive(Debug)]
pub struct Marks {
    shards: Vec<Mutex<Shard>>,
    measures: AtomicBool,
    /// Since the start, measured or not.
    pub calls: AtomicU64,
    pub outcomes: AtomicU64,
    pub ended: AtomicU64,
    /// Bytes of inputs and outputs, as they were given to be kept.
    pub payload_bytes: AtomicU64,
    /// One more for each run that is over: what a closed loop waits for.
    pub room: Semaphore,
}

impl Marks {
    pub fn new(under_way_max: usize) -> Self {
        let shard = || Mutex::new(Shard { runs: HashMap::default(), spans: std::array::from_fn(|_| histogram()) });
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            measures: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            outcomes: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            payload_bytes: AtomicU64::new(0),
            room: Semaphore::new(under_way_max),
        }
    }

    fn shard(&self, run: RunId) -> MutexGuard<'_, Shard> {
        let at = BuildHasherDefault::<DefaultHasher>::default().hash_one(run) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, shard: &mut Shard, span: usize, from: Instant, to: Instant) {
        if self.measures.load(Ordering::Relaxed) {
            let nanoseconds = u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX);
            shard.spans[span].saturating_record(nanoseconds);
        }
    }

    /// A run should begin at this moment.
    pub fn due(&self, run: RunId, at: Instant) {
        self.shard(run).runs.insert(run, Run { due: at, answered: None });
    }

    /// Its call has been begun.
    pub fn called(&self, run: RunId) {
        let now = Instant::now();
        self.calls.fetch_add(1, Ordering::Relaxed);
        let shard = &mut *self.shard(run);
        let Some(found) = shard.runs.get(&run) else { return };
        let (span, from) = found.answered.map_or((0, found.due), |answered| (1, answered));
        self.record(shard, span, from, now);
    }

    pub fn answered(&self, run: RunId) {
        if let Some(found) = self.shard(run).runs.get_mut(&run) {
            found.answered = Some(Instant::now());
        }
    }

    /// Its end is durable.
    pub fn over(&self, run: RunId) {
        let now = Instant::now();
        self.ended.fetch_add(1, Ordering::Relaxed);
        let shard = &mut *self.shard(run);
        if let Some(Run { due, answered }) = shard.runs.remove(&run) {
            self.record(shard, 2, answered.unwrap_or(due), now);
            self.record(shard, 3, due, now);
            self.room.add_permits(1);
        }
    }

    /// Measures from here on, from nothing.
    pub fn begin(&self) {
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).spans.iter_mut().for_each(Histogram::reset);
        }
        self.measures.store(true, Ordering::Relaxed);
    }

    /// What was measured since.
    pub fn end(&self) -> Overheads {
        self.measures.store(false, Ordering::Relaxed);
        let mut spans: [Histogram<u64>; 4] = std::array::from_fn(|_| histogram());
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (all, one) in spans.iter_mut().zip(&shard.spans) {
                all.add(one).expect("they have the same bounds");
            }
        }
        let [first_call, between, end, run] = spans.each_ref().map(Times::of);
        Overheads { first_call, between, end, run }
    }

    /// Runs that were due and are not over.
    pub fn under_way(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).runs.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_apart() {
        let (marks, run) = (Marks::new(1), RunId::from_bytes([1; 16]));
        let second = std::time::Duration::from_secs(1);
        marks.begin();
        marks.due(run, Instant::now().checked_sub(second).unwrap());
        marks.called(run);
        marks.answered(run);
        marks.called(run);
        marks.answered(run);
        marks.over(run);
        let seen = marks.end();
        let counts = [seen.first_call, seen.between, seen.end, seen.run].map(|times| times.count);
        assert_eq!(counts, [1; 4]);
        assert!(seen.first_call.p50 >= 999.0 && seen.run.p50 >= 999.0, "{seen:?}");
        assert!(seen.between.p50 < 500.0 && seen.end.p50 < 500.0, "{seen:?}");
        assert_eq!((marks.under_way(), marks.room.available_permits()), (0, 2));
    }
}
