//! Where calls leave from: the pools, of which only what is published counts, and each tenant's own address in them.
//!
//! Serving and `tidegate explain` both ask here, so that what is explained is what is done.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use domain::TenantId;
use outbound::{Exit, ExitAddress};
use thiserror::Error;

use crate::ranges::{BookFound, needs_pool};
use crate::settings;

/// The pool of tenants that name none.
pub const DEFAULT_POOL: &str = "default";

/// Everything that calls may leave from.
#[derive(Debug, Clone, Default)]
pub struct Exits {
    /// By the pool's name; none where the kernel chooses.
    pools: HashMap<Box<str>, Arc<[ExitAddress]>>,
    /// Whether calls leave from a pool or not at all, as exit ranges are published or have to be.
    needs_pool: bool,
}

/// Why a call cannot leave.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoExit {
    #[error("there is no exit pool, and what the kernel would choose is in no published range")]
    NoPool,
    #[error("there is no exit pool {0}")]
    Unknown(Box<str>),
    #[error("no address of the exit pool {0} is in a range that is published and active")]
    Unpublished(Box<str>),
}

impl Exits {
    /// Nothing may leave.
    pub fn nowhere() -> Self {
        Self { pools: HashMap::new(), needs_pool: true }
    }

    /// The pools of a file, without what the book of exit ranges says nobody may leave from, which is told beside them. A
    /// file was found to be in order with its book; but a book can come later than a file, from elsewhere, and no call
    /// leaves from what is not published.
    pub fn of(file: &config::Egress, found: &BookFound) -> (Self, Vec<String>) {
        let published = match found {
            BookFound::Good(published) => Some(published),
            BookFound::None | BookFound::Faulty(_) => None,
        };
        let mut left_out = Vec::new();
        let mut may = |pool: &config::Pool, address: IpAddr| {
            let Some(published) = published.filter(|_| !pool.private) else { return true };
            let why = published.covers(&pool.name.value, address).err();
            left_out.extend(
                why.as_ref()
                    .map(|why| format!("no call leaves from {address} of the pool \"{}\": it {why}", pool.name.value)),
            );
            why.is_none()
        };
        let mut pools = HashMap::new();
        for pool in &file.pool {
            let exits = pool.addresses.iter().map(|address| settings::exit(&address.value, pool.freebind));
            let exits = exits.filter_map(|exit| {
                let v4 = exit.v4.filter(|address| may(pool, IpAddr::V4(*address)));
                let v6 = exit.v6.filter(|address| may(pool, IpAddr::V6(*address)));
                (v4.is_some() || v6.is_some()).then_some(ExitAddress { v4, v6, ..exit })
            });
            pools.insert(pool.name.value.as_str().into(), exits.collect());
        }
        (Self { pools, needs_pool: needs_pool(file, found) }, left_out)
    }

    /// One address of a tenant's pool, always the same one for as long as the pool is as it is: connections are pooled
    /// by it, and a provider sees one tenant come from one address.
    pub fn of_tenant(&self, pool: Option<&str>, tenant: &TenantId) -> Result<Exit, NoExit> {
        if self.pools.is_empty() {
            return if self.needs_pool { Err(NoExit::NoPool) } else { Ok(Exit::Unbound) };
        }
        let name = pool.unwrap_or(DEFAULT_POOL);
        let addresses = self.pools.get(name).ok_or_else(|| NoExit::Unknown(name.into()))?;
        let place = place_of(addresses.iter().map(|address| (address.v4, address.v6)), tenant);
        let address = place.and_then(|place| addresses.get(place));
        address.cloned().map(Exit::From).ok_or_else(|| NoExit::Unpublished(name.into()))
    }
}

/// Which of a pool's addresses is the tenant's, by its place in the pool.
///
/// By rendezvous hashing: where an address is added, only those move that move to it, and where one is taken away, only
/// its own. Providers allowlist what a tenant calls from, so that a pool that grows must not move everybody. An entry of
/// both families is known by its IPv4 address: one that is given an IPv6 address, or that loses it, moves nobody.
fn place_of(pool: impl IntoIterator<Item = (Option<Ipv4Addr>, Option<Ipv6Addr>)>, tenant: &TenantId) -> Option<usize> {
    let scores = pool.into_iter().enumerate().map(|(place, (v4, v6))| {
        let v6 = v6.filter(|_| v4.is_none()).map(|address| address.octets()).unwrap_or_default();
        let v4 = v4.map(|address| address.octets()).unwrap_or_default();
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
        (0..10_000).map(|nth| place_of(pool.iter().copied(), &tenant(nth)).unwrap()).collect()
    }

    #[test]
    fn without_a_pool_the_kernel_chooses_only_where_nothing_is_published() {
        let acme = TenantId::parse("acme").unwrap();
        let (exits, left_out) = Exits::of(&config::Egress::default(), &BookFound::None);
        assert!(matches!(exits.of_tenant(None, &acme), Ok(Exit::Unbound)) && left_out.is_empty());
        let (published, _) = Exits::of(&config::Egress::default(), &BookFound::Faulty("damaged".into()));
        for exits in [published, Exits::nowhere()] {
            for pool in [None, Some("eu")] {
                assert_eq!(exits.of_tenant(pool, &acme).unwrap_err(), NoExit::NoPool);
            }
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
    fn an_address_that_gets_or_loses_its_ipv6_moves_nobody() {
        let v6 = |nth: u16| Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, nth));
        let alone = pool(4);
        let both: Vec<_> = alone.iter().zip(1..).map(|((v4, _), nth)| (*v4, v6(nth))).collect();
        assert_eq!(places(&both), places(&alone));
        let mut one = both;
        one[2].1 = None;
        assert_eq!(places(&one), places(&alone));
        // An IPv4 address that is added moves those alone who move to its entry, or away from it.
        let mut only_v6: Vec<_> = (1..=4).map(|nth| (None, v6(nth))).collect();
        let before = places(&only_v6);
        only_v6[1].0 = alone[1].0;
        let after = places(&only_v6);
        assert!(before.iter().zip(&after).all(|(before, after)| before == after || [*before, *after].contains(&1)));
    }

    #[test]
    fn addresses_share_the_tenants_evenly() {
        let places = places(&pool(4));
        for place in 0..4 {
            let share = places.iter().filter(|at| **at == place).count();
            assert!((2_300..2_700).contains(&share), "{place}: {share}");
        }
        assert_eq!(place_of([], &TenantId::parse("acme").unwrap()), None);
    }

    #[test]
    fn where_a_tenant_leaves_from_never_changes() {
        // Computed apart from this code, from the two hashes' definitions.
        assert_eq!(places(&pool(4))[..12], [0, 3, 0, 0, 3, 3, 1, 1, 3, 1, 3, 2]);
    }
}
