//! What opening and finding cost, in bytes that are read.

use super::*;

/// Opening reads a summary per sealed segment and no records; finding one event reads a few pages, however much the
/// log holds.
#[test]
fn opening_and_seeking_read_little_whatever_the_log_holds() {
    use std::sync::atomic::Ordering;
    const SEGMENT: u64 = 1 << 20;
    let cost = |events: u32| {
        let on_disk = OnDisk::new(1);
        let clock = clock();
        let mut settings = on_disk.settings();
        settings.segment_bytes = SEGMENT;
        let events = many(0, events);
        append_all(&open_with(&settings, &clock), &events);
        let counting = Arc::new(counting::Counting::default());
        settings.storage = Arc::<counting::Counting>::clone(&counting);
        let log = open_with(&settings, &clock);
        let segments = log.stat().lanes.iter().map(|lane| lane.segments).sum::<u64>();
        let read = |what: &std::sync::atomic::AtomicU64| what.swap(0, Ordering::SeqCst);
        let open = read(&counting.segment_bytes) + read(&counting.index_bytes);
        let wanted = &events[events.len() / 2];
        assert!(log.by_id(&Scope::Operator, wanted.id).unwrap().is_some());
        let seek = read(&counting.segment_bytes) + read(&counting.index_bytes);
        let filter = Filter {
            from_unix_ms: Some(wanted.received_unix_ms),
            until_unix_ms: Some(wanted.received_unix_ms + 20),
            ..of_endpoint(wanted.endpoint.as_str())
        };
        assert_eq!(ids(&log, Scope::Tenant(wanted.tenant.clone()), filter).len(), 3);
        let range = read(&counting.segment_bytes) + read(&counting.index_bytes);
        let newest = [
            (Scope::Tenant(tenant("acme")), Filter::default()),
            (Scope::Operator, of_endpoint("wh_3")),
            (Scope::Operator, Filter::default()),
        ]
        .map(|(scope, filter)| {
            let seen = drain(&mut *log.reader(scope.clone(), Start::Newest(50), filter.clone()).unwrap());
            assert!(super::wanted(&events, &scope, &filter).ends_with(&seen) && seen.len() == 50, "{}", seen.len());
            read(&counting.segment_bytes) + read(&counting.index_bytes)
        });
        (segments, open, seek, range, newest)
    };
    let (few, open_few, seek_few, range_few, newest_few) = cost(3_000);
    let (many, open_many, seek_many, range_many, newest_many) = cost(30_000);
    assert!(many >= few + 10, "{few} {many}");
    let per_segment = (open_many - open_few) / (many - few);
    assert!(per_segment < SEGMENT / 16, "opening reads {per_segment} bytes a segment");
    assert!(seek_many < 2 * seek_few.max(64 << 10), "{seek_few} {seek_many}");
    assert!(range_many < 2 * range_few.max(128 << 10), "{range_few} {range_many}");
    for (few, many) in newest_few.into_iter().zip(newest_many) {
        assert!(many < 2 * few.max(SEGMENT / 4), "{few} {many}");
    }
}

/// An event that is asked for again, or beside one that was asked for, is not read again.
#[test]
fn neighbours_are_read_together() {
    use std::sync::atomic::Ordering;
    let on_disk = OnDisk::new(1);
    let clock = clock();
    let mut settings = on_disk.settings();
    let events = many(0, 2_000);
    let counting = Arc::new(counting::Counting::default());
    settings.storage = Arc::<counting::Counting>::clone(&counting);
    let log = open_with(&settings, &clock);
    append_all(&log, &events);
    let written = log.stat().lanes.iter().map(|lane| lane.event_bytes).sum::<u64>();
    for _ in 0..2 {
        for event in &events {
            let found = log.by_id(&Scope::Operator, event.id).unwrap().unwrap();
            assert_eq!((found.id, &found.body), (event.id, &event.body));
        }
    }
    let batches = log.stat().lanes.iter().map(|lane| lane.batches).sum::<u64>();
    let read = counting.segment_bytes.load(Ordering::SeqCst);
    // Of each batch its first piece, and the whole of it; twice, if it did not stay meanwhile.
    assert!(read <= 2 * (batches * (32 << 10) + 2 * written), "{read} bytes for {written} in {batches} batches");
    let again = events[0].id;
    assert!(log.by_id(&Scope::Operator, again).unwrap().is_some());
    let read = counting.segment_bytes.swap(0, Ordering::SeqCst);
    assert!(log.by_id(&Scope::Operator, again).unwrap().is_some());
    assert_eq!(counting.segment_bytes.load(Ordering::SeqCst), 0, "after {read} bytes");
}

/// Storage that counts bytes that are read from segments.
mod counting {
    use std::io;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::segment::storage::{FileInfo, Lock, Space, StorageFile, WriteMode};
    use crate::segment::{RealStorage, Storage};

    #[derive(Debug, Default)]
    pub(super) struct Counting {
        pub(super) segment_bytes: Arc<AtomicU64>,
        pub(super) index_bytes: Arc<AtomicU64>,
    }

    #[derive(Debug)]
    struct CountingFile(Arc<dyn StorageFile>, Arc<AtomicU64>);

    impl StorageFile for CountingFile {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read_at(offset, into)?;
            self.1.fetch_add(read as u64, Ordering::SeqCst);
            Ok(read)
        }
        fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, bytes)
        }
        fn sync(&self) -> io::Result<()> {
            self.0.sync()
        }
        fn set_len(&self, bytes: u64) -> io::Result<()> {
            self.0.set_len(bytes)
        }
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }
    }

    impl Storage for Counting {
        fn create_directory(&self, directory: &Path) -> io::Result<()> {
            RealStorage.create_directory(directory)
        }
        fn list(&self, directory: &Path) -> io::Result<Vec<FileInfo>> {
            RealStorage.list(directory)
        }
        fn create_zeroed(&self, path: &Path, bytes: u64) -> io::Result<()> {
            RealStorage.create_zeroed(path, bytes)
        }
        fn open_write(&self, path: &Path, mode: WriteMode) -> io::Result<Arc<dyn StorageFile>> {
            RealStorage.open_write(path, mode)
        }
        fn open_read(&self, path: &Path, mode: WriteMode) -> io::Result<Arc<dyn StorageFile>> {
            let counter =
                if path.extension().is_some_and(|e| e == "idx") { &self.index_bytes } else { &self.segment_bytes };
            Ok(Arc::new(CountingFile(RealStorage.open_read(path, mode)?, Arc::clone(counter))))
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            RealStorage.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            RealStorage.remove(path)
        }
        fn sync_directory(&self, directory: &Path) -> io::Result<()> {
            RealStorage.sync_directory(directory)
        }
        fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
            RealStorage.read(path, bytes_max)
        }
        fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
            RealStorage.put(path, bytes)
        }
        fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<bool> {
            RealStorage.put_new(path, bytes)
        }
        fn lock_new(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
            RealStorage.lock_new(path)
        }
        fn is_locked(&self, path: &Path) -> io::Result<bool> {
            RealStorage.is_locked(path)
        }
        fn space(&self, directory: &Path) -> io::Result<Space> {
            RealStorage.space(directory)
        }
    }
}
