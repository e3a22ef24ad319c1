use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use outbound::{AddressTable, ExitAddress, Own, Rules};
use proptest::prelude::*;

use super::*;

/// Reading the table takes milliseconds; the property asks thousands of times.
static ADDRESSES: LazyLock<[VettedAddr; 4]> = LazyLock::new(|| {
    let rules = Rules { table: Arc::new(AddressTable::shipped()), own: Own::default(), nat64: Vec::new() };
    let authority = Authority::with_port("api.example.com:443").unwrap();
    [0, 1, 2, 3].map(|last| rules.vet(&authority, &[IpAddr::from([93, 184, 216, last])], &[]).unwrap().addresses()[0])
});

pub(super) fn address(last: u8) -> VettedAddr {
    ADDRESSES[usize::from(last)]
}

pub(super) fn exit(last: u8) -> Exit {
    Exit::From(ExitAddress { v4: Some(Ipv4Addr::new(192, 0, 2, last)), v6: None, freebind: false })
}

pub(super) fn site(tenant: &str, connection: Option<&str>, authority: &str, exit: Exit) -> Arc<Site> {
    Arc::new(Site {
        tenant: TenantId::parse(tenant).unwrap(),
        connection: connection.map(|id| ConnectionId::parse(id).unwrap()),
        scheme: Scheme::Http,
        authority: Authority::with_port(authority).unwrap(),
        exit,
        tls: None,
    })
}

pub(super) fn acme() -> Arc<Site> {
    site("acme", None, "api.example.com:443", exit(1))
}

fn put(pool: &Pool<u32>, site: &Arc<Site>, item: u32, now: Instant) {
    pool.put(site, Pooled { address: address(1), made: now, idle_max: None, item }, now);
}

fn take(pool: &Pool<u32>, site: &Site, now: Instant) -> Option<u32> {
    pool.take(site, &[address(1)], now).map(|pooled| pooled.item)
}

fn pool(per_site_max: usize, total_max: usize) -> Pool<u32> {
    Pool::new(PoolSettings { per_site_max, total_max, ..PoolSettings::default() })
}

#[tokio::test(start_paused = true)]
async fn the_last_one_used_comes_first_and_each_only_once() {
    let (pool, now) = (pool(8, 8), Instant::now());
    (1..=3).for_each(|item| put(&pool, &acme(), item, now));
    assert_eq!(
        [take(&pool, &acme(), now), take(&pool, &acme(), now), take(&pool, &acme(), now)],
        [Some(3), Some(2), Some(1)]
    );
    assert_eq!(take(&pool, &acme(), now), None);
    assert!(pool.is_empty() && pool.shelves().by_site.is_empty());
}

#[tokio::test(start_paused = true)]
async fn whatever_differs_is_another_site() {
    let (pool, now) = (pool(8, 8), Instant::now());
    put(&pool, &acme(), 1, now);
    let mut https = (*acme()).clone();
    https.scheme = Scheme::Https;
    let others = [
        site("other", None, "api.example.com:443", exit(1)),
        site("acme", Some("conn_1"), "api.example.com:443", exit(1)),
        site("acme", None, "www.example.com:443", exit(1)),
        site("acme", None, "api.example.com:444", exit(1)),
        site("acme", None, "api.example.com:443", exit(2)),
        site("acme", None, "api.example.com:443", Exit::Unbound),
        Arc::new(https),
    ];
    assert!(others.iter().all(|other| take(&pool, other, now).is_none()));
    assert!(pool.take(&acme(), &[address(2)], now).is_none(), "an address that was not vetted this time");
    assert_eq!(take(&pool, &acme(), now), Some(1));
}

#[tokio::test(start_paused = true)]
async fn trust_that_merely_looks_alike_is_another_site() {
    let ca = rcgen::generate_simple_self_signed(vec!["ca.example".to_owned()]).unwrap().cert.pem();
    let roots = outbound::Roots::from_pem(ca.as_bytes()).unwrap();
    let tls = || Some(TlsClient::new(&roots, None, &[]).unwrap());
    let with = |tls| Arc::new(Site { tls, ..(*acme()).clone() });
    let (pool, now, one) = (pool(8, 8), Instant::now(), tls());
    put(&pool, &with(one.clone()), 1, now);
    assert_eq!((take(&pool, &with(tls()), now), take(&pool, &acme(), now)), (None, None));
    assert_eq!(take(&pool, &with(one), now), Some(1));
}

