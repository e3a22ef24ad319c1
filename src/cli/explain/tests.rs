//! What `tidegate explain` says: exact texts, every exit code, and the shared corpus of ways to reach the inside.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use serde_json::{Value, json};

use super::super::exit::Exit;
use super::super::testing::{Files, Ran, run, run_os};

/// Where the appliance of the corpus's placeholders lives.
const LISTEN_IP: &str = "198.51.100.20";
const EGRESS_IP: &str = "93.184.216.200";
const PEER_IP: &str = "93.184.216.201";

const PUBLIC: &str = "93.184.216.34";

fn node(egress: &str, tenant: &str) -> Files {
    let files = Files::with(&format!("tenant = \"acme\"\n{tenant}"));
    let text = format!("[gateway]\npublic_url = \"https://hooks.example.com\"\n[log]\ndirectory = \"log\"\n{egress}");
    files.write("tidegate.toml", &text);
    files
}

fn explain(files: &Files, target: impl Into<OsString>, more: &[&str]) -> Ran {
    let config = files.config().into_os_string();
    let words = ["explain".into(), "--config".into(), config, "--tenant".into(), "acme".into(), target.into()];
    run_os(words.into_iter().chain(more.iter().map(OsString::from)))
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.answer).unwrap_or_else(|fault| panic!("{fault}: {}{}", ran.answer, ran.remarks))
}

const EGRESS: &str = r#"
[egress]
deny = ["*.partner.com"]

[[egress.pool]]
name = "default"
addresses = [{ v4 = "192.0.2.2", v6 = "2001:db8::2" }]

[[egress.opening]]
host = "db.internal"
networks = ["10.1.2.0/24"]
ports = [8443]
tenant = "acme"
"#;

const TENANT: &str = r#"
[egress]
allow = [
  "*.example.com",
  { host = "api.example.com", methods = ["GET"], paths = ["/v1/"], name = "api" },
]
deny = [{ host = "*.example.com", methods = ["DELETE"], mode = "report" }]

[[egress.role]]
name = "build"
allow = ["registry.example.com"]

[[connection]]
id = "conn_stripe"
connector = "stripe"
base_url = "https://api.stripe.com/v1"
"#;

#[test]
fn a_governed_call_is_told_with_the_limits_that_it_counts_towards() {
    let files = node(EGRESS, TENANT);
    let ran = explain(&files, "/c/conn_stripe/charges", &["--method", "POST", "--answer", PUBLIC]);
    let line = ran.answer.lines().find(|line| line.starts_with("counts ")).unwrap_or_default();
    assert!(line.contains("(1)"), "{}", ran.answer);
    assert!(
        line.ends_with("`tidegate quota explain --tenant acme --connection conn_stripe` says what is left"),
        "{line}"
    );
    let limits = json(&explain(&files, "/c/conn_stripe/charges", &["--answer", PUBLIC, "--json"]))["counts"].clone();
    assert!(limits[0]["limit"].is_string() && limits[0]["level"].is_string() && limits[0]["units"] == 1, "{limits}");
    let plain = json(&explain(&files, "https://a.example.com/", &["--answer", PUBLIC, "--json"]));
    assert_eq!(plain["counts"], Value::Null);
}

/// What comes after a no of the rules is told, where it can be without asking anybody.
#[test]
fn the_table_is_asked_also_where_a_rule_refuses() {
    let files = node(EGRESS, TENANT);
    let ran = explain(&files, "http://169.254.169.254/", &[]);
    assert_eq!(ran.exit, Exit::No);
    let line = ran.answer.lines().find(|line| line.starts_with("169.254.169.254  ")).unwrap_or_default();
    assert!(line.to_lowercase().contains("metadata"), "{}", ran.answer);
    assert!(ran.answer.contains("no allow rule") && ran.remarks.contains("would be refused, too"), "{}", ran.remarks);
    let metadata = json(&explain(&files, "http://169.254.169.254/", &["--json"]));
    assert_eq!((&metadata["code"], &metadata["addressesFrom"]), (&"destination-not-allowed".into(), &"literal".into()));
    assert_eq!(metadata["addresses"][0]["allowed"], false);

    let given = json(&explain(&files, "https://other.test/", &["--json", "--answer", "10.0.0.1", "--answer", PUBLIC]));
    assert_eq!((&given["code"], &given["addressesFrom"]), (&"destination-not-allowed".into(), &"given".into()));
    assert_eq!((&given["addresses"][0]["allowed"], &given["addresses"][1]["allowed"]), (&false.into(), &true.into()));
    let unresolved = json(&explain(&files, "https://other.test/", &["--json"]));
    assert_eq!((&unresolved["addressesFrom"], &unresolved["addresses"]), (&Value::Null, &serde_json::json!([])));
}

