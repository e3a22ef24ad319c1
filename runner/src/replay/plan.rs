//! Counting what a replay would do.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use domain::event_id::{read_base32, write_base32};
use domain::{EventId, TenantId};
use eventlog::{EventLog, EventReader, ReadError};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::effects::may_have_had_effects;
use super::select::{self, Found, Item, Selection, Target};
use super::{History, HistoryError, PastRun, Why};
use crate::admission::{Trigger, Triggers, TriggersFault};
use crate::automation::{DefinitionStore, StoreError};
use crate::ids::RunId;
use crate::ledger::LedgerStore;

/// Automations of a tenant that one replay may be for.
const TARGETS_MAX: usize = 1000;

/// Events that are gone through at a time.
const BATCH: usize = 256;

/// Look-ups of history that are under way at a time.
const LOOKUPS: usize = 32;

/// What a replay would do, counted. Whoever executes it gives it back as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// With its end not behind the moment of planning.
    pub selection: Selection,
    /// The versions that runs would be of.
    pub targets: Vec<Target>,
    pub events: u64,
    pub runs: u64,
    /// Of so many of them an earlier run of the same automation and event may have had an effect.
    pub may_duplicate: u64,
    /// Pairs of an event and an automation whose condition fails: they are not among the runs.
    pub conditions_failed: u64,
    pub digest: PlanDigest,
}

/// Names a plan's runs, `plan_…`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PlanDigest([u8; 16]);

/// Why a replay is not done as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the range of times is empty")]
    EmptyRange,
    #[error("more than {max} events or runs: take a shorter range")]
    TooMany { max: u64 },
    #[error("there is no such automation, or it is deleted or disabled")]
    NoAutomation,
    #[error("the id is not 1 to 64 letters, digits, '-' and '_'")]
    Id,
    /// Events, definitions or versions are others by now.
    #[error("what would be replayed is not what was planned any more: plan again")]
    Changed,
    /// More than the caller has said yes to.
    #[error("{may_duplicate} runs may do again what was done already, and {accepted} were accepted")]
    Duplicates { may_duplicate: u64, accepted: u64 },
    #[error("as many replays are under way as may be: wait for one of them")]
    Busy,
}

/// Why there is no plan, or no replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Log(#[from] ReadError),
    #[error(transparent)]
    Definitions(#[from] TriggersFault),
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error(transparent)]
    Ledger(#[from] crate::ledger::ReadError),
    #[error("going through the log crashed")]
    Crashed,
}

impl From<StoreError> for ReplayError {
    fn from(fault: StoreError) -> Self {
        Self::Definitions(fault.into())
    }
}

/// What plans are made of.
#[derive(Debug, Clone)]
pub(super) struct Planner {
    pub(super) log: Arc<dyn EventLog>,
    pub(super) ledger: Arc<dyn LedgerStore>,
    pub(super) definitions: Arc<dyn DefinitionStore>,
    pub(super) triggers: Arc<Triggers>,
    pub(super) history: Arc<dyn History>,
    /// Events that are looked at, and runs that would be.
    pub(super) max: u64,
}

/// A plan with what it is about.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) plan: Plan,
    pub(super) items: Vec<Item>,
    pub(super) triggers: Vec<Arc<Trigger>>,
}

impl Planner {
    /// The versions that a selection is for, now.
    pub(super) async fn targets(&self, selection: &Selection) -> Result<Vec<Target>, ReplayError> {
        let tenant = &selection.tenant;
        if let Some(automation) = selection.automation {
            let stored = self.definitions.get(tenant, automation, None).await?;
            let stored = stored.filter(|stored| stored.tenant == *tenant && stored.is_enabled && !stored.is_deleted);
            let version = stored.ok_or(Refused::NoAutomation)?.version;
            return Ok(vec![Target { automation, version }]);
        }
        if let Some(endpoint) = &selection.endpoint {
            let mut found = self.definitions.triggered_by(tenant, endpoint).await?;
            found.sort_unstable();
            return Ok(found.into_iter().map(|(automation, version)| Target { automation, version }).collect());
        }
        let (mut targets, mut after) = (Vec::new(), None);
        loop {
            let page = self.definitions.list(tenant, after, BATCH).await?;
            let live = page.iter().filter(|listed| listed.is_enabled && !listed.is_deleted);
            targets.extend(live.map(|listed| Target { automation: listed.id, version: listed.version }));
            if targets.len() > TARGETS_MAX {
                return Err(Refused::TooMany { max: TARGETS_MAX as u64 }.into());
            }
            after = page.last().map(|last| last.id);
            if page.len() < BATCH {
                return Ok(targets);
            }
        }
    }

