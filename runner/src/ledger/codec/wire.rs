//! Between a commit and its items, field by field.

use bytes::Bytes;
use domain::{ConnectionId, EndpointId, EventId, TenantId};
use minicbor::{Decoder, Encoder};

use super::items::{
    Admitted, Attempt, Body, By, Cause, Dismissed, HeadingItem, Intent, Lease, Outcome, OutcomeResult, Parked, Payload,
    Provider, Quarantined, Rerun, Resolved, Terminal,
};
use super::numbers::Number;
use super::{CodecError, Heading, Turn};
use crate::failure::FailureClass;
use crate::ids::{AutomationId, EffectKey, RunId, StepId};
use crate::ledger::record as ledger;
use crate::ledger::record::{Ambiguity, Choice, Kept, ParkReason, QueueClass, RunStatus, SendState};
use crate::ledger::rules::BODIES_MAX;

impl From<minicbor::decode::Error> for CodecError {
    fn from(error: minicbor::decode::Error) -> Self {
        Self::malformed(error.to_string())
    }
}

/// About how many bytes a body has beside its few names.
pub(super) fn inline_bytes(body: &ledger::Body) -> usize {
    let payload = |payload: &ledger::Payload| match &payload.kept {
        Kept::Inline(data) | Kept::Truncated(data) | Kept::Beginning(data) => data.len(),
        Kept::Stored | Kept::Expired => 32,
    };
    match body {
        ledger::Body::Admitted(admitted) => admitted.input.as_ref().map_or(0, payload),
        ledger::Body::Intent(intent) => payload(&intent.input),
        ledger::Body::Outcome(outcome) | ledger::Body::LateOutcome(outcome) => match &outcome.result {
            ledger::Result::Done { output } => payload(output),
            ledger::Result::Failed { detail, .. } => detail.len(),
            ledger::Result::Skipped | ledger::Result::Deferred { .. } | ledger::Result::Ambiguous(_) => 0,
        },
        ledger::Body::Rerun(rerun) => rerun.input.as_ref().map_or(0, payload),
        ledger::Body::Lease(_)
        | ledger::Body::Parked(_)
        | ledger::Body::Released(_)
        | ledger::Body::Resolved(_)
        | ledger::Body::CancelRequested(_)
        | ledger::Body::Quarantined(_)
        | ledger::Body::Terminal(_) => 0,
        ledger::Body::Dismissed(dismissed) => dismissed.reason.len(),
    }
}

pub(super) fn encode(heading: &Heading, bodies: &[ledger::Body], time_unix_ms: u64, into: &mut Vec<u8>) {
    let mut encoder = Encoder::new(into);
    let item = HeadingItem {
        run: (*heading.run.as_bytes()).into(),
        tenant: heading.tenant.as_str(),
        first: heading.first,
        count: heading.count,
        lease: heading.lease,
        since: heading.at_unix_ms.wrapping_sub(time_unix_ms).cast_signed(),
        is_over: match heading.turn {
            Turn::None => None,
            Turn::Over => Some(true),
            Turn::Open => Some(false),
        },
    };
    encoder.encode(item).and_then(|encoder| encoder.array(bodies.len() as u64)).expect("a vector takes all bytes");
    for body in bodies {
        encoder.encode(to_item(heading.run, body)).expect("a vector takes all bytes");
    }
}

pub(super) fn heading(decoder: &mut Decoder<'_>, time_unix_ms: u64) -> Result<Heading, CodecError> {
    let item: HeadingItem<'_> = decoder.decode()?;
    let counts = 1..=u16::try_from(BODIES_MAX).unwrap_or(u16::MAX);
    if !counts.contains(&item.count) || item.first == 0 || item.first.checked_add(u64::from(item.count)).is_none() {
        return Err(CodecError::malformed("its records have no places"));
    }
    Ok(Heading {
        tenant: name(item.tenant, TenantId::parse)?,
        run: RunId::from_bytes(*item.run),
        first: item.first,
        count: item.count,
        lease: item.lease,
        at_unix_ms: time_unix_ms.wrapping_add_signed(item.since),
        turn: match item.is_over {
            None => Turn::None,
            Some(true) => Turn::Over,
            Some(false) => Turn::Open,
        },
    })
}