#[tokio::test(start_paused = true)]
async fn old_and_idle_ones_end() {
    let pool = pool(8, 8);
    let PoolSettings { age_max, idle_max, .. } = pool.settings;
    let made = Instant::now();
    put(&pool, &acme(), 1, made);
    assert_eq!(take(&pool, &acme(), made + idle_max - Duration::from_nanos(1)), Some(1));
    put(&pool, &acme(), 2, made);
    assert_eq!(take(&pool, &acme(), made + idle_max), None);
    assert!(pool.is_empty(), "what is too old is dropped when it is seen");
    // Used all the time, and old all the same.
    let pooled = |item, idle_max| Pooled { address: address(1), made, idle_max, item };
    pool.put(&acme(), pooled(3, None), made + age_max - Duration::from_secs(1));
    assert_eq!(take(&pool, &acme(), made + age_max), None);
    pool.put(&acme(), pooled(4, None), made + age_max);
    assert!(pool.is_empty());
    // What the peer says counts if it is less.
    pool.put(&acme(), pooled(5, Some(Duration::from_secs(4))), made);
    pool.put(&acme(), pooled(6, Some(idle_max * 2)), made);
    pool.reap(made + Duration::from_secs(4));
    assert_eq!(pool.len(), 1);
    pool.reap(made + idle_max);
    assert!(pool.is_empty() && pool.shelves().by_site.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_oldest_make_room() {
    let (pool, now) = (pool(2, 3), Instant::now());
    let other = site("other", None, "api.example.com:443", exit(1));
    put(&pool, &other, 10, now);
    (1..=3).for_each(|item| put(&pool, &acme(), item, now));
    assert_eq!(pool.len(), 3, "two of a site");
    put(&pool, &other, 11, now);
    assert_eq!(pool.len(), 3);
    assert_eq!((take(&pool, &other, now), take(&pool, &other, now)), (Some(11), None));
    assert_eq!((take(&pool, &acme(), now), take(&pool, &acme(), now)), (Some(3), Some(2)));
}

#[tokio::test(start_paused = true)]
async fn it_can_be_emptied_and_closed() {
    let (pool, now) = (pool(8, 8), Instant::now());
    let other = site("other", None, "api.example.com:443", exit(1));
    put(&pool, &acme(), 1, now);
    put(&pool, &other, 2, now);
    pool.close_tenants(|tenant| *tenant == other.tenant);
    assert_eq!((take(&pool, &other, now), pool.len()), (None, 1));
    pool.close_idle();
    assert!(pool.is_empty());
    put(&pool, &acme(), 3, now);
    assert_eq!(pool.len(), 1);
    pool.close();
    put(&pool, &acme(), 4, now);
    assert!(pool.is_empty());
}

/// What a connection carries in the model: whose it is, where it leads, when it was made and put back.
#[derive(Debug, Clone)]
struct Carried {
    site: usize,
    address: u8,
    made: Instant,
}

#[derive(Debug, Clone)]
enum Step {
    Put { site: usize, address: u8, age_s: u64 },
    Take { site: usize, addresses: Vec<u8> },
    Wait { s: u64 },
    Reap,
    CloseTenant { site: usize },
}

fn sites() -> Vec<Arc<Site>> {
    let mut sites = Vec::new();
    for tenant in ["a", "b"] {
        for connection in [None, Some("conn_1")] {
            for authority in ["api.example.com:443", "www.example.com:443"] {
                for last in [1, 2] {
                    sites.push(site(tenant, connection, authority, exit(last)));
                }
            }
        }
    }
    sites
}

fn step() -> impl Strategy<Value = Step> {
    let site = 0..16_usize;
    prop_oneof![
        4 => (site.clone(), 1..4_u8, 0..700_u64).prop_map(|(site, address, age_s)| Step::Put { site, address, age_s }),
        4 => (site.clone(), prop::collection::vec(1..4_u8, 0..3))
            .prop_map(|(site, addresses)| Step::Take { site, addresses }),
        2 => (0..60_u64).prop_map(|s| Step::Wait { s }),
        1 => Just(Step::Reap),
        1 => site.prop_map(|site| Step::CloseTenant { site }),
    ]
}

proptest! {
    /// Whatever is put and taken in whatever order: nobody gets another's connection, one to an address that was not
    /// asked for, one that is too old, or one twice; and there are never more than there may be.
    #[test]
    fn nobody_gets_anothers_connection(steps in prop::collection::vec(step(), 0..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut now = runtime.block_on(async { Instant::now() }) + Duration::from_secs(10_000);
        let settings = PoolSettings { per_site_max: 3, total_max: 12, ..PoolSettings::default() };
        let pool = Pool::new(settings.clone());
        let sites = sites();
        let (mut put, mut taken) = (0_usize, Vec::new());
        for step in steps {
            match step {
                Step::Put { site, address: to, age_s } => {
                    let made = now - Duration::from_secs(age_s);
                    let item = (put, Carried { site, address: to, made });
                    put += 1;
                    pool.put(&sites[site], Pooled { address: address(to), made, idle_max: None, item }, now);
                }
                Step::Take { site, addresses } => {
                    let vetted: Vec<_> = addresses.iter().map(|last| address(*last)).collect();
                    if let Some(pooled) = pool.take(&sites[site], &vetted, now) {
                        let (number, carried) = pooled.item;
                        prop_assert_eq!(&sites[carried.site], &sites[site]);
                        prop_assert!(addresses.contains(&carried.address));
                        prop_assert!(now - carried.made < settings.age_max);
                        prop_assert!(!taken.contains(&number));
                        taken.push(number);
                    }
                }
                Step::Wait { s } => now += Duration::from_secs(s),
                Step::Reap => pool.reap(now),
                Step::CloseTenant { site } => pool.close_tenants(|tenant| *tenant == sites[site].tenant),
            }
            let shelves = pool.shelves();
            prop_assert!(shelves.by_site.values().all(|shelf| (1..=3).contains(&shelf.len())));
            let on_shelves: usize = shelves.by_site.values().map(VecDeque::len).sum();
            prop_assert!(on_shelves == shelves.order.len() && on_shelves <= 12);
        }
    }
}
