//! What an answer means for the step: the one place that decides whether an effect can have happened.
//!
//! | what came | idempotent | checkable | unsafe |
//! |---|---|---|---|
//! | nothing was sent | try again | try again | try again |
//! | not now (a throttle, quota, a breaker) | put off | put off | put off |
//! | not now, and a 5xx (503 with `Retry-After`) | try again | read back | ask |
//! | a whole answer that the provider did not do it (4xx, `contended`) | by its class | by its class | by its class |
//! | a whole answer that it failed (5xx), or one that nobody knows | try again | read back | ask |
//! | sent, and no whole answer | try again | read back | ask |
//! | a success that is larger than is kept | done | done | done |
//! | the same, where success stands in the body | stop | read back | ask |
//!
//! A 5xx is no proof: providers fail after they have written, and gateways before them fail while they write. What is in doubt
//! is so for idempotent actions, too: it is tried again, and until an answer comes the run cannot say that nothing happened.
//! An action that changes nothing, as one of a method that is safe by RFC 9110 (GET, HEAD, OPTIONS), has no effect to be in
//! doubt about.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use crate::call::{Answer, Cut, ParkSource, Reply};
use crate::connector::{Action, ReadBack, ReplaySafety, Verdict};
use crate::failure::{FailureClass, Remedy};
use crate::ids::EffectKey;
use crate::ledger::{Ambiguity, ParkReason, Provider, SendState, StepResult};

use super::backoff::READ_BACKS_MAX;
use super::refusals::{self, Meaning};
use super::state::NOT_HAPPENED;

/// Physical attempts of one asking, parks and all: what bounds the records of a provider that always says "later".
pub const PHYSICAL_MAX: u32 = 10_000;

/// Longest text of a provider, or of ours, in a record.
const TEXT_BYTES_MAX: usize = 1_024;

/// What was tried.
#[derive(Debug, Clone, Copy)]
pub struct Tried {
    pub is_read_back: bool,
    pub safety: ReplaySafety,
    /// Its method has no effect.
    pub is_harmless: bool,
    /// Which physical attempt it was.
    pub physical: u32,
    /// Tries before it that count.
    pub tries: u32,
    pub attempts_max: u32,
    /// An earlier try may have had its effect.
    pub is_in_doubt: bool,
    /// Read-backs before it that failed for the time being.
    pub read_backs: u32,
    /// Times in a row that it was put off before.
    pub deferrals: u32,
    /// Before what is ours is looked for again, in milliseconds.
    pub unavailable_ms: u64,
    pub now_unix_ms: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Came {
    /// Its output is still to be kept.
    Done(Value),
    /// Its output is larger than is kept: its beginning, and what is known of all of it.
    DoneCut(Bytes, Cut),
    Other(StepResult),
    /// The connection's authentication is dead, in the provider's words.
    Dead(Box<str>),
}

/// Of whom it was asked, and what.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub action: &'a dyn Action,
    pub input: &'a Value,
    pub effect: EffectKey,
}

/// What the answer means, and what is known of the exchange.
pub fn judge(answer: &Answer, asked: &Asked<'_>, tried: &Tried) -> (Came, Provider) {
    let mut provider = Provider {
        send_state: answer.send_state,
        status: None,
        message: None,
        request_id: None,
        correlation: answer.correlation.clone(),
    };
    let came = match &answer.reply {
        Reply::Response { status, headers, body, cut } => {
            provider.status = Some(*status);
            provider.request_id = request_id(headers);
            let heard = Heard { status: *status, headers, body, cut: *cut };
            if tried.is_read_back {
                read_back(asked, &heard, tried, &mut provider)
            } else {
                response(asked.action, &heard, tried, &mut provider)
            }
        }
        Reply::Parked { release_unix_ms, source, status } => {
            provider.status = *status;
            // Who answers 503 and says when may have done it all the same, as with any other 5xx. Until then egress lets no
            // other try through, so that nothing is said of the time here.
            if status.is_some_and(|status| status >= 500) && !tried.has_no_effect() {
                tried.in_doubt("the provider failed, and says when to come again")
            } else {
                tried.put_off(*release_unix_ms, reason(*source))
            }
        }
        Reply::Refused { code, detail, retry_after } => refused(code, detail, *retry_after, answer.send_state, tried),
        Reply::Failed { code, detail } => failed(code, detail, answer.send_state, tried),
    };
    (came, provider)
}