pub(super) fn bodies(heading: &Heading, bytes: &[u8]) -> Result<Vec<ledger::Body>, CodecError> {
    let mut decoder = Decoder::new(bytes);
    if decoder.array()? != Some(u64::from(heading.count)) {
        return Err(CodecError::malformed("it has other records than its heading says"));
    }
    (0..heading.count).map(|_| from_item(heading.run, decoder.decode()?)).collect()
}

fn name<T, E>(text: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<T, CodecError> {
    parse(text).map_err(|_| CodecError::malformed("it has a name that is none"))
}

fn step(text: &str) -> Result<StepId, CodecError> {
    StepId::parse(text).ok_or_else(|| CodecError::malformed("it has a step that is none"))
}

fn class(number: u8) -> Result<FailureClass, CodecError> {
    FailureClass::from_number(number).ok_or_else(|| CodecError::malformed("it has a failure of no known class"))
}

impl<'b> Payload<'b> {
    fn new(payload: &'b ledger::Payload) -> Self {
        let bytes = Some(payload.bytes);
        let digest = Some(payload.digest.into());
        match &payload.kept {
            Kept::Inline(data) => {
                let follows = payload.bytes == data.len() as u64 && payload.digest == *blake3::hash(data).as_bytes();
                let (bytes, digest) = if follows { (None, None) } else { (bytes, digest) };
                Self { bytes, digest, kept: None, data: Some(data[..].into()) }
            }
            Kept::Stored => Self { bytes, digest, kept: Some(1), data: None },
            Kept::Truncated(data) => Self { bytes, digest, kept: Some(2), data: Some(data[..].into()) },
            Kept::Expired => Self { bytes, digest, kept: Some(3), data: None },
            Kept::Beginning(data) => Self { bytes, digest, kept: Some(4), data: Some(data[..].into()) },
        }
    }

    fn read(&self) -> Result<ledger::Payload, CodecError> {
        let data: &[u8] = self.data.map_or(&[], |data| data);
        let is_whole = self.kept.is_none();
        let missing = || CodecError::malformed("it has a payload without length or digest");
        let bytes = self.bytes.or_else(|| is_whole.then_some(data.len() as u64)).ok_or_else(missing)?;
        let digest = match &self.digest {
            Some(digest) => **digest,
            None if is_whole => *blake3::hash(data).as_bytes(),
            None => return Err(missing()),
        };
        // Copied: it would else hold on to all that was read with it.
        let data = Bytes::copy_from_slice(data);
        let kept = match self.kept {
            None => Kept::Inline(data),
            Some(1) => Kept::Stored,
            Some(2) => Kept::Truncated(data),
            Some(3) => Kept::Expired,
            Some(4) => Kept::Beginning(data),
            Some(_) => return Err(CodecError::malformed("it has a payload that is kept in no known way")),
        };
        Ok(ledger::Payload { bytes, digest, kept })
    }
}

impl Attempt {
    fn new(attempt: ledger::Attempt) -> Self {
        Self { logical: attempt.logical, physical: attempt.physical }
    }

    fn read(&self) -> ledger::Attempt {
        ledger::Attempt { logical: self.logical, physical: self.physical }
    }
}

impl<'b> Outcome<'b> {
    fn new(outcome: &'b ledger::Outcome) -> Self {
        let result = match &outcome.result {
            ledger::Result::Done { output } => OutcomeResult::Done(Payload::new(output)),
            ledger::Result::Skipped => OutcomeResult::Skipped,
            ledger::Result::Failed { class, detail } => OutcomeResult::Failed(class.number(), detail),
            ledger::Result::Deferred { until_unix_ms, reason } => {
                OutcomeResult::Deferred(*until_unix_ms, reason.number())
            }
            ledger::Result::Ambiguous(ambiguity) => OutcomeResult::Ambiguous(ambiguity.number()),
        };
        let provider = outcome.provider.as_ref().map(|provider| Provider {
            send_state: provider.send_state.number(),
            status: provider.status,
            message: provider.message.as_deref(),
            request_id: provider.request_id.as_deref(),
            correlation: provider.correlation.as_deref(),
        });
        Self { step: outcome.step.as_str(), attempt: Attempt::new(outcome.attempt), result, provider }
    }

    fn read(&self) -> Result<ledger::Outcome, CodecError> {
        let result = match &self.result {
            OutcomeResult::Done(output) => ledger::Result::Done { output: output.read()? },
            OutcomeResult::Skipped => ledger::Result::Skipped,
            OutcomeResult::Failed(number, detail) => {
                ledger::Result::Failed { class: class(*number)?, detail: (*detail).into() }
            }
            OutcomeResult::Deferred(until_unix_ms, reason) => {
                ledger::Result::Deferred { until_unix_ms: *until_unix_ms, reason: ParkReason::read(*reason)? }
            }
            OutcomeResult::Ambiguous(ambiguity) => ledger::Result::Ambiguous(Ambiguity::read(*ambiguity)?),
        };
        let provider = self.provider.as_ref().map(|provider| {
            Ok::<_, CodecError>(ledger::Provider {
                send_state: SendState::read(provider.send_state)?,
                status: provider.status,
                message: provider.message.map(Into::into),
                request_id: provider.request_id.map(Into::into),
                correlation: provider.correlation.map(Into::into),
            })
        });
        Ok(ledger::Outcome {
            step: step(self.step)?,
            attempt: self.attempt.read(),
            result,
            provider: provider.transpose()?,
        })
    }
}

impl<'b> Cause<'b> {
    fn new(cause: &'b ledger::Cause) -> Self {
        match cause {
            ledger::Cause::Event { event, endpoint } => Self::Event((*event.as_bytes()).into(), endpoint.as_str()),
            ledger::Cause::Replay { event, endpoint, replay } => {
                Self::Replay((*event.as_bytes()).into(), endpoint.as_str(), replay)
            }
            ledger::Cause::Manual { by } => Self::Manual(by),
            ledger::Cause::Again { of, replay, by } => Self::Again((*of.as_bytes()).into(), replay, by),
        }
    }

    fn read(&self) -> Result<ledger::Cause, CodecError> {
        Ok(match self {
            Self::Event(event, endpoint) => ledger::Cause::Event {
                event: EventId::from_bytes(**event),
                endpoint: name(endpoint, EndpointId::parse)?,
            },
            Self::Replay(event, endpoint, replay) => ledger::Cause::Replay {
                event: EventId::from_bytes(**event),
                endpoint: name(endpoint, EndpointId::parse)?,
                replay: (*replay).into(),
            },
            Self::Manual(by) => ledger::Cause::Manual { by: (*by).into() },
            Self::Again(of, replay, by) => {
                ledger::Cause::Again { of: RunId::from_bytes(**of), replay: (*replay).into(), by: (*by).into() }
            }
        })
    }
}

fn to_item(run: RunId, body: &ledger::Body) -> Body<'_> {
    match body {
        ledger::Body::Admitted(admitted) => Body::Admitted(Admitted {
            automation: (*admitted.automation.as_bytes()).into(),
            version: admitted.version,
            cause: Cause::new(&admitted.cause),
            class: admitted.class.number(),
            deadline: admitted.deadline_unix_ms,
            input: admitted.input.as_ref().map(Payload::new),
        }),
        ledger::Body::Lease(lease) => {
            Body::Lease(Lease { number: lease.lease, owner: &lease.owner, until: lease.until_unix_ms })
        }
        ledger::Body::Intent(intent) => {
            let follows = intent.effect == EffectKey::new(run, &intent.step, intent.attempt.logical);
            Body::Intent(Intent {
                step: intent.step.as_str(),
                attempt: Attempt::new(intent.attempt),
                effect: (!follows).then(|| (*intent.effect.as_bytes()).into()),
                is_read_back: intent.is_read_back.then_some(true),
                connection: intent.connection.as_ref().map(ConnectionId::as_str),
                input: Payload::new(&intent.input),
            })
        }
        ledger::Body::Outcome(outcome) => Body::Outcome(Outcome::new(outcome)),
        ledger::Body::LateOutcome(outcome) => Body::LateOutcome(Outcome::new(outcome)),
        ledger::Body::Parked(parked) => Body::Parked(Parked {
            reason: parked.reason.number(),
            step: parked.step.as_ref().map(StepId::as_str),
            until: parked.until_unix_ms,
        }),
        ledger::Body::Released(released) => Body::Released(By { by: &released.by }),
        ledger::Body::Resolved(resolved) => Body::Resolved(Resolved {
            step: resolved.step.as_str(),
            attempt: Attempt::new(resolved.attempt),
            choice: resolved.choice.number(),
            by: &resolved.by,
        }),
        ledger::Body::Rerun(rerun) => Body::Rerun(Rerun {
            step: rerun.step.as_str(),
            logical: rerun.logical,
            input: rerun.input.as_ref().map(Payload::new),
            by: &rerun.by,
        }),
        ledger::Body::CancelRequested(cancel) => Body::CancelRequested(By { by: &cancel.by }),
        ledger::Body::Quarantined(quarantined) => {
            Body::Quarantined(Quarantined { crashes: quarantined.crashes, reason: &quarantined.reason })
        }
        ledger::Body::Terminal(terminal) => Body::Terminal(Terminal {
            status: terminal.status.number(),
            failed_at: terminal.failed_at.as_ref().map(StepId::as_str),
            class: terminal.class.map(FailureClass::number),
        }),
        ledger::Body::Dismissed(dismissed) => {
            Body::Dismissed(Dismissed { by: &dismissed.by, reason: &dismissed.reason })
        }
    }
}

