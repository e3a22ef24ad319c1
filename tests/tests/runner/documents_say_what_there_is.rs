use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;
use tidegate_tests::metrics::Metrics;
use tidegate_tests::runs::Runs;

fn document(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_has_its_row() {
    let runs = Runs::start(&[]).await;
    let plain = |name: &str| name.trim_end_matches("_total").to_owned();
    let is_own = |name: &str| name.starts_with("tidegate_runner_") && !name.starts_with("tidegate_runner_listener_");
    let metrics = runs.node.metrics().await;
    let real: BTreeSet<String> = metrics.families.keys().filter(|name| is_own(name)).map(|name| plain(name)).collect();
    let text = document("runner.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")).filter_map(|row| row.split('`').next());
    let documented: BTreeSet<String> = rows.filter(|name| is_own(name)).map(plain).collect();
    assert_eq!(real, documented, "docs/runner.md has not the metrics that there are");
    // However much is run, there are no more label sets than words.
    let nodes = json!([{ "id": "say", "type": "transform", "value": 1 }]);
    let own =
        |metrics: &Metrics| metrics.samples.keys().filter(|sample| sample.starts_with("tidegate_runner_")).count();
    let before = own(&metrics);
    runs.put("acme", &Runs::automation("acme", "say", &nodes)).await;
    for _ in 0..20 {
        let execution = runs.deliver("acme", &json!({})).await;
        runs.once("acme", &execution, &["succeeded"]).await;
    }
    assert_eq!(own(&runs.node.metrics().await), before);
}

/// What `docs/automations.md` shows is stored and run, as it stands there.
#[tokio::test(flavor = "multi_thread")]
async fn automations_to_begin_with_work() {
    let mut runs = Runs::start(&[]).await;
    let text = document("automations.md");
    let examples: Vec<&str> =
        text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().expect("its end")).collect();
    assert!(examples.len() >= 4, "{}", examples.len());
    for (at, example) in examples.iter().enumerate() {
        let file = runs.node.directory.join(format!("example-{at}.yaml"));
        std::fs::write(&file, example).expect("a file");
        let put = runs.node.cli(&["automations", "put", "--tenant", "acme", file.to_str().expect("UTF-8")]);
        let said = String::from_utf8_lossy(&put.stdout).into_owned() + &String::from_utf8_lossy(&put.stderr);
        assert!(put.status.success(), "{said}\n{example}");
        // Stored again, it is what is there.
        let again = runs.node.cli(&["automations", "put", "--tenant", "acme", file.to_str().expect("UTF-8")]);
        assert!(String::from_utf8_lossy(&again.stdout).contains("is as it was"), "{again:?}");
    }
    let execution = runs.deliver("acme", &json!({ "order": "o-1", "amount": 200 })).await;
    let mut seen = runs.execution("acme", &execution).await;
    let deadline = std::time::Instant::now() + tidegate_tests::patience::PATIENCE;
    while seen["runs"].as_array().expect("runs").iter().filter(|run| run["status"] == "succeeded").count()
        < examples.len()
    {
        assert!(std::time::Instant::now() < deadline, "{:#}", seen["runs"]);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        seen = runs.execution("acme", &execution).await;
    }
    runs.node.terminate().await;
}
