//! Places of the tail: how far a reader is in each shard.

use crate::ledger::store::{ReadError, TailPosition};
use crate::postgres::SHARDS;

const VERSION: u8 = 1;
const BYTES: usize = 1 + 8 * SHARDS as usize;

/// The place of the last record that was read, of each shard; 0 before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Places(pub(super) [i64; SHARDS as usize]);

impl Places {
    pub(super) fn parse(position: &TailPosition) -> Result<Self, ReadError> {
        let mut places = Self::default();
        if *position == TailPosition::start() {
            return Ok(places);
        }
        let odd = || ReadError::Damaged("this is no place of this ledger".into());
        let bytes: &[u8; BYTES] = position.0.as_ref().try_into().map_err(|_| odd())?;
        if bytes[0] != VERSION {
            return Err(odd());
        }
        for (place, bytes) in places.0.iter_mut().zip(bytes[1..].as_chunks().0) {
            *place = Some(i64::from_be_bytes(*bytes)).filter(|place| *place >= 0).ok_or_else(odd)?;
        }
        Ok(places)
    }

    pub(super) fn position(&self) -> TailPosition {
        let places = self.0.iter().flat_map(|place| place.to_be_bytes());
        TailPosition(std::iter::once(VERSION).chain(places).collect())
    }

    /// Which shard is read first: not always the same one, so that none waits behind a busy one for ever.
    pub(super) fn first(&self) -> usize {
        let sum = self.0.iter().fold(0_i64, |sum, place| sum.wrapping_add(*place));
        usize::try_from(sum.rem_euclid(i64::from(SHARDS))).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_were_written() {
        let places = Places([0, 1, i64::MAX, 7, 8, 9, 10, 11]);
        assert_eq!(Places::parse(&places.position()), Ok(places));
        assert_eq!(Places::parse(&TailPosition::start()), Ok(Places::default()));
        let mut negative = places.position().0;
        negative[1] = 0xff;
        let mut later = places.position().0;
        later[0] = 2;
        let mut long = places.position().0.into_vec();
        long.push(0);
        for odd in [negative, later, long.into()] {
            assert!(Places::parse(&TailPosition(odd)).is_err());
        }
    }
}
