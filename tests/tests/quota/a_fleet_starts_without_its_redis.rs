use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tidegate_tests::callers::End;
use tidegate_tests::redis::Redis;

use crate::lab::ends;
use crate::storm::{Storm, expect_prompt};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_start_without_a_redis_and_take_it_up_when_it_comes() {
    let Some(mut storm) = Storm::gathers(async || Redis::prepare(&["--save", ""]), &[]).await else { return };
    storm.fleet.up().await;
    storm.load();
    let from = storm.callers.now();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let to = storm.callers.now();
    storm.fleet.says_of_store(true).await;
    let before = storm.callers.so_far();
    assert!(before.iter().all(|called| matches!(called.end, End::Parked(_))), "{}", ends(&before));
    assert_eq!(storm.arrived(), 0, "nothing arrives that nobody counts");
    storm.redis.up().await;
    let again = storm.goes().await;
    println!("goes after {again:?}");
    assert!(again <= Duration::from_secs(6), "{again:?}");
    storm.fleet.says_of_store(false).await;
    let book = storm.passes("without Redis at the start").await;
    expect_prompt(&book, (from, to), 50, "without Redis at the start");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_named_and_may_be_corrected() {
    let with = async || {
        let mut redis = Redis::prepare(&["--save", ""])?.with_password("another one");
        redis.up().await;
        Some(redis)
    };
    let secrets = tempfile::tempdir().expect("a directory");
    let file = secrets.path().join("password");
    std::fs::write(&file, "the right one").expect("a file");
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("its mode");
    let reference = format!("\"file:{}\"", file.display());
    let settings = [("quota.redis", "password", reference.as_str())];
    let Some(mut storm) = Storm::gathers(with, &settings).await else { return };
    storm.fleet.up().await;
    storm.load();
    storm.fleet.says_of_store(true).await;
    for node in &storm.fleet.nodes {
        let said = String::from_utf8_lossy(&node.admin("/readyz").await.body).into_owned();
        assert!(said.contains("password"), "{said}");
        assert!(!said.contains("the right one") && !node.output().contains("the right one"), "{said}");
    }
    assert_eq!(storm.arrived(), 0);
    storm.redis.change_password("the right one");
    let again = storm.goes().await;
    println!("goes after {again:?}");
    assert!(again <= Duration::from_secs(6), "{again:?}");
    storm.fleet.says_of_store(false).await;
    storm.passes("with a password that was wrong").await;
}
