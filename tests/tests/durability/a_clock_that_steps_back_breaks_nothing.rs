use std::collections::HashSet;
use std::path::PathBuf;

use skip::skipped;
use tidegate_tests::{Appliance, Node};

/// Debian keeps it under the machine's triplet.
fn libfaketime() -> Option<PathBuf> {
    let triplets = std::fs::read_dir("/usr/lib").ok()?;
    let paths = triplets.flatten().map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    paths.into_iter().find(|path| path.exists())
}

async fn deliver(node: &Node, ids: &mut Vec<String>, count: usize) {
    let sender = node.sender("wh_1");
    let mut connection = sender.connect().await;
    for _ in 0..count {
        let response = connection.exchange(&sender.delivery(format!("{}", ids.len()))).await;
        ids.push(response.event_id());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_steps_back_breaks_nothing() {
    let Some(library) = libfaketime() else { return skipped("libfaketime is not installed") };
    let mut node = Appliance::usual().prepare();
    let offset = node.directory.join("offset");
    let step = |to: &str| tidegate_tests::settings::replace(&offset, to);
    step("+0d");
    node.environment("LD_PRELOAD", library.to_str().expect("UTF-8"));
    node.environment("FAKETIME_TIMESTAMP_FILE", offset.to_str().expect("UTF-8"));
    node.environment("FAKETIME_NO_CACHE", "1");
    node.environment("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    node.environment("NO_FAKE_STAT", "1");
    node.start().await;

    let mut ids = Vec::new();
    deliver(&node, &mut ids, 20).await;
    step("-2d");
    deliver(&node, &mut ids, 20).await;
    // The next process begins earlier than the last one ended.
    node.kill9().await;
    node.start().await;
    deliver(&node, &mut ids, 20).await;
    step("-5d");
    node.restart().await;
    deliver(&node, &mut ids, 20).await;
    step("+0d");
    deliver(&node, &mut ids, 20).await;

    let events = node.export();
    let stored: Vec<&String> = events.iter().map(|event| &event.id).collect();
    assert_eq!(stored, ids.iter().collect::<Vec<_>>(), "the order is that of arrival, whatever the clock says");
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 100, "no id twice");
    let times: Vec<&str> = events.iter().map(|event| event.json["receivedAt"].as_str().expect("a time")).collect();
    assert!(times[25] < times[5] && times[70] < times[25], "the clock did step: {times:?}");
    for pair in events.windows(2) {
        let same_life = pair[0].epoch == pair[1].epoch;
        assert!(!same_life || pair[1].sequence == pair[0].sequence + 1, "{pair:?}");
        assert!(pair[0].epoch <= pair[1].epoch);
    }
    for at in [0, 30, 50, 70, 99] {
        let shown = node.cli_ok(&["events", "show", &ids[at], "--tenant", "acme", "--json"]);
        assert!(shown.contains(&ids[at]), "found by its id: {shown}");
    }
}
