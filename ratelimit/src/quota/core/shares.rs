//! Fair shares of an application's bucket: one water level λ for all tenants.
//!
//! While tenants together want no more than there is, everybody takes what comes. Once they want more, time is cut into
//! slots Δ, and in each a tenant may take `weight · λ · Δ`, where λ is the level at which everything is shared out:
//! those who want less than their share have all they want, what they leave is shared by the others in proportion to
//! their weights, and so on until nothing is left (weighted max-min, exact, by one sort). A floor and a ceiling bound
//! each tenant's share from below and above.
//!
//! A call may cost more than a slot's share. It goes as soon as anything of a share is left, and the tenant pays from the
//! slots that follow: over many slots each has exactly its share, and at no time one is further ahead than one block.

use std::collections::HashMap;

use crate::quota::name::{HolderId, Name};
use crate::quota::op::Class;

/// Part of a share that is kept for interactive calls, in hundredths, while a tenant has any.
pub(super) const RESERVE_PERCENT: u64 = 15;
/// So many tenants are levelled in a ms, on average: looking for λ then takes a twentieth of a centre's time at most,
/// however many tenants ask. Who comes meanwhile has a share at the last λ.
const LEVELS_PER_MS: u64 = 16;
/// λ is looked for so often in a slot at most, after which looking again would hardly change it.
const LEVELS_PER_SLOT: u64 = 16;
/// How long a demand holds that is not repeated: a holder that waits asks again sooner.
const DEMAND_MS: u64 = 3_000;
/// Who has taken more than its share waits for no more than this at a time: a slot in which there was next to nothing, a
/// window that was used up say, tells little of the share in those that follow.
const AHEAD_MS_MAX: u64 = 1_000;
/// Most tenants that are told apart in one bucket. Those beyond are refused until others are quiet.
pub(super) const TENANTS_MAX: usize = 16_384;
/// Most holders whose demand for one tenant is told apart; a further one takes the place of the oldest.
const HOLDERS_MAX: usize = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct Shares {
    slot: u64,
    slot_ms: u64,
    /// Thousandths of a unit that may be granted in this slot.
    capacity_milli: u64,
    lambda_milli: Option<u64>,
    /// λ is not looked for again before.
    next_level_ms: u64,
    tenants: HashMap<Name, Tenant>,
}

#[derive(Debug, Clone)]
struct Tenant {
    worth: Worth,
    wants: Vec<Want>,
    /// What the tenant is ahead by from slots before, in thousandths of a unit.
    behind_milli: u64,
    taken_milli: u64,
    interactive_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Want {
    holder: HolderId,
    demand_milli: u64,
    at_ms: u64,
}

impl Shares {
    /// Remembers what a tenant wants. No if there are too many tenants.
    pub(super) fn want(&mut self, holder: HolderId, name: &Name, ask: &Demand, now_ms: u64) -> bool {
        if self.tenants.len() >= TENANTS_MAX && !self.tenants.contains_key(name) {
            return false;
        }
        let tenant = self.tenants.entry(name.clone()).or_insert_with(|| Tenant::new(ask.worth));
        tenant.worth = ask.worth;
        if ask.class == Class::Interactive {
            tenant.interactive_ms = Some(now_ms);
        }
        let want = Want { holder, demand_milli: ask.wanted_milli, at_ms: now_ms };
        let place = match tenant.wants.iter().position(|other| other.holder == holder) {
            None if tenant.wants.len() >= HOLDERS_MAX => {
                (0..tenant.wants.len()).min_by_key(|&at| tenant.wants[at].at_ms)
            }
            place => place,
        };
        match place {
            Some(at) => tenant.wants[at] = want,
            None => tenant.wants.push(want),
        }
        true
    }