#[test]
fn a_yes_says_why() {
    let files = node(EGRESS, TENANT);
    let ran = explain(&files, "https://api.example.com/v1/x?key=secret", &["--method", "DELETE", "--answer", PUBLIC]);
    assert_eq!((ran.exit, ran.remarks.as_str()), (Exit::Yes, ""), "{}", ran.answer);
    // Widths depend on where the files lie.
    let said = files.said(&ran.answer);
    let lines: Vec<String> = said
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(" | "))
        .collect();
    assert_eq!(
        lines,
        [
            "allowed",
            "asked | https://api.example.com/v1/x?key=secret",
            "way | absolute",
            "hop | DELETE api.example.com:443/v1/x",
            "tenant | acme",
            "rule | tenant allow: *.example.com (tenants/acme.toml:5)",
            "would refuse | tenant deny: *.example.com (tenants/acme.toml:8)",
            "addresses | given",
            "exit | pool default: 192.0.2.2, 2001:db8::2",
            "",
            "ADDRESS | ROW | WHAT | VERDICT",
            "93.184.216.34 | 0.0.0.0/0 | everything else | public",
            "",
            "CONSULTED | WHAT | WHERE | OUTCOME",
            "appliance deny | 1 rule",
            "tenant deny | 1 rule",
            "*.example.com methods DELETE | tenants/acme.toml:8 | would refuse (report)",
            "tenant allow | 2 rules",
            "api: api.example.com methods GET paths /v1/ | tenants/acme.toml:6 | names other methods",
            "*.example.com | tenants/acme.toml:5 | allows",
        ]
    );
}

#[test]
fn the_exit_is_one_that_serving_has() {
    const RANGES: &str = "[egress.ranges]\nnotice = \"0s\"\ndrain = \"0s\"\n";
    let pool = |addresses: &str| {
        format!("[egress]\nmode = \"open\"\n[[egress.pool]]\nname = \"default\"\naddresses = [{addresses}]\n{RANGES}")
    };
    let asked = |files: &Files| {
        let ran = explain(files, "https://api.example.com/", &["--answer", PUBLIC, "--json"]);
        let said = json(&ran);
        (ran.exit, said["code"].clone(), said["exit"]["addresses"].clone(), said["notes"].clone())
    };
    let files = node(&format!("[egress]\nmode = \"open\"\n{RANGES}"), "");
    assert_eq!(asked(&files), (Exit::Yes, Value::Null, Value::Null, Value::from(Vec::<String>::new())));

    let ranges = |words: &[&str]| {
        let config = files.config();
        let all = [&["egress", "ranges"], words, &["--config", config.to_str().unwrap()]].concat();
        let ran = run(&all);
        assert_eq!(ran.exit, Exit::Yes, "{words:?}: {}{}", ran.answer, ran.remarks);
    };
    ranges(&["key", "--make"]);
    ranges(&["announce", "93.184.216.0/24"]);
    // What the kernel would choose is in no range.
    let (exit, code, _, _) = asked(&files);
    assert_eq!((exit, code), (Exit::No, "exit-unavailable".into()));

    let write = |addresses: &str| {
        let text = format!(
            "[gateway]\npublic_url = \"https://hooks.example.com\"\n[log]\ndirectory = \"log\"\n{}",
            pool(addresses)
        );
        files.write("tidegate.toml", &text);
    };
    write("{ v4 = \"93.184.216.7\" }");
    let (exit, code, _, notes) = asked(&files);
    assert_eq!((exit, code), (Exit::No, "exit-unavailable".into()), "it is announced, and nothing more");
    assert!(notes[0].as_str().unwrap().contains("announced and not active"), "{notes}");
    ranges(&["activate", "93.184.216.0/24"]);
    let (exit, _, addresses, notes) = asked(&files);
    assert_eq!((exit, addresses, notes), (Exit::Yes, json!(["93.184.216.7"]), json!([])));
    // Wherever the tenant's place among all of them would be.
    let others: Vec<_> = (1..40).map(|nth| format!("{{ v4 = \"93.184.217.{nth}\" }}")).collect();
    write(&format!("{}, {{ v4 = \"93.184.216.7\" }}", others.join(", ")));
    let (exit, _, addresses, notes) = asked(&files);
    assert_eq!((exit, addresses), (Exit::Yes, json!(["93.184.216.7"])));
    assert_eq!(notes.as_array().unwrap().len(), 5, "{notes}");
}

