//! Bytes of the holding stream's records. `docs/eventlog-format.md` has the same tables.
//!
//! | held | bytes | holds |
//! |---|---|---|
//! | 0 | 1 | format version, 1 |
//! | 1 | 1 | status: 1 pending, 2 quarantined |
//! | 2 | 1+n | reason: length u8, a label in ASCII |
//! | | | the delivery, in the form of an event |
//!
//! | resolved | bytes | holds |
//! |---|---|---|
//! | 0 | 1 | format version, 1 |
//! | 1 | 1 | outcome: 1 promoted, 2 discarded |
//! | 2 | 16 | id of the delivery |

use domain::EventId;

use crate::codec::DecodeError;

pub(crate) const KIND_HELD: u8 = 2;
pub(crate) const KIND_RESOLVED: u8 = 3;

const FORMAT_VERSION: u8 = 1;

/// Why a delivery is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// It could not be judged yet: its key is still being fetched.
    Pending,
    /// It was judged and did not verify.
    Quarantined,
}

/// What became of a held delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It verified and is in the event log, under the same id.
    Promoted,
    /// Somebody threw it away.
    Discarded,
}

/// What stands in front of a held delivery's own bytes. The reason is cut to what a label may be.
pub(crate) fn held_prefix(status: Status, reason: &str) -> Vec<u8> {
    let status = match status {
        Status::Pending => 1,
        Status::Quarantined => 2,
    };
    let reason: Vec<u8> = reason.bytes().filter(u8::is_ascii_graphic).take(usize::from(u8::MAX)).collect();
    let length = u8::try_from(reason.len()).unwrap_or(u8::MAX);
    [&[FORMAT_VERSION, status, length], &reason[..]].concat()
}

/// Status, reason, and the delivery in the form of an event. Never panics, allocates nothing.
pub fn decode_held(bytes: &[u8]) -> Result<(Status, &str, &[u8]), DecodeError> {
    let ([version, status, length], rest) =
        bytes.split_first_chunk::<3>().ok_or(DecodeError::Truncated { field: "held record" })?;
    if *version != FORMAT_VERSION {
        return Err(DecodeError::Version(*version));
    }
    let status = match status {
        1 => Status::Pending,
        2 => Status::Quarantined,
        _ => return Err(DecodeError::Invalid { field: "status" }),
    };
    let (reason, event) =
        rest.split_at_checked(usize::from(*length)).ok_or(DecodeError::Truncated { field: "reason" })?;
    if !reason.iter().all(u8::is_ascii_graphic) {
        return Err(DecodeError::Invalid { field: "reason" });
    }
    let reason = std::str::from_utf8(reason).map_err(|_| DecodeError::Invalid { field: "reason" })?;
    Ok((status, reason, event))
}

pub(crate) fn resolved(id: EventId, outcome: Outcome) -> Vec<u8> {
    let outcome = match outcome {
        Outcome::Promoted => 1,
        Outcome::Discarded => 2,
    };
    [&[FORMAT_VERSION, outcome], &id.as_bytes()[..]].concat()
}

/// Never panics, allocates nothing.
pub fn decode_resolved(bytes: &[u8]) -> Result<(EventId, Outcome), DecodeError> {
    let ([version, outcome], rest) =
        bytes.split_first_chunk::<2>().ok_or(DecodeError::Truncated { field: "resolved record" })?;
    if *version != FORMAT_VERSION {
        return Err(DecodeError::Version(*version));
    }
    let outcome = match outcome {
        1 => Outcome::Promoted,
        2 => Outcome::Discarded,
        _ => return Err(DecodeError::Invalid { field: "outcome" }),
    };
    let id: [u8; 16] = rest.try_into().map_err(|_| DecodeError::Invalid { field: "id" })?;
    Ok((EventId::from_bytes(id), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_round_trip(id: [u8; 16], promoted: bool, pending: bool, reason in "[!-~]{0,40}", rest: Vec<u8>) {
            let id = EventId::from_bytes(id);
            let outcome = if promoted { Outcome::Promoted } else { Outcome::Discarded };
            prop_assert_eq!(decode_resolved(&resolved(id, outcome)), Ok((id, outcome)));
            let status = if pending { Status::Pending } else { Status::Quarantined };
            let mut record = held_prefix(status, &reason);
            record.extend_from_slice(&rest);
            prop_assert_eq!(decode_held(&record), Ok((status, reason.as_str(), rest.as_slice())));
        }

        #[test]
        fn any_bytes_are_a_record_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..40), near: bool) {
            if near && !bytes.is_empty() {
                bytes[0] = FORMAT_VERSION;
            }
            decode_held(&bytes).ok();
            decode_resolved(&bytes).ok();
        }
    }

    #[test]
    fn the_format_is_what_the_document_says() {
        assert_eq!(held_prefix(Status::Quarantined, "mismatch"), b"\x01\x02\x08mismatch");
        assert_eq!(held_prefix(Status::Pending, "a b\n"), b"\x01\x01\x02ab");
        assert_eq!(resolved(EventId::from_bytes([9; 16]), Outcome::Promoted), [&[1, 1][..], &[9; 16]].concat());
        assert_eq!(held_prefix(Status::Pending, &"x".repeat(300)).len(), 3 + 255);
    }
}
