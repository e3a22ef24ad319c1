use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use tidegate_tests::judge::{Breach, assert_lawful, judge};
use tidegate_tests::load::Ledger;
use tidegate_tests::patience::how_many;
use tidegate_tests::random::Random;
use tidegate_tests::response::find;
use tidegate_tests::{Appliance, Node, Sender, endpoint, tenant};

fn appliance() -> Appliance {
    let acme = tenant("acme").endpoint(endpoint("wh_1")).endpoint(endpoint("wh_2"));
    Appliance::new().tenant(acme).tenant(tenant("globex").endpoint(endpoint("wh_3")))
}

fn senders(node: &Node) -> Vec<(String, Sender)> {
    ["wh_1", "wh_2", "wh_3"].iter().map(|id| ((*id).to_owned(), node.sender(id))).collect()
}

/// `TIDEGATE_KILLS` says how many; `make torture` says more.
#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_nothing_that_was_acknowledged() {
    let mut random = Random::announced("kills");
    let mut ledger = Ledger::seeded(random.draw());
    let mut node = appliance().start().await;
    let senders = senders(&node);
    let kills = how_many("TIDEGATE_KILLS", 24);
    // The log grows with every life, and a judge reads all of it: few judgements, or a long run is nothing else.
    let judged_every = (kills / 8).max(8);
    for kill in 1..=kills {
        let load = ledger.load(&senders, 2);
        tokio::time::sleep(Duration::from_millis(random.within(1, 250))).await;
        node.kill9().await;
        ledger.settle(load).await;
        node.start().await;
        if kill % judged_every == 0 || kill == kills {
            assert_lawful(&ledger, &senders, &node.export());
        }
    }
    let acknowledged = ledger.acknowledged().count();
    println!("{kills} kills, {acknowledged} acknowledged, {} sent", ledger.attempts.len());
    assert!(acknowledged > kills * 5, "there was no load to speak of");
    assert!(acknowledged < ledger.attempts.len(), "no kill ever met a delivery under way");
    assert_eq!(node.cli(&["log", "verify"]).status.code(), Some(0), "a log that was only killed is whole");
}

/// Killed by the kernel at the writer's n-th write, before it happens.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_a_write_loses_nothing_that_was_acknowledged() {
    let mut random = Random::announced("kills at a write");
    let mut ledger = Ledger::seeded(random.draw());
    let mut node = appliance().prepare();
    let senders = senders(&node);
    for (round, call) in (0..6).zip(["pwrite64", "fdatasync"].iter().cycle()) {
        let sync = if *call == "fdatasync" { "fdatasync" } else { "auto" };
        let text = std::fs::read_to_string(node.config()).expect("the configuration");
        let kept: String = text.lines().filter(|line| !line.starts_with("sync = ")).map(|l| format!("{l}\n")).collect();
        std::fs::write(node.config(), kept.replace("[log]\n", &format!("[log]\nsync = \"{sync}\"\n"))).expect("it");
        node.under(&[]);
        node.start().await;
        let inject = format!("inject={call}:signal=KILL:when={}", random.within(5, 60));
        // Attached when it is ready, so that the count begins with deliveries.
        let pid = node.pid().to_string();
        let mut strace = std::process::Command::new("strace")
            .args(["-f", "-q", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject, "-p", &pid])
            .spawn()
            .expect("strace runs");
        let load = ledger.load(&senders, 2);
        node.ended().await;
        strace.wait().expect("strace ends with it");
        ledger.settle(load).await;
        node.start().await;
        assert_lawful(&ledger, &senders, &node.export());
        node.terminate().await;
        println!("round {round}: {inject}, {} acknowledged in all", ledger.acknowledged().count());
    }
}

/// The control: a log whose tail was taken away must be convicted.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_its_tail_is_convicted() {
    let mut ledger = Ledger::seeded(1);
    let mut node = appliance().start().await;
    let senders = senders(&node);
    let load = ledger.load(&senders, 1);
    while node.metrics().await.sum("tidegate_gateway_accepted_total", &[]) < 50.0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.kill9().await;
    ledger.settle(load).await;

    // The last delivery that was acknowledged on a connection, and everything behind it, becomes zeros.
    let (key, id) = ledger.acknowledged().filter(|(key, _)| key.connection == 0).last().expect("some were");
    assert_eq!(zero_from(&node.log_directory, &key.body(ledger.seed)), 1, "its bytes are in one place");
    node.start().await;
    let breaches = judge(&ledger, &senders, &node.export());
    let lost = |breach: &Breach| matches!(breach, Breach::Lost { id: lost, .. } if lost == id);
    assert!(breaches.iter().any(lost), "the judge did not see that {id} is gone: {breaches:?}");
}

/// In every file below: zeros from the first appearance of `bytes` to the end. How many files had them.
fn zero_from(directory: &Path, bytes: &[u8]) -> usize {
    let mut found = 0;
    for entry in std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry")) {
        let path = entry.path();
        if path.is_dir() {
            found += zero_from(&path, bytes);
            continue;
        }
        let content = std::fs::read(&path).expect("a file");
        if let Some(at) = find(&content, bytes) {
            let mut file = std::fs::OpenOptions::new().write(true).open(&path).expect("a file");
            file.seek(SeekFrom::Start(at as u64)).expect("a place in it");
            file.write_all(&vec![0; content.len() - at]).expect("zeros");
            found += 1;
        }
    }
    found
}
