//! The repair inbox: what waits for somebody, put together by why and where.

use std::collections::BTreeMap;

use domain::{ConnectionId, TenantId};

use super::error::IndexError;
use super::key::{self, Group, List, QUARANTINED};
use super::store::Store;
use super::word::Word as _;
use crate::ids::{AutomationId, RunId, StepId};
use crate::ledger::ParkReason;

/// Groups of an answer. A tenant with more of them has one cause for them all.
const GROUPS_MAX: usize = 1_000;

/// Keys that are counted for one answer: a second's work.
const COUNTED_MAX: usize = 1_000_000;

/// Runs that are named for each group.
const OLDEST_MAX: usize = 5;

/// Runs that wait for the same reason at the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairGroup {
    pub why: RepairWhy,
    pub automation: AutomationId,
    /// None where none of their steps had made a call yet: the automation says which one it is.
    pub connection: Option<ConnectionId>,
    pub step: Option<StepId>,
    pub count: u64,
    /// Since when the one that has waited longest does.
    pub oldest_unix_ms: u64,
    pub newest_unix_ms: u64,
    /// Those that have waited longest.
    pub oldest: Vec<RunId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairWhy {
    Parked(ParkReason),
    Quarantined,
}

impl RepairWhy {
    pub fn word(self) -> &'static str {
        match self {
            Self::Parked(reason) => reason.word(),
            Self::Quarantined => "quarantined",
        }
    }
}

/// A tenant's groups, those that have waited longest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairInbox {
    pub groups: Vec<RepairGroup>,
    /// There are more than were counted.
    pub is_partial: bool,
}

pub(super) fn inbox(store: &Store, tenant: &TenantId) -> Result<RepairInbox, IndexError> {
    let prefix = List::Repairs.prefix(tenant);
    let damaged = || IndexError::Damaged("a key of the repair inbox".into());
    let mut groups: BTreeMap<Group, RepairGroup> = BTreeMap::new();
    let mut counted = 0;
    let mut is_partial = false;
    // Oldest first, so that what is cut off is what is young.
    for (_, pair) in store.periods().into_iter().rev() {
        for guard in pair.lists.prefix(&prefix) {
            if counted >= COUNTED_MAX {
                is_partial = true;
                break;
            }
            counted += 1;
            let at = guard.key()?;
            let of = at.get(prefix.len()..).ok_or_else(damaged)?;
            let (reason, automation, connection, step, length) = Group::read(of).ok_or_else(damaged)?;
            let (since, run) = key::read_tail(of.get(length..).ok_or_else(damaged)?).ok_or_else(damaged)?;
            let group = Group(of[..length].into());
            if !groups.contains_key(&group) && groups.len() >= GROUPS_MAX {
                is_partial = true;
                continue;
            }
            let group = groups.entry(group).or_insert_with(|| RepairGroup {
                why: ParkReason::from_number(reason)
                    .filter(|_| reason != QUARANTINED)
                    .map_or(RepairWhy::Quarantined, RepairWhy::Parked),
                automation,
                connection: ConnectionId::parse(connection).ok(),
                step: StepId::parse(step),
                count: 0,
                oldest_unix_ms: u64::MAX,
                newest_unix_ms: 0,
                oldest: Vec::new(),
            });
            group.take(since, run);
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| group.oldest_unix_ms);
    Ok(RepairInbox { groups, is_partial })
}

impl RepairGroup {
    /// In each period they come in the order of their parks.
    fn take(&mut self, since: u64, run: RunId) {
        self.count += 1;
        self.oldest_unix_ms = self.oldest_unix_ms.min(since);
        self.newest_unix_ms = self.newest_unix_ms.max(since);
        if self.oldest.len() < OLDEST_MAX {
            self.oldest.push(run);
        }
    }
}
