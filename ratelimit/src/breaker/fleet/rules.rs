//! When a fleet's breaker opens, and how long what belongs to it lasts.

use super::tally::Tally;
use crate::breaker::rules::Rules;

/// When a fleet's breaker opens. How long, and how it closes, is said by [`Rules`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetRules {
    /// At least so many distinct tenants with faults; up to some fifty it is exact enough.
    pub tenants_min: u16,
    /// They are at least this part of the tenants that called, in percent.
    pub tenant_percent: u8,
    /// At least this part of calls failed, in percent…
    pub fault_percent: u8,
    /// …of at least so many.
    pub volume_min: u32,
    /// It opens so long after it nearly would have, if it still does: until then those whose calls succeed are heard,
    /// too, who have nothing to report before they are asked. 0 where there is no other node.
    pub hear_ms: u32,
    /// A holder not heard of for so long is left out; three times the interval of reports, at least.
    pub fresh_ms: u32,
    /// Phases: how long it is open, the probe's lease, how many good probes close it, which faults count.
    pub gate: Rules,
}

impl Default for FleetRules {
    fn default() -> Self {
        Self {
            tenants_min: 5,
            tenant_percent: 30,
            fault_percent: 50,
            volume_min: 50,
            hear_ms: 0,
            fresh_ms: 30_000,
            gate: Rules::default(),
        }
    }
}

impl FleetRules {
    /// A lease that no call came for goes back after this. The caller that was refused has come again by then.
    pub(super) fn claim_ms(&self) -> u64 {
        u64::from(self.gate.probe_lease_ms / 4).max(1)
    }

    /// A probe that another node has taken is given up after so long: it may have gone out as late as the claim lasts.
    pub(super) fn watch_ms(&self) -> u64 {
        u64::from(self.gate.probe_lease_ms).saturating_add(self.claim_ms())
    }
}

pub(super) fn is_broken(rules: &FleetRules, all: &Tally) -> bool {
    let (calling, failing) = (all.calling(), all.failing());
    let part = |part: u32, of: u32, percent: u8| u64::from(part) * 100 >= u64::from(of) * u64::from(percent);
    failing >= u32::from(rules.tenants_min.max(1))
        && part(failing, calling, rules.tenant_percent)
        && all.calls() >= rules.volume_min.max(1)
        && part(all.faults(), all.calls(), rules.fault_percent)
}

/// Whether three quarters of everything that opens it are there.
pub(super) fn is_nearly_broken(rules: &FleetRules, all: &Tally) -> bool {
    let most = |number: u32| (u64::from(number) * 3).div_ceil(4);
    let percent = |percent: u8| u8::try_from(most(u32::from(percent))).unwrap_or(percent);
    let near = FleetRules {
        tenants_min: u16::try_from(most(u32::from(rules.tenants_min))).unwrap_or(rules.tenants_min),
        tenant_percent: percent(rules.tenant_percent),
        fault_percent: percent(rules.fault_percent),
        volume_min: u32::try_from(most(rules.volume_min)).unwrap_or(rules.volume_min),
        ..*rules
    };
    is_broken(&near, all)
}
