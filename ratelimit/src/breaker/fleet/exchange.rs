//! The task that exchanges what nodes know through the register.

use std::sync::Arc;
use std::time::Duration;

use domain::Clock;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::counters::add;
use super::register::{Kept, Register, Written};
use super::standing::{Given, Note, Write};
use super::state::Reading;
use super::{FleetBreakers, FleetRules};
use crate::breaker::Change;
use crate::moment::Now;
use crate::pair::ProviderKey;
use crate::quota::AskError;
use crate::shards::spread;

/// A register has its own time limit; one that forgets it is not waited for longer than this.
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// Exchanges under way at a time: the register is others' too.
const UNDER_WAY: usize = 16;
/// Writes that another node's came before, in a row, after which it is left for the next time.
pub(super) const ROUNDS_MAX: u32 = 4;
/// How often it is looked which exchanges are due.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl FleetBreakers {
    /// Exchanges until `stop`; then gives back a lease that no call has taken, in four seconds at most. One such task per
    /// process, without which nothing opens and no probe goes out.
    pub async fn run(
        self: Arc<Self>,
        register: Arc<dyn Register>,
        clock: Arc<dyn Clock>,
        stop: impl Future<Output = ()>,
    ) {
        // One that ran before may have been dropped at its work.
        self.standings.each().for_each(|mut standings| {
            standings.values_mut().for_each(|standing| standing.is_under_way = false);
        });
        let mut under_way = FuturesUnordered::new();
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let board = self.keep_board(&*register, &*clock);
        tokio::pin!(stop, board);
        loop {
            while under_way.len() < UNDER_WAY
                && let Some(provider) = self.next_due(Now::of(&*clock))
            {
                under_way.push(self.exchange(provider, &*register, &*clock));
            }
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = &mut board => {}
                Some(()) = under_way.next(), if !under_way.is_empty() => {}
                () = self.wake.notified() => {}
                _ = looks.tick() => self.look(Now::of(&*clock)),
            }
        }
        // What is not done by then others find out by themselves.
        drop(timeout(ASK_LIMIT, async { while under_way.next().await.is_some() {} }).await);
        let mut last: FuturesUnordered<_> =
            self.let_go().into_iter().map(|provider| self.exchange(provider, &*register, &*clock)).collect();
        drop(timeout(ASK_LIMIT, async { while last.next().await.is_some() {} }).await);
    }

    /// Takes up providers that fail now, here or by what others say, and drops those that are in order.
    pub(super) fn look(&self, now: Now) {
        let mut kept = self.tallies.failing(self.settings.failing_percent(), now);
        kept.extend(self.board().listed(&self.settings, now.mono_ms));
        kept.sort_unstable();
        self.sweep(&kept, now);
        for provider in kept {
            self.with_new(provider, false, now, |_| ());
        }
    }

    /// A provider whose time has come; from here on it is under way.
    fn next_due(&self, now: Now) -> Option<ProviderKey> {
        self.standings.each().find_map(|mut standings| {
            let (provider, standing) = standings
                .iter_mut()
                .filter(|(_, standing)| !standing.is_under_way && standing.due_ms <= now.mono_ms)
                .min_by_key(|(_, standing)| standing.due_ms)?;
            standing.is_under_way = true;
            Some(ProviderKey::from_u64(*provider))
        })
    }

    fn let_go(&self) -> Vec<ProviderKey> {
        let mut held = Vec::new();
        for mut standings in self.standings.each() {
            let own = standings.iter_mut().filter_map(|(provider, standing)| standing.let_go().then_some(*provider));
            held.extend(own.map(ProviderKey::from_u64));
        }
        held
    }

    /// One exchange, to its end.
    pub(super) async fn exchange(&self, provider: ProviderKey, register: &dyn Register, clock: &dyn Clock) {
        let begun_ms = Now::of(clock).mono_ms;
        let interval_ms = u64::from(self.settings.interval_ms);
        let less_ms = spread(self.name() ^ begun_ms) % (interval_ms / 4 + 1);
        self.with(provider, |standing| {
            standing.asked_ms = begun_ms;
            standing.due_ms = begun_ms.saturating_add(interval_ms - less_ms);
        });
        match self.try_exchange(provider, register, clock).await {
            Ok(()) => add(&self.counters.exchanges),
            Err(_) => self.unreached(provider, begun_ms, Now::of(clock)),
        }
        self.with(provider, |standing| standing.is_under_way = false);
    }

    async fn try_exchange(
        &self,
        provider: ProviderKey,
        register: &dyn Register,
        clock: &dyn Clock,
    ) -> Result<(), AskError> {
        let rules = self.rules(register.is_shared());
        let mut asked_ms = Now::of(clock).mono_ms;
        let mut kept = within(register.read(provider)).await?;
        for _ in 0..ROUNDS_MAX {
            let now = Now::of(clock);
            let reading = Reading { asked_ms, answered_ms: now.mono_ms, keeper_ms: kept.now_ms };
            let Some(write) = self.merge(provider, &kept, reading, now, &rules) else { return Ok(()) };
            asked_ms = now.mono_ms;
            let ttl = Duration::from_millis(write.ttl_ms);
            match within(register.write(provider, write.expected, &write.bytes, ttl)).await? {
                Written::Done { version } => {
                    self.written(provider, write, version, Now::of(clock));
                    return Ok(());
                }
                Written::Newer(newer) => kept = newer,
            }
            add(&self.counters.conflicts);
        }
        // Many come at once: apart next time.
        let part_ms = u64::from(self.settings.interval_ms / 8);
        let soon_ms = asked_ms.saturating_add(part_ms + spread(self.name()) % (part_ms + 1));
        self.with(provider, |standing| standing.due_ms = standing.due_ms.min(soon_ms));
        Ok(())
    }

    fn merge(
        &self,
        provider: ProviderKey,
        kept: &Kept,
        reading: Reading,
        now: Now,
        rules: &FleetRules,
    ) -> Option<Write> {
        let reports = self.tallies.reports_of(provider, now);
        let given = Given { rules, reports: &reports, probe: self.name(), now };
        let (notes, write, is_suspect) = self.with(provider, |standing| {
            let (notes, write) = standing.merge(given, kept, reading);
            (notes, write, standing.is_suspect)
        })?;
        self.hear(provider, &notes);
        if is_suspect && !self.board().is_recent(provider, &self.settings, now.mono_ms) {
            self.wake_board.notify_one();
        }
        write
    }

    fn written(&self, provider: ProviderKey, write: Write, version: u64, now: Now) {
        let rules = &self.settings.rules;
        if let Some(notes) = self.with(provider, |standing| standing.written(rules, write, version, now.mono_ms)) {
            self.hear(provider, &notes);
        }
    }

    fn unreached(&self, provider: ProviderKey, begun_ms: u64, now: Now) {
        add(&self.counters.failures);
        let reports = self.tallies.reports_of(provider, now);
        // There is nobody to be heard.
        let rules = self.rules(false);
        let given = Given { rules: &rules, reports: &reports, probe: self.name(), now };
        let alone_ms = u64::from(self.settings.alone_ms);
        if let Some(notes) = self.with(provider, |standing| standing.unreached(given, begun_ms, alone_ms)) {
            self.hear(provider, &notes);
        }
    }

    fn rules(&self, is_shared: bool) -> FleetRules {
        let rules = self.settings.rules;
        FleetRules { hear_ms: if is_shared { rules.hear_ms } else { 0 }, ..rules }
    }

    fn hear(&self, provider: ProviderKey, notes: &[Note]) {
        let counters = &self.counters;
        for note in notes {
            match note {
                Note::Changed(Change::Opened { .. }) => add(&counters.opened),
                Note::Changed(Change::Closed) => add(&counters.closed),
                Note::Works => self.tallies.forget(provider),
                Note::Leased => add(&counters.leases),
                Note::Unreadable(_) => add(&counters.unreadable),
                Note::Forgotten => add(&counters.forgotten),
                Note::Alone => add(&counters.alone),
            }
        }
    }
}

pub(super) async fn within<T>(asked: impl Future<Output = Result<T, AskError>>) -> Result<T, AskError> {
    timeout(ASK_LIMIT, asked).await.unwrap_or(Err(AskError::Timeout))
}
