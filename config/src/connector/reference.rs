//! `docs/connectors.md`: what is known of each provider, and where it was read, from the manifests that are shipped.

use std::fmt::Write;

use super::Catalogue;
use super::action::{ActionSpec, ReplayClass};
use super::errors::{ErrorClass, ErrorRule, ErrorRules};
use super::headers::{REQUEST, RESPONSE};
use super::manifest::{AuthSlot, Manifest, ManifestTable};
use super::quota::{Penalty, QuotaKind, QuotaLimit, QuotaProfile, QuotaUnit, Zone};
use crate::form::Settings;
use crate::reference::section;
use crate::units::format_duration;

const INTRODUCTION: &str = "\
# Connectors

<!-- Made from config/connectors; `TIDEGATE_BLESS=1 cargo test -p tidegate-config` writes it anew. -->

A connector is what all connections to one provider share: its hosts, where its SDKs put their key, which headers travel,
what becomes of redirects. A tenant's `[[connection]]` names one, and is called as `/c/{connection}/…`:

```toml
[[connection]]
id = \"conn_stripe\"
connector = \"stripe\"
base_url = \"https://api.stripe.com\"
credential = \"cred_44\"

[[credential]]
id = \"cred_44\"
kind = \"bearer\"
value = \"secret:stripe\"
```

- The host of `base_url` is one of the connector's hosts. The credential goes to those hosts and nowhere else, on the
  first hop and on every redirect.
- A header travels if the lists below name it, in either direction. All others stay here.
- A provider's hosts are not reached through a tunnel (CONNECT), which would evade all of this, unless its manifest says
  `tunnel = true`, or a rule that allows the host says `methods = [\"CONNECT\"]`.
- A provider that has no connector is called with `http`, or gets a manifest of your own.

## Limits

What becomes of them is said in [quota](quota.md).

Where a manifest has a quota profile, the table of its connector below says what the provider limits, at which level, for
the tier that allows least; other tiers stand behind it. Which tier an account has is in no answer: the operator's file says
it for the connector (`[[egress.quota]]`), a connection says its own (`quota_tier`, and lower caps as `quota`). A tenant's
file lowers; more than the profile's first tier only the operator's file allows.

```toml
# tidegate.toml                              # tenants/acme.toml
[[egress.quota]]                             [[connection]]
connector = \"hubspot\"                        id = \"conn_hubspot\"
tenant_tiers = [\"professional\"]              connector = \"hubspot\"
                                             base_url = \"https://api.hubapi.com\"
                                             quota_tier = \"professional\"
                                             quota = [{ limit = \"daily\", cap = 50000 }]
```

How a time is written is never guessed: a header counts in the form that the profile names, and one that the profile does
not know only where it can mean one thing. `Retry-After`, `RateLimit` and `RateLimit-Policy` are read of every provider.

## Actions

What a connector's actions are called with, and whether one may be done again when nobody knows if it was done (after a
crash, or where no answer came), its manifest says:

- `idempotent`: doing it twice is doing it once, by its nature or by a key that the provider tells a repeated request by.
  It is tried again.
- `checkable`: it is not, but the provider can be asked whether it was done; then it is asked first.
- `unsafe`: nobody can know. It is not tried again, and a person decides.

No automation says this for an action: its `idempotent` and `effectful` are held against the manifest, and one that
contradicts it is refused. An action whose class is another than that of its method (RFC 9110, section 9.2.2) gives its
reason. Every connection also has `http.request`, any request at all: GET, HEAD, OPTIONS, PUT and DELETE are idempotent,
POST and PATCH are where the connector's idempotency header covers them, and else unsafe. A request that the connector
knows to be done twice (`repeats`, or an action of that method and path that is not idempotent) is unsafe whatever its
method, and so is one that names another method in a parameter or a header.

The input is an object of the action's schema. Members that the path, the query and the headers name go there; `{*}` is all
others. A text that is `{effect.key}`, `{effect.hex}` or `{effect.uuid}` is the key of the effect, the same for every try
and another for every replay. A value in a path is percent-encoded within its segment; one with a slash is refused.

What answers mean is in [failures](failures.md). The rules of a connector come first, then what the status says. Actions and
rules marked as recalled were compared with no document of the provider; where one is wrong, a manifest of your own takes its
place.

## Your own

`connectors.directory` of the appliance's file names a directory of manifests, `NAME.toml` each. One with the name of a
connector that comes with Tidegate takes its place. They are read again when the appliance's file is; while one of them is
faulty, those before stay in force. `tidegate check` says what is wrong, with file and line.

```toml
# connectors/acme-billing.toml
connector = \"acme-billing\"
title = \"Acme's billing system\"
hosts = [\"billing.example.com\"]
correlation_headers = [\"X-Trace-Id\"]

[auth]
slot = \"header\"
header = \"X-Api-Key\"

[headers]
request = [\"X-Account\"]
```
";

