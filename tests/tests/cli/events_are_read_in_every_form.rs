use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;
use tidegate_tests::appliance::binary;
use tidegate_tests::{Appliance, Node, endpoint, tenant};

fn rows(node: &Node, words: &[&str]) -> Vec<Value> {
    node.cli_ok(words).lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_read_in_every_form() {
    let mut node = Appliance::new()
        .tenant(tenant("acme").endpoint(endpoint("wh_1")).endpoint(endpoint("wh_2")))
        .tenant(tenant("globex").endpoint(endpoint("wh_3")))
        .start()
        .await;
    let mut ids = Vec::new();
    for (number, id) in (0..12).zip(["wh_1", "wh_2", "wh_3"].iter().cycle()) {
        ids.push(node.sender(id).deliver(format!("body {number}")).await.event_id());
    }
    for running in [true, false] {
        // The second time nobody answers the socket, and the files themselves are read.
        if !running {
            node.terminate().await;
        }
        let list = rows(&node, &["events", "list", "--tenant", "acme", "--json"]);
        assert_eq!(list.len(), 8);
        assert!(list.iter().all(|row| row["tenant"] == "acme" && row.get("body").is_none()), "{list:#?}");
        assert_eq!(rows(&node, &["events", "list", "--endpoint", "wh_2", "--json"]).len(), 4);
        let newest = rows(&node, &["events", "list", "--tenant", "acme", "--limit", "3", "--json"]);
        assert_eq!(newest.last().expect("three")["id"], *ids[10]);
        assert_eq!(rows(&node, &["events", "list", "--tenant", "acme", "--until", "1h", "--json"]).len(), 0);
        assert_eq!(rows(&node, &["events", "list", "--tenant", "acme", "--since", "1h", "--json"]).len(), 8);
        assert_eq!(rows(&node, &["events", "export", "--tenant", "globex"]).len(), 4);
        assert_eq!(rows(&node, &["events", "export", "--all-tenants"]).len(), 12);
        let human = node.cli_ok(&["events", "list", "--tenant", "acme"]);
        assert!(human.contains(&ids[0]) && !human.contains('\u{1b}'), "no colour into a pipe: {human}");

        let shown = rows(&node, &["events", "show", &ids[1], "--tenant", "acme", "--json"]);
        assert_eq!((shown.len(), &shown[0]["id"]), (1, &Value::from(ids[1].clone())));
        let body = node.cli(&["events", "show", &ids[1], "--tenant", "acme", "--body-only"]);
        assert_eq!(body.stdout, b"body 1");

        // Another tenant's event is no event.
        assert_eq!(node.cli(&["events", "show", &ids[2], "--tenant", "acme"]).status.code(), Some(1));
        let absent = "evt_00000000000000000000000000";
        assert_eq!(node.cli(&["events", "show", absent, "--tenant", "acme"]).status.code(), Some(1));
        assert_eq!(node.cli(&["events", "show", "evt_!", "--tenant", "acme"]).status.code(), Some(2));
        assert_eq!(node.cli(&["events", "list"]).status.code(), Some(2), "whose events has to be said");
        assert!(node.cli_ok(&["log", "stat"]).contains("12"), "twelve events");
        let stat: Value = serde_json::from_str(&node.cli_ok(&["log", "stat", "--json"])).expect("JSON");
        assert!(stat.is_object(), "{stat}");
    }
    assert_eq!(
        node.cli(&["events", "reverify", "--tenant", "acme"]).status.code(),
        Some(3),
        "a change needs the daemon"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_follows_what_is_committed() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    sender.deliver("before").await.event_id();
    let mut tail = Command::new(binary())
        .args(["events", "tail", "--tenant", "acme", "--since", "1h", "--json", "--config"])
        .arg(node.config())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(tail.stdout.take().expect("piped")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a line").expect("it is read");
        serde_json::from_str(&line).expect("a JSON object")
    };
    let first = next();
    for number in 0..5 {
        let id = sender.deliver(format!("{number}")).await.event_id();
        let row = tokio::task::block_in_place(&mut next);
        assert_eq!(row["id"], *id, "after {first}");
    }
    tail.kill().expect("it runs still");
    tail.wait().expect("its end");
}

/// `tidegate … | head` is no failure and no panic.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pipe_is_no_panic() {
    let node = Appliance::usual().start().await;
    let sender = node.sender("wh_1");
    for _ in 0..20 {
        sender.deliver(vec![b'x'; 50_000]).await.event_id();
    }
    let command = format!(
        "{} events export --all-tenants --config {} | head -c 100",
        binary().display(),
        node.config().display()
    );
    let output = Command::new("sh").args(["-c", &command]).output().expect("sh runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(output.stdout.len(), 100);
}
