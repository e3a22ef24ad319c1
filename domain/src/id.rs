//! Names that people and providers write: tenants, endpoints, connections and connectors.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU8;
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

/// Bytes of a name that stand where a longer one's pointer stands: the ids that Tidegate issues have as many.
const SHORT_BYTES_MAX: usize = 23;

/// The text of a name, in 24 bytes. A node holds a million of them, and most are short: those cost nothing beside, and
/// copying one touches no counter that every thread counts on.
#[derive(Clone)]
enum Name {
    Short([u8; SHORT_BYTES_MAX], NonZeroU8),
    Long(Arc<str>),
}

impl Name {
    fn parse(text: &str) -> Result<Self, InvalidId> {
        check(text)?;
        let length = u8::try_from(text.len()).ok().and_then(NonZeroU8::new);
        Ok(match length {
            Some(length) if text.len() <= SHORT_BYTES_MAX => {
                let mut short = [0; SHORT_BYTES_MAX];
                short[..text.len()].copy_from_slice(text.as_bytes());
                Self::Short(short, length)
            }
            _ => Self::Long(text.into()),
        })
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes, length) => &bytes[..usize::from(length.get())],
            Self::Long(text) => text.as_bytes(),
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Short(..) => str::from_utf8(self.as_bytes()).expect("a name was checked: it is ASCII"),
            Self::Long(text) => text,
        }
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(Name);

        impl $name {
            /// Reads the text form: 1 to 64 bytes of letters, digits, `-` and `_`.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                Name::parse(text).map(Self)
            }

            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }

            /// The same as bytes, for comparing.
            pub fn as_bytes(&self) -> &[u8] {
                self.0.as_bytes()
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.as_bytes() == other.as_bytes()
            }
        }

        impl Eq for $name {}

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                self.as_bytes().cmp(other.as_bytes())
            }
        }

        /// As its text: a table is asked for either.
        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.as_str().hash(state);
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                self.as_str()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
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

name! {
    /// A tenant's account at one provider, `conn_…`.
    ConnectionId
}

name! {
    /// What all connections to one provider share, by the provider's name.
    ConnectorId
}

impl EndpointId {
    /// Mints an id that nobody can guess: 96 bits from the operating system, in 20 characters.
    ///
    /// # Errors
    /// The operating system gives no randomness.
    pub fn issue() -> Result<Self, getrandom::Error> {
        let mut random = [0_u8; 12];
        getrandom::fill(&mut random)?;
        let text = format!("wh_{}", crate::event_id::base32(&random));
        Ok(Self::parse(&text).expect("base32 is letters and digits"))
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
    fn a_name_is_its_text_however_it_is_kept() {
        use std::collections::HashSet;
        assert_eq!((size_of::<TenantId>(), size_of::<EndpointId>()), (24, 24));
        let texts: Vec<String> = (1..=NAME_BYTES_MAX).map(|bytes| "n".repeat(bytes)).collect();
        let names: Vec<_> = texts.iter().map(|text| TenantId::parse(text).unwrap()).collect();
        let set: HashSet<TenantId> = names.iter().cloned().collect();
        for (text, name) in texts.iter().zip(&names) {
            assert_eq!(
                (name.as_str(), name.to_string().as_str(), name.as_bytes()),
                (&**text, &**text, text.as_bytes())
            );
            assert!(set.contains(text.as_str()) && set.contains(&name.clone()), "{text}");
            let short = matches!(name.0, Name::Short(..));
            assert_eq!(short, text.len() <= 3 + 20, "issued ids cost nothing beside");
        }
        let mut sorted = names.clone();
        sorted.reverse();
        sorted.sort();
        assert_eq!(sorted, names);
        assert!(TenantId::parse("b").unwrap() > names[0].clone().min(TenantId::parse("abc").unwrap()));
    }

    #[test]
    fn issued_ids_parse_and_differ() {
        let (one, two) = (EndpointId::issue().unwrap(), EndpointId::issue().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.as_str().len(), 3 + 20);
        assert_eq!(EndpointId::parse(one.as_str()).unwrap(), one);
    }
}
