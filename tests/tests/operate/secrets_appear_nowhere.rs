use data_encoding::{BASE64, HEXLOWER, HEXUPPER};
use rustix::process::Signal;
use tidegate_tests::{Appliance, endpoint, eventually, signing, tenant};

/// Forms in which a secret could slip out.
fn forms(secret: &str) -> Vec<String> {
    let percent: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
    vec![
        secret.to_owned(),
        BASE64.encode(secret.as_bytes()).trim_end_matches('=').to_owned(),
        HEXLOWER.encode(secret.as_bytes()),
        HEXUPPER.encode(secret.as_bytes()),
        percent,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_appear_nowhere() {
    let canaries = ["canary/hmac+secret=one", "canary-token-two-8812", "canary-from-the-environment-3"];
    let tenants = tenant("acme")
        .endpoint(endpoint("wh_hmac").secret("primary", canaries[0]))
        .endpoint(endpoint("wh_token").scheme("gitlab").secret("primary", canaries[1]))
        .extra("\n[[endpoint]]\nid = \"wh_env\"\nscheme = \"github\"\nsecrets = [{ value = \"env:ACME_CANARY\" }]\n");
    let node = Appliance::new()
        .tenant(tenants)
        .set("logging", "level", "\"trace\"")
        .environment("ACME_CANARY", canaries[2])
        .start()
        .await;
    let hmac = node.sender("wh_hmac");
    let token = node.sender("wh_token");
    // It is read, and is the endpoint's: without that, that it appears nowhere would say nothing.
    let from_environment = hmac.clone().with_secret(canaries[2]).delivery("{}").to("/hooks/wh_env");
    assert_eq!(hmac.send(&from_environment).await.status, 202);
    let mut said = String::new();
    let mut note = |text: &str| {
        said.push_str(text);
        said.push('\n');
    };
    for request in [
        hmac.delivery("{}"),
        hmac.unsigned("{}"),
        hmac.clone().with_secret("wrong").delivery("{}"),
        hmac.unsigned("{}").to("/hooks/wh_env"),
        token.unsigned("{}").header("X-Gitlab-Token", canaries[1]),
        token.unsigned("{}").header("X-Gitlab-Token", "wrong"),
        token.unsigned("{}").header("X-Gitlab-Token", canaries[1]).header("X-Gitlab-Token", canaries[1]),
    ] {
        note(&hmac.send(&request).await.to_string());
    }
    let (_, signature) = signing::github(canaries[0].as_bytes(), b"body");
    std::fs::write(node.directory.join("body"), "body").expect("a body");
    node.signal(Signal::HUP);
    note(&String::from_utf8_lossy(&node.admin("/metrics").await.body));
    note(&String::from_utf8_lossy(&node.admin("/readyz").await.body));
    let header = format!("X-Hub-Signature-256: {signature}");
    for words in [
        &["check"][..],
        &["check", "--json"],
        &["events", "list", "--tenant", "acme"],
        &["events", "list", "--tenant", "acme", "--held", "--json"],
        &["events", "export", "--tenant", "acme"],
        &["events", "export", "--tenant", "acme", "--held"],
        &["log", "stat"],
        &["send", "--endpoint", "wh_hmac"],
        &["send", "--endpoint", "wh_hmac", "--json"],
        &["sign", "--endpoint", "wh_hmac", "--body", "body"],
        &["verify", "--endpoint", "wh_hmac", "--body", "body", "--header", &header],
        &["verify", "--endpoint", "wh_hmac", "--body", "body", "--header", "X-Hub-Signature-256: sha256=00"],
        &["events", "reverify", "--tenant", "acme"],
    ] {
        let output = node.cli(words);
        note(&String::from_utf8_lossy(&output.stdout));
        note(&String::from_utf8_lossy(&output.stderr));
    }
    // A configuration with faults is quoted from; never the secrets.
    let path = node.tenants_directory().join("acme.toml");
    let text = std::fs::read_to_string(&path).expect("the file");
    tidegate_tests::settings::replace(&path, &text.replace("secret:wh_token-primary", canaries[1]));
    let checked = node.cli(&["check"]);
    note(&String::from_utf8_lossy(&checked.stdout));
    note(&String::from_utf8_lossy(&checked.stderr));
    node.signal(Signal::HUP);
    eventually!(String::from_utf8_lossy(&node.admin("/readyz").await.body).contains("degraded"));
    note(&node.output());

    for canary in canaries {
        for form in forms(canary) {
            if let Some(at) = said.find(&form) {
                panic!("{form} was written: …{}…", &said[at.saturating_sub(200)..at]);
            }
        }
    }

    // On disk they are where the operator put them, and nowhere else.
    let mut directories = vec![node.directory.clone()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry")) {
            let path = entry.path();
            let ours = path.extension().is_some_and(|end| end == "secrets") || path.ends_with("acme.toml");
            if entry.file_type().expect("its type").is_dir() && !ours {
                directories.push(path);
            } else if entry.file_type().expect("its type").is_file() && !ours {
                let bytes = std::fs::read(&path).expect("it can be read");
                for canary in canaries {
                    let found = bytes.windows(canary.len()).any(|window| window == canary.as_bytes());
                    assert!(!found, "{canary} is in {}", path.display());
                }
            }
        }
    }
}
