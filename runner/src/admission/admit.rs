//! One event: which runs it begins, and their admission to the ledger.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::{Clock, EventId, TenantId};
use eventlog::Class;

use super::backlog::{Spot, Taken};
use super::letters::Letters;
use super::triggers::{Trigger, Triggers, TriggersFault, Verdict};
use crate::ids::RunId;
use crate::ledger::{Admitted, AppendError, Body, Cause, Commit, LedgerStore, QueueClass, ReadError, Writer};
use crate::schedule::Queue;

/// What events came to. Each is a number of automations, but for the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Begun {
    /// Events that no automation is there for.
    pub events_without: u64,
    pub runs: u64,
    /// They were admitted before.
    pub already: u64,
    /// `when` was false.
    pub not: u64,
    /// The automation is younger than the event.
    pub older: u64,
    /// `when` failed.
    pub when_failed: u64,
    /// `when` asks for an event that is no longer kept.
    pub gone: u64,
    /// The ledger will never take it: a fault of ours.
    pub refused: u64,
}

impl Begun {
    pub(super) fn add(&mut self, other: Self) {
        self.events_without += other.events_without;
        self.runs += other.runs;
        self.already += other.already;
        self.not += other.not;
        self.older += other.older;
        self.when_failed += other.when_failed;
        self.gone += other.gone;
        self.refused += other.refused;
    }
}

/// Why an event is kept for later.
#[derive(Debug, thiserror::Error)]
pub(super) enum Later {
    #[error(transparent)]
    Triggers(#[from] TriggersFault),
    #[error(transparent)]
    Append(AppendError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("admission itself failed")]
    Crashed,
}

/// Admits events.
#[derive(Debug)]
pub(super) struct Admitter {
    pub(super) triggers: Arc<Triggers>,
    pub(super) ledger: Arc<dyn LedgerStore>,
    pub(super) queue: Arc<dyn Queue>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) letters: Letters,
    pub(super) told: Mutex<Told>,
}

/// What one admission came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Append {
    New,
    Already,
    Refused,
}

impl Admitter {
    /// Admits all runs of an event. Where it fails midway it is asked again as a whole, which admits none twice.
    pub(super) async fn admit(&self, taken: &Taken) -> Result<Begun, Later> {
        let Taken { tenant, spot, .. } = taken;
        // It was set aside, and is read once more since the place behind it was not committed.
        if self.letters.has(spot.event) {
            return Ok(Begun::default());
        }
        self.admit_spot(tenant, spot).await
    }

    pub(super) async fn admit_spot(&self, tenant: &TenantId, spot: &Spot) -> Result<Begun, Later> {
        let triggers = self.triggers.of_endpoint(tenant, &spot.endpoint).await?;
        let mut begun = Begun { events_without: u64::from(triggers.is_empty()), ..Begun::default() };
        for trigger in &*triggers {
            match self.triggers.judge(tenant, trigger, spot.event).await? {
                Verdict::Begins => match self.begin(tenant, spot, trigger).await? {
                    Append::New => begun.runs += 1,
                    Append::Already => begun.already += 1,
                    Append::Refused => begun.refused += 1,
                },
                Verdict::Not => begun.not += 1,
                Verdict::Older => {
                    begun.older += 1;
                    self.tell_older(tenant, spot.event, trigger);
                }
                Verdict::Failed(why) => {
                    begun.when_failed += 1;
                    self.tell_failed(tenant, spot.event, trigger, &why);
                }
                Verdict::Gone => {
                    begun.gone += 1;
                    let automation = trigger.automation.id;
                    tracing::error!(%tenant, event = %spot.event, %automation, "an event is gone before its condition was evaluated; it begins no run");
                }
            }
        }
        Ok(begun)
    }

    async fn begin(&self, tenant: &TenantId, spot: &Spot, trigger: &Trigger) -> Result<Append, Later> {
        let automation = &trigger.automation;
        for version in self.triggers.earlier_versions(tenant, trigger, spot.event.received_unix_ms()).await? {
            let before = RunId::of_event(tenant, automation.id, version, spot.event);
            if !self.ledger.read(tenant, before).await?.is_empty() {
                return Ok(Append::Already);
            }
        }
        let run = RunId::of_event(tenant, automation.id, automation.version, spot.event);
        let class = match spot.class {
            Class::Normal => automation.class,
            Class::Bulk => QueueClass::Bulk,
        };
        let cause = Cause::Event { event: spot.event, endpoint: spot.endpoint.clone() };
        let new = NewRun { tenant, run, trigger, cause, class };
        append(&*self.ledger, &*self.queue, &*self.clock, new).await.map_err(Later::Append)
    }