    /// Makes the plan for these versions. What the replay of this id has begun already counts for nothing.
    pub(super) async fn make(
        &self,
        selection: Selection,
        targets: Vec<Target>,
        replay: Option<&str>,
    ) -> Result<Made, ReplayError> {
        if selection.from_unix_ms >= selection.until_unix_ms {
            return Err(Refused::EmptyRange.into());
        }
        // They come from whoever asks, and each is looked at for each event.
        if targets.len() > TARGETS_MAX {
            return Err(Refused::TooMany { max: TARGETS_MAX as u64 }.into());
        }
        let mut triggers = Vec::with_capacity(targets.len());
        for target in &targets {
            let found = self.triggers.trigger(&selection.tenant, target.automation, target.version).await?;
            triggers.push(Arc::new(found.ok_or(Refused::NoAutomation)?));
        }
        let mut plan = Plan {
            selection,
            targets,
            events: 0,
            runs: 0,
            may_duplicate: 0,
            conditions_failed: 0,
            digest: PlanDigest([0; 16]),
        };
        let mut items = Vec::new();
        let (mut reader, mut looked_at) = (None, 0);
        loop {
            let (returned, found) = self.read(reader, &plan.selection, &triggers).await?;
            reader = Some(returned);
            looked_at += BATCH as u64;
            let Found { items: mut some, failed, is_end, .. } = found;
            plan.may_duplicate += self.sift(&plan, &mut some, replay).await?;
            plan.conditions_failed += failed;
            plan.runs += some.len() as u64;
            items.extend(some);
            if plan.runs > self.max || (looked_at > self.max && !is_end) {
                return Err(Refused::TooMany { max: self.max }.into());
            }
            if is_end {
                break;
            }
        }
        plan.events = items.chunk_by(|one, other| one.event == other.event).count() as u64;
        plan.digest = PlanDigest::of(&plan, &items);
        Ok(Made { plan, items, triggers })
    }

    /// Goes on through the log, on a thread that may block.
    async fn read(
        &self,
        reader: Option<Box<dyn EventReader>>,
        selection: &Selection,
        triggers: &[Arc<Trigger>],
    ) -> Result<(Box<dyn EventReader>, Found), ReplayError> {
        let (log, selection, triggers) = (Arc::clone(&self.log), selection.clone(), triggers.to_vec());
        let read = tokio::task::spawn_blocking(move || {
            let mut reader = reader.map_or_else(|| select::reader(&*log, &selection), Ok)?;
            let found = select::next(&mut *reader, &triggers, BATCH)?;
            Ok((reader, found))
        });
        read.await.unwrap_or(Err(ReplayError::Crashed))
    }

