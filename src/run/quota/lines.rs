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

#[cfg(test)]
mod tests {
    use domain::{ManualClock, TenantId};

    use super::*;
    use crate::run::sink::tests::written;

    #[test]
    fn a_flood_is_a_few_lines_and_a_count_and_what_is_hostile_is_escaped() {
        let manual = ManualClock::at_unix_ms(1_764_424_000_000);
        let lines = Lines::new(Arc::<ManualClock>::clone(&manual));
        let tenant = TenantId::parse("acme").unwrap();
        let what = format!("evil\n\u{1b}[31m{}", "x".repeat(1_000));
        let whose = Whose { tenant: &tenant, kind: "destination", what: &what };
        let key = PairKey::authority(&tenant, "a.example.com:443");
        let all = written(|sink| {
            let sink = sink.clone();
            let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || sink.clone()).finish();
            tracing::subscriber::with_default(subscriber, || {
                for _ in 0..100 {
                    lines.breaker(key, &whose, Change::Opened { for_ms: 5_000, times: 1 });
                }
                lines.runaway(key, None, Event::Ended);
                lines.parked(&whose, "connection", 1_000);
                manual.advance(std::time::Duration::from_secs(1));
                lines.breaker(key, &whose, Change::Closed);
            });
        });
        assert_eq!(all.matches("a breaker opened").count() as u64, LINES_PER_SECOND);
        let closed = all.lines().find(|line| line.contains("a breaker closed")).unwrap();
        assert!(closed.contains("unwritten_before=95") && closed.contains("acme"), "{closed}");
        assert_eq!(all.lines().count() as u64, LINES_PER_SECOND + 3, "{all}");
        assert!(!all.contains('\u{1b}') && all.lines().all(|line| line.len() < 600), "{all}");
    }
}
