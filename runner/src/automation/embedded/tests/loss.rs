//! What may be lost, what may not, and a disk that fails.

use std::path::Path;

use eventlog::segment::storage::{Faults, FaultyStorage};

use super::*;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(files(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all.sort();
    all
}

async fn fill(store: &EmbeddedDefinitions, numbers: std::ops::Range<u8>) {
    for number in numbers {
        store.put(stored("acme", number, 1, &format!("name {number}"), &["wh_a"])).await.unwrap();
    }
}

async fn count(store: &EmbeddedDefinitions) -> usize {
    let acme = tenant("acme");
    let listed = store.list(&acme, None, 1000).await.unwrap();
    for line in &listed {
        assert!(store.get(&acme, line.id, None).await.unwrap().is_some());
    }
    assert_eq!(store.triggered_by(&acme, &endpoint("wh_a")).await.unwrap().len(), listed.len());
    listed.len()
}

#[tokio::test]
async fn an_older_index_catches_up() {
    let rig = Rig::in_memory();
    fill(&rig.open(), 0..10).await;
    let older = rig.directory.path().join("older");
    copy(&rig.index(), &older);
    fill(&rig.open(), 10..30).await;
    std::fs::remove_dir_all(rig.index()).unwrap();
    std::fs::rename(&older, rig.index()).unwrap();
    let (store, opened) = rig.try_open().unwrap();
    assert_eq!(opened, Opened { is_rebuilt: false, read: 20 });
    assert_eq!(count(&store).await, 30);
    drop(store);
    // And one that is current reads nothing.
    assert_eq!(rig.try_open().unwrap().1, Opened::default());
}

#[tokio::test]
async fn an_index_of_another_journal_is_made_anew() {
    let (rig, other) = (Rig::in_memory(), Rig::in_memory());
    fill(&rig.open(), 0..10).await;
    // As long, and with other content at the same places.
    let store = other.open();
    for number in 0..10 {
        store.put(stored("acne", number, 1, &format!("name {number}"), &["wh_a"])).await.unwrap();
    }
    drop(store);
    std::fs::remove_dir_all(rig.index()).unwrap();
    copy(&other.index(), &rig.index());
    let (store, opened) = rig.try_open().unwrap();
    assert_eq!(opened, Opened { is_rebuilt: true, read: 10 });
    assert_eq!(count(&store).await, 10);
    assert!(store.list(&tenant("acne"), None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_damaged_index_is_made_anew() {
    let rig = Rig::in_memory();
    fill(&rig.open(), 0..10).await;
    let whole = rig.directory.path().join("whole");
    copy(&rig.index(), &whole);
    let names = files(&whole);
    assert!(names.len() > 5);
    for (at, name) in names.iter().enumerate() {
        std::fs::remove_dir_all(rig.index()).unwrap();
        copy(&whole, &rig.index());
        let damaged = rig.index().join(name.strip_prefix(&whole).unwrap());
        match at % 3 {
            0 => std::fs::remove_file(&damaged).unwrap(),
            1 => std::fs::write(&damaged, b"not what it was").unwrap(),
            _ => {
                let mut bytes = std::fs::read(&damaged).unwrap();
                let middle = bytes.len() / 2;
                if let Some(byte) = bytes.get_mut(middle) {
                    *byte ^= 0x55;
                }
                std::fs::write(&damaged, bytes).unwrap();
            }
        }
        let store = rig.open();
        let told = std::panic::AssertUnwindSafe(count(&store));
        let count = futures_util::FutureExt::catch_unwind(told).await;
        assert_eq!(count.ok(), Some(10), "{}", name.display());
    }
}

#[tokio::test]
async fn damage_of_the_journal_is_told_and_not_passed_over() {
    let memory = MemoryStorage::new();
    let rig = Rig::new(Arc::new(memory.clone()));
    fill(&rig.open(), 0..20).await;
    fill(&rig.open(), 20..40).await;
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "seg");
    let path = memory.files().into_iter().map(|(path, _)| path).filter(is_segment).min().unwrap();
    assert!(memory.tamper(&path, |bytes| bytes[4096 * 3 + 100] ^= 1));
    // Nothing of it is needed while the index is current.
    let store = rig.open();
    assert_eq!(count(&store).await, 40);
    drop(store);
    std::fs::remove_dir_all(rig.index()).unwrap();
    let error = rig.try_open().map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Read(segment::ReadError::Damaged(_))), "{error}");
}

/// Whoever was told that a version is stored was right, through failing writes and power cuts; and whoever was not knows
/// nothing: then it is there whole, or not at all.
#[tokio::test]
async fn what_was_acknowledged_is_there() {
    let mut failed = 0;
    for seed in 0..8 {
        let memory = MemoryStorage::new();
        let storage = FaultyStorage::new(memory.clone(), seed, Faults::default());
        let mut rig = Rig::new(Arc::new(storage.clone()));
        let store = rig.open();
        storage.set_faults(Faults { write_fails: 5, sync_fails: 6, create_fails: 7, ..Faults::default() });
        let acme = tenant("acme");
        let mut told = [0_u32; 10];
        for round in 0..12 {
            for (number, last) in (0_u8..).zip(&mut told) {
                let next = stored("acme", number, *last + 1, &format!("{number}.{round}"), &["wh_a"]);
                match store.put(next).await {
                    Ok(()) => *last += 1,
                    // It was there after all.
                    Err(StoreError::Conflict { last: there }) => {
                        assert_eq!(there, *last + 1, "seed {seed}");
                        *last = there;
                    }
                    Err(StoreError::Unavailable(_)) => {}
                    Err(other) => panic!("{other}"),
                }
                let there = store.get(&acme, id(number), None).await.unwrap();
                assert!(there.map_or(0, |there| there.version.get()) >= *last, "seed {seed}");
            }
        }
        failed += storage.failed();
        storage.set_faults(Faults::default());
        drop(store);
        memory.power_cut(seed);
        rig.settings.storage = Arc::new(memory.clone());
        if seed % 2 == 0 {
            std::fs::remove_dir_all(rig.index()).unwrap();
        }
        let store = rig.open();
        for (number, last) in (0_u8..).zip(told) {
            let there = store.get(&acme, id(number), None).await.unwrap().map_or(0, |there| there.version.get());
            assert!(there == last || there == last + 1, "seed {seed}: {there} of {last}");
            for at in 1..=there {
                assert!(store.get(&acme, id(number), Some(version(at))).await.unwrap().is_some());
            }
        }
    }
    assert!(failed > 50, "the disk did fail: {failed}");
}

#[tokio::test]
async fn a_full_disk_refuses_and_goes_on_when_there_is_room() {
    let memory = MemoryStorage::new();
    let rig = Rig::new(Arc::new(memory.clone()));
    let store = rig.open();
    fill(&store, 0..1).await;
    memory.set_capacity(Some(2 << 20));
    let mut refused = 0;
    let mut last = 1;
    while refused == 0 {
        let mut large = stored("acme", 0, last + 1, "large", &["wh_a"]);
        large.json = format!("\"{}\"", "x".repeat(200_000)).into();
        large.digest = *blake3::hash(large.json.as_bytes()).as_bytes();
        match store.put(large).await {
            Ok(()) => last += 1,
            Err(StoreError::Unavailable(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        assert!(last < 100, "the disk is never full");
    }
    memory.set_capacity(None);
    for _ in 0..1000 {
        rig.clock.advance(Duration::from_secs(2));
        if store.put(stored("acme", 1, 1, "small", &["wh_a"])).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it does not go on");
}
