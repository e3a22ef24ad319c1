//! What egress' codes mean to a step. `docs/egress-refusals.md` is where they are said; the engine's own begin with `egress-`.

use crate::failure::FailureClass;

/// What a code means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Something of ours is not there or has no room: it is no try, and made again later.
    Later,
    Is(FailureClass),
}

/// Of a refusal.
pub(super) fn refused(code: &str) -> Meaning {
    use FailureClass as Class;
    Meaning::Is(match code {
        "request-malformed" | "target-malformed" | "host-mismatch" | "request-timeout" => Class::InvalidRequest,
        "request-headers-too-large" | "request-body-too-large" => Class::TooLarge,
        "connection-unknown" => Class::ConfigurationMissing,
        "calls-limited"
        | "runaway"
        | "overloaded"
        | "internal"
        | "exit-unavailable"
        | "ports-exhausted"
        | "credential-unavailable"
        | "breaker-open"
        | "provider-parked"
        | "quota-exhausted" => return Meaning::Later,
        _ => Class::PolicyRefused,
    })
}

/// Of a failure on the way.
pub(super) fn failed(code: &str) -> Meaning {
    use FailureClass as Class;
    Meaning::Is(match code {
        "dns-failed" | "dns-timeout" | "connect-failed" | "connect-timeout" | "tls-failed" | "certificate-invalid" => {
            Class::Unreachable
        }
        "response-timeout" | "idle-timeout" | "egress-timeout" => Class::Timeout,
        "redirect-refused" => Class::PolicyRefused,
        "exit-unavailable"
        | "ports-exhausted"
        | "credential-unavailable"
        | "overloaded"
        | "internal"
        | "egress-unreachable"
        | "egress-grant" => return Meaning::Later,
        _ => Class::BrokenAnswer,
    })
}

/// Whether a code is a failure on the way, and not a no.
pub(crate) fn is_failure(code: &str) -> bool {
    matches!(
        code,
        "dns-failed"
            | "dns-timeout"
            | "connect-failed"
            | "connect-timeout"
            | "tls-failed"
            | "certificate-invalid"
            | "response-incomplete"
            | "response-refused"
            | "response-timeout"
            | "idle-timeout"
            | "exit-unavailable"
            | "ports-exhausted"
            | "credential-unavailable"
            | "overloaded"
            | "internal"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes are egress' own, by the page that says them: a new one has to be given a meaning here.
    #[test]
    fn every_code_of_egress_has_a_meaning() {
        let page = include_str!("../../../docs/egress-refusals.md");
        let codes: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert!(codes.len() > 30, "{codes:?}");
        let policy = [
            "loop-detected",
            "caller-unknown",
            "grant-in-plaintext",
            "switched-off",
            "destination-not-allowed",
            "port-not-allowed",
            "request-not-allowed",
            "tunnel-not-allowed",
            "address-not-allowed",
            "tunnel-mismatch",
            "redirect-refused",
        ];
        for code in codes {
            let is_policy = !is_failure(code) && refused(code) == Meaning::Is(FailureClass::PolicyRefused);
            assert_eq!(is_policy, policy.contains(&code), "{code}");
            let is_broken = is_failure(code) && failed(code) == Meaning::Is(FailureClass::BrokenAnswer);
            assert_eq!(is_broken, code.starts_with("response-in") || code == "response-refused", "{code}");
        }
    }
}