#[test]
fn a_no_has_the_code_that_a_caller_gets() {
    let files = node(EGRESS, TENANT);
    for (target, more, exit, code) in [
        ("https://api.example.com/", &["--answer", PUBLIC][..], Exit::Yes, None),
        ("api.example.com:443", &["--answer", PUBLIC], Exit::Yes, None),
        ("api.example.com:80", &[], Exit::No, Some("port-not-allowed")),
        ("x.partner.com:443", &[], Exit::No, Some("destination-not-allowed")),
        ("other.org:443", &[], Exit::No, Some("destination-not-allowed")),
        ("api.stripe.com:443", &[], Exit::No, Some("destination-not-allowed")),
        ("/c/conn_stripe/charges", &["--method", "POST", "--answer", PUBLIC], Exit::Yes, None),
        ("/c/conn_stripe", &["--answer", PUBLIC], Exit::Yes, None),
        ("/c/conn_stripe/../x", &[], Exit::No, Some("request-malformed")),
        ("/c/conn_gone/x", &[], Exit::No, Some("connection-unknown")),
        ("/c/", &[], Exit::No, Some("connection-unknown")),
        ("/c/conn_stripe/x", &["--as", "build"], Exit::No, Some("destination-not-allowed")),
        ("registry.example.com:443", &["--as", "build", "--answer", PUBLIC], Exit::Yes, None),
        ("a.example.com:443", &["--as", "build"], Exit::No, Some("destination-not-allowed")),
        ("a.example.com:443", &["--as", "gone"], Exit::No, Some("destination-not-allowed")),
        ("db.internal:8443", &["--answer", "10.1.2.3"], Exit::Yes, None),
        ("db.internal:8443", &["--answer", "10.1.3.3"], Exit::No, Some("address-not-allowed")),
        ("db.internal:8443", &["--answer", "169.254.169.254"], Exit::No, Some("address-not-allowed")),
        ("a.example.com:443", &["--answer", "192.0.2.1"], Exit::No, Some("address-not-allowed")),
        ("a.example.com:443", &["--answer", PUBLIC, "--answer", "10.0.0.1"], Exit::No, Some("address-not-allowed")),
        ("a.example.com:443", &["--answer", "none"], Exit::No, Some("dns-failed")),
        ("https://a.example.com/", &["--connect"], Exit::No, Some("target-malformed")),
        ("https://a.example.com/", &["--method", "CONNECT"], Exit::No, Some("target-malformed")),
        ("a.example.com", &[], Exit::No, Some("target-malformed")),
        ("", &[], Exit::No, Some("target-malformed")),
    ] {
        let ran = explain(&files, target, &[more, &["--json"]].concat());
        assert_eq!(ran.exit, exit, "{target} {more:?}: {}{}", ran.answer, ran.remarks);
        let json = json(&ran);
        assert_eq!(json["code"].as_str(), code, "{target} {more:?}");
        assert_eq!(json["decision"] == "allowed", code.is_none());
    }
}

