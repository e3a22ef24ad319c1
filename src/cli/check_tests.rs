//! `check` and whatever else reads a whole configuration, against files as people write them.

use super::exit::Exit;
use super::testing::{Files, GOOD, run_with};

#[test]
fn a_good_configuration_is_ok() {
    let files = Files::with(GOOD);
    let ran = files.run(&["check"], b"");
    assert_eq!(ran.exit, Exit::Yes, "{}{}", ran.answer, ran.remarks);
    assert!(ran.answer.starts_with("ok (1 tenant, 1 endpoint, "), "{}", ran.answer);
    let json: serde_json::Value = serde_json::from_str(&files.run(&["check", "--json"], b"").answer).unwrap();
    assert_eq!((json["ok"].as_bool(), json["endpoints"].as_u64()), (Some(true), Some(1)));
}

#[test]
fn every_fault_is_said_at_once_with_its_place() {
    let files = Files::with(
        r#"
tenant = "acme"

[[endpoint]]
id = "wh_1"
scheme = "githbu"
secrets = [{ value = "secret:github" }]

[[endpoint]]
id = "wh_2"
scheme = "github"
secrets = [{ value = "secret:blank" }]
"#,
    );
    files.write("tenants/acme.secrets/blank", "   ");
    let ran = files.run(&["check"], b"");
    assert_eq!(ran.exit, Exit::No);
    let said = files.said(&ran.answer);
    assert!(said.contains("tenants/acme.toml:6: endpoint[0].scheme: there is no scheme \"githbu\""), "{said}");
    assert!(said.contains("tenants/acme.toml:12: endpoint[1].secrets[0].value: "), "{said}");
    assert!(said.contains("2 errors"), "{said}");
    let json: serde_json::Value = serde_json::from_str(&files.run(&["check", "--json"], b"").answer).unwrap();
    assert_eq!(json["faults"].as_array().unwrap().len(), 2);
    assert_eq!(json["faults"][0]["line"], 6);
}

#[test]
fn a_variable_that_two_tenants_share_by_their_names_is_said() {
    let files = Files::with(&GOOD.replace("secret:github", "env:ACME_EU_KEY"));
    files.write("tenants/acme-eu.toml", "tenant = \"acme-eu\"\n");
    let environment = [("ACME_EU_KEY", "a secret of acme-eu")];
    let ran = run_with(&["check", "--config", files.config().to_str().unwrap()], b"", &environment);
    assert_eq!(ran.exit, Exit::No, "{}{}", ran.answer, ran.remarks);
    let said = files.said(&ran.answer);
    assert!(said.contains("tenants/acme.toml:7: endpoint[0].secrets[0].value: "), "{said}");
    assert!(said.contains("by its name is the tenant acme-eu's too"), "{said}");
    assert!(!said.contains("a secret of"), "{said}");
}

#[test]
fn a_faulty_appliance_file_is_a_no_and_not_a_failure() {
    let files = Files::with(GOOD);
    files.write("tidegate.toml", "[gateway]\nlisten = \"nonsense\"\nnope = 1\n");
    let ran = files.run(&["check"], b"");
    assert_eq!(ran.exit, Exit::No);
    let said = files.said(&ran.answer);
    assert!(said.contains("tidegate.toml:2: ") && said.contains("tidegate.toml:3: "), "{said}");
}

#[test]
fn a_faulty_appliance_file_hides_no_fault_of_a_tenant() {
    let files = Files::with(&GOOD.replace("\"github\"", "\"githbu\""));
    files.write("tidegate.toml", "[gateway]\npublic_url = \"https://h.example\"\nlisten = \"nonsense\"\nnope = 1\n");
    let ran = files.run(&["check"], b"");
    assert_eq!(ran.exit, Exit::No);
    let said = files.said(&ran.answer);
    assert!(said.contains("tidegate.toml:3: ") && said.contains("tidegate.toml:4: "), "{said}");
    assert!(said.contains("there is no scheme \"githbu\"") && said.contains("3 errors"), "{said}");
    assert!(ran.remarks.contains("judged without what is faulty: gateway.listen\n"), "{}", ran.remarks);
    // Where nobody can say which directory is meant, nothing is said about it.
    files.write("tidegate.toml", "[gateway]\npublic_url = \"https://h.example\"\n[tenants]\ndirectory = 1\n");
    let ran = files.run(&["check"], b"");
    assert!(files.said(&ran.answer).contains("1 error"), "{}", ran.answer);
    assert!(ran.remarks.contains("were not looked at"), "{}", ran.remarks);
}

