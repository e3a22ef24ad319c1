//! What stands beside the ledger in the database, and what nodes tell each other through it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use domain::{EndpointId, EventId, NodeId, Slot, SystemClock};
use tidegate_runner::automation::EventFacts;
use tidegate_runner::engine::{Events, PortError};
use tidegate_runner::ledger::conformance::made::{
    self, admission, admitted, cancel_requested, commit, lease, outcome, rerun, terminal,
};
use tidegate_runner::ledger::embedded::Ages;
use tidegate_runner::ledger::payloads::{Bounds, Fetched, PayloadError, PayloadStore, PostgresPayloads};
use tidegate_runner::ledger::postgres::PostgresLedger;
use tidegate_runner::ledger::{Body, Kept, LedgerStore, QueueClass, RunStatus, Writer};
use tidegate_runner::postgres::{Database, PostgresEvents};

use crate::place::Place;

async fn ledger(database: &Database) -> PostgresLedger {
    PostgresLedger::on(database, SystemClock::shared()).await.unwrap()
}

#[tokio::test]
async fn a_ledger_has_one_name_whoever_opens_it() {
    let (Some(place), Some(another)) = (Place::new().await, Place::new().await) else { return };
    let opened = futures_util::future::join_all((0..8).map(|_| Database::open(place.settings()))).await;
    let ids: BTreeSet<String> = opened.into_iter().map(|database| database.unwrap().id().to_string()).collect();
    assert_eq!(ids.len(), 1);
    let another = Database::open(another.settings()).await.unwrap().id().to_string();
    assert!(!ids.contains(&another));
}

#[tokio::test]
async fn what_is_said_of_runs_on_one_node_is_heard_on_another() {
    let Some(place) = Place::new().await else { return };
    let databases = [Database::open(place.settings()).await.unwrap(), Database::open(place.settings()).await.unwrap()];
    let (one, other) = (ledger(&databases[0]).await, ledger(&databases[1]).await);
    // Before anybody follows.
    one.append(admission(made::run(0))).await.unwrap();
    one.append(commit("acme", made::run(0), 1, Writer::Anyone, vec![cancel_requested()])).await.unwrap();
    let mut acts = other.acts().await.unwrap();
    assert_eq!(acts.next().await.unwrap(), []);
    for number in 1..40 {
        let run = made::run(number);
        one.append(admission(run)).await.unwrap();
        let begun = vec![lease(1, "one", 60_000), outcome("a", 1), terminal(RunStatus::Failed)];
        one.append(commit("acme", run, 1, Writer::Lease(1), begun)).await.unwrap();
    }
    assert_eq!(acts.next().await.unwrap(), [], "who works on a run says nothing to others");
    for number in 1..40 {
        one.append(commit("acme", made::run(number), 4, Writer::Anyone, vec![rerun("a", 2)])).await.unwrap();
    }
    let mut heard = Vec::new();
    loop {
        let said = acts.next().await.unwrap();
        if said.is_empty() {
            break;
        }
        heard.extend(said);
    }
    assert_eq!(heard.len(), 39, "each once");
    let expected: BTreeSet<_> = (1..40).map(|number| (made::tenant("acme"), made::run(number))).collect();
    assert_eq!(heard.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[tokio::test]
async fn whoever_asks_again_and_again_is_given_all_that_can_go_on() {
    let Some(place) = Place::new().await else { return };
    let ledger = ledger(&Database::open(place.settings()).await.unwrap()).await;
    for number in 0..10 {
        let mut new = admission(made::run(number));
        let Body::Admitted(mut body) = admitted() else { panic!("an admission") };
        body.class = QueueClass::Bulk;
        new.bodies = vec![Body::Admitted(body)];
        ledger.append(new).await.unwrap();
    }
    let mut seen = Vec::new();
    for _ in 0..6 {
        let some = ledger.claimable(made::WRITTEN_UNIX_MS, 4).await.unwrap();
        assert!(some.iter().all(|claimable| claimable.class == QueueClass::Bulk && claimable.seq == 1));
        seen.push(some.iter().map(|claimable| claimable.run).collect::<Vec<_>>());
    }
    assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2, 4, 4, 2]);
    assert_eq!(seen[..3].concat().into_iter().collect::<BTreeSet<_>>().len(), 10);
    assert_eq!(seen[..3], seen[3..], "and anew from the beginning");
}