/// An answer of the provider.
struct Heard<'a> {
    status: u16,
    headers: &'a HeaderMap,
    /// All of it, or its beginning.
    body: &'a Bytes,
    cut: Option<Cut>,
}

impl Heard<'_> {
    /// What it means: an output, or a class and the provider's words for it.
    fn judge(&self, action: &dyn Action) -> Result<Came, (FailureClass, Option<Box<str>>)> {
        let Some(cut) = self.cut else {
            return match action.judge(self.status, self.headers, self.body) {
                Verdict::Done(output) => Ok(Came::Done(output)),
                Verdict::Failed { class, message } => Err((class, message)),
            };
        };
        match action.judge_cut(self.status, self.headers, self.body) {
            None => Ok(Came::DoneCut(self.body.clone(), cut)),
            Some(failed) => Err(failed),
        }
    }
}

fn response(action: &dyn Action, heard: &Heard<'_>, tried: &Tried, provider: &mut Provider) -> Came {
    let (class, message) = match heard.judge(action) {
        Ok(done) => return done,
        Err(failed) => failed,
    };
    let text = cut(message.as_deref().unwrap_or_else(|| class.title()));
    provider.message = message.map(|message| cut(&message));
    if class.remedy() == Remedy::Reconnect {
        return Came::Dead(text);
    }
    let is_plain = proves_no_effect(class, heard.status) || tried.has_no_effect();
    if is_plain {
        return tried.failed(class, text);
    }
    if tried.repeats() && class.remedy() == Remedy::Stop {
        // Again it would be answered in the same way.
        return tried.failed(class, cut(&format!("{}; it may have happened", cut_to(&text, 900))));
    }
    tried.in_doubt(&format!("{}: {text}", class.code()))
}

/// Whether a provider that answers so has done nothing.
fn proves_no_effect(class: FailureClass, status: u16) -> bool {
    match class.remedy() {
        Remedy::Retry => class == FailureClass::ContendedProvider,
        Remedy::Stop => !class.leaves_doubt() || (400..500).contains(&status),
        Remedy::Reconnect => true,
    }
}

fn read_back(asked: &Asked<'_>, heard: &Heard<'_>, tried: &Tried, provider: &mut Provider) -> Came {
    let Asked { action, input, effect } = *asked;
    // Half of a JSON text is none, so that of an answer that is cut only its status tells.
    match action.judge_read_back(input, effect, heard.status, heard.headers, heard.body) {
        ReadBack::Happened(output) => {
            return heard.cut.map_or(Came::Done(output), |cut| Came::DoneCut(heard.body.clone(), cut));
        }
        ReadBack::NotHappened => {
            let detail = "the provider was asked, and says that it has not happened".into();
            return Came::Other(StepResult::Failed { class: NOT_HAPPENED, detail });
        }
        ReadBack::Unknown => {}
    }
    let Err((class, message)) = heard.judge(action) else {
        return Came::Other(StepResult::Ambiguous(Ambiguity::ReadBack));
    };
    let text = cut(message.as_deref().unwrap_or_else(|| class.title()));
    provider.message = message.map(|message| cut(&message));
    if class.remedy() == Remedy::Reconnect { Came::Dead(text) } else { tried.failed(class, text) }
}

fn refused(code: &str, detail: &str, retry_after: Option<Duration>, sent: SendState, tried: &Tried) -> Came {
    if sent != SendState::NotSent && !tried.repeats() {
        return Came::Other(StepResult::Ambiguous(Ambiguity::NoAnswer));
    }
    match refusals::refused(code) {
        Meaning::Later => {
            let wait_ms = retry_after.map_or(tried.unavailable_ms, |wait| {
                u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(tried.unavailable_ms)
            });
            tried.put_off(tried.now_unix_ms.saturating_add(wait_ms), ParkReason::Unavailable)
        }
        Meaning::Is(class) => tried.failed(class, cut(&format!("{code}: {detail}"))),
    }
}

