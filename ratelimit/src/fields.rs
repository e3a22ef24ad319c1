//! What an answer says about limits: `Retry-After` (RFC 9110) and the two fields of
//! `draft-ietf-httpapi-ratelimit-headers-11` (May 2026), both structured lists (RFC 9651).
//!
//! A bucket of `burst` units that fills at `per_second` is told as a quota of `burst` per window in which it fills.
//! A sender that keeps to that is never refused; the bucket itself takes up to twice as much in such a window.

use std::time::Duration;

use crate::key::Measure;
use crate::local::{Ask, Over};

/// Value of `Retry-After` in whole seconds: rounded up, since a sender that comes back early is refused again, and
/// never zero, which some senders take for "at once".
pub fn retry_after(wait: Duration) -> u64 {
    let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
    seconds.clamp(1, SECONDS_MAX)
}

/// The largest integer of a structured field is 15 digits; nobody waits that long.
const SECONDS_MAX: u64 = 999_999_999_999_999;

/// Value of `RateLimit-Policy`: every limit that applies to the delivery, refusing or not. `None` if none does.
pub fn rate_limit_policy(asks: &[Ask]) -> Option<String> {
    let policies: Vec<_> = asks.iter().filter_map(policy).collect();
    (!policies.is_empty()).then(|| policies.join(", "))
}

fn policy(ask: &Ask) -> Option<String> {
    let rate = ask.rate?;
    let unit = match ask.key.measure() {
        Measure::Events => "",
        Measure::Bytes => ";qu=\"content-bytes\"",
    };
    Some(format!("\"{}\";q={}{unit};w={}", ask.key.label(), rate.burst, retry_after(rate.fills_in())))
}

/// Value of `RateLimit` on a refusal: the limit that refused, what is left of it, and when it has room. It is the
/// same number as `Retry-After`, which must not name an earlier moment than `t` does.
pub fn rate_limit(over: &Over) -> String {
    format!("\"{}\";r={};t={}", over.key.label(), over.standing.remaining, retry_after(over.retry_after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LimitKey, Rate, Standing, Subject};
    use domain::{EndpointId, TenantId};

    fn tenant() -> Subject {
        Subject::tenant(&TenantId::parse("acme").unwrap())
    }

    fn endpoint() -> Subject {
        Subject::endpoint(&EndpointId::parse("wh_1").unwrap())
    }

    fn ask(key: LimitKey, rate: Option<(u32, u32)>) -> Ask {
        Ask { key, rate: rate.map(|(per_second, burst)| Rate::new(per_second, burst).unwrap()), amount: 1 }
    }

    #[test]
    fn retry_after_is_rounded_up_and_never_zero() {
        let cases = [(0, 1), (1, 1), (999_999_999, 1), (1_000_000_000, 1), (1_000_000_001, 2), (59_000_000_001, 60)];
        for (nanos, seconds) in cases {
            assert_eq!(retry_after(Duration::from_nanos(nanos)), seconds, "{nanos} ns");
        }
        assert_eq!(retry_after(Duration::MAX), SECONDS_MAX);
    }

    #[test]
    fn the_policy_names_every_limit_with_its_unit_and_window() {
        let asks = [
            ask(tenant().events(), Some((50, 100))),
            ask(tenant().bytes(), Some((1_048_576, 26_214_400))),
            ask(endpoint().events(), None),
            ask(endpoint().bytes(), Some((3, 1))),
        ];
        let expected = "\"tenant-events\";q=100;w=2, \"tenant-bytes\";q=26214400;qu=\"content-bytes\";w=25, \
                        \"endpoint-bytes\";q=1;qu=\"content-bytes\";w=1";
        assert_eq!(rate_limit_policy(&asks).as_deref(), Some(expected));
        assert_eq!(rate_limit_policy(&[ask(tenant().events(), None)]), None);
        assert_eq!(rate_limit_policy(&[]), None);
    }

    #[test]
    fn the_refusing_limit_says_what_is_left_and_when_to_come_back() {
        let over = Over {
            key: endpoint().bytes(),
            rate: Rate::new(1_000, 4_000).unwrap(),
            retry_after: Duration::from_millis(1_001),
            standing: Standing { remaining: 17, reset: Duration::from_secs(4) },
        };
        assert_eq!(rate_limit(&over), "\"endpoint-bytes\";r=17;t=2");
    }
}
