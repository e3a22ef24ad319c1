use serde_json::json;
use tidegate_tests::eventually;
use tidegate_tests::runs::{Runs, endpoint_of};

#[tokio::test(flavor = "multi_thread")]
async fn and_only_by_whom_accepts_duplicates() {
    let runs = Runs::start(&[]).await;
    let nodes = json!([{ "id": "note", "type": "http.request", "credential": "conn_desk", "method": "POST", "path": "/keyed/note",
        "body": { "n": "${event.body.n}" } }]);
    let id = runs.put("acme", &Runs::automation("acme", "note", &nodes)).await;
    let mut executions = Vec::new();
    for n in 0..5 {
        executions.push(runs.deliver("acme", &json!({ "n": n })).await);
    }
    for execution in &executions {
        runs.once("acme", execution, &["succeeded"]).await;
    }
    let what = json!({ "automation": id, "endpoint": endpoint_of("acme") });
    let plan = runs.ask("acme", "POST", "/replays/plan", Some(&what), 200).await;
    assert_eq!((&plan["events"], &plan["runs"], &plan["mayDuplicate"]), (&json!(5), &json!(5), &json!(5)), "{plan}");
    assert_eq!(runs.provider.effects().len(), 5, "counting does nothing");
    let start = json!({ "plan": plan["plan"] });
    let no = runs.ask("acme", "POST", "/replays", Some(&start), 409).await;
    assert_eq!(no["code"], "confirmation-needed", "{no}");
    // Another tenant's plan is none.
    let start = json!({ "plan": plan["plan"], "confirmDuplicates": true });
    runs.ask("other", "POST", "/replays", Some(&start), 404).await;
    let begun = runs.ask("acme", "POST", "/replays", Some(&start), 202).await;
    assert_eq!(begun["runs"], 5);
    eventually!(runs.provider.effects().len() == 10, "they are done again");
    // Under keys of their own.
    let keys: std::collections::BTreeSet<_> = runs.provider.effects().into_iter().map(|effect| effect.key).collect();
    assert_eq!(keys.len(), 10);
    // Begun again under the same name, it adds nothing.
    let again = json!({ "plan": plan["plan"], "confirmDuplicates": true, "replay": begun["replay"] });
    runs.ask("acme", "POST", "/replays", Some(&again), 202).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(runs.provider.effects().len(), 10);

    // One run, by itself.
    let path = format!("/executions/{}/replay", executions[0]);
    let no = runs.ask("acme", "POST", &path, Some(&json!({ "confirmDuplicates": true })), 409).await;
    assert_eq!(no["code"], "state-conflict", "its event has two runs by now: {no}");
    let first = runs.execution("acme", &executions[0]).await;
    let run = first["runs"][0]["id"].as_str().expect("a run").to_owned();
    let path = format!("/executions/{run}/replay");
    let replayed = runs.ask("acme", "POST", &path, Some(&json!({ "confirmDuplicates": true })), 202).await;
    let seen = runs.once("acme", replayed["runIds"][0].as_str().expect("a run"), &["succeeded"]).await;
    assert_eq!(seen["cause"]["kind"], "replay");
    assert_eq!(runs.provider.effects().len(), 11);
}
