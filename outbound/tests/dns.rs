//! Resolving and vetting against a DNS server that misbehaves in every way that it can.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "this is a test, on real sockets")]
#![allow(clippy::wildcard_enum_match_arm, reason = "only two types of records are asked for")]

mod support;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::{Clock, ManualClock};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RecordType::{A, AAAA};
use outbound::resolve::{CacheSettings, DnsSettings, NotVetted};
use outbound::{
    ADDRESSES_MAX, Answer, Authority, CachedResolver, DnsResolver, HostName, Refused, Resolve, ResolveError,
    resolve_and_vet,
};
use support::dns::{Asked, Reply, Server, alias, record};
use support::{opening, rules};

fn hasty(server: &Server) -> DnsSettings {
    DnsSettings {
        attempt_timeout: Duration::from_secs(1),
        timeout: Duration::from_secs(4),
        ..DnsSettings::with_servers(vec![server.address])
    }
}

async fn resolve(server: &Server, name: &str) -> Result<Answer, ResolveError> {
    DnsResolver::new(&hasty(server)).unwrap().resolve(&HostName::parse(name).unwrap()).await
}

fn sorted(answer: &Answer) -> Vec<String> {
    let mut addresses: Vec<_> = answer.addresses.iter().map(IpAddr::to_string).collect();
    addresses.sort();
    addresses
}

/// Records for the family that was asked for, and none for the other.
fn of_family(asked: &Asked, records: &[(&str, u32)]) -> Reply {
    let records = records.iter().filter(|(address, _)| address.contains(':') == (asked.kind == AAAA));
    Reply::Records(records.map(|(address, ttl)| record(&asked.name, address, *ttl)).collect())
}

#[tokio::test]
async fn both_families_make_one_answer_with_the_shorter_ttl() {
    let server = Server::start(|asked| of_family(asked, &[("93.184.216.34", 60), ("2606:4700::1", 20)])).await;
    let answer = resolve(&server, "a.example").await.unwrap();
    assert_eq!(sorted(&answer), ["2606:4700::1", "93.184.216.34"]);
    assert_eq!(answer.ttl, Duration::from_secs(20));
    let kinds: Vec<_> = server.asked.lock().unwrap().iter().map(|asked| asked.kind).collect();
    assert!(kinds.contains(&A) && kinds.contains(&AAAA));
}

#[tokio::test]
async fn one_family_is_an_answer_too() {
    let server = Server::start(|asked| of_family(asked, &[("93.184.216.34", 60)])).await;
    let answer = resolve(&server, "a.example").await.unwrap();
    assert_eq!((sorted(&answer), answer.ttl), (vec!["93.184.216.34".to_owned()], Duration::from_mins(1)));
    // The other family fails: the half is used, and not for long.
    let server = Server::start(|asked| match asked.kind {
        AAAA => Reply::Code(ResponseCode::ServFail),
        _ => of_family(asked, &[("93.184.216.34", 60)]),
    })
    .await;
    assert_eq!(resolve(&server, "a.example").await.unwrap().ttl, Duration::from_secs(10));
}

#[tokio::test]
async fn names_are_absolute_and_nothing_is_appended() {
    let server = Server::start(|asked| of_family(asked, &[("8.8.8.8", 1)])).await;
    for name in ["metadata", "db", "a.example", "a.b.c.example.", "_a.b_c.example"] {
        resolve(&server, name).await.unwrap();
    }
    assert_eq!(server.names(), ["_a.b_c.example", "a.b.c.example", "a.example", "db", "metadata"]);
}

#[tokio::test]
async fn noes_and_failures_have_their_names() {
    let server = Server::start(|asked| match asked.name.as_str() {
        "nx.example" => Reply::Code(ResponseCode::NXDomain),
        "empty.example" => Reply::Records(Vec::new()),
        "refused.example" => Reply::Code(ResponseCode::Refused),
        "broken.example" => Reply::Code(ResponseCode::ServFail),
        "silent.example" => Reply::Silence,
        _ => Reply::Noise,
    })
    .await;
    for (name, reason, token, rcode) in [
        ("nx.example", "not-found", "dns_error", Some("NXDOMAIN")),
        ("empty.example", "no-addresses", "dns_error", Some("NOERROR")),
        ("refused.example", "failed", "dns_error", Some("REFUSED")),
        ("broken.example", "failed", "dns_error", Some("SERVFAIL")),
        ("silent.example", "timeout", "dns_timeout", None),
    ] {
        let began = Instant::now();
        let fault = resolve(&server, name).await.expect_err(name);
        assert_eq!((fault.reason(), fault.error_type().token(), fault.rcode()), (reason, token, rcode), "{name}");
        assert!(began.elapsed() < Duration::from_secs(8), "{name}");
    }
    // Noise is ignored by UDP and ends the conversation by TCP; either way there is no answer.
    assert!(resolve(&server, "noise.example").await.is_err());
}

