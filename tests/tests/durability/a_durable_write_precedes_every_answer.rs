use std::path::Path;

use skip::skipped;
use tidegate_tests::disk::{Disk, LoopDisk};
use tidegate_tests::trace::{Durable, Unproven, calls, durable_before_answered, strace};
use tidegate_tests::{Appliance, eventually};

/// The trace of an appliance that took 60 deliveries over three connections, and the marker and id of each.
async fn traced(log: &Path, sync: &str) -> (String, Vec<(String, String)>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = directory.path().join("trace");
    let command = strace(&output);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut node = Appliance::usual()
        .set("gateway", "body_bytes_max", "\"256KiB\"")
        .set("log", "segment_bytes", "\"1MiB\"")
        .set("log", "reserve_bytes", "\"0B\"")
        .set("log", "sync", &format!("\"{sync}\""))
        .log_in(log)
        .under(&command)
        .start()
        .await;
    let sender = node.sender("wh_1");
    let posts = (0..3).map(|connection| {
        let sender = sender.clone();
        tokio::spawn(async move {
            let mut stream = sender.connect().await;
            let mut acknowledged = Vec::new();
            for number in 0..20 {
                let marker = format!("marker-{connection}-{number}-");
                let response = stream.exchange(&sender.delivery(marker.clone() + &"x".repeat(700))).await;
                acknowledged.push((marker, response.event_id()));
            }
            acknowledged
        })
    });
    let mut acknowledged = Vec::new();
    for post in posts.collect::<Vec<_>>() {
        acknowledged.extend(post.await.expect("no panic"));
    }
    let pid = node.pid().to_string();
    node.terminate().await;
    // The tracer is not the process: it writes the last line a moment later.
    let read = || std::fs::read_to_string(&output).unwrap_or_default();
    let ended = |line: &str| line.starts_with(&pid) && line.contains("+++ exited");
    eventually!(read().lines().any(ended));
    (read(), acknowledged)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_write_precedes_every_answer() {
    // A disk of our own: the directory for temporary files may lie where O_DIRECT is refused.
    let disk = match LoopDisk::new(64) {
        Ok(disk) => disk,
        Err(why) => return skipped(&why),
    };
    for (sync, durable) in [("direct", Durable::Direct), ("fdatasync", Durable::Synced)] {
        let (trace, acknowledged) = traced(&disk.path().join(sync), sync).await;
        let real = calls(&trace);
        let proofs = durable_before_answered(&real, &acknowledged);
        assert_eq!(proofs, Ok(vec![durable; acknowledged.len()]), "{sync}");

        // Controls: the same trace with the answers moved to the front, and with writes that were not durable.
        let is_answer = |line: &&str| line.contains(&hexadecimal("HTTP/1.1 202"));
        let (answers, rest): (Vec<&str>, Vec<&str>) = trace.lines().partition(is_answer);
        assert!(answers.len() >= acknowledged.len());
        let first: Vec<&str> = answers.into_iter().chain(rest).collect();
        // A call that two lines tell of may be torn by the move; it is no proof either way.
        assert!(durable_before_answered(&calls(&first.join("\n")), &acknowledged).is_err(), "answers came first");
        let lazy = trace.replace("O_DSYNC", "O_CREAT").replace("O_SYNC", "O_CREAT").replace("fdatasync(", "close(");
        let lazy = lazy.replace("<... fdatasync", "<... close");
        let judged = durable_before_answered(&calls(&lazy), &acknowledged);
        assert!(matches!(judged, Err(Unproven::NotDurable(_))), "nothing was durable: {judged:?}");
    }
}

fn hexadecimal(text: &str) -> String {
    text.bytes().map(|byte| format!("\\x{byte:02x}")).collect()
}
