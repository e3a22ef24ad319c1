use std::process::Command;
use std::time::Duration;

use tidegate_tests::judge::assert_lawful;
use tidegate_tests::load::Ledger;
use tidegate_tests::{Appliance, eventually};

/// Lets calls of the running appliance fail, from the `first` to the `last`, under load. Afterwards it has to work
/// again by itself: on a fresh segment, since after a failed sync nobody knows what the old one holds.
async fn failing(sync: &str, call: &str, first: u32, last: u32) {
    let mut node = Appliance::usual().set("log", "sync", &format!("\"{sync}\"")).start().await;
    let senders = [("wh_1".to_owned(), node.sender("wh_1"))];
    let mut ledger = Ledger::seeded(5);
    let pid = node.pid().to_string();
    let inject = format!("inject={call}:error=EIO:when={first}..{last}");
    let mut strace = Command::new("strace")
        .args(["-f", "-q", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject, "-p", &pid])
        .spawn()
        .expect("strace runs");
    let load = ledger.load(&senders, 4);
    let refused = "tidegate_gateway_refused_total";
    eventually!(node.metrics().await.sum(refused, &["log-unavailable"]) > 0.0, "{call} never failed");
    let accepted = node.metrics().await.sum("tidegate_gateway_accepted_total", &[]);
    eventually!(node.metrics().await.sum("tidegate_gateway_accepted_total", &[]) > accepted + 20.0, "it does not heal");
    ledger.settle(load).await;
    assert!(ledger.refused(503) > 0);
    assert_lawful(&ledger, &senders, &node.export());

    node.kill9().await;
    strace.wait().expect("strace ends with it");
    node.start().await;
    assert_lawful(&ledger, &senders, &node.export());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_fails_acknowledges_nothing() {
    failing("fdatasync", "fdatasync", 20, 21).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_direct_write_that_fails_acknowledges_nothing() {
    failing("auto", "pwrite64", 20, 21).await;
}

/// A disk that never comes back: no answer but 503, not ready, and no end of the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_stays_broken_is_never_trusted_again() {
    let mut node = Appliance::usual().set("log", "sync", "\"fdatasync\"").start().await;
    let sender = node.sender("wh_1");
    let mut before = Vec::new();
    for number in 0..10 {
        before.push(sender.deliver(format!("{number}")).await.event_id());
    }
    let pid = node.pid().to_string();
    let mut strace = Command::new("strace")
        .args(["-f", "-q", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-p", &pid])
        .args(["-e", "inject=fdatasync,fsync:error=EIO"])
        .spawn()
        .expect("strace runs");
    eventually!(sender.deliver("x").await.status == 503);
    for number in 0..20 {
        let response = sender.deliver(format!("refused {number}")).await;
        assert_eq!((response.status, response.refusal().as_str()), (503, "log-unavailable"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(node.try_readyz().await, Some(503));
    assert!(node.exited().is_none(), "it stays, so that it can heal");
    node.kill9().await;
    strace.wait().expect("strace ends with it");

    node.start().await;
    let ids: Vec<String> = node.export().into_iter().map(|event| event.id).collect();
    assert!(before.iter().all(|id| ids.contains(id)));
}