    /// Leaves those that the plan is about, and says of how many an earlier run may have had an effect.
    async fn sift(&self, plan: &Plan, items: &mut Vec<Item>, replay: Option<&str>) -> Result<u64, ReplayError> {
        let tenant = &plan.selection.tenant;
        let looked_up = stream::iter(std::mem::take(items))
            .map(|item| async move {
                let target = plan.targets[item.target as usize];
                let own = replay.map(|replay| run_of(tenant, target, replay, item.event));
                let past = self.history.runs_of(tenant, item.event).await?;
                if let Some(other) = past.iter().find(|run| run.tenant != *tenant) {
                    tracing::error!(%tenant, run = %other.run, "the history gave a run of another tenant");
                    return Err(HistoryError("it gave a run of another tenant".into()).into());
                }
                let of_it = |run: &&PastRun| run.automation == target.automation && Some(run.run) != own;
                let past: Vec<&PastRun> = past.iter().filter(of_it).collect();
                if !plan.selection.why.takes(&past) {
                    return Ok(None);
                }
                for run in past {
                    if may_have_had_effects(&self.ledger.read(tenant, run.run).await?) {
                        return Ok(Some((item, true)));
                    }
                }
                Ok::<_, ReplayError>(Some((item, false)))
            })
            .buffered(LOOKUPS);
        let kept: Vec<(Item, bool)> = looked_up.try_filter_map(|kept| async { Ok(kept) }).try_collect().await?;
        let duplicates = kept.iter().filter(|(_, may_duplicate)| *may_duplicate).count() as u64;
        items.extend(kept.into_iter().map(|(item, _)| item));
        Ok(duplicates)
    }
}

/// The run of an event in a replay: always the same one.
pub(super) fn run_of(tenant: &TenantId, target: Target, replay: &str, event: EventId) -> RunId {
    let mut nonce = Vec::with_capacity(replay.len() + 1 + 16);
    nonce.extend_from_slice(replay.as_bytes());
    // No id has this byte, and an event's are always sixteen.
    nonce.push(0);
    nonce.extend_from_slice(event.as_bytes());
    RunId::of_request(tenant, target.automation, target.version, &nonce)
}

impl PlanDigest {
    /// The name of the replay that carries the plan out where nobody gives it another: so it is carried out once.
    pub fn replay(&self) -> Box<str> {
        let plan = self.to_string();
        format!("rep_{}", plan.trim_start_matches(PREFIX)).into()
    }

    /// Of what is asked and of every run; in whatever order the log gave them, which may differ from one reading to the
    /// next where it has several lanes.
    fn of(plan: &Plan, items: &[Item]) -> Self {
        let mut sum = 0_u128;
        for item in items {
            let mut hasher = blake3::Hasher::new_derive_key("tidegate 2026 run of a replay plan");
            hasher.update(item.event.as_bytes());
            hasher.update(&item.target.to_be_bytes());
            let mut one = [0; 16];
            hasher.finalize_xof().fill(&mut one);
            sum = sum.wrapping_add(u128::from_be_bytes(one));
        }
        let mut hasher = blake3::Hasher::new_derive_key("tidegate 2026 replay plan");
        let Selection { tenant, automation, endpoint, from_unix_ms, until_unix_ms, why } = &plan.selection;
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        part(tenant.as_bytes());
        part(automation.as_ref().map_or(&[], |id| id.as_bytes()));
        part(endpoint.as_ref().map_or(&[], |id| id.as_bytes()));
        part(&from_unix_ms.to_be_bytes());
        part(&until_unix_ms.to_be_bytes());
        let (kind, class) = match why {
            Why::All => (0, 0),
            Why::NeverBegan => (1, 0),
            Why::NotSucceeded => (2, 0),
            Why::FailedWith(class) => (3, class.number()),
        };
        part(&[kind, class]);
        for target in &plan.targets {
            part(target.automation.as_bytes());
            part(&target.version.get().to_be_bytes());
        }
        part(&plan.runs.to_be_bytes());
        part(&sum.to_be_bytes());
        let mut digest = [0; 16];
        hasher.finalize_xof().fill(&mut digest);
        Self(digest)
    }
}

const PREFIX: &str = "plan_";

impl fmt::Display for PlanDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        write_base32(&self.0, f)
    }
}

impl fmt::Debug for PlanDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that names no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a plan's digest: plan_ and 26 characters of 0-9 a-z without i, l, o, u")]
pub struct ParseDigestError;

impl FromStr for PlanDigest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_prefix(PREFIX).and_then(read_base32).map(Self).ok_or(ParseDigestError)
    }
}

impl Serialize for PlanDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PlanDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
