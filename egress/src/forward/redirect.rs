//! Redirects: where the next hop would lead, and what it may carry. Pure: it plans, and others judge and dial.
//!
//! Only governed calls are followed, and only when that is asked for; to a client of the proxy a redirect is an answer
//! like any other. What is decided here comes before the judge, who sees every hop as if it had been asked for:
//!
//! - **Is it one?** 301, 302, 303, 307 and 308 with one `Location`. 300, 304, 305 and 306 are not, nor are `Refresh` and
//!   `Alt-Svc`.
//! - **Where to?** `location.rs` reads it strictly. A place that was asked in the same way before is a loop; from `https`
//!   to `http` is a step down; hosts that the rule does not name are not for these calls. All are refused.
//! - **How?** As RFC 9110, 15.4 has it and the fetch standard does it: a POST becomes a GET by 301 and 302, anything but
//!   HEAD by 303; everything else keeps its method and its body.
//! - **With what?** Within one origin (scheme, host, port), with what the caller said. To another one only what is on a
//!   short list of fields goes along. A denylist would have to know the name of every field that somebody uses for a key.
//!   What was left behind is gone: it does not come back when a later hop returns to the first origin
//!   (CVE-2024-45336). Neither does the credential.
//!
//! A body goes to another origin only where the credential would.

mod hops;
mod location;

use std::sync::Arc;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, HeaderName, USER_AGENT,
    VIA,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use outbound::{Authority, HostPattern, Scheme};
use thiserror::Error;

use crate::Asked;

pub use hops::{HopEnd, HopRecord, hops_field};
pub use location::LocationFault;

/// How redirects of a call are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectRule {
    /// How many, at most.
    pub max: u16,
    /// Hosts that see the credential and a body: the connector's own.
    pub hosts: Arc<[HostPattern]>,
    /// Hosts that a redirect may lead to beside them, with neither.
    pub elsewhere: Arc<[HostPattern]>,
    /// Whether `https` may lead to `http`; without credential and body, in any case.
    pub allows_downgrade: bool,
}

/// The hops so far.
#[derive(Debug)]
pub struct Trail {
    rule: RedirectRule,
    /// The port that the credential is for, on each of its hosts.
    port: u16,
    /// Every hop so far; none while the first may be the only one.
    seen: Vec<Seen>,
    is_trusted: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    method: Method,
    url: String,
}

/// What there is of the body that a hop had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentBody {
    /// There was none.
    Empty,
    /// It can be sent again.
    AtHand,
    /// It came and went.
    Gone,
}

/// What to make of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It is the answer.
    Answer,
    /// It is a redirect, and the answer all the same: the body cannot be sent a second time.
    BodyIsGone,
    /// There is a next hop, if the judge says yes.
    Next(NextHop),
}

/// One more hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHop {
    /// What to judge, and to ask for then.
    pub asked: Asked,
    /// Whether it stays within the origin that redirected.
    pub is_same_origin: bool,
    /// Whether it has the body that the last one had.
    pub keeps_body: bool,
}

/// Why a redirect is not followed, and is not given on either.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RedirectRefused {
    #[error("there is more than one Location")]
    TwoLocations,
    #[error("its Location {0}")]
    Location(LocationFault),
    #[error("it is one more than the {0} that are followed")]
    TooMany(u16),
    #[error("it leads in a circle")]
    Loop,
    #[error("it leads from https to http")]
    Downgrade,
    #[error("it leads to {0}, a host that the connector does not name")]
    Host(Authority),
    #[error("it would take the body to another origin")]
    BodyElsewhere,
}

impl Trail {
    /// Begins with the first hop. `rule.hosts` cover its host where it has a credential.
    pub fn new(rule: RedirectRule, first: &Asked) -> Self {
        let mut this = Self { rule, port: first.authority.port(), seen: Vec::new(), is_trusted: true };
        this.is_trusted = this.vouches_for(first);
        this
    }

    /// Whether the present hop may have the credential: it and every hop before it went to where the credential is for.
    pub fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// Hops so far, the first one included.
    pub fn hops(&self) -> usize {
        self.seen.len().max(1)
    }

