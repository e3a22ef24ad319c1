use std::path::{Path, PathBuf};

use tidegate_tests::Appliance;
use tidegate_tests::response::find;

/// Every file that has these bytes, and where.
fn places(directory: &Path, bytes: &[u8], found: &mut Vec<(PathBuf, usize)>) {
    for entry in std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry")) {
        if entry.path().is_dir() {
            places(&entry.path(), bytes, found);
        } else if let Some(at) = find(&std::fs::read(entry.path()).expect("a file"), bytes) {
            found.push((entry.path(), at));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_log_is_named_and_never_skipped() {
    let mut node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let mut ids = Vec::new();
    for number in 0..30 {
        ids.push(sender.deliver(format!("delivery number {number:03}, of thirty")).await.event_id());
    }
    node.terminate().await;
    let verify = node.cli(&["log", "verify"]);
    assert_eq!(verify.status.code(), Some(0), "{}", String::from_utf8_lossy(&verify.stdout));

    let mut found = Vec::new();
    places(&node.log_directory, b"delivery number 010, of thirty", &mut found);
    assert_eq!(found.len(), 1, "{found:?}");
    let (path, at) = &found[0];
    let mut bytes = std::fs::read(path).expect("a segment");
    bytes[at + 5] ^= 0x10;
    std::fs::write(path, bytes).expect("a segment");

    let verify = node.cli(&["log", "verify"]);
    assert_eq!(verify.status.code(), Some(1));
    let said = String::from_utf8_lossy(&[verify.stdout, verify.stderr].concat()).into_owned();
    let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
    assert!(said.contains(name), "the segment is not named: {said}");
    let json = node.cli(&["log", "verify", "--json"]);
    assert_eq!(json.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    println!("{json:#}");

    // The appliance starts, says it, and serves everything that is not damaged.
    node.start().await;
    let output = node.cli(&["events", "export", "--all-tenants"]);
    let exported = String::from_utf8_lossy(&output.stdout).into_owned();
    let intact = ids.iter().filter(|id| exported.contains(id.as_str())).count();
    assert_ne!(output.status.code(), Some(0), "an export with a hole in it is no success: {intact} of 30");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains(name), "the hole is told: {told}");
    assert!(!exported.contains(&ids[10]), "a damaged record is not served");
    assert!(told.contains("--skip-damage"), "and how to go on: {told}");

    // Whoever says so has all the others, and is told what is missing; a look at the newest needs no telling.
    for words in [&["events", "export", "--all-tenants", "--skip-damage"][..], &["events", "list", "--all-tenants"]] {
        let output = node.cli(words);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "something is missing: {told}");
        assert!(told.contains(name) && told.contains("offset"), "the hole is told: {told}");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let missing: Vec<_> = ids.iter().filter(|id| !shown.contains(id.as_str())).collect();
        assert_eq!(missing, [&ids[10]]);
    }
    let newest = node.cli(&["events", "list", "--all-tenants", "--limit", "3"]);
    assert_eq!(newest.status.code(), Some(0), "what is damaged is older than these");

    // Whoever asks how the node is hears of it, and goes on sending.
    let ready = node.admin("/readyz").await;
    let state = String::from_utf8_lossy(&ready.body).into_owned();
    assert!(ready.status == 200 && state.starts_with("degraded") && state.contains(name), "{state}");
    assert_eq!(sender.deliver("after").await.status, 202, "old damage stops nothing new");
}
