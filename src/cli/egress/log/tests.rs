//! Reading the records' directory while no appliance runs.

use std::sync::Arc;

use domain::{Clock, ManualClock, TenantId};
use egress::Record;
use eventlog::records::{RecordStore, Settings};

use crate::cli::exit::Exit;
use crate::cli::testing::{Files, GOOD, NOW_UNIX_MS, Ran};
use crate::control::egress::kept;
use crate::run::egress_log::sample::record;

/// A configuration and its store of records, closed.
fn files(records: &[Record]) -> Files {
    let files = Files::with(GOOD);
    let appliance = config::load_appliance(&files.config()).0.unwrap();
    let clock: Arc<dyn Clock> = ManualClock::at_unix_ms(NOW_UNIX_MS);
    let settings = Settings {
        segment_bytes: 1 << 20,
        reserve_bytes: 0,
        ..Settings::new(&appliance.egress.records.directory, std::time::Duration::from_hours(24), 1 << 30)
    };
    let (store, _) = RecordStore::open(&settings, clock).unwrap();
    for record in records {
        assert_eq!(store.append(vec![kept(record).unwrap()]).wait().lost, 0);
    }
    store.close();
    files
}

fn log(files: &Files, words: &[&str]) -> Ran {
    let config = files.config();
    crate::cli::testing::run(&[&["egress", "log"], words, &["--config", config.to_str().unwrap()]].concat())
}

fn sample() -> Vec<Record> {
    let other = Some(TenantId::parse("other").unwrap());
    let refused = Record {
        outcome: "address-not-allowed".into(),
        status: None,
        destination: "metadata.example.com:80".into(),
        detail: "169.254.169.254 is a metadata address".into(),
        ..record(2)
    };
    vec![record(0), Record { tenant: other, ..record(1) }, refused, Record { tenant: None, ..record(3) }]
}

#[test]
fn a_list_lines_up_newest_first() {
    let files = files(&sample());
    let ran = log(&files, &["--tenant", "acme"]);
    assert_eq!(ran.exit, Exit::Yes, "{}", ran.remarks);
    assert!(ran.remarks.starts_with("no appliance answers at "), "{}", ran.remarks);
    let ids = [record(2), record(0)].map(|record| record.correlation);
    assert_eq!(
        ran.answer,
        format!(
            "ENDED                     OUTCOME              STATUS  METHOD  DESTINATION              TOOK     CORRELATION\n\
             2025-11-29T13:46:40.002Z  address-not-allowed  (403)   GET     metadata.example.com:80  12.3 ms  {}\n\
             2025-11-29T13:46:40.000Z  done                 200     GET     api.example.com:443      12.3 ms  {}\n",
            ids[0], ids[1]
        )
    );
    let everybody = log(&files, &[]).answer;
    assert_eq!(everybody.lines().count(), 5);
    assert!(everybody.lines().nth(1).unwrap().contains("  -       done"), "{everybody}");
}

#[test]
fn what_the_proxy_answered_itself_is_in_brackets() {
    let at = |way: &str, outcome: &str, address| {
        let record = Record { way: way.into(), outcome: outcome.into(), status: None, address, ..record(1) };
        super::status(&record)
    };
    let address = record(1).address;
    assert!(address.is_some());
    for (way, outcome, address, want) in [
        ("connect", "caller-unknown", None, Some("(407)")),
        ("governed", "caller-unknown", None, Some("(401)")),
        ("", "request-malformed", None, Some("(400)")),
        ("absolute", "done", None, None),
        ("absolute", "caller-gone", address, None),
        ("connect", "done", address, Some("(200)")),
        ("connect", "switched-off", address, Some("(200)")),
        ("connect", "switched-off", None, Some("(403)")),
    ] {
        assert_eq!(at(way, outcome, address).as_deref(), want, "{way} {outcome}");
    }
}

