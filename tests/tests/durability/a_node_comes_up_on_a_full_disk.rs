use std::path::Path;

use skip::skipped;
use tidegate_tests::disk::{Disk, LoopDisk, SmallDisk, fill, free};
use tidegate_tests::{Appliance, Node, eventually};

/// A file system in memory, where a directory takes no space.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_comes_up_on_a_full_tmpfs_and_heals() {
    match SmallDisk::new(32) {
        Ok(disk) => comes_up_and_heals(disk.path()).await,
        Err(why) => skipped(&why),
    }
}

/// One as servers have it, where every directory and every small file takes a block.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_comes_up_on_a_full_ext4_and_heals() {
    match LoopDisk::new(48) {
        Ok(disk) => comes_up_and_heals(&disk.path()).await,
        Err(why) => skipped(&why),
    }
}

/// Everything that the appliance writes is on the disk that is full, and neither an end nor a kill leaves it any room.
async fn comes_up_and_heals(disk: &Path) {
    let quoted = |name: &str| format!("\"{}\"", disk.join(name).display());
    let mut node = Appliance::usual()
        .set("gateway", "body_bytes_max", "\"256KiB\"")
        .set("log", "segment_bytes", "\"1MiB\"")
        .set("log", "reserve_bytes", "\"0B\"")
        .set("admin", "socket", &quoted("control.sock"))
        .set("tenants", "state_directory", &quoted("state"))
        .log_in(&disk.join("log"))
        .start()
        .await;
    let sender = node.sender("wh_1");
    let body = |number: usize| [format!("{number} ").into_bytes(), vec![b'x'; 100 * 1024]].concat();
    let mut acknowledged = Vec::new();
    fill(disk);
    for number in 0.. {
        let response = sender.deliver(body(number)).await;
        if response.status != 202 {
            assert_eq!(response.status, 503);
            break;
        }
        // Room that was set aside before is room.
        acknowledged.push((number, response.event_id()));
    }
    assert!(acknowledged.len() > 5, "{}", acknowledged.len());

    for killed in [false, true] {
        if killed {
            node.kill9().await;
        } else {
            node.terminate().await;
        }
        fill(disk);
        node.spawn();
        eventually!(node.try_readyz().await == Some(503), "it answers, and is not ready");
        look(&node, &acknowledged, &body).await;
    }

    free(disk);
    eventually!(node.try_readyz().await == Some(200), "space has come back, and nobody did anything");
    acknowledged.push((1000, sender.deliver(body(1000)).await.event_id()));
    assert!(node.metrics().await.sum("tidegate_log_available", &["class=\"default\""]) > 0.5, "it can commit");
    for restarted in [false, true] {
        if restarted {
            node.restart().await;
        }
        assert_eq!(node.export().len(), acknowledged.len());
    }
    node.terminate().await;
    node.cli_ok(&["log", "verify"]);
}

/// It takes nothing, and tells everything.
async fn look(node: &Node, acknowledged: &[(usize, String)], body: &impl Fn(usize) -> Vec<u8>) {
    assert_eq!(node.admin("/healthz").await.status, 200);
    let ready = node.admin("/readyz").await;
    assert!(String::from_utf8_lossy(&ready.body).contains("the disk is full"));
    assert!(node.metrics().await.sum("tidegate_log_available", &["class=\"default\""]) < 0.5, "it cannot commit");
    for _ in 0..3 {
        let response = node.sender("wh_1").deliver(body(999)).await;
        assert_eq!((response.status, response.refusal().as_str()), (503, "log-unavailable"));
        assert!(response.header("retry-after").is_some());
    }
    // What was never verified takes another way, and is refused all the same.
    let forger = node.sender("wh_1").with_secret("a guess");
    assert_eq!(forger.deliver(body(998)).await.status, 401);

    let events = node.export();
    assert_eq!(events.len(), acknowledged.len());
    for (number, id) in acknowledged {
        let found: Vec<_> = events.iter().filter(|event| event.id == *id).collect();
        assert_eq!((found.len(), &found[0].body), (1, &body(*number)), "{id}");
    }
    let listed = node.cli_ok(&["events", "list", "--all-tenants", "--json"]);
    assert_eq!(listed.lines().count(), acknowledged.len());
    let (_, id) = acknowledged.last().expect("there are some");
    assert!(node.cli_ok(&["events", "show", id, "--all-tenants", "--json"]).contains(id.as_str()));
    assert!(node.cli_ok(&["log", "stat"]).contains("default"));
}
