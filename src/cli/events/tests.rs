//! Reading a log's directory while no appliance runs.

use std::sync::Arc;

use bytes::Bytes;
use domain::{Clock, EndpointId, EventId, ManualClock, NodeId, Slot, TenantId};
use eventlog::{Class, DeliveryId, EmbeddedLog, EventLog, HeaderBlock, NewEvent};
use serde_json::Value;

use crate::cli::exit::Exit;
use crate::cli::testing::{Files, GOOD, NOW_UNIX_MS, Ran};

/// A configuration whose log holds three events of acme and one of another tenant, closed.
fn files() -> (Files, Vec<EventId>) {
    let files = Files::with(GOOD);
    let appliance = config::load_appliance(&files.config()).0.unwrap();
    let clock: Arc<dyn Clock> = ManualClock::at_unix_ms(NOW_UNIX_MS);
    let mut settings = eventlog::embedded::Settings::new(&appliance.log, NodeId(1));
    settings.reserve_bytes = 0;
    let (log, _) = EmbeddedLog::open(&settings, clock).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut ids = Vec::new();
    for (nth, tenant) in ["acme", "acme", "other", "acme"].into_iter().enumerate() {
        let event = event(tenant, u64::try_from(nth).unwrap());
        ids.push(event.id);
        runtime.block_on(log.append(event)).unwrap();
    }
    log.close().unwrap();
    (files, ids)
}

fn event(tenant: &str, nth: u64) -> NewEvent {
    let at = NOW_UNIX_MS - 60_000 + nth;
    let mut headers = HeaderBlock::with_capacity(64);
    headers.push(b"Authorization", b"Bearer hunter2").unwrap();
    NewEvent {
        id: EventId::new(at, Slot::of("wh_9f2c1b7a"), NodeId(1), [7; 6]),
        tenant: TenantId::parse(tenant).unwrap(),
        endpoint: EndpointId::parse(if tenant == "acme" { "wh_9f2c1b7a" } else { "wh_other" }).unwrap(),
        retention: "default".into(),
        received_unix_ms: at,
        peer: "127.0.0.1:5555".parse().unwrap(),
        method: "POST".into(),
        target: Bytes::from_static(b"/hooks/wh_9f2c1b7a"),
        headers: headers.finish(),
        body: Bytes::from_static(b"\x1b[2Jbody"),
        scheme: "github".into(),
        secret: "primary".into(),
        delivery_id: Some(DeliveryId { value: Bytes::from_static(b"id\x1b[31m"), signed: false }),
        class: Class::Normal,
        signed_at_unix_ms: None,
        public_url: "https://hooks.example.com".into(),
    }
}

fn events(files: &Files, words: &[&str]) -> Ran {
    let config = files.config();
    let config = config.to_str().unwrap();
    crate::cli::testing::run(&[&["events"], words, &["--config", config]].concat())
}

