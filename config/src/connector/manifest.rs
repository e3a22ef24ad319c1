//! One manifest: its keys, and what they mean together.

use std::path::Path;
use std::time::Duration;

use domain::ConnectorId;

use super::action::{self, ActionSpec, ActionTable, Around};
use super::errors::{self, ErrorRules, ErrorsTable};
use super::headers::{HeaderList, HeaderPattern, pattern};
use super::quota::{self, MatchTable, QuotaProfile, QuotaTable, RequestMatch};
use crate::document::{Document, Text as Written};
use crate::egress::{connector_id, header, host_text, parameter};
use crate::fault::Fault;
use crate::form::{
    AtLine, Choice, Count, Flag, Lined, List, Located, Maybe, Placed, Settings, Span, Table, Text, needed, settings,
    text,
};
use crate::units::{days, seconds};

/// Far above any provider's that is written by hand.
const ACTIONS_MAX: usize = 256;

/// The connector of providers that have none: its hosts are those of each connection's `base_url`.
pub const GENERIC: &str = "http";

/// What all connections to one provider share.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    pub connector: ConnectorId,
    /// The provider, as people write it.
    pub title: Box<str>,
    /// Where this was read.
    pub sources: Box<[Box<str>]>,
    /// When it was last compared with its sources: `YYYY-MM-DD`.
    pub checked: Box<str>,
    /// Hosts and headers that its sources do not say: known from answers and from SDKs.
    pub not_in_sources: Box<[Box<str>]>,
    /// What somebody should know, in a sentence; may be empty.
    pub note: Box<str>,
    /// Hosts that a connection may be to and that see its credential. Judged by the parser of hosts. Empty for
    /// [`GENERIC`] alone.
    pub hosts: Box<[AtLine<String>]>,
    pub auth: AuthSlot,
    /// What travels to the provider.
    pub request_headers: HeaderList,
    /// What comes back.
    pub response_headers: HeaderList,
    pub redirects: Redirects,
    /// Header, in lower case, by which the provider tells a repeated request; none where it documents none.
    pub idempotency_header: Option<Box<str>>,
    /// Requests that the provider does twice, whatever their method.
    pub repeats: Box<[RequestMatch]>,
    /// Which requests the idempotency header covers, by their path behind the base URL; empty: each POST and PATCH.
    pub idempotency_for: Box<[RequestMatch]>,
    /// How long the provider remembers a key; none: for good, as far as it says.
    pub idempotency_window: Option<Duration>,
    /// Headers, in lower case, by which the provider names a request in its own logs; they are recorded.
    pub correlation_headers: Box<[Box<str>]>,
    /// Whether its hosts may be reached through a tunnel, where nothing of this holds.
    pub tunnel: bool,
    /// What counts as a failure for the breaker of a tenant's calls; empty: it has none.
    pub breaker_faults: Box<[BreakerFault]>,
    /// Its limits, and how its answers speak of them; [`QuotaProfile::unknown`] where the manifest says nothing.
    pub quota: Box<QuotaProfile>,
    /// What can be done there, beside [`action::HTTP_REQUEST`].
    pub actions: Box<[ActionSpec]>,
    /// What its answers mean.
    pub errors: Box<ErrorRules>,
}

/// A way in which calls to a provider can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerFault {
    /// The name could not be resolved.
    Dns,
    /// No connection.
    Connect,
    /// No TLS.
    Tls,
    /// No answer in time.
    Timeout,
    /// The answer broke off, or was none.
    Broken,
    /// A status of 500 to 599 that is no throttle.
    ServerError,
}

impl BreakerFault {
    pub const ALL: [Self; 6] = [Self::Dns, Self::Connect, Self::Tls, Self::Timeout, Self::Broken, Self::ServerError];
}

/// Where the provider's SDKs put their key: there a grant comes in, and from there it is taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthSlot {
    /// `Authorization: Bearer …`.
    Bearer,
    /// The user of basic authentication.
    BasicUser,
    /// The password of basic authentication.
    BasicPassword,
    /// A header of its own, in lower case.
    Header(Box<str>),
    /// A query parameter.
    Query(Box<str>),
}

/// What becomes of a redirect.
#[derive(Debug, Clone, PartialEq)]
pub struct Redirects {
    /// It is followed; else it is the answer.
    pub follow: bool,
    /// How many, at most.
    pub max: u8,
    /// Where they may lead beside the connector's own hosts, without a credential. Judged by the parser of hosts.
    pub hosts: Box<[AtLine<String>]>,
    /// They may lead from `https` to `http`, without a credential.
    pub downgrade: bool,
}

