//! A log that is only read, beside the process that writes it or without one.

use super::*;

#[test]
fn a_reader_beside_a_running_process_sees_what_is_durable_and_changes_nothing() {
    let on_disk = OnDisk::new(2);
    let clock = clock();
    let log = on_disk.open(&clock);
    let events = many(0, 600);
    append_all(&log, &events);
    let view = on_disk.read_only();
    let seen = ids(&view, Scope::Operator, Filter::default());
    let all: Vec<_> = events.iter().map(|event| event.id).collect();
    // At most the last batch of each lane may be missing.
    assert!(seen.len() > all.len() / 2 && seen.iter().all(|id| all.contains(id)), "{}", seen.len());
    let one = view.by_id(&Scope::Tenant(tenant("acme")), events[0].id).unwrap();
    assert_eq!(one.map(|event| event.id), Some(events[0].id));
    assert!(matches!(view.append(events[0].clone()).wait(), Err(AppendError::UnknownRetention { .. })));
    assert_eq!(view.trim(), Err(TrimError::ReadOnly));
    assert!(view.groups().commit("x", &Cursor::default()).is_err());
    // The process goes on as if nothing had been.
    append_all(&log, &many(600, 700));
    drop((view, log));

    let before = snapshot(on_disk.directory.path());
    let view = on_disk.read_only();
    assert_eq!(ids(&view, Scope::Operator, Filter::default()).len(), 700);
    assert_indexes_agree(&view, &many(0, 700));
    // Places are the same ones that the process gives.
    let cursor = {
        let mut reader = view.reader(Scope::Operator, Start::Earliest, Filter::default()).unwrap();
        for _ in 0..350 {
            reader.next().unwrap();
        }
        reader.cursor()
    };
    assert!(snapshot(on_disk.directory.path()) == before, "reading changed something");
    let log = on_disk.open(&clock);
    let mut reader = log.reader(Scope::Operator, Start::At(cursor), Filter::default()).unwrap();
    let mut rest = 0;
    while reader.next().unwrap().is_some() {
        rest += 1;
    }
    assert_eq!(rest, 350);
}

/// Names and contents of everything below.
fn snapshot(directory: &Path) -> Vec<(PathBuf, blake3::Hash)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(snapshot(&path));
        } else {
            found.push((path.clone(), blake3::hash(&std::fs::read(&path).unwrap())));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[test]
fn a_directory_that_is_not_there_is_no_empty_log() {
    let on_disk = OnDisk::new(1);
    let missing = on_disk.directory.path().join("nowhere");
    assert!(EmbeddedLog::open_read_only(&missing, NODE, clock()).is_err());
    assert!(ids(&on_disk.read_only(), Scope::Operator, Filter::default()).is_empty());
}