    /// Goes to the slot of this moment, in which `capacity_milli` may be granted, told what the last one left; in a slot that goes on, only what is
    /// wanted is looked at again, so that nobody takes a slot's whole by coming late.
    pub(super) fn turn(&mut self, now_ms: u64, slot_ms: u64, capacity_milli: impl FnOnce(u64) -> u64) {
        let slot = now_ms / slot_ms;
        if (slot, slot_ms) != (self.slot, self.slot_ms) {
            // Slots in which nothing was asked have passed for everybody.
            let passed = if slot_ms == self.slot_ms { slot.saturating_sub(self.slot) } else { 1 };
            (self.slot, self.slot_ms) = (slot, slot_ms);
            let lambda_milli = self.lambda_milli;
            let taken_milli = self.tenants.values().map(|tenant| tenant.taken_milli).fold(0, u64::saturating_add);
            let unclaimed_milli = self.capacity_milli.saturating_sub(taken_milli);
            for tenant in self.tenants.values_mut() {
                tenant.wants.retain(|want| want.at_ms + DEMAND_MS > now_ms);
                let due = tenant.allowance_milli(lambda_milli, slot_ms);
                tenant.behind_milli = match due {
                    Some(due) => (tenant.behind_milli + tenant.taken_milli).saturating_sub(due.saturating_mul(passed)),
                    None => 0,
                };
                tenant.taken_milli = 0;
            }
            self.tenants.retain(|_, tenant| !tenant.wants.is_empty() || tenant.behind_milli > 0);
            self.capacity_milli = capacity_milli(unclaimed_milli);
            self.lambda_milli = None;
        }
        let is_contended = self.wanted_milli().saturating_mul(slot_ms) / 1_000 > self.capacity_milli;
        if is_contended && (self.lambda_milli.is_none() || now_ms >= self.next_level_ms) {
            self.lambda_milli = Some(self.level());
            self.next_level_ms = now_ms + (self.tenants.len() as u64 / LEVELS_PER_MS).max(slot_ms / LEVELS_PER_SLOT);
        }
    }

    /// Thousandths of a unit that the tenant may still take in this slot; none where nothing bounds it. It may take one
    /// call, whatever that costs, as long as anything is left.
    pub(super) fn left_milli(&self, name: &Name, class: Class, now_ms: u64) -> Option<u64> {
        let tenant = self.tenants.get(name)?;
        let due = tenant.allowance_milli(self.lambda_milli, self.slot_ms)?;
        let kept = match class {
            Class::Bulk if tenant.is_interactive(now_ms) => due * RESERVE_PERCENT / 100,
            Class::Bulk | Class::Interactive => 0,
        };
        Some(due.saturating_sub(tenant.behind_milli + tenant.taken_milli + kept))
    }

    /// Thousandths of a unit per second, or of a slot, that are the tenant's now; none where nothing bounds it.
    pub(super) fn level_of(&self, name: &Name) -> Option<u64> {
        self.tenants.get(name)?.per_second_milli(self.lambda_milli)
    }

    /// Until a later slot has something for the tenant.
    pub(super) fn retry_ms(&self, name: &Name, now_ms: u64) -> u64 {
        let next_ms = ((self.slot + 1) * self.slot_ms).saturating_sub(now_ms).max(1);
        let Some(tenant) = self.tenants.get(name) else { return next_ms };
        let due = tenant.allowance_milli(self.lambda_milli, self.slot_ms).unwrap_or(0).max(1);
        let slots = ((tenant.behind_milli + tenant.taken_milli) / due).saturating_sub(1);
        next_ms + slots.saturating_mul(self.slot_ms).min(AHEAD_MS_MAX)
    }

    pub(super) fn take(&mut self, name: &Name, units: u32) {
        if let Some(tenant) = self.tenants.get_mut(name) {
            tenant.taken_milli = tenant.taken_milli.saturating_add(u64::from(units) * 1_000);
        }
    }

    pub(super) fn give_back(&mut self, name: &Name, units: u32) {
        if let Some(tenant) = self.tenants.get_mut(name) {
            tenant.taken_milli = tenant.taken_milli.saturating_sub(u64::from(units) * 1_000);
        }
    }

    pub(super) fn lambda_milli(&self) -> Option<u64> {
        self.lambda_milli
    }

    pub(super) fn tenants(&self) -> usize {
        self.tenants.len()
    }

    /// Whether nobody has wanted anything lately.
    pub(super) fn is_quiet(&self, now_ms: u64) -> bool {
        self.tenants.values().all(|tenant| tenant.wants.iter().all(|want| want.at_ms + DEMAND_MS <= now_ms))
    }