/// Headers whose values let somebody in, whoever the provider is.
pub(super) const CREDENTIALS: &[&str] = &["authorization", "cookie", "proxy-authorization", "set-cookie"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Bearer,
    BasicUser,
    BasicPassword,
    Header,
    Query,
}

settings! {
    /// A connector's manifest, `NAME.toml`.
    pub(crate) struct ManifestTable {
        /// Its name: that of the file without `.toml`.
        connector: Option<Located<ConnectorId>> = None, needed(Maybe(Placed(connector_id()))), live,
            "Connections refer to it.";
        /// The provider, as people write it.
        title: String = String::new(), needed(sentence()), live, "For people.";
        /// Where this was read: URLs.
        sources: Vec<String> = Vec::new(), List(sentence(), 0..=16), live, "Whoever doubts can look.";
        /// When it was last compared with its sources: `YYYY-MM-DD`.
        checked: String = String::new(), date(), live, "Providers change.";
        /// Hosts and headers of this file that its sources do not say: known from answers and from SDKs.
        not_in_sources: Vec<String> = Vec::new(), List(sentence(), 0..=64), live, "What is documented is promised; what is not may go without notice.";
        /// What somebody should know, in a sentence.
        note: String = String::new(), sentence(), live, "For people.";
        /// Hosts that a connection may be to and that see its credential; `*.zone` where each customer has one.
        hosts: Vec<AtLine<String>> = Vec::new(), List(Lined(host_text()), 0..=256), live,
            "Only `http` has none: there the host of `base_url` is the only one.";
        /// Where the provider's SDKs put their key.
        auth: Option<Located<AuthTable>> = None, Maybe(Placed(Table)), live, "";
        /// Which headers travel beside the usual ones.
        headers: HeadersTable = HeadersTable::default(), Table, live, "";
        /// What becomes of redirects.
        redirects: RedirectsTable = RedirectsTable::default(), Table, live, "";
        /// Header by which the provider tells a repeated request. It travels.
        idempotency_header: Option<String> = None, Maybe(header()), live,
            "Only where the provider documents one: a retry relies on it.";
        /// Which requests it covers, by their whole path behind `base_url`; `*` is any segment, and behind one that ends in `/` comes anything.
        idempotency_for: Vec<Located<MatchTable>> = Vec::new(), List(Placed(Table), 0..=16), live,
            "Empty: each POST and PATCH. Some providers read the header at a few places, and elsewhere do things twice.";
        /// Requests that it does twice though their method is idempotent, by beginnings of their path behind `base_url`.
        repeats: Vec<MatchTable> = Vec::new(), List(Table, 0..=32), live,
            "Some providers create by PUT, or do by GET whatever they do. Those of actions that are not idempotent count anyway.";
        /// How long the provider remembers a key.
        idempotency_window: Option<Located<Duration>> = None, Maybe(Placed(Span(seconds(60)..=days(3660)))), live,
            "After it, the same key does a thing again. Without it, for good.";
        /// Headers of answers by which the provider names a request in its own logs. They travel, and are recorded.
        correlation_headers: Vec<AtLine<String>> = Vec::new(), List(Lined(header()), 0..=8), live,
            "What a provider's support asks for first.";
        /// Whether its hosts may be reached through a tunnel too, where policy allows it.
        tunnel: bool = false, Flag, live,
            "A tunnel evades quota, credentials and evidence.";
        /// What counts as a failure for the breaker of a tenant's calls to it; an empty list is no breaker.
        breaker_faults: Vec<BreakerFault> = BreakerFault::ALL.to_vec(), List(breaker_fault(), 0..=6), live,
            "A provider that says 500 for bad input works: leave `server-error` out.";
        /// Its limits, and how its answers speak of them.
        quota: Option<QuotaTable> = None, Maybe(Table), live,
            "Without it nothing is limited here; what any answer says in a standard form counts all the same.";
        /// What its answers mean.
        errors: Option<Located<ErrorsTable>> = None, Maybe(Placed(Table)), live, "Without it, what their status means (RFC 9110).";
        /// What can be done there.
        action: Vec<Located<ActionTable>> = Vec::new(), List(Placed(Table), 0..=ACTIONS_MAX), live,
            "`http.request` is there for every connection.";
    }

    /// Where the provider's SDKs put their key.
    pub(crate) struct AuthTable {
        /// `bearer`, `basic-user`, `basic-password`, `header` or `query`.
        slot: Option<Slot> = None, needed(Maybe(slot())), live,
            "A grant comes in where the SDK puts its key, so that the SDK works as it is.";
        /// Of `header`: its name.
        header: Option<Located<String>> = None, Maybe(Placed(header())), live, "The provider decides.";
        /// Of `query`: the parameter's name.
        parameter: Option<Located<String>> = None, Maybe(Placed(parameter())), live, "The provider decides.";
    }

    /// Which headers travel beside those that any request and any answer may have.
    pub(crate) struct HeadersTable {
        /// To the provider; `name`, `beginning-*`, or `*` for all.
        request: Vec<HeaderPattern> = Vec::new(), List(pattern(), 0..=128), live,
            "What is not listed stays here: cookies, forwarded addresses, another provider's key.";
        /// Back to the caller.
        response: Vec<HeaderPattern> = Vec::new(), List(pattern(), 0..=128), live,
            "What is not listed stays here, cookies above all.";
    }

    /// What becomes of redirects.
    pub(crate) struct RedirectsTable {
        /// Whether they are followed here; else the caller gets them as the answer.
        follow: bool = false, Flag, live, "An API that redirects is rare, and its clients follow.";
        /// How many, at most.
        max: u8 = 5, Count(1..=20), live, "As `egress.limits.redirects_max`, which holds too.";
        /// Where they may lead beside `hosts`; the credential does not go there.
        hosts: Vec<AtLine<String>> = Vec::new(), List(Lined(host_text()), 0..=64), live,
            "Downloads often are on a storage service.";
        /// Whether they may lead from `https` to `http`, without credential and body.
        downgrade: bool = false, Flag, live, "Anybody on the way reads what is behind it, and may change it.";
    }
}

