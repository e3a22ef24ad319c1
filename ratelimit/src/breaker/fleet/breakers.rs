//! The face that calls see.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::NodeTallies;
use super::board::Board;
use super::counters::{Counters, Snapshot, add};
use super::rules::is_nearly_broken;
use super::settings::{BadSettings, FleetSettings};
use super::standing::{Look, Standing};
use crate::breaker::{Faults, Outcome, Phase, Refused, Weight};
use crate::moment::Now;
use crate::pair::{PairKey, ProviderKey};
use crate::shards::{OwnKeys, Shards, spread};

/// A provider of which much fails at once is exchanged this long after the last time, not at each fault.
const URGENT_PAUSE_MS: u64 = 250;

/// One admission. It goes back with the call's outcome, once. Dropped without an outcome it does no harm: an ordinary
/// one is not counted, a probe's lease ends by itself.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the outcome of the call is reported with its ticket"]
pub struct FleetTicket(Admitted);

#[derive(Debug, PartialEq, Eq)]
enum Admitted {
    Ordinary { admitted_ms: u64 },
    Probe { probe: u64 },
}

impl FleetTicket {
    /// Whether the call is the fleet's probe: it should be one that is cheap and can be repeated, if there is a choice.
    pub fn is_probe(&self) -> bool {
        matches!(self.0, Admitted::Probe { .. })
    }
}

/// The breakers of all providers, as one node sees them. What the fleet's breaker guarantees is said in [`super`].
///
/// Every call is [`admit`](Self::admit), then [`report`](Self::report) with the ticket. Neither waits for anything:
/// what other nodes know comes by [`run`](Self::run), which has to be running. Providers of which nothing failed lately
/// on this node are not exchanged, and cost one failed look-up.
///
/// Moments are of one monotonic clock, which has to run while the machine sleeps
/// ([`BootClock`](crate::quota::holder::BootClock)): a probe's lease must not outlive a suspension that it was held in.
#[derive(Debug)]
pub struct FleetBreakers {
    pub(super) settings: FleetSettings,
    holder: u64,
    pub(super) tallies: NodeTallies,
    pub(super) standings: Shards<OwnKeys<u64, Standing>>,
    /// Standings in all shards.
    troubled: AtomicUsize,
    /// Probes that were given a name.
    named: AtomicU64,
    pub(super) counters: Counters,
    pub(super) wake: Notify,
    /// What other nodes want to hear of, as last read; and that there is something to put there.
    board: Mutex<Board>,
    pub(super) wake_board: Notify,
}

impl FleetBreakers {
    /// `holder` is this boot of this node, drawn at random: no other node or boot has it.
    pub fn new(settings: FleetSettings, holder: u64) -> Result<Self, BadSettings> {
        settings.check()?;
        Ok(Self {
            tallies: settings.tallies(holder),
            settings,
            holder,
            standings: Shards::new(),
            troubled: AtomicUsize::new(0),
            named: AtomicU64::new(0),
            counters: Counters::default(),
            wake: Notify::new(),
            board: Mutex::default(),
            wake_board: Notify::new(),
        })
    }

    /// May a call go out? By what this node knows; whoever would be the probe is refused while its lease is fetched, and
    /// the next one is it.
    pub fn admit(&self, provider: ProviderKey, now: Now) -> Result<FleetTicket, Refused> {
        let look = self.with(provider, |standing| {
            let look = standing.admit(&self.settings.rules, now.mono_ms);
            if matches!(look, Look::Wanted(_)) {
                hurry(standing, now.mono_ms);
            }
            look
        });
        let refused = match look.unwrap_or(Look::Ordinary) {
            Look::Ordinary => return Ok(FleetTicket(Admitted::Ordinary { admitted_ms: now.mono_ms })),
            Look::Probe(probe) => return Ok(FleetTicket(Admitted::Probe { probe })),
            Look::Refused(refused) => refused,
            Look::Wanted(refused) => {
                self.wake.notify_one();
                refused
            }
        };
        add(&self.counters.refused);
        Err(refused)
    }

    /// How a call ended that was admitted. Of `tenant` only whose it is matters; which faults count is the connector's
    /// choice.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is used up")]
    pub fn report(
        &self,
        provider: ProviderKey,
        tenant: PairKey,
        ticket: FleetTicket,
        outcome: Outcome,
        counted: Faults,
        now: Now,
    ) {
        let weight = outcome.weight(counted);
        match ticket.0 {
            Admitted::Probe { probe } => self.probed(provider, probe, weight, now),
            Admitted::Ordinary { admitted_ms } => {
                if weight != Weight::Nothing && self.hears(provider, admitted_ms) {
                    self.count(provider, tenant, weight, now);
                }
            }
        }
    }

