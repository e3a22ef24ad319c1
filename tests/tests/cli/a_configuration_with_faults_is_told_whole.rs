use serde_json::Value;
use tidegate_tests::{Appliance, endpoint, tenant};

#[test]
fn a_configuration_with_faults_is_told_whole() {
    let node = Appliance::new()
        .tenant(tenant("acme").endpoint(endpoint("wh_1")).endpoint(endpoint("wh_1")))
        .tenant(tenant("globex").endpoint(endpoint("wh_2").scheme("no-such-scheme")))
        .tenant(tenant("initech").endpoint(endpoint("wh_3").set("no_such_key", "1")))
        .tenant(tenant("hooli").endpoint(endpoint("wh_4").secret("primary", "")))
        .tenant(tenant("good").endpoint(endpoint("wh_5")))
        .prepare();
    std::fs::write(node.tenants_directory().join("torn.toml"), "tenant = \"torn\"\n[[endpoint]\n").expect("a file");
    let check = node.cli(&["check"]);
    assert_eq!(check.status.code(), Some(1));
    let said = String::from_utf8_lossy(&[check.stdout, check.stderr].concat()).into_owned();
    for part in [
        "acme.toml:",
        "wh_1",
        "globex.toml:",
        "no-such-scheme",
        "initech.toml:",
        "no_such_key",
        "hooli.toml:",
        "torn.toml:2",
    ] {
        assert!(said.contains(part), "{part} is not told:\n{said}");
    }
    assert!(!said.contains("good.toml"), "{said}");

    let json = node.cli(&["check", "--json"]);
    assert_eq!(json.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&json.stdout).expect("one JSON object");
    let faults = json["faults"].as_array().expect("faults");
    assert!(faults.len() >= 5, "{json:#}");
    assert!(faults.iter().all(|fault| fault["file"].is_string() && fault["message"].is_string()), "{json:#}");
}

#[test]
fn a_good_configuration_is_said_to_be_good() {
    let node = Appliance::usual().prepare();
    let check = node.cli(&["check"]);
    assert_eq!(check.status.code(), Some(0), "{}", String::from_utf8_lossy(&check.stderr));
    let json: Value = serde_json::from_str(&node.cli_ok(&["check", "--json"])).expect("one JSON object");
    assert_eq!(json["faults"].as_array().map(Vec::len), Some(0), "{json:#}");
}

#[test]
fn faults_of_the_appliances_file_are_told_together() {
    let node = Appliance::usual()
        .set("log", "segment_bytes", "\"4 furlongs\"")
        .set("gateway", "no_such_key", "1")
        .set("gateway.listener", "header_timeout", "\"1 fortnight\"")
        .prepare();
    let check = node.cli(&["check"]);
    assert_eq!(check.status.code(), Some(1));
    let said = String::from_utf8_lossy(&[check.stdout, check.stderr].concat()).into_owned();
    for part in ["tidegate.toml:", "segment_bytes", "no_such_key", "header_timeout"] {
        assert!(said.contains(part), "{part} is not told:\n{said}");
    }
}
