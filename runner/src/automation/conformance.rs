//! What every engine of definitions must do, as tests that run over any of them.
//!
//! An engine joins by implementing [`Subject`] and expanding
//! [`definitions_conformance!`](crate::definitions_conformance) in its tests.

use std::sync::Arc;

use async_trait::async_trait;
use domain::{ConnectionId, EndpointId, TenantId};

use super::store::{ConnectionState, DefinitionStore, StoreError, Stored};
use crate::ids::{AutomationId, Version};

/// An engine under test, empty at first, with a place to store.
#[async_trait]
pub trait Subject: Send {
    /// Opens what is stored. The caller has dropped the last.
    async fn open(&mut self) -> Arc<dyn DefinitionStore>;
}

/// Expands to one test per scenario over the engine that the expression makes.
#[macro_export]
macro_rules! definitions_conformance {
    (@each $subject:expr; $($scenario:ident,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                let mut subject = $subject;
                $crate::automation::conformance::$scenario(&mut subject).await;
            }
        )+
    };
    ($subject:expr) => {
        $crate::definitions_conformance! { @each $subject;
            a_version_is_kept_in_every_field,
            versions_follow_each_other,
            of_editors_that_race_one_makes_the_version,
            a_name_is_one_automation_s,
            of_authors_that_race_one_has_the_name,
            what_is_deleted_begins_nothing_and_stays,
            an_event_begins_what_listens_now,
            lists_come_in_portions,
            definitions_are_their_tenant_s_alone,
            a_connection_dies_once,
            a_connection_is_its_tenant_s_alone,
        }
    };
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).expect("scenarios use valid names")
}

fn endpoint(name: &str) -> EndpointId {
    EndpointId::parse(name).expect("scenarios use valid names")
}

fn connection(name: &str) -> ConnectionId {
    ConnectionId::parse(name).expect("scenarios use valid names")
}

fn id(number: u8) -> AutomationId {
    AutomationId::from_bytes([number; 16])
}

fn version(number: u32) -> Version {
    Version::new(number).expect("they count from 1")
}

/// A version of `acme`.
fn stored(number: u8, of: u32, name: &str, endpoints: &[&str]) -> Stored {
    let json = format!("{{\"name\":\"{name}\",\"n\":{of},\"text\":\"\u{e4}\u{1f600}\"}}");
    Stored {
        tenant: tenant("acme"),
        id: id(number),
        version: version(of),
        name: name.into(),
        digest: *blake3::hash(json.as_bytes()).as_bytes(),
        json: json.into(),
        endpoints: endpoints.iter().map(|name| endpoint(name)).collect(),
        is_enabled: true,
        is_deleted: false,
        at_unix_ms: 1_800_000_000_000 + u64::from(of),
        by: "ann@example.com".into(),
    }
}

async fn put(store: &dyn DefinitionStore, stored: Stored) {
    store.put(stored).await.expect("a healthy store keeps it");
}

async fn get(store: &dyn DefinitionStore, number: u8, of: Option<u32>) -> Option<Stored> {
    store.get(&tenant("acme"), id(number), of.map(version)).await.expect("a healthy store reads")
}

async fn by_name(store: &dyn DefinitionStore, name: &str) -> Option<AutomationId> {
    store.by_name(&tenant("acme"), name).await.expect("a healthy store reads")
}

async fn triggered(store: &dyn DefinitionStore, name: &str) -> Vec<(AutomationId, u32)> {
    let found = store.triggered_by(&tenant("acme"), &endpoint(name)).await.expect("a healthy store reads");
    let mut found: Vec<_> = found.into_iter().map(|(id, version)| (id, version.get())).collect();
    found.sort_unstable();
    found
}