    /// Plans the hop behind this one.
    pub fn next(
        &mut self,
        asked: &Asked,
        status: StatusCode,
        headers: &HeaderMap,
        body: SentBody,
    ) -> Result<Step, RedirectRefused> {
        let Some(change) = Change::of(status, &asked.method) else { return Ok(Step::Answer) };
        let mut locations = headers.get_all(http::header::LOCATION).iter();
        let Some(location) = locations.next().map(HeaderValue::as_bytes) else { return Ok(Step::Answer) };
        if locations.next().is_some() {
            return Err(RedirectRefused::TwoLocations);
        }
        if self.seen.is_empty() {
            self.seen.push(Seen::of(asked));
        }
        if self.seen.len() > usize::from(self.rule.max) {
            return Err(RedirectRefused::TooMany(self.rule.max));
        }
        let mut next = location::resolve(asked, location).map_err(RedirectRefused::Location)?;
        if change == Change::ToGet {
            next.method = Method::GET;
        }
        let keeps_body = change == Change::Nothing && body != SentBody::Empty;
        self.judge(asked, &next, keeps_body)?;
        if keeps_body && body == SentBody::Gone {
            return Ok(Step::BodyIsGone);
        }
        self.is_trusted &= self.vouches_for(&next);
        self.seen.push(Seen::of(&next));
        Ok(Step::Next(NextHop { is_same_origin: is_same_origin(asked, &next), asked: next, keeps_body }))
    }

    fn judge(&self, asked: &Asked, next: &Asked, keeps_body: bool) -> Result<(), RedirectRefused> {
        if self.seen.contains(&Seen::of(next)) {
            return Err(RedirectRefused::Loop);
        }
        if asked.scheme == Scheme::Https && next.scheme == Scheme::Http && !self.rule.allows_downgrade {
            return Err(RedirectRefused::Downgrade);
        }
        let is_named = |patterns: &[HostPattern]| patterns.iter().any(|host| host.covers(next.authority.host()));
        if !is_named(&self.rule.hosts) && !is_named(&self.rule.elsewhere) {
            return Err(RedirectRefused::Host(next.authority.clone()));
        }
        let may_have_body = is_same_origin(asked, next) || (self.is_trusted && self.vouches_for(next));
        if keeps_body && !may_have_body {
            return Err(RedirectRefused::BodyElsewhere);
        }
        Ok(())
    }

    fn vouches_for(&self, asked: &Asked) -> bool {
        asked.scheme == Scheme::Https
            && asked.authority.port() == self.port
            && self.rule.hosts.iter().any(|host| host.covers(asked.authority.host()))
    }
}

impl NextHop {
    /// Takes out of the caller's fields what the next hop does not get. What is gone stays gone for every hop behind.
    pub fn narrow(&self, headers: &mut HeaderMap) {
        if !self.keeps_body {
            remove_where(headers, is_about_body);
        }
        if !self.is_same_origin {
            remove_where(headers, |name| !goes_anywhere(name));
        }
    }
}

impl Seen {
    fn of(asked: &Asked) -> Self {
        let url = format!("{}://{}{}", asked.scheme.as_str(), asked.authority, asked.path_and_query);
        Self { method: asked.method.clone(), url }
    }
}

/// What a redirect does to the method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Nothing,
    ToGet,
}

impl Change {
    /// None if it is none.
    fn of(status: StatusCode, method: &Method) -> Option<Self> {
        Some(match status {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND if *method == Method::POST => Self::ToGet,
            StatusCode::SEE_OTHER if *method != Method::HEAD => Self::ToGet,
            StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT => Self::Nothing,
            _ => return None,
        })
    }
}

fn is_same_origin(one: &Asked, other: &Asked) -> bool {
    one.scheme == other.scheme && one.authority == other.authority
}

/// What says nothing about who asks.
fn goes_anywhere(name: &HeaderName) -> bool {
    let names =
        [ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, USER_AGENT, VIA];
    names.contains(name)
}

fn is_about_body(name: &HeaderName) -> bool {
    name.as_str().starts_with("content-") || matches!(name.as_str(), "digest" | "repr-digest" | "expect")
}

fn remove_where(headers: &mut HeaderMap, is_out: impl Fn(&HeaderName) -> bool) {
    let out: Vec<HeaderName> = headers.keys().filter(|name| is_out(name)).cloned().collect();
    for name in out {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests;