#[test]
fn who_is_not_there_is_refused_and_said() {
    let files = node(EGRESS, TENANT);
    let config = files.config();
    let ran = run_os(
        ["explain", "a.example.com:443", "--tenant", "gone", "--config", config.to_str().unwrap()].map(Into::into),
    );
    assert_eq!(ran.exit, Exit::No);
    assert!(ran.answer.starts_with("refused: caller-unknown. "), "{}", ran.answer);
    assert!(ran.answer.contains("no such tenant"), "{}", ran.answer);
}

#[test]
fn what_cannot_be_told_is_exit_3() {
    let files = node(
        "[egress]\n[egress.dns]\nservers = [\"127.0.0.1:1\"]\ntimeout = \"200ms\"\nattempt_timeout = \"100ms\"\n",
        "[egress]\nmode = \"open\"\n",
    );
    let ran = explain(&files, "https://a.example.com/", &["--json"]);
    assert_eq!(ran.exit, Exit::Failed, "{}{}", ran.answer, ran.remarks);
    assert_eq!(json(&ran)["decision"], "undecided");
    files.write("tenants/acme.toml", "tenant = \"acme\"\n[egress]\nallow = [\"127.1\"]\n");
    let ran = explain(&files, "https://a.example.com/", &[]);
    assert_eq!(ran.exit, Exit::Failed);
    assert!(
        files.said(&ran.remarks).contains("tenants/acme.toml:3: egress.allow: \"127.1\" is no host"),
        "{}",
        ran.remarks
    );
    files.write(
        "tidegate.toml",
        "[gateway]\npublic_url = \"https://hooks.example.com\"\n[egress]\nnat64 = [\"::/96\"]\n",
    );
    assert_eq!(explain(&files, "https://a.example.com/", &[]).exit, Exit::Failed);
    files.write("tidegate.toml", "[gateway\n");
    assert_eq!(explain(&files, "https://a.example.com/", &[]).exit, Exit::Failed);
}

#[test]
fn wrong_usage_is_exit_2() {
    let files = node(EGRESS, TENANT);
    for more in [
        &["--answer", "10.0.0"][..],
        &["--answer", "[::1]"],
        &["--answer", PUBLIC, "--answer", "none"],
        &["--method", "G T"],
        &["--as"],
    ] {
        assert_eq!(explain(&files, "https://a.example.com/", more).exit, Exit::Usage, "{more:?}");
    }
    assert_eq!(explain(&files, "a.example.com:443", &["--method", "GET"]).exit, Exit::Usage);
}

#[test]
fn a_switch_is_seen_before_every_rule() {
    let files = node("[egress]\n", "[egress]\nallow = [\"a.com\"]\n");
    let config = files.config();
    let off =
        ["egress", "switch", "off", "--tenant", "acme", "--reason", "INC-1", "--config", config.to_str().unwrap()];
    assert_eq!(run_os(off.map(Into::into)).exit, Exit::Yes);
    let ran = explain(&files, "a.com:443", &["--json"]);
    assert_eq!((ran.exit, json(&ran)["code"].as_str()), (Exit::No, Some("switched-off")));
    assert_eq!(json(&ran)["switch"]["reason"], "INC-1");
}

/// The generic connector's hosts are each connection's own: the switch is found by the connection.
#[test]
fn a_connectors_switch_is_seen_wherever_its_connection_leads() {
    let connection = "[[connection]]\nid = \"c\"\nconnector = \"http\"\nbase_url = \"https://own.example.org/base\"\n";
    let files = node("[egress]\n", connection);
    let ran = explain(&files, "/c/c/x", &["--answer", PUBLIC, "--json"]);
    assert_eq!((ran.exit, &json(&ran)["path"]), (Exit::Yes, &"/base/x".into()), "{}{}", ran.answer, ran.remarks);
    let config = files.config();
    let off = ["egress", "switch", "off", "--connector", "http", "--config", config.to_str().unwrap()];
    assert_eq!(run_os(off.map(Into::into)).exit, Exit::Yes);
    let ran = explain(&files, "/c/c/x", &["--answer", PUBLIC, "--json"]);
    assert_eq!(json(&ran)["code"], "switched-off");
}