pub async fn a_version_is_kept_in_every_field(subject: &mut dyn Subject) {
    let mut store = subject.open().await;
    let mut odd = stored(2, 1, "a name \u{e4}\u{200f} with 'quotes' and \\", &[]);
    odd.is_enabled = false;
    odd.json = "x".repeat(300_000).into();
    odd.digest = *blake3::hash(odd.json.as_bytes()).as_bytes();
    odd.at_unix_ms = 0;
    for all in [stored(1, 1, "one", &["wh_1", "wh_2"]), odd] {
        put(&*store, all.clone()).await;
        let number = all.id.as_bytes()[0];
        assert_eq!(get(&*store, number, Some(1)).await.as_ref(), Some(&all));
        drop(store);
        store = subject.open().await;
        assert_eq!(get(&*store, number, None).await, Some(all));
    }
    assert_eq!(get(&*store, 3, None).await, None);
    assert_eq!(get(&*store, 1, Some(2)).await, None);
}

pub async fn versions_follow_each_other(subject: &mut dyn Subject) {
    let store = subject.open().await;
    assert_eq!(store.put(stored(1, 2, "one", &[])).await, Err(StoreError::Conflict { last: 0 }));
    for of in 1..=3 {
        put(&*store, stored(1, of, "one", &[])).await;
    }
    for of in [1, 3, 5, u32::MAX] {
        assert_eq!(store.put(stored(1, of, "one", &[])).await, Err(StoreError::Conflict { last: 3 }));
    }
    for of in 1..=3 {
        assert_eq!(get(&*store, 1, Some(of)).await, Some(stored(1, of, "one", &[])), "every version stays");
    }
    assert_eq!(get(&*store, 1, None).await, Some(stored(1, 3, "one", &[])));
}

pub async fn of_editors_that_race_one_makes_the_version(subject: &mut dyn Subject) {
    let store = subject.open().await;
    for of in 1..=5 {
        let race = |editor: u32| {
            let mut edited = stored(1, of, "one", &[]);
            edited.by = format!("editor {editor}").into();
            let put = store.put(edited.clone());
            tokio::spawn(async move { put.await.map(|()| edited) })
        };
        let racers: Vec<_> = (0..4).map(race).collect();
        let mut won = Vec::new();
        for racer in racers {
            match racer.await.expect("no racer fails") {
                Ok(edited) => won.push(edited),
                Err(error) => assert_eq!(error, StoreError::Conflict { last: of }),
            }
        }
        assert_eq!(won.len(), 1);
        assert_eq!(get(&*store, 1, Some(of)).await, won.pop());
    }
}

pub async fn a_name_is_one_automation_s(subject: &mut dyn Subject) {
    let store = subject.open().await;
    put(&*store, stored(1, 1, "one", &[])).await;
    assert_eq!(store.put(stored(2, 1, "one", &[])).await, Err(StoreError::NameTaken));
    assert_eq!(get(&*store, 2, None).await, None);
    put(&*store, stored(2, 1, "two", &[])).await;
    assert_eq!(store.put(stored(2, 2, "one", &[])).await, Err(StoreError::NameTaken));
    assert_eq!((by_name(&*store, "one").await, by_name(&*store, "two").await), (Some(id(1)), Some(id(2))));
    // Renamed, it lets go of its name.
    put(&*store, stored(1, 2, "uno", &[])).await;
    assert_eq!((by_name(&*store, "one").await, by_name(&*store, "uno").await), (None, Some(id(1))));
    put(&*store, stored(2, 2, "one", &[])).await;
    // Names are each tenant's own, and not alike in another case.
    let mut foreign = stored(3, 1, "one", &[]);
    foreign.tenant = tenant("other");
    put(&*store, foreign).await;
    put(&*store, stored(4, 1, "One", &[])).await;
    assert_eq!(by_name(&*store, "one").await, Some(id(2)));
    // So does one that is deleted.
    store.delete(&tenant("acme"), id(2), "ann").await.expect("a healthy store deletes");
    assert_eq!(by_name(&*store, "one").await, None);
    put(&*store, stored(5, 1, "one", &[])).await;
    assert_eq!(by_name(&*store, "one").await, Some(id(5)));
}

