//! What it costs to say who asks: `cargo run --release -p tidegate-egress --example identify`.
//!
//! Twice: for grants that come for the first time, whose signatures are checked, and for the same ones again. The second
//! is what nearly every request costs, and is meant to stay below 2 µs.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "this measures, prints, and stops on the first surprise"
)]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::{Clock, Secret, SystemClock, TenantId};
use tidegate_egress::caller::{
    Arrival, CallerSettings, Callers, IssuerEntry, IssuerTenants, NewGrant, Revocations, SigningKey, Tls, presented,
};

/// Fewer than are cached.
const GRANTS: usize = 10_000;
const ROUNDS: usize = 50;

fn main() {
    let clock: Arc<dyn Clock> = SystemClock::shared();
    let (key, _) = SigningKey::generate().unwrap();
    let issuer = IssuerEntry { name: "platform".into(), keys: vec![key.public()], tenants: IssuerTenants::Every };
    let settings = CallerSettings { audience: "tidegate".into(), issuers: vec![issuer], ..CallerSettings::default() };
    let revocations = Arc::new(Revocations::none(Arc::clone(&clock)));
    let (callers, _) = Callers::new(settings, revocations, Arc::clone(&clock));
    let grant = NewGrant {
        run: Some("run_0123456789".into()),
        ..NewGrant::new("platform", "tidegate", TenantId::parse("acme").unwrap())
    };
    let values: Vec<Vec<u8>> = (0..GRANTS)
        .map(|_| grant.mint(&key, clock.unix_ms(), Duration::from_mins(15)).unwrap().token)
        .map(|token: Secret| [b"Bearer ", token.expose()].concat())
        .collect();
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let arrival = Arrival { peer: here, local: here, tls: Tls::Absent, is_distrusted: false };
    let ask = |value: &[u8]| {
        let fields = [("host", &b"a.example"[..]), ("proxy-authorization", value)];
        black_box(callers.identify(presented::of_proxy_request(fields), &arrival).unwrap());
    };
    let time = |what: &str, rounds: usize| {
        let began = Instant::now();
        (0..rounds).for_each(|_| values.iter().for_each(|value| ask(value)));
        let calls = u32::try_from(rounds * values.len()).unwrap();
        println!("{what}, {} bytes: {:?}", values[0].len(), began.elapsed() / calls);
    };
    time("for the first time", 1);
    time("again", ROUNDS);
}
