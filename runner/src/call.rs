//! The door that every call goes through: the engine's one port to the outside.

pub mod egress;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::{ConnectionId, TenantId};

use crate::ids::{AutomationId, RunId};
use crate::ledger::{BoxFuture, SendState};

/// Makes calls. In production it is egress, over the network, as any caller reaches it; in tests it is a provider that
/// counts effects. Dropping the future ends the call, and the provider may have got it.
pub trait Caller: Send + Sync + fmt::Debug {
    fn call(&self, call: Call) -> BoxFuture<'_, Answer>;
}

/// A request to a provider, by the connection that it goes through. It holds no credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub tenant: TenantId,
    pub connection: ConnectionId,
    pub run: RunId,
    pub automation: AutomationId,
    /// It gives way to others' calls of the same tenant.
    pub is_bulk: bool,
    pub method: http::Method,
    /// Path and query behind the connection's base URL; begins with `/`.
    pub target: Box<str>,
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
    pub body: Bytes,
    /// For all of it.
    pub timeout: Duration,
    /// Which try of its asking this is, from 1; egress counts retries by it.
    pub attempt: u32,
    /// It was put off before: it is made again and is no retry.
    pub is_after_park: bool,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub send_state: SendState,
    /// By what name egress knows it.
    pub correlation: Option<Box<str>>,
    pub reply: Reply,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The provider answered. Of a body that is longer than the caller's bound this is the beginning, and `cut` says of what.
    Response { status: u16, headers: Arc<http::HeaderMap>, body: Bytes, cut: Option<Cut> },
    /// Not now, and when: the provider, quota or a breaker says so.
    /// The status is the provider's, where it answered: a 429 has done nothing, and a 503 may have.
    Parked { release_unix_ms: u64, source: ParkSource, status: Option<u16> },
    /// Egress said no. The code is one of its refusals.
    Refused { code: Box<str>, detail: Box<str>, retry_after: Option<Duration> },
    /// No whole answer: the code is that of egress, or ours where egress itself could not be asked.
    Failed { code: Box<str>, detail: Box<str> },
}

/// What is known of a body of which only the beginning is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Its length, or as much of it as was read.
    pub bytes: u64,
    /// BLAKE3 of so much of it.
    pub digest: [u8; 32],
    /// It was read to its end: length and digest are those of the original.
    pub is_whole: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkSource {
    Provider,
    Quota,
    Breaker,
}
