use std::net::SocketAddr;
use std::time::Duration;

use tidegate_tests::callers::End;
use tidegate_tests::eventually;
use tidegate_tests::redis::Redis;
use tidegate_tests::relay::{Leads, Relay};

use crate::storm::{Storm, WINDOW, expect_prompt};

/// From the moment when another one is primary.
const AGAIN: Duration = Duration::from_secs(8);
/// A second of `min-replicas-max-lag`, one more until a primary looks, and what was leased at the end of it.
const ALONE: Duration = Duration::from_millis(2_700);

async fn primary(arguments: &[&str]) -> Option<Redis> {
    let mut primary = Redis::prepare(&["--save", "", "--repl-diskless-sync-delay", "0"])?;
    primary.also(arguments);
    primary.up().await;
    Some(primary)
}

/// A replica of what is there, which is found where it is.
async fn replica_of(primary: SocketAddr) -> Option<Redis> {
    let mut replica = Redis::prepare(&["--save", ""])?;
    let (ip, port) = (replica.address.ip().to_string(), replica.address.port().to_string());
    replica.also(&["--replicaof", &format!("{} {}", primary.ip(), primary.port())]);
    replica.also(&["--replica-announce-ip", &ip, "--replica-announce-port", &port]);
    replica.up().await;
    eventually!(replica.run(&["INFO", "replication"]).contains("master_link_status:up"));
    Some(replica)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_sentinels_choose_costs_no_excess() {
    let mut beside = None;
    let gather = async || {
        let primary = primary(&[]).await?;
        let replica = replica_of(primary.address).await?;
        beside = Some((replica, Redis::sentinel(primary.address).await?));
        Some(primary)
    };
    let settings = [("quota.redis", "mode", "\"sentinel\""), ("quota.redis", "sentinel_name", "\"quota\"")];
    let Some(mut storm) = Storm::gathers(gather, &settings).await else { return };
    let (replica, sentinel) = beside.expect("it was gathered");
    storm.fleet.set("quota.redis", "addresses", &format!("[\"{}\"]", sentinel.address));
    // A sentinel asks a primary for its replicas every ten seconds.
    let port = replica.address.port().to_string();
    eventually!(sentinel.run(&["SENTINEL", "REPLICAS", "quota"]).contains(&port));
    storm.fleet.up().await;
    storm.load();
    storm.goes().await;
    tokio::time::sleep(WINDOW).await;
    storm.redis.kill9();
    let from = storm.callers.now();
    eventually!(replica.run(&["ROLE"]).starts_with("master"));
    let other = storm.callers.now().saturating_sub(from);
    let again = storm.goes().await;
    let to = storm.callers.now();
    println!("another one is primary after {other:?}, and it goes again after {again:?}");
    assert!(again <= AGAIN, "{again:?}");
    let book = storm.passes("failed over").await;
    expect_prompt(&book, (from, to), 20, "failed over");
}

/// What an operator does by hand, too early: the last second of what was granted is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_missed_a_second_costs_no_excess() {
    let mut replica = None;
    let gather = async || {
        let primary = primary(&[]).await?;
        replica = Some(replica_of(primary.address).await?);
        Some(primary)
    };
    let Some(mut storm) = Storm::gathers(gather, &[]).await else { return };
    let replica = replica.expect("it was gathered");
    let relay = Relay::to(storm.redis.address).await;
    storm.fleet.set("quota.redis", "addresses", &format!("[\"{}\"]", relay.address));
    storm.fleet.up().await;
    storm.load();
    storm.goes().await;
    tokio::time::sleep(WINDOW).await;
    replica.run(&["REPLICAOF", "NO", "ONE"]);
    let (before, missed) = (storm.arrived(), Duration::from_secs(1));
    tokio::time::sleep(missed).await;
    let missed = storm.arrived() - before;
    assert!(missed >= 20, "{missed} calls arrived in the second that is missed");
    storm.redis.kill9();
    relay.now_leads(Leads::To(replica.address));
    let again = storm.goes().await;
    println!("{missed} calls are missed; it goes again after {again:?}");
    assert!(again <= AGAIN, "{again:?}");
    storm.passes("failed over by hand").await;
}

/// A split: one node and the old primary on one side, the other nodes and the replica, which is primary from then on, on
/// the other. The old one grants until it notices that no replica hears it, and no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_grants_no_longer_than_its_replicas_may_lag() {
    let mut beside = None;
    let gather = async || {
        let primary = primary(&["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"]).await?;
        let cable = Relay::to(primary.address).await;
        beside = Some((replica_of(cable.address).await?, cable));
        Some(primary)
    };
    let Some(mut storm) = Storm::gathers(gather, &[]).await else { return };
    let (replica, cable) = beside.expect("it was gathered");
    let mut relays = Vec::new();
    for node in 0..3 {
        relays.push(Relay::to(storm.redis.address).await);
        storm.fleet.set_at(node, "quota.redis", "addresses", &format!("[\"{}\"]", relays[node].address));
    }
    storm.fleet.up().await;
    storm.load();
    storm.goes().await;
    tokio::time::sleep(WINDOW).await;

    cable.now_leads(Leads::Nowhere);
    replica.run(&["REPLICAOF", "NO", "ONE"]);
    for relay in &relays[1..] {
        relay.now_leads(Leads::To(replica.address));
    }
    let split = storm.callers.now();
    let heals = split + ALONE + Duration::from_secs(2);
    tokio::time::sleep(heals.saturating_sub(storm.callers.now())).await;
    let heals = storm.callers.now();
    storm.redis.kill9();
    relays[0].now_leads(Leads::To(replica.address));
    let again = storm.goes().await;
    println!("it goes again after {again:?}");
    assert!(again <= AGAIN, "{again:?}");
    let (book, verdicts) = storm.ends("split").await;
    let at_old = |from: Duration, to: Duration| {
        let went = book.iter().filter(|called| called.node == 0 && called.end == End::Answered(200));
        // A call that waited inside went when it had its answer.
        went.filter(|called| (from..to).contains(&(called.at + called.took))).count()
    };
    let (meanwhile, later) = (at_old(split, split + ALONE), at_old(split + ALONE, heals));
    println!("{meanwhile} calls went at the old primary's node, {later} later");
    assert_eq!(later, 0, "nothing is granted by a primary that no replica hears");
    for verdict in verdicts {
        assert!(verdict.worst() <= u64::try_from(meanwhile).expect("few"), "{meanwhile}: {verdict:?}");
    }
}
