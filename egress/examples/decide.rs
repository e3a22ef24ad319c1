//! What one decision costs, with few rules and with many: `cargo run --release -p tidegate-egress --example decide`.
//!
//! A decision is all that happens before a dial: parse the authority, decide on the name, resolve from the cache, vet
//! every address. Its cost must not grow with rules or tenants, and is meant to stay below 5 µs.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "this measures, prints, and stops on the first surprise"
)]

use std::collections::HashMap;
use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use domain::{SystemClock, TenantId};
use http::Method;
use outbound::resolve::CacheSettings;
use outbound::{
    AddressTable, Answer, Authority, CachedResolver, HostName, Own, Resolve, ResolveError, Scheme, resolve_and_vet,
};
use tidegate_egress::policy::{Everybody, HostIndex, Policy, RolePolicy, Rule, Rules, TenantPolicy, Unseen};
use tidegate_egress::{Asked, Caller, Identity, Way};

/// Two public addresses for every name.
#[derive(Debug)]
struct Always;

#[async_trait]
impl Resolve for Always {
    async fn resolve(&self, _: &HostName) -> Result<Answer, ResolveError> {
        let addresses: [IpAddr; 2] = ["93.184.216.34".parse().unwrap(), "2606:2800:220:1::1".parse().unwrap()];
        Ok(Answer { addresses: addresses.into(), ttl: Duration::from_mins(5) })
    }
}

fn rules(count: usize, zone: &str) -> Rules {
    let texts =
        (0..count).map(|at| if at % 2 == 0 { format!("host{at}.{zone}") } else { format!("*.zone{at}.{zone}") });
    Rules::new(texts.map(|text| Arc::new(Rule::parse(&text).unwrap())))
}

fn policy(rule_count: usize, tenant_count: usize) -> Policy {
    let everybody = Everybody {
        allow: rules(rule_count, "shared.example"),
        deny: rules(rule_count, "denied.example"),
        connect_ports: [443].into(),
        ports: [80, 443].into(),
        connectors: HostIndex::default(),
    };
    let own = RolePolicy { allow: Arc::new(rules(rule_count, "own.example")), ..RolePolicy::default() };
    let tenant = Arc::new(TenantPolicy { deny: rules(rule_count, "mine.example"), own, ..TenantPolicy::default() });
    let id = |at: usize| TenantId::parse(&format!("tenant{at}")).unwrap();
    let tenants: HashMap<TenantId, _> = (0..tenant_count).map(|at| (id(at), Arc::clone(&tenant))).collect();
    Policy::new(Arc::new(everybody), tenants)
}

/// Nanoseconds of one call, the best of some rounds: what the code costs, not what else the machine did.
fn nanoseconds(mut work: impl FnMut()) -> u128 {
    const CALLS: u32 = 20_000;
    let round = |_| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| work());
        start.elapsed().as_nanos() / u128::from(CALLS)
    };
    (0..7).map(round).min().unwrap()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let clock = SystemClock::shared();
    let resolver = CachedResolver::new(Always, CacheSettings::default(), clock);
    let own = Own::new(["198.51.100.7".parse().unwrap()], ["0.0.0.0:3128".parse().unwrap()]);
    let vetting = outbound::Rules { table: Arc::new(AddressTable::shipped()), own, nat64: Vec::new() };
    let caller = Caller {
        tenant: TenantId::parse("tenant1").unwrap(),
        role: None,
        identity: Identity::Token { name: "bench".into() },
        connections: None,
        destinations: None,
        run: None,
        automation: None,
        class: None,
        until_unix_ms: None,
    };
    println!("{:>7} {:>8} {:<28} {:>9} {:>9}", "rules", "tenants", "destination", "policy", "all");
    for (rule_count, tenant_count) in [(10, 10), (1_000, 1_000), (10_000, 100_000)] {
        let policy = policy(rule_count, tenant_count);
        for text in ["host8.own.example:443", "a.b.zone9.own.example:443", "host8.shared.example:443"] {
            let asked = |authority: Authority| Asked {
                way: Way::Connect,
                method: Method::CONNECT,
                scheme: Scheme::Https,
                authority,
                path_and_query: "".into(),
            };
            let parsed = asked(Authority::with_port(text).unwrap());
            let name_only = nanoseconds(|| {
                black_box(policy.decide(&caller, black_box(&parsed), &mut Unseen).unwrap());
            });
            let whole = nanoseconds(|| {
                let asked = asked(Authority::with_port(black_box(text)).unwrap());
                let allowed = policy.decide(&caller, &asked, &mut Unseen).unwrap();
                let vetted = resolve_and_vet(&asked.authority, &allowed.openings, &vetting, &resolver);
                black_box(runtime.block_on(vetted).unwrap());
            });
            println!("{rule_count:>7} {tenant_count:>8} {text:<28} {name_only:>6} ns {whole:>6} ns");
        }
    }
}
