//! What one node has to report, by provider.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::tally::{Report, Tally};
use crate::breaker::outcome::Weight;
use crate::moment::Now;
use crate::pair::{PairKey, ProviderKey};
use crate::shards::{OwnKeys, Shards, spread};

/// Counts of this node's calls, by provider.
///
/// Bounded by `providers_max`, which is the number of connectors that may be configured: ungoverned authorities have no
/// fleet breaker, so that no caller can choose keys. A provider beyond the bound is not counted; one without calls for
/// two windows is forgotten when reports are made.
#[derive(Debug)]
pub struct NodeTallies {
    holder: u64,
    window_ms: u64,
    providers_max: usize,
    tracked: AtomicUsize,
    providers: Shards<OwnKeys<u64, Windows>>,
}

/// The window in progress and the one before.
#[derive(Debug, Default)]
struct Windows {
    window: u64,
    latest: Tally,
    before: Tally,
}

impl NodeTallies {
    /// `holder` is this boot of this node; `window_ms` is half of what the fleet's breaker looks back over.
    pub fn new(holder: u64, window_ms: u32, providers_max: u32) -> Self {
        Self {
            holder,
            window_ms: u64::from(window_ms.max(1)),
            providers_max: usize::try_from(providers_max).unwrap_or(usize::MAX),
            tracked: AtomicUsize::new(0),
            providers: Shards::new(),
        }
    }

    /// Counts an outcome of a tenant's call. Of a fault: what the node has counted in both windows together.
    pub fn count(&self, provider: ProviderKey, key: PairKey, weight: Weight, now: Now) -> Option<Tally> {
        if weight == Weight::Nothing {
            return None;
        }
        let mut providers = self.providers.lock(shard(provider));
        if !providers.contains_key(&provider.as_u64()) {
            // Shards that come together may take one more each: a bound of memory, not of anything that is promised.
            if self.tracked.load(Ordering::Relaxed) >= self.providers_max {
                return None;
            }
            self.tracked.fetch_add(1, Ordering::Relaxed);
        }
        let windows = providers.entry(provider.as_u64()).or_default();
        windows.roll(now.mono_ms / self.window_ms);
        windows.latest.count(key, weight);
        (weight == Weight::Bad).then(|| windows.sum())
    }

    /// The reports to send: of the window in progress, and once more of the one before, whose end no report had yet.
    /// Sending them twice or losing one does no harm.
    pub fn reports(&self, now: Now, mut send: impl FnMut(Report)) {
        self.each(now, |provider, windows| self.send(provider, windows, &mut send));
    }

    /// The reports of one provider.
    pub fn reports_of(&self, provider: ProviderKey, now: Now) -> Vec<Report> {
        let mut reports = Vec::new();
        let mut providers = self.providers.lock(shard(provider));
        if let Some(windows) = providers.get_mut(&provider.as_u64()) {
            windows.roll(now.mono_ms / self.window_ms);
            self.send(provider, windows, &mut |report| reports.push(report));
        }
        reports
    }

    /// Providers of whose calls at least this part failed, in percent, in both windows together.
    pub fn failing(&self, percent: u8, now: Now) -> Vec<ProviderKey> {
        let mut failing = Vec::new();
        self.each(now, |provider, windows| {
            let sum = windows.sum();
            let is_share = u64::from(sum.faults()) * 100 >= u64::from(sum.calls()) * u64::from(percent);
            if sum.faults() > 0 && is_share {
                failing.push(provider);
            }
        });
        failing
    }

    /// Forgets what was counted of a provider: it means nothing for what comes.
    pub fn forget(&self, provider: ProviderKey) {
        if self.providers.lock(shard(provider)).remove(&provider.as_u64()).is_some() {
            self.tracked.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Providers that are counted now.
    pub fn tracked(&self) -> usize {
        self.tracked.load(Ordering::Relaxed)
    }

    /// Looks at all, and forgets those without calls in both windows.
    fn each(&self, now: Now, mut look: impl FnMut(ProviderKey, &Windows)) {
        let window = now.mono_ms / self.window_ms;
        for mut providers in self.providers.each() {
            let before = providers.len();
            providers.retain(|provider, windows| {
                windows.roll(window);
                look(ProviderKey::from_u64(*provider), windows);
                windows.before != Tally::default() || windows.latest != Tally::default()
            });
            self.tracked.fetch_sub(before - providers.len(), Ordering::Relaxed);
        }
    }

    fn send(&self, provider: ProviderKey, windows: &Windows, send: &mut impl FnMut(Report)) {
        for (window, tally) in [(windows.window.saturating_sub(1), windows.before), (windows.window, windows.latest)] {
            if tally != Tally::default() {
                send(Report { provider, holder: self.holder, window, tally });
            }
        }
    }
}

fn shard(provider: ProviderKey) -> usize {
    Shards::<()>::of(spread(provider.as_u64()))
}

impl Windows {
    /// An older moment than one that was counted is counted as of that one.
    fn roll(&mut self, window: u64) {
        if window <= self.window {
            return;
        }
        let is_next = window == self.window + 1;
        self.before = if is_next { self.latest } else { Tally::default() };
        self.latest = Tally::default();
        self.window = window;
    }

    fn sum(&self) -> Tally {
        let mut sum = self.latest;
        sum.add(&self.before);
        sum
    }
}
