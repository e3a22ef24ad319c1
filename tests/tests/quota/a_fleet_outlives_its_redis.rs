use std::time::Duration;

use tidegate_tests::callers::{Called, End};

use crate::storm::{Storm, WINDOW, expect_prompt};

/// From the moment when the store is there again.
const AGAIN: Duration = Duration::from_secs(6);
/// What was leased before is spent first: so long, and time for looking on.
const LEASED: Duration = Duration::from_millis(700);

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
    expect_prompt(&book, (from, to), 50, "killed");
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
    expect_prompt(&book, (from + LEASED, to), 90, "frozen");
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
    expect_prompt(&book, (from + LEASED, to), 90, "paused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_without_memory_parks_calls_and_is_told_of() {
    let Some(storm) = Storm::begins(&[]).await else { return };
    storm.redis.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let from = storm.callers.now();
    storm.fleet.says_of_store(true).await;
    // And it stays so, though such a Redis can be read: nodes look at their store every five seconds.
    let looked = storm.callers.now() + Duration::from_millis(5_500);
    while storm.callers.now() < looked {
        let said = String::from_utf8_lossy(&storm.fleet.nodes[0].admin("/readyz").await.body).into_owned();
        assert!(said.contains("quota: its store") && said.contains("maxmemory"), "{said}");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let to = storm.callers.now();
    storm.redis.run(&["CONFIG", "SET", "maxmemory", "0"]);
    let again = storm.goes().await;
    assert!(again <= AGAIN, "{again:?}");
    println!("goes again after {again:?}");
    storm.fleet.says_of_store(false).await;
    let book = storm.passes("without memory").await;
    expect_prompt(&book, (from + LEASED, to), 90, "without memory");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_restarted_in_turn_cost_nothing() {
    let Some(mut storm) = Storm::begins(&[]).await else { return };
    for node in 0..storm.fleet.nodes.len() {
        storm.fleet.nodes[node].restart().await;
    }
    storm.goes().await;
    let book = storm.passes("restarted in turn").await;
    let refused = |called: &&Called| matches!(called.end, End::Refused { .. });
    assert_eq!(book.iter().filter(refused).count(), 0, "{:?}", book.iter().find(refused));
}