    /// The phase that the provider is in, as far as this node knows. Open is said also of one that is past its open
    /// time: nobody probed yet.
    pub fn phase(&self, provider: ProviderKey) -> Phase {
        let standings = self.standings.lock(shard(provider));
        standings.get(&provider.as_u64()).map_or(Phase::Closed, Standing::phase)
    }

    /// Why a call would be refused, for people. Nothing is taken or wanted.
    pub fn refusal(&self, provider: ProviderKey, now: Now) -> Option<Refused> {
        let standings = self.standings.lock(shard(provider));
        let standing = standings.get(&provider.as_u64())?;
        standing.refusal(&self.settings.rules, now.mono_ms)
    }

    /// Providers in trouble that this node looks after.
    pub fn troubled(&self) -> usize {
        self.troubled.load(Ordering::Relaxed)
    }

    pub fn counters(&self) -> Snapshot {
        self.counters.snapshot()
    }

    fn hears(&self, provider: ProviderKey, admitted_ms: u64) -> bool {
        let standings = self.standings.lock(shard(provider));
        standings.get(&provider.as_u64()).is_none_or(|standing| standing.hears(admitted_ms))
    }

    fn count(&self, provider: ProviderKey, tenant: PairKey, weight: Weight, now: Now) {
        let Some(sum) = self.tallies.count(provider, tenant, weight, now) else { return };
        if is_nearly_broken(&self.settings.rules, &sum) {
            let is_sooner = self.with_new(provider, true, now, |standing| hurry(standing, now.mono_ms));
            if is_sooner == Some(true) {
                self.wake.notify_one();
            }
        }
    }

    fn probed(&self, provider: ProviderKey, probe: u64, weight: Weight, now: Now) {
        let mut standings = self.standings.lock(shard(provider));
        let Some(standing) = standings.get_mut(&provider.as_u64()) else { return };
        if standing.probed(probe, weight) {
            standing.due_ms = now.mono_ms;
            drop(standings);
            self.wake.notify_one();
        }
    }

    /// A probe's name: no other of this boot has it, and another's by one chance in 2^64. Never 0.
    pub(super) fn name(&self) -> u64 {
        spread(self.holder ^ spread(self.named.fetch_add(1, Ordering::Relaxed))).max(1)
    }

    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn with<R>(&self, provider: ProviderKey, f: impl FnOnce(&mut Standing) -> R) -> Option<R> {
        self.standings.lock(shard(provider)).get_mut(&provider.as_u64()).map(f)
    }

    /// With the provider's standing, which is made where there is none and room for it.
    pub(super) fn with_new<R>(
        &self,
        provider: ProviderKey,
        is_urgent: bool,
        now: Now,
        f: impl FnOnce(&mut Standing) -> R,
    ) -> Option<R> {
        if let Some(standing) = self.standings.lock(shard(provider)).get_mut(&provider.as_u64()) {
            return Some(f(standing));
        }
        let most = usize::try_from(self.settings.troubled_max).unwrap_or(usize::MAX);
        if self.troubled() >= most && !(is_urgent && self.make_room(now)) {
            add(&self.counters.untracked);
            return None;
        }
        let mut standings = self.standings.lock(shard(provider));
        let standing = standings.entry(provider.as_u64()).or_insert_with(|| {
            // Shards that come together may take one more each: a bound of memory, not of anything that is promised.
            self.troubled.fetch_add(1, Ordering::Relaxed);
            Standing::new(now.mono_ms)
        });
        Some(f(standing))
    }

    /// Drops a standing that has only a fault by chance behind it.
    fn make_room(&self, now: Now) -> bool {
        let is_idle = |standing: &Standing| standing.is_idle(&self.settings.rules, now.mono_ms);
        for mut standings in self.standings.each() {
            let idle = standings.iter().find(|(_, standing)| is_idle(standing)).map(|(provider, _)| *provider);
            if idle.is_some_and(|provider| standings.remove(&provider).is_some()) {
                self.troubled.fetch_sub(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// Forgets providers that are in order again; `kept` are not, in their order.
    pub(super) fn sweep(&self, kept: &[ProviderKey], now: Now) {
        for mut standings in self.standings.each() {
            let before = standings.len();
            standings.retain(|provider, standing| {
                !standing.is_idle(&self.settings.rules, now.mono_ms)
                    || kept.binary_search(&ProviderKey::from_u64(*provider)).is_ok()
            });
            self.troubled.fetch_sub(before - standings.len(), Ordering::Relaxed);
        }
    }
}

/// Has it exchanged soon; whether that is sooner than it would have been.
fn hurry(standing: &mut Standing, now_ms: u64) -> bool {
    let soon_ms = now_ms.max(standing.asked_ms.saturating_add(URGENT_PAUSE_MS));
    let is_sooner = soon_ms < standing.due_ms;
    standing.due_ms = standing.due_ms.min(soon_ms);
    is_sooner
}

fn shard(provider: ProviderKey) -> usize {
    Shards::<()>::of(spread(provider.as_u64()))
}
