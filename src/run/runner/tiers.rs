//! Tiers of tenants, as the files in force have them.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use config::{DEFAULT_TIER, TenantRunner};
use domain::TenantId;
use runner::schedule::Tiers;
use runner::schedule::core::{Member, Tier};

use super::config::InForce;

/// Who is in which. The first tier is that of tenants that name none.
#[derive(Debug)]
pub(crate) struct TierTable {
    tiers: Vec<Tier>,
    places: HashMap<Box<str>, u8>,
    /// Of tenants whose files say something of it; few do.
    members: HashMap<TenantId, Member>,
}

impl Default for TierTable {
    fn default() -> Self {
        Self::of(&config::Runner::default())
    }
}

impl TierTable {
    pub(super) fn of(file: &config::Runner) -> Self {
        let tier = |tier: &config::RunnerTier| Tier {
            slots_max: tier.concurrency.unwrap_or(file.slots),
            reserve: config::Runner::reserved_slots(file.slots, tier.reserve_percent),
        };
        let default = file.tier.iter().find(|tier| tier.name.value == DEFAULT_TIER);
        let first = default.map_or(Tier { slots_max: file.slots, reserve: 0 }, tier);
        let others = || file.tier.iter().filter(|tier| tier.name.value != DEFAULT_TIER);
        let tiers = std::iter::once(first).chain(others().map(tier)).collect();
        let places = others().zip(1..).map(|(tier, place)| (tier.name.value.as_str().into(), place)).collect();
        Self { tiers, places, members: HashMap::new() }
    }

    /// A tier that is not there was told where the tenant's file was read.
    pub(super) fn add(&mut self, tenant: &TenantId, own: &TenantRunner) {
        if own.tier.is_none() && own.concurrency.is_none() {
            return;
        }
        let tier = own.tier.as_ref().and_then(|name| self.places.get(name)).copied().unwrap_or(0);
        let member = Member { tier, slots_max: own.concurrency.unwrap_or(u32::MAX) };
        self.members.insert(tenant.clone(), member);
    }

    /// As the scheduler has them.
    pub(super) fn tiers(&self) -> Vec<Tier> {
        self.tiers.clone()
    }

    fn member(&self, tenant: &TenantId) -> Member {
        self.members.get(tenant).copied().unwrap_or_else(|| Member::of(0))
    }
}

/// Tiers of the files that are in force at the moment at which it is asked.
#[derive(Debug)]
pub(super) struct TiersInForce(pub(super) Arc<ArcSwap<InForce>>);

impl Tiers for TiersInForce {
    fn member_of(&self, tenant: &TenantId) -> Member {
        self.0.load().tiers.member(tenant)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn table(tiers: &str) -> TierTable {
        let text = format!(
            "[gateway]\npublic_url = \"https://a.example.com\"\n[egress]\n[[egress.issuer]]\nname = \"x\"\nkeys = [\"ed25519:x\"]\ntenants = [\"*\"]\nsigning_key = \"env:K\"\n[runner]\nslots = 50\n{tiers}"
        );
        let (appliance, faults) = config::parse_appliance(Path::new("tidegate.toml"), text.as_bytes());
        TierTable::of(&appliance.unwrap_or_else(|| panic!("{faults:?}")).runner)
    }

    #[test]
    fn a_tenant_is_in_the_tier_that_its_file_names() {
        let mut table = table(
            "[[runner.tier]]\nname = \"gold\"\nreserve_percent = 25\n[[runner.tier]]\nname = \"default\"\nconcurrency = 5\n",
        );
        let tier = |slots_max, reserve| Tier { slots_max, reserve };
        assert_eq!(table.tiers(), [tier(5, 0), tier(50, 12)]);
        let tenant = |name: &str| TenantId::parse(name).unwrap();
        let own = |tier: Option<&str>, concurrency| TenantRunner {
            tier: tier.map(Into::into),
            concurrency,
            ..TenantRunner::default()
        };
        table.add(&tenant("a"), &own(Some("gold"), None));
        table.add(&tenant("b"), &own(Some("default"), Some(2)));
        table.add(&tenant("c"), &own(None, None));
        assert_eq!(table.member(&tenant("a")), Member::of(1));
        assert_eq!(table.member(&tenant("b")), Member { tier: 0, slots_max: 2 });
        assert_eq!((table.member(&tenant("c")), table.members.len()), (Member::of(0), 2));
    }

    #[test]
    fn without_tiers_everybody_is_in_one() {
        assert_eq!(table("").tiers(), [Tier { slots_max: 50, reserve: 0 }]);
    }
}
