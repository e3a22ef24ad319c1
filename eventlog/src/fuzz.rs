//! What fuzz targets call: pure functions of bytes, over storage in memory.

use std::path::Path;
use std::sync::Arc;

use domain::ManualClock;

use crate::codec::decode_event;
use crate::segment::storage::MemoryStorage;
use crate::segment::{Journal, Options, Position, SegmentId, Storage, View};

/// What recovery made of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    pub records: usize,
    pub events: usize,
    /// Stretches of damage that a reader met.
    pub damage: usize,
}

/// Takes bytes for the file of a journal's only segment and recovers it: opens it for reading and for writing, reads
/// everything, passes over damage, appends nothing. No bytes may panic it, keep it busy for ever, or make the two
/// ways of opening disagree about a record.
pub fn recover(bytes: &[u8]) -> Recovered {
    let storage = Arc::new(MemoryStorage::new());
    let directory = Path::new("/fuzz");
    let segment = directory.join(format!("{}.seg", SegmentId { epoch: 1, sequence: 0 }));
    let clock = ManualClock::at_unix_ms(1);
    let ready = storage.create_directory(directory).and_then(|()| storage.put(&segment, bytes));
    let shared: Arc<dyn Storage> = Arc::<MemoryStorage>::clone(&storage);
    let (Ok(()), Ok(view)) = (ready, View::open(Arc::clone(&shared), directory, Arc::<ManualClock>::clone(&clock)))
    else {
        return Recovered::default();
    };
    let seen = view.read(Position::START).map(count).unwrap_or_default();
    let options =
        Options { segment_bytes: 32 << 10, reserve_bytes: 0, storage: shared, ..Options::new(directory, clock) };
    if let Ok((journal, _)) = Journal::open(options) {
        let again = journal.read(Position::START).map(count).unwrap_or_default();
        assert_eq!(seen.records, again.records, "reading and recovering disagree");
    }
    seen
}

fn count(mut cursor: crate::segment::Cursor) -> Recovered {
    let mut found = Recovered::default();
    loop {
        match cursor.next_record() {
            Ok(Some(record)) => {
                found.records += 1;
                found.events += usize::from(decode_event(&record.payload).is_ok());
            }
            Ok(None) => return found,
            Err(_) => {
                found.damage += 1;
                if !cursor.skip_damage() {
                    return found;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::conformance::{EPOCH_UNIX_MS, NODE, event};
    use crate::segment::{Entry, Payload};

    /// The file of a segment with so many events.
    fn segment(events: u32) -> Vec<u8> {
        let storage = Arc::new(MemoryStorage::new());
        let shared: Arc<dyn Storage> = Arc::<MemoryStorage>::clone(&storage);
        let clock = ManualClock::at_unix_ms(1);
        let options =
            Options { segment_bytes: 64 << 10, reserve_bytes: 0, storage: shared, ..Options::new("/made", clock) };
        let (journal, _) = Journal::open(options).unwrap();
        for number in 0..events {
            let event = event("acme", "wh_1", EPOCH_UNIX_MS, number % 10);
            let head = crate::codec::encode_head(&event, NODE).unwrap();
            let payload = Payload { head, middle: event.body, ..Payload::default() };
            let entry = Entry { stream: 1, time_unix_ms: 1, kind: 1, payload, check: None };
            journal.append(entry).wait().unwrap();
        }
        let id = SegmentId { epoch: 1, sequence: 0 }.to_string();
        let files = storage.files();
        let file = files.into_iter().find(|(path, _)| path.to_str().unwrap().ends_with(&format!("{id}.seg")));
        file.unwrap().1
    }

    #[test]
    fn a_whole_segment_is_recovered_whole() {
        assert_eq!(recover(&segment(9)), Recovered { records: 9, events: 9, damage: 0 });
        assert_eq!(recover(&[]), Recovered::default());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_are_too_odd(
            noise in proptest::collection::vec(any::<u8>(), 0..9_000),
            at: prop::sample::Index,
            to: u8,
            cut: prop::sample::Index,
        ) {
            recover(&noise);
            let mut bytes = segment(9);
            let at = at.index(bytes.len());
            bytes[at] = to;
            prop_assert!(recover(&bytes).records <= 9);
            bytes.truncate(cut.index(bytes.len()));
            prop_assert!(recover(&bytes).records <= 9);
        }
    }
}