const fn slot() -> Choice<Slot> {
    Choice(&[
        ("bearer", Slot::Bearer),
        ("basic-user", Slot::BasicUser),
        ("basic-password", Slot::BasicPassword),
        ("header", Slot::Header),
        ("query", Slot::Query),
    ])
}

const fn breaker_fault() -> Choice<BreakerFault> {
    Choice(&[
        ("dns", BreakerFault::Dns),
        ("connect", BreakerFault::Connect),
        ("tls", BreakerFault::Tls),
        ("timeout", BreakerFault::Timeout),
        ("broken", BreakerFault::Broken),
        ("server-error", BreakerFault::ServerError),
    ])
}

pub(super) const fn sentence() -> Text<String> {
    text(
        "text",
        "Stripe",
        |text| {
            if text.len() <= 500 && !text.chars().any(char::is_control) {
                Ok(text.to_owned())
            } else {
                Err("has more than 500 bytes, or a control character".into())
            }
        },
        String::clone,
    )
}

pub(super) const fn date() -> Text<String> {
    text(
        "date",
        "2026-11-29",
        |text| match text.parse::<jiff::civil::Date>() {
            Ok(date) if date.to_string() == text => Ok(text.to_owned()),
            _ => Err(format!("{text:?} is no date; write it as \"2026-11-29\"")),
        },
        String::clone,
    )
}

impl Manifest {
    /// Reads a manifest. `expected` is the connector that the file may speak for. It is there unless a fault is an error.
    pub(crate) fn parse(path: &Path, expected: &ConnectorId, bytes: &[u8]) -> (Option<Self>, Vec<Fault>) {
        let text = Written::new(bytes);
        let (mut document, table) = Document::parse(path, &text);
        let read = ManifestTable::read(&mut document, table.get_ref(), 0..0);
        let manifest = build(&mut document, read, expected);
        (manifest.filter(|_| !document.has_errors()), document.into_faults())
    }

    /// The action of this name.
    pub fn action(&self, name: &str) -> Option<&ActionSpec> {
        self.actions.iter().find(|action| *action.name == *name)
    }

    /// Whether its hosts are those of each connection.
    pub fn is_generic(&self) -> bool {
        self.hosts.is_empty()
    }
}