#[test]
fn what_is_no_destination_is_said_of_both_files() {
    let calls = "[egress]\nallow = [\"api.stripe.com\",\n  \"127.1\"]\n[[connection]]\nid = \"conn_1\"\nconnector = \"strip\"\nbase_url = \"https://api.stripe.com\"\n";
    let tenant = format!("{GOOD}\n{calls}");
    let files = Files::with(&tenant);
    let first = 1 + tenant.lines().position(|line| line == "  \"127.1\"]").unwrap();
    let gateway = "[gateway]\npublic_url = \"https://h.example\"\n";
    // A node that takes no calls judges none.
    files.write("tidegate.toml", gateway);
    assert_eq!(files.run(&["check"], b"").exit, Exit::Yes);
    files.write("tidegate.toml", &format!("{gateway}[egress]\n"));
    let ran = files.run(&["check"], b"");
    let said = files.said(&ran.answer);
    assert_eq!(ran.exit, Exit::No);
    assert!(said.contains(&format!("tenants/acme.toml:{first}: egress.allow")) && said.contains("127.1"), "{said}");
    assert!(said.contains(&format!("tenants/acme.toml:{}: connection", first + 1)) && said.contains("strip"), "{said}");
    files.write("tidegate.toml", &format!("{gateway}[egress]\ndeny = [\"0x7f.1\"]\n"));
    let ran = files.run(&["check"], b"");
    let said = files.said(&ran.answer);
    assert!(ran.exit == Exit::No && said.contains("tidegate.toml:4: egress.deny"), "{said}");
}

#[test]
fn a_known_answer_that_does_not_come_out_is_a_fault() {
    let declared = r#"
[[scheme]]
name = "ours"
algorithm = "hmac-sha256"
signature = { header = "X-Ours", encoding = "hex" }
content = "{body}"

[[scheme.known_answer]]
secret = "a secret that is no secret"
body = "x"
headers = { X-Ours = "0000000000000000000000000000000000000000000000000000000000000000" }
"#;
    let files = Files::with(&format!("{}\n{declared}", GOOD.replace("\"github\"", "\"ours\"")));
    let ran = files.run(&["check"], b"");
    assert_eq!(ran.exit, Exit::No, "{}", ran.answer);
    assert!(files.said(&ran.answer).contains("acme.toml:16: scheme[0].known_answer[0]: "), "{}", ran.answer);
    assert!(ran.answer.contains("known answer 1"), "{}", ran.answer);
}

#[test]
fn an_endpoint_brings_its_scheme_its_secret_and_its_url() {
    let files = Files::with(GOOD);
    let signed = files.run(&["sign", "--endpoint", "wh_9f2c1b7a", "--body", "-", "--json"], b"Hello, World!");
    let json: serde_json::Value = serde_json::from_str(&signed.answer).unwrap();
    assert_eq!(json["url"], "https://hooks.example.com/hooks/wh_9f2c1b7a");
    let header =
        "X-Hub-Signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17".to_owned();
    let words = ["verify", "--endpoint", "wh_9f2c1b7a", "--body", "-", "--header", &header];
    let ran = files.run(&words, b"Hello, World!");
    assert_eq!(ran.exit, Exit::Yes, "{}{}", ran.answer, ran.remarks);
    assert!(ran.answer.contains("secret       primary"), "{}", ran.answer);
}

#[test]
fn an_unknown_endpoint_says_where_was_looked() {
    let files = Files::with(GOOD);
    let ran = files.run(&["send", "--endpoint", "wh_nope"], b"");
    assert_eq!(ran.exit, Exit::Failed);
    assert!(files.said(&ran.remarks).contains("tenants"), "{}", ran.remarks);
}

