//! What a bucket is called.

use std::fmt;

use super::name::Name;

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
