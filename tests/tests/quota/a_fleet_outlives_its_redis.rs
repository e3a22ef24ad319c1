use std::time::Duration;

use tidegate_tests::callers::{Called, End};
use tidegate_tests::eventually;
use tidegate_tests::redis::Redis;

use crate::storm::{Storm, WINDOW, expect_prompt};

/// From the moment when the store is there again.
const AGAIN: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_killed_and_comes_back_empty_costs_no_excess() {
    let Some(mut storm) = Storm::begins(&[]).await else { return };
    storm.redis.kill9();
    let from = storm.callers.now();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let to = storm.callers.now();
    storm.redis.up().await;
    let again = storm.goes().await;
    assert!(again <= AGAIN, "{again:?}");
    println!("goes again after {again:?}");
    let book = storm.passes("killed").await;
    expect_prompt(&book, from, to, "killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_stands_still_keeps_nobody_waiting() {
    let Some(storm) = Storm::begins(&[]).await else { return };
    storm.redis.freeze();
    let from = storm.callers.now();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let to = storm.callers.now();
    storm.redis.thaw();
    let again = storm.goes().await;
    assert!(again <= AGAIN, "{again:?}");
    println!("goes again after {again:?}");
    let book = storm.passes("frozen").await;
    // What was leased before is spent first.
    expect_prompt(&book, from + Duration::from_millis(700), to, "frozen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_pauses_its_clients_keeps_nobody_waiting() {
    let Some(storm) = Storm::begins(&[]).await else { return };
    storm.redis.run(&["CLIENT", "PAUSE", "2000", "ALL"]);
    let from = storm.callers.now();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let to = storm.callers.now();
    let again = storm.goes().await;
    assert!(again <= AGAIN, "{again:?}");
    println!("goes again after {again:?}");
    let book = storm.passes("paused").await;
    expect_prompt(&book, from + Duration::from_millis(700), to, "paused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_without_memory_parks_calls_and_is_told_of() {
    let Some(storm) = Storm::begins(&[]).await else { return };
    storm.redis.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let from = storm.callers.now();
    storm.fleet.says_of_store(true).await;
    let said = storm.fleet.nodes[0].admin("/readyz").await.body;
    assert!(String::from_utf8_lossy(&said).contains("maxmemory"), "{}", String::from_utf8_lossy(&said));
    let to = storm.callers.now();
    storm.redis.run(&["CONFIG", "SET", "maxmemory", "0"]);
    let again = storm.goes().await;
    assert!(again <= AGAIN, "{again:?}");
    println!("goes again after {again:?}");
    storm.fleet.says_of_store(false).await;
    let book = storm.passes("without memory").await;
    expect_prompt(&book, from + Duration::from_millis(700), to, "without memory");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_lost_its_functions_has_them_again_at_once() {
    let Some(storm) = Storm::begins(&[]).await else { return };
    for _ in 0..3 {
        storm.redis.run(&["FUNCTION", "FLUSH"]);
        storm.redis.run(&["SCRIPT", "FLUSH"]);
        let again = storm.goes().await;
        println!("goes again after {again:?}");
        assert!(again <= Duration::from_secs(4), "{again:?}");
    }
    storm.passes("flushed").await;
}

/// A replica of this one, which sentinels find where it is.
async fn replica_of(primary: &Redis) -> Option<Redis> {
    let of = primary.address;
    let mut replica = Redis::prepare(&["--save", ""])?;
    let (ip, port) = (replica.address.ip().to_string(), replica.address.port().to_string());
    replica.also(&["--replicaof", &of.ip().to_string(), &of.port().to_string()]);
    replica.also(&["--replica-announce-ip", &ip, "--replica-announce-port", &port]);
    replica.up().await;
    eventually!(replica.run(&["INFO", "replication"]).contains("master_link_status:up"));
    Some(replica)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_costs_no_excess() {
    let mut beside = None;
    let gather = async || {
        let mut primary = Redis::prepare(&["--save", "", "--repl-diskless-sync-delay", "0"])?;
        primary.up().await;
        let replica = replica_of(&primary).await?;
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
    let to = storm.callers.now();
    let again = storm.goes().await;
    println!("another one is primary after {:?}, and it goes again after {again:?}", to.saturating_sub(from));
    assert!(again <= AGAIN, "{again:?}");
    let book = storm.passes("failed over").await;
    expect_prompt(&book, from + Duration::from_millis(700), to, "failed over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_dies_with_its_leases_takes_nothing_with_it() {
    let Some(mut storm) = Storm::begins(&[]).await else { return };
    storm.fleet.nodes[2].kill9().await;
    let from = storm.callers.now();
    tokio::time::sleep(WINDOW).await;
    let to = storm.callers.now();
    let of_others = |called: &&Called| called.node < 2 && (from..to).contains(&called.at);
    let book = storm.callers.so_far();
    let gone = book.iter().filter(of_others).filter(|called| called.end == End::Answered(200)).count();
    assert!(gone >= 50, "{gone} calls went at the other nodes within a window");
    storm.fleet.nodes[2].start().await;
    storm.goes().await;
    storm.passes("a node died").await;
}