#[test]
fn curl_is_printed_ready_to_paste() {
    let files = Files::with(GOOD);
    let ran = files.run(&["send", "--endpoint", "wh_9f2c1b7a", "--print-curl"], b"");
    assert_eq!(ran.exit, Exit::Yes, "{}", ran.remarks);
    assert!(ran.answer.starts_with("curl -sS \\\n  http://127.0.0.1:0/hooks/wh_9f2c1b7a \\\n"), "{}", ran.answer);
    assert!(ran.answer.contains("-H 'Host: hooks.example.com'"), "{}", ran.answer);
    assert!(ran.answer.contains("-H 'X-Hub-Signature-256: sha256="), "{}", ran.answer);
    assert!(!ran.answer.contains("Everybody"));
}

#[test]
fn a_file_that_is_not_there_is_a_failure_and_not_a_no() {
    let ran = run_with(&["check", "--config", "/nonexistent.toml"], b"", &[]);
    assert_eq!(ran.exit, Exit::Failed, "{}", ran.answer);
}

#[test]
fn no_configuration_says_how_to_name_one() {
    let ran = run_with(&["send", "--endpoint", "wh_1", "--config", "/nonexistent.toml"], b"", &[]);
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.remarks.contains("--config"), "{}", ran.remarks);
}

#[test]
fn a_directory_that_cannot_be_one_is_a_fault() {
    let files = Files::with(GOOD);
    files.write("log", "a regular file");
    let ran = files.run(&["check"], b"");
    assert_eq!(ran.exit, Exit::No, "{}", ran.answer);
    let said = files.said(&ran.answer);
    assert!(
        said.starts_with("tidegate.toml:6: log.directory: log cannot be made: log is there and is no directory"),
        "{said}"
    );
    assert_eq!(files.run(&["check", "--elsewhere"], b"").exit, Exit::Yes, "the other machine has its own");
    // One thing in the way of everything is one fault.
    let config = std::fs::read_to_string(files.config()).unwrap();
    files.write("tidegate.toml", &config.replace("\"log\"", "\"log/a/log\""));
    assert!(files.run(&["check"], b"").answer.contains("1 error"));
}

#[test]
fn a_file_that_may_have_been_meant_to_be_a_tenant_s_is_named_and_no_fault() {
    let files = Files::with(GOOD);
    for name in ["globex.tml", ".hidden.tml", "acme.secrets/key.pem", "old/globex.tml"] {
        files.write(&format!("tenants/{name}"), "tenant = \"globex\"\n");
    }
    let ran = files.run(&["check"], b"");
    assert_eq!(ran.exit, Exit::Yes, "{}", ran.answer);
    let notes: Vec<_> = ran.remarks.lines().collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("tenants/globex.tml is not read"), "{notes:?}");
}

#[test]
fn a_scheme_that_nothing_stands_behind_is_named_and_no_error() {
    let declared = r#"
[[scheme]]
name = "ours"
algorithm = "hmac-sha256"
signature = { header = "X-Ours", encoding = "hex" }
content = "{body}"
"#;
    let files = Files::with(&format!("{}\n{declared}", GOOD.replace("\"github\"", "\"ours\"")));
    let ran = files.run(&["check"], b"");
    assert_eq!(ran.exit, Exit::Yes, "{}{}", ran.answer, ran.remarks);
    let said = files.said(&ran.answer);
    assert!(said.contains("scheme \"ours\" has no known answer that verifies") && said.contains("1 warning"), "{said}");
    // Where no endpoint uses it, nothing depends on it.
    let files = Files::with(&format!("{GOOD}\n{declared}"));
    assert!(!files.run(&["check"], b"").answer.contains("no known answer"));
}

#[test]
fn a_private_key_in_an_endpoint_is_advised_against() {
    let files = Files::with(&GOOD.replace("\"github\"", "\"discord\""));
    files.write("tenants/acme.secrets/github", include_str!("../../gateway/src/scheme/tests/keys/ed.pem").trim_end());
    let ran = files.run(&["check"], b"");
    assert_eq!(ran.exit, Exit::Yes, "{}{}", ran.answer, ran.remarks);
    assert!(files.said(&ran.answer).contains("private key"), "{}", ran.answer);
    files.write("tenants/acme.secrets/github", include_str!("../../gateway/src/scheme/tests/keys/ed.pub.pem"));
    assert!(!files.run(&["check"], b"").answer.contains("warning"), "{}", files.run(&["check"], b"").answer);
}