#[test]
fn filters_leave_the_rest_out_and_nothing_is_a_no() {
    let files = files(&sample());
    let count = |words: &[&str]| {
        let ran = log(&files, &[words, &["--json"]].concat());
        let lines = ran.answer.lines().count();
        assert_eq!(ran.exit, if lines > 0 { Exit::Yes } else { Exit::No }, "{words:?}: {}", ran.remarks);
        for line in ran.answer.lines() {
            serde_json::from_str::<Record>(line).unwrap();
        }
        lines
    };
    assert_eq!(count(&[]), 4);
    assert_eq!(count(&["--limit", "2"]), 2);
    assert_eq!(count(&["--tenant", "other"]), 1);
    assert_eq!(count(&["--tenant", "nobody"]), 0);
    assert_eq!(count(&["--outcome", "address-not-allowed"]), 1);
    assert_eq!(count(&["--outcome", "done", "--tenant", "acme"]), 1);
    assert_eq!(count(&["--destination", "METADATA.example.com"]), 1);
    assert_eq!(count(&["--destination", "metadata.example.com:443"]), 0);
    assert_eq!(count(&["--since", "2025-11-29T13:46:40.002Z"]), 2);
    assert_eq!(count(&["--until", "2025-11-29T13:46:40.002Z"]), 2);
    let id = record(1).correlation.to_string();
    assert_eq!(count(&["--correlation", &id]), 1);
    assert_eq!(count(&["--correlation", &id, "--tenant", "acme"]), 0, "another's is not there");
    assert_eq!(log(&files, &["--correlation", "evt_1"]).exit, Exit::Usage);
}

#[test]
fn a_call_is_shown_whole_in_the_order_of_its_hops() {
    let redirected = Record { hop: 1, destination: "files.example.com:443".into(), pooled: true, ..record(0) };
    let files = files(&[record(7), redirected, record(0)]);
    let ran = log(&files, &["--correlation", &record(0).correlation.to_string()]);
    assert_eq!(ran.exit, Exit::Yes, "{}", ran.remarks);
    let first = format!(
        "{}\n\
         \n\
         hop 0  done, status 200\n\
         ended        2025-11-29T13:46:40.000Z\n\
         tenant       acme\n\
         identity     grant:platform/j1\n\
         run          run_1\n\
         way          absolute\n\
         method       GET\n\
         destination  api.example.com:443\n\
         path         /v1/things\n\
         rule         tenants/acme.toml:7\n\
         peer         127.0.0.1:50000\n\
         answer       192.0.2.7\n\
         address      192.0.2.7:443\n\
         spoke        HTTP/1.1\n\
         left from    198.51.100.1\n\
         bytes        10 sent, 2000 received\n\
         sent state   response\n\
         took         12.3 ms (resolve 0.0 ms, connect 0.0 ms, tls 0.0 ms, first byte 0.0 ms)\n\
         \n\
         hop 1  done, status 200\n",
        record(0).correlation
    );
    assert!(ran.answer.starts_with(&first), "{}", ran.answer);
    assert!(ran.answer.contains("address      192.0.2.7:443 (on a connection that was open)\n"), "{}", ran.answer);
}

#[test]
fn nothing_from_outside_gets_past_its_place() {
    let hostile = "a\nb\u{1b}[31m\u{202e}\u{9b}c";
    let record = Record {
        method: hostile.into(),
        destination: hostile.into(),
        path: Some(hostile.into()),
        identity: Some(hostile.into()),
        outcome: hostile.into(),
        would_refuse: vec![hostile.into()],
        provider_ids: [("request-id".into(), hostile.into())].into(),
        detail: hostile.into(),
        ..record(0)
    };
    let files = files(std::slice::from_ref(&record));
    let id = record.correlation.to_string();
    let plain = log(&files, &["--correlation", &self::record(0).correlation.to_string()]);
    let lines = plain.answer.lines().count();
    assert_eq!(lines, 3 + 20, "{}", plain.answer);
    for words in [&["--correlation", &id][..], &[], &["--json"]] {
        let ran = log(&files, words);
        assert!(ran.answer.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{:?}", ran.answer);
    }
    let json = log(&files, &["--json"]).answer;
    assert_eq!(serde_json::from_str::<Record>(json.trim()).unwrap(), record);
}

#[test]
fn a_place_without_records_is_no_answer() {
    let files = Files::with(GOOD);
    let ran = log(&files, &[]);
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.remarks.contains("there is no such directory"), "{}", ran.remarks);
}
