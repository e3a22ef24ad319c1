//! What comes again under an id that was committed already, and answers in their providers' forms.

use super::*;

const ENDPOINTS: &str = r#"
tenant = "acme"

[[endpoint]]
id = "wh_stripe"
scheme = "stripe"
secrets = [{ value = "secret:shared" }]
limits = { events = "1/s burst 2" }

[[endpoint]]
id = "wh_xero"
scheme = "xero"
secrets = [{ value = "secret:shared" }]
"#;

fn bench() -> Bench {
    let bench = Bench::with(|appliance| appliance.gateway.commit_timeout = Duration::from_millis(200));
    bench.reload(ENDPOINTS);
    bench
}

#[tokio::test]
async fn a_repeat_is_answered_as_the_first_was_and_spends_no_limit() {
    let bench = bench();
    let first = bench.ask(bench.signed("stripe", "/hooks/wh_stripe", r#"{"id":"evt_1"}"#)).await;
    assert_eq!(status(&first), "202");
    bench.clock.advance(Duration::from_mins(1));
    for _ in 0..10 {
        let again = bench.ask(bench.signed("stripe", "/hooks/wh_stripe", r#"{"id":"evt_1"}"#)).await;
        assert_eq!(without_date(&again), without_date(&first));
    }
    assert!(bench.last_line().starts_with("repeated evt_"), "{}", bench.last_line());
    assert_eq!(bench.metric("gateway_repeated_total"), ["gateway_repeated_total 10"]);
    assert_eq!(bench.stored().len(), 1);
    // Within its limit still: two new ones, and no third.
    let mut statuses = Vec::new();
    for id in ["evt_2", "evt_3", "evt_4"] {
        let body = format!(r#"{{"id":"{id}"}}"#);
        statuses.push(status(&bench.ask(bench.signed("stripe", "/hooks/wh_stripe", &body)).await).to_owned());
    }
    assert_eq!(statuses, ["202", "202", "429"]);
    let window = Duration::from_hours(72);
    bench.clock.advance(window);
    let late = bench.ask(bench.signed("stripe", "/hooks/wh_stripe", r#"{"id":"evt_1"}"#)).await;
    assert_ne!(without_date(&late), without_date(&first), "it was forgotten");
}

#[tokio::test]
async fn what_was_not_committed_is_no_repeat() {
    let bench = bench();
    let delivery = bench.signed("stripe", "/hooks/wh_stripe", r#"{"id":"evt_1"}"#);
    bench.log.refuse_with(Some(AppendError::Full));
    assert_eq!(status(&bench.ask(&delivery).await), "503");
    bench.log.refuse_with(None);
    let first = bench.ask(&delivery).await;
    assert_eq!(status(&first), "202");
    assert_eq!(without_date(&bench.ask(&delivery).await), without_date(&first));
    assert_eq!(bench.stored().len(), 1);
}

/// The first one hangs; the second waits for it, as long as a commit may take, and is not told of an event that is none.
#[tokio::test]
async fn a_repeat_of_what_hangs_promises_nothing() {
    let bench = bench();
    let delivery = bench.signed("stripe", "/hooks/wh_stripe", r#"{"id":"evt_1"}"#);
    bench.log.hold_acks();
    let both = tokio::join!(bench.ask(&delivery), bench.ask(&delivery));
    assert_eq!((status(&both.0), status(&both.1)), ("503", "503"));
    bench.log.release_acks();
    bench.clock.advance(Duration::from_secs(10));
    assert_eq!(status(&bench.ask(&delivery).await), "202");
}

#[tokio::test]
async fn an_earlier_process_is_remembered_from_its_log() {
    let bench = bench();
    let delivery = bench.signed("stripe", "/hooks/wh_stripe", r#"{"id":"evt_1"}"#);
    let first = bench.ask(&delivery).await;
    let later = bench.another_process();
    assert_eq!(later.recall_repeats().unwrap(), 1);
    let again = listen::testing::converse(delivery.as_bytes(), Listener::default(), later).await;
    assert_eq!(without_date(&String::from_utf8(again).unwrap()), without_date(&first));
    assert_eq!(bench.stored().len(), 1);
}

#[tokio::test]
async fn a_provider_that_wants_no_body_gets_none() {
    let bench = bench();
    let body = r#"{"events":[{}],"firstEventSequence":1,"lastEventSequence":2}"#;
    let taken = bench.ask(bench.signed("xero", "/hooks/wh_xero", body)).await;
    assert_eq!(status(&taken), "200");
    assert!(taken.to_ascii_lowercase().contains("content-length: 0\r\n") && taken.ends_with("\r\n\r\n"), "{taken}");
    let refused =
        bench.ask(bench.signed("xero", "/hooks/wh_xero", body).replace(r#""events":[{}]"#, r#""events":[  ]"#)).await;
    assert_eq!(status(&refused), "401");
    assert!(
        refused.to_ascii_lowercase().contains("content-length: 0\r\n") && refused.ends_with("\r\n\r\n"),
        "{refused}"
    );
}