    /// An author's text is in it: escaped, and cut. A burst of such events is told ten times a second and no more.
    fn tell_failed(&self, tenant: &TenantId, event: EventId, trigger: &Trigger, why: &str) {
        let Some(untold) = self.may_tell(|told| &mut told.failed) else { return };
        let why = domain::text::Untrusted::new(why.as_bytes());
        let (automation, version) = (trigger.automation.id, trigger.automation.version);
        tracing::warn!(
            %tenant, %event, %automation, version, %why, untold,
            "the condition of a trigger failed; the event begins no run of it"
        );
    }

    /// The log's history is read once, when the runner is new, and told as such; later on it is news.
    fn tell_older(&self, tenant: &TenantId, event: EventId, trigger: &Trigger) {
        let Some(untold) = self.may_tell(|told| &mut told.older) else { return };
        let (automation, made_unix_ms) = (trigger.automation.id, trigger.made_unix_ms);
        let by_seconds = made_unix_ms.saturating_sub(event.received_unix_ms()) / 1_000;
        tracing::info!(
            %tenant, %event, %automation, by_seconds, untold,
            "an event is older than its automation, by the clock, and begins no run of it"
        );
    }

    /// Ten times a second and no more; with how many were not told meanwhile.
    fn may_tell(&self, of: impl FnOnce(&mut Told) -> &mut Paced) -> Option<u64> {
        const APART: Duration = Duration::from_millis(100);
        let now = self.clock.monotonic();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = of(&mut told);
        if told.last.is_some_and(|last| now < last + APART) {
            told.untold += 1;
            return None;
        }
        told.last = Some(now);
        Some(std::mem::take(&mut told.untold))
    }
}

/// What was told last, by what it is about.
#[derive(Debug, Default)]
pub(super) struct Told {
    failed: Paced,
    older: Paced,
}

/// When something was told, and how many were not since.
#[derive(Debug, Default)]
struct Paced {
    last: Option<Duration>,
    untold: u64,
}

/// A run to be admitted.
#[derive(Debug)]
pub(crate) struct NewRun<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) run: RunId,
    pub(crate) trigger: &'a Trigger,
    pub(crate) cause: Cause,
    pub(crate) class: QueueClass,
}

/// Admits it and hands it in. An error may be asked again: nothing is admitted twice.
pub(crate) async fn append(
    ledger: &dyn LedgerStore,
    queue: &dyn Queue,
    clock: &dyn Clock,
    new: NewRun<'_>,
) -> Result<Append, AppendError> {
    let NewRun { tenant, run, trigger, cause, class } = new;
    let now_unix_ms = clock.unix_ms();
    let automation = &trigger.automation;
    let deadline_ms = u64::try_from(automation.deadline.as_millis()).unwrap_or(u64::MAX);
    let commit = Commit {
        tenant: tenant.clone(),
        run,
        expected: 0,
        writer: Writer::Anyone,
        at_unix_ms: now_unix_ms,
        bodies: vec![Body::Admitted(Admitted {
            automation: automation.id,
            version: automation.version,
            cause,
            class,
            deadline_unix_ms: now_unix_ms.saturating_add(deadline_ms),
            input: None,
        })],
    };
    match ledger.append(commit).await {
        Ok(_) => {
            queue.enqueue(tenant.clone(), run, class);
            Ok(Append::New)
        }
        // Nobody has begun with it: whoever admitted it may not have come to hand it in.
        Err(AppendError::Conflict { seq: 1 }) => {
            queue.enqueue(tenant.clone(), run, class);
            Ok(Append::Already)
        }
        Err(AppendError::Conflict { .. } | AppendError::Fenced { .. }) => Ok(Append::Already),
        Err(fault @ (AppendError::Invalid(_) | AppendError::Tenant | AppendError::TooLarge { .. })) => {
            tracing::error!(%tenant, %run, automation = %automation.id, %fault, "the ledger refuses an admission for good");
            Ok(Append::Refused)
        }
        Err(fault @ (AppendError::Full | AppendError::Unavailable(_) | AppendError::Closed)) => Err(fault),
    }
}