fn json_lines(ran: &Ran) -> Vec<Value> {
    ran.answer.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_list_is_aligned_escaped_and_of_one_tenant() {
    let (files, ids) = files();
    let ran = events(&files, &["list", "--tenant", "acme"]);
    assert_eq!(ran.exit, Exit::Yes, "{}", ran.remarks);
    assert!(ran.remarks.starts_with("no appliance answers at "), "{}", ran.remarks);
    let want = format!(
        "RECEIVED                  EVENT                           ENDPOINT     SCHEME  BYTES  DELIVERY\n\
         2025-11-29T13:45:40.000Z  {}  wh_9f2c1b7a  github  8      id\\u{{1b}}[31m\n",
        ids[0]
    );
    assert!(ran.answer.starts_with(&want), "{}", ran.answer);
    assert_eq!(ran.answer.lines().count(), 4);
    assert_eq!(events(&files, &["list", "--all-tenants"]).answer.lines().count(), 5);
    assert_eq!(events(&files, &["list", "--endpoint", "wh_9f2c1b7a"]).answer, ran.answer);
}

#[test]
fn a_list_in_json_is_the_stable_form() {
    let (files, ids) = files();
    let lines = json_lines(&events(&files, &["list", "--tenant", "acme", "--limit", "2", "--json"]));
    assert_eq!(
        lines.iter().map(|line| line["id"].clone()).collect::<Vec<_>>(),
        [ids[1].to_string(), ids[3].to_string()]
    );
    let line = &lines[0];
    assert_eq!(line["executionId"], ids[1].execution().to_string());
    assert_eq!(line["receivedAt"], "2025-11-29T13:45:40.001Z");
    for key in ["node", "epoch", "sequence", "bodyBytes"] {
        assert!(line[key].is_u64(), "{key} in {line}");
    }
    assert!(line["position"].is_string() && line["class"] == "normal" && line["secret"] == "primary");
    assert_eq!(line["deliveryId"]["value"], "id\u{1b}[31m");
    assert!(line.get("body").is_none() && line.get("headers").is_none());
}

#[test]
fn times_select_half_open() {
    let (files, ids) = files();
    let words = ["list", "--all-tenants", "--json", "--since", "2025-11-29T13:45:40.001Z", "--until"];
    let lines = json_lines(&events(&files, &[&words[..], &["2025-11-29T13:45:40.003Z"]].concat()));
    assert_eq!(
        lines.iter().map(|line| line["id"].clone()).collect::<Vec<_>>(),
        [ids[1].to_string(), ids[2].to_string()]
    );
    let nothing = events(&files, &["list", "--all-tenants", "--since", "10s"]);
    assert!(nothing.exit == Exit::Yes && nothing.answer.is_empty() && nothing.remarks.contains("no events"));
}

#[test]
fn show_keeps_secrets_to_itself_until_asked() {
    let (files, ids) = files();
    let id = ids[0].to_string();
    let ran = events(&files, &["show", &id, "--tenant", "acme"]);
    assert_eq!(ran.exit, Exit::Yes, "{}", ran.remarks);
    assert!(ran.answer.contains("Authorization: [redacted]") && !ran.answer.contains("hunter2"), "{}", ran.answer);
    assert!(ran.answer.contains("body, 8 bytes, binary\n00000000  1b 5b 32 4a 62 6f 64 79"), "{}", ran.answer);
    assert!(!ran.answer.contains('\u{1b}'));
    assert!(events(&files, &["show", &id, "--tenant", "acme", "--reveal"]).answer.contains("Bearer hunter2"));
    let json = events(&files, &["show", &id, "--tenant", "acme", "--json"]);
    assert!(!json.answer.contains("hunter2"));
    assert_eq!(json_lines(&json)[0]["body"], "G1sySmJvZHk=");
    assert_eq!(events(&files, &["show", &id, "--tenant", "acme", "--body-only"]).answer, "\u{1b}[2Jbody");
}

#[test]
fn another_tenants_event_is_not_there() {
    let (files, ids) = files();
    let ran = events(&files, &["show", &ids[2].to_string(), "--tenant", "acme"]);
    assert!(ran.exit == Exit::No && ran.answer.is_empty() && !ran.remarks.contains("other"), "{ran:?}");
    let missing = EventId::from_bytes([9; 16]).to_string();
    let ran = events(&files, &["show", &missing, "--tenant", "acme"]);
    assert_eq!((ran.exit, ran.answer.as_str()), (Exit::No, ""), "{}", ran.remarks);
}

#[test]
fn export_is_whole() {
    let (files, _) = files();
    let lines = json_lines(&events(&files, &["export", "--all-tenants"]));
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().all(|line| line["body"] == "G1sySmJvZHk=" && line["headers"][0][1] == "Bearer hunter2"));
    assert_eq!(json_lines(&events(&files, &["export", "--all-tenants", "--limit", "1"])).len(), 1);
}

#[test]
fn what_needs_an_appliance_says_so() {
    let (files, _) = files();
    for words in [&["tail"][..], &["list", "--held"], &["reverify"]] {
        let ran = events(&files, &[words, &["--tenant", "acme"]].concat());
        assert_eq!((ran.exit, ran.answer.as_str()), (Exit::Failed, ""), "{words:?}: {}", ran.remarks);
        assert!(ran.remarks.contains("tidegate run"), "{words:?}: {}", ran.remarks);
    }
}

#[test]
fn the_logs_state_is_read_without_an_appliance() {
    let (files, _) = files();
    let config = files.config();
    let ran = crate::cli::testing::run(&["log", "stat", "--json", "--config", config.to_str().unwrap()]);
    assert_eq!(ran.exit, Exit::Yes, "{}", ran.remarks);
    assert_eq!(json_lines(&ran)[0]["lanes"][0]["records"], 4);
    let ran = crate::cli::testing::run(&["log", "verify", "--config", config.to_str().unwrap()]);
    assert_eq!(ran.exit, Exit::Yes, "{}{}", ran.answer, ran.remarks);
}

