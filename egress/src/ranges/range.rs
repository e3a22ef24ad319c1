//! One range, and how far it has come.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::change::{At, Change, Entry};
use super::prefix::Prefix;
use super::words::{City, Country, PoolName, Region};

/// How far a range has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Said, and not used yet.
    Announced,
    /// Calls leave from it.
    Active,
    /// Still ours; calls are moved away from it.
    Draining,
    /// Not ours any more, or never was.
    Retired,
}

impl State {
    /// In the order of a range's life.
    pub const ALL: [Self; 4] = [Self::Announced, Self::Active, Self::Draining, Self::Retired];

    /// As it stands in the document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Announced => "announced",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Retired => "retired",
        }
    }

    /// May a call leave from such a range?
    pub fn is_published(self) -> bool {
        match self {
            Self::Active | Self::Draining => true,
            Self::Announced | Self::Retired => false,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One range, as the document shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Range {
    /// Which.
    pub prefix: Prefix,
    /// How far it has come.
    pub state: State,
    /// The pool that it is for; none: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub country: Option<Country>,
    /// Where in the country.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Region>,
    /// In which city.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub city: Option<City>,
    /// When it was announced.
    pub announced: At,
    /// Before this no call leaves from it, unless somebody says why.
    pub active_from: At,
    /// Since when calls may leave from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<At>,
    /// Since when they are moved away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<At>,
    /// Before this it stays ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retire_from: Option<At>,
    /// Since when it is not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired: Option<At>,
}

impl Range {
    /// Makes the step of an entry that was judged.
    pub(super) fn step(&mut self, entry: &Entry) {
        let at = entry.at;
        match entry.what {
            Change::Activate { .. } => (self.state, self.active) = (State::Active, Some(at)),
            Change::Drain { .. } => {
                (self.state, self.draining) = (State::Draining, Some(at));
                self.retire_from = Some(at.plus(entry.policy.drain_seconds));
            }
            Change::Retire { .. } | Change::Withdraw { .. } => {
                (self.state, self.retired) = (State::Retired, Some(at));
            }
            Change::Announce { .. } | Change::Renew => {}
        }
    }
}
