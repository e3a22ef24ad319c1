//! A record of a breaker or a baseline, as it is kept in the journal.
//!
//! ```text
//! version 1 | crc32c of kind, key and record 4 | record
//! ```
//!
//! The journal's own frames notice a damaged disk. What is noticed here is a record that is not what was written for this
//! key: of another kind, of another pair, cut short. It is dropped and never believed: a breaker that opens too late is
//! less than one that is open for nobody knows what.

use ratelimit::quota::NoteKind;
use ratelimit::{PAIR_KEY_BYTES, PairKey};

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 5;

/// The note of this record.
pub(super) fn seal(kind: NoteKind, key: PairKey, record: &[u8]) -> Vec<u8> {
    let mut note = Vec::with_capacity(HEAD_BYTES + record.len());
    note.push(VERSION);
    note.extend(checksum(kind, &key.to_bytes(), record).to_le_bytes());
    note.extend(record);
    note
}

/// The key and the record of a note, if it is what was written.
pub(super) fn open<'n>(kind: NoteKind, key: &[u8], note: &'n [u8]) -> Option<(PairKey, &'n [u8])> {
    let key: &[u8; PAIR_KEY_BYTES] = key.try_into().ok()?;
    let (&[version, ref sum @ ..], record) = note.split_first_chunk::<HEAD_BYTES>()?;
    let is_whole = version == VERSION && u32::from_le_bytes(*sum) == checksum(kind, key, record);
    is_whole.then(|| (PairKey::from_bytes(*key), record))
}

fn checksum(kind: NoteKind, key: &[u8; PAIR_KEY_BYTES], record: &[u8]) -> u32 {
    let kind = match kind {
        NoteKind::Breaker => b'b',
        NoteKind::Baseline => b'r',
    };
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&[kind]), key), record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_what_was_written_or_nothing() {
        let (key, other) = (PairKey::from_bytes([7; 16]), [8; 16]);
        let note = seal(NoteKind::Breaker, key, b"record");
        let opened = |kind, key: &[u8], note: &[u8]| open(kind, key, note).map(|(key, record)| (key, record.to_vec()));
        assert_eq!(opened(NoteKind::Breaker, &[7; 16], &note), Some((key, b"record".to_vec())));
        assert_eq!(opened(NoteKind::Baseline, &[7; 16], &note), None, "of another kind");
        assert_eq!(opened(NoteKind::Breaker, &other, &note), None, "of another pair");
        assert_eq!(opened(NoteKind::Breaker, &[7; 15], &note), None);
        for cut in 0..note.len() {
            assert_eq!(opened(NoteKind::Breaker, &[7; 16], &note[..cut]), None, "cut at {cut}");
        }
        for bit in 0..note.len() * 8 {
            let mut flipped = note.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(opened(NoteKind::Breaker, &[7; 16], &flipped), None, "bit {bit}");
        }
    }
}
