use skip::skipped;
use tidegate_tests::disk::SmallDisk;
use tidegate_tests::{Appliance, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_acknowledges_nothing_and_heals() {
    let disk = match SmallDisk::new(24) {
        Ok(disk) => disk,
        Err(why) => return skipped(&why),
    };
    let mut node = Appliance::usual()
        .set("gateway", "body_bytes_max", "\"256KiB\"")
        .set("log", "segment_bytes", "\"1MiB\"")
        .set("log", "reserve_bytes", "\"0B\"")
        .log_in(&disk.path().join("log"))
        .start()
        .await;
    let sender = node.sender("wh_1");
    let body = |number: usize| [format!("{number} ").into_bytes(), vec![b'x'; 100 * 1024]].concat();
    let mut acknowledged = Vec::new();
    for number in 0..5 {
        acknowledged.push((number, sender.deliver(body(number)).await.event_id()));
    }

    disk.fill();
    let mut refused = 0;
    for number in 5..100 {
        let response = sender.deliver(body(number)).await;
        if response.status == 202 {
            // Room that was set aside before is room.
            acknowledged.push((number, response.event_id()));
        } else {
            assert_eq!((response.status, response.refusal().as_str()), (503, "log-unavailable"));
            refused += 1;
        }
        if refused == 5 {
            break;
        }
    }
    assert_eq!(refused, 5, "a full disk was never noticed");
    eventually!(node.try_readyz().await == Some(503), "a node that cannot commit is not ready");
    assert_eq!(node.admin("/healthz").await.status, 200, "and it is alive all the same");
    assert_eq!(node.export().len(), acknowledged.len(), "what is there can be read");

    disk.free();
    eventually!(sender.deliver(body(100)).await.status == 202, "space has come back");
    eventually!(node.try_readyz().await == Some(200));

    for restarted in [false, true] {
        if restarted {
            node.restart().await;
        }
        let events = node.export();
        for (number, id) in &acknowledged {
            let found: Vec<_> = events.iter().filter(|event| event.id == *id).collect();
            assert_eq!(found.len(), 1, "{id}");
            assert_eq!(found[0].body, body(*number));
        }
    }
}

/// A log directory that cannot be written to: it does not start, and says why.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_opened_is_said_so() {
    let mut node = Appliance::usual().prepare();
    std::fs::write(&node.log_directory, "a file in its place").expect("it is written");
    node.spawn();
    assert_eq!(node.ended().await.code(), Some(3));
    let path = node.log_directory.display().to_string();
    assert!(node.output().contains(&path), "{}", node.output());
}