    fn wanted_milli(&self) -> u64 {
        self.tenants.values().map(Tenant::wanted_milli).fold(0, u64::saturating_add)
    }

    /// λ, in thousandths of a unit per second and weight, at which what this slot has is shared out.
    fn level(&self) -> u64 {
        let claims: Vec<Claim> = self.tenants.values().map(Tenant::claim).collect();
        let per_second = u128::from(self.capacity_milli) * 1_000 / u128::from(self.slot_ms.max(1));
        level(&claims, u64::try_from(per_second).unwrap_or(u64::MAX))
    }
}

/// What an ask says about its tenant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) class: Class,
    pub(super) worth: Worth,
    pub(super) wanted_milli: u64,
}

/// [`crate::quota::Share`] in a bucket's own units: thousandths of a unit per second, of concurrency of a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Worth {
    pub(super) weight: u16,
    pub(super) floor_milli: u64,
    pub(super) ceiling_milli: Option<u64>,
}

/// What a tenant gets at a level λ: `λ · weight`, but no less than `least` and no more than `most`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) weight: u64,
    pub(super) least: u64,
    pub(super) most: u64,
}

/// The largest λ at which all claims together are within `capacity`. The sum grows with λ along straight lines that
/// bend where a claim leaves its floor or meets its ceiling; the bends are sorted and walked once.
pub(super) fn level(claims: &[Claim], capacity: u64) -> u64 {
    let mut bends: Vec<(u64, i64)> = Vec::with_capacity(claims.len() * 2);
    let mut slope: i64 = 0;
    for claim in claims {
        let weight = i64::try_from(claim.weight).unwrap_or(1);
        bends.push((claim.least.div_ceil(claim.weight), weight));
        bends.push((claim.most.div_ceil(claim.weight), -weight));
    }
    bends.sort_unstable();
    let mut total: u128 = claims.iter().map(|claim| u128::from(claim.least)).sum();
    let capacity = u128::from(capacity);
    let mut at = 0;
    for (bend, change) in bends {
        let rise = u128::from(bend - at) * u128::try_from(slope).unwrap_or(0);
        if total + rise > capacity {
            break;
        }
        (total, at) = (total + rise, bend);
        slope += change;
    }
    let left = capacity.saturating_sub(total);
    match u128::try_from(slope) {
        Ok(slope) if slope > 0 => at + u64::try_from(left / slope).unwrap_or(u64::MAX - at),
        _ => at,
    }
}

impl Tenant {
    fn new(worth: Worth) -> Self {
        Self { worth, wants: Vec::new(), behind_milli: 0, taken_milli: 0, interactive_ms: None }
    }

    fn wanted_milli(&self) -> u64 {
        let wanted = self.wants.iter().map(|want| want.demand_milli).fold(0, u64::saturating_add);
        wanted.min(self.worth.ceiling_milli.unwrap_or(u64::MAX))
    }

    fn claim(&self) -> Claim {
        let most = self.wanted_milli();
        Claim { weight: u64::from(self.worth.weight.max(1)), least: self.worth.floor_milli.min(most), most }
    }

    /// What the tenant may take in a slot. At a level it is not bounded by what the tenant said it wants: that is a
    /// guess, and who wants less than the level is not refused.
    fn allowance_milli(&self, lambda_milli: Option<u64>, slot_ms: u64) -> Option<u64> {
        let rate = self.per_second_milli(lambda_milli)?;
        Some(u64::try_from(u128::from(rate) * u128::from(slot_ms) / 1_000).unwrap_or(u64::MAX))
    }

    fn per_second_milli(&self, lambda_milli: Option<u64>) -> Option<u64> {
        let ceiling = self.worth.ceiling_milli;
        let Some(lambda) = lambda_milli else { return ceiling };
        let level = lambda.saturating_mul(u64::from(self.worth.weight));
        Some(level.max(self.worth.floor_milli).min(ceiling.unwrap_or(u64::MAX)))
    }

    fn is_interactive(&self, now_ms: u64) -> bool {
        self.interactive_ms.is_some_and(|at_ms| at_ms + DEMAND_MS > now_ms)
    }
}
