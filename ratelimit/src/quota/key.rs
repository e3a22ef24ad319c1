//! What a bucket is called.

use std::fmt;
use std::str::FromStr;

use super::name::{InvalidName, Name};

/// An application at a provider: the unit that is atomic together. A store puts everything of one application in one
/// place (a hash tag `{q:PROVIDER:APPLICATION}`), and one operation never spans two.
///
/// A source address that several applications share is an application of its own, say `src-192.0.2.1`; it is asked
/// after the calling application, and what that granted is given back when the address refuses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Application {
    pub provider: Name,
    pub name: Name,
}

impl fmt::Display for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.name)
    }
}

/// Whom a provider counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The application's credential, which tenants share: here, and only here, shares are fair between tenants.
    App,
    /// A tenant's account at the provider.
    Connection,
    Region,
    /// A source address.
    Source,
}

impl Level {
    pub const ALL: [Self; 4] = [Self::App, Self::Connection, Self::Region, Self::Source];

    /// The word in keys, labels and answers.
    pub const fn word(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Connection => "connection",
            Self::Region => "region",
            Self::Source => "source",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.word() == word)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One bucket of an application.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketKey {
    pub level: Level,
    /// Whose bucket of that level it is: a connection, a region, an address; of the application itself `-`.
    pub scope: Name,
    /// Which of the provider's rules it is: `daily`, `burst`.
    pub policy: Name,
}

impl fmt::Display for BucketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.level, self.scope, self.policy)
    }
}

/// A bucket by all that it is called: `PROVIDER:APPLICATION/LEVEL:SCOPE:POLICY`, as operators read and write it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketName {
    pub application: Application,
    pub key: BucketKey,
}

/// Why a text names no application or bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBucket {
    #[error("is not of the form PROVIDER:APPLICATION/LEVEL:SCOPE:POLICY")]
    Form,
    #[error("is not of the form PROVIDER:APPLICATION")]
    Application,
    #[error("has a level other than app, connection, region and source")]
    Level,
    #[error("has a part that {0}")]
    Name(#[from] InvalidName),
}

impl fmt::Display for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.application, self.key)
    }
}

impl FromStr for Application {
    type Err = InvalidBucket;

    fn from_str(text: &str) -> Result<Self, InvalidBucket> {
        let (provider, name) = text.split_once(':').ok_or(InvalidBucket::Application)?;
        Ok(Self { provider: Name::parse(provider)?, name: Name::parse(name)? })
    }
}

impl FromStr for BucketName {
    type Err = InvalidBucket;

    fn from_str(text: &str) -> Result<Self, InvalidBucket> {
        let (application, key) = text.split_once('/').ok_or(InvalidBucket::Form)?;
        let mut parts = key.split(':');
        let (Some(level), Some(scope), Some(policy), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(InvalidBucket::Form);
        };
        let level = Level::parse(level).ok_or(InvalidBucket::Level)?;
        let key = BucketKey { level, scope: Name::parse(scope)?, policy: Name::parse(policy)? };
        Ok(Self { application: application.parse()?, key })
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_bucket_is_read_as_it_is_written() {
        for text in ["hubspot:app/app:-:daily", "generic:acme.crm/connection:acme.crm:any"] {
            assert_eq!(text.parse::<BucketName>().unwrap().to_string(), text);
        }
        let refused = |text: &str| text.parse::<BucketName>().unwrap_err();
        assert_eq!(refused("hubspot:app"), InvalidBucket::Form);
        assert_eq!(refused("hubspot/app:-:daily"), InvalidBucket::Application);
        assert_eq!(refused("hubspot:app/app:-"), InvalidBucket::Form);
        assert_eq!(refused("hubspot:app/app:-:a:b"), InvalidBucket::Form);
        assert_eq!(refused("hubspot:app/world:-:daily"), InvalidBucket::Level);
        assert_eq!(refused("hubspot:app/app::daily"), InvalidBucket::Name(InvalidName::Empty));
        assert_eq!(refused("hub{spot}:app/app:-:daily"), InvalidBucket::Name(InvalidName::Character(3)));
        assert!(refused("hubspot:app/app:\u{1b}:daily").to_string().contains("character"));
    }
}