fn failed(code: &str, detail: &str, sent: SendState, tried: &Tried) -> Came {
    let text = || cut(&format!("{code}: {detail}"));
    match refusals::failed(code) {
        Meaning::Later if sent == SendState::NotSent => {
            tried.put_off(tried.now_unix_ms.saturating_add(tried.unavailable_ms), ParkReason::Unavailable)
        }
        Meaning::Is(class) if sent == SendState::NotSent || tried.has_no_effect() => tried.failed(class, text()),
        Meaning::Later if tried.has_no_effect() => tried.failed(FailureClass::BrokenAnswer, text()),
        Meaning::Later | Meaning::Is(_) => tried.in_doubt(&text()),
    }
}

impl Tried {
    /// The same again is the same.
    fn repeats(&self) -> bool {
        self.has_no_effect() || self.safety == ReplaySafety::Idempotent
    }

    fn has_no_effect(&self) -> bool {
        self.is_harmless || self.is_read_back
    }

    /// It may have happened.
    fn in_doubt(&self, detail: &str) -> Came {
        if self.safety == ReplaySafety::Idempotent && self.is_last() {
            return self.exhausted(&format!("{}; it may have happened", cut_to(detail, 800)));
        }
        Came::Other(StepResult::Ambiguous(Ambiguity::NoAnswer))
    }

    fn is_last(&self) -> bool {
        self.tries.saturating_add(1) >= self.attempts_max
    }

    /// It failed, and that is certain or does not matter.
    fn failed(&self, class: FailureClass, detail: Box<str>) -> Came {
        if self.is_read_back {
            let again = class.remedy() == Remedy::Retry && self.read_backs.saturating_add(1) < READ_BACKS_MAX;
            return Came::Other(if again {
                StepResult::Failed { class, detail }
            } else {
                StepResult::Ambiguous(Ambiguity::ReadBack)
            });
        }
        if class.remedy() == Remedy::Retry && self.is_last() {
            return self.exhausted(&format!("{}: {detail}", class.code()));
        }
        // The last word about this try is none about those before it.
        let detail = if class.remedy() == Remedy::Stop { self.with_doubt(&detail) } else { detail };
        Came::Other(StepResult::Failed { class, detail })
    }

    fn exhausted(&self, detail: &str) -> Came {
        Came::Other(StepResult::Failed { class: FailureClass::AttemptsExhausted, detail: self.with_doubt(detail) })
    }

    fn with_doubt(&self, detail: &str) -> Box<str> {
        if self.is_in_doubt { doubtful(detail) } else { cut(detail) }
    }

    /// It spends no try. Who is told "at once" again and again waits longer each time.
    fn put_off(&self, until_unix_ms: u64, reason: ParkReason) -> Came {
        if self.physical >= PHYSICAL_MAX {
            // Who never gets to ask knows no more than who was not told.
            return if self.is_read_back {
                Came::Other(StepResult::Ambiguous(Ambiguity::ReadBack))
            } else {
                self.exhausted("it was put off too often")
            };
        }
        let least_ms = 10_u64 << self.deferrals.min(12);
        let until_unix_ms = until_unix_ms.max(self.now_unix_ms.saturating_add(least_ms));
        Came::Other(StepResult::Deferred { until_unix_ms, reason })
    }
}

fn reason(source: ParkSource) -> ParkReason {
    match source {
        ParkSource::Provider => ParkReason::Provider,
        ParkSource::Quota => ParkReason::Quota,
        ParkSource::Breaker => ParkReason::Breaker,
    }
}

/// The names that providers give to their request ids, as far as they are common; a connector's own are in egress' record.
const REQUEST_IDS: [&str; 7] = [
    "request-id",
    "x-request-id",
    "x-amzn-requestid",
    "x-github-request-id",
    "x-slack-req-id",
    "x-correlation-id",
    "cf-ray",
];

fn request_id(headers: &HeaderMap) -> Option<Box<str>> {
    let value = REQUEST_IDS.iter().find_map(|name| headers.get(*name))?.to_str().ok()?;
    (1..=128).contains(&value.len()).then(|| value.into())
}

/// What is said of a step that is over while an earlier try of it may have had its effect.
pub(super) fn doubtful(detail: &str) -> Box<str> {
    cut(&format!("{}; an earlier try may have had its effect", cut_to(detail, 900)))
}

/// At most 1 KiB, at a character's end.
pub(crate) fn cut(text: &str) -> Box<str> {
    cut_to(text, TEXT_BYTES_MAX).into()
}

fn cut_to(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests;
