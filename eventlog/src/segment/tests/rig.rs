//! What the tests of this layer have in common.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::{ManualClock, SystemClock};

use crate::segment::storage::{MemoryStorage, Storage};
use crate::segment::{
    Append, AppendError, Appended, Backoff, Entry, Journal, Options, Position, ReadError, Record, Recovery, Rejected,
};

pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;

pub(crate) fn directory() -> PathBuf {
    PathBuf::from("/log")
}

pub(crate) fn options(storage: Arc<dyn Storage>) -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        reserve_bytes: 0,
        batch_bytes_max: 16 << 10,
        heal: Backoff { first: Duration::from_millis(1), max: Duration::from_millis(4) },
        storage,
        ..Options::new(directory(), ManualClock::at_unix_ms(1_000))
    }
}

pub(crate) fn on_disk(directory: &std::path::Path) -> Options {
    Options { segment_bytes: SEGMENT_BYTES, reserve_bytes: 0, ..Options::new(directory, Arc::new(SystemClock::new())) }
}

pub(crate) fn open(storage: &MemoryStorage) -> (Journal, Recovery) {
    Journal::open(options(Arc::new(storage.clone()))).unwrap()
}

pub(crate) fn entry(stream: u64, time_unix_ms: u64, payload: impl Into<Vec<u8>>) -> Entry {
    Entry { stream, time_unix_ms, kind: 7, payload: payload.into().into(), check: None }
}

pub(crate) fn append(journal: &Journal, payload: impl Into<Vec<u8>>) -> Appended {
    journal.append(entry(1, 1_000, payload)).wait().unwrap()
}

pub(crate) fn wait_all(appends: Vec<Append>) -> Vec<Result<Appended, AppendError>> {
    appends.into_iter().map(Append::wait).collect()
}

/// Appends so that all of them are in one batch: they gather behind one that holds the writer up and is rejected.
pub(crate) fn append_together(journal: &Journal, payloads: impl IntoIterator<Item = Vec<u8>>) -> Vec<Appended> {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let mut plug = entry(0, 0, "plug");
    plug.check = Some(Box::new(move |_| {
        hold.send(()).ok();
        wait.recv().ok();
        Err(Rejected("held the writer up".into()))
    }));
    let plug = journal.append(plug);
    // The writer has taken the plug and nothing else: what comes now waits, and is taken all at once.
    held.recv().unwrap();
    let appends: Vec<_> = payloads.into_iter().map(|payload| journal.append(entry(1, 0, payload))).collect();
    go.send(()).unwrap();
    assert!(matches!(plug.wait(), Err(AppendError::Rejected(_))));
    let appended: Vec<_> = wait_all(appends).into_iter().map(Result::unwrap).collect();
    assert!(appended.windows(2).all(|pair| pair[0].position.file_offset() == pair[1].position.file_offset()));
    appended
}

/// Everything from there on, up to the durable end.
pub(crate) fn read_from(journal: &Journal, from: Position) -> Result<Vec<Record>, ReadError> {
    let mut cursor = journal.read(from)?;
    let mut records = Vec::new();
    while let Some(record) = cursor.next_record()? {
        records.push(record);
    }
    Ok(records)
}

pub(crate) fn read_all(journal: &Journal) -> Vec<Record> {
    read_from(journal, Position::START).unwrap()
}

pub(crate) fn payloads(records: &[Record]) -> Vec<Vec<u8>> {
    records.iter().map(|record| record.payload.to_vec()).collect()
}
