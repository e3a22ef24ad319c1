//! What one egress decision costs here: an authority parsed, its name judged, its answer found in the cache, every
//! address vetted. CPU time of one thread. Policy and quota are not in it.

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::SystemClock;
use outbound::resolve::CacheSettings;
use outbound::{
    AddressTable, Answer, Authority, CachedResolver, HostName, Opening, Own, Resolve, ResolveError, Rules,
    resolve_and_vet,
};

const TURNS: usize = 1_000_000;
const NAMES: usize = 5_000;

/// Answers like a large provider's: four addresses of each family.
#[derive(Debug)]
struct Eight;

#[async_trait]
impl Resolve for Eight {
    async fn resolve(&self, _: &HostName) -> Result<Answer, ResolveError> {
        let v4 = (1..=4).map(|last| IpAddr::from([93, 184, 216, last]));
        let v6 = (1..=4).map(|last| IpAddr::from([0x2606, 0x4700, 0, 0, 0, 0, 0, last]));
        Ok(Answer { addresses: v6.chain(v4).collect(), ttl: Duration::from_mins(5) })
    }
}

/// What this thread has used: the same however busy the machine is.
fn cpu_seconds() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

fn timed(what: &str, mut turn: impl FnMut(usize)) {
    let started = cpu_seconds();
    for n in 0..TURNS {
        turn(n);
    }
    println!("{what:<62} {:>6.0} ns", (cpu_seconds() - started) * 1e9 / TURNS as f64);
}

fn main() {
    let table = Arc::new(AddressTable::shipped());
    let own = (1..=64).map(|last| IpAddr::from([198, 51, 100, last]));
    let listeners = [80, 443, 3128, 9090].map(|port| ([0, 0, 0, 0], port).into());
    let nat64 = vec!["64:ff9b::/96".parse().expect("a prefix")];
    let rules = Rules { table: Arc::clone(&table), own: Own::new(own, listeners), nat64 };
    let network = vec!["10.0.0.0/8".parse().expect("a network")];
    let openings: Vec<_> = (0..100)
        .map(|n| Opening::new(&format!("s{n}.internal"), network.clone(), vec![443], &table).expect("an opening"))
        .collect();
    let texts: Vec<String> = (0..NAMES).map(|n| format!("api-{n}.provider-{}.example.com:443", n % 100)).collect();
    let pick = |n: usize| texts[n.wrapping_mul(7_919) % NAMES].as_str();

    timed("parse: a name", |n| _ = black_box(Authority::with_port(pick(n))));
    timed("parse: a name with an A-label", |_| _ = black_box(Authority::with_port("www.xn--bcher-kva.example:443")));
    timed("parse: an IPv6 address", |_| _ = black_box(Authority::with_port("[2606:4700::1111]:443")));

    let authority = Authority::with_port(pick(1)).expect("an authority");
    let answer: Vec<IpAddr> = (1..=8).map(|last| IpAddr::from([0x2606, 0x4700, 0, 0, 0, 0, 0, last])).collect();
    timed("vet: one IPv4 address", |_| _ = black_box(rules.vet(&authority, &[[93, 184, 216, 34].into()], &[])));
    timed("vet: eight IPv6 addresses", |_| _ = black_box(rules.vet(&authority, &answer, &[])));
    let internal = Authority::with_port("s99.internal:443").expect("an authority");
    timed("vet: one internal address, the last of 100 openings", |_| {
        _ = black_box(rules.vet(&internal, &[[10, 1, 2, 3].into()], &openings));
    });

    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let resolver = CachedResolver::new(Eight, CacheSettings::default(), SystemClock::shared());
    runtime.block_on(async {
        for text in &texts {
            resolve(text, &rules, &openings, &resolver).await;
        }
    });
    // One block: entering the runtime for each turn would be measured too.
    runtime.block_on(async {
        for (what, openings) in
            [("parse + vet of 8, cached answer", &[][..]), ("the same, with 100 openings", &openings[..])]
        {
            let started = cpu_seconds();
            for n in 0..TURNS {
                resolve(pick(n), &rules, openings, &resolver).await;
            }
            println!("{what:<62} {:>6.0} ns", (cpu_seconds() - started) * 1e9 / TURNS as f64);
        }
    });
}

async fn resolve(text: &str, rules: &Rules, openings: &[Opening], resolver: &CachedResolver<Eight>) {
    let authority = Authority::with_port(text).expect("an authority");
    let vetted = resolve_and_vet(&authority, openings, rules, resolver).await.expect("a public answer");
    black_box(vetted);
}
