//! Lists, newest first, page by page.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::iter::Peekable;
use std::str::FromStr;

use data_encoding::BASE32_NOPAD_NOCASE;
use domain::{EventId, TenantId};

use super::error::IndexError;
use super::kept::DeadLetters;
use super::key::{self, List};
use super::row::RunRow;
use super::store::{Pair, Period, Store};
use crate::failure::FailureClass;
use crate::ids::{AutomationId, RunId};
use crate::ledger::{Cause, RunStatus};

/// Runs of a page at most.
pub const PAGE_MAX: usize = 500;

/// Keys that are looked at for one page: a filter that hardly anything fits answers a short page and where to go on.
const LOOKED_AT_MAX: usize = 20_000;

/// Which runs of a tenant. Everything that is said has to fit; nothing said is all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFilter {
    pub automation: Option<AutomationId>,
    /// Any of these; empty: whatever it is.
    pub statuses: Vec<RunStatus>,
    pub failure: Option<FailureClass>,
    pub event: Option<EventId>,
    /// Runs of this replay.
    pub replay: Option<Box<str>>,
    pub cause: Option<CauseKind>,
    /// Admitted at or after.
    pub from_unix_ms: Option<u64>,
    /// Admitted before.
    pub before_unix_ms: Option<u64>,
    /// Only dead letters that nobody has put away; those beyond retention too.
    pub dead_letters: bool,
}

impl RunFilter {
    /// What has ended badly.
    pub const FAILED: [RunStatus; 3] = [RunStatus::Failed, RunStatus::TimedOut, RunStatus::EndedAmbiguous];
}

/// Why a run exists, without the particulars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseKind {
    Event,
    Replay,
    Manual,
}

impl CauseKind {
    pub fn of(cause: &Cause) -> Self {
        match cause {
            Cause::Event { .. } => Self::Event,
            Cause::Replay { .. } | Cause::Again { .. } => Self::Replay,
            Cause::Manual { .. } => Self::Manual,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Replay => "replay",
            Self::Manual => "manual",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Event, Self::Replay, Self::Manual].into_iter().find(|kind| kind.word() == word)
    }
}

/// A place in a list: behind one run. It stays good while runs come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// None: among those beyond retention.
    period: Option<Period>,
    time: u64,
    run: RunId,
}

/// Its form, and whether it is beyond retention.
const IN_PERIOD: u8 = 1;
const BEYOND: u8 = 2;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; 29];
        bytes[0] = if self.period.is_some() { IN_PERIOD } else { BEYOND };
        bytes[1..5].copy_from_slice(&self.period.unwrap_or_default().to_be_bytes());
        bytes[5..13].copy_from_slice(&self.time.to_be_bytes());
        bytes[13..].copy_from_slice(self.run.as_bytes());
        f.write_str(&BASE32_NOPAD_NOCASE.encode(&bytes).to_ascii_lowercase())
    }
}

impl FromStr for Cursor {
    type Err = IndexError;

    fn from_str(text: &str) -> Result<Self, IndexError> {
        let bytes = BASE32_NOPAD_NOCASE.decode(text.as_bytes()).map_err(|_| IndexError::Cursor)?;
        let bytes: [u8; 29] = bytes.try_into().map_err(|_| IndexError::Cursor)?;
        let (head, run) = bytes.split_last_chunk::<16>().ok_or(IndexError::Cursor)?;
        let (head, time) = head.split_last_chunk::<8>().ok_or(IndexError::Cursor)?;
        let (form, period) = head.split_last_chunk::<4>().ok_or(IndexError::Cursor)?;
        let period = match form {
            [IN_PERIOD] => Some(Period::from_be_bytes(*period)),
            [BEYOND] => None,
            _ => return Err(IndexError::Cursor),
        };
        Ok(Self { period, time: u64::from_be_bytes(*time), run: RunId::from_bytes(*run) })
    }
}

/// Some runs of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Newest first.
    pub runs: Vec<RunRow>,
    /// Where to go on; none: that was all. A page can be short and have one.
    pub next: Option<Cursor>,
}

