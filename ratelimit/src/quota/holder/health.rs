//! Whether the centre answers, and how long it takes.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long nobody asks after the first operation that was given up; doubled by each further one.
const PAUSE_MS: u64 = 100;
/// One operation a second of a node is no load for a store that comes up, and all calls go again that much earlier.
const PAUSE_MS_MAX: u64 = 1_000;
/// An answer is expected within this before anything was measured.
const FIRST_MS: u64 = 10;
/// More than the worst answer that nearly always comes: what a prefetch begins earlier by.
const MARGIN_MS: u64 = 20;

/// Of the one centre, over all applications.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Operations are not begun before, by the holder's ms; 0 while it answers. Read by every miss.
    shut_until_ms: AtomicU64,
    /// See [`Self::lead_ms`]; read by calls, written by answers.
    lead_ms: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Given up without an answer between.
    failures: u32,
    /// Until when the one that asks whether it is there again is waited for.
    probe_until_ms: u64,
    /// Mean time to an answer and mean deviation, in 1/8 ms.
    mean: u64,
    deviation: u64,
}

impl Health {
    /// Whether an operation may be begun now; if not, when. Once the pause is over one may, to see.
    pub(super) fn admit(&self, now_ms: u64) -> Result<(), u64> {
        let shut_until_ms = self.shut_until_ms.load(Ordering::Relaxed);
        if shut_until_ms == 0 {
            return Ok(());
        }
        if now_ms < shut_until_ms {
            return Err(shut_until_ms);
        }
        let mut state = self.state();
        if now_ms < state.probe_until_ms {
            return Err(state.probe_until_ms);
        }
        state.probe_until_ms = now_ms + PAUSE_MS;
        Ok(())
    }

    /// Whether operations are being given up.
    pub(super) fn is_gone(&self) -> bool {
        self.shut_until_ms.load(Ordering::Relaxed) != 0
    }

    /// When it is asked again.
    pub(super) fn shut_until_ms(&self) -> u64 {
        self.shut_until_ms.load(Ordering::Relaxed)
    }

    pub(super) fn answered(&self, took_ms: u64) {
        let mut state = self.state();
        state.failures = 0;
        state.probe_until_ms = 0;
        let took = took_ms.min(60_000) * 8;
        if state.mean == 0 {
            (state.mean, state.deviation) = (took.max(1), took / 2);
        } else {
            let off = took.abs_diff(state.mean);
            state.mean = (state.mean * 7 + took) / 8;
            state.deviation = (state.deviation * 7 + off) / 8;
        }
        self.lead_ms.store((state.mean + 4 * state.deviation) / 8 + MARGIN_MS, Ordering::Relaxed);
        self.shut_until_ms.store(0, Ordering::Relaxed);
    }

    /// An operation was given up. `jitter` is any number: nodes do not come back in step.
    pub(super) fn failed(&self, now_ms: u64, jitter: u64) {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1);
        state.probe_until_ms = 0;
        let pause_ms = (PAUSE_MS << (state.failures - 1).min(16)).min(PAUSE_MS_MAX);
        let until_ms = now_ms + pause_ms / 2 + jitter % (pause_ms / 2 + 1);
        // Operations that were begun together fail together, and are one failure's pause.
        let shut_until_ms = self.shut_until_ms.load(Ordering::Relaxed);
        if shut_until_ms > now_ms {
            state.failures -= 1;
        } else {
            self.shut_until_ms.store(until_ms.max(1), Ordering::Relaxed);
        }
    }

    /// How long before its end a block is asked for anew: time to an answer in nearly all cases, and a margin.
    pub(super) fn lead_ms(&self) -> u64 {
        match self.lead_ms.load(Ordering::Relaxed) {
            0 => FIRST_MS + MARGIN_MS,
            lead_ms => lead_ms,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn one_operation_looks_whether_the_centre_is_there_again() {
        let health = Health::default();
        assert_eq!(health.admit(0), Ok(()));
        health.failed(1_000, 0);
        health.failed(1_001, 0);
        assert_eq!(health.admit(1_001), Err(1_050));
        assert_eq!(health.admit(1_050), Ok(()));
        assert_eq!(health.admit(1_051), Err(1_150), "the others wait for the first");
        health.failed(1_060, 0);
        assert_eq!(health.admit(1_100), Err(1_160), "twice as long");
        health.answered(3);
        assert_eq!(health.admit(1_061), Ok(()));
        assert!(!health.is_gone());
    }

    #[test]
    fn pauses_are_bounded() {
        let health = Health::default();
        let mut now_ms = 0;
        for _ in 0..100 {
            health.failed(now_ms, u64::MAX);
            let until_ms = health.admit(now_ms).unwrap_err();
            assert!(until_ms - now_ms <= PAUSE_MS_MAX);
            now_ms = until_ms;
        }
    }

    #[test]
    fn the_lead_follows_what_answers_take() {
        let health = Health::default();
        assert_eq!(health.lead_ms(), 30);
        for _ in 0..100 {
            health.answered(4);
        }
        assert!((22..=30).contains(&health.lead_ms()), "{}", health.lead_ms());
        for _ in 0..20 {
            health.answered(100);
        }
        assert!(health.lead_ms() > 100);
    }
}