fn from_item(run: RunId, body: Body<'_>) -> Result<ledger::Body, CodecError> {
    Ok(match body {
        Body::Admitted(admitted) => ledger::Body::Admitted(ledger::Admitted {
            automation: AutomationId::from_bytes(*admitted.automation),
            version: admitted.version,
            cause: admitted.cause.read()?,
            class: QueueClass::read(admitted.class)?,
            deadline_unix_ms: admitted.deadline,
            input: admitted.input.as_ref().map(Payload::read).transpose()?,
        }),
        Body::Lease(lease) => ledger::Body::Lease(ledger::Lease {
            lease: lease.number,
            owner: lease.owner.into(),
            until_unix_ms: lease.until,
        }),
        Body::Intent(intent) => {
            let (step, attempt) = (step(intent.step)?, intent.attempt.read());
            let effect = intent.effect.map(|effect| EffectKey::from_bytes(*effect));
            ledger::Body::Intent(ledger::Intent {
                effect: effect.unwrap_or_else(|| EffectKey::new(run, &step, attempt.logical)),
                step,
                attempt,
                is_read_back: intent.is_read_back == Some(true),
                connection: intent.connection.map(|text| name(text, ConnectionId::parse)).transpose()?,
                input: intent.input.read()?,
            })
        }
        Body::Outcome(outcome) => ledger::Body::Outcome(outcome.read()?),
        Body::LateOutcome(outcome) => ledger::Body::LateOutcome(outcome.read()?),
        Body::Parked(parked) => ledger::Body::Parked(ledger::Parked {
            reason: ParkReason::read(parked.reason)?,
            step: parked.step.map(step).transpose()?,
            until_unix_ms: parked.until,
        }),
        Body::Released(by) => ledger::Body::Released(ledger::Released { by: by.by.into() }),
        Body::Resolved(resolved) => ledger::Body::Resolved(ledger::Resolved {
            step: step(resolved.step)?,
            attempt: resolved.attempt.read(),
            choice: Choice::read(resolved.choice)?,
            by: resolved.by.into(),
        }),
        Body::Rerun(rerun) => ledger::Body::Rerun(ledger::Rerun {
            step: step(rerun.step)?,
            logical: rerun.logical,
            input: rerun.input.as_ref().map(Payload::read).transpose()?,
            by: rerun.by.into(),
        }),
        Body::CancelRequested(by) => ledger::Body::CancelRequested(ledger::CancelRequested { by: by.by.into() }),
        Body::Quarantined(quarantined) => ledger::Body::Quarantined(ledger::Quarantined {
            crashes: quarantined.crashes,
            reason: quarantined.reason.into(),
        }),
        Body::Terminal(terminal) => ledger::Body::Terminal(ledger::Terminal {
            status: RunStatus::read(terminal.status)?,
            failed_at: terminal.failed_at.map(step).transpose()?,
            class: terminal.class.map(class).transpose()?,
        }),
        Body::Dismissed(dismissed) => {
            ledger::Body::Dismissed(ledger::Dismissed { by: dismissed.by.into(), reason: dismissed.reason.into() })
        }
    })
}
