//! Event ids: 16 bytes that say when and where to look, so that reading by id is a bounded seek on any engine.
//!
//! | bytes | holds |
//! |---|---|
//! | 0–5 | receive time, milliseconds since the Unix epoch, big-endian |
//! | 6–7 | slot of the endpoint, one of 65,536, fixed for ever |
//! | 8–9 | node that accepted it |
//! | 10–15 | random |
//!
//! The text form is `evt_` and 26 characters of Crockford's base32 in lower case; it sorts as the bytes do.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use data_encoding::{Encoding, Specification};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

static CROCKFORD: LazyLock<Encoding> = LazyLock::new(|| {
    let mut spec = Specification::new();
    spec.symbols.push_str("0123456789abcdefghjkmnpqrstvwxyz");
    spec.encoding().expect("32 distinct symbols are a valid base32 alphabet")
});

/// Text of `bytes` in Crockford's base32, lower case, no padding.
pub(crate) fn base32(bytes: &[u8]) -> String {
    CROCKFORD.encode(bytes)
}

/// Writes the 26 characters of 16 bytes, without an allocation.
pub fn write_base32(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [0; 26];
    CROCKFORD.encode_mut(bytes, &mut text);
    f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
}

/// Reads them again; None for any other text.
pub fn read_base32(text: &str) -> Option<[u8; 16]> {
    CROCKFORD.decode(text.as_bytes()).ok()?.try_into().ok()
}

/// One of 65,536 places that endpoints hash to. Fixed for ever: shard counts can change, slots do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u16);

impl Slot {
    /// The slot of an endpoint: FNV-1a (64 bit) over its id, folded to 16 bits.
    pub fn of(endpoint: &str) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in endpoint.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let folded = hash ^ (hash >> 32);
        Self(((folded ^ (folded >> 16)) & 0xffff) as u16)
    }
}

/// The node that accepted an event; unique in a fleet, from configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct NodeId(pub u16);

/// The id of a committed delivery, `evt_…`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId([u8; 16]);

/// Names the zero or more runs of one event, `ex_…`: the event's id under another prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExecutionId(EventId);

/// A text that is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not an event id: {expected} and 26 characters of 0-9 a-z without i, l, o, u")]
pub struct ParseEventIdError {
    expected: &'static str,
}

impl EventId {
    /// Length of the text form, in bytes.
    pub const TEXT_BYTES: usize = 4 + 26;

    pub fn new(received_unix_ms: u64, slot: Slot, node: NodeId, random: [u8; 6]) -> Self {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&received_unix_ms.to_be_bytes()[2..]);
        bytes[6..8].copy_from_slice(&slot.0.to_be_bytes());
        bytes[8..10].copy_from_slice(&node.0.to_be_bytes());
        bytes[10..].copy_from_slice(&random);
        Self(bytes)
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Receive time on the accepting node's wall clock, in milliseconds since the Unix epoch.
    pub fn received_unix_ms(&self) -> u64 {
        let mut wide = [0; 8];
        wide[2..].copy_from_slice(&self.0[..6]);
        u64::from_be_bytes(wide)
    }

    pub fn slot(&self) -> Slot {
        Slot(u16::from_be_bytes([self.0[6], self.0[7]]))
    }

    pub fn node(&self) -> NodeId {
        NodeId(u16::from_be_bytes([self.0[8], self.0[9]]))
    }

    pub fn execution(&self) -> ExecutionId {
        ExecutionId(*self)
    }

    fn write(&self, prefix: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(prefix)?;
        write_base32(&self.0, f)
    }

    fn read(prefix: &'static str, text: &str) -> Result<Self, ParseEventIdError> {
        let fault = ParseEventIdError { expected: prefix };
        let rest = text.strip_prefix(prefix).ok_or_else(|| fault.clone())?;
        read_base32(rest).map(Self).ok_or(fault)
    }
}

impl ExecutionId {
    pub fn event(&self) -> EventId {
        self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write("evt_", f)
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write("ex_", f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for EventId {
    type Err = ParseEventIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::read("evt_", text)
    }
}

impl FromStr for ExecutionId {
    type Err = ParseEventIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        EventId::read("ex_", text).map(Self)
    }
}

macro_rules! serde_as_text {
    ($name:ident) => {
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
    };
}

serde_as_text!(EventId);
serde_as_text!(ExecutionId);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_id_survives_its_text(bytes: [u8; 16]) {
            let id = EventId::from_bytes(bytes);
            prop_assert_eq!(id.to_string().len(), EventId::TEXT_BYTES);
            prop_assert_eq!(id.to_string().parse::<EventId>().unwrap(), id);
            prop_assert_eq!(id.execution().to_string().parse::<ExecutionId>().unwrap().event(), id);
        }

        #[test]
        fn text_sorts_as_time_does(a in 0_u64..1 << 48, b in 0_u64..1 << 48) {
            let id = |ms| EventId::new(ms, Slot(7), NodeId(1), [0; 6]).to_string();
            prop_assert_eq!(a.cmp(&b), id(a).cmp(&id(b)));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _maybe = text.parse::<EventId>().is_ok();
        }
    }

    #[test]
    fn parts_come_back() {
        let id = EventId::new(1_764_424_000_123, Slot(40_000), NodeId(513), [1, 2, 3, 4, 5, 6]);
        assert_eq!(id.received_unix_ms(), 1_764_424_000_123);
        assert_eq!(id.slot(), Slot(40_000));
        assert_eq!(id.node(), NodeId(513));
    }

    #[test]
    fn near_misses_are_refused() {
        let good = EventId::from_bytes([255; 16]).to_string();
        assert!(good.parse::<EventId>().is_ok());
        for bad in
            [good.to_uppercase(), good.replace("evt_", "ex_"), good[..29].to_owned(), format!("{good}0"), "evt_".into()]
        {
            assert!(bad.parse::<EventId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn slots_are_fixed_for_ever() {
        // These values are in event ids on disk: they may never change.
        assert_eq!(Slot::of("wh_9f2c1b7a"), Slot::of("wh_9f2c1b7a"));
        assert_ne!(Slot::of("wh_9f2c1b7a"), Slot::of("wh_9f2c1b7b"));
    }
}
