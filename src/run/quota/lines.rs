//! Lines in the log about breakers, runaways and parks: a few of each kind in a second, and how many were not written.

use std::sync::Arc;

use domain::Clock;
use domain::text::Untrusted;
use egress::quota::Whose;
use ratelimit::PairKey;
use ratelimit::breaker::Change;
use ratelimit::runaway::Event;

use crate::run::sample::Sample;

/// Of each kind, in a second. A provider that breaks opens a breaker of every tenant that calls it, and a park is told
/// with every call that it stops.
const LINES_PER_SECOND: u64 = 5;
/// Of what is called, in bytes.
const WHAT_BYTES: usize = 128;

#[derive(Debug)]
pub(super) struct Lines {
    clock: Arc<dyn Clock>,
    breakers: Sample,
    runaways: Sample,
    parks: Sample,
}

impl Lines {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, breakers: Sample::default(), runaways: Sample::default(), parks: Sample::default() }
    }

    pub(super) fn breaker(&self, key: PairKey, whose: &Whose<'_>, change: Change) {
        let Some(unwritten) = self.admit(&self.breakers) else { return };
        let (tenant, kind, what) = shown(whose);
        match change {
            Change::Opened { for_ms, times } => tracing::warn!(
                tenant, kind, what, key = ?key, for_ms, times, unwritten_before = unwritten,
                "a breaker opened: what a tenant calls does not work, and its calls there are refused meanwhile"
            ),
            Change::Closed => tracing::info!(
                tenant, kind, what, key = ?key, unwritten_before = unwritten,
                "a breaker closed: what a tenant calls works again"
            ),
        }
    }

    /// Nobody is named where it ended because nobody called.
    pub(super) fn runaway(&self, key: PairKey, whose: Option<&Whose<'_>>, event: Event) {
        let Some(unwritten) = self.admit(&self.runaways) else { return };
        let (tenant, kind, what) = whose.map(shown).unwrap_or_default();
        match event {
            Event::Began { baseline, wanted, throttled_to } => tracing::warn!(
                tenant, kind, what, key = ?key, baseline, wanted, throttled_to, unwritten_before = unwritten,
                "a runaway: it wants so many more calls a minute than it ever did that it is throttled"
            ),
            Event::Paused { baseline, wanted } => tracing::error!(
                tenant, kind, what, key = ?key, baseline, wanted, unwritten_before = unwritten,
                "a runaway goes on and is paused until an operator resumes it"
            ),
            Event::Ended => tracing::info!(
                tenant, kind, what, key = ?key, unwritten_before = unwritten,
                "a runaway has ended: it is throttled no more"
            ),
        }
    }

    pub(super) fn parked(&self, whose: &Whose<'_>, level: &'static str, release_ms: u64) {
        let Some(unwritten) = self.admit(&self.parks) else { return };
        let (tenant, kind, what) = shown(whose);
        tracing::info!(tenant, kind, what, level, release_ms, unwritten_before = unwritten, "calls are parked");
    }

    fn admit(&self, sample: &Sample) -> Option<u64> {
        sample.admit(self.clock.unix_ms() / 1_000, LINES_PER_SECOND)
    }
}

fn shown(whose: &Whose<'_>) -> (String, &'static str, String) {
    let what = Untrusted::with_limit(whose.what.as_bytes(), WHAT_BYTES).to_string();
    (whose.tenant.to_string(), whose.kind, what)
}
