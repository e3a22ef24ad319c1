//! Definitions in a directory: what every engine does, and what only this one can get wrong.

mod figures;
mod loss;
mod model;

use std::time::Duration;

use domain::ManualClock;
use eventlog::segment::storage::MemoryStorage;
use tempfile::TempDir;

use super::*;

struct Rig {
    directory: TempDir,
    clock: Arc<ManualClock>,
    settings: Settings,
}

impl Rig {
    fn new(storage: Arc<dyn Storage>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            segment_bytes: 1 << 20,
            reserve_bytes: 0,
            index_cache_bytes: 1 << 20,
            heal: Backoff { first: Duration::from_millis(1), max: Duration::from_millis(4) },
            storage,
            ..Settings::new(directory.path())
        };
        Self { directory, clock: ManualClock::at_unix_ms(1_796_082_654_000), settings }
    }

    fn in_memory() -> Self {
        Self::new(Arc::new(MemoryStorage::new()))
    }

    fn try_open(&self) -> Result<(EmbeddedDefinitions, Opened), OpenError> {
        EmbeddedDefinitions::open(&self.settings, Arc::<ManualClock>::clone(&self.clock))
    }

    fn open(&self) -> EmbeddedDefinitions {
        self.try_open().unwrap().0
    }

    fn index(&self) -> PathBuf {
        self.directory.path().join("index")
    }
}

/// What every engine does: each opening is of what the last one left.
struct Conforming {
    rig: Rig,
    loses_index: bool,
}

#[async_trait::async_trait]
impl crate::automation::conformance::Subject for Conforming {
    async fn open(&mut self) -> Arc<dyn DefinitionStore> {
        if self.loses_index && self.rig.index().exists() {
            std::fs::remove_dir_all(self.rig.index()).unwrap();
        }
        Arc::new(self.rig.open())
    }
}

mod conforming {
    use super::*;

    crate::definitions_conformance! { Conforming { rig: Rig::in_memory(), loses_index: false } }
}

mod conforming_without_its_index {
    use super::*;

