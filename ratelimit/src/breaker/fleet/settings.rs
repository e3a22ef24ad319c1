//! What a node has to be told to take part in the fleet's breakers.

use super::{FleetRules, NodeTallies};

/// [`FleetSettings::default`] has them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetSettings {
    pub rules: FleetRules,
    /// Length of one of the two windows that are looked back over, in ms.
    pub window_ms: u32,
    /// How often a provider in trouble is exchanged with the register, in ms, and asked which ones are so for others;
    /// up to a quarter less, so that nodes do not come together.
    pub interval_ms: u32,
    /// A node that did not reach the register for so long goes by itself, its own single probe included. Until then a
    /// probe may be out that it has not heard of.
    pub alone_ms: u32,
    /// Most providers that are counted: the number of connectors that may be configured.
    pub providers_max: u32,
    /// Most providers that are in trouble at once. A node with that many broken providers has no broken provider but
    /// a broken network; and each costs an exchange per interval, and with [`super::HOLDERS_MAX`] holders 50 kB.
    /// One that finds no room has no fleet breaker: its calls pass.
    pub troubled_max: u32,
}

/// Settings that cannot be meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSettings {
    #[error(transparent)]
    Rules(#[from] crate::breaker::BadRules),
    #[error("a fleet breaker's window, interval, numbers of tenants and of calls, and bounds must be above zero")]
    Zero,
    #[error("a fleet breaker's shares must be 1 to 100 percent")]
    Percent,
    #[error("a holder must be fresh for three intervals, and for two windows and an interval")]
    Fresh,
    #[error("a fleet's breaker must wait for the other nodes for an interval, or not at all")]
    Hear,
}

impl Default for FleetSettings {
    /// Ten seconds are looked back over, as by a pair's breaker; three are what a broken provider costs before all nodes
    /// know, and what a fleet of 100 nodes asks of a register for it are 70 small operations a second.
    fn default() -> Self {
        Self {
            rules: FleetRules { hear_ms: 4_000, ..FleetRules::default() },
            window_ms: 5_000,
            interval_ms: 3_000,
            alone_ms: 10_000,
            providers_max: 4_096,
            troubled_max: 256,
        }
    }
}

impl FleetSettings {
    pub fn check(&self) -> Result<(), BadSettings> {
        let rules = &self.rules;
        rules.gate.check()?;
        let numbers = [self.window_ms, self.interval_ms, self.providers_max, self.troubled_max, rules.volume_min];
        if numbers.contains(&0) || rules.tenants_min == 0 {
            return Err(BadSettings::Zero);
        }
        if ![rules.tenant_percent, rules.fault_percent].iter().all(|percent| (1..=100).contains(percent)) {
            return Err(BadSettings::Percent);
        }
        let (window_ms, interval_ms) = (u64::from(self.window_ms), u64::from(self.interval_ms));
        if u64::from(rules.fresh_ms) < (3 * interval_ms).max(2 * window_ms + interval_ms) {
            return Err(BadSettings::Fresh);
        }
        if rules.hear_ms != 0 && rules.hear_ms < self.interval_ms {
            return Err(BadSettings::Hear);
        }
        Ok(())
    }

    /// Nobody whose faults are fewer than this part makes the whole exceed the rules', in percent.
    pub(super) fn failing_percent(&self) -> u8 {
        self.rules.fault_percent.div_ceil(4)
    }

    pub(super) fn tallies(&self, holder: u64) -> NodeTallies {
        NodeTallies::new(holder, self.window_ms, self.providers_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breaker::{BadRules, Rules};

    #[test]
    fn settings_that_cannot_be_meant_are_refused_at_their_boundaries() {
        let good = FleetSettings::default();
        let with = |rules| FleetSettings { rules, ..good };
        let rules = good.rules;
        let cases = [
            (good, Ok(())),
            (FleetSettings { window_ms: 0, ..good }, Err(BadSettings::Zero)),
            (FleetSettings { troubled_max: 0, ..good }, Err(BadSettings::Zero)),
            (FleetSettings { alone_ms: 0, ..good }, Ok(())),
            (with(FleetRules { tenants_min: 0, ..rules }), Err(BadSettings::Zero)),
            (with(FleetRules { tenant_percent: 0, ..rules }), Err(BadSettings::Percent)),
            (with(FleetRules { fault_percent: 101, ..rules }), Err(BadSettings::Percent)),
            (with(FleetRules { hear_ms: 0, ..rules }), Ok(())),
            (with(FleetRules { hear_ms: 2_999, ..rules }), Err(BadSettings::Hear)),
            (with(FleetRules { hear_ms: 3_000, ..rules }), Ok(())),
            (with(FleetRules { fresh_ms: 13_000, ..rules }), Ok(())),
            (with(FleetRules { fresh_ms: 12_999, ..rules }), Err(BadSettings::Fresh)),
            (
                with(FleetRules { gate: Rules { open_ms: 0, ..rules.gate }, ..rules }),
                Err(BadSettings::Rules(BadRules::Zero)),
            ),
        ];
        for (settings, expected) in cases {
            assert_eq!(settings.check(), expected, "{settings:?}");
        }
    }
}
