//! What is configured, as one value that a call loads once and keeps.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use domain::TenantId;
use outbound::{Exit, ExitAddress, Rules, TlsClient};

use crate::Refusal;
use crate::connections::Connections;
use crate::forward::headers::Names;
use crate::no::No;
use crate::policy::Policy;
use crate::settings::Settings;

/// Everything that a reload can change.
#[derive(Debug)]
pub struct Snapshot {
    /// Bounds.
    pub settings: Settings,
    /// Who we say we are.
    pub names: Names,
    /// Who may call what.
    pub policy: Policy,
    /// Which addresses may be dialled.
    pub rules: Arc<Rules>,
    /// Where calls leave from, by the pool's name; none where the kernel chooses.
    pub pools: HashMap<Box<str>, Arc<[ExitAddress]>>,
    /// Whether calls leave from a pool or not at all, as exit ranges are published or have to be.
    pub needs_pool: bool,
    /// Accounts at providers.
    pub connections: Connections,
    /// How TLS is spoken to destinations.
    pub tls: TlsClient,
}

/// The pool of tenants that name none.
pub const DEFAULT_POOL: &str = "default";

impl Snapshot {
    /// One address of a tenant's pool, always the same one for as long as the pool is as it is: connections are pooled
    /// by it, and a provider sees one tenant come from one address.
    pub(crate) fn exit(&self, pool: Option<&str>, tenant: &TenantId) -> Result<Exit, No> {
        if self.pools.is_empty() {
            return if self.needs_pool {
                let why = "there is no exit pool, and what the kernel would choose is in no published range";
                Err(No::new(Refusal::ExitUnavailable, why))
            } else {
                Ok(Exit::Unbound)
            };
        }
        let name = pool.unwrap_or(DEFAULT_POOL);
        let addresses = self.pools.get(name).filter(|addresses| !addresses.is_empty());
        let Some(addresses) = addresses else {
            return Err(No::new(Refusal::ExitUnavailable, format!("there is no exit pool {name}")));
        };
        let place = exit_of(addresses.iter().map(|address| (address.v4, address.v6)), tenant);
        let address = place.and_then(|place| addresses.get(place));
        address.cloned().map(Exit::From).ok_or_else(|| No::new(Refusal::Internal, "a place beyond the pool's end"))
    }
}

/// Which of a pool's addresses is the tenant's, by its place in the pool.
///
/// By rendezvous hashing: where an address is added, only those move that move to it, and where one is taken away, only
/// its own. Providers allowlist what a tenant calls from, so that a pool that grows must not move everybody.
pub fn exit_of(
    pool: impl IntoIterator<Item = (Option<Ipv4Addr>, Option<Ipv6Addr>)>,
    tenant: &TenantId,
) -> Option<usize> {
    let scores = pool.into_iter().enumerate().map(|(place, (v4, v6))| {
        let v4 = v4.map(|address| address.octets()).unwrap_or_default();
        let v6 = v6.map(|address| address.octets()).unwrap_or_default();
        (score(tenant.as_bytes().iter().chain(&[0]).chain(&v4).chain(&v6)), place)
    });
    scores.max().map(|(_, place)| place)
}

/// FNV-1a (64 bit), mixed once more so that the last bytes reach every bit. Fixed for ever: it says where calls leave from.
fn score<'b>(bytes: impl Iterator<Item = &'b u8>) -> u64 {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325, fnv);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(count: u8) -> Vec<(Option<Ipv4Addr>, Option<Ipv6Addr>)> {
        (0..count).map(|nth| (Some(Ipv4Addr::new(192, 0, 2, nth)), None)).collect()
    }

    fn places(pool: &[(Option<Ipv4Addr>, Option<Ipv6Addr>)]) -> Vec<usize> {
        let tenant = |nth: usize| TenantId::parse(&format!("tenant-{nth}")).unwrap();
        (0..10_000).map(|nth| exit_of(pool.iter().copied(), &tenant(nth)).unwrap()).collect()
    }

    #[test]
    fn without_a_pool_the_kernel_chooses_only_where_nothing_is_published() {
        let mut snapshot = Snapshot {
            settings: Settings::of(&config::Egress::default()),
            names: Names::new("edge", None).unwrap(),
            policy: Policy::default(),
            rules: Arc::new(Rules {
                table: Arc::new(outbound::AddressTable::shipped()),
                own: outbound::Own::default(),
                nat64: Vec::new(),
            }),
            pools: HashMap::new(),
            needs_pool: false,
            connections: Connections::default(),
            tls: TlsClient::new(&outbound::Roots::of_the_system().unwrap(), None, &[]).unwrap(),
        };
        let acme = TenantId::parse("acme").unwrap();
        assert!(matches!(snapshot.exit(None, &acme), Ok(Exit::Unbound)));
        snapshot.needs_pool = true;
        for pool in [None, Some("eu")] {
            assert_eq!(snapshot.exit(pool, &acme).unwrap_err().refusal, Refusal::ExitUnavailable);
        }
    }

    #[test]
    fn a_pool_that_grows_moves_only_those_who_move_to_what_is_new() {
        let (before, after) = (places(&pool(4)), places(&pool(5)));
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
        assert!(moved.clone().all(|(_, after)| *after == 4), "somebody moved between the old ones");
        // A fifth of them, as the new one's share is.
        let share = moved.count();
        assert!((1_800..2_200).contains(&share), "{share}");
    }

    #[test]
    fn addresses_share_the_tenants_evenly() {
        let places = places(&pool(4));
        for place in 0..4 {
            let share = places.iter().filter(|at| **at == place).count();
            assert!((2_300..2_700).contains(&share), "{place}: {share}");
        }
        assert_eq!(exit_of([], &TenantId::parse("acme").unwrap()), None);
    }

    #[test]
    fn where_a_tenant_leaves_from_never_changes() {
        // Computed apart from this code, from the two hashes' definitions.
        assert_eq!(places(&pool(4))[..12], [0, 3, 0, 0, 3, 3, 1, 1, 3, 1, 3, 2]);
    }
}
