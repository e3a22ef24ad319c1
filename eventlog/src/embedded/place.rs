//! Places of a journal and places of the log are the same 16 bytes.

use crate::position::Place;
use crate::segment::{Position, SegmentId};

pub(crate) fn place_of(position: Position) -> Place {
    let both = u128::from_be_bytes(position.to_bytes());
    let offset = both & u128::from(u64::MAX);
    Place { epoch: u64::try_from(both >> 64).unwrap_or(u64::MAX), offset: u64::try_from(offset).unwrap_or(u64::MAX) }
}

pub(crate) fn position_of(place: Place) -> Position {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&place.epoch.to_be_bytes());
    bytes[8..].copy_from_slice(&place.offset.to_be_bytes());
    Position::from_bytes(bytes)
}

/// A record's place within its segment: the low half of the offset.
pub(crate) fn spot_of(position: Position) -> u32 {
    let [.., a, b, c, d] = position.to_bytes();
    u32::from_be_bytes([a, b, c, d])
}

pub(crate) fn position_at(segment: SegmentId, spot: u32) -> Position {
    position_of(Place { epoch: segment.epoch, offset: (u64::from(segment.sequence) << 32) | u64::from(spot) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_go_there_and_back(epoch: u64, sequence: u32, spot: u32) {
            let segment = SegmentId { epoch, sequence };
            let position = position_at(segment, spot);
            prop_assert_eq!((position.segment(), spot_of(position)), (segment, spot));
            prop_assert_eq!(position_of(place_of(position)), position);
        }
    }
}
