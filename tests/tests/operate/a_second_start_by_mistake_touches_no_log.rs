use std::path::PathBuf;

use tidegate_tests::{Appliance, Node};

/// Everything under the log's directory, with its length.
fn files(node: &Node) -> Vec<(PathBuf, u64)> {
    let (mut directories, mut files) = (vec![node.log_directory.clone()], Vec::new());
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("it can be listed").flatten() {
            let metadata = entry.metadata().expect("it is there");
            if metadata.is_dir() {
                directories.push(entry.path());
            } else {
                files.push((entry.path(), metadata.len()));
            }
        }
    }
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_by_mistake_touches_no_log() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    let mut connection = sender.connect().await;
    connection.exchange(&sender.delivery("before")).await.event_id();
    let before = files(&node);
    assert!(before.len() > 4, "{before:?}");
    let second = node.cli(&["run"]);
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("gateway.listen"), "{said}");
    assert_eq!(files(&node), before);
    connection.exchange(&sender.delivery("after")).await.event_id();
    assert_eq!(node.export().len(), 2);
}