    crate::definitions_conformance! { Conforming { rig: Rig::in_memory(), loses_index: true } }
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn id(number: u8) -> AutomationId {
    AutomationId::from_bytes([number; 16])
}

fn endpoint(name: &str) -> EndpointId {
    EndpointId::parse(name).unwrap()
}

fn connection(name: &str) -> ConnectionId {
    ConnectionId::parse(name).unwrap()
}

fn version(number: u32) -> Version {
    Version::new(number).unwrap()
}

fn stored(of: &str, number: u8, at: u32, name: &str, endpoints: &[&str]) -> Stored {
    let json = format!("{{\"name\":\"{name}\",\"nodes\":[{{\"id\":\"a\",\"type\":\"transform\",\"value\":{at}}}]}}");
    Stored {
        tenant: tenant(of),
        id: id(number),
        version: version(at),
        name: name.into(),
        digest: *blake3::hash(json.as_bytes()).as_bytes(),
        json: json.into(),
        endpoints: endpoints.iter().map(|name| endpoint(name)).collect(),
        is_enabled: true,
        is_deleted: false,
        at_unix_ms: u64::from(at),
        by: "ada".into(),
    }
}

fn needs_reconnect(since_unix_ms: u64) -> ConnectionState {
    ConnectionState::NeedsReconnect { since_unix_ms, reason: "token revoked".into() }
}

#[tokio::test]
async fn versions_are_kept_and_found() {
    let rig = Rig::in_memory();
    let store = rig.open();
    let acme = tenant("acme");
    store.put(stored("acme", 1, 1, "one", &["wh_a", "wh_b"])).await.unwrap();
    store.put(stored("acme", 2, 1, "two", &["wh_a"])).await.unwrap();
    store.put(stored("acme", 1, 2, "uno", &["wh_b"])).await.unwrap();
    assert_eq!(store.get(&acme, id(1), None).await.unwrap(), Some(stored("acme", 1, 2, "uno", &["wh_b"])));
    assert_eq!(
        store.get(&acme, id(1), Some(version(1))).await.unwrap(),
        Some(stored("acme", 1, 1, "one", &["wh_a", "wh_b"]))
    );
    assert_eq!(store.get(&acme, id(1), Some(version(3))).await.unwrap(), None);
    assert_eq!(store.get(&acme, id(3), None).await.unwrap(), None);
    assert_eq!(store.by_name(&acme, "uno").await.unwrap(), Some(id(1)));
    assert_eq!(store.by_name(&acme, "one").await.unwrap(), None);
    assert_eq!(store.triggered_by(&acme, &endpoint("wh_a")).await.unwrap(), [(id(2), version(1))]);
    assert_eq!(store.triggered_by(&acme, &endpoint("wh_b")).await.unwrap(), [(id(1), version(2))]);
    let listed = store.list(&acme, None, 10).await.unwrap();
    assert_eq!(
        listed.iter().map(|line| (line.id, &*line.name, line.version.get())).collect::<Vec<_>>(),
        [(id(1), "uno", 2), (id(2), "two", 1)]
    );
    assert_eq!(store.list(&acme, Some(id(1)), 10).await.unwrap(), listed[1..]);
    assert_eq!(store.list(&acme, None, 1).await.unwrap(), listed[..1]);
    assert!(store.list(&acme, Some(id(2)), 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_does_not_follow_is_refused() {
    let rig = Rig::in_memory();
    let store = rig.open();
    assert_eq!(store.put(stored("acme", 1, 2, "one", &[])).await, Err(StoreError::Conflict { last: 0 }));
    store.put(stored("acme", 1, 1, "one", &[])).await.unwrap();
    for at in [1, 3, u32::MAX] {
        assert_eq!(store.put(stored("acme", 1, at, "one", &[])).await, Err(StoreError::Conflict { last: 1 }));
    }
    assert_eq!(store.put(stored("acme", 2, 1, "one", &[])).await, Err(StoreError::NameTaken));
    store.put(stored("acme", 2, 1, "two", &[])).await.unwrap();
    assert_eq!(store.put(stored("acme", 2, 2, "one", &[])).await, Err(StoreError::NameTaken));
    let mut forged = stored("acme", 3, 1, "three", &[]);
    forged.digest = [0; 32];
    assert!(matches!(store.put(forged).await, Err(StoreError::Damaged(_))));
    assert_eq!(store.list(&tenant("acme"), None, 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn what_is_deleted_begins_nothing_and_keeps_its_history() {
    let rig = Rig::in_memory();
    let store = rig.open();
    let acme = tenant("acme");
    store.put(stored("acme", 1, 1, "one", &["wh_a"])).await.unwrap();
    let disabled = Stored { is_enabled: false, ..stored("acme", 2, 1, "two", &["wh_a"]) };
    store.put(disabled).await.unwrap();
    assert_eq!(store.triggered_by(&acme, &endpoint("wh_a")).await.unwrap(), [(id(1), version(1))]);
    assert!(store.delete(&acme, id(1), "bob").await.unwrap());
    assert!(!store.delete(&acme, id(1), "bob").await.unwrap());
    assert!(!store.delete(&acme, id(9), "bob").await.unwrap());
    assert!(store.triggered_by(&acme, &endpoint("wh_a")).await.unwrap().is_empty());
    assert!(store.get(&acme, id(1), None).await.unwrap().unwrap().is_deleted);
    assert!(store.get(&acme, id(1), Some(version(1))).await.unwrap().unwrap().is_deleted);
    assert!(store.list(&acme, None, 10).await.unwrap()[0].is_deleted);
    assert_eq!(store.put(stored("acme", 1, 2, "one", &[])).await, Err(StoreError::Deleted));
    // Its name is free again, and enabling the other one makes it begin.
    store.put(stored("acme", 3, 1, "one", &[])).await.unwrap();
    assert_eq!(store.by_name(&acme, "one").await.unwrap(), Some(id(3)));
    store.put(stored("acme", 2, 2, "two", &["wh_a"])).await.unwrap();
    assert_eq!(store.triggered_by(&acme, &endpoint("wh_a")).await.unwrap(), [(id(2), version(2))]);
}

#[tokio::test]
async fn nobody_sees_or_touches_anothers() {
    let rig = Rig::in_memory();
    let store = rig.open();
    // The same ids, names and endpoints; and names of tenants that are beginnings of each other.
    for of in ["a", "ab", "b"] {
        store.put(stored(of, 1, 1, "one", &["wh_a"])).await.unwrap();
    }
    store.put(stored("ab", 1, 2, "one", &["wh_a"])).await.unwrap();
    assert!(store.delete(&tenant("b"), id(1), "x").await.unwrap());
    let a = tenant("a");
    assert_eq!(store.get(&a, id(1), None).await.unwrap(), Some(stored("a", 1, 1, "one", &["wh_a"])));
    assert_eq!(store.list(&a, None, 10).await.unwrap().len(), 1);
    assert_eq!(store.triggered_by(&a, &endpoint("wh_a")).await.unwrap(), [(id(1), version(1))]);
    assert!(store.set_connection_state(&tenant("ab"), &connection("conn_x"), needs_reconnect(1)).await.unwrap());
    assert_eq!(store.connection_state(&a, &connection("conn_x")).await.unwrap(), ConnectionState::Connected);
    assert!(store.needing_reconnect(&a).await.unwrap().is_empty());
    assert!(store.get(&tenant("c"), id(1), None).await.unwrap().is_none());
}

/// A row that is another tenant's under this tenant's key, as a fault of ours would make it.
#[tokio::test]
async fn a_row_of_another_tenants_is_told_loudly() {
    let rig = Rig::in_memory();
    let store = rig.open();
    store.put(stored("a", 1, 1, "one", &["wh_a"])).await.unwrap();
    let index = &store.index;
    let (a, b) = (tenant("a"), tenant("b"));
    let move_row = |keyspace: &fjall::Keyspace, from: Vec<u8>, to: Vec<u8>| {
        keyspace.insert(to, keyspace.get(from).unwrap().unwrap()).unwrap();
    };
    move_row(&index.heads, keys::automation(&a, id(1)), keys::automation(&b, id(1)));
    assert_eq!(store.get(&b, id(1), None).await, Err(StoreError::Tenant));
    assert_eq!(store.list(&b, None, 10).await, Err(StoreError::Tenant));
    move_row(&index.names, keys::name(&a, "one"), keys::name(&b, "one"));
    assert_eq!(store.by_name(&b, "one").await, Err(StoreError::Tenant));
    move_row(&index.triggers, keys::trigger(&a, "wh_a", id(1)), keys::trigger(&b, "wh_a", id(1)));
    assert_eq!(store.triggered_by(&b, &endpoint("wh_a")).await, Err(StoreError::Tenant));
    store.set_connection_state(&a, &connection("conn_x"), needs_reconnect(1)).await.unwrap();
    let x = connection("conn_x");
    move_row(&index.connections, keys::connection(&a, &x), keys::connection(&b, &x));
    assert_eq!(store.connection_state(&b, &x).await, Err(StoreError::Tenant));
    assert_eq!(store.needing_reconnect(&b).await, Err(StoreError::Tenant));
    // A sound head before a version that is another's.
    store.put(stored("c", 1, 1, "one", &[])).await.unwrap();
    move_row(&index.versions, keys::version(&a, id(1), version(1)), keys::version(&tenant("c"), id(1), version(1)));
    assert_eq!(store.get(&tenant("c"), id(1), None).await, Err(StoreError::Tenant));
}

#[tokio::test]
async fn only_who_finds_a_connection_dead_first_is_told_so() {
    let rig = Rig::in_memory();
    let store = Arc::new(rig.open());
    let (acme, conn) = (tenant("acme"), connection("conn_x"));
    assert_eq!(store.connection_state(&acme, &conn).await.unwrap(), ConnectionState::Connected);
    assert!(!store.set_connection_state(&acme, &conn, ConnectionState::Connected).await.unwrap());
    let racing: Vec<_> =
        (0..20).map(|at| tokio::spawn(store.set_connection_state(&acme, &conn, needs_reconnect(at)))).collect();
    let mut told = 0;
    for answer in racing {
        told += u32::from(answer.await.unwrap().unwrap());
    }
    assert_eq!(told, 1);
    assert!(matches!(store.connection_state(&acme, &conn).await.unwrap(), ConnectionState::NeedsReconnect { .. }));
    assert_eq!(store.needing_reconnect(&acme).await.unwrap().len(), 1);
    assert!(store.set_connection_state(&acme, &conn, ConnectionState::Connected).await.unwrap());
    assert!(store.needing_reconnect(&acme).await.unwrap().is_empty());
    // What a provider says is cut to what anybody reads.
    let long = ConnectionState::NeedsReconnect { since_unix_ms: 1, reason: "é".repeat(10_000).into() };
    assert!(store.set_connection_state(&acme, &conn, long).await.unwrap());
    match store.connection_state(&acme, &conn).await.unwrap() {
        ConnectionState::NeedsReconnect { reason, .. } => assert_eq!(reason.len(), 1024),
        ConnectionState::Connected => panic!("it is not"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_those_who_edit_the_same_version_one_goes_on() {
    let rig = Rig::in_memory();
    let store = Arc::new(rig.open());
    for number in 1..20 {
        let racing: Vec<_> = (0..8)
            .map(|by: u64| {
                let mine = Stored { at_unix_ms: by, ..stored("acme", 1, number, "one", &[]) };
                let store = Arc::clone(&store);
                tokio::spawn(async move { store.put(mine).await })
            })
            .collect();
        let mut went_on = 0;
        for answer in racing {
            match answer.await.unwrap() {
                Ok(()) => went_on += 1,
                Err(error) => assert_eq!(error, StoreError::Conflict { last: number }),
            }
        }
        assert_eq!(went_on, 1);
    }
    // Names as well: two automations that want the same one.
    let racing: Vec<_> = (2..10).map(|number| tokio::spawn(store.put(stored("acme", number, 1, "two", &[])))).collect();
    let mut went_on = 0;
    for answer in racing {
        went_on += usize::from(answer.await.unwrap().is_ok());
    }
    assert_eq!(went_on, 1);
}

#[tokio::test]
async fn a_second_process_is_told_so() {
    let rig = Rig::in_memory();
    let store = rig.open();
    assert!(matches!(rig.try_open(), Err(OpenError::Locked(_))));
    drop(store);
    rig.open();
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_the_rest_goes_on() {
    let rig = Rig::in_memory();
    let store = rig.open();
    let mut large = stored("acme", 1, 1, "one", &[]);
    large.json = "x".repeat(2 << 20).into();
    large.digest = *blake3::hash(large.json.as_bytes()).as_bytes();
    assert!(matches!(store.put(large).await, Err(StoreError::Unavailable(_))));
    store.put(stored("acme", 1, 1, "one", &[])).await.unwrap();
}
