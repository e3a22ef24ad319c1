//! The three phases, and the single probe: what a pair's and the fleet's breaker have in common.

use super::outcome::Weight;
use super::rules::Rules;

/// Why a call is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// When asking again may help, in milliseconds from now: above zero.
    pub retry_after_ms: u64,
    /// Open, or `HalfOpen` with the probe out.
    pub phase: Phase,
}

/// The phase by itself, for a metric or an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Closed,
    Open,
    HalfOpen,
}

/// One admission. It goes back with the call's outcome, once: that is why it cannot be copied. Dropped without an
/// outcome it does no harm: an ordinary one is not counted, a probe's lease ends by itself.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the outcome of the call is reported with its ticket"]
pub struct Ticket(pub(crate) Admission);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Admitted by a closed breaker, or because there is none, at this moment.
    Ordinary { admitted_ms: u64 },
    /// A probe. No two that are out together, or one after the other, have the same end.
    Probe { until_ms: u64 },
}

impl Ticket {
    /// Whether the call is a probe: it should be one that is cheap and can be repeated, if there is a choice.
    pub fn is_probe(&self) -> bool {
        matches!(self.0, Admission::Probe { .. })
    }
}

/// Phases and probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gate {
    pub(crate) state: State,
    /// How often it opened in a row.
    pub(crate) level: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Closed {
        since_ms: u64,
    },
    /// Past `until_ms` it is open in name only: the next who asks gets the probe.
    Open {
        until_ms: u64,
    },
    /// `probe_until_ms` is the end of the latest lease; `is_out`: it has not reported.
    HalfOpen {
        good: u8,
        probe_until_ms: u64,
        is_out: bool,
    },
}

/// While a probe is out, others come back after this at the latest: a probe is mostly a matter of a moment.
const PROBE_OUT_RETRY_MS: u64 = 1_000;

impl Gate {
    pub(crate) const NEW: Self = Self { state: State::Closed { since_ms: 0 }, level: 0 };

    pub(crate) fn phase(&self) -> Phase {
        match self.state {
            State::Closed { .. } => Phase::Closed,
            State::Open { .. } => Phase::Open,
            State::HalfOpen { .. } => Phase::HalfOpen,
        }
    }

    /// When [`Self::admit`] would admit somebody, in ms from now; 0 if at once.
    pub(crate) fn retry_after_ms(&self, now_ms: u64) -> u64 {
        // A copy: whoever looks takes no probe.
        let mut copy = *self;
        copy.admit(&Rules::default(), now_ms).map_or_else(|refused| refused.retry_after_ms, |_| 0)
    }

    pub(crate) fn admit(&mut self, rules: &Rules, now_ms: u64) -> Result<Admission, Refused> {
        let good = match self.state {
            State::Closed { .. } => return Ok(Admission::Ordinary { admitted_ms: now_ms }),
            State::Open { until_ms } if now_ms < until_ms => {
                return Err(Refused { retry_after_ms: until_ms - now_ms, phase: Phase::Open });
            }
            State::Open { .. } => 0,
            State::HalfOpen { probe_until_ms, is_out: true, .. } if now_ms < probe_until_ms => {
                let retry_after_ms = (probe_until_ms - now_ms).min(PROBE_OUT_RETRY_MS);
                return Err(Refused { retry_after_ms, phase: Phase::HalfOpen });
            }
            State::HalfOpen { good, .. } => good,
        };
        let mut until_ms = now_ms.saturating_add(u64::from(rules.probe_lease_ms));
        if let State::HalfOpen { probe_until_ms, .. } = self.state {
            // The end is also the probe's name: it must differ from the one before, even in the same millisecond.
            until_ms = until_ms.max(probe_until_ms.saturating_add(1));
        }
        self.state = State::HalfOpen { good, probe_until_ms: until_ms, is_out: true };
        Ok(Admission::Probe { until_ms })
    }

    /// Whether an ordinary call belongs to the present Closed period, so that it is counted.
    pub(crate) fn hears(&self, admission: Admission) -> bool {
        match (self.state, admission) {
            (State::Closed { since_ms }, Admission::Ordinary { admitted_ms }) => admitted_ms >= since_ms,
            (State::HalfOpen { probe_until_ms, is_out, .. }, Admission::Probe { until_ms }) => {
                // One whose lease ended is heard as long as no other has gone out.
                is_out && until_ms == probe_until_ms
            }
            (State::Closed { .. } | State::Open { .. }, Admission::Probe { .. })
            | (State::Open { .. } | State::HalfOpen { .. }, Admission::Ordinary { .. }) => false,
        }
    }

    /// The outcome of the probe that is out. It must be [heard](Self::hears).
    pub(crate) fn probed(&mut self, rules: &Rules, weight: Weight, now_ms: u64, salt: u64) {
        let State::HalfOpen { good, probe_until_ms, .. } = self.state else { return };
        match weight {
            Weight::Bad => self.open(rules, now_ms, salt),
            Weight::Good if good.saturating_add(1) >= rules.probes_to_close => {
                self.state = State::Closed { since_ms: now_ms }
            }
            Weight::Good => self.state = State::HalfOpen { good: good + 1, probe_until_ms, is_out: false },
            Weight::Nothing => self.state = State::HalfOpen { good, probe_until_ms, is_out: false },
        }
    }

    pub(crate) fn open(&mut self, rules: &Rules, now_ms: u64, salt: u64) {
        self.level = self.level.saturating_add(1);
        let until_ms = now_ms.saturating_add(rules.open_for_ms(self.level, salt));
        self.state = State::Open { until_ms };
    }
}
