//! What is known of providers' actions: how safe it is to do one again, and what their errors mean.
//!
//! It comes from connectors' manifests (`config/connectors/*.toml`) and never from an author.

mod answer;
mod assertion;
mod body;
mod catalogue;
mod classify;
mod http_request;
mod manifest_action;
mod place;
pub mod redact;
mod target;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::{ConnectionId, TenantId};
use serde_json::Value;

use crate::failure::FailureClass;
use crate::ids::EffectKey;

pub use assertion::{Assertion, contradiction};
pub use catalogue::{Configured, FromConfig};
pub use http_request::HttpRequest;
pub use manifest_action::ManifestAction;

/// Whether an action may be done again when nobody knows if it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplaySafety {
    /// Doing it twice is doing it once.
    Idempotent,
    /// The provider can be asked whether it was done.
    Checkable,
    Unsafe,
}

/// Finds actions: by tenant and connection, in the configuration that is in force now.
pub trait Connectors: Send + Sync + fmt::Debug {
    fn action(&self, tenant: &TenantId, connection: &ConnectionId, action: &str) -> Result<Arc<dyn Action>, NoAction>;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAction {
    #[error("there is no connection {0}")]
    Connection(ConnectionId),
    #[error("connector {connector} has no action {action}")]
    Action { connector: Box<str>, action: Box<str> },
}

/// One action of a connector, by its manifest.
pub trait Action: Send + Sync + fmt::Debug {
    /// Of this input: `http.request` is as safe as its method.
    fn safety(&self, input: &Value) -> ReplaySafety;

    /// What to send. The effect key stands in the idempotency header, if the manifest names one.
    fn request(&self, input: &Value, effect: EffectKey) -> Result<Request, InputFault>;

    /// How long the provider remembers the effect's key: a request that is repeated later may be done again, and is then as
    /// ambiguous as an unsafe one. None: it does not end, or the action is idempotent by itself.
    fn remembered_for(&self, input: &Value) -> Option<Duration> {
        let _ = input;
        None
    }

    /// Whether it changes something at the provider, of this input.
    fn is_effectful(&self, input: &Value) -> bool {
        let _ = input;
        true
    }

    /// Of a checkable action: how to ask whether it was done.
    fn read_back(&self, input: &Value, effect: EffectKey) -> Option<Result<Request, InputFault>>;

    /// What the read-back's answer says of this input and effect.
    fn judge_read_back(
        &self,
        input: &Value,
        effect: EffectKey,
        status: u16,
        headers: &http::HeaderMap,
        body: &Bytes,
    ) -> ReadBack;

    /// What an answer of the provider means. A throttle never comes here: egress has parked it.
    fn judge(&self, status: u16, headers: &http::HeaderMap, body: &Bytes) -> Verdict;

    /// The same of an answer of which only the beginning is kept: its class and the provider's words, if it is a failure.
    /// A rule that asks for its body says nothing of it, and where that is a rule about successes nobody knows which it is
    /// ([`FailureClass::AnswerTooLarge`]).
    fn judge_cut(
        &self,
        status: u16,
        headers: &http::HeaderMap,
        beginning: &Bytes,
    ) -> Option<(FailureClass, Option<Box<str>>)>;
}

/// A request without a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: http::Method,
    /// Path and query; begins with `/`.
    pub target: Box<str>,
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
    pub body: Bytes,
}

/// Why an input is none: which field, and what is wrong with it, in words for its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InputFault(pub Box<str>);

#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Done; what later nodes see of it.
    Done(Value),
    Failed {
        class: FailureClass,
        /// The provider's own words, redacted and cut.
        message: Option<Box<str>>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum ReadBack {
    Happened(Value),
    NotHappened,
    /// It did not tell.
    Unknown,
}

#[cfg(test)]
mod tests;