/// Runs of a tenant that fit a filter, behind a place; at most `max` of them, and no more than [`PAGE_MAX`].
pub(super) fn list(
    store: &Store,
    kept: &DeadLetters,
    tenant: &TenantId,
    filter: &RunFilter,
    after: Option<Cursor>,
    max: usize,
) -> Result<Page, IndexError> {
    let max = max.clamp(1, PAGE_MAX);
    let lists = plan(filter);
    let mut page = Page { runs: Vec::new(), next: None };
    let mut looked_at = 0;
    let periods = store.periods().into_iter().map(|(period, pair)| (Some(period), pair));
    let beyond = filter.dead_letters.then(|| (None, Pair { rows: kept.rows.clone(), lists: kept.lists.clone() }));
    for (period, pair) in periods.chain(beyond) {
        if is_passed(period, after) || is_out_of_range(store, period, filter) {
            continue;
        }
        let within = after.filter(|after| after.period == period);
        for found in merged(&pair, tenant, &lists, filter, within) {
            let (time, run) = found?;
            looked_at += 1;
            let row = store.row_in(&pair, tenant, run)?;
            let is_listed =
                |row: &RunRow| lists.iter().any(|list| key::lists(row).contains(&list.key(tenant, time, run)));
            if let Some(row) = row.filter(|row| fits(row, filter) && (period.is_none() || is_listed(row)))
                && !(filter.dead_letters && kept.is_dismissed(tenant, run)?)
            {
                page.runs.push(row);
            }
            if page.runs.len() >= max || looked_at >= LOOKED_AT_MAX {
                page.next = Some(Cursor { period, time, run });
                return Ok(page);
            }
        }
    }
    Ok(page)
}

/// Names of a tenant's replays, at most `max` of them: those of the newest periods first. A look for each, however many runs
/// it has.
pub(super) fn replays(store: &Store, tenant: &TenantId, max: usize) -> Result<Vec<Box<str>>, IndexError> {
    let prefix = List::Replays.prefix(tenant);
    let damaged = || IndexError::Damaged("a key of a replay's list".into());
    let mut names: Vec<Box<str>> = Vec::new();
    for (_, pair) in store.periods() {
        let mut from = prefix.clone();
        while let Some(guard) = pair.lists.range(from..).next() {
            let at = guard.key()?;
            if !at.starts_with(&prefix) {
                break;
            }
            let hash = at.get(prefix.len()..prefix.len() + 16).ok_or_else(damaged)?;
            let (_, run) = key::read_tail(&at).ok_or_else(damaged)?;
            let row = store.row_in(&pair, tenant, run)?;
            if let Some(name) = row.as_ref().and_then(RunRow::replay)
                && !names.iter().any(|known| **known == *name)
            {
                names.push(name.into());
                if names.len() >= max {
                    return Ok(names);
                }
            }
            // Behind all of its runs.
            from = [&prefix[..], hash, &[u8::MAX; 25]].concat();
        }
    }
    Ok(names)
}

/// How many runs are in each state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    pub by_status: BTreeMap<RunStatus, u64>,
    /// There are more than were counted.
    pub is_partial: bool,
}

/// Runs that one tally goes through: as many as one replay has.
const TALLIED_MAX: u64 = 100_000;

/// Pages that it looks at for them, where the filter fits hardly anything.
const PAGES_MAX: usize = 1_000;

pub(super) fn tally(
    store: &Store,
    kept: &DeadLetters,
    tenant: &TenantId,
    filter: &RunFilter,
) -> Result<Tally, IndexError> {
    let (mut tally, mut counted, mut after) = (Tally::default(), 0, None);
    for _ in 0..PAGES_MAX {
        let page = list(store, kept, tenant, filter, after, PAGE_MAX)?;
        for row in &page.runs {
            *tally.by_status.entry(row.status).or_default() += 1;
            counted += 1;
        }
        after = page.next;
        if after.is_none() {
            return Ok(tally);
        }
        if counted >= TALLIED_MAX {
            break;
        }
    }
    tally.is_partial = true;
    Ok(tally)
}

