//! What a run's records say of each step, attempt by attempt.

use std::collections::BTreeMap;

use domain::ConnectionId;

use super::form::{AttemptView, ChoiceView};
use super::text_of::{cut, time};
use crate::automation::parse_rfc3339;
use crate::engine::state::NOT_HAPPENED;
use crate::ids::StepId;
use crate::index::Word as _;
use crate::ledger::{Ambiguity, Attempt, Body, Intent, Outcome, ParkReason, Payload, Provider, Record, StepResult};

/// Late outcomes and choices of one node that are shown; the last ones.
const OTHERS_MAX: usize = 20;

/// One step's story.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) attempts: Vec<AttemptView>,
    /// Attempts that were left out, all older than those that are there.
    pub(super) omitted: usize,
    pub(super) late: Vec<AttemptView>,
    pub(super) choices: Vec<ChoiceView>,
    pub(super) connection: Option<ConnectionId>,
    pub(super) input: Option<Payload>,
    pub(super) output: Option<Payload>,
    /// What the provider said last.
    pub(super) provider_message: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) began_unix_ms: Option<u64>,
    pub(super) last_unix_ms: Option<u64>,
    why_next: Why,
}

/// Why the next attempt will have been made.
#[derive(Debug, Clone, Copy, Default)]
enum Why {
    #[default]
    First,
    Retry,
    AfterPark,
    WorkerLost,
    NoAnswer,
    NotHappened,
    Rerun,
    Choice,
}

impl Why {
    fn word(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Retry => "retry",
            Self::AfterPark => "after-park",
            Self::WorkerLost => "worker-lost",
            Self::NoAnswer => "no-answer",
            Self::NotHappened => "not-happened",
            Self::Rerun => "rerun",
            Self::Choice => "choice",
        }
    }
}

/// All steps of which there is a record, in the order in which they were begun. `attempts_max` of each are kept, the last.
pub(super) fn stories(records: &[Record], attempts_max: usize) -> (Vec<StepId>, BTreeMap<StepId, Story>) {
    let mut order = Vec::new();
    let mut stories: BTreeMap<StepId, Story> = BTreeMap::new();
    for record in records {
        let step = match &record.body {
            Body::Intent(intent) => &intent.step,
            Body::Outcome(outcome) | Body::LateOutcome(outcome) => &outcome.step,
            Body::Resolved(resolved) => &resolved.step,
            Body::Rerun(rerun) => &rerun.step,
            Body::Admitted(_)
            | Body::Lease(_)
            | Body::Parked(_)
            | Body::Released(_)
            | Body::CancelRequested(_)
            | Body::Quarantined(_)
            | Body::Terminal(_)
            | Body::Dismissed(_) => continue,
        };
        if !stories.contains_key(step) {
            order.push(step.clone());
        }
        let story = stories.entry(step.clone()).or_default();
        story.take(record);
        if story.attempts.len() > attempts_max {
            story.attempts.remove(0);
            story.omitted += 1;
        }
    }
    (order, stories)
}

impl Story {
    fn take(&mut self, record: &Record) {
        let at = record.at_unix_ms;
        match &record.body {
            Body::Intent(intent) => self.begin(intent, at),
            Body::Outcome(outcome) => self.settle(outcome, at),
            Body::LateOutcome(outcome) => {
                let mut view = of_outcome(outcome, "late", at);
                view.at = None;
                push(&mut self.late, view);
            }
            Body::Resolved(resolved) => {
                self.why_next = Why::Choice;
                let choice = resolved.choice.word();
                push(&mut self.choices, chosen(choice, resolved.attempt, &resolved.by, at));
            }
            Body::Rerun(rerun) => {
                self.why_next = Why::Rerun;
                self.output = None;
                self.input.clone_from(&rerun.input);
                (self.began_unix_ms, self.last_unix_ms) = (None, None);
                (self.provider_message, self.detail) = (None, None);
                push(
                    &mut self.choices,
                    chosen("rerun", Attempt { logical: rerun.logical, physical: 0 }, &rerun.by, at),
                );
            }
            Body::Admitted(_)
            | Body::Lease(_)
            | Body::Parked(_)
            | Body::Released(_)
            | Body::CancelRequested(_)
            | Body::Quarantined(_)
            | Body::Terminal(_)
            | Body::Dismissed(_) => {}
        }
    }

    fn begin(&mut self, intent: &Intent, at_unix_ms: u64) {
        // One that is open still has lost its worker.
        let is_lost = self.attempts.last().is_some_and(|last| last.result == "open");
        let why = if is_lost { Why::WorkerLost } else { self.why_next };
        self.began_unix_ms.get_or_insert(at_unix_ms);
        self.last_unix_ms = None;
        self.connection.clone_from(&intent.connection);
        if !intent.is_read_back {
            self.input = Some(intent.input.clone());
        }
        self.attempts.push(AttemptView {
            attempt: name(intent.attempt),
            why: if intent.is_read_back { "read-back" } else { why.word() }.to_owned(),
            result: "open".into(),
            at: Some(time(at_unix_ms)),
            ended_at: None,
            duration_ms: None,
            effect_key: Some(intent.effect.to_string()),
            error_class: None,
            detail: None,
            send_state: None,
            provider_status: None,
            provider_message: None,
            provider_request_id: None,
            correlation_id: None,
            next_attempt_at: None,
        });
    }