pub async fn of_authors_that_race_one_has_the_name(subject: &mut dyn Subject) {
    let store = subject.open().await;
    let racers: Vec<_> = (1..=6).map(|number| tokio::spawn(store.put(stored(number, 1, "one", &[])))).collect();
    let mut won = 0;
    for racer in racers {
        match racer.await.expect("no racer fails") {
            Ok(()) => won += 1,
            Err(error) => assert_eq!(error, StoreError::NameTaken),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(store.list(&tenant("acme"), None, 10).await.map(|list| list.len()), Ok(1));
}

pub async fn what_is_deleted_begins_nothing_and_stays(subject: &mut dyn Subject) {
    let mut store = subject.open().await;
    put(&*store, stored(1, 1, "one", &["wh_1"])).await;
    put(&*store, stored(1, 2, "one", &["wh_1"])).await;
    assert_eq!(store.delete(&tenant("acme"), id(9), "ann").await, Ok(false));
    assert_eq!(store.delete(&tenant("acme"), id(1), "ann").await, Ok(true));
    for _ in 0..2 {
        assert_eq!(store.delete(&tenant("acme"), id(1), "ann").await, Ok(false));
        assert_eq!(triggered(&*store, "wh_1").await, []);
        assert_eq!(store.put(stored(1, 3, "one", &[])).await, Err(StoreError::Deleted));
        for of in [1, 2] {
            let kept = get(&*store, 1, Some(of)).await.expect("its versions stay");
            assert_eq!(kept, Stored { is_deleted: true, ..stored(1, of, "one", &["wh_1"]) });
        }
        let list = store.list(&tenant("acme"), None, 10).await.expect("a healthy store reads");
        assert_eq!(list.iter().map(|listed| (listed.id, listed.is_deleted)).collect::<Vec<_>>(), [(id(1), true)]);
        drop(store);
        store = subject.open().await;
    }
}

pub async fn an_event_begins_what_listens_now(subject: &mut dyn Subject) {
    let store = subject.open().await;
    put(&*store, stored(1, 1, "one", &["wh_1", "wh_2"])).await;
    put(&*store, stored(2, 1, "two", &["wh_1"])).await;
    let mut foreign = stored(3, 1, "three", &["wh_1"]);
    foreign.tenant = tenant("other");
    put(&*store, foreign).await;
    assert_eq!(triggered(&*store, "wh_1").await, [(id(1), 1), (id(2), 1)]);
    put(&*store, stored(1, 2, "one", &["wh_2", "wh_3"])).await;
    assert_eq!(triggered(&*store, "wh_1").await, [(id(2), 1)]);
    assert_eq!(triggered(&*store, "wh_2").await, [(id(1), 2)]);
    assert_eq!(triggered(&*store, "wh_3").await, [(id(1), 2)]);
    let mut disabled = stored(1, 3, "one", &["wh_2"]);
    disabled.is_enabled = false;
    put(&*store, disabled).await;
    assert_eq!(triggered(&*store, "wh_2").await, []);
    put(&*store, stored(1, 4, "one", &["wh_2"])).await;
    drop(store);
    assert_eq!(triggered(&*subject.open().await, "wh_2").await, [(id(1), 4)]);
}

pub async fn lists_come_in_portions(subject: &mut dyn Subject) {
    let store = subject.open().await;
    for number in (1..=7).rev() {
        put(&*store, stored(number, 1, &format!("name {number}"), &[])).await;
    }
    put(&*store, stored(4, 2, "renamed", &[])).await;
    let mut after = None;
    let mut listed = Vec::new();
    loop {
        let page = store.list(&tenant("acme"), after, 3).await.expect("a healthy store reads");
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        listed.extend(page);
    }
    assert_eq!(listed.iter().map(|listed| listed.id).collect::<Vec<_>>(), (1..=7).map(id).collect::<Vec<_>>());
    let renamed = &listed[3];
    assert_eq!((&*renamed.name, renamed.version, renamed.at_unix_ms), ("renamed", version(2), 1_800_000_000_002));
    assert!(renamed.is_enabled && !renamed.is_deleted);
}

pub async fn definitions_are_their_tenant_s_alone(subject: &mut dyn Subject) {
    let store = subject.open().await;
    put(&*store, stored(1, 1, "one", &["wh_1"])).await;
    let other = tenant("other");
    let nothing = |found: bool| assert!(!found, "it was shown to another tenant");
    nothing(store.get(&other, id(1), None).await.is_ok_and(|found| found.is_some()));
    nothing(store.get(&other, id(1), Some(version(1))).await.is_ok_and(|found| found.is_some()));
    nothing(store.by_name(&other, "one").await.is_ok_and(|found| found.is_some()));
    nothing(store.list(&other, None, 10).await.is_ok_and(|found| !found.is_empty()));
    nothing(store.triggered_by(&other, &endpoint("wh_1")).await.is_ok_and(|found| !found.is_empty()));
    nothing(store.delete(&other, id(1), "eve").await.is_ok_and(|is_deleted| is_deleted));
    let mut foreign = stored(1, 2, "mine", &["wh_1"]);
    foreign.tenant = other;
    assert!(store.put(foreign).await.is_err(), "it is not theirs to edit");
    assert_eq!(get(&*store, 1, None).await, Some(stored(1, 1, "one", &["wh_1"])));
    assert_eq!(triggered(&*store, "wh_1").await, [(id(1), 1)]);
}

fn dead(since_unix_ms: u64, reason: &str) -> ConnectionState {
    ConnectionState::NeedsReconnect { since_unix_ms, reason: reason.into() }
}

pub async fn a_connection_dies_once(subject: &mut dyn Subject) {
    let mut store = subject.open().await;
    let (acme, account) = (tenant("acme"), connection("conn_1"));
    assert_eq!(store.connection_state(&acme, &account).await, Ok(ConnectionState::Connected));
    assert_eq!(store.set_connection_state(&acme, &account, ConnectionState::Connected).await, Ok(false));
    let first = dead(7, "invalid_grant: \u{e4}\0 revoked");
    let set = |state: ConnectionState| tokio::spawn(store.set_connection_state(&acme, &account, state));
    let racers: Vec<_> = (0..6).map(|_| set(first.clone())).collect();
    let mut told = 0;
    for racer in racers {
        told += u32::from(racer.await.expect("no racer fails").expect("a healthy store keeps it"));
    }
    assert_eq!(told, 1, "one notifies");
    for _ in 0..2 {
        let again = store.set_connection_state(&acme, &account, dead(9, "again")).await;
        assert_eq!(again, Ok(false));
        assert_eq!(store.connection_state(&acme, &account).await, Ok(first.clone()), "what was told first");
        let needing = store.needing_reconnect(&acme).await;
        assert_eq!(needing, Ok(vec![(account.clone(), first.clone())]));
        drop(store);
        store = subject.open().await;
    }
    assert_eq!(store.set_connection_state(&acme, &account, ConnectionState::Connected).await, Ok(true));
    assert_eq!(store.connection_state(&acme, &account).await, Ok(ConnectionState::Connected));
    assert_eq!(store.needing_reconnect(&acme).await, Ok(Vec::new()));
    assert_eq!(store.set_connection_state(&acme, &account, dead(11, "later")).await, Ok(true));
    assert_eq!(store.connection_state(&acme, &account).await, Ok(dead(11, "later")));
}

pub async fn a_connection_is_its_tenant_s_alone(subject: &mut dyn Subject) {
    let store = subject.open().await;
    let account = connection("conn_1");
    let set = store.set_connection_state(&tenant("acme"), &account, dead(7, "revoked")).await;
    assert_eq!(set, Ok(true));
    let other = tenant("other");
    assert_eq!(store.connection_state(&other, &account).await, Ok(ConnectionState::Connected));
    assert_eq!(store.needing_reconnect(&other).await, Ok(Vec::new()));
    assert_eq!(store.set_connection_state(&other, &account, ConnectionState::Connected).await, Ok(false));
    assert_eq!(store.connection_state(&tenant("acme"), &account).await, Ok(dead(7, "revoked")));
}
