//! What an answer means: the connector's rules first, then what its status says (RFC 9110, section 15).

use config::connector::errors::{BodyTest, ErrorClass, ErrorRule, ErrorRules};
use config::connector::quota::HeaderIs;
use http::HeaderMap;

use super::answer::{Answer, Body, cleaned};
use super::place;
use crate::failure::FailureClass;

impl From<ErrorClass> for FailureClass {
    fn from(class: ErrorClass) -> Self {
        match class {
            ErrorClass::ProviderUnavailable => Self::ProviderUnavailable,
            ErrorClass::Timeout => Self::Timeout,
            ErrorClass::Contended => Self::ContendedProvider,
            ErrorClass::InvalidRequest => Self::InvalidRequest,
            ErrorClass::NotFound => Self::NotFound,
            ErrorClass::PermissionDenied => Self::PermissionDenied,
            ErrorClass::Conflict => Self::Conflict,
            ErrorClass::TooLarge => Self::TooLarge,
            ErrorClass::PlanLimit => Self::PlanLimit,
            ErrorClass::PartlyDone => Self::PartlyDone,
            ErrorClass::AuthenticationExpired => Self::AuthenticationExpired,
        }
    }
}

/// What failed, and the provider's words for it; none where the answer is a success.
pub(super) fn failure(answer: &Answer<'_>, rules: &ErrorRules) -> Option<(FailureClass, Option<Box<str>>)> {
    let class = match rules.rules.iter().find_map(|rule| says(rule, answer)) {
        Some(class) => Some(class),
        // Where a success can be a failure, one that cannot be read says neither.
        None if answer.is_broken && (200..300).contains(&answer.status) && judges_successes(rules, answer.status) => {
            Some(FailureClass::BrokenAnswer)
        }
        None => by_status(answer.status),
    }?;
    let message = answer.message(rules).or_else(|| redirect(answer));
    Some((class, message))
}

fn judges_successes(rules: &ErrorRules, status: u16) -> bool {
    rules.rules.iter().any(|rule| rule.is_of(status))
}

fn says(rule: &ErrorRule, answer: &Answer<'_>) -> Option<FailureClass> {
    let may_be =
        rule.is_of(answer.status) && rule.header.as_ref().is_none_or(|header| has_header(header, answer.headers));
    match &rule.body {
        _ if !may_be => None,
        None => Some(rule.class.into()),
        // It would have told whether a success is one. What is a failure anyhow is one by its status.
        Some(_) if answer.is_cut_json => by_status(answer.status).is_none().then_some(FailureClass::AnswerTooLarge),
        Some(body) => has_body(body, answer).then(|| rule.class.into()),
    }
}

fn has_header(wanted: &HeaderIs, headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(&*wanted.name).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| wanted.values.iter().any(|one| value.trim().eq_ignore_ascii_case(one)))
}

fn has_body(test: &BodyTest, answer: &Answer<'_>) -> bool {
    let Some(json) = answer.json() else { return false };
    place::at(json, &test.path).into_iter().any(|(_, found)| {
        if test.values.is_empty() && test.contains.is_empty() {
            return place::is_something(found);
        }
        let Some(text) = place::scalar(found) else { return false };
        if test.values.iter().any(|value| **value == *text) {
            return true;
        }
        let lower = text.to_lowercase();
        test.contains.iter().any(|part| lower.contains(&part.to_lowercase()))
    })
}

/// A redirect that nobody follows has its place for a message.
fn redirect(answer: &Answer<'_>) -> Option<Box<str>> {
    if !matches!(answer.body, Body::Empty | Body::Html) || !(300..400).contains(&answer.status) {
        return None;
    }
    let place = answer.headers.get(http::header::LOCATION)?.to_str().ok()?;
    // What stands behind `?` may let somebody in.
    let place = place.split(['?', '#']).next().unwrap_or_default();
    cleaned(&format!("a redirect to {place}"))
}

/// What a status means, whoever says it; none of a success. Statuses that are registered nowhere and that no connector
/// knows mean nothing.
pub(super) fn by_status(status: u16) -> Option<FailureClass> {
    Some(match status {
        200..=206 | 208 | 226 | 304 => return None,
        207 => FailureClass::PartlyDone,
        // Of 300 to 399: egress follows redirects where the connector says so, and this one leads where no call goes.
        300..=400 | 405 | 406 | 411 | 415..=417 | 422 | 424 | 426 | 428 | 501 | 505 | 506 | 510 => {
            FailureClass::InvalidRequest
        }
        401 => FailureClass::AuthenticationExpired,
        402 | 507 => FailureClass::PlanLimit,
        403 | 451 => FailureClass::PermissionDenied,
        404 | 410 => FailureClass::NotFound,
        // 522, 524 and 598 are what large proxies say in place of 504.
        408 | 504 | 522 | 524 | 598 => FailureClass::Timeout,
        409 | 412 => FailureClass::Conflict,
        413 | 414 | 431 => FailureClass::TooLarge,
        // Another server, a lock, too early: nothing was done, and later it may be.
        421 | 423 | 425 => FailureClass::ContendedProvider,
        // 429 comes here only where egress could not park it.
        429 | 500..=599 => FailureClass::ProviderUnavailable,
        _ => FailureClass::Unclassified,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_means_one_thing() {
        for status in 100..=999 {
            let class = by_status(status);
            let is_success = matches!(status, 200..=206 | 208 | 226 | 304);
            assert_eq!(class.is_none(), is_success, "{status}");
            // A success is never tried again, and no failure of the provider is the author's.
            if let Some(class) = class.filter(|_| status >= 500 && !matches!(status, 501 | 505..=507 | 510)) {
                let known = [FailureClass::ProviderUnavailable, FailureClass::Timeout, FailureClass::Unclassified];
                assert!(known.contains(&class), "{status}: {class:?}");
            }
        }
        assert_eq!(by_status(418), Some(FailureClass::Unclassified));
    }

    /// The classes of manifests are these, by code.
    #[test]
    fn classes_of_manifests_are_ours() {
        for class in ErrorClass::ALL {
            assert_eq!(FailureClass::from(*class).code(), class.code());
        }
    }
}
