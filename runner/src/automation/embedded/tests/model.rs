//! Whatever is done, in whatever order, with whatever is lost that may be: as a model that is nothing but maps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Put { of: u8, number: u8, ahead: u32, name: u8, endpoint: u8, is_enabled: bool },
    Delete { of: u8, number: u8 },
    Connection { of: u8, number: u8, is_dead: bool },
    Reopen { loses_index: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u8..2, 0_u8..4, prop::sample::select(vec![1, 1, 1, 1, 0, 2]), 0_u8..5, 0_u8..3, any::<bool>())
            .prop_map(|(of, number, ahead, name, endpoint, is_enabled)| Step::Put { of, number, ahead, name, endpoint, is_enabled }),
        2 => (0_u8..2, 0_u8..4).prop_map(|(of, number)| Step::Delete { of, number }),
        2 => (0_u8..2, 0_u8..3, any::<bool>()).prop_map(|(of, number, is_dead)| Step::Connection { of, number, is_dead }),
        1 => any::<bool>().prop_map(|loses_index| Step::Reopen { loses_index }),
    ]
}

#[derive(Debug, Default)]
struct Model {
    versions: BTreeMap<(u8, u8), Vec<Stored>>,
    deleted: std::collections::BTreeSet<(u8, u8)>,
    dead: BTreeMap<(u8, u8), ConnectionState>,
}

const TENANTS: [&str; 2] = ["a", "ab"];

impl Model {
    fn put(&mut self, of: u8, stored: &Stored) -> Result<(), StoreError> {
        let key = (of, stored.id.as_bytes()[0]);
        let last = self.versions.get(&key).map_or(0, |versions| u32::try_from(versions.len()).unwrap());
        if self.deleted.contains(&key) {
            return Err(StoreError::Deleted);
        }
        if stored.version.get() != last + 1 {
            return Err(StoreError::Conflict { last });
        }
        let taken = self.live(of).any(|(number, head)| number != key.1 && head.name == stored.name);
        if taken {
            return Err(StoreError::NameTaken);
        }
        self.versions.entry(key).or_default().push(stored.clone());
        Ok(())
    }

    fn live(&self, of: u8) -> impl Iterator<Item = (u8, &Stored)> {
        self.versions
            .iter()
            .filter(move |(key, _)| key.0 == of && !self.deleted.contains(key))
            .map(|(key, versions)| (key.1, versions.last().unwrap()))
    }
}

async fn compare(store: &EmbeddedDefinitions, model: &Model) {
    for of in 0..2_u8 {
        let tenant = tenant(TENANTS[usize::from(of)]);
        let listed: Vec<(u8, u32, bool)> = store
            .list(&tenant, None, 100)
            .await
            .unwrap()
            .into_iter()
            .map(|line| (line.id.as_bytes()[0], line.version.get(), line.is_deleted))
            .collect();
        let wanted: Vec<(u8, u32, bool)> = model
            .versions
            .iter()
            .filter(|(key, _)| key.0 == of)
            .map(|(key, versions)| (key.1, u32::try_from(versions.len()).unwrap(), model.deleted.contains(key)))
            .collect();
        assert_eq!(listed, wanted);
        for ((_, number), versions) in model.versions.iter().filter(|(key, _)| key.0 == of) {
            for stored in versions {
                let is_deleted = model.deleted.contains(&(of, *number));
                let wanted = Stored { is_deleted, ..stored.clone() };
                assert_eq!(store.get(&tenant, id(*number), Some(stored.version)).await.unwrap(), Some(wanted));
            }
        }
        for name in 0..5 {
            let name = format!("name {name}");
            let wanted = model.live(of).find(|(_, head)| *head.name == *name).map(|(number, _)| id(number));
            assert_eq!(store.by_name(&tenant, &name).await.unwrap(), wanted);
        }
        for at in 0..3 {
            let at = endpoint(&format!("wh_{at}"));
            let wanted: Vec<(AutomationId, Version)> = model
                .live(of)
                .filter(|(_, head)| head.is_enabled && head.endpoints.contains(&at))
                .map(|(number, head)| (id(number), head.version))
                .collect();
            assert_eq!(store.triggered_by(&tenant, &at).await.unwrap(), wanted);
        }
        let wanted: Vec<(ConnectionId, ConnectionState)> = model
            .dead
            .iter()
            .filter(|(key, _)| key.0 == of)
            .map(|(key, state)| (connection(&format!("conn_{}", key.1)), state.clone()))
            .collect();
        assert_eq!(store.needing_reconnect(&tenant).await.unwrap(), wanted);
    }
}

async fn walk(steps: Vec<Step>) {
    let rig = Rig::in_memory();
    let mut store = rig.open();
    let mut model = Model::default();
    for (at, step) in (0_u64..).zip(steps) {
        match step {
            Step::Put { of, number, ahead, name, endpoint, is_enabled } => {
                let last =
                    model.versions.get(&(of, number)).map_or(0, |versions| u32::try_from(versions.len()).unwrap());
                let next = Version::new(last + ahead).unwrap_or(Version::MIN);
                let (name, endpoint) = (format!("name {name}"), format!("wh_{endpoint}"));
                let new = Stored {
                    is_enabled,
                    at_unix_ms: at,
                    ..stored(TENANTS[usize::from(of)], number, next.get(), &name, &[&endpoint])
                };
                assert_eq!(store.put(new.clone()).await, model.put(of, &new));
            }
            Step::Delete { of, number } => {
                let was_there = model.versions.contains_key(&(of, number)) && model.deleted.insert((of, number));
                assert_eq!(store.delete(&tenant(TENANTS[usize::from(of)]), id(number), "x").await, Ok(was_there));
            }
            Step::Connection { of, number, is_dead } => {
                let (tenant, connection) = (tenant(TENANTS[usize::from(of)]), connection(&format!("conn_{number}")));
                let state = if is_dead { needs_reconnect(at) } else { ConnectionState::Connected };
                let has_changed = if is_dead {
                    !model.dead.contains_key(&(of, number)) && model.dead.insert((of, number), state.clone()).is_none()
                } else {
                    model.dead.remove(&(of, number)).is_some()
                };
                assert_eq!(store.set_connection_state(&tenant, &connection, state).await, Ok(has_changed));
            }
            Step::Reopen { loses_index } => {
                drop(store);
                if loses_index {
                    std::fs::remove_dir_all(rig.index()).unwrap();
                }
                let (again, opened) = rig.try_open().unwrap();
                assert!(loses_index || opened == Opened::default(), "{opened:?}");
                store = again;
            }
        }
    }
    compare(&store, &model).await;
    drop(store);
    std::fs::remove_dir_all(rig.index()).unwrap();
    compare(&rig.open(), &model).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn the_store_is_as_the_model(steps in prop::collection::vec(step(), 1..60)) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(walk(steps));
    }
}
