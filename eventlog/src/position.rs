//! Places in the log. A position is opaque to users: its text form is for handing back, not for taking apart.
//!
//! The log is made of lanes. A lane is one journal: a retention class, a generation (a change of the shard count
//! begins a new one), a shard. A [`Position`] is the place of one event in one lane; a [`Cursor`] is a consumer's
//! place: one place in every lane.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use domain::id::NAME_BYTES_MAX;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One journal of the log.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    /// Retention class.
    pub class: Arc<str>,
    /// Counts up when the number of shards changes; an older generation is read before a newer one.
    pub generation: u32,
    pub shard: u16,
}

/// A place within a lane: the writer's epoch and an offset under it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Place {
    pub epoch: u64,
    pub offset: u64,
}

/// The place of one event.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    pub lane: Lane,
    pub place: Place,
}

/// A consumer's place: what it reads next, in every lane that it has seen. A lane that is missing is read from
/// its beginning.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Cursor {
    lanes: BTreeMap<Lane, Place>,
}

/// A text that is no position or cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not a position of this log")]
pub struct ParsePositionError;

/// Most lanes that a cursor's text may name: far above any configuration, and a bound on what a text can cost.
const LANES_MAX: usize = 65_536;

/// Is this a name that a lane's directory and a position's text can carry?
pub(crate) fn is_class_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= NAME_BYTES_MAX
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && text.as_bytes()[0].is_ascii_alphanumeric()
}

impl Cursor {
    /// The place in one lane, if this cursor has one there.
    pub fn place(&self, lane: &Lane) -> Option<Place> {
        self.lanes.get(lane).copied()
    }

    pub fn set(&mut self, lane: Lane, place: Place) {
        self.lanes.insert(lane, place);
    }

    pub fn lanes(&self) -> impl Iterator<Item = (&Lane, Place)> {
        self.lanes.iter().map(|(lane, place)| (lane, *place))
    }

    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Moves the place in a lane without a new key where the lane is known: what a reader does per event.
    pub fn advance(&mut self, lane: &Lane, place: Place) {
        if let Some(known) = self.lanes.get_mut(lane) {
            *known = place;
        } else {
            self.lanes.insert(lane.clone(), place);
        }
    }

    /// Forgets lanes that are gone, so that a cursor does not grow with every change of the shard count.
    pub fn retain(&mut self, keep: impl Fn(&Lane) -> bool) {
        self.lanes.retain(|lane, _| keep(lane));
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.class, self.generation, self.shard)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.lane, self.place.epoch, self.place.offset)
    }
}

/// `-` for the beginning of everything, else positions joined by commas.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lanes.is_empty() {
            return f.write_str("-");
        }
        for (nth, (lane, place)) in self.lanes.iter().enumerate() {
            if nth > 0 {
                f.write_str(",")?;
            }
            write!(f, "{lane}.{}.{}", place.epoch, place.offset)?;
        }
        Ok(())
    }
}

/// Digits as this module writes them: no sign, no leading zero, so that a place has one text.
fn number<T: FromStr>(text: &str) -> Result<T, ParsePositionError> {
    let canonical = text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
    if !canonical {
        return Err(ParsePositionError);
    }
    text.parse().map_err(|_| ParsePositionError)
}

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('.');
        let mut part = || parts.next().ok_or(ParsePositionError);
        let class = part()?;
        if !is_class_name(class) {
            return Err(ParsePositionError);
        }
        let lane = Lane { class: class.into(), generation: number(part()?)?, shard: number(part()?)? };
        let place = Place { epoch: number(part()?)?, offset: number(part()?)? };
        if parts.next().is_some() {
            return Err(ParsePositionError);
        }
        Ok(Self { lane, place })
    }
}

impl FromStr for Cursor {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut cursor = Self::default();
        if text == "-" {
            return Ok(cursor);
        }
        for (nth, part) in text.split(',').enumerate() {
            let Position { lane, place } = part.parse()?;
            if nth >= LANES_MAX || cursor.lanes.insert(lane, place).is_some() {
                return Err(ParsePositionError);
            }
        }
        Ok(cursor)
    }
}

macro_rules! text_form {
    ($($name:ident),+) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )+};
}
text_form!(Lane, Position, Cursor);

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.offset)
    }
}

macro_rules! serde_as_text {
    ($($name:ident),+) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}
serde_as_text!(Position, Cursor);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn position() -> impl Strategy<Value = Position> {
        ("[a-z0-9][a-zA-Z0-9_-]{0,63}", any::<u32>(), any::<u16>(), any::<u64>(), any::<u64>()).prop_map(
            |(class, generation, shard, epoch, offset)| Position {
                lane: Lane { class: class.into(), generation, shard },
                place: Place { epoch, offset },
            },
        )
    }

    proptest! {
        #[test]
        fn text_round_trips(positions in proptest::collection::vec(position(), 0..5)) {
            let mut cursor = Cursor::default();
            for position in positions {
                prop_assert_eq!(&position.to_string().parse::<Position>().unwrap(), &position);
                cursor.set(position.lane, position.place);
            }
            prop_assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,60}") {
            if let Ok(position) = text.parse::<Position>() {
                prop_assert_eq!(position.to_string(), text);
            }
        }
    }

    #[test]
    fn near_misses_are_refused() {
        for text in ["", ".", "a.1.1.1", "a.1.1.1.1.1", "a.1.1.1.01", "a.1.65536.1.1", "a/b.1.1.1.1", "-a.1.1.1.1"] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
        assert!("a.1.1.1.1,a.1.1.1.2".parse::<Cursor>().is_err());
        assert!("".parse::<Cursor>().is_err());
    }
}
