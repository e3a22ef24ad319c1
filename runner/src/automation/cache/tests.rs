use std::sync::atomic::{AtomicUsize, Ordering};

use domain::{ConnectionId, EndpointId};

use super::super::store::{ConnectionState, Listed, Stored};
use super::*;
use crate::ledger::BoxFuture;

/// Has every version that is asked for, and counts how often it was.
#[derive(Debug, Default)]
struct Everything {
    asked: AtomicUsize,
    is_anothers: bool,
    is_broken: bool,
}

impl DefinitionStore for Everything {
    fn get(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Option<Version>,
    ) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let value = if self.is_broken { "${nope}" } else { "x" };
        let json =
            format!("{{\"name\":\"n\",\"nodes\":[{{\"id\":\"a\",\"type\":\"transform\",\"value\":\"{value}\"}}]}}");
        let stored = Stored {
            tenant: if self.is_anothers { TenantId::parse("other").unwrap() } else { tenant.clone() },
            id,
            version: version.unwrap(),
            name: "n".into(),
            digest: *blake3::hash(json.as_bytes()).as_bytes(),
            json: json.into(),
            endpoints: Box::default(),
            is_enabled: true,
            is_deleted: false,
            at_unix_ms: 0,
            by: "ada".into(),
        };
        let is_there = id.as_bytes()[0] != 0;
        Box::pin(async move { Ok(is_there.then_some(stored)) })
    }

    fn put(&self, _: Stored) -> BoxFuture<'static, Result<(), StoreError>> {
        unreachable!("nothing is stored here")
    }

    fn delete(&self, _: &TenantId, _: AutomationId, _: &str) -> BoxFuture<'static, Result<bool, StoreError>> {
        unreachable!("nothing is stored here")
    }

    fn by_name(&self, _: &TenantId, _: &str) -> BoxFuture<'static, Result<Option<AutomationId>, StoreError>> {
        unreachable!("nobody asks")
    }

    fn list(
        &self,
        _: &TenantId,
        _: Option<AutomationId>,
        _: usize,
    ) -> BoxFuture<'static, Result<Vec<Listed>, StoreError>> {
        unreachable!("nobody asks")
    }

    fn triggered_by(
        &self,
        _: &TenantId,
        _: &EndpointId,
    ) -> BoxFuture<'static, Result<Vec<(AutomationId, Version)>, StoreError>> {
        unreachable!("nobody asks")
    }

    fn connection_state(
        &self,
        _: &TenantId,
        _: &ConnectionId,
    ) -> BoxFuture<'static, Result<ConnectionState, StoreError>> {
        unreachable!("nobody asks")
    }

    fn set_connection_state(
        &self,
        _: &TenantId,
        _: &ConnectionId,
        _: ConnectionState,
    ) -> BoxFuture<'static, Result<bool, StoreError>> {
        unreachable!("nothing is stored here")
    }

    fn needing_reconnect(
        &self,
        _: &TenantId,
    ) -> BoxFuture<'static, Result<Vec<(ConnectionId, ConnectionState)>, StoreError>> {
        unreachable!("nobody asks")
    }
}

fn id(number: u8) -> AutomationId {
    AutomationId::from_bytes([number; 16])
}

#[tokio::test]
async fn what_was_used_last_stays() {
    let store = Arc::new(Everything::default());
    let bounds = Bounds { automations_max: 3, json_bytes_max: 1 << 20 };
    let cache = CompiledAutomations::new(Arc::<Everything>::clone(&store), bounds);
    let (acme, other) = (TenantId::parse("acme").unwrap(), TenantId::parse("other").unwrap());
    let asked = |cache: &CompiledAutomations| {
        let kept = cache.kept();
        assert!(kept.by_key.len() <= 3 && kept.by_key.len() == kept.by_use.len());
        store.asked.load(Ordering::Relaxed)
    };
    for number in [1, 2, 3, 1, 1, 2] {
        assert_eq!(cache.load(&acme, id(number), Version::MIN).await.unwrap().id, id(number));
    }
    assert_eq!(asked(&cache), 3);
    // 3 was used longest ago.
    cache.load(&acme, id(4), Version::MIN).await.unwrap();
    cache.load(&acme, id(1), Version::MIN).await.unwrap();
    assert_eq!(asked(&cache), 4);
    cache.load(&acme, id(3), Version::MIN).await.unwrap();
    assert_eq!(asked(&cache), 5);
    // Another tenant's of the same id, and another version, are others.
    assert_eq!(cache.load(&other, id(3), Version::MIN).await.unwrap().tenant, other);
    cache.load(&acme, id(3), Version::new(2).unwrap()).await.unwrap();
    assert_eq!(asked(&cache), 7);
    assert_eq!(cache.load(&acme, id(0), Version::MIN).await.unwrap_err(), LoadError::NotThere);
}

#[tokio::test]
async fn what_is_kept_is_bounded_in_bytes() {
    let store = Arc::new(Everything::default());
    let one = store.get(&TenantId::parse("a").unwrap(), id(1), Some(Version::MIN)).await.unwrap().unwrap().json.len();
    let bounds = Bounds { automations_max: 100, json_bytes_max: 2 * one };
    let cache = CompiledAutomations::new(store, bounds);
    for number in 1..20 {
        cache.load(&TenantId::parse("a").unwrap(), id(number), Version::MIN).await.unwrap();
        assert!(cache.kept().json_bytes <= 2 * one);
    }
    assert_eq!(cache.kept().by_key.len(), 2);
}

#[tokio::test]
async fn what_is_not_sound_is_not_kept() {
    let acme = TenantId::parse("acme").unwrap();
    let load = |store: Everything| {
        let cache = CompiledAutomations::new(Arc::new(store), Bounds::default());
        let acme = acme.clone();
        async move {
            let loaded = cache.load(&acme, id(1), Version::MIN).await.unwrap_err();
            assert!(cache.kept().by_key.is_empty());
            loaded
        }
    };
    let anothers = Everything { is_anothers: true, ..Everything::default() };
    assert_eq!(load(anothers).await, LoadError::Store(StoreError::Tenant));
    let broken = Everything { is_broken: true, ..Everything::default() };
    assert!(matches!(load(broken).await, LoadError::Faults(_)));
}
