use serde_json::json;
use tidegate_tests::runs::{Runs, token};

/// Whatever is asked for that is another tenant's, the bytes are those of what nobody has: status, fields and body.
#[tokio::test(flavor = "multi_thread")]
async fn another_tenants_answer_as_nobodys() {
    let runs = Runs::start(&[]).await;
    let nodes = json!([{ "id": "say", "type": "transform", "value": "secret of acme" }]);
    let theirs = runs.put("acme", &Runs::automation("acme", "say", &nodes)).await;
    let execution = runs.deliver("acme", &json!({})).await;
    let seen = runs.once("acme", &execution, &["succeeded"]).await;
    let run = seen["id"].as_str().expect("a run").to_owned();
    let event = execution.replacen("ex_", "evt_", 1);

    let (other, _) = token("other", "author");
    let nobodys = |id: &str| format!("{}{}", &id[..id.len() - 20], "0".repeat(20));
    let mut answers = Vec::new();
    for (aut, exe) in [
        (theirs.clone(), run.clone()),
        (theirs.clone(), execution.clone()),
        (theirs.clone(), event.clone()),
        (nobodys(&theirs), nobodys(&run)),
        (nobodys(&theirs), nobodys(&execution)),
    ] {
        let confirmed = json!({ "confirmDuplicates": true });
        let resolve = json!({ "node": "say", "choice": "continue-accept-gap" });
        let dismiss = json!({ "reason": "seen" });
        let edit = Runs::automation("other", "mine", &nodes);
        for (method, path, body) in [
            ("GET", format!("/workflows/{aut}"), None),
            ("GET", format!("/workflows/{aut}?version=1"), None),
            ("PUT", format!("/workflows/{aut}"), Some(&edit)),
            ("DELETE", format!("/workflows/{aut}"), None),
            ("POST", format!("/workflows/{aut}/runs"), None),
            ("GET", format!("/executions/{exe}"), None),
            ("POST", format!("/executions/{exe}/cancel"), None),
            ("POST", format!("/executions/{exe}/resolve"), Some(&resolve)),
            ("POST", format!("/executions/{exe}/replay"), Some(&confirmed)),
            ("POST", format!("/executions/{exe}/nodes/say/rerun"), Some(&confirmed)),
            ("POST", format!("/executions/{exe}/dismiss"), Some(&dismiss)),
            ("GET", format!("/executions/{exe}/nodes/say"), None),
            ("GET", format!("/executions/{exe}/nodes/say?part=output"), None),
        ] {
            let answer = runs.ask_as(Some(&other), method, &path, body).await;
            assert_eq!(answer.status, 404, "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
            answers.push((format!("{method} {path}"), answer.comparable()));
        }
    }
    let (_, first) = &answers[0];
    for (what, answer) in &answers {
        assert_eq!(answer, first, "{what}");
    }
    // Nothing of it is in a list either, and nothing was done to it.
    for path in ["/workflows", "/executions"] {
        let answer = runs.ask("other", "GET", path, None, 200).await;
        assert!(!answer.to_string().contains(&theirs) && !answer.to_string().contains(&run), "{path}: {answer}");
    }
    assert_eq!(runs.execution("acme", &run).await["nodes"], seen["nodes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_proves_who_it_is_and_what_it_may() {
    let mut runs = Runs::start(&[]).await;
    let nodes = json!([{ "id": "say", "type": "transform", "value": 1 }]);
    let document = Runs::automation("acme", "say", &nodes);
    let unproved = runs.ask_as(None, "GET", "/workflows", None).await;
    for (token, what) in [(Some("tgr_0123456789abcdef"), "a stranger's"), (Some("grant"), "none")] {
        let answer = runs.ask_as(token, "GET", "/workflows", None).await;
        assert_eq!(answer.comparable(), unproved.comparable(), "{what}");
    }
    assert_eq!((unproved.status, unproved.header("www-authenticate")), (401, Some("Bearer realm=\"tidegate\"")));
    let read = token("acme", "read").0;
    assert_eq!(runs.ask_as(Some(&read), "GET", "/workflows", None).await.status, 200);
    assert_eq!(runs.ask_as(Some(&read), "POST", "/workflows", Some(&document)).await.status, 403);
    let operate = token("acme", "operate").0;
    assert_eq!(runs.ask_as(Some(&operate), "POST", "/workflows", Some(&document)).await.status, 403);
    assert_eq!(runs.ask_as(None, "GET", "/openapi.json", None).await.status, 200);

    // A token that is taken out of the file counts no more, and nothing is restarted.
    let file = runs.node.tenants_directory().join("acme.toml");
    let text = std::fs::read_to_string(&file).expect("the file");
    let (_, hash) = token("acme", "read");
    std::fs::write(&file, text.replace(&hash, &token("acme", "another").1)).expect("the file");
    assert!(runs.node.cli(&["reload"]).status.success());
    assert_eq!(runs.ask_as(Some(&read), "GET", "/workflows", None).await.status, 401);
    assert_eq!(runs.ask_as(Some(&token("acme", "another").0), "GET", "/workflows", None).await.status, 200);
    runs.node.terminate().await;
}
