//! Which events, and which automations they are for.

use std::sync::Arc;

use domain::{EndpointId, EventId, TenantId};
use eventlog::{EventLog, EventReader, Filter, ReadError, Scope, Start, StoredEvent};
use serde::{Deserialize, Serialize};

use super::PastRun;
use crate::admission::Trigger;
use crate::automation::EventFacts;
use crate::failure::FailureClass;
use crate::ids::{AutomationId, Version};
use crate::ledger::RunStatus;

/// What to replay: everything that is said holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selection {
    pub tenant: TenantId,
    /// For this automation alone; none: for all that the event begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automation: Option<AutomationId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointId>,
    /// Receive times, in milliseconds since the Unix epoch; the second is not included.
    pub from_unix_ms: u64,
    pub until_unix_ms: u64,
    #[serde(default)]
    pub why: Why,
}

/// Which of an event's and automation's pairs, by what came of them before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    #[default]
    All,
    /// No run was ever begun.
    NeverBegan,
    /// A run was begun, all are over, and none has succeeded.
    NotSucceeded,
    /// The same, and the cause of one was this.
    #[serde(with = "failure_code")]
    FailedWith(FailureClass),
}

/// A class by its code.
mod failure_code {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::failure::FailureClass;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "it is what serde calls")]
    pub(super) fn serialize<S: Serializer>(class: &FailureClass, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(class.code())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FailureClass, D::Error> {
        let code = String::deserialize(deserializer)?;
        let known = FailureClass::ALL.iter().copied().find(|class| class.code() == code);
        known.ok_or_else(|| serde::de::Error::custom("there is no such class of failures"))
    }
}

/// A version that events are replayed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    pub automation: AutomationId,
    pub version: Version,
}

/// One run that would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) event: EventId,
    pub(super) endpoint: EndpointId,
    /// Place among the targets.
    pub(super) target: u32,
}

/// What the log has for the targets.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) items: Vec<Item>,
    pub(super) events: u64,
    /// Pairs whose condition failed: no run.
    pub(super) failed: u64,
    pub(super) is_end: bool,
}

impl Why {
    /// Is it one of these, by the automation's earlier runs of the event?
    pub(super) fn takes(self, past: &[&PastRun]) -> bool {
        let is_over = |status| match status {
            RunStatus::Succeeded
            | RunStatus::Failed
            | RunStatus::Cancelled
            | RunStatus::TimedOut
            | RunStatus::EndedAmbiguous => true,
            RunStatus::Queued
            | RunStatus::Running
            | RunStatus::Parked
            | RunStatus::NeedsAttention
            | RunStatus::Quarantined => false,
        };
        let none_succeeded =
            || !past.is_empty() && past.iter().all(|run| is_over(run.status) && run.status != RunStatus::Succeeded);
        match self {
            Self::All => true,
            Self::NeverBegan => past.is_empty(),
            Self::NotSucceeded => none_succeeded(),
            Self::FailedWith(class) => none_succeeded() && past.iter().any(|run| run.failure == Some(class)),
        }
    }
}

pub(super) fn reader(log: &dyn EventLog, selection: &Selection) -> Result<Box<dyn EventReader>, ReadError> {
    let filter = Filter {
        endpoint: selection.endpoint.clone(),
        from_unix_ms: Some(selection.from_unix_ms),
        until_unix_ms: Some(selection.until_unix_ms),
    };
    log.reader(Scope::Tenant(selection.tenant.clone()), Start::Earliest, filter)
}

/// Goes through the next events, at most `max`. Blocks: it reads, and evaluates conditions.
pub(super) fn next(reader: &mut dyn EventReader, triggers: &[Arc<Trigger>], max: usize) -> Result<Found, ReadError> {
    let mut found = Found::default();
    for _ in 0..max {
        let Some(event) = reader.next()? else {
            found.is_end = true;
            break;
        };
        let before = found.items.len();
        for (target, trigger) in (0_u32..).zip(triggers) {
            match holds(trigger, &event) {
                Some(true) => {
                    found.items.push(Item { event: event.id, endpoint: event.endpoint.clone(), target });
                }
                Some(false) => {}
                None => found.failed += 1,
            }
        }
        found.events += u64::from(found.items.len() > before);
    }
    Ok(found)
}

/// Does the event begin a run of it? None: its condition fails. How old the automation is makes no difference here: who
/// replays history means it.
fn holds(trigger: &Trigger, event: &StoredEvent) -> Option<bool> {
    let of = &trigger.automation.trigger;
    if !of.endpoints.contains(&event.endpoint) {
        return Some(false);
    }
    let Some(when) = &of.when else { return Some(true) };
    let scope = crate::automation::Scope::default().with_event(EventFacts::from(event));
    when.holds(&scope).ok()
}