fn build(document: &mut Document<'_>, table: ManifestTable, expected: &ConnectorId) -> Option<Manifest> {
    if let Some(id) = table.connector.as_ref().filter(|id| id.value != *expected) {
        let message =
            format!("is \"{}\" in the file of \"{expected}\"; a manifest's file is named {}.toml", id.value, id.value);
        document.within("connector", |document| document.fault(id.span.clone(), message));
    }
    let generic = expected.as_str() == GENERIC;
    if table.hosts.is_empty() && !generic {
        let message = "names no host, so no connection could be made; only the connector \"http\" has none";
        document.within("hosts", |document| document.missing(0..0, message));
    }
    if !table.hosts.is_empty() && generic {
        let message = "are those of each connection; a connector with hosts of its own has another name than \"http\"";
        document.within("hosts", |document| document.fault_in_line(table.hosts[0].line, message));
    }
    check_idempotency(document, &table);
    let auth = document.within("auth", |document| build_auth(document, table.auth, generic));
    let profile = table.quota.map(|table| document.within("quota", |document| quota::build(document, table)));
    let correlation = table.correlation_headers;
    document.within("correlation_headers", |document| check_correlation(document, &correlation, auth.as_ref()));
    let errors = table
        .errors
        .map(|table| document.within("errors", |document| errors::build(document, table.value, &table.span)));
    let mut request = table.headers.request;
    request.extend(table.idempotency_header.iter().map(|name| HeaderPattern::exactly(name)));
    let mut response = table.headers.response;
    response.extend(correlation.iter().map(|name| HeaderPattern::exactly(&name.value)));
    let auth = auth?;
    let request_headers = HeaderList::request(request);
    let idempotency_for: Box<[RequestMatch]> = table.idempotency_for.into_iter().map(|one| one.value.into()).collect();
    let around = Around {
        travels: &request_headers,
        auth: &auth,
        idempotency_header: table.idempotency_header.as_deref(),
        idempotency_for: &idempotency_for,
    };
    let actions = document.within("action", |document| action::build(document, table.action, &around));
    Some(Manifest {
        connector: table.connector?.value,
        title: table.title.into(),
        sources: table.sources.into_iter().map(Into::into).collect(),
        checked: table.checked.into(),
        not_in_sources: table.not_in_sources.into_iter().map(Into::into).collect(),
        note: table.note.into(),
        hosts: table.hosts.into(),
        auth,
        request_headers,
        response_headers: HeaderList::response(response),
        redirects: Redirects {
            follow: table.redirects.follow,
            max: table.redirects.max,
            hosts: table.redirects.hosts.into(),
            downgrade: table.redirects.downgrade,
        },
        idempotency_header: table.idempotency_header.map(Into::into),
        idempotency_for,
        repeats: table.repeats.into_iter().map(Into::into).collect(),
        idempotency_window: table.idempotency_window.map(|window| window.value),
        correlation_headers: correlation.into_iter().map(|name| name.value.into()).collect(),
        tunnel: table.tunnel,
        breaker_faults: table.breaker_faults.into(),
        quota: Box::new(profile.unwrap_or_else(QuotaProfile::unknown)),
        actions,
        errors: Box::new(errors.unwrap_or_default()),
    })
}

/// What speaks of the header needs one.
fn check_idempotency(document: &mut Document<'_>, table: &ManifestTable) {
    if table.idempotency_header.is_some() || !document.is_sound("idempotency_header") {
        return;
    }
    let first = table.idempotency_for.first().map(|one| &one.span);
    let window = table.idempotency_window.as_ref().map(|window| &window.span);
    for (key, span) in [("idempotency_for", first), ("idempotency_window", window)] {
        if let Some(span) = span {
            let message = "says something of idempotency_header, which is not there; add it, or take this out";
            document.within(key, |document| document.fault(span.clone(), message));
        }
    }
}

/// They are recorded: what lets somebody in has no place there.
fn check_correlation(document: &mut Document<'_>, names: &[AtLine<String>], auth: Option<&AuthSlot>) {
    for AtLine { value: name, line } in names {
        let is_slot = matches!(auth, Some(AuthSlot::Header(slot)) if **slot == **name);
        if is_slot || CREDENTIALS.contains(&name.as_str()) {
            document
                .fault_in_line(*line, format!("\"{name}\" carries credentials, and would be recorded; take it out"));
        }
    }
}

fn build_auth(document: &mut Document<'_>, table: Option<Located<AuthTable>>, generic: bool) -> Option<AuthSlot> {
    let Some(Located { span, value: AuthTable { slot, header, parameter }, .. }) = table else {
        if generic {
            return Some(AuthSlot::Bearer);
        }
        document.missing(0..0, "is missing; write `auth = { slot = \"bearer\" }`, or where else SDKs put their key");
        return None;
    };
    let slot = slot?;
    for (key, of, name, written) in
        [("header", Slot::Header, "header", &header), ("parameter", Slot::Query, "query", &parameter)]
    {
        document.within(key, |document| match written {
            Some(written) if slot != of => {
                document.fault(written.span.clone(), format!("belongs to slot = \"{name}\"; take it out"));
            }
            None if slot == of => {
                document.missing(span.clone(), format!("is missing, and slot = \"{name}\" needs it"));
            }
            Some(_) | None => {}
        });
    }
    Some(match slot {
        Slot::Bearer => AuthSlot::Bearer,
        Slot::BasicUser => AuthSlot::BasicUser,
        Slot::BasicPassword => AuthSlot::BasicPassword,
        Slot::Header => AuthSlot::Header(header?.value.into()),
        Slot::Query => AuthSlot::Query(parameter?.value.into()),
    })
}
