//! What one node has to report, by provider.

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
    per_shard: usize,
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
        let shards = Shards::<()>::COUNT;
        let per_shard = usize::try_from(providers_max).unwrap_or(usize::MAX).div_ceil(shards).max(1);
        Self { holder, window_ms: u64::from(window_ms.max(1)), per_shard, providers: Shards::new() }
    }

    /// Counts an outcome of a tenant's call.
    pub fn count(&self, provider: ProviderKey, key: PairKey, weight: Weight, now: Now) {
        if weight == Weight::Nothing {
            return;
        }
        let mut providers = self.providers.lock(Shards::<()>::of(spread(provider.as_u64())));
        if providers.len() >= self.per_shard && !providers.contains_key(&provider.as_u64()) {
            return;
        }
        let windows = providers.entry(provider.as_u64()).or_default();
        windows.roll(now.mono_ms / self.window_ms);
        windows.latest.count(key, weight);
    }

    /// The reports to send: of the window in progress, and once more of the one before, whose end no report had yet.
    /// Sending them twice or losing one does no harm.
    pub fn reports(&self, now: Now, mut send: impl FnMut(Report)) {
        let window = now.mono_ms / self.window_ms;
        for mut providers in self.providers.each() {
            providers.retain(|provider, windows| {
                windows.roll(window);
                let provider = ProviderKey::from_u64(*provider);
                let mut report = |window, tally: Tally| {
                    if tally != Tally::default() {
                        send(Report { provider, holder: self.holder, window, tally });
                    }
                };
                report(windows.window.saturating_sub(1), windows.before);
                report(windows.window, windows.latest);
                windows.before != Tally::default() || windows.latest != Tally::default()
            });
        }
    }

    /// Providers that are counted now.
    pub fn tracked(&self) -> usize {
        self.providers.each().map(|providers| providers.len()).sum()
    }
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
}
