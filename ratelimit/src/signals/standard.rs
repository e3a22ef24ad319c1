//! Forms that any provider may use: `RateLimit` and `RateLimit-Policy` of `draft-ietf-httpapi-ratelimit-headers-10`,
//! the fields of its early drafts, and the common `X-RateLimit-*`.
//!
//! The draft's fields say what they mean, so they are read of every provider; `Beta-` before them too, as Jira has it.
//! Of the common ones only what is unambiguous counts: a number of 1,000,000,000 or more near the answer's own time is
//! an instant, a small one may be seconds, milliseconds or minutes and is as absent, unless the field is
//! `RateLimit-Reset`, which its draft defines as seconds.

use config::connector::quota::{QuotaLevel, QuotaProfile, TimeForm};
use http::HeaderMap;
use sfv::{BareItem, ListEntry, Parameters, Parser};

use super::number::{VALUE_MAX, single, whole};
use super::time::{self, Now, Time};
use super::{Observation, RELEASE_MS_MAX, Scale, ms};

/// An observation that says nothing.
pub(super) const NOTHING: Observation = Observation {
    limit: None,
    level: QuotaLevel::Connection,
    cap: None,
    remaining: None,
    used: None,
    reset_ms: None,
    scale: Scale::Units,
};

/// Members of one field that are looked at.
const MEMBERS_MAX: usize = 32;

/// Adds what standard fields say: of limits that the profile knows where nothing was observed yet, and of the
/// tightest of all others.
pub(super) fn add(all: &mut Vec<Observation>, profile: &QuotaProfile, headers: &HeaderMap, now: Now) {
    let mut other: Option<Observation> = None;
    for (limits, policies) in [("ratelimit", "ratelimit-policy"), ("beta-ratelimit", "beta-ratelimit-policy")] {
        let policies = members(headers, policies);
        for member in members(headers, limits) {
            let policy = policies.iter().find(|policy| policy.name == member.name);
            let Some(seen) = observation(&member, policy, profile) else { continue };
            match seen.limit {
                Some(_) => merge(all, seen),
                None => other = Some(tighter(other, seen)),
            }
        }
    }
    if other.is_none() && profile.headers.is_empty() {
        other = dictionary(headers).or_else(|| common(headers, now));
    }
    all.extend(other);
}

/// One policy or one limit of a structured list.
struct Member {
    name: String,
    parameters: Parameters,
}

impl Member {
    /// A parameter that is a whole number and not negative.
    fn number(&self, name: &str) -> Option<u64> {
        u64::try_from(self.parameters.get(name)?.as_int()?).ok()
    }
}

/// The members of a list field; none where it is malformed, as its draft demands.
fn members(headers: &HeaderMap, name: &str) -> Vec<Member> {
    let Some(field) = joined(headers, name) else { return Vec::new() };
    let list = Parser::parse_list(&field).unwrap_or_default();
    let members = list.into_iter().take(MEMBERS_MAX).filter_map(|entry| match entry {
        ListEntry::Item(item) => match item.bare_item {
            BareItem::String(name) | BareItem::Token(name) => Some(Member { name, parameters: item.params }),
            BareItem::Decimal(_) | BareItem::Integer(_) | BareItem::ByteSeq(_) | BareItem::Boolean(_) => None,
        },
        ListEntry::InnerList(_) => None,
    });
    members.collect()
}

/// All lines of a field as one (RFC 9651, 4.2), if it is there and not too long.
fn joined(headers: &HeaderMap, name: &str) -> Option<Vec<u8>> {
    let mut field = Vec::new();
    for value in headers.get_all(name) {
        if field.len() + value.len() > VALUE_MAX {
            return None;
        }
        if !field.is_empty() {
            field.extend_from_slice(b", ");
        }
        field.extend_from_slice(value.as_bytes());
    }
    (!field.is_empty()).then_some(field)
}