/// The text of `docs/connectors.md`.
pub fn connectors_markdown(catalogue: &Catalogue) -> String {
    let mut out = INTRODUCTION.to_owned();
    section(&mut out, &ManifestTable::rows(), 3);
    out.push_str("\n## Headers of every connector\n\n");
    // Writing to a string cannot fail.
    write!(out, "To the provider: {}.\n\nBack to the caller: {}.\n", code(REQUEST), code(RESPONSE)).unwrap_or_default();
    out.push_str("\n## Those that come with Tidegate\n\n");
    out.push_str("| connector | provider | hosts | a grant comes in as | idempotency | named in answers by |\n|---|---|---|---|---|---|\n");
    for manifest in catalogue.manifests() {
        writeln!(
            out,
            "| [`{}`](#{}) | {} | {} | {} | {} | {} |",
            manifest.connector,
            manifest.connector,
            manifest.title,
            hosts(manifest),
            slot(&manifest.auth),
            manifest.idempotency_header.as_deref().map_or_else(|| "none documented".into(), |name| code(&[name])),
            code_or(&manifest.correlation_headers, "none known"),
        )
        .unwrap_or_default();
    }
    catalogue.manifests().for_each(|manifest| describe(&mut out, manifest));
    out
}

fn describe(out: &mut String, manifest: &Manifest) {
    let named = |list: &super::HeaderList| code_or(&list.named().collect::<Vec<_>>(), "the usual ones alone");
    let redirects = match (&manifest.redirects, manifest.redirects.hosts.is_empty()) {
        (redirects, _) if !redirects.follow => "the caller's to follow".to_owned(),
        (redirects, true) => format!("followed within its hosts, {} at most", redirects.max),
        (redirects, false) => {
            let hosts: Vec<_> = redirects.hosts.iter().map(|host| host.value.as_str()).collect();
            format!("followed, {} at most; without the credential also to {}", redirects.max, code(&hosts))
        }
    };
    write!(out, "\n### `{}`\n\n", manifest.connector).unwrap_or_default();
    if !manifest.note.is_empty() {
        write!(out, "{}\n\n", manifest.note).unwrap_or_default();
    }
    write!(
        out,
        "- to the provider: {}\n- back to the caller: {}\n- redirects: {redirects}\n",
        named(&manifest.request_headers),
        named(&manifest.response_headers),
    )
    .unwrap_or_default();
    if !manifest.not_in_sources.is_empty() {
        writeln!(out, "- known from answers and SDKs, not from the sources: {}", code(&manifest.not_in_sources))
            .unwrap_or_default();
    }
    if !manifest.sources.is_empty() {
        writeln!(out, "- checked {}: {}", manifest.checked, urls(&manifest.sources)).unwrap_or_default();
    }
    if !manifest.quota.limits.is_empty() {
        describe_quota(out, &manifest.quota);
    }
    if !manifest.actions.is_empty() {
        describe_actions(out, manifest);
    }
    describe_errors(out, &manifest.errors);
}

fn describe_actions(out: &mut String, manifest: &Manifest) {
    out.push_str("\n| action | what it does | class | request |\n|---|---|---|---|\n");
    for action in &manifest.actions {
        let read = if action.source.is_some() { "" } else { " ¹" };
        writeln!(
            out,
            "| `{}`{read} | {} | {} | `{} {}` |",
            action.name,
            action.title,
            class(manifest, action),
            action.request.method.as_str(),
            action.request.path,
        )
        .unwrap_or_default();
    }
    if manifest.actions.iter().any(|action| action.source.is_none()) {
        out.push_str("\n¹ recalled\n");
    }
    if let Some(window) = manifest.idempotency_window {
        writeln!(out, "\n- a key for repeated requests is remembered for {}", format_duration(window))
            .unwrap_or_default();
    }
}

/// The class, and why it is that.
fn class(manifest: &Manifest, action: &ActionSpec) -> String {
    let name = action.class.as_str();
    let remembers = manifest.remembers(action.request.method, &action.request.path.to_string());
    match (&*action.reason, action.class) {
        ("", ReplayClass::Idempotent) if action.reads => format!("{name}: it reads"),
        ("", ReplayClass::Idempotent) if action.request.method.is_idempotent() => name.to_owned(),
        ("", ReplayClass::Idempotent) if remembers => format!("{name}, by the idempotency header"),
        ("", ReplayClass::Idempotent) => format!("{name}, by the effect's key in it"),
        ("", ReplayClass::Checkable | ReplayClass::Unsafe) => name.to_owned(),
        (reason, _) => format!("{name}: {reason}"),
    }
}

fn describe_errors(out: &mut String, errors: &ErrorRules) {
    if errors.rules.is_empty() {
        return;
    }
    let dead = errors.rules.iter().filter(|rule| rule.class == ErrorClass::AuthenticationExpired);
    let dead: Vec<String> = dead.map(told_by).collect();
    out.push('\n');
    if !dead.is_empty() {
        writeln!(out, "- the credential is dead, beside 401: {}", dead.join("; ")).unwrap_or_default();
    }
    let others = errors.rules.len() - dead.len();
    writeln!(out, "- {others} rules say what other answers mean").unwrap_or_default();
    if !errors.sources.is_empty() {
        writeln!(out, "- errors checked {}: {}", errors.checked, urls(&errors.sources)).unwrap_or_default();
    }
    for sentence in &errors.recalled {
        writeln!(out, "- in no source: {sentence}").unwrap_or_default();
    }
}

