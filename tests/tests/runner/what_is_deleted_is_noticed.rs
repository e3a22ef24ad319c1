use std::path::{Path, PathBuf};

use serde_json::json;
use tidegate_tests::eventually;
use tidegate_tests::runs::Runs;

async fn says(runs: &Runs, text: &str) -> bool {
    String::from_utf8_lossy(&runs.node.admin("/readyz").await.body).contains(text)
}

fn first_segment(directory: &Path) -> PathBuf {
    let files = std::fs::read_dir(directory).expect("a directory").map(|file| file.expect("a file").path());
    files.filter(|path| path.extension().is_some_and(|it| it == "seg")).min().expect("a segment")
}

/// A directory that is empty looks as one that is new; that there was more is known all the same, and deliveries go on.
#[tokio::test(flavor = "multi_thread")]
async fn and_nothing_is_taken_for_new_that_is_not() {
    let mut runs = Runs::start(&[]).await;
    let nodes = json!([{ "id": "say", "type": "transform", "value": 1 }]);
    runs.put("acme", &Runs::automation("acme", "say", &nodes)).await;
    let first = runs.deliver("acme", &json!({})).await;
    runs.once("acme", &first, &["succeeded"]).await;
    let kept = std::fs::read_dir(runs.node.directory.as_ref() as &Path).expect("a directory");
    let directory = kept
        .flat_map(|entry| walk(&entry.expect("an entry").path()))
        .find(|path| path.join("definitions").is_dir())
        .expect("the runner's directory");
    runs.node.terminate().await;

    // All that tenants automate is gone.
    let (definitions, aside) = (directory.join("definitions"), directory.join("aside"));
    std::fs::rename(&definitions, &aside).expect("moved");
    runs.node.start().await;
    eventually!(says(&runs, "the journal of the definitions is another one than it was").await, "it is noticed");
    let waits = runs.deliver("acme", &json!({})).await;
    runs.node.terminate().await;
    std::fs::remove_dir_all(&definitions).expect("removed");
    std::fs::rename(&aside, &definitions).expect("put back");
    runs.up().await;
    assert!(!says(&runs, "runner:").await);
    runs.once("acme", &waits, &["succeeded"]).await;
    runs.node.terminate().await;

    // The beginning of the ledger is.
    let segment = first_segment(&directory.join("ledger/journal"));
    std::fs::rename(&segment, directory.join("aside")).expect("moved");
    runs.up().await;
    eventually!(says(&runs, "runner: the ledger has lost the segment").await, "it is noticed");
    let goes_on = runs.deliver("acme", &json!({})).await;
    runs.once("acme", &goes_on, &["succeeded"]).await;
    let no = runs.node.cli(&["runs", "show", "--tenant", "acme", &first]);
    assert_ne!(no.status.code(), Some(0), "it is not shown as if it had no history: {no:?}");
    runs.node.terminate().await;
    std::fs::rename(directory.join("aside"), &segment).expect("put back");
    runs.up().await;
    assert!(!says(&runs, "runner:").await);
    runs.once("acme", &first, &["succeeded"]).await;
}

/// It and the directories in it.
fn walk(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if path.is_dir() {
        let inner = std::fs::read_dir(path).expect("a directory").map(|entry| entry.expect("an entry").path());
        found.extend(inner.filter(|path| path.is_dir()));
    }
    found
}