/// What a member says, clamped by the window of its policy. None without the number that is required.
fn observation(member: &Member, policy: Option<&Member>, profile: &QuotaProfile) -> Option<Observation> {
    let remaining = Some(member.number("r")?);
    let (limit, level) = known(profile, &member.name);
    let counts_requests = |unit: &BareItem| unit.as_str().is_none_or(|unit| unit == "requests");
    let unit = policy.and_then(|policy| policy.parameters.get("qu"));
    if limit.is_none() && !unit.is_none_or(counts_requests) {
        // Bytes or calls at once of a limit that nobody knows are nothing to compare with.
        return None;
    }
    let own = limit.and_then(|place| profile.limits.get(usize::from(place))?.kind.window()).map(ms);
    let said = policy.and_then(|policy| policy.number("w")).map(|seconds| seconds.saturating_mul(1_000));
    let longest = own.into_iter().chain(said).min().unwrap_or(RELEASE_MS_MAX).min(RELEASE_MS_MAX);
    let reset_ms = member.number("t").map(|seconds| seconds.saturating_mul(1_000).min(longest));
    let cap = policy.and_then(|policy| policy.number("q"));
    // More than there is would be left: it is no more than all.
    let remaining = remaining.map(|remaining| cap.map_or(remaining, |cap| remaining.min(cap)));
    Some(Observation { limit, level, cap, remaining, reset_ms, ..NOTHING })
}

/// The limit that a provider calls so.
pub(super) fn known(profile: &QuotaProfile, name: &str) -> (Option<u16>, QuotaLevel) {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    let mut all = (0..).zip(&*profile.limits);
    let found = all.find(|(_, limit)| is(&limit.name) || limit.policies.iter().any(|policy| is(policy)));
    found.map_or((None, QuotaLevel::Connection), |(place, limit)| (Some(place), limit.level))
}

/// Puts an observation beside those of other limits; two of one limit become one, the smaller `remaining` of the two.
fn merge(all: &mut Vec<Observation>, seen: Observation) {
    match all.iter_mut().find(|one| one.limit == seen.limit) {
        Some(one) => *one = tighter(Some(*one), seen),
        None => all.push(seen),
    }
}

/// The one with less left; of two alike, the one that lasts longer.
fn tighter(one: Option<Observation>, other: Observation) -> Observation {
    let rank = |seen: &Observation| (seen.remaining.unwrap_or(u64::MAX), u64::MAX - seen.reset_ms.unwrap_or(0));
    one.filter(|one| rank(one) <= rank(&other)).unwrap_or(other)
}

/// `RateLimit: limit=100, remaining=50, reset=30`, as drafts 06 and 07 had it: seconds.
fn dictionary(headers: &HeaderMap) -> Option<Observation> {
    let field = Parser::parse_dictionary(&joined(headers, "ratelimit")?).ok()?;
    let number = |name: &str| match field.get(name)? {
        ListEntry::Item(item) => u64::try_from(item.bare_item.as_int()?).ok(),
        ListEntry::InnerList(_) => None,
    };
    let reset_ms = number("reset").map(|seconds| seconds.saturating_mul(1_000).min(RELEASE_MS_MAX));
    Some(Observation { cap: number("limit"), remaining: Some(number("remaining")?), reset_ms, ..NOTHING })
}

/// The families of three headers, the first of which is used that says what is left.
const FAMILIES: [[&str; 3]; 3] = [
    ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
    ["x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset"],
];

fn common(headers: &HeaderMap, now: Now) -> Option<Observation> {
    FAMILIES.into_iter().find_map(|[limit, remaining, reset]| {
        let remaining = whole(single(headers, remaining)?)?;
        let cap = single(headers, limit).and_then(|text| whole(text.split(',').next()?.trim()));
        let reset_ms = single(headers, reset).and_then(|text| unambiguous(text, reset == "ratelimit-reset", now));
        let remaining = Some(remaining).filter(|remaining| cap.is_none_or(|cap| *remaining <= cap));
        Some(Observation { cap, remaining, reset_ms, ..NOTHING })
    })
}

/// A reset of a form that its text alone tells.
fn unambiguous(text: &str, is_drafts: bool, now: Now) -> Option<u64> {
    let moment = [TimeForm::EpochMilliseconds, TimeForm::EpochSeconds, TimeForm::Iso8601, TimeForm::HttpDate]
        .into_iter()
        .find_map(|form| time::parse(form, text));
    let time = match moment {
        Some(Time::At(at_ms)) => Some(Time::At(at_ms)).filter(|_| now.is_near(at_ms)),
        Some(Time::In(_)) | None => time::parse(TimeForm::GoDuration, text)
            .or_else(|| time::parse(TimeForm::Seconds, text).filter(|_| is_drafts)),
    };
    now.until(time?).map(|(reset_ms, _)| reset_ms.min(RELEASE_MS_MAX))
}