/// Flips a bit of what is stored of this event.
fn damage(files: &Files, id: EventId) {
    let shard = files.config().parent().unwrap().join("log/events/default/1-of-1/0");
    let is_segment = |path: &std::path::PathBuf| path.extension().is_some_and(|extension| extension == "seg");
    let path = std::fs::read_dir(shard).unwrap().map(|entry| entry.unwrap().path()).find(is_segment).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(16).position(|window| window == id.as_bytes()).unwrap();
    bytes[at + 40] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damage_is_passed_over_by_a_look_and_by_a_copy_that_is_told_to() {
    let (files, ids) = files();
    damage(&files, ids[1]);
    let named = |ran: &Ran| ran.remarks.contains("segment 0000000000000001-00000000, offset ");

    let newest = events(&files, &["list", "--all-tenants", "--json", "--limit", "2"]);
    assert_eq!((newest.exit, json_lines(&newest).len()), (Exit::Yes, 2), "{}", newest.remarks);
    assert!(!named(&newest), "what lies before the newest is not read: {}", newest.remarks);
    for words in [&["list", "--all-tenants", "--json"][..], &["export", "--all-tenants", "--skip-damage"]] {
        let ran = events(&files, words);
        let there: Vec<_> = json_lines(&ran).iter().map(|line| line["id"].clone()).collect();
        assert_eq!((ran.exit, &there[..]), (Exit::No, &[ids[0], ids[2], ids[3]].map(|id| id.to_string().into())[..]));
        assert!(named(&ran), "{}", ran.remarks);
    }
    let stopped = events(&files, &["export", "--all-tenants"]);
    assert_eq!((stopped.exit, json_lines(&stopped).len()), (Exit::Failed, 1));
    assert!(named(&stopped) && stopped.remarks.contains("--skip-damage"), "{}", stopped.remarks);
}

#[test]
fn a_directory_that_is_no_log_is_said_to_be_none() {
    let (files, _) = files();
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(elsewhere.path().join("usr/lib")).unwrap();
    for words in [&["events", "list", "--all-tenants"][..], &["log", "stat"]] {
        let ran = crate::cli::testing::run(&[words, &["--log", elsewhere.path().to_str().unwrap()]].concat());
        assert_eq!((ran.exit, ran.answer.as_str()), (Exit::Failed, ""), "{}", ran.remarks);
        assert!(ran.remarks.contains("there is no log in"), "{}", ran.remarks);
    }
    drop(files);
}

#[test]
fn a_tenant_that_is_not_configured_is_said_to_be_none() {
    let (files, _) = files();
    let nobody = events(&files, &["list", "--tenant", "nobody"]);
    assert_eq!((nobody.exit, nobody.answer.as_str()), (Exit::Yes, ""));
    assert!(nobody.remarks.contains("no tenant nobody is configured here"), "{}", nobody.remarks);
    let gone = events(&files, &["list", "--tenant", "other"]);
    assert!(gone.answer.contains("wh_other") && !gone.remarks.contains("no tenant"), "its events are there");
    let quiet = events(&files, &["list", "--tenant", "acme", "--until", "2020-01-01T00:00:00Z"]);
    assert!(!quiet.remarks.contains("no tenant"), "{}", quiet.remarks);
}

/// What a file's fault does not touch can be used while it is there.
#[test]
fn a_faulty_file_keeps_nobody_from_the_log() {
    let (files, _) = files();
    let whole = events(&files, &["list", "--endpoint", "wh_9f2c1b7a"]).answer;
    let faulty = std::fs::read_to_string(files.config()).unwrap() + "\n[gateway.listener]\nheader_timeot = \"5s\"\n";
    files.write("tidegate.toml", &faulty);
    let ran = events(&files, &["list", "--endpoint", "wh_9f2c1b7a"]);
    assert_eq!((ran.exit, ran.answer), (Exit::Yes, whole), "{}", ran.remarks);
    assert!(ran.remarks.contains("header_timeot"), "{}", ran.remarks);
    files.write("tidegate.toml", &faulty.replace("directory", "diretory"));
    let ran = events(&files, &["list", "--tenant", "acme"]);
    assert_eq!(ran.exit, Exit::Failed, "nothing is read from a guess");
    assert!(ran.remarks.contains("--socket"), "{}", ran.remarks);
}
