//! What all nodes should say something of: the list of providers that some node suspects.
//!
//! A node whose calls succeed has no reason to report them, and without them one node with a broken network would speak
//! for all, and nobody else would hear that a breaker has opened. So who sees that the counts in a register nearly open a
//! breaker, or that it is not closed, puts the provider on a list, one for all in the same register; every node reads the
//! list once per interval, and exchanges what is on it as if it failed there, too. A breaker opens only after it has been
//! suspected for long enough that everybody has ([`hear_ms`](super::FleetRules::hear_ms)).
//!
//! ```text
//! version 1 | written 8 (ms) | listed 2 | (provider 8 | age 4 (ms))…        integers little-endian, times as in a state
//! ```
//!
//! A list that is lost, full or cannot be read costs the good counts of some, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::Clock;
use tokio::time::sleep;

use super::FleetBreakers;
use super::counters::add;
use super::exchange::{ROUNDS_MAX, within};
use super::register::{Register, Written};
use super::settings::FleetSettings;
use super::state::Reading;
use super::tally::take;
use crate::moment::Now;
use crate::pair::ProviderKey;
use crate::quota::AskError;

const VERSION: u8 = 1;
/// Most that are listed: as many as a node looks after in trouble, by its defaults.
const LISTED_MAX: usize = 256;

/// Providers by when they were listed, in the node's monotonic ms.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Board(BTreeMap<ProviderKey, u64>);

impl Board {
    pub(super) fn listed(&self, settings: &FleetSettings, now_ms: u64) -> impl Iterator<Item = ProviderKey> {
        let fresh_ms = u64::from(settings.rules.fresh_ms);
        self.0.iter().filter(move |(_, at_ms)| now_ms.saturating_sub(**at_ms) < fresh_ms).map(|(provider, _)| *provider)
    }

    /// Whether it needs not be listed again yet.
    pub(super) fn is_recent(&self, provider: ProviderKey, settings: &FleetSettings, now_ms: u64) -> bool {
        let recent_ms = u64::from(settings.rules.fresh_ms / 2);
        self.0.get(&provider).is_some_and(|at_ms| now_ms.saturating_sub(*at_ms) < recent_ms)
    }

    /// Lists them, as far as there is room; whether anything is new.
    fn list(&mut self, suspects: &[ProviderKey], settings: &FleetSettings, now_ms: u64) -> bool {
        let fresh_ms = u64::from(settings.rules.fresh_ms);
        self.0.retain(|_, at_ms| now_ms.saturating_sub(*at_ms) < fresh_ms);
        let mut is_new = false;
        for provider in suspects {
            let has_room = self.0.len() < LISTED_MAX || self.0.contains_key(provider);
            if has_room && !self.is_recent(*provider, settings, now_ms) {
                self.0.insert(*provider, now_ms);
                is_new = true;
            }
        }
        is_new
    }

    fn write(&self, reading: Reading, now_ms: u64) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(reading.keeper_ms_at(now_ms).to_le_bytes());
        bytes.extend(u16::try_from(self.0.len()).unwrap_or(u16::MAX).to_le_bytes());
        for (provider, at_ms) in &self.0 {
            bytes.extend(provider.as_u64().to_le_bytes());
            bytes.extend(u32::try_from(now_ms.saturating_sub(*at_ms)).unwrap_or(u32::MAX).to_le_bytes());
        }
        bytes
    }

    /// `None` for what is no list.
    fn read(mut bytes: &[u8], reading: Reading) -> Option<Self> {
        let rest = &mut bytes;
        if rest.is_empty() {
            return Some(Self::default());
        }
        let [VERSION] = take(rest)? else { return None };
        let passed_ms = reading.keeper_ms.saturating_sub(u64::from_le_bytes(take(rest)?));
        let count = usize::from(u16::from_le_bytes(take(rest)?));
        if count > LISTED_MAX || rest.len() != count * 12 {
            return None;
        }
        let mut listed = BTreeMap::new();
        for _ in 0..count {
            let provider = ProviderKey::from_u64(u64::from_le_bytes(take(rest)?));
            let age_ms = u64::from(u32::from_le_bytes(take(rest)?)).saturating_add(passed_ms);
            // Older than this machine counts: older than any that matters.
            if let Some(at_ms) = reading.answered_ms.checked_sub(age_ms) {
                listed.insert(provider, at_ms);
            }
        }
        Some(Self(listed))
    }
}

/// The list's place in a register. No connector's key is 0, but for one chance in 2^64.
fn place() -> ProviderKey {
    ProviderKey::from_u64(0)
}

impl FleetBreakers {
    /// Reads the list every interval, and adds to it at once where there is something to add. Never ends.
    pub(super) async fn keep_board(&self, register: &dyn Register, clock: &dyn Clock) {
        if !register.is_shared() {
            return std::future::pending().await;
        }
        loop {
            if self.exchange_board(register, clock).await.is_err() {
                add(&self.counters.failures);
            }
            self.look(Now::of(clock));
            self.wake.notify_one();
            let pause = Duration::from_millis(u64::from(self.settings.interval_ms));
            tokio::select! {
                () = self.wake_board.notified() => {}
                () = sleep(pause) => {}
            }
            // Whatever happens, no more often than this.
            sleep(pause / 16).await;
        }
    }

