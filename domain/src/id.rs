//! Names that people and providers write: tenants and endpoints.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest accepted name, in bytes: it fits a log line, a metric's exemplar and a file name on every system.
pub const NAME_BYTES_MAX: usize = 64;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    #[error("is empty")]
    Empty,
    #[error("is longer than {NAME_BYTES_MAX} bytes")]
    TooLong,
    #[error("has a character other than A-Z, a-z, 0-9, '-' and '_' at byte {0}")]
    Character(usize),
    #[error("does not begin with a letter or a digit")]
    Start,
}

fn check(text: &str) -> Result<(), InvalidId> {
    if text.is_empty() {
        return Err(InvalidId::Empty);
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(InvalidId::TooLong);
    }
    if let Some(at) = text.bytes().position(|b| !(b.is_ascii_alphanumeric() || b == b'-' || b == b'_')) {
        return Err(InvalidId::Character(at));
    }
    if !text.as_bytes()[0].is_ascii_alphanumeric() {
        return Err(InvalidId::Start);
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Reads the text form: 1 to 64 bytes of letters, digits, `-` and `_`.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                check(text)?;
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).map_err(|fault| serde::de::Error::custom(format_args!("the name {fault}")))
            }
        }
    };
}

name! {
    /// The customer whose events, calls and secrets these are.
    TenantId
}

name! {
    /// A URL that a provider posts to, `wh_…`. Ids that Tidegate issues carry 96 random bits.
    EndpointId
}

impl EndpointId {
    /// Mints an id that nobody can guess: 96 bits from the operating system, in 20 characters.
    ///
    /// # Errors
    /// The operating system gives no randomness.
    pub fn issue() -> Result<Self, getrandom::Error> {
        let mut random = [0_u8; 12];
        getrandom::fill(&mut random)?;
        Ok(Self(format!("wh_{}", crate::event_id::base32(&random)).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_plain() {
        assert_eq!(TenantId::parse("acme").unwrap().as_str(), "acme");
        assert!(EndpointId::parse("wh_9f2c1b7a").is_ok());
        assert_eq!(TenantId::parse(""), Err(InvalidId::Empty));
        assert_eq!(TenantId::parse(&"a".repeat(65)), Err(InvalidId::TooLong));
        assert!(TenantId::parse(&"a".repeat(64)).is_ok());
        assert_eq!(TenantId::parse("a/b"), Err(InvalidId::Character(1)));
        assert_eq!(TenantId::parse("a.b"), Err(InvalidId::Character(1)));
        assert_eq!(TenantId::parse("é"), Err(InvalidId::Character(0)));
        assert_eq!(TenantId::parse("-rf"), Err(InvalidId::Start));
        assert_eq!(TenantId::parse("_a"), Err(InvalidId::Start));
    }

    #[test]
    fn issued_ids_parse_and_differ() {
        let (one, two) = (EndpointId::issue().unwrap(), EndpointId::issue().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.as_str().len(), 3 + 20);
        assert_eq!(EndpointId::parse(one.as_str()).unwrap(), one);
    }
}
