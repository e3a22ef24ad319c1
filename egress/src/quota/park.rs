//! Not now: when, at which level, and because of whom.

use std::time::Duration;

use ratelimit::quota::holder::{Parked, Route, Source};

use crate::Refusal;

/// A call that has to come again later. Nothing of it was sent, or the provider has refused it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Park {
    /// From now, in ms; at least 1.
    pub release_ms: u64,
    /// `app`, `connection`, `region` or `source` of a limit; of a breaker `tenant` or `provider`; of a runaway
    /// `connection` or `automation`.
    pub level: &'static str,
    pub by: ParkedBy,
    /// For the operator.
    pub detail: Box<str>,
}

/// Because of whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParkedBy {
    /// The provider has said so, or an operator in its place.
    Provider,
    /// The platform's own counting.
    Quota,
    /// What the provider did to calls before.
    Breaker,
    /// What the caller wants, which is far more than it usually does.
    Runaway,
}

impl ParkedBy {
    /// `source=` of `Tidegate-Outcome`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Quota | Self::Runaway => "quota",
            Self::Breaker => "breaker",
        }
    }

    pub const fn refusal(self) -> Refusal {
        match self {
            Self::Provider => Refusal::ProviderParked,
            Self::Quota => Refusal::QuotaExhausted,
            Self::Breaker => Refusal::BreakerOpen,
            Self::Runaway => Refusal::Runaway,
        }
    }
}

impl Park {
    /// `route` is the one that was asked for: it has the name of the limit, which is the profile's.
    pub(crate) fn of(parked: &Parked, route: &Route, detail: &str) -> Self {
        let by = match parked.source() {
            Source::Provider => ParkedBy::Provider,
            Source::Quota => ParkedBy::Quota,
        };
        let limit = route.key(parked.leg).map_or("", |(_, key)| key.policy.as_str());
        let detail = format!("{}, {limit}: {}{detail}", parked.level, parked.reason.word()).into();
        Self { release_ms: parked.release_ms.max(1), level: parked.level.word(), by, detail }
    }

    /// How long to wait.
    pub fn release(&self) -> Duration {
        Duration::from_millis(self.release_ms)
    }

    /// `Tidegate-Outcome`, a structured field (RFC 9651): `release` is in seconds from now, since the caller's clock is
    /// its own.
    pub fn outcome(&self) -> String {
        let (seconds, thousandths) = (self.release_ms / 1_000, self.release_ms % 1_000);
        format!("park; release={seconds}.{thousandths:03}; level={}; source={}", self.level, self.by.word())
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn an_outcome_is_a_structured_field() {
        let park = Park { release_ms: 12_034, level: "app", by: ParkedBy::Provider, detail: "".into() };
        assert_eq!(park.outcome(), "park; release=12.034; level=app; source=provider");
        assert_eq!(park.release(), Duration::from_millis(12_034));
    }
}