#[tokio::test]
async fn nobody_there_is_a_fault_in_bounded_time() {
    let settings = DnsSettings {
        attempt_timeout: Duration::from_millis(300),
        timeout: Duration::from_secs(1),
        ..DnsSettings::with_servers(vec!["127.0.0.1:1".parse().unwrap()])
    };
    let began = Instant::now();
    let fault = DnsResolver::new(&settings).unwrap().resolve(&HostName::parse("a.example").unwrap()).await.unwrap_err();
    assert!(matches!(fault, ResolveError::Unreachable | ResolveError::Timeout), "{fault}");
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn whoever_finds_all_lookups_under_way_waits_for_its_turn_and_not_for_ever() {
    let server = Server::start(|asked| match asked.name.as_str() {
        "silent.example" => Reply::Silence,
        _ => of_family(asked, &[("93.184.216.34", 60)]),
    })
    .await;
    let resolver = |lookups_max, timeout| {
        let settings = DnsSettings { lookups_max, timeout, ..hasty(&server) };
        Arc::new(DnsResolver::new(&settings).unwrap())
    };
    let slow = resolver(1, Duration::from_secs(1));
    let slower = Arc::clone(&slow);
    let silent = tokio::spawn(async move { slower.resolve(&silent_name()).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let turn = slow.resolve(&HostName::parse("a.example").unwrap()).await;
    assert!(turn.is_ok(), "its turn came after half a second: {turn:?}");
    assert_eq!(silent.await.unwrap(), Err(ResolveError::Timeout));
    // What it waits is no time of its own.
    let slower = Arc::clone(&slow);
    let silent = tokio::spawn(async move { slower.resolve(&silent_name()).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let began = Instant::now();
    assert_eq!(slow.resolve(&silent_name()).await, Err(ResolveError::Timeout));
    assert!(began.elapsed() > Duration::from_millis(1250), "{:?}", began.elapsed());
    assert_eq!(silent.await.unwrap(), Err(ResolveError::Timeout));
    // A turn that never comes.
    let began = Instant::now();
    assert_eq!(resolver(0, Duration::from_millis(300)).resolve(&silent_name()).await, Err(ResolveError::Busy));
    assert!(began.elapsed() < Duration::from_secs(2));
}

fn silent_name() -> HostName {
    HostName::parse("silent.example").unwrap()
}

#[tokio::test]
async fn a_truncated_answer_is_fetched_whole_and_vetted_whole() {
    // The datagram shows public addresses; the whole answer has a private one at its end.
    let server = Server::start(|asked| {
        let mut addresses: Vec<String> = (1..=40).map(|last| format!("93.184.216.{last}")).collect();
        if asked.name == "mixed.example" {
            addresses.push("10.0.0.1".to_owned());
        }
        let records: Vec<_> = addresses.iter().map(|address| record(&asked.name, address, 60)).collect();
        match (asked.kind, asked.by_tcp) {
            (A, true) => Reply::Records(records),
            (A, false) => Reply::Truncated(records[..2].to_vec()),
            _ => Reply::Records(Vec::new()),
        }
    })
    .await;
    let resolver = DnsResolver::new(&hasty(&server)).unwrap();
    let vetted = |name: &str| Authority::with_port(format!("{name}:443")).unwrap();
    let whole = resolve_and_vet(&vetted("long.example"), &[], &rules(), &resolver).await.unwrap();
    assert_eq!(whole.addresses().len(), 40);
    let refused = resolve_and_vet(&vetted("mixed.example"), &[], &rules(), &resolver).await.unwrap_err();
    assert!(refused.to_string().contains("10.0.0.1"), "{refused}");
    assert!(server.asked.lock().unwrap().iter().any(|asked| asked.by_tcp));
}

#[tokio::test]
async fn an_endless_answer_is_refused_and_not_kept_whole() {
    let server = Server::start(|asked| {
        let addresses = (0..2000_u16).map(|index| format!("93.184.{}.{}", index >> 8, index & 255));
        match (asked.kind, asked.by_tcp) {
            (A, true) => Reply::Records(addresses.map(|address| record(&asked.name, &address, 60)).collect()),
            (A, false) => Reply::Truncated(Vec::new()),
            _ => Reply::Records(Vec::new()),
        }
    })
    .await;
    assert_eq!(resolve(&server, "endless.example").await.unwrap().addresses.len(), ADDRESSES_MAX + 1);
    let resolver = DnsResolver::new(&hasty(&server)).unwrap();
    let authority = Authority::with_port("endless.example:443").unwrap();
    let refused = resolve_and_vet(&authority, &[], &rules(), &resolver).await.unwrap_err();
    assert!(matches!(refused, NotVetted::Refused(Refused::TooManyAddresses { .. })), "{refused}");
}

#[tokio::test]
async fn an_answer_with_another_id_is_never_taken() {
    let server = Server::start(|asked| {
        let evil = vec![record(&asked.name, if asked.kind == A { "6.6.6.6" } else { "2606:4700::666" }, 60)];
        let honest = of_family(asked, &[("93.184.216.34", 60), ("2606:4700::1", 60)]);
        match asked.name.as_str() {
            "a.example" => Reply::AfterSpoof(evil, Box::new(honest)),
            _ => Reply::AfterSpoof(evil, Box::new(Reply::Silence)),
        }
    })
    .await;
    assert_eq!(sorted(&resolve(&server, "a.example").await.unwrap()), ["2606:4700::1", "93.184.216.34"]);
    assert!(resolve(&server, "b.example").await.is_err());
}

#[tokio::test]
async fn a_server_that_does_not_keep_the_case_is_asked_by_tcp() {
    let server = Server::start(|asked| {
        let records = vec![record(&asked.name, "93.184.216.34", 60)];
        match asked.kind {
            A => Reply::LowerCase(records),
            _ => Reply::LowerCase(Vec::new()),
        }
    })
    .await;
    // Long enough that no random case is all lower.
    let name = "the-case-of-this-name-comes-back-changed.example";
    assert_eq!(sorted(&resolve(&server, name).await.unwrap()), ["93.184.216.34"]);
    assert!(server.asked.lock().unwrap().iter().any(|asked| asked.by_tcp));
}

#[tokio::test]
async fn addresses_count_only_at_the_end_of_the_chain() {
    let server = Server::start(|asked| match (asked.kind, asked.name.as_str()) {
        (A, "chain.example") => Reply::Records(vec![
            alias("chain.example", "middle.example", 120),
            alias("middle.example", "end.example", 30),
            record("other.example", "6.6.6.6", 300),
            record("end.example", "93.184.216.34", 300),
        ]),
        // In no order, so that the chain cannot be followed in one pass.
        (A, "shuffled.example") => Reply::Records(vec![
            record("end.example", "6.6.6.6", 300),
            alias("middle.example", "end.example", 30),
            alias("shuffled.example", "middle.example", 120),
        ]),
        (A, "middle.example") => Reply::Records(vec![
            alias("middle.example", "end.example", 30),
            record("end.example", "93.184.216.34", 300),
        ]),
        (A, "end.example") => Reply::Records(vec![record("end.example", "93.184.216.34", 300)]),
        (A, "stranger.example") => Reply::Records(vec![record("other.example", "6.6.6.6", 300)]),
        (A, "beside.example") => Reply::Beside(vec![record("other.example", "6.6.6.6", 300)]),
        // The target is another question.
        (A, "split.example") => Reply::Records(vec![alias("split.example", "target.example", 60)]),
        (A, "target.example") => Reply::Records(vec![record("target.example", "93.184.216.35", 60)]),
        _ => Reply::Records(Vec::new()),
    })
    .await;
    let answer = resolve(&server, "chain.example").await.unwrap();
    assert_eq!((sorted(&answer), answer.ttl), (vec!["93.184.216.34".to_owned()], Duration::from_secs(30)));
    assert_eq!(sorted(&resolve(&server, "shuffled.example").await.unwrap()), ["93.184.216.34"]);
    assert_eq!(sorted(&resolve(&server, "split.example").await.unwrap()), ["93.184.216.35"]);
    for name in ["stranger.example", "beside.example"] {
        assert_eq!(resolve(&server, name).await.expect_err(name).reason(), "no-addresses", "{name}");
    }
}

#[tokio::test]
async fn alias_loops_and_endless_chains_end_soon() {
    let server = Server::start(|asked| match asked.name.as_str() {
        "c7.example" => {
            Reply::Records(vec![alias("c7.example", "c8.example", 0), alias("c8.example", "c7.example", 0)])
        }
        "self.example" => Reply::Records(vec![alias("self.example", "self.example", 0)]),
        "far.example" => {
            let name = |index: usize| if index == 0 { "far.example".to_owned() } else { format!("n{index}.example") };
            let mut records: Vec<_> = (0..40).map(|index| alias(&name(index), &name(index + 1), 60)).collect();
            records.push(record(&name(40), if asked.kind == A { "8.8.8.8" } else { "2606:4700::1" }, 60));
            Reply::Records(records)
        }
        // Each question leads to a new one.
        name => {
            let (_, index) = name.trim_end_matches(".example").split_at(1);
            let next = index.parse::<usize>().unwrap_or(0) + 1;
            Reply::Records(vec![alias(name, &format!("x{next}.example"), 60)])
        }
    })
    .await;
    for name in ["c7.example", "self.example", "far.example", "x0.example"] {
        let began = Instant::now();
        assert!(resolve(&server, name).await.is_err(), "{name}");
        assert!(began.elapsed() < Duration::from_secs(8), "{name}");
    }
    assert!(server.asked.lock().unwrap().len() < 100, "{}", server.asked.lock().unwrap().len());
}

#[tokio::test]
async fn an_alias_into_an_internal_zone_is_vetted_by_its_address() {
    let server = Server::start(|asked| match asked.kind {
        A => Reply::Records(vec![alias("c.example", "db.internal", 60), record("db.internal", "10.0.0.5", 60)]),
        _ => Reply::Records(Vec::new()),
    })
    .await;
    let resolver = DnsResolver::new(&hasty(&server)).unwrap();
    let authority = Authority::with_port("c.example:443").unwrap();
    // An opening for the target is none for the name that leads there.
    let openings = [opening("db.internal", "10.0.0.0/8", 443)];
    let refused = resolve_and_vet(&authority, &openings, &rules(), &resolver).await.unwrap_err();
    assert!(refused.to_string().contains("10.0.0.5"), "{refused}");
}

#[tokio::test]
async fn internal_names_are_not_even_asked_for() {
    let server = Server::start(|asked| of_family(asked, &[("10.0.0.5", 60)])).await;
    let resolver = DnsResolver::new(&hasty(&server)).unwrap();
    for name in ["metadata.google.internal", "localhost", "metadata", "x.svc.cluster.local"] {
        let authority = Authority::with_port(format!("{name}:80")).unwrap();
        assert!(resolve_and_vet(&authority, &[], &rules(), &resolver).await.is_err());
    }
    assert_eq!(server.names(), Vec::<String>::new());
    let authority = Authority::with_port("db.internal:80").unwrap();
    let openings = [opening("db.internal", "10.0.0.0/8", 80)];
    assert!(resolve_and_vet(&authority, &openings, &rules(), &resolver).await.unwrap().addresses()[0].is_opened());
}

#[tokio::test]
async fn a_name_that_rebinds_is_pinned_and_then_refused() {
    let server = Server::start(|asked| match (asked.kind, asked.before) {
        (A, 0) => of_family(asked, &[("93.184.216.34", 0)]),
        (A, _) => of_family(asked, &[("169.254.169.254", 0)]),
        _ => Reply::Records(Vec::new()),
    })
    .await;
    let clock = ManualClock::at_unix_ms(0);
    let resolver = CachedResolver::new(
        DnsResolver::new(&hasty(&server)).unwrap(),
        CacheSettings::default(),
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let authority = Authority::with_port("rebind.example:443").unwrap();
    let first = resolve_and_vet(&authority, &[], &rules(), &resolver).await.unwrap();
    assert_eq!(first.addresses()[0].to_string(), "93.184.216.34:443");
    // Within the floor of the TTL nobody asks again, and what was vetted stays what it was.
    assert_eq!(resolve_and_vet(&authority, &[], &rules(), &resolver).await.unwrap(), first);
    clock.advance(Duration::from_secs(1));
    let refused = resolve_and_vet(&authority, &[], &rules(), &resolver).await.unwrap_err();
    assert!(refused.to_string().contains("169.254.169.254"), "{refused}");
    assert!(rules().still_vetted(&authority, first.addresses()[0], &[]).is_ok());
}

#[test]
fn servers_are_checked() {
    let with = |servers: &[&str]| {
        let servers = servers.iter().map(|server| server.parse().unwrap()).collect();
        DnsResolver::new(&DnsSettings::with_servers(servers)).map(|_| ())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    assert!(with(&["127.0.0.53:53", "[::1]:5353"]).is_ok());
    assert!(with(&[]).is_err() && with(&["8.8.8.8:53"; 9]).is_err());
    assert!(with(&["8.8.8.8:0"]).is_err() && with(&["0.0.0.0:53"]).is_err() && with(&["224.0.0.1:53"]).is_err());
}