#[test]
fn without_the_role_the_defaults_are_shown_and_that_is_said() {
    let files = node("", "[egress]\nallow = [\"a.com\"]\n");
    let ran = explain(&files, "a.com:443", &["--answer", PUBLIC]);
    assert_eq!(ran.exit, Exit::Yes, "{}{}", ran.answer, ran.remarks);
    assert!(ran.remarks.contains("no [egress] table"), "{}", ran.remarks);
    assert!(ran.answer.contains("the kernel chooses the address"), "{}", ran.answer);
}

#[test]
fn whatever_is_typed_is_escaped_and_crashes_nothing() {
    let files = node("[egress]\n", "[egress]\nmode = \"open\"\n");
    for bytes in [
        &b"http://\x1b[31mred/"[..],
        b"http://a.com/\x07\r\nHost: b",
        b"\xff\xfe:443",
        b"http://\xc3\x28.com/",
        "http://\u{202e}moc.a/".as_bytes(),
        "CONNECT ①②⑦.⓪.⓪.①:443".as_bytes(),
        b"-1.example.com:443",
        b"--",
        b"\\\\server\\share",
        b"/c/\x1b/x",
    ] {
        for form in [&["--json"][..], &[]] {
            let mut words = vec!["explain".into(), "--config".into(), files.config().into_os_string()];
            words.extend(["--tenant", "acme"].map(OsString::from));
            words.extend(form.iter().map(OsString::from));
            words.extend([OsString::from("--"), OsString::from_vec(bytes.to_vec())]);
            let ran = run_os(words);
            assert_eq!(ran.exit, Exit::No, "{bytes:?}: {}{}", ran.answer, ran.remarks);
            let text = format!("{}{}", ran.answer, ran.remarks);
            let odd = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}');
            assert!(!text.contains(odd), "{text:?}");
        }
    }
    let long = format!("http://{}/", "a".repeat(100_000));
    assert_eq!(explain(&files, long, &[]).exit, Exit::No);
}

#[test]
fn the_document_has_every_key_of_the_object() {
    let files = node(EGRESS, TENANT);
    let ran = explain(&files, "https://api.example.com/v1/x", &["--answer", PUBLIC, "--json"]);
    let object = json(&ran);
    let document = include_str!("../../../docs/explain.md");
    for key in object.as_object().unwrap().keys() {
        assert!(document.contains(&format!("| `{key}` |")), "{key}");
    }
    assert_eq!(object["rule"]["line"], 6);
    assert_eq!(object["exit"]["pool"], "default");
}

/// The policy that a case of the corpus is to be judged under, as both files say it. What says nothing of names is
/// judged where every name is allowed, so that it is refused for what it is.
fn policy_of(case: &Value) -> (String, String) {
    let policy = case["policy"].as_str().unwrap_or_default();
    let list = |key: &str| -> Option<Vec<String>> {
        let start = policy.find(&format!("{key}=["))? + key.len() + 2;
        let end = start + policy[start..].find(']')?;
        Some(policy[start..end].split(',').map(|item| item.trim().to_owned()).collect())
    };
    let mut egress = format!("[egress]\nlisten = [\"{LISTEN_IP}:3128\"]\nown_addresses = [\"{PEER_IP}\"]\n");
    if let Some(ports) = list("ports") {
        egress.extend(std::iter::once(format!("connect_ports = [{}]\n", ports.join(", "))));
    }
    if let Some(prefix) = policy.strip_prefix("nat64_prefix=") {
        egress.extend(std::iter::once(format!("nat64 = [\"{}\"]\n", prefix.split(' ').next().unwrap())));
    }
    egress.extend(std::iter::once(format!(
        "[[egress.pool]]\nname = \"default\"\naddresses = [{{ v4 = \"{EGRESS_IP}\" }}]\n"
    )));
    let mut tenant = "[egress]\n".to_owned();
    let allow = list("allow").or_else(|| {
        let name = policy.strip_prefix("allowlist=")?.split(' ').next()?;
        Some(vec![name.to_owned()])
    });
    match allow {
        Some(allow) => tenant.extend(std::iter::once(format!("allow = {allow:?}\n"))),
        None => tenant.push_str("mode = \"open\"\n"),
    }
    if let Some(deny) = list("deny") {
        tenant.extend(std::iter::once(format!("deny = {deny:?}\n")));
    }
    (egress, tenant)
}

