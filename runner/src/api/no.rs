//! Why there is no answer: a closed set, and for each a stable code.

use std::time::Duration;

use serde_json::{Value, json};

use super::answer::ApiAnswer;
use super::asker::Scope;

/// One fault of a document or a body, at its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentFault {
    /// JSON path, such as `nodes[2].retryPolicy.attemptsMax`; empty for all of it.
    pub path: Box<str>,
    /// In words for an author.
    pub message: Box<str>,
    /// Of YAML: line and column, from 1.
    pub place: Option<(u32, u32)>,
}

impl DocumentFault {
    pub fn new(path: impl Into<Box<str>>, message: impl Into<Box<str>>) -> Self {
        Self { path: path.into(), message: message.into(), place: None }
    }
}

/// A deliberate no, or what could not be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum No {
    /// It is not there, or it is somebody else's: nobody learns which.
    NotFound,
    /// Nobody is recognised by what was sent.
    Unproved,
    /// Too many requests came from there that proved nothing.
    Throttled,
    /// The token may not do this.
    Scope(Scope),
    /// The path takes others.
    Method(&'static str),
    /// What was sent is no request of this kind: query, header, or JSON.
    Malformed(Vec<DocumentFault>),
    /// An automation with faults: all of them.
    Invalid(Vec<DocumentFault>),
    /// The body is longer than this.
    TooLarge { bytes_max: u64 },
    /// The body is of another kind than these, as `Accept` has them.
    MediaType(&'static str),
    /// Another version is the last one by now.
    VersionConflict { last: u32 },
    /// Another automation of the tenant has this name.
    NameTaken(Box<str>),
    /// A request of this `Idempotency-Key` was another one.
    KeyReused,
    /// The run is not in a state in which this could be done; a sentence that says in which it is.
    State(Box<str>),
    /// It may do something twice, and that was not confirmed; a sentence that says what.
    Unconfirmed(Box<str>),
    /// What is needed for it is no longer kept.
    Expired(Box<str>),
    /// The plan is not there any more, or what it counted has changed.
    PlanChanged(Box<str>),
    /// The ledger has no room.
    Full,
    /// What it stands on does not answer. It may have been done.
    Unavailable(Box<str>),
    /// A part of the ledger cannot be read; a sentence that says which one. Only an operator learns it.
    Damaged(Box<str>),
    /// A fault of ours; the log has it.
    Internal,
}

/// What somebody is asked to wait where it takes seconds.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// What a source is asked to wait whose budget is used up.
const THROTTLED_FOR: Duration = Duration::from_mins(1);

/// Faults that one answer tells. A document has at most as many nodes, and who has more reads these first.
const FAULTS_MAX: usize = 200;

impl No {
    /// The stable code, kebab-case.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Unproved => "unauthenticated",
            Self::Throttled => "source-throttled",
            Self::Scope(_) => "scope-missing",
            Self::Method(_) => "method-not-allowed",
            Self::Malformed(_) => "request-malformed",
            Self::Invalid(_) => "automation-invalid",
            Self::TooLarge { .. } => "body-too-large",
            Self::MediaType(_) => "media-type-unknown",
            Self::VersionConflict { .. } => "version-conflict",
            Self::NameTaken(_) => "name-taken",
            Self::KeyReused => "idempotency-conflict",
            Self::State(_) => "state-conflict",
            Self::Unconfirmed(_) => "confirmation-needed",
            Self::Expired(_) => "input-expired",
            Self::PlanChanged(_) => "plan-changed",
            Self::Full => "ledger-full",
            Self::Unavailable(_) => "unavailable",
            Self::Damaged(_) => "ledger-damaged",
            Self::Internal => "internal",
        }
    }

    pub fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::Unproved => 401,
            Self::Scope(_) => 403,
            Self::NotFound => 404,
            Self::Method(_) => 405,
            Self::VersionConflict { .. }
            | Self::NameTaken(_)
            | Self::KeyReused
            | Self::State(_)
            | Self::Unconfirmed(_)
            | Self::PlanChanged(_) => 409,
            Self::Expired(_) => 410,
            Self::TooLarge { .. } => 413,
            Self::MediaType(_) => 415,
            Self::Invalid(_) => 422,
            Self::Throttled => 429,
            Self::Damaged(_) | Self::Internal => 500,
            Self::Full | Self::Unavailable(_) => 503,
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::NotFound => "There is nothing of that name.",
            Self::Unproved => "A token of a tenant is needed.",
            Self::Throttled => "Too many requests from there proved nothing.",
            Self::Scope(_) => "The token may not do this.",
            Self::Method(_) => "This path takes other methods.",
            Self::Malformed(_) => "The request cannot be read.",
            Self::Invalid(_) => "The automation has faults.",
            Self::TooLarge { .. } => "The body is too large.",
            Self::MediaType(_) => "The body is of a kind that is not taken here.",
            Self::VersionConflict { .. } => "Somebody else has edited it.",
            Self::NameTaken(_) => "Another automation has this name.",
            Self::KeyReused => "The same Idempotency-Key came with another request.",
            Self::State(_) => "Its state does not allow it.",
            Self::Unconfirmed(_) => "It may do something twice.",
            Self::Expired(_) => "What it needs is no longer kept.",
            Self::PlanChanged(_) => "What was planned is not what is there.",
            Self::Full => "There is no room for more.",
            Self::Unavailable(_) => "It cannot be done at this moment.",
            Self::Damaged(_) => "A part of the ledger cannot be read.",
            Self::Internal => "Something went wrong here.",
        }
    }

    fn detail(&self) -> Option<String> {
        match self {
            Self::Scope(needed) => Some(format!("it needs the scope {}", needed.word())),
            Self::Method(allowed) => Some(format!("write {allowed}")),
            Self::TooLarge { bytes_max } => Some(format!("at most {bytes_max} bytes are taken")),
            Self::MediaType(taken) => Some(format!("send it with Content-Type: {}", taken.replace(", ", " or "))),
            Self::KeyReused => Some("its run began with another input; a new run wants a key of its own".to_owned()),
            Self::VersionConflict { last } => Some(format!("version {last} is the last one: edit that one")),
            Self::State(why) | Self::Unconfirmed(why) | Self::Expired(why) | Self::PlanChanged(why) => {
                Some(why.to_string())
            }
            Self::Unavailable(why) | Self::Damaged(why) => Some(why.to_string()),
            Self::NameTaken(name) => Some(name.to_string()),
            Self::NotFound
            | Self::Unproved
            | Self::Throttled
            | Self::Malformed(_)
            | Self::Invalid(_)
            | Self::Full
            | Self::Internal => None,
        }
    }

    fn faults(&self) -> &[DocumentFault] {
        if let Self::Malformed(faults) | Self::Invalid(faults) = self { faults } else { &[] }
    }

    /// The problem document (RFC 9457).
    #[expect(clippy::wildcard_enum_match_arm, reason = "most have no field of their own")]
    pub fn answer(&self) -> ApiAnswer {
        let mut body = json!({
            "type": "about:blank",
            "title": self.title(),
            "status": self.status(),
            "code": self.code(),
        });
        if let Some(detail) = self.detail() {
            body["detail"] = detail.into();
        }
        let faults = self.faults();
        if !faults.is_empty() {
            body["faults"] = faults.iter().take(FAULTS_MAX).map(fault).collect();
            if faults.len() > FAULTS_MAX {
                body["faultsMore"] = (faults.len() - FAULTS_MAX).into();
            }
        }
        let mut answer = ApiAnswer::json(self.status(), &body).problem();
        match self {
            Self::Unproved => answer = answer.with("WWW-Authenticate", "Bearer realm=\"tidegate\""),
            Self::Method(allowed) => answer = answer.with("Allow", *allowed),
            // RFC 9110, 15.5.16.
            Self::MediaType(taken) => answer = answer.with("Accept", *taken),
            Self::Throttled => answer = answer.with("Retry-After", THROTTLED_FOR.as_secs().to_string()),
            Self::Full | Self::Unavailable(_) => {
                answer = answer.with("Retry-After", RETRY_AFTER.as_secs().to_string());
            }
            _ => {}
        }
        answer
    }
}

fn fault(fault: &DocumentFault) -> Value {
    let mut line = json!({ "path": fault.path, "message": fault.message });
    if let Some((row, column)) = fault.place {
        line["line"] = row.into();
        line["column"] = column.into();
    }
    line
}
