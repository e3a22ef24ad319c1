//! Recovery: a log whose files were changed behind its back opens or says why not, serves no record that was never
//! appended, and never loses one without a word.
#![no_main]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use domain::{Clock, ManualClock};
use eventlog::segment::storage::MemoryStorage;
use eventlog::segment::{Entry, Journal, Options, Position, Storage, SyncMode};
use libfuzzer_sys::fuzz_target;

const DIRECTORY: &str = "/log";

fn options(storage: &MemoryStorage) -> Options {
    let clock: Arc<dyn Clock> = ManualClock::at_unix_ms(1_800_000_000_000);
    let mut options = Options::new(DIRECTORY, clock);
    options.segment_bytes = 32 << 10;
    options.reserve_bytes = 0;
    options.sync = SyncMode::Fdatasync;
    options.storage = Arc::new(storage.clone()) as Arc<dyn Storage>;
    options
}

/// Three lives of a log with sealed segments, a tail that was cut off by a kill, and one that was closed.
static LOG: LazyLock<(MemoryStorage, Vec<PathBuf>, BTreeSet<Vec<u8>>)> = LazyLock::new(|| {
    let storage = MemoryStorage::new();
    let mut payloads = BTreeSet::new();
    for life in 0..3_u64 {
        let (journal, _) = Journal::open(options(&storage)).expect("it opens");
        for number in 0..30_u64 {
            let payload = [format!("{life} {number} ").into_bytes(), vec![b'x'; 900]].concat();
            payloads.insert(payload.clone());
            let entry = Entry { stream: 1 + number % 2, time_unix_ms: number, kind: 1, payload: payload.into(), check: None };
            journal.append(entry).wait().expect("it is appended");
        }
        if life == 1 {
            storage.kill();
        }
        journal.close();
    }
    let files = storage.files().into_iter().map(|(path, _)| path).collect();
    (storage, files, payloads)
});

// Changes, each of: file, place (two bytes), kind, value.
fuzz_target!(|data: &[u8]| {
    let (log, files, payloads) = &*LOG;
    let storage = log.copy();
    for change in data.chunks_exact(5).take(8) {
        let [file, high, low, kind, value] = *change else { continue };
        let place = usize::from(u16::from_be_bytes([high, low]));
        let file = &files[usize::from(file) % files.len()];
        storage.tamper(file, |bytes| apply(bytes, place, kind, value));
    }
    let Ok(report) = Journal::verify_in(&storage, Path::new(DIRECTORY)) else { return };
    let Ok((journal, recovery)) = Journal::open(options(&storage)) else { return };
    let mut found = BTreeSet::new();
    let mut told = !recovery.damage.is_empty() || !recovery.torn.is_empty() || !recovery.disowned.is_empty();
    if let Ok(mut cursor) = journal.read(Position::START) {
        loop {
            match cursor.next_record() {
                Ok(Some(record)) => {
                    let payload = record.payload.to_vec();
                    assert!(payloads.contains(&payload), "a record that was never appended");
                    assert!(found.insert(payload), "a record twice");
                }
                Ok(None) => break,
                Err(_) => {
                    told = true;
                    if !cursor.skip_damage() {
                        break;
                    }
                }
            }
        }
    } else {
        told = true;
    }
    assert!(told || found.len() == payloads.len(), "{} of {} records, and not a word", found.len(), payloads.len());
    let offline = !report.is_whole() || !report.torn.is_empty() || !report.disowned.is_empty();
    assert!(offline || found.len() == payloads.len(), "`log verify` says that all is well");
    journal.close();
});

fn apply(bytes: &mut Vec<u8>, place: usize, kind: u8, value: u8) {
    let length = bytes.len();
    if length == 0 {
        return;
    }
    let place = place % length;
    match kind % 5 {
        0 => bytes[place] ^= value.max(1),
        1 => bytes.truncate(place),
        2 => bytes[place..].fill(0),
        3 => bytes[place..(place + 512).min(length)].fill(value),
        _ => {
            // A write that went to another place.
            let from = usize::from(value) * 128 % length;
            let piece = bytes[from..(from + 4096).min(length)].to_vec();
            let end = (place + piece.len()).min(length);
            bytes[place..end].copy_from_slice(&piece[..end - place]);
        }
    }
}
