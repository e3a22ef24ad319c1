use std::path::{Path, PathBuf};

use serde_json::json;
use tidegate_tests::runs::Runs;

fn first_segment(directory: &Path) -> PathBuf {
    let files = std::fs::read_dir(directory).expect("a directory").map(|file| file.expect("a file").path());
    files.filter(|path| path.extension().is_some_and(|it| it == "seg")).min().expect("a segment")
}

/// An index cannot be made anew of a ledger that does not read: it says where, and goes on with the one that there is.
#[tokio::test(flavor = "multi_thread")]
async fn where_an_index_is_made_anew_of_it() {
    let mut runs = Runs::start(&[]).await;
    let nodes = json!([{ "id": "say", "type": "transform", "value": 1 }]);
    runs.put("acme", &Runs::automation("acme", "say", &nodes)).await;
    for _ in 0..3 {
        let execution = runs.deliver("acme", &json!({})).await;
        runs.once("acme", &execution, &["succeeded"]).await;
    }
    let made = runs.node.cli_ok(&["runs", "rebuild", "--json"]);
    assert!(serde_json::from_str::<serde_json::Value>(&made).expect("JSON")["records"].as_u64() > Some(0), "{made}");
    let stat = runs.node.cli_ok(&["runs", "stat", "--json"]);
    let stat: serde_json::Value = serde_json::from_str(&stat).expect("JSON");
    assert!(stat["ledger"]["runsEverApproximately"].is_u64(), "{stat}");
    runs.node.terminate().await;
    let mut directories = vec![runs.node.directory.clone()];
    let journal = loop {
        let next = directories.pop().expect("the ledger's journal is somewhere");
        if next.ends_with("ledger/journal") {
            break next;
        }
        let inner = std::fs::read_dir(&next).expect("a directory").map(|entry| entry.expect("an entry").path());
        directories.extend(inner.filter(|path| path.is_dir()));
    };
    let segment = first_segment(&journal);
    let mut bytes = std::fs::read(&segment).expect("the segment");
    // Within the first batch, which stands behind a header of a block.
    bytes[4_096 + 200] ^= 0xff;
    std::fs::write(&segment, &bytes).expect("written");
    runs.up().await;
    let no = runs.node.cli(&["runs", "rebuild"]);
    let told = String::from_utf8_lossy(&no.stderr).into_owned();
    assert_eq!(no.status.code(), Some(3), "{no:?}");
    let name = segment.file_stem().expect("a name").to_string_lossy().into_owned();
    assert!(told.contains(&name) && told.contains("the index that serves stays as it was"), "{told}");
    assert!(runs.node.cli_ok(&["runs", "list", "--tenant", "acme"]).contains("succeeded"), "what there is, is listed");
}
