//! The centre as everybody asks it, which notices whether it answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use domain::Clock;
use ratelimit::quota::redis::RedisCentre;
use ratelimit::quota::{Application, AskError, Body, BucketKey, Centre, InProcess, Level, Life, Name, Op, Reply};

/// How often a store is looked at that does not answer, or was not asked: between calls nobody would know otherwise.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// It does not answer if nothing was answered for so long; one late answer is none.
const GONE_AFTER_MS: u64 = 1_000;

#[derive(Debug)]
pub(super) struct Store {
    place: Place,
    clock: Arc<dyn Clock>,
    silence: Silence,
    /// When it was asked last, likewise.
    asked_ms: AtomicU64,
}

/// Since when nothing was answered, and whether the log has it.
#[derive(Debug)]
struct Silence {
    /// In ms of the monotonic clock and one more; 0 while it answers.
    since_ms: AtomicU64,
    is_told: AtomicBool,
}

/// What the log says of a store, once each time.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Gone,
    Back { after_ms: u64 },
}

impl Silence {
    fn since(since_ms: u64) -> Self {
        Self { since_ms: AtomicU64::new(since_ms), is_told: AtomicBool::new(false) }
    }

    /// For how long there has been no answer; none while there are answers.
    fn ms(&self, now_ms: u64) -> Option<u64> {
        let since_ms = self.since_ms.load(Ordering::Relaxed);
        (since_ms != 0).then(|| now_ms.saturating_sub(since_ms))
    }

    fn note(&self, is_answered: bool, now_ms: u64) -> Option<Turn> {
        if is_answered {
            let since_ms = self.since_ms.swap(0, Ordering::Relaxed);
            let after_ms = now_ms.saturating_sub(since_ms);
            return self.is_told.swap(false, Ordering::Relaxed).then_some(Turn::Back { after_ms });
        }
        // The first of them.
        self.since_ms.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed).ok();
        let is_gone = self.ms(now_ms).is_some_and(|ms| ms >= GONE_AFTER_MS);
        (is_gone && !self.is_told.swap(true, Ordering::Relaxed)).then_some(Turn::Gone)
    }
}

#[derive(Debug)]
enum Place {
    Here(InProcess),
    Redis(RedisCentre),
}

impl Store {
    pub(super) fn here(journal: InProcess, clock: Arc<dyn Clock>) -> Self {
        Self { place: Place::Here(journal), clock, silence: Silence::since(0), asked_ms: AtomicU64::new(0) }
    }

    /// One that is not known to be there.
    pub(super) fn redis(centre: RedisCentre, clock: Arc<dyn Clock>) -> Self {
        let silence = Silence::since(now_ms(&*clock));
        Self { place: Place::Redis(centre), clock, silence, asked_ms: AtomicU64::new(0) }
    }

    /// Whether it answers, as far as is known.
    pub(super) fn is_there(&self) -> bool {
        match &self.place {
            Place::Here(journal) => journal.life() != Life::Failed,
            Place::Redis(_) => self.silence.since_ms.load(Ordering::Relaxed) == 0,
        }
    }

    /// What is wrong with it, for `readyz`.
    pub(super) fn alarm(&self) -> Option<String> {
        // What a centre in this process can suffer from is its journal, of which it is told apart.
        let Place::Redis(centre) = &self.place else { return None };
        let silent_ms = self.silence.ms(now_ms(&*self.clock)).filter(|ms| *ms >= GONE_AFTER_MS)?;
        let why = why(centre);
        Some(format!(
            "quota: its store has not answered for {} s, and calls that need units from it are parked: {why}",
            silent_ms / 1_000
        ))
    }

    /// Looks at a Redis that is silent or that nobody asks.
    pub(super) async fn keep_looking(self: Arc<Self>) {
        let Place::Redis(_) = &self.place else { return };
        loop {
            let quiet_ms = now_ms(&*self.clock).saturating_sub(self.asked_ms.load(Ordering::Relaxed));
            let is_quiet = u128::from(quiet_ms) >= LOOK_EVERY.as_millis();
            if (is_quiet || !self.is_there())
                && let Some(look) = look()
            {
                // What came of it is noted where it was asked.
                drop(self.ask(&look).await);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn note(&self, is_answered: bool) {
        let now_ms = now_ms(&*self.clock);
        self.asked_ms.store(now_ms, Ordering::Relaxed);
        // What a centre in this process can suffer from is told by its journal.
        let (Some(turn), Place::Redis(centre)) = (self.silence.note(is_answered, now_ms), &self.place) else { return };
        match turn {
            Turn::Gone => tracing::warn!(
                why = %why(centre),
                "the store of quota does not answer: what is held is spent, then calls that need units from it are parked"
            ),
            Turn::Back { after_ms } => tracing::info!(after_ms, "the store of quota answers again"),
        }
    }
}

fn why(centre: &RedisCentre) -> String {
    centre.fault().map_or_else(|| "nobody has asked it yet".to_owned(), |fault| fault.to_string())
}

#[async_trait]
impl Centre for Store {
    async fn ask(&self, op: &Op) -> Result<Reply, AskError> {
        let result = match &self.place {
            Place::Here(journal) => journal.ask(op).await,
            Place::Redis(centre) => {
                // What is asked for is listened for; an application too many is right without, only later.
                centre.watch(&op.application);
                centre.ask(op).await
            }
        };
        // A store that may not write reads all the same, and grants nothing.
        if !(result.is_ok() && matches!(op.body, Body::Describe(_))) {
            self.note(result.is_ok());
        }
        result
    }
}

/// What changes nothing, of an application that no connector has. To the store it is a write, as grants are: one that has
/// no memory, no replicas or another primary refuses it, too.
fn look() -> Option<Op> {
    let name = |text| Name::parse(text).ok();
    let application = Application { provider: name("tidegate")?, name: name("look")? };
    let key = BucketKey { level: Level::App, scope: name("-")?, policy: name("look")? };
    Some(Op { application, body: Body::Release(key) })
}

fn now_ms(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.monotonic().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn that_a_store_is_gone_and_back_is_told_once() {
        let silence = Silence::since(1);
        let mut told = Vec::new();
        for (at_ms, is_answered) in [
            (10, false),
            (20, true),
            // One late answer is none that is gone.
            (5_000, false),
            (5_900, false),
            (5_950, true),
            (9_000, false),
            (10_100, false),
            (11_000, false),
            (60_000, false),
            (61_000, true),
            (62_000, true),
        ] {
            told.extend(silence.note(is_answered, at_ms));
        }
        assert_eq!(told, [Turn::Gone, Turn::Back { after_ms: 52_000 }]);
        assert_eq!(silence.ms(63_000), None);
    }
}
