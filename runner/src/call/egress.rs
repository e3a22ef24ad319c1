//! Calls through egress, as any caller makes them: `/c/{connection}{target}` with a call grant of the run in
//! `Tidegate-Grant`, over HTTP/1.1.
//!
//! What is known of a call is what egress says of it (`docs/egress.md`). Where egress itself cannot be asked, or the
//! connection to it breaks, this says the least that is certain: nothing was sent only while no byte of the request was
//! handed over. An answer without `Tidegate-Send-State` is none of egress', whoever has given it, and proves nothing.

mod answer;
mod body;
mod budget;
mod grants;
mod pool;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::{Clock, ConnectionId, TenantId};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderName, HeaderValue, Request, Uri};
use http_body_util::Full;
use tokio::time::Instant;

use super::{Answer, Call, Caller, Reply};
use crate::ledger::{BoxFuture, SendState};

pub use grants::{GrantFor, Grants, Minted, NoGrant};
pub use pool::{Dial, Stream};

const GRANT: HeaderName = HeaderName::from_static("tidegate-grant");
const ATTEMPT: HeaderName = HeaderName::from_static("tidegate-attempt");

/// Bounds of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressSettings {
    /// What stands in `Host`: egress' own authority.
    pub authority: Box<str>,
    /// Largest answer that is kept whole. Of a longer one this is kept, and what is beyond is only counted and hashed, so
    /// that its length and digest are those of the original.
    pub answer_bytes_max: usize,
    /// So much of an answer is read at all; one that goes on then is not read to its end.
    pub read_bytes_max: u64,
    /// For reading what is beyond the part that is kept: the answer is known, and its step should not wait for what nobody
    /// keeps.
    pub beyond_for: Duration,
    /// Connections to egress, of all runs.
    pub connections_max: usize,
    /// Those of them that nobody uses.
    pub idle_max: usize,
    /// How long an idle one is kept; shorter than egress keeps it.
    pub idle_for: Duration,
}

impl EgressSettings {
    pub fn new(authority: &str) -> Self {
        Self {
            authority: authority.into(),
            answer_bytes_max: 8 << 20,
            read_bytes_max: 64 << 20,
            beyond_for: Duration::from_secs(10),
            connections_max: 1_024,
            idle_max: 512,
            idle_for: Duration::from_secs(20),
        }
    }
}

/// Makes calls through egress.
#[derive(Debug)]
pub struct EgressCaller {
    settings: EgressSettings,
    host: HeaderValue,
    clock: Arc<dyn Clock>,
    pool: pool::Pool,
    grants: grants::Kept,
    budget: budget::Budget,
}

/// The authority is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("egress' authority cannot stand in a `Host` field")]
pub struct BadAuthority;

impl EgressCaller {
    pub fn new(
        settings: EgressSettings,
        clock: Arc<dyn Clock>,
        dial: Arc<dyn Dial>,
        grants: Arc<dyn Grants>,
    ) -> Result<Self, BadAuthority> {
        let host = HeaderValue::from_str(&settings.authority).map_err(|_| BadAuthority)?;
        Ok(Self {
            host,
            pool: pool::Pool::new(dial, &settings),
            grants: grants::Kept::new(grants, Arc::clone(&clock)),
            budget: budget::Budget::new(Arc::clone(&clock)),
            settings,
            clock,
        })
    }

    async fn make(&self, call: &Call) -> Answer {
        if let Some(release_unix_ms) = self.budget.spent(call) {
            return Answer::not_sent(Reply::Parked { release_unix_ms, source: super::ParkSource::Quota, status: None });
        }
        let ends_at = Instant::now() + call.timeout;
        let mut again = true;
        loop {
            let answer = self.make_once(call, ends_at).await;
            let is_unknown = matches!(&answer.reply, Reply::Refused { code, .. } if **code == *"caller-unknown");
            if is_unknown && answer.send_state == SendState::NotSent && again {
                // It ended while it was on its way, or its key was exchanged: a new one is made, once.
                self.grants.forget(call);
                again = false;
                continue;
            }
            return answer;
        }
    }