/// The lists that together have every run that fits, and few others.
fn plan(filter: &RunFilter) -> Vec<List> {
    let RunFilter { automation, statuses, failure, event, replay, dead_letters, .. } = filter;
    if let Some(event) = event {
        return vec![List::Event(*event)];
    }
    if *dead_letters {
        return vec![List::DeadLetters];
    }
    if let Some(replay) = replay {
        return vec![List::Replay(key::replay(replay))];
    }
    if let Some(class) = failure {
        return vec![List::Failure(*class)];
    }
    if !statuses.is_empty() && !statuses.contains(&RunStatus::Succeeded) {
        let mut statuses = statuses.clone();
        statuses.sort_unstable();
        statuses.dedup();
        let of =
            |status| automation.map_or(List::Status(status), |automation| List::AutomationStatus(automation, status));
        return statuses.into_iter().map(of).collect();
    }
    vec![automation.map_or(List::All, List::Automation)]
}

fn fits(row: &RunRow, filter: &RunFilter) -> bool {
    let RunFilter { automation, statuses, failure, event, replay, cause, from_unix_ms, before_unix_ms, dead_letters } =
        filter;
    automation.is_none_or(|automation| row.automation == automation)
        && (statuses.is_empty() || statuses.contains(&row.status))
        && failure.is_none_or(|class| row.failure == Some(class))
        && event.is_none_or(|event| row.event() == Some(event))
        && replay.as_ref().is_none_or(|name| row.replay() == Some(name))
        && cause.is_none_or(|kind| CauseKind::of(&row.cause) == kind)
        && from_unix_ms.is_none_or(|from| row.admitted_unix_ms >= from)
        && before_unix_ms.is_none_or(|before| row.admitted_unix_ms < before)
        && (!dead_letters || row.is_dead_letter())
}

/// All of the period comes before the place.
fn is_passed(period: Option<Period>, after: Option<Cursor>) -> bool {
    after.is_some_and(|after| match (period, after.period) {
        (Some(period), Some(place)) => period > place,
        (Some(_), None) => true,
        (None, _) => false,
    })
}

fn is_out_of_range(store: &Store, period: Option<Period>, filter: &RunFilter) -> bool {
    // Only when there are too many of them is a run in a period that is not of its time; then all are looked at.
    let Some(period) = period.filter(|_| !store.has_strays()) else { return false };
    filter.from_unix_ms.is_some_and(|from| store.period_of(from) > period)
        || filter.before_unix_ms.is_some_and(|before| store.period_of(before) < period)
}

type Found = Result<(u64, RunId), IndexError>;

/// Keys of several lists of a period as one list, from the latest time to the earliest.
fn merged(
    pair: &Pair,
    tenant: &TenantId,
    lists: &[List],
    filter: &RunFilter,
    after: Option<Cursor>,
) -> impl Iterator<Item = Found> + use<> {
    let mut sources: Vec<Peekable<_>> = lists
        .iter()
        .map(|list| {
            let prefix = list.prefix(tenant);
            let mut from = prefix.clone();
            from.extend_from_slice(&filter.from_unix_ms.unwrap_or(0).to_be_bytes());
            let mut to = prefix;
            // Exclusive: all runs of the last millisecond are before 17 bytes of ones.
            match (after, filter.before_unix_ms) {
                (Some(after), before) if before.is_none_or(|before| after.time < before) => {
                    to.extend_from_slice(&after.time.to_be_bytes());
                    to.extend_from_slice(after.run.as_bytes());
                }
                (_, Some(before)) => to.extend_from_slice(&before.to_be_bytes()),
                (_, None) => to.extend_from_slice(&[u8::MAX; 25]),
            }
            let from = from.min(to.clone());
            pair.lists.range(from..to).rev().map(read).peekable()
        })
        .collect();
    std::iter::from_fn(move || {
        // A fault is told first: it sorts before all.
        let latest = sources.iter_mut().enumerate().filter_map(|(at, source)| {
            let order = source.peek()?.as_ref().ok().map(|found| Reverse(*found));
            Some((order, at))
        });
        let (_, at) = latest.min()?;
        sources[at].next()
    })
}

fn read(guard: fjall::Guard) -> Found {
    key::read_tail(&guard.key()?).ok_or_else(|| IndexError::Damaged("a list's key is too short".into()))
}