    pub(super) async fn exchange_board(&self, register: &dyn Register, clock: &dyn Clock) -> Result<(), AskError> {
        let mut asked_ms = Now::of(clock).mono_ms;
        let mut kept = within(register.read(place())).await?;
        for _ in 0..ROUNDS_MAX {
            let now_ms = Now::of(clock).mono_ms;
            let reading = Reading { asked_ms, answered_ms: now_ms, keeper_ms: kept.now_ms };
            let mut board = Board::read(&kept.bytes, reading).unwrap_or_else(|| {
                add(&self.counters.unreadable);
                Board::default()
            });
            let is_new = board.list(&self.suspects(), &self.settings, now_ms);
            if !is_new {
                *self.board() = board;
                return Ok(());
            }
            let ttl = Duration::from_millis(u64::from(self.settings.rules.fresh_ms));
            asked_ms = now_ms;
            match within(register.write(place(), kept.version, &board.write(reading, now_ms), ttl)).await? {
                Written::Done { .. } => {
                    *self.board() = board;
                    return Ok(());
                }
                Written::Newer(newer) => kept = newer,
            }
            add(&self.counters.conflicts);
        }
        Ok(())
    }

    fn suspects(&self) -> Vec<ProviderKey> {
        let mut suspects = Vec::new();
        for standings in self.standings.each() {
            let own = standings.iter().filter(|(_, standing)| standing.is_suspect).map(|(provider, _)| *provider);
            suspects.extend(own.map(ProviderKey::from_u64));
        }
        suspects
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW_MS: u64 = 9_000_000;

    fn key(key: u64) -> ProviderKey {
        ProviderKey::from_u64(key)
    }

    fn reading(keeper_ms: u64) -> Reading {
        Reading { asked_ms: NOW_MS, answered_ms: NOW_MS, keeper_ms }
    }

    fn listed(board: &Board, now_ms: u64) -> Vec<u64> {
        board.listed(&FleetSettings::default(), now_ms).map(ProviderKey::as_u64).collect()
    }

    #[test]
    fn what_is_suspected_is_listed_for_a_while_and_listed_again_in_time() {
        let settings = FleetSettings::default();
        let mut board = Board::default();
        assert!(board.list(&[key(5), key(3)], &settings, NOW_MS));
        assert!(!board.list(&[key(5)], &settings, NOW_MS + 14_999));
        assert!(board.list(&[key(5)], &settings, NOW_MS + 15_000));
        assert_eq!(listed(&board, NOW_MS + 29_999), [3, 5]);
        assert_eq!(listed(&board, NOW_MS + 30_000), [5]);
        assert!(!board.list(&[], &settings, NOW_MS + 30_000));
        assert_eq!(board.0.len(), 1);
    }

    #[test]
    fn a_list_is_bounded_and_no_clock_keeps_anything_on_it_for_longer() {
        let settings = FleetSettings::default();
        let mut board = Board::default();
        let keys: Vec<_> = (0..300).map(key).collect();
        assert!(board.list(&keys, &settings, NOW_MS));
        assert_eq!(board.0.len(), LISTED_MAX);
        let bytes = board.write(reading(1_000_000), NOW_MS + 4_000);
        let read = |keeper_ms| Board::read(&bytes, reading(keeper_ms)).unwrap().0[&key(7)];
        assert_eq!(read(1_004_000), NOW_MS - 4_000);
        assert_eq!(read(1_010_000), NOW_MS - 10_000);
        assert_eq!(read(0), NOW_MS - 4_000, "the keeper's clock went back");
        assert!(Board::read(&bytes, reading(u64::MAX)).unwrap().0.is_empty(), "and forward");
    }

    proptest! {
        #[test]
        fn a_list_comes_back_and_hostile_bytes_do_no_harm(
            entries in proptest::collection::btree_map(any::<u64>(), 0..29_000_u64, 0..40),
            junk in proptest::collection::vec(any::<u8>(), 0..200),
            cut in any::<prop::sample::Index>(),
        ) {
            let board = Board(entries.iter().map(|(of, age_ms)| (key(*of), NOW_MS - age_ms)).collect());
            let bytes = board.write(reading(77), NOW_MS);
            prop_assert_eq!(Board::read(&bytes, reading(77)), Some(board));
            let cut = cut.index(bytes.len());
            prop_assert_eq!(Board::read(&bytes[..cut], reading(77)).is_some(), cut == 0);
            for first in [None, Some(VERSION)] {
                let mut junk = junk.clone();
                if let (Some(first), Some(byte)) = (first, junk.first_mut()) {
                    *byte = first;
                }
                if let Some(board) = Board::read(&junk, reading(5)) {
                    prop_assert!(board.0.len() <= junk.len() / 12);
                }
            }
        }
    }
}