#[tokio::test]
async fn a_payload_is_read_where_it_was_not_kept_and_by_its_tenant_alone() {
    let Some(place) = Place::new().await else { return };
    let stores = [Database::open(place.settings()).await.unwrap(), Database::open(place.settings()).await.unwrap()];
    let [one, other] = stores.each_ref().map(PostgresPayloads::on);
    let acme = made::tenant("acme");
    for (length, kept) in
        [(0, "inline"), (4096, "inline"), (4097, "stored"), (8 << 20, "stored"), ((8 << 20) + 1, "cut")]
    {
        let bytes: Bytes = (0..length).map(|at: u32| at.to_le_bytes()[1]).collect::<Vec<u8>>().into();
        let payload = one.keep(acme.clone(), bytes.clone(), Bounds::default()).await.unwrap();
        assert_eq!((payload.bytes, payload.digest), (u64::from(length), *blake3::hash(&bytes).as_bytes()));
        let fetched = other.fetch(acme.clone(), &payload).await.unwrap();
        match payload.kept {
            Kept::Inline(_) => assert_eq!((kept, fetched), ("inline", Fetched::Whole(bytes))),
            Kept::Stored => {
                assert_eq!((kept, fetched), ("stored", Fetched::Whole(bytes)));
                let foreign = other.fetch(made::tenant("other"), &payload).await;
                assert_eq!(foreign, Ok(Fetched::Expired));
                assert_eq!(other.keep_longer(acme.clone(), &payload).await, Ok(true));
                assert_eq!(other.keep_longer(made::tenant("other"), &payload).await, Ok(false));
            }
            Kept::Truncated(_) => assert_eq!((kept, fetched), ("cut", Fetched::Truncated(bytes.slice(..4096)))),
            Kept::Beginning(_) | Kept::Expired => panic!("nothing is over age"),
        }
    }
    assert_eq!(place.run("SELECT count(*) FROM tidegate_blobs"), "2");
    assert_eq!(place.run("SELECT count(*) FROM tidegate_blob_parts"), "9");
}

#[tokio::test]
async fn a_payload_that_is_damaged_is_told_and_never_given_out() {
    let Some(place) = Place::new().await else { return };
    let store = PostgresPayloads::on(&Database::open(place.settings()).await.unwrap());
    let acme = made::tenant("acme");
    let payload = store.keep(acme.clone(), vec![1; 3 << 20].into(), Bounds::default()).await.unwrap();
    for sql in [
        "UPDATE tidegate_blob_parts SET body = overlay(body placing '\\x02'::bytea from 9) WHERE part = 1",
        "DELETE FROM tidegate_blob_parts WHERE part = 2",
        "UPDATE tidegate_blobs SET bytes = bytes + 1",
    ] {
        place.run(sql);
        let fetched = store.fetch(acme.clone(), &payload).await;
        assert!(matches!(fetched, Err(PayloadError::Damaged(_))), "{sql}: {fetched:?}");
    }
}

/// Many keep what one sweeps: what was kept last is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keeping_and_sweeping_at_once_lose_nothing() {
    let Some(place) = Place::new().await else { return };
    let database = Database::open(place.settings()).await.unwrap();
    let (store, ledger) = (PostgresPayloads::on(&database), Arc::new(ledger(&database).await));
    let acme = made::tenant("acme");
    let kept = |of: u8| store.keep(acme.clone(), vec![of; 5000].into(), Bounds::default());
    for of in 0..10 {
        kept(of).await.unwrap();
    }
    place.run("UPDATE tidegate_blobs SET kept_at = kept_at - 86400000::bigint * 20");
    let sweeping = {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            for _ in 0..20 {
                ledger.retain(&Ages::default()).await.unwrap();
            }
        })
    };
    for round in 0..10 {
        for of in 0..10_u8 {
            let payload = kept((of + round) % 10).await.unwrap();
            let fetched = store.fetch(acme.clone(), &payload).await.unwrap();
            assert!(matches!(fetched, Fetched::Whole(_)), "it was kept a moment ago");
        }
    }
    sweeping.await.unwrap();
}

