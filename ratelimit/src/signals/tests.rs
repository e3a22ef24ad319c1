mod generic;
mod hostile;
mod providers;
mod rules;

use std::fmt::Write;
use std::sync::Arc;

use config::connector::quota::QuotaProfile;
use config::connector::{Catalogue, Manifest};
use domain::ConnectorId;
use http::{HeaderName, HeaderValue};

use super::*;

/// Thu, 26 Mar 2026 15:00:00 GMT: what answers of these tests have as `Date`.
const DATE_MS: u64 = 1_774_537_200_000;
const DATE: &str = "Thu, 26 Mar 2026 15:00:00 GMT";

/// Ten minutes ahead: a test that gets by with our clock is wrong.
const OURS_MS: u64 = DATE_MS + 600_000;

fn manifest(name: &str) -> Arc<Manifest> {
    Arc::clone(Catalogue::shipped().unwrap().get(&ConnectorId::parse(name).unwrap()).unwrap())
}

fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// An answer as egress has it: with a date, and as much of the body as is wanted.
fn answer(profile: &QuotaProfile, call: (&str, &str), status: u16, lines: &[(&str, &str)], body: &str) -> Reading {
    let mut headers = map(lines);
    headers.entry("date").or_insert(HeaderValue::from_static(DATE));
    let call = Call { method: call.0, path: call.1, throttles_before: 0 };
    let status = StatusCode::from_u16(status).unwrap();
    let wanted = body_wanted(profile, &call, status, &headers);
    let body = &body.as_bytes()[..body.len().min(wanted)];
    read(profile, &call, &Answered { status, headers: &headers, body, received_unix_ms: OURS_MS })
}

/// In words: `core 4999/5000 900000ms; throttle connection core 60000ms RetryAfter`.
fn shown(profile: &QuotaProfile, reading: &Reading) -> String {
    let name = |limit: Option<u16>| limit.map_or("-", |place| &*profile.limits[usize::from(place)].name);
    let number = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), |value| value.to_string());
    let mut out = Vec::new();
    for seen in &reading.observations {
        let mut one = format!("{} {}/{}", name(seen.limit), number(seen.remaining), number(seen.cap));
        if seen.scale == Scale::Percent {
            one += "%";
        }
        if let Some(used) = seen.used.filter(|_| seen.remaining.is_none()) {
            write!(one, " used {used}").unwrap();
        }
        if let Some(reset_ms) = seen.reset_ms {
            write!(one, " {reset_ms}ms").unwrap();
        }
        out.push(one);
    }
    for settled in &reading.settled {
        out.push(format!("{} cost {}", name(Some(settled.limit)), settled.cost));
    }
    if let Some(throttle) = &reading.throttle {
        let unnamed = if throttle.is_named { "" } else { " unnamed" };
        let capped = if throttle.is_capped { " capped" } else { "" };
        let ours = if throttle.by_our_clock { " ours" } else { "" };
        out.push(format!(
            "throttle {} {}{unnamed} {}ms {:?}{capped}{ours}",
            throttle.level.as_str(),
            name(throttle.limit),
            throttle.release_ms,
            throttle.source
        ));
    }
    out.join("; ")
}