/// The answers of a case as arguments: successive ones, of which each is a whole answer.
fn answers_of(case: &Value) -> Vec<Vec<String>> {
    let answer = |records: &Value| {
        let addresses: Vec<String> = records
            .as_array()
            .unwrap()
            .iter()
            .filter(|record| record["type"] != "CNAME")
            .map(|record| record["data"].as_str().unwrap().to_owned())
            .collect();
        // A chain of aliases without an address at its end has none.
        if addresses.is_empty() { vec!["none".to_owned()] } else { addresses }
    };
    match &case["dns"] {
        Value::Null => vec![vec![PUBLIC.to_owned()]],
        Value::Object(object) if object.contains_key("rcode") => vec![vec!["none".to_owned()]],
        Value::Object(object) => object["sequence"].as_array().unwrap().iter().map(answer).collect(),
        records @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => vec![answer(records)],
    }
}

#[test]
fn every_shared_case_that_is_about_one_destination() {
    let Some(text) = skip::shared_cases("ssrf.json") else { return };
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    // Messages are for the listener, chains of redirects for whoever follows them.
    let cases: Vec<&Value> =
        cases.iter().filter(|case| case["kind"] != "message" && case["kind"] != "redirect").collect();
    let mut faults = Vec::new();
    for case in &cases {
        let field = |name: &str| case[name].as_str().unwrap();
        let target = field("target")
            .replace("PROXY_LISTEN_PORT", "3128")
            .replace("PROXY_LISTEN_IP", LISTEN_IP)
            .replace("PROXY_PUBLIC_EGRESS_IP", EGRESS_IP)
            .replace("OTHER_NODE_EGRESS_IP", PEER_IP)
            .replace("ADMIN_PORT", "9090");
        let (target, connect) = match target.strip_prefix("CONNECT ") {
            Some(authority) => (authority.to_owned(), &["--connect"][..]),
            None => (target, &[][..]),
        };
        let (egress, tenant) = policy_of(case);
        // Once as it is written, and once where every name is allowed: what leads inside is refused for where it leads.
        let is_about_names = ["connect-glob-apex", "connect-glob-suffix2"].contains(&field("id"));
        let open = tenant.lines().filter(|line| !line.starts_with("allow")).collect::<Vec<_>>().join("\n");
        let open = format!("{}\nmode = \"open\"\n", open.replace("mode = \"open\"", ""));
        for tenant in [Some(tenant), (!is_about_names).then_some(open)].into_iter().flatten() {
            let files = node(&egress, &tenant);
            let runs: Vec<Ran> = answers_of(case)
                .iter()
                .map(|answer| {
                    let answers = answer.iter().flat_map(|address| ["--answer", address]);
                    let words: Vec<&str> = connect.iter().copied().chain(["--json"]).chain(answers).collect();
                    explain(&files, &target, &words)
                })
                .collect();
            let is_allowed = runs.iter().all(|ran| ran.exit == Exit::Yes);
            let is_refused = runs.iter().any(|ran| ran.exit == Exit::No);
            let is_right = if field("expected") == "allow" { is_allowed } else { is_refused };
            if !is_right {
                let said: Vec<_> = runs.iter().map(|ran| (ran.exit, &ran.answer, &ran.remarks)).collect();
                faults.push(format!("{}: {target:?} should be {}: {said:?}", field("id"), field("expected")));
            }
        }
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
    assert!(cases.len() > 200, "the corpus is not what it was");
}