#[tokio::test]
async fn an_event_is_kept_as_long_as_a_run_that_began_with_it_has_its_details() {
    let Some(place) = Place::new().await else { return };
    let databases = [Database::open(place.settings()).await.unwrap(), Database::open(place.settings()).await.unwrap()];
    let [events, elsewhere] = databases.each_ref().map(PostgresEvents::on);
    let ledger = ledger(&databases[0]).await;
    let acme = made::tenant("acme");
    // The one that `made` has runs begin with, and one that none does.
    let of = |random: [u8; 6]| EventFacts {
        id: EventId::new(made::WRITTEN_UNIX_MS, Slot::of("wh_1"), NodeId(7), random),
        endpoint: EndpointId::parse("wh_1").unwrap(),
        received_unix_ms: made::WRITTEN_UNIX_MS,
        headers: vec![("Content-Type".into(), "application/json".into())],
        body: vec![7; 3 << 20].into(),
    };
    let (begins, stray) = (of([0, 1, 2, 3, 4, 5]), of([9; 6]));
    for event in [&begins, &stray] {
        assert!(!events.keep_longer(&acme, event.id).await.unwrap());
        events.keep(&acme, event).await.unwrap();
        events.keep(&acme, event).await.unwrap();
        let read = elsewhere.read(&acme, event.id).await.unwrap();
        assert_eq!((read.body, read.headers), (event.body.clone(), event.headers.clone()));
        let foreign = elsewhere.read(&made::tenant("other"), event.id).await;
        assert!(matches!(foreign, Err(PortError::Gone(_))));
    }
    let run = made::run(1);
    ledger.append(admission(run)).await.unwrap();
    let older = || {
        place.run(
            "UPDATE tidegate_run_heads SET admitted_at = admitted_at - 86400000::bigint * 15, \
               over_at = CASE WHEN over_at > 0 THEN over_at - 86400000::bigint * 15 ELSE 0 END; \
             UPDATE tidegate_blobs SET kept_at = kept_at - 86400000::bigint * 15",
        );
    };
    older();
    ledger.retain(&Ages::default()).await.unwrap();
    assert!(elsewhere.read(&acme, begins.id).await.is_ok(), "its run is open");
    assert!(matches!(elsewhere.read(&acme, stray.id).await, Err(PortError::Gone(_))));
    let end = vec![lease(1, "one", 60_000), terminal(RunStatus::Succeeded)];
    ledger.append(commit("acme", run, 1, Writer::Lease(1), end)).await.unwrap();
    ledger.retain(&Ages::default()).await.unwrap();
    assert!(elsewhere.read(&acme, begins.id).await.is_ok(), "its run has its details");
    older();
    ledger.retain(&Ages::default()).await.unwrap();
    ledger.retain(&Ages::default()).await.unwrap();
    assert!(matches!(elsewhere.read(&acme, begins.id).await, Err(PortError::Gone(_))));
}

/// A run that goes on while its details are being dropped loses nothing.
#[tokio::test]
async fn a_re_run_that_comes_first_keeps_its_details() {
    let Some(place) = Place::new().await else { return };
    let database = Database::open(place.settings()).await.unwrap();
    let ledger = ledger(&database).await;
    let run = made::run(1);
    ledger.append(admission(run)).await.unwrap();
    let all = vec![lease(1, "one", 1000), outcome("a", 1), terminal(RunStatus::Failed)];
    ledger.append(commit("acme", run, 1, Writer::Lease(1), all)).await.unwrap();
    place.run("UPDATE tidegate_run_heads SET over_at = over_at - 86400000::bigint * 15");
    ledger.append(commit("acme", run, 4, Writer::Anyone, vec![rerun("a", 2)])).await.unwrap();
    assert_eq!(ledger.retain(&Ages::default()).await.unwrap().stripped, 0);
    let records = ledger.read(&made::tenant("acme"), run).await.unwrap();
    assert!(records.iter().filter_map(|record| record.body.payload()).all(|payload| payload.kept != Kept::Expired));
}

/// What does not read is told, and keeps nothing else from going.
#[tokio::test]
async fn a_commit_that_does_not_read_holds_nothing_up() {
    let Some(place) = Place::new().await else { return };
    let ledger = ledger(&Database::open(place.settings()).await.unwrap()).await;
    for number in 0..3 {
        let run = made::run(number);
        ledger.append(admission(run)).await.unwrap();
        let all = vec![lease(1, "one", 1000), outcome("a", 1), terminal(RunStatus::Failed)];
        ledger.append(commit("acme", run, 1, Writer::Lease(1), all)).await.unwrap();
    }
    let damaged = data_encoding::HEXLOWER.encode(made::run(0).as_bytes());
    place.run(&format!(
        "UPDATE tidegate_run_commits SET body = '\\x00' WHERE run = '\\x{damaged}' AND first_seq = 2; \
         UPDATE tidegate_run_heads SET over_at = over_at - 86400000::bigint * 15"
    ));
    let retained = ledger.retain(&Ages::default()).await.unwrap();
    assert_eq!((retained.stripped, retained.damaged), (3, 1));
    place.run("UPDATE tidegate_run_heads SET over_at = over_at - 86400000::bigint * 200");
    assert_eq!(ledger.retain(&Ages::default()).await.unwrap().dropped, 3);
    assert_eq!(place.run("SELECT count(*) FROM tidegate_run_commits"), "0");
    assert_eq!(place.run("SELECT count(*) FROM tidegate_run_heads"), "3");
}