    async fn make_once(&self, call: &Call, ends_at: Instant) -> Answer {
        let (mut sender, request) = match tokio::time::timeout_at(ends_at, self.get_ready(call)).await {
            Ok(Ok(ready)) => ready,
            Ok(Err(answer)) => return answer,
            Err(_) => return Answer::not_sent(failed("egress-unreachable", "no connection in time")),
        };
        let sent = tokio::time::timeout_at(ends_at, sender.send(request)).await;
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(fault)) if fault.is_unsent => {
                return Answer::not_sent(failed("egress-unreachable", &fault.detail));
            }
            Ok(Err(fault)) => return Answer::sent(failed("egress-broken", &fault.detail)),
            Err(_) => return Answer::sent(failed("egress-timeout", "no answer in time")),
        };
        let (parts, body) = response.into_parts();
        let read = body::read(body, &self.settings, ends_at).await;
        let is_at_end = read.as_ref().is_ok_and(|(_, cut)| cut.is_none_or(|cut| cut.is_whole));
        let (answer, left) = answer::read(parts, read, self.clock.unix_ms());
        self.budget.heard(call, left);
        if is_at_end && matches!(answer.reply, Reply::Response { .. } | Reply::Parked { .. }) {
            self.pool.put_back(sender);
        }
        answer
    }

    /// A connection and a request for it. Nothing is sent yet.
    async fn get_ready(&self, call: &Call) -> Result<(pool::Sender, Request<Full<Bytes>>), Answer> {
        let grant = self.grants.of(call).await.map_err(|no| {
            tracing::error!(tenant = %call.tenant, %no, "no call grant can be made");
            Answer::not_sent(failed("egress-grant", "no call grant can be made"))
        })?;
        let request = self.request(call, grant).map_err(|detail| {
            let code = "target-malformed".into();
            Answer::not_sent(Reply::Refused { code, detail: detail.into(), retry_after: None })
        })?;
        let sender =
            self.pool.take().await.map_err(|detail| Answer::not_sent(failed("egress-unreachable", &detail)))?;
        Ok((sender, request))
    }

    fn request(&self, call: &Call, grant: HeaderValue) -> Result<Request<Full<Bytes>>, &'static str> {
        if !call.target.starts_with('/') {
            return Err("the path begins with `/`");
        }
        // A fragment would be dropped without a word.
        if !call.target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err("the path has characters that must be percent-encoded");
        }
        let target = format!("/c/{}{}", call.connection, call.target);
        let target = Uri::try_from(target).map_err(|_| "the path has characters that must be percent-encoded")?;
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = target;
        let fields = request.headers_mut();
        for (name, value) in call.headers.iter().filter(|(name, _)| !is_ours(name)) {
            fields.append(name.clone(), value.clone());
        }
        fields.insert(HOST, self.host.clone());
        fields.insert(GRANT, grant);
        if call.attempt > 1 {
            fields.insert(ATTEMPT, HeaderValue::from_static("retry"));
        } else if call.is_after_park {
            fields.insert(ATTEMPT, HeaderValue::from_static("after-park"));
        }
        Ok(request)
    }
}

impl Caller for EgressCaller {
    fn call(&self, call: Call) -> BoxFuture<'_, Answer> {
        Box::pin(async move { self.make(&call).await })
    }
}

/// Fields that this client sets, or that only egress may be told by us.
fn is_ours(name: &HeaderName) -> bool {
    [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE].contains(name)
        || name.as_str().starts_with("tidegate-")
}

fn failed(code: &str, detail: &str) -> Reply {
    Reply::Failed { code: code.into(), detail: detail.into() }
}

impl Answer {
    /// Not one byte of the request was handed over.
    fn not_sent(reply: Reply) -> Self {
        Self { send_state: SendState::NotSent, correlation: None, reply }
    }

    /// It was handed over, and nobody has said what came of it.
    fn sent(reply: Reply) -> Self {
        Self { send_state: SendState::SentNoResponse, correlation: None, reply }
    }
}

/// Whose limit on retries is meant: egress counts them by tenant and provider, and a connection is at one provider.
type Budgeted = (TenantId, ConnectionId);

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}", self.method, self.connection, self.run)
    }
}

#[cfg(test)]
mod tests;
