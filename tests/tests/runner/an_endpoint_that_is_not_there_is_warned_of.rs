use serde_json::json;
use tidegate_tests::runs::Runs;

/// It is most often a slip, and an automation that no event ever begins says nothing by itself.
#[tokio::test(flavor = "multi_thread")]
async fn when_an_automation_is_checked_and_when_it_is_stored() {
    let runs = Runs::start(&[]).await;
    let nodes = json!([{ "id": "say", "type": "transform", "value": 1 }]);
    let sound = Runs::automation("acme", "say", &nodes);
    let checked = runs.ask("acme", "POST", "/workflows/check", Some(&sound), 200).await;
    assert_eq!(checked["warnings"], json!([]));
    let mut slip = sound;
    slip["trigger"]["endpoint"] = json!("wh_acmee");
    let warnings = json!([{ "path": "trigger",
        "message": "names wh_acmee, and there is no such endpoint: nothing begins a run there" }]);
    let checked = runs.ask("acme", "POST", "/workflows/check", Some(&slip), 200).await;
    assert_eq!(checked["warnings"], warnings);
    let stored = runs.ask("acme", "POST", "/workflows", Some(&slip), 201).await;
    assert_eq!(stored["warnings"], warnings);
    // Stored again as it is, it is told again; by the command line too.
    let file = runs.node.directory.join("slip.json");
    std::fs::write(&file, slip.to_string()).expect("a file");
    let put = runs.node.cli(&["automations", "put", "--tenant", "acme", file.to_str().expect("UTF-8")]);
    let said = String::from_utf8_lossy(&put.stderr).into_owned();
    assert!(put.status.success() && said.contains("there is no such endpoint"), "{said}");
}