/// `error.code` `a`, `b`.
fn told_by(rule: &ErrorRule) -> String {
    let statuses: Vec<String> = rule.statuses.iter().map(|range| range.show()).collect();
    let mut parts = if statuses.is_empty() { Vec::new() } else { vec![statuses.join(", ")] };
    parts.extend(rule.header.as_ref().map(|header| format!("`{}: {}`", header.name, header.values.join("|"))));
    if let Some(body) = &rule.body {
        let (is, has) = (&body.values, &body.contains);
        let words = if is.is_empty() && has.is_empty() {
            "anything".to_owned()
        } else {
            let has = has.iter().map(|text| format!("…`{text}`…"));
            is.iter().map(|text| format!("`{text}`")).chain(has).collect::<Vec<_>>().join(", ")
        };
        parts.push(format!("`{}` {words}", body.path));
    }
    parts.join(" ")
}

fn urls(urls: &[Box<str>]) -> String {
    urls.iter().map(|url| format!("<{url}>")).collect::<Vec<_>>().join(", ")
}

fn describe_quota(out: &mut String, profile: &QuotaProfile) {
    out.push_str("\n| limit | level | units |\n|---|---|---|\n");
    for limit in &profile.limits {
        writeln!(out, "| `{}` | {} | {} |", limit.name, limit.level.as_str(), units(profile, limit))
            .unwrap_or_default();
    }
    let park = &profile.park;
    let (first, max) = (format_duration(park.first), format_duration(park.max));
    let grows = if park.doubles && park.max > park.first { format!(", doubling up to {max}") } else { String::new() };
    let jitter = if park.jitter { ", and as much again at random" } else { "" };
    let penalty = match profile.penalty {
        Penalty::None => "no documented harm",
        Penalty::Counts => "counts towards the limit",
        Penalty::Extends => "makes the wait longer",
        Penalty::Bans => "may end in a ban",
    };
    write!(
        out,
        "\n- a throttle without a time holds {first}{grows}{jitter}; a call while limited: {penalty}\n- limits checked {}: {}\n",
        profile.checked,
        urls(&profile.sources)
    )
    .unwrap_or_default();
    for sentence in &profile.recalled {
        writeln!(out, "- in no source: {sentence}").unwrap_or_default();
    }
}

/// `100 requests in any 10s (professional 190)`.
fn units(profile: &QuotaProfile, limit: &QuotaLimit) -> String {
    let unit = match limit.unit {
        QuotaUnit::Requests => "requests",
        QuotaUnit::Points => "points",
        QuotaUnit::Tokens => "tokens",
        QuotaUnit::CpuMs => "ms of CPU",
    };
    let when = match &limit.kind {
        QuotaKind::Fixed { window, .. } => format!("in each {}", format_duration(*window)),
        QuotaKind::Sliding { window } => format!("in any {}", format_duration(*window)),
        QuotaKind::Token { window, burst } => format!("in {}, {burst} at once", format_duration(*window)),
        QuotaKind::Concurrent => "at the same time".into(),
        QuotaKind::Daily { zone: Zone::Utc } => "a day of UTC".into(),
        QuotaKind::Daily { zone: Zone::Account } => "a day of the account's zone".into(),
        QuotaKind::Daily { zone: Zone::Named(name) } => format!("a day of {name}"),
    };
    let tiers = limit.tiers.iter().filter_map(|own| Some((profile.tiers.get(usize::from(own.tier))?, own.cap)));
    let tiers: Vec<_> = tiers.map(|(tier, cap)| format!("`{tier}` {cap}")).collect();
    let tiers = if tiers.is_empty() { String::new() } else { format!("; {}", tiers.join(", ")) };
    let split = if limit.split_segments == 0 { "" } else { ", by path" };
    format!("{} {unit} {when}{split}{tiers}", limit.cap)
}

fn hosts(manifest: &Manifest) -> String {
    let hosts: Vec<_> = manifest.hosts.iter().map(|host| host.value.as_str()).collect();
    code_or(&hosts, "that of `base_url`")
}

fn slot(auth: &AuthSlot) -> String {
    match auth {
        AuthSlot::Bearer => "bearer".into(),
        AuthSlot::BasicUser => "user of basic authentication".into(),
        AuthSlot::BasicPassword => "password of basic authentication".into(),
        AuthSlot::Header(name) => format!("header `{name}`"),
        AuthSlot::Query(name) => format!("parameter `{name}`"),
    }
}

fn code(texts: &[impl AsRef<str>]) -> String {
    texts.iter().map(|text| format!("`{}`", text.as_ref())).collect::<Vec<_>>().join(", ")
}

fn code_or(texts: &[impl AsRef<str>], none: &str) -> String {
    if texts.is_empty() { none.to_owned() } else { code(texts) }
}