    fn settle(&mut self, outcome: &Outcome, at_unix_ms: u64) {
        self.began_unix_ms.get_or_insert(at_unix_ms);
        let is_its = |open: &&mut AttemptView| open.attempt == name(outcome.attempt) && open.result == "open";
        let mut view = of_outcome(outcome, self.why_next.word(), at_unix_ms);
        let mut is_read_back = false;
        if let Some(open) = self.attempts.last_mut().filter(is_its) {
            let began = open.at.take();
            let began_unix_ms = began.as_deref().and_then(parse_rfc3339);
            view.duration_ms = began_unix_ms.map(|began| at_unix_ms.saturating_sub(began));
            (view.at, view.effect_key) = (began, open.effect_key.take());
            view.why = std::mem::take(&mut open.why);
            is_read_back = view.why == "read-back";
            *open = view;
        } else {
            // A step that makes no call has no intent.
            self.attempts.push(view);
        }
        let provider = outcome.provider.as_ref();
        if let Some(message) = provider.and_then(|provider| provider.message.as_deref()) {
            self.provider_message = Some(cut(message));
        }
        self.why_next = match &outcome.result {
            StepResult::Done { output } => {
                self.output = Some(output.clone());
                self.last_unix_ms = Some(at_unix_ms);
                (self.detail, self.provider_message) = (None, None);
                Why::Retry
            }
            StepResult::Skipped => {
                self.last_unix_ms = Some(at_unix_ms);
                Why::Retry
            }
            StepResult::Failed { class, detail } => {
                self.detail = Some(cut(detail));
                self.last_unix_ms = Some(at_unix_ms);
                if is_read_back && *class == NOT_HAPPENED { Why::NotHappened } else { Why::Retry }
            }
            StepResult::Deferred { .. } => Why::AfterPark,
            StepResult::Ambiguous(Ambiguity::WorkerLost) => Why::WorkerLost,
            StepResult::Ambiguous(Ambiguity::NoAnswer | Ambiguity::ReadBack) => Why::NoAnswer,
        };
    }
}

/// The last ones.
fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() >= OTHERS_MAX {
        list.remove(0);
    }
    list.push(item);
}

fn name(attempt: Attempt) -> String {
    format!("{}.{}", attempt.logical, attempt.physical)
}

fn chosen(choice: &str, attempt: Attempt, by: &str, at_unix_ms: u64) -> ChoiceView {
    ChoiceView { choice: choice.to_owned(), attempt: name(attempt), by: cut(by), at: time(at_unix_ms) }
}

fn of_outcome(outcome: &Outcome, why: &str, at_unix_ms: u64) -> AttemptView {
    let (result, class, detail, next) = match &outcome.result {
        StepResult::Done { .. } => ("done", None, None, None),
        StepResult::Skipped => ("skipped", None, None, None),
        StepResult::Failed { class, detail } => ("failed", Some(*class), Some(cut(detail)), None),
        StepResult::Deferred { until_unix_ms, reason } => {
            ("deferred", None, Some(put_off(*reason).to_owned()), Some(time(*until_unix_ms)))
        }
        StepResult::Ambiguous(why) => {
            let status = outcome.provider.as_ref().and_then(|provider| provider.status);
            ("ambiguous", None, Some(doubted(*why, status)), None)
        }
    };
    let text = |of: fn(&Provider) -> Option<&str>| outcome.provider.as_ref().and_then(of).map(cut);
    AttemptView {
        attempt: name(outcome.attempt),
        why: why.to_owned(),
        result: result.to_owned(),
        at: Some(time(at_unix_ms)),
        ended_at: Some(time(at_unix_ms)),
        duration_ms: None,
        effect_key: None,
        error_class: class.map(|class| class.code().to_owned()),
        detail,
        send_state: outcome.provider.as_ref().map(|provider| provider.send_state.word().to_owned()),
        provider_status: outcome.provider.as_ref().and_then(|provider| provider.status),
        provider_message: text(|provider| provider.message.as_deref()),
        provider_request_id: text(|provider| provider.request_id.as_deref()),
        correlation_id: text(|provider| provider.correlation.as_deref()),
        next_attempt_at: next,
    }
}

/// Why a try was put off, or a run waits.
pub(super) fn put_off(reason: ParkReason) -> &'static str {
    match reason {
        ParkReason::Delay => "a delay of the automation",
        ParkReason::Backoff => "a pause before the next try",
        ParkReason::Provider => "the provider said when to come back",
        ParkReason::Quota => "the quota at the provider is used up for now",
        ParkReason::Breaker => "the provider has failed too often, and is left alone for a while",
        ParkReason::NeedsReconnect => "the connection has to be made anew",
        ParkReason::Ambiguous => "somebody has to choose about an effect that may have happened",
        ParkReason::Unavailable => "what it calls through is not there",
        ParkReason::Restart => "the node that worked on it is being started anew",
    }
}

/// The same of one try, which may have been answered: with a failure that is no proof that nothing was done.
fn doubted(why: Ambiguity, status: Option<u16>) -> String {
    match (why, status) {
        (Ambiguity::NoAnswer, Some(status)) => {
            format!("it was answered with {status}, which does not say if it was done")
        }
        (why, _) => in_doubt(why).to_owned(),
    }
}

/// Why nobody knows whether an effect has happened.
pub(super) fn in_doubt(why: Ambiguity) -> &'static str {
    match why {
        Ambiguity::WorkerLost => "its worker was lost while the call was under way",
        Ambiguity::NoAnswer => "it was sent, and no whole answer came",
        Ambiguity::ReadBack => "the provider was asked, and could not tell",
    }
}
